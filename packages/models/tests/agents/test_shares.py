"""Calls share what is left: none is refused while all could be paid for."""

import asyncio
from typing import Any

from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

from remit import Brief, ContextFilter, Hub, Limits
from remit_models import ModelAgent
from remit_models.toolbox import offers
from remit_testing import MemoryStore
from waiting import PATIENCE_S


class Crowd:
    """A caller that asks several at once with the tool that it is offered, each after some turns of the event loop."""

    def __init__(self, cards: list[int | None], *, limit: int, delays: list[int]) -> None:
        self.hub = Hub(store=MemoryStore(), redaction=False, limits=Limits(max_fan_out=limit))
        self.delays = delays
        self.granted: dict[str, int] = {}
        self.replies: list[str] = []
        self.all_there = asyncio.Event()
        for number, tokens in enumerate(cards):
            self.hub.add(f"expert-{number}", self._answer, tokens=tokens)
        self.hub.add("caller", self._ask, may_call=["*"])
        self.count = len(cards)

    async def _answer(self, brief: Brief) -> str:
        self.granted[brief.request.target] = brief.remit.tokens
        if len(self.granted) == self.count:
            self.all_there.set()
        await self.all_there.wait()  # so that none gives back what another could be granted
        return "Good."

    async def _ask(self, brief: Brief) -> str:
        tool = next(offer for offer in offers(brief) if offer.name == "sub_agent")

        async def one(number: int) -> None:
            for _ in range(self.delays[number]):
                await asyncio.sleep(0)
            arguments: dict[str, Any] = {"agent_name": f"expert-{number}", "task": f"Judge {number}"}
            reply = await tool.call(arguments)
            if '"success":true' not in reply.replace(" ", ""):
                self.all_there.set()
            self.replies.append(reply)

        async with asyncio.TaskGroup() as group:
            for number in range(self.count):
                group.create_task(one(number))
        return "done"

    async def run(self, tokens: int) -> None:
        async with self.hub, asyncio.timeout(PATIENCE_S):
            (await self.hub.ask("caller", "Is it good?", user="u-1", max_tokens=tokens)).unwrap()


async def test_three_calls_at_once_get_the_same_share_and_leave_one_to_their_caller() -> None:
    crowd = Crowd([None, None, None], limit=3, delays=[0, 0, 0])
    await crowd.run(1_000_000)
    assert crowd.granted == {"expert-0": 250_000, "expert-1": 250_000, "expert-2": 250_000}


async def test_a_call_that_comes_later_gets_as_much_as_those_before_it() -> None:
    crowd = Crowd([None, None, None], limit=3, delays=[0, 40, 80])
    await crowd.run(1_000_000)
    assert set(crowd.granted.values()) == {250_000}


async def test_a_model_that_asks_three_at_once_hears_from_all() -> None:
    """Three callees that use nothing, and far more tokens than they need."""
    texts: list[str] = []

    def plan(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        got = [part for message in messages for part in message.parts if isinstance(part, ToolReturnPart)]
        if not got:
            calls = [{"agent_name": f"expert-{n}", "task": "Judge the tea."} for n in range(3)]
            return ModelResponse(parts=[ToolCallPart("sub_agent", call) for call in calls])
        texts.extend(part.model_response_str() for part in got)
        return ModelResponse(parts=[TextPart("Done.")])

    hub = Hub(store=MemoryStore(), redaction=False)
    hub.add("planner", ModelAgent(FunctionModel(plan)), may_call=["*"])

    async def good(brief: Brief) -> str:
        return "Good."

    for n in range(3):
        hub.add(f"expert-{n}", good)
    async with hub, asyncio.timeout(PATIENCE_S):
        response = await hub.ask("planner", "Is it good?", user="u-1", max_tokens=1_000_000)
    assert response.ok
    assert ["Good." in each for each in texts] == [True, True, True]


async def test_what_others_are_granted_while_a_long_task_is_counted_is_not_granted_again() -> None:
    """Each asks for nearly all that there is: of what is left when its turn comes, it gets what is still there."""
    hub, granted = Hub(store=MemoryStore(), redaction=False), list[int]()
    first_is_there = asyncio.Event()

    @hub.agent("expert")
    async def expert(brief: Brief) -> str:
        granted.append(brief.remit.tokens)
        if len(granted) < 2:
            await first_is_there.wait()
        first_is_there.set()
        return "Good."

    @hub.agent("caller", may_call=["expert"])
    async def caller(brief: Brief) -> int:
        async with asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(
                    brief.delegate(
                        "expert", objective=f"{n}" + " word" * 1_000, context=ContextFilter(), max_tokens=20_000
                    )
                )
                for n in range(2)
            ]
        return sum(task.result().ok for task in tasks)

    async with hub, asyncio.timeout(PATIENCE_S):
        response = await hub.ask("caller", "Is it good?", user="u-1", max_tokens=24_000)
    assert (response.result, granted) == (2, [20_000, 4_000])
