"""Graphs of LangGraph, including agents of LangChain.

A compiled graph accepts no tools from outside. So an agent made with `create_agent` declares that a hub may offer it
some (`middleware=[hub_tools()]`), and the nodes of other graphs find the brief in their configuration:
`config["configurable"]["brief"]`.

Imported only when a program adds such a graph. LangGraph is not a dependency, so its types are not known here.
"""

import json
import logging
from collections.abc import Awaitable, Callable
from contextlib import aclosing, suppress
from contextvars import ContextVar
from functools import cache, partial
from importlib import import_module
from typing import Any, cast
from uuid import UUID

from remit.ports.brief import Brief
from remit.protocol.card import Schema
from remit.protocol.codec import text_of
from remit.protocol.envelope import Answer, Json, Usage
from remit.protocol.errors import Code, RemitError, fault
from remit_models.frameworks.bounds import (
    MAX_MODEL_CALLS,
    Bounds,
    OwnToolInProgress,
    RefusedToolError,
    capped,
    plain,
    tokens_of,
)
from remit_models.prompting import ModelPrompt
from remit_models.reserve import LimitReached
from remit_models.toolbox import ToolOffer

callbacks: Any = import_module("langchain_core.callbacks")
messages: Any = import_module("langchain_core.messages")
tools: Any = import_module("langchain_core.tools")
langsmith: Any = import_module("langsmith")
graph_errors: Any = import_module("langgraph.errors")
graph_types: Any = import_module("langgraph.types")
tool_node: Any = import_module("langgraph.prebuilt.tool_node")

# A model call and its tools are two steps; the others are for nodes of other kinds.
MAX_STEPS = 5 * MAX_MODEL_CALLS
# A placeholder among an agent's tools for the offered ones: without any tool there would be no node to run them.
PLACE = "remit_tools"

# LangChain warns of every exception in a handler; ours are how a run is stopped, and are reported as its fault.
logging.getLogger("langchain_core.callbacks.manager").addFilter(
    lambda record: (
        not any(f"{name}(" in record.getMessage() for name in ("RemitError", "LimitReached", "RefusedCallError"))
    )
)

# What a person fills in for an interrupt that says nothing about the form of its answer.
_ANSWER: Schema = {"type": "object", "properties": {"answer": {"type": "string", "title": "Answer, if more than yes"}}}

_running: ContextVar["BoundsCallback | None"] = ContextVar("_running", default=None)
# The tool that the middleware is about to call, which the callback then need not judge.
_judged: ContextVar[list[str] | None] = ContextVar("_judged", default=None)


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
        bounds = Bounds(brief, concludes=self._takes_offers)
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
        token = _running.set(within)
        try:
            with langsmith.tracing_context(enabled=False):  # it would be sent to LangSmith
                state = await bounds.ended(self._run(within, self._input(brief, prompt), config))
        except RefusedCallError as error:
            raise RemitError(error.fault) from None
        except LimitReached as why:
            if bounds.model is None:  # only the middleware sees the model of a graph
                raise
            return await bounds.conclude(why, partial(_last_call, bounds.model))
        finally:
            _running.reset(token)
        return bounds.answer(self._output(state))

    async def _run(self, within: "BoundsCallback", given: object, config: dict[str, Any]) -> Any:
        """Return the last state of the graph, which goes on after each interrupt with the answer of a person."""
        while True:
            state, interrupts = await self._stream(within.bounds, given, config)
            if interrupts is None:
                return state
            if not self._graph.checkpointer:
                question = "; ".join(str(each.value) for each in interrupts)
                within.bounds.unfinished(f"an answer to: {question}. Compile its graph with a checkpointer")
            if interrupts:
                given = graph_types.Command(resume={each.id: await within.answer(each) for each in interrupts})
            else:  # it was compiled to stop here
                await within.go_on()
                given = None

    async def _stream(self, bounds: Bounds, given: object, config: dict[str, Any]) -> tuple[Any, list[Any] | None]:
        """Return the last state, and the interrupts that the graph waits for; None if it has ended."""
        state: Any = None
        interrupts: dict[str, Any] | None = None
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
                    interrupts = {**(interrupts or {}), **{each.id: each for each in piece["__interrupt__"]}}
                elif mode == "values" and not path:
                    state = piece
        return state, None if interrupts is None else list(interrupts.values())

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


