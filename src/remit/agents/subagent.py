"""Delegation as a tool: a model calls it to ask another agent, and gets the outcome as the tool's result."""

from msgspec import Struct
from msgspec.structs import replace

from remit.agents.subagent_arguments import read_arguments
from remit.policy.reception import context_cut
from remit.protocol.codec import text_of
from remit.protocol.envelope import ContextFilter, Json, Response
from remit.protocol.errors import in_sentences
from remit.protocol.remit import CONTEXT_TOKENS
from remit.runtime.brief import Brief

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


async def sub_agent(brief: Brief, arguments: dict[str, Json]) -> SubAgentToolResult:
    """Delegate on behalf of the brief's agent; raises a `RemitError` for invalid arguments."""
    tools = {each.name: each.tools for each in brief.delegates}
    given, notes = read_arguments(arguments, tools_of=tools.get)
    context_tokens = given.max_context_tokens
    if context_tokens > CONTEXT_TOKENS and context_tokens > brief.remit.context_tokens:
        notes = (*notes, context_cut(context_tokens, brief.remit.context_tokens))
        context_tokens = brief.remit.context_tokens  # told here, by the name that the model gave it
    response = await brief.delegate(
        given.agent_name,
        objective=given.task,
        input=given.input,
        context=None if given.context is None else _shown(given.context),
        context_tokens=context_tokens,
        spare_tokens=_spared(brief),
        tools=None if given.allowed_tools is None else frozenset(given.allowed_tools),
        may_delegate=given.allow_nested_calls,
        deadline_ms=TIME_MS,
    )
    return result_of(response, notes)


def _shown(wanted: ContextFilter) -> ContextFilter:
    """Return a filter that passes no notes of the conversation unless the model names some."""
    return wanted if wanted.known is not None else replace(wanted, known="none")


def _spared(brief: Brief) -> int:
    """Return the most that any of those who can be asked gets by its card: what is to be kept for each other call.

    A callee whose card does not say gets a fair share of what is left: a model is sent all that it was shown again with
    every call of a tool, and what others get by default is soon used up.
    """
    return max((each.tokens or 0 for each in brief.delegates), default=0)


def result_of(response: Response, notes: tuple[str, ...] = ()) -> SubAgentToolResult:
    """Return a response as the tool's result: an error comes with what can be done about it, *notes* stand after it."""
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
    """Return the agents that can be asked, with their capabilities."""
    return [
        {"name": each.name, "description": each.description, "capabilities": list(each.capabilities)}
        for each in brief.delegates
    ]
