"""The tools that a model is offered: those that card and remit name, and delegation where it is allowed."""

import asyncio
import json
from typing import Any

import pytest

from remit import Brief, Code, Hub, RemitError, fault
from remit_models.toolbox import ToolOffer, offers
from remit_testing import MemoryStore
from waiting import PATIENCE_S

LONG = "Helps with all that is done in a kitchen, " * 5


def _help(brief: Brief) -> str:
    return "helped"


class Kitchen:
    """An agent that looks at what it is offered, and uses one of the offers."""

    def __init__(
        self, *, tools: Any = ("weigh",), may_call: Any = ("helper",), helps: str = "Helps\n  with all."
    ) -> None:
        self.hub = Hub(store=MemoryStore(), redaction=False)
        self.offered: tuple[ToolOffer, ...] = ()
        self.hub.tool("weigh", safe_to_repeat=True)(self.weigh)
        self.hub.tool("fail", safe_to_repeat=True)(self.fail)
        self.hub.add("cook", self._cook, tools=tools, may_call=may_call)
        self.hub.add("helper", _help, description=helps, capabilities=["HELP"])
        self.use: tuple[str, dict[str, Any]] | None = None

    async def weigh(self, what: str, grams: bool = True) -> dict[str, object]:
        """Say what something weighs."""
        return {"what": what, "weight": 12 if grams else 0.4}

    async def fail(self) -> None:
        raise RuntimeError("the scales are broken")

    async def _cook(self, brief: Brief) -> str:
        self.offered = offers(brief)
        if self.use is None:
            return ""
        name, arguments = self.use
        return await next(offer for offer in self.offered if offer.name == name).call(arguments)

    async def ask(self, use: tuple[str, dict[str, Any]] | None = None, **options: Any) -> Any:
        self.use = use
        async with self.hub, asyncio.timeout(PATIENCE_S):
            return await self.hub.ask("cook", "Cook", user="u-1", **options)

    async def names(self, **options: Any) -> list[str]:
        (await self.ask(**options)).unwrap()
        return [offer.name for offer in self.offered]


async def test_offered_are_the_agents_tools_and_delegation() -> None:
    assert await Kitchen().names() == ["weigh", "sub_agent"]


async def test_a_tool_that_card_or_remit_do_not_name_is_not_offered() -> None:
    """O6, X11."""
    assert await Kitchen(tools=()).names() == ["sub_agent"]
    assert await Kitchen(tools=("weigh", "fail")).names(tools=("fail",)) == ["fail", "sub_agent"]
    assert await Kitchen().names(tools=()) == ["sub_agent"]


async def test_delegation_is_offered_only_to_those_who_may() -> None:
    """O5."""
    assert await Kitchen(may_call=()).names() == ["weigh"]
    assert await Kitchen().names(may_delegate=False) == ["weigh"]
    assert await Kitchen().names(targets=()) == ["weigh"]


async def test_a_tool_of_the_team_keeps_its_name_and_delegation_takes_another() -> None:
    kitchen = Kitchen(tools=("sub_agent", "list_agents"), helps=LONG)
    kitchen.hub.tool("sub_agent", safe_to_repeat=True)(lambda: "mine")
    kitchen.hub.tool("list_agents", safe_to_repeat=True)(lambda: "mine too")
    assert await kitchen.names() == ["list_agents", "sub_agent", "delegate_task"]


async def test_a_name_that_providers_do_not_take_is_said_in_one_that_they_do() -> None:
    kitchen = Kitchen(tools=("scales.weigh-1",), may_call=())
    kitchen.hub.tool("scales.weigh-1", safe_to_repeat=True)(kitchen.weigh)
    answer = (await kitchen.ask(("scales_weigh-1", {"what": "salt"}))).unwrap()
    assert json.loads(answer)["what"] == "salt"


async def test_an_offer_says_what_it_is_for_and_what_it_takes() -> None:
    kitchen = Kitchen()
    await kitchen.ask()
    weigh, ask = kitchen.offered
    assert weigh.description == "Say what something weighs."
    assert weigh.schema["properties"].keys() == {"what", "grams"}
    assert weigh.schema["required"] == ["what"]
    assert "- helper: Helps with all. (can HELP)" in ask.description
    assert "$ref" not in ask.schema
    assert ask.schema["required"] == ["agent_name", "task"]


async def test_what_a_tool_gives_back_is_told_as_text() -> None:
    answer = (await Kitchen().ask(("weigh", {"what": "salt"}))).unwrap()
    assert json.loads(answer) == {"what": "salt", "weight": 12}


async def test_what_went_wrong_is_told_with_what_can_be_done() -> None:
    answer = (await Kitchen().ask(("weigh", {"wht": "salt"}))).unwrap()
    assert answer.startswith("Error INPUT_VALIDATION_FAILED: ")
    assert "wht" in answer
    assert "Correct the fields" in answer
    answer = (await Kitchen(tools=("fail",)).ask(("fail", {}))).unwrap()
    assert "the scales are broken" in answer


async def test_a_refused_delegation_is_told_as_a_result() -> None:
    answer = (await Kitchen().ask(("sub_agent", {"agent_name": "nobody", "task": "Help"}))).unwrap()
    assert json.loads(answer)["success"] is False


async def test_what_is_too_long_to_be_said_with_every_call_is_told_on_demand() -> None:
    """O11: what is said of an agent is sent with every call of the model, and a second tool for it too."""
    kitchen = Kitchen(helps=LONG)
    answer = (await kitchen.ask(("list_agents", {}))).unwrap()
    assert json.loads(answer) == [{"name": "helper", "description": LONG, "capabilities": ["HELP"]}]
    assert f"- helper: {LONG[:199]}… (can HELP)" in kitchen.offered[1].description
    assert await Kitchen(helps=LONG[:200]).names() == ["weigh", "sub_agent"]


@pytest.mark.parametrize("code", [Code.TOKEN_BUDGET_EXCEEDED, Code.TIMEOUT, Code.CANCELLED, Code.STORE_UNAVAILABLE])
async def test_what_ends_the_turn_is_not_told_but_raised(code: Code) -> None:
    kitchen = Kitchen(tools=("break",))

    @kitchen.hub.tool("break", safe_to_repeat=True)
    async def break_it() -> None:
        raise RemitError(fault(code, "it is over"))

    response = await kitchen.ask(("break", {}))
    assert response.fault.code is code
