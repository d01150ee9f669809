"""What delegation adds to what models are sent; bench/overhead.py measures more of it."""

import json
from typing import Any

import pytest

from conversations import LOOKUPS, RECEIPTS, relayed
from overhead import compare
from remit import Brief, ContextFilter, Hub
from remit.agents.cards import Arguments
from remit.policy.budget import estimate
from remit_models.subagent import SubAgentToolArgs
from remit_models.toolbox import offers
from remit_testing import MemoryStore


async def test_a_planner_and_its_specialists_are_sent_little_more_than_one_agent_that_does_it_all() -> None:
    """O11: measured, and under 20 %."""
    figure = await compare("receipts", RECEIPTS, 1.2)
    assert figure.ok, figure


async def test_so_they_are_where_each_turn_needs_one_specialist_for_one_look_up() -> None:
    """O11: what suits delegation least, with the default filter."""
    figure = await compare("20 turns, one specialist", LOOKUPS, 1.2)
    assert figure.ok, figure


@pytest.mark.parametrize("unit", ["tokens", "characters"])
@pytest.mark.parametrize("messages", [2, 12])
async def test_an_answer_that_goes_out_as_it_is_costs_no_call_that_relays_it(messages: int, unit: str) -> None:
    """O11: also in the shortest conversations."""
    figure = await compare(f"{messages} messages, as is", relayed(messages), 1.2, unit)
    assert figure.ok, figure


async def schema_of(arguments: Arguments) -> dict[str, Any]:
    """Return what a model is told of the arguments of the tool."""
    hub = Hub(store=MemoryStore())

    @hub.agent("planner", may_call=["coder", "writer"])
    async def planner(brief: Brief) -> object:
        return next(offer.schema for offer in offers(brief, arguments=arguments) if offer.name == "sub_agent")

    async def idle(brief: Brief) -> str:
        return "done"

    hub.add("coder", idle)
    hub.add("writer", idle)
    async with hub:
        return (await hub.ask("planner", "Go", user="u-1")).unwrap()


async def test_what_a_model_is_told_of_the_tool_is_whole_and_short() -> None:
    """O1: every argument; it is sent with every call of the model, so that each word of it counts."""
    schema = await schema_of("full")
    assert set(schema["properties"]) == set(SubAgentToolArgs.__struct_fields__)
    assert set(schema["properties"]["context"]["properties"]) == set(ContextFilter.__struct_fields__)
    assert estimate(json.dumps(schema)) < 440


async def test_a_model_is_told_of_three_arguments_unless_it_is_to_know_all() -> None:
    """O1: those that a small model can fill in; whom it may ask is one of a list."""
    schema = await schema_of("short")
    assert schema == {
        "type": "object",
        "properties": {
            "agent_name": {"type": "string", "enum": ["coder", "writer"]},
            "task": {"type": "string"},
            "input": {},
        },
        "required": ["agent_name", "task"],
        "additionalProperties": False,
    }
    assert estimate(json.dumps(schema)) <= 60
    told = await schema_of("relay")
    assert set(told["properties"]) == {*schema["properties"], "relay"}
    assert estimate(json.dumps(told)) <= 85