def _parse_answer(answer: str) -> object:
    """Return what a person wrote for an interrupt: an object or a list if it is JSON, else the text."""
    if answer.startswith(("{", "[")):
        with suppress(ValueError):
            return json.loads(answer)
    return answer


def _has_messages(state: Any) -> bool:
    return isinstance(state, dict) and "messages" in state


class BoundsCallback(callbacks.BaseCallbackHandler):
    """Meters one run and records its tools, wherever in the graph they are called."""

    raise_error = True  # otherwise an exception is logged, and the run continues
    # Called in a thread, although that costs a little. An exception of an inline handler leaves coroutines that nobody
    # awaits, and one of an async handler is lost if a graph calls its model from a thread.
    run_inline = False

    def __init__(self, bounds: Bounds) -> None:
        self.bounds = bounds
        self._prompt_tokens: dict[UUID, int] = {}
        self._models: dict[UUID, str] = {}
        self._uses: dict[UUID, OwnToolInProgress] = {}
        self._permitted: list[tuple[Json, OwnToolInProgress]] = []
        """The uses that are permitted, and not begun so far, each with the arguments that it is called with."""

    def on_chat_model_start(self, serialized: Any, given: Any, *, run_id: UUID, **rest: Any) -> None:
        contents = [(each.text, getattr(each, "tool_calls", None)) for each in given[0]]
        offered = rest.get("invocation_params", {}).get("tools")
        about: dict[str, Any] = rest.get("metadata") or {}
        provider, model = (about.get(each) or "" for each in ("ls_provider", "ls_model_name"))
        self._start(run_id, tokens_of(contents, offered), f"{provider}:{model}" if provider and model else model)

    def on_llm_start(self, serialized: Any, prompts: list[str], *, run_id: UUID, **rest: Any) -> None:
        self._start(run_id, tokens_of(*prompts))

    def _start(self, run_id: UUID, prompt_tokens: int, model: str = "") -> None:
        self.bounds.extend_in_thread(prompt_tokens, model)
        self.bounds.in_loop(lambda: self.bounds.next_call(prompt_tokens, model))
        self._models[run_id] = model
        self._prompt_tokens[run_id] = prompt_tokens

    def on_llm_end(self, response: Any, *, run_id: UUID, **rest: Any) -> None:
        prompt_tokens, generation = self._prompt_tokens.pop(run_id, 0), response.generations[0][0]
        usage = _usage(getattr(generation, "message", None))
        model = self._models.pop(run_id, "")
        if usage is not None:
            self.bounds.in_loop(
                lambda: self.bounds.spent(
                    usage.prompt,
                    usage.completion,
                    cache_write=usage.cache_write,
                    cache_read=usage.cache_read,
                    model=model,
                )
            )
        else:
            called = getattr(getattr(generation, "message", None), "tool_calls", None)
            wrote = tokens_of(generation.text, called)
            self.bounds.in_loop(lambda: self.bounds.spent(prompt_tokens, wrote, estimated=True, model=model))

    # ── tools ─────────────────────────────────────────────────────────────────────────────────────────────────────────

    def on_tool_start(self, serialized: Any, input_str: str, *, run_id: UUID, inputs: Any = None, **rest: Any) -> None:
        known: dict[str, Any] = serialized or {}
        name = str(known.get("name") or rest.get("name"))
        if name in self.bounds.offers or name == PLACE:
            return
        judged = _judged.get()
        if judged is not None and judged == [name]:
            judged.clear()
            return
        arguments: Any = plain(inputs)
        if not isinstance(arguments, dict):
            arguments = {"input": arguments or input_str}
        if self.bounds.is_in_loop:
            raise RefusedCallError(
                name, "a tool cannot be judged if `invoke` calls it in the event loop: use `ainvoke`"
            )
        try:
            use = self.bounds.wait(self._permit(name, arguments))
        except RefusedToolError as error:
            raise RefusedCallError(name, str(error), error.__cause__) from error
        self._uses[run_id] = use
        if use.arguments != arguments:
            why = "its arguments were changed, which only an agent with the middleware `hub_tools()` can do"
            self._end(run_id, why)
            raise RefusedCallError(name, why)

    def on_tool_end(self, output: object, *, run_id: UUID, **rest: Any) -> None:
        content = getattr(output, "content", None)
        shown = self._end(run_id, None, output)
        # What a node for tools returns to the graph is this message itself, and nothing else.
        if content is not None and shown is not None and shown is not content:
            cast("Any", output).content = text_of(shown)

    def on_tool_error(self, error: BaseException, *, run_id: UUID, **rest: Any) -> None:
        if isinstance(error, graph_errors.GraphInterrupt) and run_id in self._uses:
            use = self._uses.pop(run_id)
            self._permitted.append((use.arguments, use))  # it is called again after the answer
        self._end(run_id, error)

    def _end(self, run_id: UUID, error: BaseException | str | None, output: object = None) -> Any:
        """Record that a tool ended; return its result as a model may read it, None if the tool was not judged here."""
        use = self._uses.pop(run_id, None)
        return None if use is None else self.bounds.wait(use.end(error, getattr(output, "content", output)))

    async def _permit(self, tool: str, arguments: Json) -> OwnToolInProgress:
        for called_with, use in self._permitted:
            if (use.tool, called_with) == (tool, arguments):
                self._permitted.remove((called_with, use))
                return use
        return await OwnToolInProgress(self.bounds, tool, arguments).permitted()

    async def use(self, request: Any, handler: Callable[[Any], Awaitable[Any]]) -> Any:
        """Have a middleware's request run one of the agent's own tools, with the arguments that are permitted."""
        call = request.tool_call
        arguments: Any = plain(call["args"])
        try:
            use = await self._permit(call["name"], arguments)
        except RefusedToolError as error:
            return _refused(call, str(error))
        if use.arguments != arguments:
            request = request.override(tool_call={**call, "args": use.arguments})
        token = _judged.set([call["name"]])
        try:
            result = await handler(request)
        except graph_errors.GraphInterrupt:
            self._permitted.append((arguments, use))
            raise
        except BaseException as error:
            await use.end(error)
            raise
        finally:
            _judged.reset(token)
        error = result.text if getattr(result, "status", None) == "error" else None
        content = getattr(result, "content", result)
        shown = await use.end(error, content)
        if shown is content or not hasattr(result, "model_copy"):
            return result
        return result.model_copy(update={"content": text_of(shown)})

    # ── interrupts ────────────────────────────────────────────────────────────────────────────────────────────────────

    async def answer(self, interrupt: Any) -> object:
        """Return what a person answers to an interrupt."""
        value, schema = plain(interrupt.value), interrupt.response_schema
        fields = cast("dict[str, Any]", value) if isinstance(value, dict) else {}
        if "action_requests" in fields:  # of LangChain's middleware, as the one below
            allowed = {each["action_name"]: each["allowed_decisions"] for each in fields["review_configs"]}
            actions = fields["action_requests"]
            return {"decisions": [await self._decision(each, allowed[each["name"]]) for each in actions]}
        if fields.get("type") == "tool_approval":
            decisions = [each for each in ("approve", "edit", "reject") if f'"{each}"' in text_of(schema)]
            return await self._decision(fields, decisions)
        question = value if isinstance(value, str) else text_of(value)
        if not isinstance(schema, dict):
            filled = await self.bounds.brief.fill(question, _ANSWER)
            return False if filled is None else _parse_answer(str(filled.get("answer") or "")) or True
        wanted = cast("Schema", schema)
        is_object = wanted.get("type") == "object"
        form = wanted if is_object else {"type": "object", "properties": {"answer": wanted}, "required": ["answer"]}
        filled = await self.bounds.brief.fill(question, form)
        if filled is None:
            self.bounds.stop(fault(Code.APPROVAL_DECLINED, f"nobody answered: {question}"))
        return filled if is_object else filled["answer"]

    async def _decision(self, action: dict[str, Any], allowed: list[str]) -> dict[str, Any]:
        """Return the decision about a call that a middleware wants approved; then it is permitted."""
        name, arguments, words = action["name"], action["args"], action.get("description", "")
        question = self.bounds.question_about(name) if not words or f"Tool: {name}\nArgs: " in words else words
        try:
            use = await OwnToolInProgress(self.bounds, name, arguments, question).permitted()
        except RefusedToolError as error:
            if "reject" not in allowed:
                raise RefusedCallError(name, str(error), error.__cause__) from error
            return {"type": "reject", "message": str(error)}
        if "approve" in allowed and (use.arguments == arguments or "edit" not in allowed):
            self._permitted.append((arguments, use))
            return {"type": "approve"}
        self._permitted.append((use.arguments, use))
        return {"type": "edit", "edited_action": {"name": name, "args": use.arguments}}

    async def go_on(self) -> None:
        """Ask a person whether a graph goes on where it was compiled to stop."""
        question = f"May {self.bounds.brief.request.target} go on?"
        if not await self.bounds.brief.confirm(question):
            self.bounds.stop(fault(Code.APPROVAL_DECLINED, f"declined: {question}"))


