"""Graphs of LangGraph, including agents of LangChain.

A compiled graph accepts no tools from outside. So an agent made with `create_agent` declares that a hub may offer it
some (`middleware=[hub_tools()]`), and the nodes of other graphs find the brief in their configuration:
`config["configurable"]["brief"]`.

Imported only when a program adds such a graph. LangGraph is not a dependency, so its types are not known here.
"""

import logging
from collections.abc import Awaitable, Callable
from contextlib import aclosing, suppress
from contextvars import ContextVar
from functools import cache
from importlib import import_module
from typing import Any
from uuid import UUID

from remit.protocol.envelope import Answer, Json
from remit.protocol.errors import Code, RemitError, fault
from remit.runtime.brief import Brief
from remit_models.frameworks.bounds import MAX_MODEL_CALLS, Bounds, RunningTool, capped, tokens_of
from remit_models.prompting import ModelPrompt
from remit_models.toolbox import ToolOffer

callbacks: Any = import_module("langchain_core.callbacks")
messages: Any = import_module("langchain_core.messages")
tools: Any = import_module("langchain_core.tools")
langsmith: Any = import_module("langsmith")

# A model call and its tools are two steps; the others are for nodes of other kinds.
MAX_STEPS = 5 * MAX_MODEL_CALLS
# A placeholder among an agent's tools for the offered ones: without any tool there would be no node to run them.
PLACE = "remit_tools"

# LangChain warns of every exception in a handler; ours are how a run is stopped, and are reported as its fault.
logging.getLogger("langchain_core.callbacks.manager").addFilter(lambda record: "RemitError(" not in record.getMessage())

_running: ContextVar[Bounds | None] = ContextVar("_running", default=None)


def adapt(graph: Any) -> "Graph":
    """Return a function that answers a brief with a compiled graph."""
    return Graph(graph)


class Graph:
    """Runs a compiled graph in a hub; the graph itself is not changed."""

    description = ""

    def __init__(self, graph: Any) -> None:
        self._graph = graph
        self._takes_offers = PLACE in _tools_of(graph)

    async def __call__(self, brief: Brief) -> Answer:
        bounds = Bounds(brief)
        if bounds.restricted:
            self._refuse_what_cannot_be_held(bounds)
        if self._takes_offers:
            bounds.refuse_clash(_tools_of(self._graph))
        prompt = await bounds.prompt()
        within = BoundsCallback(bounds)
        made_with: dict[str, Any] = self._graph.config or {}
        config = {
            "callbacks": [within],
            "configurable": {"brief": brief, "thread_id": brief.request.path},
            "recursion_limit": min(MAX_STEPS, made_with.get("recursion_limit", MAX_STEPS)),
        }
        token = _running.set(bounds)
        try:
            with langsmith.tracing_context(enabled=False):  # it would be sent to LangSmith
                state = await bounds.ended(self._run(bounds, self._input(brief, prompt), config))
        finally:
            _running.reset(token)
            with suppress(RemitError):
                within.record_rest()
        return bounds.answer(self._output(state))

    async def _run(self, bounds: Bounds, given: object, config: dict[str, Any]) -> Any:
        state: Any = None
        options: dict[str, Any] = {
            "stream_mode": ["messages", "updates", "values"],
            "subgraphs": True,
            "output_keys": self._graph.output_channels,  # the declared output, if it is not the whole state
        }
        async with aclosing(self._graph.astream(given, config, **options)) as stream:
            async for path, mode, piece in stream:
                if mode == "messages":
                    message, where = piece
                    # A model that a tool calls does not speak to the user.
                    if isinstance(message, messages.AIMessageChunk) and where.get("langgraph_node") != "tools":
                        bounds.say(message.text)
                elif mode == "updates" and "__interrupt__" in piece:
                    question = "; ".join(str(each.value) for each in piece["__interrupt__"])
                    bounds.unfinished(f"an answer to: {question}")
                elif mode == "values" and not path:
                    state = piece
        return state

    def _refuse_what_cannot_be_held(self, bounds: Bounds) -> None:
        free = [name for name in self._graph.nodes if name not in ("__start__", "model", "tools") and "." not in name]
        if free:
            bounds.refuse_restriction(f"its graph has nodes that may do anything ({', '.join(sorted(free))})")
        if not self._takes_offers:
            bounds.refuse_restriction("it was made without `middleware=[hub_tools()]`")

    # ── input and output ──────────────────────────────────────────────────────────────────────────────────────────────

    def _input(self, brief: Brief, prompt: ModelPrompt) -> object:
        """Return the initial state: messages if the graph has any, else the input, else the task."""
        if "messages" in self._graph.channels:
            messages = [{"role": each.role, "content": each.text} for each in prompt.messages]
            task = "\n\n".join(part for part in (prompt.instructions, prompt.task) if part)
            return {"messages": [*messages, {"role": "user", "content": task}]}
        given: object = brief.input
        return given if isinstance(given, dict) else self._only_field(brief, prompt.task)  # pyright: ignore[reportUnknownVariableType]

    def _only_field(self, brief: Brief, task: str) -> object:
        builder = getattr(self._graph, "builder", None)
        if builder is None:
            return task  # an `@entrypoint` accepts anything
        fields = list(builder.input_schema.__annotations__)
        if len(fields) == 1:
            return {fields[0]: task}
        why = f"the graph of {brief.request.target} begins with a state, and there is none in the input"
        names = f"Send an input with its fields: {', '.join(fields)}."
        raise RemitError(fault(Code.INPUT_VALIDATION_FAILED, why, suggestion=names))

    def _output(self, state: Any) -> object:
        if not _has_messages(state):
            return state
        structured = state.get("structured_response")
        return state["messages"][-1].text if structured is None else structured


