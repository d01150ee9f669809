"""Agents of Google's Agent Development Kit in a hub."""

import itertools
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import pytest
from google.adk.agents import BaseAgent, LlmAgent, ParallelAgent, SequentialAgent
from google.adk.code_executors import BuiltInCodeExecutor
from google.adk.events import Event
from google.adk.models import BaseLlm, LlmRequest, LlmResponse
from google.adk.tools import FunctionTool, LongRunningFunctionTool, ToolContext, google_search
from google.adk.tools.agent_tool import AgentTool
from google.genai import types
from pydantic import BaseModel

from frameworks.suite import NO, YES, FrameworkConformance, Say, Script, Seen, Use, ask, refused, say, use_once
from remit import Code, Decision, Hub, Question, Status
from remit.ports import Approver
from remit_cli import Rule, guard_of
from remit_testing.agents import COMPLETION, HELPED, HELPER, PROMPT
from remit_testing.memory import MemoryStore

NUMBERS = itertools.count()


class FollowsScript(BaseLlm):
    model: str = "script"
    script: Any

    async def generate_content_async(self, llm_request: LlmRequest, stream: bool = False) -> AsyncIterator[LlmResponse]:
        step = await self.script(seen_by(llm_request))
        usage = step.usage and types.GenerateContentResponseUsageMetadata(
            prompt_token_count=step.usage[0], candidates_token_count=step.usage[1], total_token_count=sum(step.usage)
        )
        if isinstance(step, Use):
            call = types.FunctionCall(name=step.tool, args=step.arguments, id=f"call-{next(NUMBERS)}")
            yield LlmResponse(content=content(types.Part(function_call=call)), usage_metadata=usage)
            return
        for piece in step.pieces if stream else ():
            yield LlmResponse(content=content(types.Part(text=piece)), partial=True)
        yield LlmResponse(content=content(types.Part(text=step.text)), usage_metadata=usage, partial=False)


def content(part: types.Part) -> types.Content:
    return types.Content(role="model", parts=[part])


def seen_by(request: LlmRequest) -> Seen:
    parts = [part for each in request.contents for part in each.parts or ()]
    offered = [declared.name for each in request.config.tools or () for declared in each.function_declarations or ()]
    hosted = [field for each in request.config.tools or () for field in each.model_dump(exclude_none=True)]
    last = parts[-1].function_response
    return Seen(
        text="\n".join([str(request.config.system_instruction), *(part.text or "" for part in parts)]),
        # The kit puts what a tool gave back under a key.
        tool_results=[str((last.response or {}).get("result", last.response))] if last else [],
        tools=[*offered, *(field for field in hosted if field != "function_declarations")],
        max_tokens=request.config.max_output_tokens,
    )


class TestAgentDevelopmentKit(FrameworkConformance):
    no_last_answer = "its adapter does not call a model by itself"

    def make(self, script: Script, tools: Sequence[Callable[..., Any]], instructions: str = "") -> Any:
        return LlmAgent(
            name="tea",
            model=FollowsScript(script=script),
            instruction=instructions,
            tools=[FunctionTool(each) for each in tools],
        )

    def make_typed(self, answer: BaseModel) -> Any:
        return made("tea", say(answer.model_dump_json()), output_schema=type(answer))

    def make_asking(self, script: Script, tool: Callable[..., Any]) -> Any:
        return made("tea", script, tools=[FunctionTool(tool, require_confirmation=True)])

    def state_of(self, agent: Any) -> object:
        return list(agent.tools), list(agent.sub_agents), agent.instruction, agent.generate_content_config


def made(name: str, script: Script, **options: Any) -> LlmAgent:
    return LlmAgent(name=name, model=FollowsScript(script=script), **options)


class Cups(BaseModel):
    count: int
    where: list[str]


