"""Graphs of LangGraph and agents of LangChain in a hub."""

import itertools
import json
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, TypedDict

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import HumanInTheLoopMiddleware
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, ToolCall, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.func import entrypoint
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.types import interrupt
from langsmith.utils import get_env_var, tracing_is_enabled
from pydantic import BaseModel

import remit
from frameworks.suite import NO, YES, FrameworkConformance, Say, Script, Seen, Use, say, use_once
from remit import Answer, Code, Decision, Hub, Response, Status
from remit.policy.verdict import Guard
from remit.ports import Approver
from remit.protocol.records import Delta
from remit_cli import Rule, guard_of
from remit_models.frameworks.langgraph import hub_tools
from remit_testing.agents import COMPLETION, HELPED, HELPER, PROMPT
from remit_testing.memory import MemoryStore

NUMBERS = itertools.count()


class FollowsScript(BaseChatModel):
    """A chat model that asks a script, whole or in pieces."""

    script: Any

    @property
    def _llm_type(self) -> str:
        return "script"

    def bind_tools(self, tools: Sequence[Any], **options: Any) -> Any:
        return self.bind(tools=[each.get("type") if isinstance(each, dict) else each.name for each in tools], **options)

    def _generate(self, *args: Any, **options: Any) -> ChatResult:
        raise NotImplementedError

    async def _agenerate(self, messages: list[BaseMessage], *args: Any, **options: Any) -> ChatResult:
        step = await self.script(seen_by(messages, options))
        return ChatResult(generations=[ChatGeneration(message=message_of(step))])

    async def _astream(
        self, messages: list[BaseMessage], *args: Any, **options: Any
    ) -> AsyncIterator[ChatGenerationChunk]:
        step = await self.script(seen_by(messages, options))
        message = message_of(step)
        if isinstance(step, Use):
            [called] = message.tool_calls
            chunk = {"name": called["name"], "args": json.dumps(called["args"]), "id": called["id"], "index": 0}
            yield ChatGenerationChunk(message=AIMessageChunk(content="", tool_call_chunks=[chunk]))
        else:
            for piece in step.pieces:
                yield ChatGenerationChunk(message=AIMessageChunk(content=piece))
        if message.usage_metadata:
            yield ChatGenerationChunk(message=AIMessageChunk(content="", usage_metadata=message.usage_metadata))


def message_of(step: Say | Use) -> AIMessage:
    used = step.usage and {
        "input_tokens": step.usage[0],
        "output_tokens": step.usage[1],
        "total_tokens": sum(step.usage),
    }
    if isinstance(step, Say):
        return AIMessage(step.text, usage_metadata=used)
    call = ToolCall(name=step.tool, args=step.arguments, id=f"call-{next(NUMBERS)}", type="tool_call")
    return AIMessage("", tool_calls=[call], usage_metadata=used)


def seen_by(messages: list[BaseMessage], options: dict[str, Any]) -> Seen:
    return Seen(
        text="\n".join(each.text for each in messages),
        tool_results=[messages[-1].text] if isinstance(messages[-1], ToolMessage) else [],
        tools=options.get("tools") or [],
        max_tokens=options.get("max_tokens"),
    )


def asking(script: Script, pay: Callable[..., Any], *middleware: Any, **options: Any) -> Any:
    approval = HumanInTheLoopMiddleware(interrupt_on={"pay": True}, **options)
    model, saver = FollowsScript(script=script), InMemorySaver()
    return create_agent(model, [tool(pay)], middleware=[approval, *middleware], checkpointer=saver)


class TestAgentsThatTakeTools(FrameworkConformance):
    def make_asking(self, script: Script, tool: Callable[..., Any]) -> Any:
        return asking(script, tool, hub_tools())

    def make(self, script: Script, tools: Sequence[Callable[..., Any]], instructions: str = "") -> Any:
        return create_agent(
            FollowsScript(script=script),
            [tool(each) for each in tools],
            system_prompt=instructions or None,
            middleware=[hub_tools()],
        )

    def make_typed(self, answer: BaseModel) -> Any:
        script = use_once(type(answer).__name__, answer.model_dump())
        return create_agent(FollowsScript(script=script), response_format=type(answer), middleware=[hub_tools()])

    def state_of(self, agent: Any) -> object:
        return sorted(agent.nodes), sorted(agent.nodes["tools"].bound.tools_by_name), agent.config


