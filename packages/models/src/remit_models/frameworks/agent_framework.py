"""Agents of Microsoft's Agent Framework. Each run gets its own tools and middleware.

Imported only when a program adds such an agent. The framework is not a dependency, so its types are not known here.
"""

import math
import time
from collections.abc import Awaitable, Callable, Sequence
from copy import copy
from functools import partial
from importlib import import_module
from typing import Any, NoReturn

from remit.ports.brief import Brief
from remit.protocol.envelope import Answer, Json
from remit.protocol.errors import Code, RemitError, fault
from remit_models.frameworks.bounds import Bounds, RefusedToolError, capped, plain, tokens_of
from remit_models.prompting import ModelPrompt
from remit_models.toolbox import ToolOffer

af: Any = import_module("agent_framework")

# The limits after which a client makes its model answer without tools: model calls, tool calls, failures in a row, and
# time.
_ROUNDS, _CALLS = "max_iterations", "max_function_calls"
_ERRORS, _SECONDS = "max_consecutive_errors_per_request", "max_duration_seconds"
_LIMITS = (_ROUNDS, _CALLS, _ERRORS, _SECONDS)


def adapt(agent: Any) -> "FrameworkAgent":
    """Return a function that answers a brief with an agent of the Agent Framework."""
    return FrameworkAgent(agent)


class FrameworkAgent:
    """Runs an agent of the Agent Framework in a hub; the agent itself is not changed."""

    def __init__(self, agent: Any) -> None:
        self.description: str = agent.description or ""
        self._agent = agent

    async def __call__(self, brief: Brief) -> Answer:
        bounds = Bounds(brief)
        prompt = await bounds.prompt()
        if isinstance(self._agent, af.Agent):
            response = await self._run_agent(bounds, prompt)
        else:
            response = await self._run_custom_agent(bounds, prompt)
            if response.user_input_requests:
                _unfinished(bounds, response.user_input_requests)
        return bounds.answer(response.text if response.value is None else response.value)

    async def _run_agent(self, bounds: Bounds, prompt: ModelPrompt) -> Any:
        if bounds.restricted and not isinstance(self._agent.client, af.ChatMiddlewareLayer):
            bounds.refuse_restriction("its client has no layer for middleware, and offers its model what it wants")
        bounds.refuse_clash(_name(each) for each in self._agent.default_options.get("tools") or ())
        agent = copy(self._agent)
        agent.context_providers = list(agent.context_providers)  # a run with a session adds one
        model = ModelMiddleware(bounds, agent.client)
        options = {"instructions": prompt.instructions} if prompt.instructions else {}
        given = {
            "messages": _messages(prompt, prompt.task),
            "session": agent.create_session(),  # approvals hold only for what it has recorded
            "tools": [_tool(bounds, each) for each in bounds.offers.values()],
            "middleware": [model, Tools(bounds)],
            "options": options,
        }
        run = self._streamed
        while True:
            try:
                response = await bounds.ended(run(bounds, agent, given))
            except NotImplementedError:  # some clients cannot stream, above all those made for tests
                if model.answered:
                    raise
                run = self._whole
                continue
            if not model.answered:  # a client without middleware support
                self._settle(bounds, prompt, response)
                if _limit_reached(agent.client, response):
                    _stop_at_limit(bounds, sum(each.role == "assistant" for each in response.messages))
            if not response.user_input_requests:
                return response
            answers = [await _answer(bounds, each, response) for each in response.user_input_requests]
            given["messages"] = [af.Message(role="user", contents=answers)]

    async def _run_custom_agent(self, bounds: Bounds, prompt: ModelPrompt) -> Any:
        """Run an agent with custom code: it gets the whole conversation, and no tools."""
        if bounds.restricted:
            bounds.refuse_restriction("it is an agent of its own kind, whose code may use anything")
        task = "\n\n".join(part for part in (prompt.instructions, prompt.task) if part)
        response = await bounds.ended(self._agent.run(_messages(prompt, task)))
        self._settle(bounds, prompt, response)
        return response

    async def _streamed(self, bounds: Bounds, agent: Any, given: dict[str, Any]) -> Any:
        stream = agent.run(stream=True, **given)
        async for update in stream:
            bounds.say(update.text)
        return await stream.get_final_response()

    async def _whole(self, bounds: Bounds, agent: Any, given: dict[str, Any]) -> Any:
        return await agent.run(**given)

    def _settle(self, bounds: Bounds, prompt: ModelPrompt, response: Any) -> None:
        prompt_tokens = tokens_of(prompt.instructions, *(each.text for each in prompt.messages), prompt.task)
        _spend(bounds, response, prompt_tokens)


