"""Agents and teams of AutoGen in a hub."""

import asyncio
import itertools
import json
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

from autogen_agentchat.agents import AssistantAgent, BaseChatAgent
from autogen_agentchat.base import Response as ChatResponse
from autogen_agentchat.conditions import MaxMessageTermination
from autogen_agentchat.messages import TextMessage
from autogen_agentchat.teams import RoundRobinGroupChat
from autogen_core import FunctionCall
from autogen_core.models import CreateResult, ModelFamily, ModelInfo, RequestUsage
from autogen_core.tools import FunctionTool, StaticWorkbench
from autogen_ext.models.replay import ReplayChatCompletionClient
from pydantic import BaseModel

from frameworks.suite import FrameworkConformance, Say, Script, Seen, Use, ask, refused, say, use_once
from remit import Code, Hub, Status
from remit.protocol.records import Delta
from remit_testing.agents import COMPLETION, HELPED, HELPER, PROMPT
from remit_testing.memory import MemoryStore

NUMBERS = itertools.count()
ABLE = ModelInfo(
    vision=False, function_calling=True, json_output=True, family=ModelFamily.UNKNOWN, structured_output=True
)


class FollowsScript(ReplayChatCompletionClient):
    """AutoGen's client for tests, asking a script instead of replaying."""

    def __init__(self, script: Script) -> None:
        super().__init__(["-"], model_info=ABLE)
        self.script = script

    async def create(self, messages: Any, *, tools: Any = (), **options: Any) -> CreateResult:
        return result_of(await self.script(seen_by(messages, tools)))

    async def create_stream(self, messages: Any, *, tools: Any = (), **options: Any) -> AsyncIterator[Any]:
        step = await self.script(seen_by(messages, tools))
        if isinstance(step, Say):
            for piece in step.pieces:
                yield piece
        yield result_of(step)


class OnlyWhole(FollowsScript):
    async def create_stream(self, *args: Any, **options: Any) -> AsyncIterator[Any]:
        raise NotImplementedError
        yield


def result_of(step: Say | Use) -> CreateResult:
    used = RequestUsage(*(step.usage or (0, 0)))
    if isinstance(step, Say):
        return CreateResult(finish_reason="stop", content=step.text, usage=used, cached=False)
    call = FunctionCall(id=f"call-{next(NUMBERS)}", name=step.tool, arguments=json.dumps(step.arguments))
    return CreateResult(finish_reason="function_calls", content=[call], usage=used, cached=False)


def seen_by(messages: Sequence[Any], tools: Sequence[Any]) -> Seen:
    last = messages[-1]
    return Seen(
        text="\n".join(str(each.content) for each in messages),
        tool_results=[each.content for each in last.content] if last.type == "FunctionExecutionResultMessage" else [],
        tools=[each["name"] if isinstance(each, dict) else each.name for each in tools],
    )


def made(script: Script, tools: Sequence[Callable[..., Any]] = (), **options: Any) -> AssistantAgent:
    own = [FunctionTool(each, description=each.__doc__ or "") for each in tools]
    return AssistantAgent("tea", FollowsScript(script), tools=own, **options)


class TestAutoGen(FrameworkConformance):
    no_questions = "AutoGen has no approvals of tools"
    no_last_answer = "its adapter does not call a model by itself"
    reads_clear = "what its tool found is its answer, which its model does not read"
    no_cap = "each model client has its own name for how long an answer may be"
    swallows_tool_errors = True

    def make(self, script: Script, tools: Sequence[Callable[..., Any]], instructions: str = "") -> Any:
        return made(script, tools, system_message=instructions or None)

    def make_typed(self, answer: BaseModel) -> Any:
        return made(say(answer.model_dump_json()), output_content_type=type(answer))

    def state_of(self, agent: Any) -> object:
        return (
            list(agent._tools),
            list(agent._workbench),
            agent._model_client,
            list(agent._model_context._messages),
            list(agent._system_messages),
        )


class Cups(BaseModel):
    count: int
    where: list[str]


async def test_a_structured_output_comes_back_as_json() -> None:
    response = await ask(made(say('{"count": 7, "where": ["shelf"]}'), output_content_type=Cups))
    assert response.unwrap() == {"count": 7, "where": ["shelf"]}


async def test_a_client_that_cannot_stream_is_asked_for_the_whole() -> None:
    agent = AssistantAgent("tea", OnlyWhole(use_once("sub_agent", {"agent_name": HELPER, "task": "count"})))
    assert HELPED in (await ask(agent)).unwrap()


