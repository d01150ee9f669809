"""The tools offered to a model within a brief: the hub's tools that card and remit allow, and delegation."""

import re
from collections.abc import Awaitable, Callable
from typing import Any, Literal, NamedTuple

import msgspec

from remit.agents.cards import Arguments
from remit.ports.brief import Brief
from remit.protocol.card import Schema
from remit.protocol.codec import text_of
from remit.protocol.envelope import USER, Answer, AnswerContent, Handover, Json, fields_of
from remit.protocol.errors import Code, Fault, RemitError
from remit.runtime.schemas import schema_for_models
from remit_models.reserve import RelayedAnswer, TransferredConversation
from remit_models.subagent import (
    SubAgentOutcome,
    SubAgentToolArgs,
    SubAgentToolResult,
    list_agents,
    result_of,
    sub_agent_call,
)

# Errors that end an agent's work; all other errors are reported to the model.
ENDS_THE_TURN = frozenset({Code.CANCELLED, Code.TIMEOUT, Code.TOKEN_BUDGET_EXCEEDED, Code.STORE_UNAVAILABLE})

# This many characters of an agent's description are sent with every model call.
_DESCRIBED = 200

# The arguments that small models fill in correctly; they make up all others.
_SHORT = ("agent_name", "task", "input")
_LISTED: dict[Arguments, tuple[str, ...]] = {"short": _SHORT, "relay": (*_SHORT, "relay")}


class ToolOffer(NamedTuple):
    """One tool as it is offered to a model: the schema of its arguments, and the function to call with them."""

    name: str
    description: str
    schema: dict[str, Any]
    call: Callable[[dict[str, Json]], Awaitable[str]]
    """Returns the text for the model: the result or the error; raises errors that end the turn."""


def offers(
    brief: Brief,
    *,
    delegation: Literal["sub_agent", "delegate_task"] = "sub_agent",
    arguments: Arguments = "short",
    ends_turn: bool = False,
) -> tuple[ToolOffer, ...]:
    """Return the tools of a brief: those of the hub, and `sub_agent` if agents can be called.

    If a tool may end the turn of the model, there are tools that hand the conversation over, and answers can be
    relayed: they raise a `TransferredConversation` or a `RelayedAnswer`.

    If an agent's description is too long to be sent with every call, `list_agents` returns the whole text.

    *delegation* is the name of the delegation tool: hosts that have their own `sub_agent` call it `delegate_task`. A
    model is told of the three required *arguments*, of more, or of all; all are accepted in either case.
    """
    offered = [_hub_tool(brief, card.name, card.description, card.input_schema) for card in brief.tool_cards]
    if ends_turn:
        offered += _transfers(brief)
    if brief.delegates:
        taken = {offer.name for offer in offered}  # by a tool of the team, which keeps its name
        name = "delegate_task" if delegation in taken else delegation
        offered += [offer for offer in _delegation(brief, name, arguments, relays=ends_turn) if offer.name not in taken]
    return tuple(offered)


def _hub_tool(brief: Brief, name: str, description: str, schema: dict[str, Any]) -> ToolOffer:
    async def call(arguments: dict[str, Json]) -> str:
        return await _result_text(brief, lambda: brief.use(name, **arguments), name)

    return ToolOffer(_tool_name(name), description, schema, call)


def _transfers(brief: Brief) -> list[ToolOffer]:
    """Return a tool for each agent that may take the conversation over, and one for the agent that handed it over."""
    if not brief.is_of_user:
        return []
    to = {each.name: _shortened(" ".join(each.description.split())) for each in brief.delegates if each.takes_over}
    if brief.request.origin != USER:
        to[brief.request.origin] = "It had the conversation before: for what is not yours."
    return [_transfer(name, description) for name, description in to.items()]


