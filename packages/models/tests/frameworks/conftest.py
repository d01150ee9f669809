"""Agents of real frameworks: each test file is for one, and is collected where that is installed."""

from importlib.util import find_spec
from pathlib import Path

import pytest

# Not named: what needs none of them.
NEEDED = {
    "test_pydantic_ai.py": "pydantic_ai",
    "test_openai_agents.py": "agents",
    "test_openai_airline.py": "agents",
    "test_langgraph.py": "langgraph.pregel",
    "test_google_adk.py": "google.adk",
    "test_autogen.py": "autogen_agentchat",
    "test_agent_framework.py": "agent_framework",
    "test_crewai.py": "crewai",
}


def installed(package: str) -> bool:
    """Say whether a package is here; a folder of the same name is none."""
    try:
        spec = find_spec(package)
    except ModuleNotFoundError:
        return False
    return spec is not None and spec.origin is not None


collect_ignore = [file for file, module in NEEDED.items() if not installed(module)]


def pytest_collect_file(file_path: Path) -> None:
    """Say what is missing if a file is named outright: then it is not ignored, and `agents` is a folder here too."""
    if file_path.name in collect_ignore:
        needed = NEEDED[file_path.name]
        raise pytest.UsageError(f"{file_path.name} needs {needed}, which this environment lacks: make test-frameworks")