async def test_what_a_model_thinks_is_not_heard() -> None:
    async def thinks(given: Seen) -> Say:
        return Say(["<think>a tin", " or two", "</think>", "The ", "tin."])

    hub = Hub(store=MemoryStore(), redaction=False)
    hub.add("tea", made(thinks))
    async with hub:
        records = [record async for record in hub.stream("tea", "Look", user="u-1")]
    assert [record.body.text for record in records if isinstance(record.body, Delta)] == ["The ", "tin."]


async def test_the_tools_of_a_workbench_are_held_to_the_remit() -> None:
    ran: list[str] = []

    def burn() -> str:
        ran.append("burn")
        return "burned"

    workbench = StaticWorkbench([FunctionTool(burn, description="Burns.")])
    agent = AssistantAgent("tea", FollowsScript(use_once("burn", {})), workbench=workbench)
    assert "burned" in (await ask(agent)).unwrap()
    ran.clear()
    assert (await ask(agent, tools=[])).ok
    assert ran == []


async def test_a_handover_to_somebody_whom_only_a_team_knows_is_no_answer() -> None:
    agent = AssistantAgent("tea", FollowsScript(use_once("transfer_to_cook", {})), handoffs=["cook"])
    response = await ask(agent)
    assert response.fault is not None
    assert "it waits for cook" in response.fault.message


async def test_an_agent_with_code_of_its_own_is_asked_and_estimated_but_not_held_to_tools() -> None:
    class Mine(BaseChatAgent):
        produced_message_types = (TextMessage,)

        async def on_messages(self, messages: Any, cancellation_token: Any) -> ChatResponse:
            return ChatResponse(chat_message=TextMessage(content=messages[-1].content.upper(), source=self.name))

        async def on_reset(self, cancellation_token: Any) -> None: ...

    response = await ask(Mine("mine", "Shouts."))
    assert response.unwrap() == "MAKE TEA"
    assert response.usage.estimated
    assert "a Mine uses what it was made with" in refused(await ask(Mine("mine", "Shouts."), tools=[]))


async def test_a_team_is_asked_one_at_a_time_and_begins_anew_each_time() -> None:
    async def counts(given: Seen) -> Say:
        return Say([f"{given.text.count('Count')} in: {given.text}"])

    def team() -> RoundRobinGroupChat:
        return RoundRobinGroupChat([made(counts, system_message=None)], termination_condition=MaxMessageTermination(2))

    hub = Hub(store=MemoryStore())
    hub.add("team", team())
    async with hub, asyncio.TaskGroup() as group:
        tasks = [group.create_task(hub.ask("team", f"Count {number}", user="u-1")) for number in range(5)]
    for number, task in enumerate(tasks):
        assert task.result().unwrap() == f"1 in: Count {number}"
        assert task.result().usage.total == PROMPT + COMPLETION
    assert "a RoundRobinGroupChat uses what it was made with" in refused(await ask(team(), tools=[]))


async def test_a_team_ends_with_its_budget() -> None:
    calls: list[Seen] = []

    async def counted(given: Seen) -> Say:
        calls.append(given)
        return Say(["tea"])

    before = asyncio.all_tasks()
    team = RoundRobinGroupChat([made(counted)], termination_condition=MaxMessageTermination(100))
    response = await ask(team, max_tokens=2 * (PROMPT + COMPLETION) + 100)
    assert asyncio.all_tasks() == before
    assert len(calls) <= 4
    assert response.fault is not None
    assert response.fault.code is Code.TOKEN_BUDGET_EXCEEDED
    assert response.usage.total == 3 * (PROMPT + COMPLETION)


async def test_cancelling_reaches_a_team_whose_client_heeds_the_token() -> None:
    hanging = asyncio.Event()

    class Heeds(FollowsScript):
        async def create(self, messages: Any, *, cancellation_token: Any = None, **options: Any) -> CreateResult:
            hanging.set()
            waiting = asyncio.ensure_future(asyncio.Event().wait())
            cancellation_token.link_future(waiting)
            await waiting
            raise AssertionError("nobody sets it")

    before = asyncio.all_tasks()
    team = RoundRobinGroupChat(
        [AssistantAgent("tea", Heeds(say("never")))], termination_condition=MaxMessageTermination(2)
    )
    hub = Hub(store=MemoryStore())
    hub.add("team", team)
    async with hub:
        asking = asyncio.create_task(hub.ask("team", "Wait", user="u-1"))
        await hanging.wait()
        [run] = await hub.store.runs()
        assert hub.cancel(run.run)
        async with asyncio.timeout(5):
            assert (await asking).status is Status.CANCELLED
    assert asyncio.all_tasks() == before
