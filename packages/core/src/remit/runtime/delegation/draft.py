"""A call on its way, and the request that it makes: its remit is cut from what the caller has left."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from remit.policy.budget import fair_share, grant_time_ms, grant_tokens
from remit.policy.limits import Limits
from remit.policy.reception import Powers, authority_of, powers_of
from remit.policy.repeats import CallKey, call_key
from remit.policy.verdict import Guard
from remit.policy.weight import is_short_text
from remit.protocol.card import AgentCard
from remit.protocol.envelope import NOBODY, VERSION, Call, Json, Request
from remit.protocol.remit import meet
from remit.runtime.frames import Frame, PassedCall, RoutedCall, child_path
from remit.runtime.journal import JournalStep
from remit.runtime.ports import RegisteredAgent, SessionOwner

_NONE: frozenset[str] = frozenset()


class CallAttempt(Struct, frozen=True, kw_only=True):
    """A call of one agent to another, until it is started or refused."""

    parent: Frame
    call: Call
    """The call, with a person's edits."""
    sent: Call
    """The call as the agent made it."""
    path: str
    asked_by_agent: int
    """How many delegations its agent has asked for in this run, including this one."""
    is_short_text: bool
    """Whether it is valid, light, and needs no preparation."""
    at_once: int | None = None
    """How many delegations the caller wants in flight, if that was counted before."""
    hedge: bool = False
    route: RoutedCall | None = None
    entry: RegisteredAgent | None = None
    owner: SessionOwner | None = None
    """The owner of the session that the call names."""
    step: bytes = b""
    before: JournalStep | None = None
    """How far it came before a restart."""
    approved: frozenset[str] = _NONE
    """The questions that a person has approved."""
    questions: int = 0

    @property
    def card(self) -> AgentCard | None:
        """The card of its callee; None if there is none."""
        return None if self.entry is None else self.entry.card

    @property
    def needs_permit(self) -> bool:
        """Whether hubs count the call together before it starts; a call from before a restart was counted then."""
        return self.before is None and self.entry is not None and self.entry.is_rated_here

    def agreed(self, question: str, edits: dict[str, Json], entry: RegisteredAgent | None) -> "CallAttempt":
        """Return the call after a person agreed, with their edits; *entry* is its callee as it is now.

        An approval covers what the person was shown; if another guard changes it, the person is asked again.
        """
        approved, questions = (_NONE if edits else self.approved) | {question}, self.questions + 1
        if not edits:
            return replace(self, approved=approved, questions=questions, entry=entry)
        call = replace(self.call, **edits)
        return replace(self, approved=approved, questions=questions, entry=entry, call=call, is_short_text=False)


def attempt_at(
    parent: Frame,
    call: Call,
    agents: Mapping[str, RegisteredAgent],
    *,
    at_once: int | None = None,
    route: RoutedCall | None = None,
    hedge: bool = False,
) -> CallAttempt:
    """Return a call as its agent makes it; it is counted now, whatever its outcome."""
    tally, name, is_short = parent.run.tally, parent.card.name, is_short_text(call)
    tally.delegations += 1
    tally.by_agent[name] = asked_by_agent = tally.by_agent.get(name, 0) + 1
    if route is None:
        parent.calls += 1
        path = child_path(parent, parent.calls if call.step is None else call.step)
    else:
        path = route.leg_path
    return CallAttempt(
        parent=parent,
        call=call,
        sent=call,
        path=path,
        asked_by_agent=asked_by_agent,
        is_short_text=is_short,
        at_once=at_once,
        hedge=hedge,
        route=route,
        entry=agents.get(call.target) if is_short and call.target is not None else None,
    )


class DraftedRequest(NamedTuple):
    """The request that a call makes at one moment, and what it was made from."""

    request: Request
    caller: AgentCard
    """The card of the calling agent as it is now."""
    now: float


def draft(
    parent: Frame,
    call: Call,
    card: AgentCard | None,
    path: str,
    left_ms: int,
    created_ms: int,
    limits: Limits,
    caller: AgentCard | None = None,
) -> Request:
    """Return the request with which *parent* would make *call*; it is not judged yet.

    *caller* is the current card of the calling agent, if it has changed since the agent began.
    """
    asking = parent.request
    time_ms = _time_wanted(call, card, limits)
    depth_below = parent.card.max_sub_agent_depth
    max_depth = call.max_depth
    if depth_below is not None:
        max_depth = min(asking.remit.depth + depth_below, asking.remit.max_depth if max_depth is None else max_depth)
    tools, targets = call.tools, call.targets
    if card is not None and authority_of(card, limits) == "caller":
        powers = _powers(parent, caller or parent.card)
        tools, targets = meet(powers.tools, tools), meet(powers.targets, targets)
    request = Request(
        version=VERSION,
        id=path,
        origin=asking.target,
        target=card.name if card is not None else call.target or NOBODY,
        remit=asking.remit.narrow(
            caller=parent.address,
            time_ms=grant_time_ms(time_ms, left_ms),
            tokens=granted(parent, call, card, path, limits),
            max_depth=max_depth,
            context_tokens=call.context_tokens,
            tools=tools,
            targets=targets,
            may_delegate=call.may_delegate,
            priority=call.priority,
        ),
        objective=call.objective,
        input=call.input,
        capability=call.capability,
        run=asking.run,
        parent=parent.path,
        session=call.session or path,
        parent_session=asking.session,
        handoff=call.handoff,
        correlation=call.correlation or asking.correlation,
        created_ms=created_ms,
    )
    # More than fifteen keywords in one call cost Python four times as much, so rare fields are set afterwards.
    if call.context or call.hints or call.reason or call.refined_by or call.retry_of or call.files:
        return _with_seldom_said(request, call)
    return request


