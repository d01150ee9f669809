"""Plain Python functions as agents and as tools, and adapters for agents of other frameworks.

No framework is imported to find out whether an object belongs to it.
"""

import inspect
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import aclosing
from typing import Any, Concatenate, cast, get_type_hints

from msgspec.structs import replace

from remit.agents.threads import Threads
from remit.agents.typed import is_stream, read_arguments, signature_of
from remit.installed import brought
from remit.policy.weight import is_light, is_light_value
from remit.ports import Agent, AgentFunction, Tool
from remit.ports.brief import Brief
from remit.protocol.card import Rate, Sees, ToolCard
from remit.protocol.codec import plain
from remit.protocol.envelope import Answer, Call, Json
from remit.protocol.errors import Code, RemitError, fault
from remit.protocol.problems import did_you_mean
from remit.protocol.typed import Member, TypeMismatch, object_schema
from remit.runtime.aside import aside
from remit.runtime.registry import team_invalid

_PLAIN = (str, int, float, bool, type(None))


def agent_from(function: AgentFunction, threads: Threads) -> Agent:
    """Make an agent of a function; one that is not async runs in a thread, so that it cannot block the event loop."""
    answer = _answering(function, threads)
    signature = signature_of(function)
    if signature is None:
        return answer
    declared = signature

    async def answer_as_declared(brief: Brief) -> Answer:
        light = is_light(brief.request.input)
        given = declared.arguments(brief) if light else await aside.run(declared.arguments, brief)
        made, name = await answer(brief, **given), brief.request.target
        if is_light_value(made.result):
            return declared.checked(made, name)
        return await aside.run(declared.checked, made, name)

    return answer_as_declared


def _answering(function: AgentFunction, threads: Threads) -> Callable[Concatenate[Brief, ...], Awaitable[Answer]]:
    if is_stream(function):
        return _streaming(function, threads)
    if is_async(function):

        async def answer(brief: Brief, **given: Any) -> Answer:
            # Most functions declare no parameters, and passing none on costs more than asking.
            made = function(brief, **given) if given else function(brief)
            return to_answer(await made)  # pyright: ignore[reportGeneralTypeIssues, reportUnknownArgumentType]

        return answer

    async def answer_from_thread(brief: Brief, **given: Any) -> Answer:
        return to_answer(await threads.run(lambda brief: function(brief, **given), brief))

    return answer_from_thread


# ── streams ───────────────────────────────────────────────────────────────────────────────────────────────────────────


class _StreamedAnswer:
    """What a generator function yields: texts, which are streamed, and then perhaps a result."""

    def __init__(self, brief: Brief) -> None:
        self._brief = brief
        self._texts: list[str] = []
        self._result: object = None

    def take(self, piece: object) -> None:
        if piece is None:
            return
        if self._result is not None:
            why = (
                f"{self._brief.request.target} yielded something after its result: "
                "yield texts first, and one value that is not a text last"
            )
            raise RemitError(fault(Code.RESULT_VALIDATION_FAILED, why))
        if isinstance(piece, str):
            self._texts.append(piece)
            self._brief.say(piece)
        else:
            self._result = piece

    def answer(self) -> Answer:
        """Return the result that was yielded, else all texts as one; an answer without a result gets the texts."""
        text = "".join(self._texts)
        answer = to_answer(text if self._result is None else self._result)
        return replace(answer, result=text) if answer.result is None and not answer.calls else answer


def _streaming(function: AgentFunction, threads: Threads) -> Callable[Concatenate[Brief, ...], Awaitable[Answer]]:
    if not (inspect.isgeneratorfunction(function) or inspect.isgeneratorfunction(type(function).__call__)):

        async def answer(brief: Brief, **given: Any) -> Answer:
            stream = _StreamedAnswer(brief)
            async with aclosing(cast("AsyncGenerator[object, None]", function(brief, **given))) as pieces:
                async for piece in pieces:
                    stream.take(piece)
            return stream.answer()

        return answer

    def run(brief: Brief, given: dict[str, Any]) -> Answer:
        stream = _StreamedAnswer(brief)
        pieces = cast("Generator[object, None, object]", function(brief, **given))
        try:
            while True:
                stream.take(next(pieces))
        except StopIteration as end:
            stream.take(end.value)
        finally:
            pieces.close()
        return stream.answer()

    async def answer_from_thread(brief: Brief, **given: Any) -> Answer:
        return await threads.run(lambda brief: run(brief, given), brief)

    return answer_from_thread


def closing(function: AgentFunction, threads: Threads) -> Callable[[], Awaitable[None]]:
    """Return the function that closes an agent: its threads, and its own resources if it has an `aclose`."""
    aclose: Callable[[], Awaitable[None]] | None = getattr(function, "aclose", None)

    async def close() -> None:
        await threads.close()
        if aclose is not None:
            await aclose()

    return close


