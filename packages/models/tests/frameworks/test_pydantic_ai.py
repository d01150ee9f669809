"""Agents of pydantic-ai in a hub."""

from collections.abc import AsyncIterable, AsyncIterator, Callable, Sequence
from dataclasses import replace
from typing import Any

from pydantic import BaseModel
from pydantic_ai import (
    Agent,
    DeferredToolRequests,
    FunctionToolset,
    ModelProfile,
    ModelResponse,
    RunContext,
    TextPart,
    Tool,
    ToolCallPart,
)
from pydantic_ai.agent import WrapperAgent
from pydantic_ai.capabilities import NativeTool, ProcessEventStream
from pydantic_ai.messages import AgentStreamEvent, ModelMessage, RetryPromptPart, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, FunctionModel
from pydantic_ai.models.test import TestModel
from pydantic_ai.native_tools import WebSearchTool
from pydantic_ai.usage import RequestUsage

from frameworks.suite import FrameworkConformance, Say, Script, Seen, Use, say, use_once
from remit import Answer, Code, Hub, Response
from remit.protocol.records import Delta
from remit_models.frameworks.pydantic_ai import adapt
from remit_testing.agents import COMPLETION, PROMPT, Behaviour
from remit_testing.memory import MemoryStore


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

    def state_of(self, agent: Any) -> object:
        return [(type(each), list(each.tools)) for each in agent.toolsets], agent.name, agent.model


class Cups(BaseModel):
    count: int
    where: list[str]


async def ask(agent: object, text: str = "Count the cups", **options: Any) -> Response:
    hub = Hub(store=MemoryStore())
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


async def test_a_call_that_waits_for_approval_is_no_answer() -> None:
    agent = Agent(model_of(use_once("pay", {})), output_type=[str, DeferredToolRequests])

    @agent.tool_plain(requires_approval=True)
    def pay() -> str:
        return "paid"

    response = await ask(agent)
    assert response.fault is not None
    assert response.fault.code is Code.DELEGATION_FAILED
    assert "pay" in response.fault.message


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