def is_like(last: PassedCall, call: Call, card: AgentCard | None, caller: AgentCard, limits: Limits) -> bool:
    """Return whether a short text differs from the *last* one of its caller in nothing but its text.

    Cards and limits never change: where they are the same objects, everything that is derived from them is the same.
    """
    return card is last.card and caller is last.caller and limits is last.limits and call.max_tokens == last.max_tokens


def draft_again(last: PassedCall, call: Call, path: str, left_ms: int, created_ms: int) -> Request:
    """Return what `draft` returns for a short text that is like the *last* one, in a third of the time.

    Its caller must have as many tokens left as the last one was granted.
    """
    request = last.request
    remit, time_ms = request.remit, grant_time_ms(last.time_ms, left_ms)
    if time_ms != remit.time_ms:
        remit = replace(remit, time_ms=time_ms)
    return replace(request, id=path, remit=remit, objective=call.objective, session=path, created_ms=created_ms)


def passed_call(
    request: Request,
    parent: Frame,
    call: Call,
    card: AgentCard,
    caller: AgentCard,
    limits: Limits,
    guards: tuple[Guard, ...],
) -> PassedCall | None:
    """Return what `draft_again` needs of a short text that these guards allowed; None if its tokens were cut."""
    tokens = card.tokens if call.max_tokens is None else call.max_tokens
    if request.remit.tokens != (limits.delegation_tokens if tokens is None else tokens):
        return None
    time_ms = min(_time_wanted(call, card, limits), parent.request.remit.time_ms)
    return PassedCall(request, call.max_tokens, time_ms, card, caller, limits, guards)


def _with_seldom_said(request: Request, call: Call) -> Request:
    """Return *request* with the rarely used fields of a call."""
    return replace(
        request,
        context=call.context,
        hints=call.hints,
        reason=call.reason,
        refined_by=call.refined_by,
        retry_of=call.retry_of,
        files=call.files,
    )


def _powers(frame: Frame, card: AgentCard) -> Powers:
    """Return the powers of a frame's agent; an agent that passes on has those of its caller."""
    remit, above = frame.request.remit, frame
    while card.passes_on and above.parent is not None:
        above = above.parent
        card = above.card
    return powers_of(None if card.passes_on else card, remit)


def call_key_of(request: Request) -> CallKey:
    """Return the key by which two requests of one caller are the same."""
    return call_key(request.target, request.capability, request.objective, request.input, request.files)


def call_keys_of(call: Call, names: Iterable[str]) -> set[CallKey]:
    """Return the keys of a call by capability, one for each agent that could execute it."""
    _, capability, content = call_key("", call.capability, call.objective, call.input, call.files)
    return {(name, capability, content) for name in names}


def granted(parent: Frame, call: Call, card: AgentCard | None, path: str, limits: Limits) -> int:
    """Return the tokens that a call would be granted now: set by the caller, else capability, else callee, else team.

    A call that may share what is left, and whose capability and callee set no tokens, gets at least the team's default.
    A call from before a restart gets what it was granted then.
    """
    if parent.journaled and (before := parent.journaled.get(path)) is not None:
        return grant_tokens(before, parent.reach + before)
    tokens = call.max_tokens
    if tokens is None and card is not None:
        capability = card.capability(call.capability) if call.capability is not None else None
        tokens = card.tokens if capability is None or capability.tokens is None else capability.tokens
    if tokens is None:
        tokens = limits.delegation_tokens
        if call.spare_tokens is not None:
            slots, spare = limits.max_fan_out - parent.in_flight(), max(tokens, call.spare_tokens)
            tokens = fair_share(parent.reach, tokens, slots=slots, spare=spare)
    return grant_tokens(tokens, parent.reach)


def _time_wanted(call: Call, card: AgentCard | None, limits: Limits) -> int:
    """Return the wanted time: set by the caller, else the capability, else the callee, else the team."""
    if call.deadline_ms is not None:
        return call.deadline_ms
    capability = card.capability(call.capability) if card is not None and call.capability is not None else None
    if capability is not None and capability.time_ms is not None:
        return capability.time_ms
    return limits.delegation_time_ms if card is None or card.time_ms is None else card.time_ms
