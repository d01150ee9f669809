"""Agents of Microsoft's Agent Framework in a hub."""

import itertools
import json
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import pytest
from agent_framework import (
    Agent,
    AgentResponse,
    BaseAgent,
    BaseChatClient,
    ChatMiddlewareLayer,
    ChatResponse,
    ChatResponseUpdate,
    Content,
    FunctionInvocationContext,
    FunctionInvocationLayer,
    FunctionTool,
    Message,
    UsageDetails,
    tool,
)
from agent_framework import tool as af_tool
from pydantic import BaseModel

from frameworks.suite import FrameworkConformance, Say, Script, Seen, Use, ask, say, use_once
from remit import Code, Decision, Question
from remit_testing.agents import COMPLETION, HELPED, HELPER, PROMPT

NUMBERS = itertools.count()


class FollowsScript(FunctionInvocationLayer, ChatMiddlewareLayer, BaseChatClient):
    """A chat client that asks a script, whole or in pieces."""

    def __init__(self, script: Script, *, streams: bool = True) -> None:
        super().__init__()
        self.script = script
        self.streams = streams

    def _inner_get_response(self, *, messages: Any, stream: bool, options: Any, **rest: Any) -> Any:
        if stream and not self.streams:
            raise NotImplementedError
        given = seen_by(messages, options)
        return self._build_response_stream(self.pieces(given)) if stream else self.whole(given)

    async def whole(self, given: Seen) -> ChatResponse:
        step = await self.script(given)
        return ChatResponse(
            messages=[Message(role="assistant", contents=[content_of(step)])], usage_details=usage(step)
        )

    async def pieces(self, given: Seen) -> AsyncIterator[ChatResponseUpdate]:
        step = await self.script(given)
        parts = [content_of(step)] if isinstance(step, Use) else map(Content.from_text, step.pieces)
        for part in parts:
            yield ChatResponseUpdate(role="assistant", contents=[part])
        if (used := usage(step)) is not None:
            yield ChatResponseUpdate(role="assistant", contents=[Content.from_usage(used)])


def usage(step: Say | Use) -> UsageDetails | None:
    return step.usage and UsageDetails(
        input_token_count=step.usage[0], output_token_count=step.usage[1], total_token_count=sum(step.usage)
    )


def content_of(step: Say | Use) -> Content:
    if isinstance(step, Say):
        return Content.from_text(step.text)
    call_id, arguments = f"call-{next(NUMBERS)}", json.dumps(step.arguments)
    return Content.from_function_call(call_id=call_id, name=step.tool, arguments=arguments)


def seen_by(messages: Sequence[Message], options: Any) -> Seen:
    last = messages[-1].contents[-1]
    return Seen(
        text="\n".join((options.get("instructions") or "", *(each.text for each in messages))),
        tool_results=[str(last.result)] if last.type == "function_result" else [],
        tools=[getattr(each, "name", None) or each["type"] for each in options.get("tools") or ()],
        max_tokens=options.get("max_tokens"),
    )


class TestAgentFramework(FrameworkConformance):
    no_last_answer = "its adapter does not call a model by itself"
    swallows_tool_errors = True
    ends_loops_itself = "a client's own limit of 40 rounds can be changed for all its runs alone"

    def make(self, script: Script, tools: Sequence[Callable[..., Any]], instructions: str = "") -> Any:
        return Agent(client=FollowsScript(script), instructions=instructions, tools=[tool(each) for each in tools])

    def make_typed(self, answer: BaseModel) -> Any:
        client = FollowsScript(say(answer.model_dump_json()))
        return Agent(client=client, default_options={"response_format": type(answer)})

    def make_asking(self, script: Script, tool: Callable[..., Any]) -> Any:
        return Agent(client=FollowsScript(script), tools=[af_tool(tool, approval_mode="always_require")])

    def state_of(self, agent: Any) -> object:
        return dict(agent.default_options), list(agent.context_providers), agent.middleware