async def test_a_structured_output_comes_back_as_json() -> None:
    response = await ask(made("tea", say('{"count": 7, "where": ["shelf"]}'), output_schema=Cups))
    assert response.unwrap() == {"count": 7, "where": ["shelf"]}


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # the kit warns of itself
async def test_agents_of_other_kinds_and_of_subclasses_are_known_too() -> None:
    class Mine(LlmAgent):
        pass

    first = Mine(name="first", model=FollowsScript(script=say("one")), description="Says one.")
    second = made("second", say("two"))
    assert (await ask(SequentialAgent(name="both", sub_agents=[first, second]))).unwrap() == "two"
    first, second = first.clone(), second.clone()
    response = await ask(ParallelAgent(name="both", sub_agents=[first, second]))
    assert sorted(response.unwrap().split("\n\n")) == ["one", "two"]
    assert response.usage.total == 2 * (PROMPT + COMPLETION)
    hub = Hub(store=MemoryStore())
    hub.add("first", first)
    assert hub.cards["first"].description == "Says one."


async def test_delegation_and_restriction_follow_a_transfer() -> None:
    seen: list[Seen] = []

    def brew() -> str:
        """Brew it."""
        return "brewed"

    async def brewer(given: Seen) -> Say | Use:
        seen.append(given)
        asks = Use("sub_agent", {"agent_name": HELPER, "task": "count"})
        return Say(given.tool_results) if HELPED in str(given.tool_results) else asks

    below = made("brewer", brewer, tools=[brew])
    above = made("desk", use_once("transfer_to_agent", {"agent_name": "brewer"}), sub_agents=[below])
    response = await ask(above, tools=[])
    assert HELPED in response.unwrap()
    assert sorted(seen[0].tools) == ["sub_agent", "transfer_to_agent"]
    assert above.sub_agents == [below]
    assert below.parent_agent is above


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # the kit warns of itself
async def test_an_agent_that_is_a_tool_is_held_and_metered_too() -> None:
    ran: list[str] = []

    def burn() -> str:
        """Burn it."""
        ran.append("burn")
        return "burned"

    inner = made("inner", use_once("burn", {}), tools=[burn])
    outer = made("outer", use_once("inner", {"request": "count"}), tools=[AgentTool(inner)])
    assert "burned" in (await ask(outer)).unwrap()
    ran.clear()
    response = await ask(outer, tools=["inner"])
    assert response.ok, response.fault
    assert ran == []
    assert response.usage.total == 4 * (PROMPT + COMPLETION)


async def test_what_the_provider_runs_is_held_to_the_remit() -> None:
    offered: list[list[str]] = []

    class Gemini(FollowsScript):
        model: str = "gemini-2.5-flash"

    async def script(given: Seen) -> Say:
        offered.append(list(given.tools))
        return Say(["yes"])

    agent = LlmAgent(name="tea", model=Gemini(script=script), tools=[google_search])
    for tools in (None, ["google_search"], []):
        (await ask(agent, tools=tools, may_delegate=False)).unwrap()
    assert offered == [["google_search"], ["google_search"], []]


async def test_what_cannot_be_held_to_a_remit_is_refused() -> None:
    class Mine(BaseAgent):
        async def _run_async_impl(self, ctx: Any) -> AsyncIterator[Event]:
            yield Event(author=self.name, invocation_id=ctx.invocation_id, content=content(types.Part(text="mine")))

    assert (await ask(Mine(name="mine"))).unwrap() == "mine"
    assert "mine is an agent of its own kind" in refused(await ask(Mine(name="mine"), tools=[]))
    coder = made("coder", say("yes"), code_executor=BuiltInCodeExecutor())
    inside = made("outer", say("yes"), tools=[AgentTool(coder)])
    assert "coder runs code" in refused(await ask(inside, tools=[]))


