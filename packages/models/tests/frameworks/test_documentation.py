"""Every example with a framework runs as its page shows it, but for its model: that is one from the tests here."""

import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from doc_pages import Block, blocks
from docs.test_examples import PAGES
from frameworks.conftest import NEEDED, installed
from frameworks.suite import Say, Seen, Use

MARK = "framework:"
FILES = {file.removeprefix("test_").removesuffix(".py"): package for file, package in NEEDED.items()}
# Frameworks whose examples have no model.
FILES |= {"fastapi": "fastapi"}

ALL = [
    (block, block.marks[-1].removeprefix(MARK))
    for page in PAGES
    for block in blocks(page)
    if block.marks and block.marks[-1].startswith(MARK)
]
HERE = [pytest.param(block, name, id=str(block)) for block, name in ALL if installed(FILES[name])]


async def takes_part(seen: Seen) -> Say | Use:
    """Use the one tool, or ask the one agent, and say what came of it."""
    if seen.tool_results:
        return Say([seen.tool_results[0]])
    if not seen.tools:
        return Say(['{"answer": "12 tins", "confidence": 0.8, "sources": ["shelf-2"]}'])
    if "price" in seen.tools:
        return Use("price", {"tea": "sencha"})
    return Use("sub_agent", {"agent_name": "stock", "task": "How much sencha is there?"})


def model_for(name: str) -> Any:
    """Return the scripted model that the tests of a framework use."""
    tests: Any = import_module(f"frameworks.test_{name}")
    match name:
        case "pydantic_ai":
            return tests.model_of(takes_part)
        case "langgraph" | "google_adk":
            return tests.FollowsScript(script=takes_part)
        case "crewai":
            return tests.FollowsScript(model="script", script=takes_part)
        case _:
            return tests.FollowsScript(takes_part)


def put_in(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every model that the examples name be a scripted one."""

    def given(*args: Any, **options: Any) -> Any:
        return model_for(name)

    def module(path: str, attribute: str) -> None:
        made: Any = ModuleType(path)
        setattr(made, attribute, given)
        monkeypatch.setitem(sys.modules, path, made)

    match name:
        case "fastapi":
            pass
        case "pydantic_ai":
            monkeypatch.setattr("pydantic_ai.models.infer_model", given)
        case "openai_agents":
            monkeypatch.setattr("agents.MultiProvider.get_model", given)
        case "langgraph":
            monkeypatch.setattr("langchain.agents.factory.init_chat_model", given)
        case "google_adk":
            monkeypatch.setattr("google.adk.models.registry.LLMRegistry.new_llm", given)
        case "agent_framework":
            module("agent_framework.openai", "OpenAIChatClient")
        case "autogen":
            module("autogen_ext.models.openai", "OpenAIChatCompletionClient")
        case _:
            monkeypatch.setattr("crewai.LLM", given)


@pytest.mark.filterwarnings("ignore")  # frameworks warn of much that they do themselves
@pytest.mark.parametrize(("block", "name"), HERE)
def test_an_example_runs(block: Block, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    put_in(name, monkeypatch)
    exec(compile(block.script, str(block), "exec"), {"__name__": "example"})


def test_every_framework_has_an_example_and_every_example_a_framework() -> None:
    assert {name for _, name in ALL} == set(FILES)