class RefusedCallError(tool_node.ToolInvocationError):
    """A tool that a graph calls may not be used: nodes for tools tell the model so."""

    def __init__(self, tool: str, message: str, cause: BaseException | None = None) -> None:
        Exception.__init__(self, message)
        self.message = message
        self.tool_name = tool
        self.fault = cause.fault if isinstance(cause, RemitError) else fault(Code.PERMISSION_DENIED, message)


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
            if (within := _running.get()) is not None:
                # Which model it is, is known when it starts.
                await within.bounds.extend(tokens_of([each.text for each in request.messages]), model=None)
            return await handler(_bounded(request))

        def wrap_tool_call(self, request: Any, handler: Callable[[Any], Any]) -> Any:
            return _refusal(request) or handler(_with_tool(request))

        async def awrap_tool_call(self, request: Any, handler: Callable[[Any], Awaitable[Any]]) -> Any:
            within = _running.get()
            if within is None or request.tool is None or request.tool_call["name"] in within.bounds.offers:
                return await handler(_with_tool(request))
            return _refusal(request) or await within.use(request, handler)

    return HubTools


def _bounded(request: Any) -> Any:
    own = [each for each in request.tools if _name(each) != PLACE]
    if (within := _running.get()) is None:
        return request.override(tools=own)
    bounds = within.bounds
    if bounds.model is None:
        bounds.model = request.model
        bounds.instructed(request.system_prompt or "")
    allowed = [*bounds.allowed(own, _name), *(_tool(bounds, each) for each in bounds.offers.values())]
    prompt_tokens = tokens_of([each.text for each in request.messages], [_name(each) for each in allowed])
    most = capped(request.model_settings.get("max_tokens"), bounds.in_loop(lambda: bounds.tokens_room(prompt_tokens)))
    settings = request.model_settings if most is None else {**request.model_settings, "max_tokens": most}
    return request.override(tools=allowed, model_settings=settings)


