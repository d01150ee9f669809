"""Agents of real frameworks: each test file is for one, and is collected where that is installed."""

from importlib.util import find_spec

# Not named: what needs none of them.
NEEDED = {
    "test_pydantic_ai.py": "pydantic_ai",
    "test_openai_agents.py": "agents",
    "test_langgraph.py": "langgraph.pregel",
    "test_google_adk.py": "google.adk",
    "test_autogen.py": "autogen_agentchat",
    "test_agent_framework.py": "agent_framework",
    "test_crewai.py": "crewai",
}


def installed(package: str) -> bool:
    """Say whether a package is here; a folder of the same name is none."""
    try:
        found = find_spec(package)
    except ModuleNotFoundError:
        return False
    return found is not None and found.origin is not None


collect_ignore = [file for file, module in NEEDED.items() if not installed(module)]