class Cups(BaseModel):
    count: int
    where: list[str]


async def test_a_structured_output_comes_back_as_json() -> None:
    client = FollowsScript(say('{"count": 7, "where": ["shelf"]}'))
    response = await ask(Agent(client=client, default_options={"response_format": Cups}))
    assert response.unwrap() == {"count": 7, "where": ["shelf"]}


async def test_a_client_that_cannot_stream_is_asked_for_the_whole() -> None:
    client = FollowsScript(use_once("sub_agent", {"agent_name": HELPER, "task": "count"}), streams=False)
    response = await ask(Agent(client=client, description="Makes tea."))
    assert HELPED in response.unwrap()
    assert response.usage.total == 2 * (PROMPT + COMPLETION)


async def test_a_client_without_a_layer_for_middleware_is_metered_at_the_end() -> None:
    class Bare(BaseChatClient):
        def _inner_get_response(self, *, messages: Any, stream: bool, options: Any, **rest: Any) -> Any:
            client = FollowsScript(say("yes"))
            return client._inner_get_response(messages=messages, stream=stream, options=options)

    response = await ask(Agent(client=Bare()))
    assert response.unwrap() == "yes"
    assert response.usage.total == PROMPT + COMPLETION
    refused = (await ask(Agent(client=Bare()), tools=[])).fault
    assert refused is not None
    assert refused.code is Code.TOOL_NOT_ALLOWED


async def test_a_tool_that_the_provider_runs_is_held_to_the_remit() -> None:
    offered: list[list[str]] = []

    async def script(given: Seen) -> Say:
        offered.append(list(given.tools))
        return Say(["yes"])

    agent = Agent(client=FollowsScript(script), tools=[{"type": "web_search"}])
    for tools in (None, ["web_search"], []):
        (await ask(agent, tools=tools, may_delegate=False)).unwrap()
    assert offered == [["web_search"], ["web_search"], []]


async def test_an_agent_whose_code_is_its_own_is_asked_and_estimated_but_not_held_to_tools() -> None:
    class Mine(BaseAgent):
        async def run(self, messages: Any = None, *, stream: bool = False, **rest: Any) -> AgentResponse:
            return AgentResponse(messages=[Message(role="assistant", contents=[messages[-1].text.upper()])])

    response = await ask(Mine(name="mine", description="Shouts."))
    assert response.unwrap() == "MAKE TEA"
    assert response.usage.estimated
    refused = (await ask(Mine(name="mine"), tools=[])).fault
    assert refused is not None
    assert refused.code is Code.TOOL_NOT_ALLOWED


@pytest.mark.parametrize("approved", [True, False])
async def test_what_the_provider_wants_approved_becomes_a_question(approved: bool) -> None:
    questions, answers = list[str](), list[object]()

    async def approver(question: Question) -> Decision:
        questions.append(question.text)
        return Decision(agreed=approved, by="ann")

    class Hosts(FollowsScript):
        def _inner_get_response(self, *, messages: Any, stream: bool, options: Any, **rest: Any) -> Any:
            if stream:
                raise NotImplementedError
            given = [part for each in messages for part in each.contents if part.type == "function_approval_response"]
            answers.extend(part.approved for part in given)
            return self.answer(Content.from_text("Then so.") if given else asks)

        async def answer(self, content: Content) -> ChatResponse:
            return ChatResponse(messages=[Message(role="assistant", contents=[content])])

    call = Content.from_function_call(call_id="c", name="pay", arguments='{"amount":5}')
    call.hosted = True
    asks = Content.from_function_approval_request(id="c", function_call=call)
    response = await ask(Agent(client=Hosts(say(""))), approver=approver)
    assert response.unwrap() == "Then so."
    assert (questions, answers) == (['May tea use pay? ({"amount":5})'], [approved])