def _transfer(to: str, description: str) -> ToolOffer:
    async def hand_over(given: dict[str, Json]) -> str:
        reason = given.get("reason")
        raise TransferredConversation(Handover(to=to, reason=reason if isinstance(reason, str) else ""))

    words = f"Hand the conversation over to {to}, who answers the user from now on. {description}".strip()
    return ToolOffer(_tool_name(f"transfer_to_{to}"), words, _REASON, hand_over)


def _tool_name(name: str) -> str:
    # Providers accept only letters, digits, `_` and `-` in a name, and at most 64 of them.
    return re.sub(r"[^A-Za-z0-9_-]", "_", name)[:64]


def _delegation(brief: Brief, name: str, arguments: Arguments, *, relays: bool) -> list[ToolOffer]:
    described = {each.name: " ".join(each.description.split()) for each in brief.delegates}
    known = "\n".join(
        f"- {each.name}: {_shortened(described[each.name])}"
        + (f" (can {', '.join(each.capabilities)})" if each.capabilities else "")
        for each in brief.delegates
    )
    # Each word of it is sent with every model call.
    seen = "`task`, `input` and the messages that `context` chooses" if arguments == "full" else "`task` and `input`"
    as_is = "" if arguments == "short" else ' With relay "as is" the user gets its answer as it is.'
    description = f"Have another agent do a part of the work. It sees only {seen}.{as_is}\nAgents:\n{known}"

    async def ask(given: dict[str, Json]) -> str:
        outcome: list[SubAgentOutcome] = []

        async def work() -> SubAgentToolResult:
            outcome.append(await sub_agent_call(brief, given))
            return result_of(outcome[0].response, outcome[0].notes)

        text = await _result_text(brief, work)
        if relays and outcome and outcome[0].is_relayed:
            raise RelayedAnswer(Answer(**fields_of(AnswerContent, outcome[0].response.outward())), text)
        return text

    async def show(_: dict[str, Json]) -> str:
        return text_of(list_agents(brief))

    offered = [ToolOffer(name, description, _schema_of(brief, arguments), ask)]
    if any(len(each) > _DESCRIBED for each in described.values()):  # otherwise the descriptions are complete already
        offered.append(ToolOffer("list_agents", "Describe the agents in full.", _NO_ARGUMENTS, show))
    return offered


def _shortened(text: str) -> str:
    return text if len(text) <= _DESCRIBED else text[: _DESCRIBED - 1] + "…"


def _schema_of(brief: Brief, arguments: Arguments) -> Schema:
    """Return the schema of the tool's arguments; `agent_name` is one of the agents that can be called."""
    schema = schema_for_models(SubAgentToolArgs)
    properties: dict[str, Schema] = schema["properties"]
    named = properties["agent_name"] | {"enum": [each.name for each in brief.delegates]}
    listed = {name: properties[name] for name in _LISTED.get(arguments, properties)}
    if arguments in _LISTED:
        listed = {
            name: {key: value for key, value in each.items() if key != "description"} for name, each in listed.items()
        }
        named = {"type": "string", "enum": named["enum"]}
    return schema | {"properties": listed | {"agent_name": named}}


async def _result_text(brief: Brief, work: Callable[[], Awaitable[Any]], tool: str = "") -> str:
    """Return a result as redacted text for the model; for an error, what was wrong and what the model can do."""
    try:
        value = await work()
    except RemitError as error:
        if error.fault.code in ENDS_THE_TURN:
            raise
        value = error_text(error.fault)
    return text_of(await brief.for_model(msgspec.to_builtins(value), tool=tool))


def error_text(why: Fault) -> str:
    """Return why a tool was not used, or failed, as text for a model: what was wrong, and what it can do."""
    details = "".join(f"\n- {problem.path}: {problem.message}" for problem in why.problems)
    return f"Error {why.code}: {why.message}{details}\n{why.suggestion}".strip()


_REASON: dict[str, Any] = {"type": "object", "properties": {"reason": {"type": "string"}}}
_NO_ARGUMENTS: dict[str, Any] = {"type": "object", "properties": {}}