def _has_messages(state: Any) -> bool:
    return isinstance(state, dict) and "messages" in state


class BoundsCallback(callbacks.BaseCallbackHandler):
    """Meters one run and records its tools, wherever in the graph they are called."""

    raise_error = True  # otherwise an exception is logged, and the run continues
    # Called in a thread, although that costs a little. An exception of an inline handler leaves coroutines that nobody
    # awaits, and one of an async handler is lost if a graph calls its model from a thread.
    run_inline = False

    def __init__(self, bounds: Bounds) -> None:
        self._bounds = bounds
        self._prompt_tokens: dict[UUID, int] = {}
        self._begun: dict[UUID, RunningTool] = {}

    def on_chat_model_start(self, serialized: Any, given: Any, *, run_id: UUID, **rest: Any) -> None:
        contents = [(each.text, getattr(each, "tool_calls", None)) for each in given[0]]
        offered = rest.get("invocation_params", {}).get("tools")
        self._start(run_id, tokens_of(contents, offered))

    def on_llm_start(self, serialized: Any, prompts: list[str], *, run_id: UUID, **rest: Any) -> None:
        self._start(run_id, tokens_of(*prompts))

    def _start(self, run_id: UUID, prompt_tokens: int) -> None:
        self._bounds.in_loop(lambda: self._bounds.next_call(prompt_tokens))
        self._prompt_tokens[run_id] = prompt_tokens

    def on_llm_end(self, response: Any, *, run_id: UUID, **rest: Any) -> None:
        prompt_tokens, generation = self._prompt_tokens.pop(run_id, 0), response.generations[0][0]
        usage = getattr(getattr(generation, "message", None), "usage_metadata", None)
        if usage:
            self._bounds.in_loop(lambda: self._bounds.spent(usage["input_tokens"], usage["output_tokens"]))
        else:
            called = getattr(getattr(generation, "message", None), "tool_calls", None)
            wrote = tokens_of(generation.text, called)
            self._bounds.in_loop(lambda: self._bounds.spent(prompt_tokens, wrote, estimated=True))

    def on_tool_start(self, serialized: Any, input_str: str, *, run_id: UUID, inputs: Any = None, **rest: Any) -> None:
        known: dict[str, Any] = serialized or {}
        name = str(known.get("name") or rest.get("name"))
        if name not in self._bounds.offers:
            arguments = input_str if inputs is None else inputs
            self._begun[run_id] = self._bounds.in_loop(lambda: self._bounds.begin(name, arguments))

    def on_tool_end(self, output: object, *, run_id: UUID, **rest: Any) -> None:
        self._end(run_id, None)

    def on_tool_error(self, error: BaseException, *, run_id: UUID, **rest: Any) -> None:
        self._end(run_id, error)

    def _end(self, run_id: UUID, error: BaseException | None) -> None:
        if (use := self._begun.pop(run_id, None)) is not None:
            self._bounds.in_loop(lambda: self._bounds.end(use, error))

    def record_rest(self) -> None:
        """Record the tools whose end was not reported."""
        for use in self._begun.values():
            self._bounds.end(use, "it did not end")