class ModelMiddleware(af.ChatMiddleware):
    """Middleware around every model call."""

    def __init__(self, bounds: Bounds, client: Any) -> None:
        self.answered = False
        self._bounds = bounds
        self._limits: dict[str, Any] = getattr(client, "function_invocation_configuration", None) or {}
        # As the framework counts them; a call arrives in several pieces.
        self._counted = {_ROUNDS: 0, _ERRORS: 0}
        self._calls: set[object] = set()
        self._allowed = 0
        self._started_s = time.monotonic()

    async def process(self, context: Any, call_next: Callable[[], Awaitable[None]]) -> None:
        bounds, options = self._bounds, dict(context.options or {})
        at_limit = self._at_limit(options, context.messages)
        offered = bounds.allowed(options.pop("tools", None) or (), _name)
        schemas = [_schema(each) for each in offered]
        prompt_tokens = tokens_of(options.get("instructions"), *_contents(context.messages), *schemas)
        await bounds.extend(prompt_tokens)
        most = capped(options.get("max_tokens"), bounds.next_call(prompt_tokens))
        # Left out if empty: a provider may reject an empty one.
        context.options = options | ({"tools": offered} if offered else {}) | ({"max_tokens": most} if most else {})
        await call_next()
        if context.stream:
            # When streaming, the framework removes the calls that it does not execute.
            context.result.with_transform_hook(self._note_tool_calls)
            context.result.with_result_hook(partial(self._answered, prompt_tokens, at_limit))
        else:
            for message in context.result.messages:
                self._note_tool_calls(message)
            self._answered(prompt_tokens, at_limit, context.result)

    def _at_limit(self, options: dict[str, Any], messages: Sequence[Any]) -> bool:
        """Return whether the framework forbids its model more tools because of a limit, and allow them again.

        Otherwise it would return as an answer whatever the model says next. If tools stay allowed, a model that has
        finished says so itself.
        """
        failed = bool(messages) and any(getattr(part, "exception", None) for part in messages[-1].contents)
        self._counted[_ERRORS] = self._counted[_ERRORS] + 1 if failed else 0
        counted = self._counted | {_CALLS: len(self._calls), _SECONDS: time.monotonic() - self._started_s}
        reached = any(self._limits.get(name) is not None and counted[name] >= self._limits[name] for name in _LIMITS)
        self._counted[_ROUNDS] += 1
        if not reached or options.get("tool_choice") != "none":
            return False
        del options["tool_choice"]
        return True

    def _note_tool_calls(self, content: Any) -> Any:
        """Record the tools that a model calls in an answer, or in a piece of one, and return it unchanged."""
        self._calls |= {part.call_id or id(part) for part in content.contents if part.type == "function_call"}
        return content

    def _answered(self, prompt_tokens: int, at_limit: bool, response: Any) -> Any:
        self.answered = True
        _spend(self._bounds, response, prompt_tokens)
        if at_limit and len(self._calls) > self._allowed:
            _stop_at_limit(self._bounds, self._counted[_ROUNDS])
        self._allowed = len(self._calls)
        return response


def _stop_at_limit(bounds: Bounds, rounds: int) -> NoReturn:
    why = f"{bounds.brief.request.target} asked its model {rounds} times and did not come to an end"
    named = ", ".join(f"`{each}`" for each in _LIMITS)
    more = f"Raise a limit in its client's `function_invocation_configuration` ({named})."
    bounds.stop(fault(Code.DELEGATION_FAILED, why, suggestion=more))