class TestAgentsAsTheyAre(FrameworkConformance):
    no_edits = "what a tool is called with is said in the graph"
    no_tools = "a compiled graph takes no tools from outside"
    no_delegation = "delegation is a tool, too"
    no_last_answer = "only the middleware sees the model of a graph"
    no_cap = "what a graph's model may write is said where the graph is made"
    refuses_restriction = "which of its tools a model is offered is said where the graph is made"

    def make_asking(self, script: Script, tool: Callable[..., Any]) -> Any:
        return asking(script, tool, interrupt_mode="per_call")

    def make(self, script: Script, tools: Sequence[Callable[..., Any]], instructions: str = "") -> Any:
        return create_agent(
            FollowsScript(script=script), [tool(each) for each in tools], system_prompt=instructions or None
        )

    def make_typed(self, answer: BaseModel) -> Any:
        script = use_once(type(answer).__name__, answer.model_dump())
        return create_agent(FollowsScript(script=script), response_format=type(answer))

    def state_of(self, agent: Any) -> object:
        return sorted(agent.nodes), sorted(agent.nodes["tools"].bound.tools_by_name), agent.config


async def ask(
    agent: object,
    text: str = "Make tea",
    guards: Sequence[Guard] = (),
    approver: Approver | None = None,
    **options: Any,
) -> Response:
    hub = Hub(store=MemoryStore(), guards=guards, approver=approver)

    @hub.agent(HELPER)
    async def helper(brief: Any) -> str:
        return f"{HELPED} At depth {brief.remit.depth}."

    hub.add("tea", agent, may_call=[HELPER])
    async with hub:
        return await hub.ask("tea", text, user="u-1", **options)


class Cups(BaseModel):
    count: int
    where: list[str]


async def test_a_structured_response_comes_back_as_json() -> None:
    script = use_once("Cups", {"count": 7, "where": ["shelf"]})
    response = await ask(create_agent(FollowsScript(script=script), response_format=Cups))
    assert response.unwrap() == {"count": 7, "where": ["shelf"]}


async def test_an_agent_without_tools_of_its_own_can_be_offered_some() -> None:
    script = use_once("sub_agent", {"agent_name": HELPER, "task": "count"})
    response = await ask(create_agent(FollowsScript(script=script), middleware=[hub_tools()]))
    assert f"{HELPED} At depth 1." in response.unwrap()


async def test_outside_a_hub_an_agent_is_what_it_was_made() -> None:
    seen: list[Seen] = []

    async def script(given: Seen) -> Say:
        seen.append(given)
        return Say(["yes"])

    agent = create_agent(FollowsScript(script=script), [tool(look)], middleware=[hub_tools()])
    answered = await agent.ainvoke({"messages": [{"role": "user", "content": "Look"}]})
    assert answered["messages"][-1].text == "yes"
    assert list(seen[0].tools) == ["look"]


def look() -> str:
    """Look."""
    return "in the tin"


async def test_a_tool_that_the_provider_runs_is_held_to_the_remit() -> None:
    offered: list[list[str]] = []

    async def script(given: Seen) -> Say:
        offered.append(list(given.tools))
        return Say(["yes"])

    agent = create_agent(FollowsScript(script=script), [{"type": "web_search"}], middleware=[hub_tools()])
    for tools in (None, ["web_search"], []):
        (await ask(agent, tools=tools, may_delegate=False)).unwrap()
    assert offered == [["web_search"], ["web_search"], []]


# ── graphs of one's own ───────────────────────────────────────────────────────────────────────────────────────────────


def graph_of(node: Callable[..., Any], state: Any = MessagesState, checkpointer: Any = None) -> Any:
    builder = StateGraph(state)
    builder.add_node("work", node)
    builder.add_edge(START, "work")
    builder.add_edge("work", END)
    return builder.compile(checkpointer=checkpointer)


async def test_a_node_finds_its_brief_and_delegates_within_it() -> None:
    async def work(state: MessagesState, config: RunnableConfig) -> Any:
        reply = await config["configurable"]["brief"].delegate(HELPER, objective="count", max_tokens=500)
        return {"messages": [AIMessage(f"They say: {reply.result}")]}

    assert (await ask(graph_of(work))).unwrap() == f"They say: {HELPED} At depth 1."