async def test_an_error_that_a_model_answers_with_is_one() -> None:
    class Broken(FollowsScript):
        async def generate_content_async(self, *args: Any, **options: Any) -> AsyncIterator[LlmResponse]:
            yield LlmResponse(error_code="SAFETY", error_message="not with milk")

    response = await ask(LlmAgent(name="tea", model=Broken(script=None)))
    assert response.status is Status.FAILED
    assert response.fault is not None
    assert "SAFETY: not with milk" in response.fault.message


def says(*decisions: Decision) -> tuple[list[Question], Approver]:
    questions, left = list[Question](), list(decisions)

    async def approver(question: Question) -> Decision:
        questions.append(question)
        return left.pop(0)

    return questions, approver


@pytest.mark.parametrize(
    ("payload", "decision", "told"),
    [
        (None, YES, "paid 5, None"),
        (None, NO, "not paid"),
        ({"tip": 0}, Decision(agreed=True, by="ann", edits={"input": {"tip": 2}}), "paid 5, {'tip': 2}"),
        ({"tip": 0}, NO, "not paid"),
    ],
)
async def test_a_tool_that_asks_for_a_confirmation_while_it_runs_goes_on_with_the_answer(
    payload: Any, decision: Decision, told: str
) -> None:
    def pay(amount: int, tool_context: ToolContext) -> dict[str, str]:
        """Pay."""
        answer = tool_context.tool_confirmation
        if answer is None:
            tool_context.request_confirmation(hint="May it pay?", payload=payload)
            return {"result": "waits"}
        return {"result": f"paid {amount}, {answer.payload}" if answer.confirmed else "not paid"}

    questions, approver = says(YES, decision)
    guards = [guard_of([Rule(then="ask", tool="pay", say="May it be used?")])]
    agent = made("tea", use_once("pay", {"amount": 5}), tools=[pay])
    assert (await ask(agent, guards=guards, approver=approver)).unwrap() == told
    assert [each.text for each in questions] == ["May it be used?", "May it pay?"]


async def test_a_tool_whose_condition_asks_for_a_confirmation_after_an_edit_asks_again() -> None:
    ledger: list[int] = []

    def pay(amount: int) -> str:
        """Pay."""
        ledger.append(amount)
        return "paid"

    def large(amount: int) -> bool:
        return amount > 100

    class OnlyGated(FunctionTool):
        """A tool that leaves it to the kit to wait for the answer."""

        async def run_async(self, *, args: dict[str, Any], tool_context: Any) -> Any:
            return pay(**args)

    guards = [guard_of([Rule(then="ask", tool="pay", edit=frozenset({"input"}))])]
    more = Decision(agreed=True, by="ann", edits={"input": {"amount": 500}})
    for last, paid, kind in ((YES, [500], FunctionTool), (NO, [], FunctionTool), (NO, [], OnlyGated)):
        tools = [kind(pay, require_confirmation=large)]
        questions, approver = says(more, last)
        ledger.clear()
        response = await ask(made("tea", use_once("pay", {"amount": 5}), tools=tools), guards=guards, approver=approver)
        assert (response.ok, len(questions), ledger) == (True, 2, paid)


async def test_a_tool_that_goes_on_without_the_run_is_no_answer() -> None:
    def brew() -> None:
        """Brew."""

    response = await ask(made("tea", use_once("brew", {}), tools=[LongRunningFunctionTool(brew)]))
    assert response.fault is not None
    assert (response.fault.code, "go on without it" in response.fault.message) == (Code.DELEGATION_FAILED, True)


async def test_what_ends_a_run_is_not_logged_with_its_traceback(caplog: pytest.LogCaptureFixture) -> None:
    async def fails(given: Seen) -> Say:
        raise RuntimeError("no water")

    response = await ask(made("tea", fails))
    assert response.fault is not None
    assert "no water" in response.fault.message
    over = await ask(made("tea", use_once("brew", {}), tools=[]), max_tokens=30)
    assert over.fault is not None
    assert over.fault.code is Code.TOKEN_BUDGET_EXCEEDED
    assert [record.message for record in caplog.records if record.exc_info] == []
