"""Agents of pydantic-ai in a hub."""

import asyncio
import json
import subprocess
from collections.abc import AsyncIterable, AsyncIterator, Callable, Sequence
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel
from pydantic_ai import (
    Agent,
    ApprovalRequired,
    DeferredToolRequests,
    ExternalToolset,
    FunctionToolset,
    ModelProfile,
    ModelResponse,
    ModelRetry,
    RunContext,
    TextPart,
    Tool,
    ToolCallPart,
    ToolReturn,
)
from pydantic_ai.agent import WrapperAgent
from pydantic_ai.capabilities import HandleDeferredToolCalls, NativeTool, ProcessEventStream
from pydantic_ai.exceptions import ToolFailed
from pydantic_ai.messages import AgentStreamEvent, ModelMessage, RetryPromptPart, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, FunctionModel
from pydantic_ai.models.test import TestModel
from pydantic_ai.native_tools import WebSearchTool
from pydantic_ai.tools import ToolDefinition
from pydantic_ai.usage import RequestUsage

from command_line import REMIT, environment
from frameworks.suite import FrameworkConformance, Say, Script, Seen, Use, say, use_once
from remit import Answer, Code, Decision, Hub, Question, Response, Usage
from remit.policy.verdict import Guard
from remit.ports import Approver
from remit.protocol.records import Delta
from remit_cli import Rule, guard_of
from remit_models.frameworks.pydantic_ai import adapt
from remit_server.model_prices import Price, PriceBook
from remit_testing.agents import COMPLETION, PROMPT, Behaviour
from remit_testing.memory import MemoryStore
from waiting import PATIENCE_S, eventually


def seen_by(messages: list[ModelMessage], info: AgentInfo) -> Seen:
    texts = [str(getattr(part, "content", "")) for message in messages for part in message.parts]
    return Seen(
        text="\n".join((info.instructions or "", *texts)),
        tool_results=[
            str(part.content) for part in messages[-1].parts if isinstance(part, ToolReturnPart | RetryPromptPart)
        ],
        tools=[tool.name for tool in info.function_tools],
        max_tokens=(info.model_settings or {}).get("max_tokens"),
    )


def model_of(script: Script) -> FunctionModel:
    async def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        step = await script(seen_by(messages, info))
        part = TextPart(step.text) if isinstance(step, Say) else ToolCallPart(step.tool, step.arguments)
        usage = RequestUsage(input_tokens=step.usage[0], output_tokens=step.usage[1]) if step.usage else RequestUsage()
        return ModelResponse(parts=[part], usage=usage, metadata=None if step.usage else {"silent": True})

    return PlainModel(answer)


class PlainModel(FunctionModel):
    """Reports what its function says was used, also if that is nothing; the original then makes a guess."""

    async def request(self, *args: Any, **kwargs: Any) -> ModelResponse:
        answered = await super().request(*args, **kwargs)
        silent = isinstance(answered.metadata, dict) and answered.metadata.get("silent")
        return replace(answered, usage=RequestUsage()) if silent else answered


