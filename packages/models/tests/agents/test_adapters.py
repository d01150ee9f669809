"""What can be an agent, and how it is known."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from remit import Brief, Code, Hub
from remit.agents.function import function_of
from remit.protocol.errors import RemitError
from remit_models import frameworks
from remit_models.frameworks import FRAMEWORKS
from remit_testing.memory import MemoryStore
from waiting import PATIENCE_S

PACKAGES = sorted({module.partition(".")[0] for module, _ in FRAMEWORKS} | {"langchain_core", "pydantic", "openai"})


def test_no_framework_is_imported_to_find_out_what_something_is() -> None:
    script = f"""
import sys
from remit import Hub
from remit_testing.memory import MemoryStore

class Agent:
    def __call__(self, brief):
        return "yes"

hub = Hub(store=MemoryStore())
hub.add("one", lambda brief: "yes")
hub.add("two", Agent())
print([name for name in {PACKAGES} if name in sys.modules])
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False, timeout=PATIENCE_S
    )
    assert (done.stdout, done.stderr) == ("[]\n", "")


def made_up(module: str, name: str, **attributes: object) -> type[Any]:
    """Return a class that says of itself that it is from a module."""
    return type(name, (), {"__module__": module, "__qualname__": name, **attributes})


@pytest.mark.parametrize(("place", "framework"), FRAMEWORKS.items(), ids=str)
def test_an_agent_is_known_by_its_class_and_by_those_above_it(
    place: tuple[str, str], framework: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    adapters: list[str] = []

    class Adapter:
        @staticmethod
        def adapt(thing: object) -> str:
            return f"adapted {type(thing).__name__}"

    def import_adapter(name: str) -> type[Adapter]:
        adapters.append(name)
        return Adapter

    monkeypatch.setattr("remit_models.frameworks.import_module", import_adapter)
    base = made_up(*place, handoffs=(), mcp_servers=(), model_settings=None)
    below = type("Mine", (base,), {"__module__": "mine"})
    assert function_of(below()) == "adapted Mine"
    assert adapters == [f"remit_models.frameworks.{framework}"]


async def test_an_agent_of_a_package_of_ones_own_named_agents_is_a_plain_one() -> None:
    def answer(_: object, brief: Brief) -> str:
        return f"mine: {brief.text}"

    hub = Hub(store=MemoryStore())
    hub.add("mine", made_up("agents.agent", "Agent", __call__=answer)())
    async with hub:
        assert (await hub.ask("mine", "tea", user="u-1")).result == "mine: tea"


@pytest.mark.parametrize("thing", [object(), "agent", made_up("langchain_core.runnables", "Runnable")(), Brief])
def test_what_cannot_be_an_agent_is_refused_with_what_can(thing: object) -> None:
    with pytest.raises(RemitError) as raised:
        function_of(thing)
    assert raised.value.fault.code is Code.TEAM_INVALID
    assert "remit docs frameworks" in raised.value.fault.message


def test_there_is_an_adapter_for_every_framework_of_the_table() -> None:
    folder = Path(frameworks.__file__).parent
    assert {framework for framework in FRAMEWORKS.values() if not (folder / f"{framework}.py").exists()} == set()
