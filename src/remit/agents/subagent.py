"""Delegation as a tool: what a model is offered to ask other agents with, and what it is told of how that went."""

from typing import Annotated

import msgspec
from msgspec import Meta, Struct
from msgspec.structs import replace

from remit.protocol.codec import text_of
from remit.protocol.envelope import ContextFilter, Json, Response
from remit.protocol.errors import Code, Problem, RemitError, fault
from remit.protocol.remit import CONTEXT_TOKENS, Count
from remit.runtime.brief import Brief

# The document's default (O10); a callee never gets more than what is left.
TIME_MS = 300_000


class SubAgentArgs(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the `sub_agent` tool takes (O1)."""

    agent_name: Annotated[str, Meta(min_length=1, description="The agent to ask.")]
    task: Annotated[
        str, Meta(min_length=1, description="What it should do, in full: it sees nothing of your own work but this.")
    ]
    context: Annotated[
        ContextFilter | None,
        Meta(description="Which messages of this conversation it may see; left out, the newest that fit."),
    ] = None
    input: Annotated[Json, Meta(description="Data for the task, if there is any.")] = None
    max_context_tokens: Annotated[Count, Meta(description="Tokens of all that it is shown.")] = CONTEXT_TOKENS
    allowed_tools: Annotated[
        tuple[str, ...] | None, Meta(description="Only these of its tools; left out, all that it has.")
    ] = None
    allow_nested_calls: Annotated[bool, Meta(description="Whether it may ask others in turn.")] = False


class SubAgentResult(Struct, frozen=True, kw_only=True):
    """What the tool gives back (O7)."""

    agent_name: str
    success: bool
    output: str
    tool_calls: tuple[str, ...]
    tokens_used: int
    duration_seconds: float
    errors: tuple[str, ...]


async def sub_agent(brief: Brief, arguments: dict[str, Json]) -> SubAgentResult:
    """Ask another agent in the name of the one that the brief is for; raises a `RemitError` for wrong arguments."""
    try:
        given = msgspec.convert(arguments, SubAgentArgs)
    except msgspec.ValidationError as error:
        message, _, place = str(error).partition(" - at `")
        problem = Problem(place.rstrip("`") or "$", message)
        why = f"the arguments do not fit sub_agent: {problem.path}: {message}"
        raise RemitError(fault(Code.INPUT_VALIDATION_FAILED, why, problems=(problem,))) from error
    response = await brief.delegate(
        given.agent_name,
        objective=given.task,
        input=given.input,
        context=_shown(given.context or ContextFilter()),
        context_tokens=given.max_context_tokens,
        spare_tokens=_spared(brief),
        tools=None if given.allowed_tools is None else frozenset(given.allowed_tools),
        may_delegate=given.allow_nested_calls,
        deadline_ms=TIME_MS,
    )
    return result_of(response)


def _shown(wanted: ContextFilter) -> ContextFilter:
    """Return a filter by which no note of the conversation passes, unless the model names those that may."""
    return wanted if wanted.known is not None else replace(wanted, known="none")


def _spared(brief: Brief) -> int:
    """Return the most that any of those who can be asked gets by its card: what is to be kept for each other call.

    A callee whose card does not say gets a fair share of what is left: a model is sent all that it was shown again with
    every call of a tool, and what others get by default is soon used up.
    """
    return max((each.tokens or 0 for each in brief.delegates), default=0)


def result_of(response: Response) -> SubAgentResult:
    """Return a response as the tool's result: an error comes with what can be done about it."""
    why = response.fault
    errors = () if why is None else (f"{why.code}: {why.message} {why.suggestion}".strip(),)
    return SubAgentResult(
        agent_name=response.target,
        success=response.ok,
        output="" if response.result is None else text_of(response.result),
        tool_calls=response.tool_calls,
        tokens_used=response.usage.total,
        duration_seconds=response.duration_ms / 1_000,
        errors=(*errors, *response.warnings),
    )


def list_agents(brief: Brief) -> list[dict[str, Json]]:
    """Return who can be asked, and what for."""
    return [
        {"name": each.name, "description": each.description, "capabilities": list(each.capabilities)}
        for each in brief.delegates
    ]
