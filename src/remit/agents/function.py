"""Plain Python functions as agents and as tools."""

import inspect
from collections.abc import Awaitable, Callable
from typing import Any, cast, get_type_hints

import msgspec

from remit.agents.threads import Threads
from remit.protocol.card import Sees, ToolCard
from remit.protocol.codec import did_you_mean
from remit.protocol.envelope import Answer, Call, Json
from remit.protocol.errors import Code, Problem, RemitError, fault
from remit.runtime.brief import Brief
from remit.runtime.ports import Agent, Tool
from remit.runtime.registry import team_invalid

AgentFunction = Callable[[Brief], object]
"""Takes a brief and returns a result, an `Answer`, or the call or calls that should be made instead; async or not."""


def agent_from(function: AgentFunction, threads: Threads) -> Agent:
    """Make an agent of a function; one that is not async runs in a thread, so that it cannot block the others."""
    if is_async(function):

        async def answer(brief: Brief) -> Answer:
            return to_answer(await function(brief))  # pyright: ignore[reportGeneralTypeIssues, reportUnknownArgumentType]

        return answer

    async def answer_from_thread(brief: Brief) -> Answer:
        return to_answer(await threads.run(function, brief))

    return answer_from_thread


def closing(function: AgentFunction, threads: Threads) -> Callable[[], Awaitable[None]]:
    """Return what lets go of an agent: of its threads, and of what it keeps open itself, if it has an `aclose`."""
    aclose: Callable[[], Awaitable[None]] | None = getattr(function, "aclose", None)

    async def close() -> None:
        await threads.close()
        if aclose is not None:
            await aclose()

    return close


def to_answer(value: object) -> Answer:
    """Return what a function gave back as an answer."""
    if isinstance(value, str):
        # Frameworks have texts of their own kind, which no store takes.
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
) -> Tool:
    """Make a tool of a function: its parameters are the schema, but `user` comes from the remit, not from an agent."""
    name = name or function.__name__
    arguments, wants_user = _arguments_of(function, name)
    try:
        schema = _inlined(msgspec.json.schema(arguments))
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
    )

    async def run(given: dict[str, Json], user: str) -> Json:
        try:
            converted = msgspec.convert(given, arguments)
        except msgspec.ValidationError as error:
            message, _, place = str(error).partition(" - at `")
            problem = Problem(place.rstrip("`") or "$", message)
            raise RemitError(
                fault(Code.INPUT_VALIDATION_FAILED, f"the arguments do not fit tool {name}", problems=(problem,))
            ) from error
        values = {field: getattr(converted, field) for field in arguments.__struct_fields__}
        if wants_user:
            values["user"] = user
        if is_async(function):
            return await function(**values)  # pyright: ignore[reportGeneralTypeIssues, reportUnknownVariableType]
        return await threads.run(lambda _: function(**values), None)

    return Tool(card, run)


def is_async(function: Callable[..., object]) -> bool:
    """Say whether calling *function* gives something to await: a coroutine function, or an object whose call is one."""
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__)


def _arguments_of(function: Callable[..., object], name: str) -> tuple[type[msgspec.Struct], bool]:
    hints = get_type_hints(function, include_extras=True)
    fields: list[tuple[str, Any] | tuple[str, Any, Any]] = []
    parameters = dict(inspect.signature(function).parameters)
    wants_user = parameters.pop("user", None) is not None
    for parameter in parameters.values():
        if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            raise team_invalid(f"tool `{name}`: parameter `{parameter}` must be one that can be given by name")
        kind = hints.get(parameter.name, Any)
        fields.append(
            (parameter.name, kind)
            if parameter.default is parameter.empty
            else (parameter.name, kind, parameter.default)
        )
    return msgspec.defstruct(name, fields, kw_only=True, forbid_unknown_fields=True), wants_user


def _inlined(schema: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of the arguments themselves, definitions of other types kept beside it."""
    definitions: dict[str, Any] = dict(schema.get("$defs", {}))
    name = schema["$ref"].rpartition("/")[2]
    return definitions.pop(name) | ({"$defs": definitions} if definitions else {})
