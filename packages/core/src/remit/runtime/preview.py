"""What would judge a call, without making it."""

import os
from collections.abc import Iterable
from copy import copy
from typing import NamedTuple, cast

from msgspec.structs import replace

from remit.installed import brought
from remit.policy.breaker import BreakerSettings
from remit.policy.guards import GUARDS, TOOL_GUARDS, rate
from remit.policy.limits import Limits
from remit.policy.verdict import Facts, Guard, Sealing, judges_answers
from remit.ports.agents import Tool
from remit.protocol.card import AgentCard, ToolCard
from remit.protocol.codec import checked
from remit.protocol.envelope import USER, AnswerContent, AssignmentOptions, Call, Json, Request
from remit.protocol.submission import AskOptions
from remit.runtime.context import RuntimeContext
from remit.runtime.delegation.admission import facts_of_root, facts_of_tool, use_of_tool
from remit.runtime.delegation.answers import answer_of, facts_of_answer
from remit.runtime.delegation.dispatch import attempt_at, draft, facts_of_call
from remit.runtime.frames import Frame, Run
from remit.runtime.root_request import root_request

# The run that the request would belong to.
PREVIEW_RUN = "explained"


class HubSettings(NamedTuple):
    """The settings by which a hub judges requests now."""

    limits: Limits
    breaker: BreakerSettings
    guards: tuple[Guard, ...]
    """The guards before the schema and redaction, in order; the team's own last."""
    answer_guards: tuple[Guard, ...] = ()
    """The guards of answers."""


class HubGuards(NamedTuple):
    """The guards of a hub, in order."""

    before: tuple[Guard, ...]
    """Those of calls, and the last of them also of uses of tools."""
    answers: tuple[Guard, ...]
    """Those of answers."""


def guards_with(own: Iterable[Guard]) -> HubGuards:
    """Return the guards of a hub: those of Remit, those that plugins bring, and its *own*."""
    others = [*(guard for bring in brought("guards") for guard in bring()), *own]
    return HubGuards(
        (*GUARDS, *(each for each in others if not judges_answers(each))),
        tuple(each for each in others if judges_answers(each)),
    )


class TeamChange(NamedTuple):
    """Other settings under which a call is previewed."""

    limits: Limits
    cards: Iterable[AgentCard]
    """The cards that differ; all of them are of agents that the hub has."""
    guards: Iterable[Guard]
    """The team's own guards."""


class CallPreview(NamedTuple):
    """A call, or the use of a tool, that was not made: the request, and what would judge it."""

    request: Request
    facts: Facts
    guards: tuple[Guard, ...]


def preview(parts: RuntimeContext, origin: str, call: Call, user: str, change: TeamChange | None = None) -> CallPreview:
    """Return what would be judged if *user* had asked *origin*, and *origin* nothing but this call.

    *origin* is an agent, or `user` for a request of the user's own. Rates and breakers are those of the hub, also under
    a *change*. Raises a `RemitError` if the changed cards do not fit together.
    """
    parts = parts if change is None else _changed(parts, change)
    # The tokens of redacted values are made with a key that nobody keeps: they mean nothing in any run.
    detect = parts.redactor.detector
    sealing = None if detect is None else Sealing(os.urandom(32), detect)
    request, facts = _preview(parts, origin, call, user, sealing)
    return CallPreview(request, facts, parts.guards)


def preview_use(
    parts: RuntimeContext, agent: str, tool: str, arguments: dict[str, Json], user: str, *, own: bool = False
) -> CallPreview:
    """Return what would be judged if *user* had asked *agent*, and it used nothing but this tool.

    With *own*, it is a tool that the agent brings along.
    """
    root = root_request(agent, "", user, {}, run=PREVIEW_RUN, created_ms=0, limits=parts.limits)
    entry, now = parts.registry.agents[agent], parts.clock.now()
    frame = Frame(root, entry, Run(root, 0, None), None, now)
    known = parts.registry.tools.get(tool) if tool in entry.card.tools else None
    if own:
        card = ToolCard(name=tool, input_schema={}, rate=entry.card.tool_rates.get(tool))
        known = Tool(card, _is_not_run, owner=agent)
    guards = (*TOOL_GUARDS, rate, *parts.guards[len(GUARDS) :])
    facts = facts_of_tool(parts, frame, known)
    return CallPreview(use_of_tool(frame, tool, arguments, now), facts, guards)


def preview_answer(parts: RuntimeContext, agent: str, origin: str, content: AnswerContent, user: str) -> CallPreview:
    """Return what would be judged if *origin*, or the user, had asked *agent*, and got this answer."""
    root = root_request(agent, "", user, {}, run=PREVIEW_RUN, created_ms=0, limits=parts.limits)
    entry, run, now = parts.registry.agents[agent], Run(root, 0, None), parts.clock.now()
    above = None if origin == USER else Frame(root, parts.registry.agents[origin], run, None, now)
    frame = Frame(replace(root, origin=origin), entry, run, above, now)
    facts = facts_of_answer(parts, frame, content)
    detect = parts.redactor.detector
    facts = replace(facts, sealing=None if detect is None else Sealing(os.urandom(32), detect))
    return CallPreview(answer_of(frame, content), facts, parts.answer_guards)


async def _is_not_run(arguments: dict[str, Json], user: str) -> Json:
    raise NotImplementedError


def _changed(parts: RuntimeContext, change: TeamChange) -> RuntimeContext:
    registry = copy(parts.registry)
    registry.agents = dict(registry.agents)
    registry.replace(change.cards)
    guards = guards_with(change.guards)
    return replace(parts, registry=registry, limits=change.limits, guards=guards.before, answer_guards=guards.answers)


def _preview(
    parts: RuntimeContext, origin: str, call: Call, user: str, sealing: Sealing | None
) -> tuple[Request, Facts]:
    call, limits, now = checked(call), parts.limits, parts.clock.now()
    target = call.target or ""
    entry = parts.registry.agents.get(target)
    if origin == USER:
        options = cast("AskOptions", {name: getattr(call, name) for name in AssignmentOptions.__optional_keys__})
        request = root_request(target, call.objective, user, options, run=PREVIEW_RUN, created_ms=0, limits=limits)
        run = Run(request, 0, None, sealing)
        return request, facts_of_root(parts, request, run, entry, now)
    root = root_request(origin, "", user, {}, run=PREVIEW_RUN, created_ms=0, limits=limits)
    caller = Frame(root, parts.registry.agents[origin], Run(root, 0, None, sealing), None, now)
    attempt = replace(attempt_at(caller, call, parts.registry.agents), entry=entry)
    left_ms, is_remote = limits.root_time_ms, attempt.is_remote
    request = draft(caller, call, attempt.card, attempt.path, left_ms, 0, limits, is_remote=is_remote)
    return request, facts_of_call(parts, attempt, request, caller.card, now, repeated=False)