async def test_a_tool_that_a_program_must_run_is_no_answer() -> None:
    declared = FunctionTool(name="pay", description="Pay.", input_model={"type": "object", "properties": {}})
    response = await ask(Agent(client=FollowsScript(use_once("pay", {})), tools=[declared]))
    assert response.fault is not None
    assert (response.fault.code, "(pay)" in response.fault.message) == (Code.DELEGATION_FAILED, True)


async def test_an_edited_call_keeps_the_context_that_its_tool_wants() -> None:
    @tool(approval_mode="always_require")
    def pay(amount: int, context: FunctionInvocationContext) -> str:
        """Pay."""
        return f"{amount} {context.function.name} {context.session is not None}"

    async def approver(question: Question) -> Decision:
        return Decision(agreed=True, by="ann", edits={"input": {"amount": 3}})

    agent = Agent(client=FollowsScript(use_once("pay", {"amount": 5})), tools=[pay])
    assert (await ask(agent, approver=approver)).unwrap() == "3 pay True"


# ── limits of its client ──────────────────────────────────────────────────────────────────────────────────────────────


def look() -> str:
    """Look."""
    return "in the tin"


def fail() -> str:
    """Look."""
    raise ValueError("the tin is locked")


async def looks_again(given: Seen) -> Say | Use:
    return Use("look")


def limited(script: Script, used: Callable[[], str] = look, **limits: Any) -> Agent:
    client = FollowsScript(script)
    client.function_invocation_configuration |= limits
    return Agent(client=client, tools=[tool(used, name="look")])


@pytest.mark.parametrize(
    ("used", "limits", "calls"),
    [
        (look, {"max_iterations": 3}, 4),
        (look, {"max_function_calls": 2}, 3),
        (fail, {"max_consecutive_errors_per_request": 2}, 3),
    ],
)
async def test_an_agent_that_wants_more_than_its_client_allows_has_failed(
    used: Callable[[], str], limits: dict[str, int], calls: int
) -> None:
    """The framework would have its model say something without tools, and call that the answer."""
    response = await ask(limited(looks_again, used, **limits))
    assert response.fault is not None
    assert response.fault.code is Code.DELEGATION_FAILED
    assert f"asked its model {calls} times" in response.fault.message
    assert next(iter(limits)) in response.fault.suggestion
    assert len(response.tool_calls) == calls - 1
    assert response.usage.total == calls * (PROMPT + COMPLETION)


@pytest.mark.parametrize("limits", [{"max_iterations": 1}, {"max_function_calls": 1}])
async def test_an_agent_that_is_done_at_its_limit_has_answered(limits: dict[str, int]) -> None:
    response = await ask(limited(use_once("look", {}), **limits))
    assert response.unwrap() == "in the tin"


async def test_an_agent_that_may_not_use_tools_at_all_is_left_so() -> None:
    chosen: list[object] = []

    class Watched(FollowsScript):
        def _inner_get_response(self, *, messages: Any, stream: bool, options: Any, **rest: Any) -> Any:
            chosen.append(options.get("tool_choice"))
            return super()._inner_get_response(messages=messages, stream=stream, options=options, **rest)

    agent = Agent(client=Watched(say("yes")), tools=[tool(look)], default_options={"tool_choice": "none"})
    assert (await ask(agent)).unwrap() == "yes"
    assert chosen == ["none"]


async def test_the_limits_of_a_client_without_a_layer_for_middleware_hold_too() -> None:
    class Bare(FunctionInvocationLayer, BaseChatClient):
        def _inner_get_response(self, *, messages: Any, stream: bool, options: Any, **rest: Any) -> Any:
            script = say("Enough.") if options.get("tool_choice") == "none" else looks_again
            client = FollowsScript(script)
            return client._inner_get_response(messages=messages, stream=stream, options=options)

    client = Bare()
    client.function_invocation_configuration["max_iterations"] = 2
    response = await ask(Agent(client=client, tools=[tool(look)]))
    assert response.fault is not None
    assert response.fault.code is Code.DELEGATION_FAILED
    assert "max_iterations" in response.fault.suggestion
