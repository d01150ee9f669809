"""Delegation as a tool of a model: reads the model's arguments, and returns the outcome as the tool's result.

Small models fill optional fields with made-up values. Each is read as what it must mean, or as what lets the callee see
and do less, and the model is told so. Required arguments are never made up here.
"""

import json
from collections.abc import Callable, Iterable
from typing import Annotated, Any, Literal, NamedTuple, cast

import msgspec
from msgspec import Meta, Struct
from msgspec.structs import replace

from remit.policy.context import ROLES
from remit.policy.reception import context_cut
from remit.ports.brief import Brief
from remit.protocol.codec import text_of
from remit.protocol.envelope import ContextFilter, Json, Response
from remit.protocol.errors import Code, Problem, RemitError, fault, in_sentences
from remit.protocol.remit import CONTEXT_TOKENS, LONGEST_NAME, MAX_INTEGER, Count
from remit_models.reserve import time_to_keep_ms


class SubAgentToolArgs(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The arguments of the `sub_agent` tool (O1); `null` is the same as left out."""

    agent_name: Annotated[str, Meta(min_length=1, description="The agent to ask.")]
    task: Annotated[
        str, Meta(min_length=1, description="What it should do, in full: it sees nothing of your own work but this.")
    ]
    context: Annotated[
        ContextFilter | None,
        Meta(description="Which messages of this conversation it may see; left out, none."),
    ] = None
    input: Annotated[Json, Meta(description="Data for the task, if there is any.")] = None
    max_context_tokens: Annotated[Count, Meta(description="Tokens of all that it is shown.")] = CONTEXT_TOKENS
    allowed_tools: Annotated[
        tuple[str, ...] | None, Meta(description="Only these of its tools; left out, all that it has.")
    ] = None
    allow_nested_calls: Annotated[bool, Meta(description="Whether it may ask others in turn.")] = False
    session: Annotated[
        str | None, Meta(description="A name for your conversation with it: with the same name it goes on there.")
    ] = None
    relay: Annotated[
        Literal["reworded", "as is"], Meta(description='"as is": its answer is the answer, unless you call more tools.')
    ] = "reworded"


class CheckedArguments(NamedTuple):
    """The corrected arguments, and the notes to the model about the corrections."""

    args: SubAgentToolArgs
    notes: tuple[str, ...]


def read_arguments(arguments: dict[str, Json], *, tools_of: Callable[[str], Iterable[str] | None]) -> CheckedArguments:
    """Return the arguments of a call; raises a `RemitError` where `agent_name` or `task` is missing or wrong.

    *tools_of* returns the tools of an agent by name; None if it is not known.
    """
    notes: list[str] = []
    read = _Reader(notes)
    given = {name: value for name, value in arguments.items() if value is not None}
    known = {name: given.pop(name) for name in SubAgentToolArgs.__struct_fields__ if name in given}
    notes += [f"`{name}` is not an argument of this tool, and was ignored." for name in given]
    if "context" in known:
        known["context"] = read.context(known["context"])
    if "max_context_tokens" in known:
        tokens, default = known["max_context_tokens"], CONTEXT_TOKENS
        known["max_context_tokens"] = read.count("max_context_tokens", tokens, default, f"{default} was taken.")
    if "allowed_tools" in known:
        known["allowed_tools"] = read.tools(known["allowed_tools"], tools_of(str(known.get("agent_name"))))
    if "session" in known:
        known["session"] = read.name("session", known["session"])
    if known.get("relay", "as is") != "as is":
        del known["relay"]
    if "allow_nested_calls" in known:
        known["allow_nested_calls"] = read.flag("allow_nested_calls", known["allow_nested_calls"])
    try:
        return CheckedArguments(msgspec.convert(known, SubAgentToolArgs), tuple(notes))
    except msgspec.ValidationError as error:
        message, _, place = str(error).partition(" - at `")
        problem = Problem(place.rstrip("`") or "$", message)
        why = f"the arguments do not fit sub_agent: {problem.path}: {message}"
        raise RemitError(fault(Code.INPUT_VALIDATION_FAILED, why, problems=(problem,))) from error


class _Reader:
    """Reads single values, and records what it had to correct."""

    def __init__(self, notes: list[str]) -> None:
        self._notes = notes

    def count(self, name: str, value: Json, otherwise: int, expected: str) -> int:
        """Return a value as a count; an invalid value becomes *otherwise*."""
        if isinstance(value, str):
            value = _number(value)
        if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= MAX_INTEGER:
            return int(value)
        self._notes.append(f"`{name}` is not a count: {expected}")
        return otherwise

    def flag(self, name: str, value: Json) -> bool:
        if isinstance(value, bool):
            return value
        if isinstance(value, str) and value.strip().lower() in ("true", "false"):
            return value.strip().lower() == "true"
        self._notes.append(f"`{name}` is neither true nor false: false was taken.")
        return False

    def name(self, name: str, value: Json) -> str | None:
        """Return a value as a name; an invalid one is left out."""
        if isinstance(value, str) and 0 < len(value) <= LONGEST_NAME and value.isprintable():
            return value
        self._notes.append(f"`{name}` is not a name: a new conversation was begun.")
        return None

    def texts(self, name: str, value: Json) -> list[str]:
        """Return a value as a list of texts; anything else is left out."""
        several = cast("list[Json]", value) if isinstance(value, list | tuple) else [value]
        texts = [each for each in several if isinstance(each, str) and each]
        if len(texts) < len(several):
            self._notes.append(f"`{name}` is a list of texts: whatever else was in it was left out.")
        return texts

    def tools(self, value: Json, there: Iterable[str] | None) -> list[str]:
        """Return the named tools that the callee has."""
        named = self.texts("allowed_tools", value)
        if there is None:
            return named  # the call to the agent itself is refused
        made_up = sorted(set(named).difference(there))
        if made_up:
            has = ", ".join(sorted(there)) or "none"
            self._notes.append(f"`allowed_tools`: it has no {', '.join(made_up)}, left out; its tools: {has}.")
        return [each for each in named if each not in made_up]

    def context(self, value: Json) -> dict[str, Json]:
        """Return a filter; an invalid value becomes a filter that passes no messages."""
        if isinstance(value, str):
            value = _object(value)
        if not isinstance(value, dict):
            self._notes.append("`context` is not a filter: it is shown no messages.")
            return {"last_messages": 0}
        given = {name: each for name, each in cast("dict[str, Json]", value).items() if each is not None}
        read: dict[str, Json] = {}
        for name, each in given.items():
            if name in _FILTER:
                read[name] = _FILTER[name](self, f"context.{name}", each)
            else:
                self._notes.append(f"`context.{name}` is not a part of a filter, and was ignored.")
        return read

    def roles(self, name: str, value: Json) -> list[str]:
        roles = self.texts(name, value)
        if unknown := sorted(set(roles).difference(ROLES)):
            are_passed = ", ".join(ROLES)
            self._notes.append(f"`{name}`: no messages of {', '.join(unknown)} are passed on; roles: {are_passed}.")
        return [each for each in roles if each in ROLES]

    def known(self, name: str, value: Json) -> str:
        if value in ("none", "decisions", "all"):
            return value
        self._notes.append(f"`{name}` is none, decisions or all: none was taken.")
        return "none"

    def filter_limit(self, name: str, value: Json) -> int:
        """Return a limit of a filter; an invalid value becomes one that selects no messages."""
        return self.count(name, value, 0, "0 was taken.")


_FILTER: dict[str, Callable[[_Reader, str, Json], Json]] = {
    "last_messages": _Reader.filter_limit,
    "max_age_seconds": _Reader.filter_limit,
    "roles": _Reader.roles,
    "keywords": _Reader.texts,
    "workspace_files": _Reader.texts,
    "include_summary": _Reader.flag,
    "include_workspace": _Reader.flag,
    "include_contents": _Reader.flag,
    "include_facts": _Reader.flag,
    "known": _Reader.known,
}


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _object(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return None


# The document's default (O10); a callee never gets more than what is left.
TIME_MS = 300_000


class SubAgentToolResult(Struct, frozen=True, kw_only=True):
    """The result of the tool (O7)."""

    agent_name: str
    success: bool
    output: str
    tool_calls: tuple[str, ...]
    tokens_used: int
    duration_seconds: float
    errors: tuple[str, ...]


class SubAgentOutcome(NamedTuple):
    """The outcome of a call, with the notes to the model about its arguments."""

    response: Response
    notes: tuple[str, ...]
    is_relayed: bool
    """Whether the model wants the answer to go out as it is."""


async def sub_agent(brief: Brief, arguments: dict[str, Json]) -> SubAgentToolResult:
    """Delegate on behalf of the brief's agent; raises a `RemitError` for invalid arguments."""
    call = await sub_agent_call(brief, arguments)
    return result_of(call.response, call.notes)


async def sub_agent_call(brief: Brief, arguments: dict[str, Json]) -> SubAgentOutcome:
    """Delegate as `sub_agent` does, and return the response itself."""
    tools = {each.name: each.tools for each in brief.delegates}
    given, notes = read_arguments(arguments, tools_of=tools.get)
    context_tokens = given.max_context_tokens
    if context_tokens > CONTEXT_TOKENS and context_tokens > brief.remit.context_tokens:
        notes = (*notes, context_cut(context_tokens, brief.remit.context_tokens))
        context_tokens = brief.remit.context_tokens  # reported here, with the name that the model used
    response = await brief.delegate(
        given.agent_name,
        objective=given.task,
        input=given.input,
        session=given.session,
        context=None if given.context is None else _hide_notes(given.context),
        context_tokens=context_tokens,
        tools=None if given.allowed_tools is None else frozenset(given.allowed_tools),
        may_delegate=given.allow_nested_calls,
        deadline_ms=_time_of_callee_ms(brief),
        queued=True,
    )
    return SubAgentOutcome(response, notes, given.relay == "as is" and response.ok)


def _time_of_callee_ms(brief: Brief) -> int:
    """Return the time of a callee: it ends before the last answer of its caller is due, which then has its part."""
    left = brief.time_left_ms()
    return min(TIME_MS, max(left // 2, left - time_to_keep_ms(brief.remit.time_ms) * 5 // 4))


def _hide_notes(wanted: ContextFilter) -> ContextFilter:
    """Return a filter that passes no notes of the conversation unless the model names some."""
    return wanted if wanted.known is not None else replace(wanted, known="none")


def result_of(response: Response, notes: tuple[str, ...] = ()) -> SubAgentToolResult:
    """Return a response as the tool's result: an error comes with what can be done about it, followed by *notes*."""
    why = response.fault
    errors = () if why is None else (f"{why.code}: {in_sentences(why.message, why.suggestion)}",)
    return SubAgentToolResult(
        agent_name=response.target,
        success=response.ok,
        output="" if response.result is None else text_of(response.result),
        tool_calls=response.tool_calls,
        tokens_used=response.usage.total,
        duration_seconds=round(response.duration_ms / 1_000, 1),  # a model has no use for more digits
        errors=(*errors, *notes, *response.warnings),
    )


def list_agents(brief: Brief) -> list[dict[str, Json]]:
    """Return the agents that can be called, with their capabilities."""
    return [
        {"name": each.name, "description": each.description, "capabilities": list(each.capabilities)}
        for each in brief.delegates
    ]