# ── tools for agents ──────────────────────────────────────────────────────────────────────────────────────────────────


def hub_tools() -> Any:
    """Return a middleware for `create_agent`: in a hub, its model is offered the tools of its brief, and no others.

    Outside a hub it changes nothing.
    """
    return _middleware()()


@cache
def _middleware() -> Any:
    base: Any = import_module("langchain.agents.middleware").AgentMiddleware  # not every graph uses LangChain

    class HubTools(base):
        """Limits each model call and each tool call to the bounds of its run."""

        tools = (tools.StructuredTool.from_function(_nothing, name=PLACE, description="Not offered to any model."),)

        def wrap_model_call(self, request: Any, handler: Callable[[Any], Any]) -> Any:
            return handler(_bounded(request))

        async def awrap_model_call(self, request: Any, handler: Callable[[Any], Awaitable[Any]]) -> Any:
            return await handler(_bounded(request))

        def wrap_tool_call(self, request: Any, handler: Callable[[Any], Any]) -> Any:
            return _refusal(request) or handler(_with_tool(request))

        async def awrap_tool_call(self, request: Any, handler: Callable[[Any], Awaitable[Any]]) -> Any:
            return _refusal(request) or await handler(_with_tool(request))

    return HubTools


def _bounded(request: Any) -> Any:
    own = [each for each in request.tools if _name(each) != PLACE]
    if (bounds := _running.get()) is None:
        return request.override(tools=own)
    allowed = [*bounds.allowed(own, _name), *(_tool(bounds, each) for each in bounds.offers.values())]
    prompt_tokens = tokens_of([each.text for each in request.messages], [_name(each) for each in allowed])
    most = capped(request.model_settings.get("max_tokens"), bounds.in_loop(lambda: bounds.room(prompt_tokens)))
    settings = request.model_settings if most is None else {**request.model_settings, "max_tokens": most}
    return request.override(tools=allowed, model_settings=settings)


def _with_tool(request: Any) -> Any:
    bounds, name = _running.get(), request.tool_call["name"]
    if bounds is None or name not in bounds.offers:
        return request
    return request.override(tool=_tool(bounds, bounds.offers[name]))


def _refusal(request: Any) -> Any:
    """Return the text for a model that calls a tool that it was not offered."""
    bounds, call = _running.get(), request.tool_call
    if bounds is None or bounds.allows(call["name"]):
        return None
    why = f"Error {Code.TOOL_NOT_ALLOWED}: {call['name']} may not be used here"
    return messages.ToolMessage(content=why, tool_call_id=call["id"], name=call["name"], status="error")


def _tool(bounds: Bounds, offer: ToolOffer) -> Any:
    async def call(**arguments: Json) -> str:
        return await bounds.use(offer.name, arguments)

    return tools.StructuredTool(
        name=offer.name, description=offer.description, args_schema=offer.schema, coroutine=call
    )


def _nothing() -> None:
    """Do nothing: this tool exists only so that there is a node for tools."""


def _name(tool: Any) -> str:
    """Return the name of a tool; a tool that the provider runs is described by the data that is sent to it."""
    return getattr(tool, "name", None) or tool.get("name") or tool["type"]


def _tools_of(graph: Any) -> list[str]:
    """Return the names of the tools in the nodes of a graph."""
    return [name for node in graph.nodes.values() for name in getattr(node.bound, "tools_by_name", ())]