async def test_a_graph_whose_nodes_may_do_anything_is_not_asked_under_a_restriction() -> None:
    ran: list[str] = []

    async def work(state: MessagesState) -> Any:
        ran.append("work")
        return {"messages": [AIMessage("done")]}

    response = await ask(graph_of(work), tools=["look"])
    assert response.fault is not None
    assert response.fault.code is Code.TOOL_NOT_ALLOWED
    assert "(look)" in response.fault.message
    assert "(work)" in response.fault.message
    assert ran == []


async def test_a_model_that_a_node_calls_in_a_thread_is_metered_and_stopped() -> None:
    class Plain(FollowsScript):
        def _generate(self, *args: Any, **options: Any) -> ChatResult:
            return ChatResult(generations=[ChatGeneration(message=message_of(Say(["yes"])))])

    model = Plain(script=None)

    def work(state: MessagesState) -> Any:
        answers = [model.invoke(state["messages"]) for _ in range(3)]
        return {"messages": answers[-1:]}

    response = await ask(graph_of(work))
    assert response.unwrap() == "yes"
    assert response.usage.total == 3 * (PROMPT + COMPLETION)
    short = await ask(graph_of(work), max_tokens=PROMPT + COMPLETION + 50)
    assert short.fault is not None
    assert short.fault.code is Code.TOKEN_BUDGET_EXCEEDED
    assert short.usage.total == 2 * (PROMPT + COMPLETION)


async def test_what_an_agent_in_a_node_says_is_heard_and_metered() -> None:
    builder = StateGraph(MessagesState)
    builder.add_node("inner", create_agent(FollowsScript(script=say("The tin. "))))
    builder.add_edge(START, "inner")
    hub = Hub(store=MemoryStore(), redaction=False)
    hub.add("tea", builder.compile())
    async with hub:
        records = [record async for record in hub.stream("tea", "Look", user="u-1")]
    assert [record.body.text for record in records if isinstance(record.body, Delta)] == ["The tin. "]
    assert records[-1].body.usage.total == PROMPT + COMPLETION


async def test_a_model_that_a_tool_asks_is_metered_but_not_heard() -> None:
    inner = FollowsScript(script=say("between us"))

    @tool
    async def ask_inner() -> str:
        """Ask."""
        return (await inner.ainvoke("count")).text

    hub = Hub(store=MemoryStore(), redaction=False)
    hub.add("tea", create_agent(FollowsScript(script=use_once("ask_inner", {})), [ask_inner]))
    async with hub:
        records = [record async for record in hub.stream("tea", "Look", user="u-1")]
    assert [record.body.text for record in records if isinstance(record.body, Delta)] == ["between us"]
    assert records[-1].body.usage.total == 3 * (PROMPT + COMPLETION)


class Order(TypedDict):
    drink: str
    cups: int


class Question(TypedDict):
    question: str


async def test_a_state_without_messages_begins_with_the_input() -> None:
    async def work(state: Order) -> Any:
        return {"cups": state["cups"] + 1}

    response = await ask(graph_of(work, Order), input={"drink": "tea", "cups": 2})
    assert response.unwrap() == {"drink": "tea", "cups": 3}
    missing = await ask(graph_of(work, Order))
    assert missing.fault is not None
    assert missing.fault.code is Code.INPUT_VALIDATION_FAILED
    assert "drink, cups" in missing.fault.suggestion


async def test_a_state_of_one_field_begins_with_the_task() -> None:
    async def work(state: Question) -> Any:
        return {"question": state["question"].upper()}

    assert (await ask(graph_of(work, Question))).unwrap() == {"question": "MAKE TEA"}


async def test_an_entrypoint_is_an_agent_too() -> None:
    @entrypoint()
    async def work(given: str) -> dict[str, str]:
        return {"heard": given}

    assert (await ask(work)).unwrap() == {"heard": "Make tea"}


async def test_an_entrypoint_may_give_back_an_answer() -> None:
    @entrypoint()
    async def work(given: str) -> Answer:
        return Answer(given.upper(), confidence=0.8)

    response = await ask(work)
    assert (response.unwrap(), response.confidence) == ("MAKE TEA", 0.8)


class Asked(MessagesState):
    answer: str
    confidence: float


class Answered(TypedDict):
    answer: str
    confidence: float