async def _last_call(model: Any, prompt: ModelPrompt, most: int) -> tuple[str, Usage]:
    """Call the model of a graph once more, without tools."""
    system = [messages.SystemMessage(content=prompt.instructions)] if prompt.instructions else []
    given = [*system, messages.HumanMessage(content=prompt.task)]
    answer = await model.bind(max_tokens=most).ainvoke(given)
    return answer.text, _usage(answer) or Usage()


def _usage(message: Any) -> Usage | None:
    """Return the usage of a model's message; None if the provider does not report it."""
    reported = getattr(message, "usage_metadata", None)
    if not reported:
        return None
    parts: dict[str, int] = reported.get("input_token_details") or {}
    return Usage(
        prompt=reported["input_tokens"],
        completion=reported["output_tokens"],
        cache_write=parts.get("cache_creation") or 0,
        cache_read=parts.get("cache_read") or 0,
    )


def _with_tool(request: Any) -> Any:
    within, name = _running.get(), request.tool_call["name"]
    if within is None or name not in within.bounds.offers:
        return request
    return request.override(tool=_tool(within.bounds, within.bounds.offers[name]))


def _refusal(request: Any) -> Any:
    """Return the text for a model that calls a tool that it was not offered."""
    within, call = _running.get(), request.tool_call
    if within is None or within.bounds.allows(call["name"]):
        return None
    return _refused(call, f"Error {Code.TOOL_NOT_ALLOWED}: {call['name']} may not be used here")


def _refused(call: Any, why: str) -> Any:
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