def streaming_model_of(script: Script) -> FunctionModel:
    async def stream(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[str | dict[int, DeltaToolCall]]:
        step = await script(seen_by(messages, info))
        if isinstance(step, Use):
            yield {0: DeltaToolCall(name=step.tool, json_args="{}")}
            return
        for piece in step.pieces:
            yield piece

    return FunctionModel(stream_function=stream)


class TestPydanticAI(FrameworkConformance):
    def make(self, script: Script, tools: Sequence[Callable[..., Any]], instructions: str = "") -> Any:
        return Agent(model_of(script), tools=tools, system_prompt=instructions)

    def agent(self, behaviour: Behaviour) -> object:
        if behaviour is Behaviour.STREAMS:
            return Agent(streaming_model_of(self.script_of(behaviour)))
        return super().agent(behaviour)

    def make_typed(self, answer: BaseModel) -> Any:
        return Agent(TestModel(custom_output_args=answer.model_dump()), output_type=type(answer))

    def make_asking(self, script: Script, tool: Callable[..., Any]) -> Any:
        return Agent(model_of(script), tools=[Tool(tool, requires_approval=True)])

    def state_of(self, agent: Any) -> object:
        return [(type(each), list(each.tools)) for each in agent.toolsets], agent.name, agent.model


class Cups(BaseModel):
    count: int
    where: list[str]


async def ask(
    agent: object,
    text: str = "Count the cups",
    guards: Sequence[Guard] = (),
    approver: Approver | None = None,
    **options: Any,
) -> Response:
    hub = Hub(store=MemoryStore(), guards=guards, approver=approver)
    hub.add("counter", agent)
    async with hub:
        return await hub.ask("counter", text, user="u-1", **options)


async def test_a_structured_output_comes_back_as_json() -> None:
    model = TestModel(custom_output_args={"count": 7, "where": ["shelf", "sink"]})
    response = await ask(Agent(model, output_type=Cups))
    assert response.unwrap() == {"count": 7, "where": ["shelf", "sink"]}


async def test_a_function_that_makes_the_output_may_give_back_an_answer() -> None:
    def answered(count: int) -> Any:
        return Answer(f"{count} cups", confidence=0.8)

    response = await ask(Agent(TestModel(custom_output_args={"count": 7}), output_type=answered))
    assert (response.unwrap(), response.confidence) == ("7 cups", 0.8)


async def test_a_wrapped_agent_and_one_of_a_subclass_are_known_too() -> None:
    class Mine(Agent[None, str]):
        pass

    assert (await ask(WrapperAgent(Agent(TestModel(custom_output_text="yes"))))).unwrap() == "yes"
    assert (await ask(Mine(TestModel(custom_output_text="yes")))).unwrap() == "yes"


async def test_its_description_is_that_of_the_card() -> None:
    hub = Hub(store=MemoryStore())
    hub.add("counter", Agent(TestModel(), description="Counts cups."))
    assert hub.cards["counter"].description == "Counts cups."


async def test_tools_that_are_known_only_in_the_run_are_held_to_the_remit_too() -> None:
    seen: list[Seen] = []
    ran: list[str] = []

    async def script(given: Seen) -> Say | Use:
        seen.append(given)
        return Say(given.tool_results) if given.tool_results else Use("kitchen_secret")

    agent = Agent(model_of(script))

    @agent.toolset
    def later(ctx: RunContext[None]) -> Any:
        def secret() -> str:
            ran.append("secret")
            return "in the safe"

        def open_door() -> str:
            return "open"

        return FunctionToolset([secret, open_door]).prefixed("kitchen")

    assert "in the safe" in (await ask(agent)).unwrap()
    assert sorted(seen[0].tools) == ["kitchen_open_door", "kitchen_secret"]
    ran.clear()
    seen.clear()
    response = await ask(agent, tools=["kitchen_open_door"])
    assert [list(each.tools) for each in seen] == [["kitchen_open_door"]] * len(seen)
    assert "in the safe" not in str(response.result)
    assert ran == []


async def test_a_tool_that_the_provider_runs_is_held_to_the_remit_too() -> None:
    offered: list[list[str]] = []

    def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        offered.append([each.kind for each in info.model_request_parameters.native_tools])
        return ModelResponse(parts=[TextPart("yes")])

    model = FunctionModel(answer, profile=ModelProfile(supported_native_tools=frozenset({WebSearchTool})))
    agent = Agent(model, capabilities=[NativeTool(WebSearchTool())])
    for tools in (None, ["web_search"], []):
        (await ask(agent, tools=tools)).unwrap()
    assert offered == [["web_search"], ["web_search"], []]


async def test_what_agents_used_on_the_runs_account_is_metered() -> None:
    inner = Agent(model_of(say("seven")))
    outer = Agent(model_of(use_once("ask_inner", {})), deps_type=str)

    @outer.tool
    async def ask_inner(ctx: RunContext[str]) -> str:
        return (await inner.run(ctx.deps, usage=ctx.usage)).output

    response = await ask(adapt(outer, deps=lambda brief: f"for {brief.user}"))
    assert response.unwrap() == "seven"
    assert response.usage.total == 3 * (PROMPT + COMPLETION)


async def test_a_tool_that_asks_while_it_runs_is_run_again_after_the_yes() -> None:
    questions, ledger = list[Question](), list[int]()

    async def approver(question: Question) -> Decision:
        questions.append(question)
        return Decision(agreed=True, by="ann")

    def pay(ctx: RunContext[None], amount: int) -> str:
        if not ctx.tool_call_approved:
            raise ApprovalRequired(metadata={"limit": 100})
        ledger.append(amount)
        return "paid"

    response = await ask(Agent(model_of(use_once("pay", {"amount": 500})), tools=[pay]), approver=approver)
    assert (response.unwrap(), ledger) == ("paid", [500])
    assert [each.text for each in questions] == ['May counter use pay? ({"limit":100})']


@pytest.mark.parametrize("failure", [ModelRetry, ToolFailed])
async def test_its_model_reads_with_tokens_why_a_tool_wants_to_be_called_again(failure: Any) -> None:
    calls = list[int]()
    seen = list[str]()

    def find(drawer: int) -> str:
        calls.append(drawer)
        raise failure("Ask ada@example.org for the drawer.")

    async def script(given: Seen) -> Say | Use:
        seen.append(f"{given.text} {given.tool_results}")
        return Use("find", {"drawer": 1}) if len(seen) == 1 else Say("nothing")

    (await ask(Agent(model_of(script), tools=[find]))).unwrap()
    assert (calls, "for the drawer." in seen[1], "ada@example.org" in seen[1]) == ([1], True, False)


async def test_a_handler_of_the_agent_itself_decides_before_a_person_is_asked() -> None:
    async def approve(ctx: RunContext[None], requests: DeferredToolRequests) -> Any:
        return requests.build_results(approve_all=True)

    handler = HandleDeferredToolCalls[None](approve)
    tool = Tool(lambda: "paid", name="pay", requires_approval=True)
    agent = Agent(model_of(use_once("pay", {})), tools=[tool], capabilities=[handler])
    assert (await ask(agent)).unwrap() == "paid"


async def test_a_call_whose_result_a_program_must_bring_is_no_answer() -> None:
    tools = ExternalToolset[None]([ToolDefinition(name="pay")])
    agent = Agent(model_of(use_once("pay", {})), toolsets=[tools], output_type=[str, DeferredToolRequests])
    response = await ask(agent)
    assert response.fault is not None
    assert (response.fault.code, "(pay)" in response.fault.message) == (Code.DELEGATION_FAILED, True)


class Bill(BaseModel):
    amount: int
    due: date


@pytest.mark.parametrize(
    ("edit", "told"),
    [({"amount": 3, "due": "2026-01-02"}, "3 by 2026-01-02"), ({"amount": "much"}, "valid integer")],
)
async def test_arguments_that_a_person_edited_are_validated_as_the_tool_takes_them(edit: Any, told: str) -> None:
    async def approver(question: Question) -> Decision:
        assert question.request.input == {"bill": {"amount": 500, "due": "2026-01-01"}}
        return Decision(agreed=True, by="ann", edits={"input": {"bill": edit}})

    def pay(bill: Bill) -> ToolReturn:
        return ToolReturn(f"{bill.amount} by {bill.due.isoformat()}")

    agent = Agent(
        model_of(use_once("pay", {"amount": 500, "due": "2026-01-01"})), tools=[Tool(pay, requires_approval=True)]
    )
    assert told in (await ask(agent, approver=approver)).unwrap()


async def test_the_model_is_told_of_a_refusal_as_pydantic_ai_tells_it() -> None:
    outcomes: list[str] = []

    def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        returned = [part for part in messages[-1].parts if isinstance(part, ToolReturnPart)]
        outcomes.extend(part.outcome for part in returned)
        return ModelResponse(parts=[TextPart("no") if returned else ToolCallPart("pay", {})])

    agent = Agent(FunctionModel(answer), tools=[Tool(lambda: "paid", name="pay")])
    assert (await ask(agent, guards=[guard_of([Rule(then="refuse", tool="pay")])])).unwrap() == "no"
    assert outcomes == ["denied"]


async def test_text_and_tool_calls_stream_and_the_agents_own_listener_hears_them_too() -> None:
    event_kinds: list[str] = []

    async def listen(ctx: RunContext[None], events: AsyncIterable[AgentStreamEvent]) -> None:
        async for event in events:
            event_kinds.append(event.event_kind)

    agent = Agent(
        streaming_model_of(use_once("look", {})),
        tools=[Tool(lambda: "The tin. ", name="look")],
        capabilities=[ProcessEventStream(listen)],
    )
    hub = Hub(store=MemoryStore(), redaction=False)
    hub.add("counter", agent)
    async with hub:
        records = [record async for record in hub.stream("counter", "Look", user="u-1")]
    assert [record.body.text for record in records if isinstance(record.body, Delta)] == ["The tin. "]
    assert {"function_tool_call", "part_start"} <= set(event_kinds)


async def test_a_model_put_in_for_a_test_is_the_one_that_is_asked() -> None:
    agent = Agent("openai:gpt-5", defer_model_check=True)
    with agent.override(model=model_of(say("from the test"))):
        assert (await ask(agent)).unwrap() == "from the test"


TEAM = """
name = "bank"

[agents.teller]
run = "bank:teller"
"""
CODE = """
from pathlib import Path

from pydantic_ai import Agent
from pydantic_ai.models.test import TestModel

teller = Agent(TestModel(call_tools=["pay"]))


@teller.tool_plain(requires_approval=True)
def pay(amount: int) -> str:
    with Path("ledger").open("a") as ledger:
        ledger.write(f"{amount}\\n")
    return f"paid {amount}"
"""


def remit(*arguments: str, folder: Path) -> str:
    """Run a command in a process of its own: the fork server of other tests has no frameworks."""
    done = subprocess.run(
        [REMIT, *arguments],
        cwd=folder,
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_S,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


async def test_remit_pending_shows_what_a_tool_is_called_with_and_a_yes_there_runs_it_once(tmp_path: Path) -> None:
    (tmp_path / "remit.toml").write_text(TEAM, encoding="utf-8")
    (tmp_path / "bank.py").write_text(CODE, encoding="utf-8")
    remit("run", "teller", "pay", "--detach", folder=tmp_path)

    def pending() -> Any:
        return json.loads(remit("pending", "list", "--json", folder=tmp_path))["questions"]

    (question,) = [each["question"] for each in await eventually(lambda: asyncio.to_thread(pending))]
    assert question["text"] == "May teller use pay?"
    assert (question["request"]["target"], question["request"]["input"]) == ("pay", {"amount": 0})
    assert not (tmp_path / "ledger").exists()
    remit("pending", "approve", question["id"], "--edit", 'input={"amount": 7}', folder=tmp_path)
    remit("runs", "watch", "last", folder=tmp_path)
    assert (tmp_path / "ledger").read_text() == "7\n"
    assert "[pay]" in remit("runs", "tree", "last", folder=tmp_path)


async def test_what_a_model_costs_is_recorded_with_the_tokens_of_its_providers_cache() -> None:
    async def answer(_: list[ModelMessage], __: AgentInfo) -> ModelResponse:
        usage = RequestUsage(input_tokens=900, output_tokens=10, cache_read_tokens=600, cache_write_tokens=100)
        return ModelResponse(parts=[TextPart("yes")], usage=usage)

    price = Price(input=2, output=8, cached=0.5, cache_write=3)
    hub = Hub(store=MemoryStore(), prices=PriceBook({"function:tiny": price}).cost)
    hub.add("a", Agent(FunctionModel(answer, model_name="tiny")))
    async with hub:
        response = await hub.ask("a", "go", user="u")
    assert response.usage == Usage(
        prompt=900, completion=10, cache_read=600, cache_write=100, cost=400 + 300 + 300 + 80, priced=910
    )