async def test_a_graph_answers_with_what_its_output_schema_names() -> None:
    async def work(state: Asked) -> Any:
        return {"answer": state["messages"][-1].text.upper(), "confidence": 0.8, "messages": [AIMessage("done")]}

    builder = StateGraph(Asked, output_schema=Answered)
    builder.add_node("work", work)
    builder.add_edge(START, "work")
    response = await ask(builder.compile())
    assert (response.unwrap(), response.confidence) == ("MAKE TEA", 0.8)


async def test_a_graph_without_a_checkpointer_cannot_wait_for_a_person() -> None:
    async def work(state: MessagesState) -> Any:
        return {"messages": [AIMessage(interrupt("May I boil it?"))]}

    response = await ask(graph_of(work))
    assert response.status is Status.FAILED
    assert response.fault is not None
    assert "May I boil it?" in response.fault.message
    assert "checkpointer" in response.fault.message


def says(*decisions: Decision) -> tuple[list[tuple[str, Any]], Approver]:
    """Return the questions to come, with the schemas of their forms, and a person who decides so about them."""
    questions, left = list[tuple[str, Any]](), list(decisions)

    async def approver(question: remit.Question) -> Decision:
        questions.append((question.text, question.form))
        return left.pop(0)

    return questions, approver


def fills(**fields: object) -> Decision:
    return Decision(agreed=True, by="ann", edits={"input": fields})


@pytest.mark.parametrize(
    ("decision", "gets"),
    [
        (YES, True),
        (NO, False),
        (fills(answer="Green."), "Green."),
        (fills(answer='{"cups": 2}'), {"cups": 2}),
    ],
)
async def test_an_interrupt_becomes_a_question_and_the_graph_goes_on_with_the_answer(
    decision: Decision, gets: object
) -> None:
    begun: list[str] = []

    async def work(state: Order) -> Any:
        begun.append("work")
        answer = interrupt({"question": "Which tea?"})
        assert answer == gets
        return {"drink": str(interrupt("Sure?"))}

    questions, approver = says(decision, YES)
    graph = graph_of(work, Order, checkpointer=InMemorySaver())
    response = await ask(graph, input={"drink": "tea", "cups": 2}, approver=approver)
    assert response.unwrap() == {"drink": "True", "cups": 2}
    assert [text for text, _ in questions] == ['{"question":"Which tea?"}', "Sure?"]
    assert begun == ["work"] * 3


async def test_an_interrupt_with_a_schema_becomes_a_form() -> None:
    class Choice(BaseModel):
        cups: int

    async def work(state: Order) -> Any:
        chosen = interrupt("How many?", response_schema=Choice)
        return {"cups": chosen.cups + interrupt("And more?", response_schema={"type": "integer"})}

    graph = graph_of(work, Order, checkpointer=InMemorySaver())
    questions, approver = says(fills(cups=3), fills(answer=4))
    response = await ask(graph, input={"drink": "tea", "cups": 2}, approver=approver)
    assert response.unwrap() == {"drink": "tea", "cups": 7}
    assert [list(form["properties"]) for _, form in questions] == [["cups"], ["answer"]]
    refused = await ask(graph, input={"drink": "tea", "cups": 2}, approver=says(NO)[1])
    assert refused.fault is not None
    assert (refused.fault.code, "How many?" in refused.fault.message) == (Code.APPROVAL_DECLINED, True)


@pytest.mark.parametrize(("decision", "done"), [(YES, True), (NO, False)])
async def test_a_graph_that_was_compiled_to_stop_goes_on_after_a_yes(decision: Decision, done: bool) -> None:
    builder = StateGraph(Order)
    builder.add_node("work", lambda state: {"cups": state["cups"] + 1})
    builder.add_edge(START, "work")
    graph = builder.compile(checkpointer=InMemorySaver(), interrupt_before=["work"])
    questions, approver = says(decision)
    response = await ask(graph, input={"drink": "tea", "cups": 2}, approver=approver)
    assert (response.ok, [text for text, _ in questions]) == (done, ["May tea go on?"])
    if done:
        assert response.unwrap() == {"drink": "tea", "cups": 3}