def to_answer(value: object) -> Answer:
    """Return the return value of a function as an answer."""
    if isinstance(value, str):
        # Frameworks have their own string types, which no store accepts.
        return Answer(value if type(value) is str else str(value))
    match value:
        case Answer():
            return value
        case Call():
            return Answer(calls=(value,))
        case list() | tuple() if value and all(isinstance(each, Call) for each in cast("list[object]", value)):
            return Answer(calls=tuple(cast("list[Call]", value)))
        case _:
            return Answer(value)


def tool_from(
    function: Callable[..., object],
    name: str | None,
    threads: Threads,
    *,
    description: str | None,
    safe_to_repeat: bool,
    sees: Sees = frozenset(),
    clear: bool = False,
    rate: Rate | None = None,
) -> Tool:
    """Make a tool of a function: its parameters are the schema, but `user` comes from the remit, not from an agent."""
    name = name or function.__name__
    parameters, wants_user = _parameters_of(function, name)
    try:
        schema = object_schema(name, parameters)
    except TypeError as error:
        raise team_invalid(f"tool `{name}`: its parameters cannot be described as JSON: {error}") from error
    if isinstance(sees, dict) and (missing := sorted(sees.keys() - schema.get("properties", {}).keys())):
        near = did_you_mean(missing[0], schema.get("properties", {}))
        raise team_invalid(f"tool `{name}`: sees names `{missing[0]}`, which is not one of its parameters{near}")
    card = ToolCard(
        name=name,
        description=inspect.cleandoc(function.__doc__ or "") if description is None else description,
        input_schema=schema,
        safe_to_repeat=safe_to_repeat,
        sees=sees,
        clear=clear,
        rate=rate,
    )

    awaited = is_async(function)

    async def run(given: dict[str, Json], user: str) -> Json:
        try:
            light = is_light(given)
            values = read_arguments(parameters, given) if light else await aside.run(read_arguments, parameters, given)
        except TypeMismatch as error:
            why = f"the arguments do not fit tool {name}"
            raise error.error(Code.INPUT_VALIDATION_FAILED, why) from error
        if wants_user:
            values["user"] = user
        if awaited:
            result = cast("object", await function(**values))  # pyright: ignore[reportGeneralTypeIssues]
        else:
            result = await threads.run(lambda _: function(**values), None)
        return _returned(result, name) if is_light_value(result) else await aside.run(_returned, result, name)

    return Tool(card, run)


def is_async(function: Callable[..., object]) -> bool:
    """Return whether calling *function* returns an awaitable: it, or its `__call__`, is a coroutine function."""
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__)


def _returned(result: object, tool: str) -> Json:
    if isinstance(result, _PLAIN) and not isinstance(result, float):
        return result
    try:
        return plain(result)
    except RemitError as error:
        wrong = error.fault
        why = f"tool {tool} returned something that cannot be used: {wrong.message}"
        raise RemitError(fault(Code.RESULT_VALIDATION_FAILED, why, problems=wrong.problems)) from error


def _parameters_of(function: Callable[..., object], name: str) -> tuple[dict[str, Member], bool]:
    hints = get_type_hints(function, include_extras=True)
    members: dict[str, Member] = {}
    parameters = dict(inspect.signature(function).parameters)
    wants_user = parameters.pop("user", None) is not None
    for parameter in parameters.values():
        if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            raise team_invalid(f"tool `{name}`: parameter `{parameter}` must be one that can be given by name")
        required = parameter.default is parameter.empty
        default = None if required else parameter.default
        members[parameter.name] = Member(hints.get(parameter.name, Any), required, default)
    return members, wants_user


def function_of(thing: object) -> AgentFunction:
    """Return the function that answers a brief: *thing* itself, or what a plugin makes of it."""
    if not inspect.isroutine(thing):
        for adapt in brought("agent"):
            if (function := adapt(thing)) is not None:
                return cast("AgentFunction", function)
    if inspect.isclass(thing) or not callable(thing):
        named = f"the class `{thing.__qualname__}`" if inspect.isclass(thing) else f"a `{type(thing).__qualname__}`"
        raise team_invalid(
            f"{named} cannot be an agent: give a function that takes a brief, a `ModelAgent`, "
            "or an agent of a framework that Remit knows (see `remit docs frameworks`)"
        )
    return thing


def described(thing: object, function: AgentFunction) -> str:
    """Return an agent's description: its adapter's, or the docstring of its function."""
    description = getattr(function, "description", None)
    if isinstance(description, str):
        return description
    return inspect.cleandoc(thing.__doc__ or "") if inspect.isroutine(thing) else ""