class Tools(af.FunctionMiddleware):
    """Middleware around every tool call."""

    def __init__(self, bounds: Bounds) -> None:
        self._bounds = bounds

    async def process(self, context: Any, call_next: Callable[[], Awaitable[None]]) -> None:
        bounds, name = self._bounds, context.function.name
        try:
            bounds.raise_if_stopped()
            if not bounds.allows(name):
                # The framework can run a tool even if the model was not offered it.
                context.result = f"Error {Code.TOOL_NOT_ALLOWED}: {name} may not be used here"
            elif name in bounds.offers:
                # The framework's own check does not tell the model what was wrong.
                context.result = await bounds.use(name, dict(context.arguments))
            else:
                context.result = await self._use(context, call_next)
        except RefusedToolError as error:
            context.result = str(error)
        except RemitError as error:
            if bounds.stopped_by is None:
                raise
            raise af.MiddlewareFailure(str(error)) from error  # the model is told of all others

    async def _use(self, context: Any, call_next: Callable[[], Awaitable[None]]) -> Any:
        """Return the result of one of the agent's own tools, if its use is permitted."""
        function, judged = context.function, plain(dict(context.arguments))

        async def run(permitted: dict[str, Any]) -> Any:
            if permitted == judged:
                await call_next()
                return context.result
            # Not by `call_next`: the framework asks again about approved arguments that a middleware changed.
            changed = af.FunctionInvocationContext(
                function=function,
                arguments=permitted,
                session=context.session,
                kwargs=context.kwargs,
                tools=context.tools,
            )
            return await function.invoke(
                arguments=permitted, context=changed, tool_call_id=context.metadata.get("call_id")
            )

        wanted = function.approval_mode == "always_require"
        question = self._bounds.question_about(function.name) if wanted else ""
        return await self._bounds.use_own(function.name, judged, run, question=question)


async def _answer(bounds: Bounds, request: Any, response: Any) -> Any:
    """Return the answer to a call that waits for approval.

    What the agent itself runs is let through: a person is asked when it is about to be used.
    """
    if request.type != "function_approval_request":
        _unfinished(bounds, response.user_input_requests)
    call = request.function_call
    if not getattr(call, "hosted", False):
        return request.to_function_approval_response(approved=True)
    question = bounds.question_about(call.name, call.parse_arguments())
    return request.to_function_approval_response(approved=await bounds.brief.confirm(question))


def _unfinished(bounds: Bounds, requests: Sequence[Any]) -> NoReturn:
    names = [getattr(each.function_call or each, "name", None) or "?" for each in requests]
    bounds.unfinished(f"an answer about its tool calls ({', '.join(names)})")


def _limit_reached(client: Any, response: Any) -> bool:
    """Return whether a run used tools as often as its client allows.

    Such a client asks for a last answer without tools.
    """
    limits: dict[str, Any] = getattr(client, "function_invocation_configuration", None) or {}
    results = [[part for part in each.contents if part.type == "function_result"] for each in response.messages]
    rounds, calls = sum(1 for each in results if each), sum(map(len, results))
    return rounds >= (limits.get(_ROUNDS) or math.inf) or calls >= (limits.get(_CALLS) or math.inf)


def _spend(bounds: Bounds, response: Any, prompt_tokens: int) -> None:
    usage: dict[str, Any] = response.usage_details or {}
    prompt, completion = usage.get("input_token_count") or 0, usage.get("output_token_count") or 0
    if prompt or completion:
        bounds.spent(
            prompt,
            completion,
            cache_write=usage.get("cache_creation_input_token_count") or 0,
            cache_read=usage.get("cache_read_input_token_count") or 0,
            model=str(getattr(response, "model", None) or ""),
        )
    else:
        bounds.spent(prompt_tokens, tokens_of(*_contents(response.messages)), estimated=True)


def _contents(messages: Sequence[Any]) -> list[Any]:
    """Return what a model reads or writes in messages, without the form in which the framework keeps it."""
    fields = [part.to_dict().items() for each in messages for part in each.contents]
    return [value for each in fields for name, value in each if name not in _FORM]


_FORM = frozenset({"type", "call_id", "hosted", "items", "additional_properties"})


def _messages(prompt: ModelPrompt, task: str) -> list[Any]:
    messages = [af.Message(role=each.role, contents=[each.text]) for each in prompt.messages]
    return [*messages, af.Message(role="user", contents=[task])]


def _tool(bounds: Bounds, offer: ToolOffer) -> Any:
    async def call(**arguments: Json) -> str:
        return await bounds.use(offer.name, arguments)

    return af.FunctionTool(name=offer.name, description=offer.description, func=call, input_model=offer.schema)


def _name(tool: Any) -> str:
    """Return the name of a tool; a tool that the provider runs is described by the data that is sent to it."""
    return getattr(tool, "name", None) or tool.get("name") or tool["type"]


def _schema(tool: Any) -> object:
    return tool.to_json_schema_spec() if isinstance(tool, af.FunctionTool) else tool