async def test_a_tool_that_a_node_calls_itself_is_judged_and_its_refusal_is_the_runs() -> None:
    looked: list[str] = []

    @tool
    def peek(where: str) -> str:
        """Look."""
        looked.append(where)
        return "in the tin"

    def in_thread(state: MessagesState) -> Any:
        return {"messages": [AIMessage(peek.invoke({"where": "tin"}))]}

    async def work(state: MessagesState) -> Any:
        return {"messages": [AIMessage(await peek.ainvoke({"where": "tin"}))]}

    async def in_loop(state: MessagesState) -> Any:
        return in_thread(state)

    guards = [guard_of([Rule(then="refuse", tool="peek", say="No peeking.")])]
    for node in (in_thread, work):
        response = await ask(graph_of(node), guards=guards)
        assert response.fault is not None
        assert (response.fault.code, response.fault.message) == (Code.PERMISSION_DENIED, "No peeking.")
    assert looked == []
    assert [(await ask(graph_of(node))).unwrap() for node in (in_thread, work)] == ["in the tin"] * 2
    refused = (await ask(graph_of(in_loop))).fault
    assert refused is not None
    assert "use `ainvoke`" in refused.message
    assert looked == ["tin"] * 2


async def test_arguments_that_may_only_be_approved_are_edited_by_the_middleware_of_the_hub() -> None:
    ledger: list[int] = []

    @tool
    def pay(amount: int) -> str:
        """Pay."""
        ledger.append(amount)
        return "paid"

    for middleware, told in (([hub_tools()], "paid"), ([], "its arguments were changed")):
        approval = HumanInTheLoopMiddleware(interrupt_on={"pay": {"allowed_decisions": ["approve", "reject"]}})
        model = FollowsScript(script=use_once("pay", {"amount": 500}))
        agent = create_agent(model, [pay], middleware=[approval, *middleware], checkpointer=InMemorySaver())
        assert told in (await ask(agent, approver=says(fills(amount=3))[1])).unwrap()
    assert ledger == [3]


async def test_a_tool_that_interrupts_is_judged_once() -> None:
    @tool
    def pay(amount: int) -> str:
        """Pay."""
        return f"paid {interrupt('How much?')}, at most {amount}"

    for middleware in ([hub_tools()], []):
        script = use_once("pay", {"amount": 5})
        agent = create_agent(FollowsScript(script=script), [pay], middleware=middleware, checkpointer=InMemorySaver())
        questions, approver = says(fills(amount=9) if middleware else YES, fills(answer="7"))
        guards = [guard_of([Rule(then="ask", tool="pay", say="May it?", edit=frozenset({"input"}))])]
        paid = f"paid 7, at most {9 if middleware else 5}"
        assert (await ask(agent, guards=guards, approver=approver)).unwrap() == paid
        assert [text for text, _ in questions] == ["May it?", "How much?"]


async def test_a_graph_with_a_memory_of_its_own_knows_only_what_the_hub_tells_it() -> None:
    async def echo(given: Seen) -> Say:
        return Say([given.text])

    agent = create_agent(FollowsScript(script=echo), checkpointer=InMemorySaver())
    hub = Hub(store=MemoryStore())
    hub.add("tea", agent)
    async with hub:
        first = await hub.ask("tea", "One lump.", user="u-1")
        again = await hub.ask("tea", "How many?", user="u-1", session=first.session)
        other = await hub.ask("tea", "How many?", user="u-1")
    assert again.unwrap().count("One lump.") == 2  # said once and echoed once
    assert other.unwrap() == "How many?"


async def test_nothing_is_sent_to_langsmith(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LANGSMITH_TRACING", "true")
    traced: list[object] = []

    async def work(state: MessagesState) -> Any:
        traced.append(tracing_is_enabled())
        return {"messages": [AIMessage("done")]}

    get_env_var.cache_clear()
    try:
        assert tracing_is_enabled()
        (await ask(graph_of(work))).unwrap()
    finally:
        monkeypatch.undo()
        get_env_var.cache_clear()
    assert traced == [False]


async def test_what_stops_a_run_is_not_logged_as_an_error_of_a_callback(caplog: pytest.LogCaptureFixture) -> None:
    agent = create_agent(FollowsScript(script=use_once("look", {})), [tool(look)])
    response = await ask(agent, max_tokens=PROMPT + COMPLETION + 20)
    assert response.fault is not None
    assert response.fault.code is Code.TOKEN_BUDGET_EXCEEDED
    assert [record.message for record in caplog.records if record.name.startswith("langchain")] == []
