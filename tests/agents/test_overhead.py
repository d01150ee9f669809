"""What delegation adds to what models are sent; bench/overhead.py measures more of it."""

import json

from conversations import RECEIPTS
from overhead import compare
from remit import Brief, ContextFilter, Hub
from remit.agents.subagent_arguments import SubAgentArgs
from remit.agents.toolbox import offers
from remit.policy.budget import estimate
from remit.testing import MemoryStore


async def test_a_planner_and_its_specialists_are_sent_little_more_than_one_agent_that_does_it_all() -> None:
    """O11: measured, and under 20 %."""
    figure = await compare("receipts", RECEIPTS, 1.2)
    assert figure.ok, figure


async def test_what_a_model_is_told_of_the_tool_is_whole_and_short() -> None:
    """O1: every argument; it is sent with every call of the model, so that each word of it counts."""
    hub = Hub(store=MemoryStore())

    @hub.agent("planner", may_call=["coder"])
    async def planner(brief: Brief) -> object:
        return next(offer.schema for offer in offers(brief) if offer.name == "sub_agent")

    @hub.agent("coder")
    async def coder(brief: Brief) -> str:
        return "done"

    async with hub:
        schema = (await hub.ask("planner", "Go", user="u-1")).unwrap()
    assert set(schema["properties"]) == set(SubAgentArgs.__struct_fields__)
    assert set(schema["properties"]["context"]["properties"]) == set(ContextFilter.__struct_fields__)
    assert estimate(json.dumps(schema)) < 350
