"""The way of a call from top to bottom: draft, admit, reserve, send; its remit is cut from what the caller has left."""

import asyncio
import hashlib
from collections.abc import Mapping
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from remit.policy.budget import LEAST_SHARE, grant_time_ms, grant_tokens, tokens_wanted
from remit.policy.guards import GUARDS, asked_too_often, passes_again
from remit.policy.limits import Limits
from remit.policy.reception import Powers, authority_of, context_cut, powers_of
from remit.policy.redaction import is_clean
from remit.policy.repeats import CallKey, beside_of, call_key_of, is_outdated
from remit.policy.verdict import Ask, Facts, Guard, Refuse, Rewrite
from remit.policy.weight import LIGHT_TO_ENCODE, is_light_call, is_light_request, is_short_text
from remit.ports import RegisteredAgent, Remote, SessionOwner
from remit.protocol.card import AgentCard
from remit.protocol.codec import checked
from remit.protocol.envelope import NOBODY, VERSION, Call, Json, Request, Response
from remit.protocol.errors import Code, Fault, RemitError, fault
from remit.protocol.lifecycle import Status
from remit.protocol.remit import CONTEXT_TOKENS, LONGEST_NAME, meet, meet_tools
from remit.runtime.aside import aside
from remit.runtime.context import RuntimeContext
from remit.runtime.delegation.admission import Admission, Heavy, RequestInspection
from remit.runtime.delegation.answers import AnswerJudgement
from remit.runtime.delegation.approval import Approvals
from remit.runtime.delegation.extension import RunExtension
from remit.runtime.delegation.recording import DelegationRefusals, RunRecorder, undrafted
from remit.runtime.delegation.repeats import given_again
from remit.runtime.delegation.replay import JournalReplay, restore_departure
from remit.runtime.delegation.routing import Routing
from remit.runtime.delegation.tasks import CachedAnswers, DelegationTasks
from remit.runtime.frames import Frame, PassedCall, PlaceInQueue, RoutedCall, SlotGivenUp
from remit.runtime.journal import JournalStep
from remit.runtime.purse import cost_granted, cost_wanted, funded
from remit.runtime.sessions import ViewRequest, session_of_callee

# Later attempts append a suffix, up to the length of a name.
LONGEST_PATH = LONGEST_NAME - 10

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
    least: int = 0
    """The tokens that it needs at least, once a smaller share was refused."""

    @property
    def card(self) -> AgentCard | None:
        """The card of its callee; None if there is none."""
        return None if self.entry is None else self.entry.card

    @property
    def is_remote(self) -> bool:
        """Whether its callee is elsewhere, and cannot take more tokens later."""
        return self.entry is not None and isinstance(self.entry.agent, Remote)

    @property
    def needs_permit(self) -> bool:
        """Whether hubs count the call together before it starts; a call from before a restart was counted then."""
        return self.before is None and self.entry is not None and self.entry.is_rated_here

    def with_least(self, tokens: int) -> "CallAttempt":
        return replace(self, least=max(tokens, self.least))

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
        path = f"{parent.path}.{parent.calls if call.step is None else call.step}"
        # Where callers that name their calls call each other, a path may grow longer than an id.
        if len(path) > LONGEST_PATH:
            path = f"{parent.run.id}.{hashlib.blake2b(path.encode(), digest_size=16).hexdigest()}"
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
    *,
    is_remote: bool,
    least: int = 0,
) -> Request:
    """Return the request with which *parent* would make *call*; it is not judged yet.

    *caller* is the current card of the calling agent, if it has changed since the agent began.
    """
    asking, held = parent.request, parent.request.remit
    tokens = granted(parent, call, card, path, limits, is_remote=is_remote, least=least)
    slots = limits.max_fan_out - parent.in_flight()
    time_ms = grant_time_ms(_time_wanted(call, card, limits), left_ms)
    max_depth = call.max_depth
    if (depth_below := parent.card.max_sub_agent_depth) is not None:
        max_depth = min(asking.remit.depth + depth_below, asking.remit.max_depth if max_depth is None else max_depth)
    tools, targets = call.tools, call.targets
    if card is not None and authority_of(card, limits) == "caller":
        powers = _powers(parent, caller or parent.card)
        tools, targets = meet_tools(powers.tools, tools), meet(powers.targets, targets)
    request = Request(
        version=VERSION,
        id=path,
        origin=asking.target,
        target=card.name if card is not None else call.target or NOBODY,
        # Its caller may have drawn more than it was granted; a credential for another hub names the grant.
        remit=(held if is_remote or tokens <= held.tokens else replace(held, tokens=tokens)).narrow(
            caller=parent.address,
            time_ms=time_ms,
            tokens=tokens,
            max_depth=max_depth,
            context_tokens=call.context_tokens,
            tools=tools,
            targets=targets,
            may_delegate=call.may_delegate,
            priority=call.priority,
            cost=cost_granted(parent.purse, call, card, limits, slots, is_remote=is_remote),
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
    is_rare = call.context or call.hints or call.reason or call.refined_by or call.retry_of or call.files
    return _with_rare_fields(request, call) if is_rare or call.handover is not None else request


def is_like(last: PassedCall, call: Call, card: AgentCard | None, caller: AgentCard, limits: Limits) -> bool:
    """Return whether a short text differs from the *last* one of its caller in nothing but its text.

    Cards and limits never change: where they are the same objects, everything that is derived from them is the same.
    """
    return card is last.card and caller is last.caller and limits is last.limits and call.max_tokens == last.max_tokens


def tokens_again(last: PassedCall, parent: Frame, limits: Limits) -> int | None:
    """Return the tokens of a call that is like the *last* one; None if it would be granted fewer than it asks for."""
    granted = last.request.remit
    if not last.is_share:
        return None if parent.left < granted.tokens else granted.tokens
    tokens = parent.share(limits.max_fan_out - parent.in_flight())
    return None if tokens < granted.context_tokens else tokens


def draft_again(last: PassedCall, call: Call, path: str, left_ms: int, created_ms: int, tokens: int) -> Request:
    """Return what `draft` returns for a short text that is like the *last* one, in a third of the time.

    Its caller must be able to grant it so many *tokens*, no fewer than the conversation that it may be shown.
    """
    request = last.request
    remit, time_ms = request.remit, grant_time_ms(last.time_ms, left_ms)
    if time_ms != remit.time_ms or tokens != remit.tokens:
        remit = replace(remit, time_ms=time_ms, tokens=tokens)
    return replace(request, id=path, remit=remit, objective=call.objective, session=path, created_ms=created_ms)


def draws_of(call: Call, entry: RegisteredAgent, limits: Limits) -> int:
    """Return how many calls at once the tokens of a callee's caller are shared among; 0: it keeps to its grant."""
    is_share = tokens_wanted(call, entry.card, limits) is None and not isinstance(entry.agent, Remote)
    return max(1, limits.max_fan_out) if entry.card.draws or is_share else 0


def passed_call(
    request: Request,
    parent: Frame,
    call: Call,
    entry: RegisteredAgent,
    caller: AgentCard,
    limits: Limits,
    guards: tuple[Guard, ...],
) -> PassedCall | None:
    """Return what `draft_again` needs of a short text that these guards allowed; None if a limit cut it."""
    card = entry.card
    tokens, remit = tokens_wanted(call, card, limits), request.remit
    if remit.cost is not None or isinstance(remit.tools, dict):
        return None
    if remit.tokens != tokens if tokens is not None else remit.tokens <= remit.context_tokens:
        return None
    time_ms = min(_time_wanted(call, card, limits), parent.request.remit.time_ms)
    draws = draws_of(call, entry, limits)
    return PassedCall(request, call.max_tokens, time_ms, card, caller, limits, guards, tokens is None, draws)


def _with_rare_fields(request: Request, call: Call) -> Request:
    """Return *request* with the rarely used fields of a call."""
    return replace(
        request,
        context=call.context,
        hints=call.hints,
        reason=call.reason,
        refined_by=call.refined_by,
        retry_of=call.retry_of,
        files=call.files,
        handover=call.handover,
    )


def _powers(frame: Frame, card: AgentCard) -> Powers:
    """Return the powers of a frame's agent; an agent that passes on has those of its caller."""
    remit, above = frame.request.remit, frame
    while card.passes_on and above.parent is not None:
        above = above.parent
        card = above.card
    return powers_of(None if card.passes_on else card, remit)


def granted(
    parent: Frame, call: Call, card: AgentCard | None, path: str, limits: Limits, *, is_remote: bool, least: int = 0
) -> int:
    """Return the tokens that a call would be granted now: set by the caller, else capability, else callee, else team.

    Where nobody sets any, it is a fair share, and as many as the call needs at *least* if its caller can reach them. A
    call from before a restart gets what it was granted then.
    """
    if parent.journaled and (before := parent.journaled.get(path)) is not None:
        return grant_tokens(before, parent.reach + before)
    tokens = tokens_wanted(call, card, limits)
    if tokens is not None:
        return grant_tokens(tokens, parent.reach)
    share = parent.share(limits.max_fan_out - parent.in_flight())
    if share < LEAST_SHARE and is_remote:
        share = max(share, min(LEAST_SHARE, parent.left // 2))
    return share if share >= least else max(share, grant_tokens(least, parent.reach))


def _time_wanted(call: Call, card: AgentCard | None, limits: Limits) -> int:
    """Return the wanted time: set by the caller, else the capability, else the callee, else the team."""
    if call.deadline_ms is not None:
        return call.deadline_ms
    capability = card.capability(call.capability) if card is not None and call.capability is not None else None
    if capability is not None and capability.time_ms is not None:
        return capability.time_ms
    return limits.delegation_time_ms if card is None or card.time_ms is None else card.time_ms


def facts_of_call(
    parts: RuntimeContext, attempt: CallAttempt, request: Request, caller: AgentCard, now: float, *, repeated: bool
) -> Facts:
    """Return the facts that the guards need about an agent's call; *caller* is its card as it is now."""
    parent, entry = attempt.parent, attempt.entry
    card = None if entry is None else entry.card
    ledger, run, goes_on = parts.ledger, parent.run, attempt.before is not None
    facts = Facts(  # rare fields are set afterwards, as above
        target=card,
        address=entry.address if entry is not None else "",
        caller=caller,
        held=parent.request.remit,
        limits=parts.limits,
        agents=parts.registry.agents,
        delegations=run.tally.delegations,
        agent_delegations=attempt.asked_by_agent,
        record_bytes=parts.store.sizes.get(run.id, 0),
        at_once=attempt.at_once or parent.in_flight() + 1,
        repeated=repeated,
        overrun=run.overrun and parts.limits.overrun == "run",
        # A request that was admitted before a restart is only continued.
        rate_wait_ms=ledger.rate_wait_ms(card, now) if card and card.rate and not goes_on else 0,
        breaker_wait_ms=0 if goes_on else ledger.breaker_wait_ms(request.target, now),
        sealing=run.sealing,
    )
    if attempt.owner is not None:
        facts = replace(facts, session_user=attempt.owner.user, session_agent=attempt.owner.agent)
    if attempt.call.tools is not None:
        facts = replace(facts, asked_tools=frozenset(attempt.call.tools))
    if entry is not None and isinstance(entry.agent, Remote):
        facts = replace(facts, judged_elsewhere=entry.agent.judges_tools)
    return replace(facts, approved=attempt.approved) if attempt.approved else facts


class Dispatch:
    """The way of a call, whose steps are each entered once: draft, admit, reserve, send, settle, record, answer.

    `delegate` is the whole way. `begin` goes as far as the callee: it drafts the request, has it admitted, reserves its
    grant and sends it. The task that it starts (`tasks`) ends in its settlement, which settles the account, records the
    response and sets the outcome. `delegate` answers with that outcome. A call that goes to the next agent of its
    capability takes the way anew.
    """

    def __init__(self, parts: RuntimeContext) -> None:
        self.parts = parts
        self.recording = RunRecorder(parts)
        self.refusals = DelegationRefusals(parts, self.recording)
        self.admission = Admission(parts)
        self.tasks = DelegationTasks(parts, self.recording, CachedAnswers(parts))
        self.approval = Approvals(parts, self.recording, self.tasks)
        self.tasks.judge_answer = AnswerJudgement(self, self.admission.judge_answer).judged
        self.extension = RunExtension(parts, self.recording, self.tasks, self.approval)
        self.routing = Routing(parts)
        self.replay = JournalReplay(parts, self.recording, self.refusals, self.admission)

    async def delegate(self, parent: Frame, call: Call) -> Response:
        """Execute one call for *parent* and return its response, whatever happened."""
        if call.queued and self.parts.limits.beyond_fan_out == "queue":
            async with PlaceInQueue(parent, self.parts.limits.max_fan_out):
                return await self._delegate(parent, call)
        return await self._delegate(parent, call)

    async def judge_tool(self, request: Request, facts: Facts) -> Rewrite | Refuse | Ask:
        """Ask the guards about the use of a tool, before it is used."""
        return await self.admission.judge_tool(request, facts)

    async def _delegate(self, parent: Frame, call: Call) -> Response:
        begun = await self.begin(parent, call, hedge=True)
        if isinstance(begun, Response):
            await asyncio.sleep(0)  # an agent that asks again and again must not keep others from running
            return begun
        async with SlotGivenUp(parent):
            try:
                return await (begun.outcome if begun.route is None else self.routed(parent, begun))
            except asyncio.CancelledError:
                await self.tasks.end((begun,), "its caller was cancelled")
                raise

    async def begin(
        self,
        parent: Frame,
        call: Call,
        *,
        at_once: int | None = None,
        route: RoutedCall | None = None,
        hedge: bool = False,
    ) -> Frame | Response:
        """Judge a call and start it, or return the refusal; after a refusal, nothing was started.

        *at_once* is how many delegations the caller wants in flight, if that was counted before. *route* is set if
        other agents were asked before. *hedge* promises that `routed` awaits its end.
        """
        while True:
            attempt = attempt_at(parent, call, self.parts.registry.agents, at_once=at_once, route=route, hedge=hedge)
            last = parent.passed
            if last is not None and attempt.is_short_text and (frame := self._start_again(attempt, last)) is not None:
                return frame
            parent.beginning += 1
            try:
                if not attempt.is_short_text or self.parts.store.full:
                    attempt = await self._resolve(attempt)
                known = attempt if parent.run.steps is None else await self._known_before(attempt)
                begun = await self._judge(known) if isinstance(known, CallAttempt) else known
            except RemitError as error:
                why = self.replay.still_true(parent.run, attempt.path, attempt.entry, attempt.call, error.fault)
                return self.refusals.refuse(undrafted(parent, attempt.call, attempt.path), why, parent.run)
            finally:
                parent.beginning -= 1
            if not isinstance(begun, RoutedCall):
                return begun
            # The next agent that offers the same capability, judged anew.
            route, call = begun, begun.call
            if begun is known:
                at_once, hedge = None, False

    async def _resolve(self, attempt: CallAttempt) -> CallAttempt:
        """Return a valid call with its callee, its route and its session, once the store has room for it."""
        parts, parent, call, route, path = self.parts, attempt.parent, attempt.call, attempt.route, attempt.path
        if not attempt.is_short_text:
            call = _checked_call(call) if is_light_call(call) else await aside.run(_checked_call, call)
        if parts.store.full:
            await parts.store.room()
        if call.step is not None and route is None:
            _name_once(parent, call.step)
        sent, owner = call, None
        if call.session is not None:
            session, owner = await session_of_callee(parts.store, call.session, parent.request)
            call = replace(call, session=session)
        target = call.target
        if target is None and call.capability is not None:
            route = route or self.routing.route(parent, call, call.capability, path, owner)
            if route is not None and not route.names:
                await self.routing.recall()
                route = self.routing.route(parent, call, call.capability, path, owner)
            if route is not None:
                target, path = route.names[0], route.leg_path
        entry = parts.registry.agents.get(target) if target is not None else None
        return replace(attempt, call=call, sent=sent, path=path, owner=owner, route=route, entry=entry)

    async def _known_before(self, attempt: CallAttempt) -> CallAttempt | Response | RoutedCall:
        """Return the outcome of a call from before a restart, or the call with how far it came.

        After an attempt that failed then, return the route to the next agent.
        """
        parent, entry, retry_of = attempt.parent, attempt.entry, attempt.call.retry_of
        if retry_of is not None:
            await self.replay.take_over(parent, retry_of, attempt.path)
        if entry is None or _is_ending(parent):
            return attempt
        known = await self.replay.find_again(parent, self._draft(attempt).request, entry, attempt.path)
        if not isinstance(known, Response):
            step, before = known
            return replace(attempt, step=step, before=before)
        if attempt.route is None or known.ok:
            return known
        return self.routing.recorded_leg(parent.run, attempt.route, attempt.route.leg + 1) or known

    async def _judge(self, attempt: CallAttempt) -> Frame | Response | RoutedCall:
        """Have a call judged until it is refused, or started; or return the route to the next agent."""
        parts, parent, permitted = self.parts, attempt.parent, False
        inspection: RequestInspection | None = None
        shown: ViewRequest | None = None if attempt.call.context is None else await self._select_view(attempt)
        while True:
            if _is_ending(parent):
                return self._refused(attempt, self._draft(attempt).request, _too_late_to_ask(parent))
            made = self._draft(attempt)
            if shown is not None:
                made = made._replace(request=await parts.sessions.shown_aside(made.request, shown))
            request = made.request
            light = attempt.is_short_text or is_light_request(request)
            quick = light or is_light_request(request, LIGHT_TO_ENCODE)
            key = call_key_of(request) if quick else await aside.run(call_key_of, request)
            if (shown is not None or not light) and self._draft(attempt).request.remit.tokens < request.remit.tokens:
                continue  # others were granted tokens while this was examined
            earlier, repeated = None, False
            if parent.calls_by_key is not None and key in parent.calls_by_key:
                earlier = parent.calls_by_key[key]
                # In flight, or done with success and still valid.
                repeated = earlier is None or not is_outdated(earlier, request, parent.run.changes)
            facts = facts_of_call(parts, attempt, request, made.caller, made.now, repeated=repeated)
            verdict = self.admission.judge(request, facts, parent.run, inspection, light=light)
            if isinstance(verdict, Refuse) or parts.limits.at_limit == "ask" or parent.run.drawable_tokens:
                least: int | None = await self.extension.afford(parent, request, attempt.call, verdict, attempt.least)
                if least is not None:
                    attempt, inspection = attempt.with_least(least), None
                    continue  # others may have been granted tokens meanwhile
            match verdict:
                case Rewrite():
                    if attempt.call.session is not None and attempt.owner is None:
                        # Taken only by a caller that may have it; then everything is judged again, since another may
                        # have been first.
                        user = request.remit.user
                        owner = await parts.store.session(attempt.call.session, user, request.target)
                        attempt = replace(attempt, owner=owner)
                    elif parts.shared is not None and not permitted and attempt.needs_permit:
                        if (wait_ms := await parts.shared.rate_wait_ms(attempt.card)) > 0:
                            return self._refused(attempt, request, asked_too_often(request.target, wait_ms).fault)
                        permitted = True  # other calls may have been admitted meanwhile
                    else:
                        return self._start(attempt, made, verdict, key, inspection)
                case Heavy():
                    sent = self._draft(attempt, attempt.sent).request
                    inspection = await self.admission.look_through(request, facts, parent.run, of_user=False, sent=sent)
                case Refuse(fault=why) if why.code is Code.CYCLE_DETECTED and earlier and earlier.response:
                    return self._answered_before(parent, request, earlier.response)
                case Refuse(fault=why):
                    return self._refused(attempt, request, why)
                case Ask() as ask:
                    edits = await self.approval.consult(parent, request, ask, attempt.questions)
                    attempt = attempt.agreed(ask.question, edits, self._callee(attempt))

    def _callee(self, attempt: CallAttempt) -> RegisteredAgent | None:
        """Return the callee of a call as it is now."""
        target = attempt.call.target if attempt.route is None else attempt.route.names[0]
        return None if target is None else self.parts.registry.agents.get(target)

    def _draft(self, attempt: CallAttempt, sent: Call | None = None) -> DraftedRequest:
        """Return the request that a call makes now: with a person's edits, or as it was *sent*."""
        parts, clock, parent = self.parts, self.parts.clock, attempt.parent
        now = clock.now()
        # The card as it is now: a revoked permission is not used any more, not even by a running agent.
        caller = parts.registry.agents[parent.card.name].card
        left_ms, wall_ms = parent.time_left_ms(now), clock.wall_ms()
        given = (parent, sent or attempt.call, attempt.card, attempt.path, left_ms, wall_ms, parts.limits, caller)
        request = draft(*given, is_remote=attempt.is_remote, least=attempt.least)
        return DraftedRequest(request, caller, now)

    def _start_again(self, attempt: CallAttempt, last: PassedCall) -> Frame | None:
        """Start a short text that differs from the *last* one of its caller in nothing but its text.

        This is the fast path of most calls: nothing of them has to be prepared, awaited, redacted or refused. None:
        `_judge` has to decide.
        """
        parts, parent, call, entry, clock = self.parts, attempt.parent, attempt.call, attempt.entry, self.parts.clock
        if entry is None or parts.store.full or parent.run.steps is not None or _is_ending(parent):
            return None
        card, caller = entry.card, parts.registry.agents[parent.card.name].card
        if parts.guards is not last.guards or not is_like(last, call, card, caller, parts.limits):
            return None
        if (tokens := tokens_again(last, parent, parts.limits)) is None:
            return None
        now = clock.now()
        left_ms = parent.time_left_ms(now) if parent.pauses else int((parent.deadline - now) * 1_000)
        request = draft_again(last, call, attempt.path, left_ms, clock.wall_ms(), tokens)
        key = call_key_of(request)
        repeated = parent.calls_by_key is not None and key in parent.calls_by_key
        facts = facts_of_call(parts, attempt, request, caller, now, repeated=repeated)
        if not passes_again(request, facts) or not is_clean(request, facts.sealing):
            return None
        frame = self.admission.reserve(request, entry, parent.run, parent, now, key)
        frame.draws = last.draws
        return self.tasks.start(frame)

    def _start(
        self,
        attempt: CallAttempt,
        made: DraftedRequest,
        verdict: Rewrite,
        key: CallKey,
        inspection: RequestInspection | None,
    ) -> Frame:
        """Reserve the grant of a call and start it."""
        parent, entry, request, clean = attempt.parent, attempt.entry, made.request, verdict.request
        assert entry is not None, "a guard refuses unknown targets"
        if attempt.is_short_text and len(self.parts.guards) == len(GUARDS):
            # For the next one of its caller. A team's own guards may read anything, so they are always asked.
            limits, guards = self.parts.limits, self.parts.guards
            parent.passed = passed_call(request, parent, attempt.call, entry, made.caller, limits, guards)
        if attempt.before is not None:
            entry = self.replay.whereabouts(entry, attempt.before) or entry
        if attempt.approved:
            clean = self.admission.with_approvals(clean, entry, attempt.approved)
        run = parent.run
        if verdict.struck:
            # Guards, and people they ask, may have added raw values that the caller did not send.
            sent = self._draft(attempt, attempt.sent).request
            self.admission.holds(parent, sent, inspection)
            self.admission.keep(run, verdict.struck, inspection, of_user=False)
        if clean.handoff is not None:
            self.parts.sessions.note_handoff(run, clean.handoff, clean.origin)
        if parent.journaled:
            parent.release_journaled(attempt.path)
        frame = self.admission.reserve(clean, entry, run, parent, made.now, key)
        frame.draws = draws_of(attempt.call, entry, self.parts.limits)
        if (cost := clean.remit.cost) is not None:
            shares = not attempt.is_remote and cost_wanted(attempt.call, entry.card, self.parts.limits) is None
            frame.purse = funded(cost, parent.purse, shares=shares)
        frame.step = attempt.step
        if attempt.call.context_tokens is not None:
            _warn_of_cut(frame, parent, attempt.call.context_tokens)
        if attempt.route is not None:
            self.routing.under_way(frame, attempt.route, hedge=attempt.hedge)
        if request.capability is not None:
            frame.lookup, frame.beside = self.admission.lookup(request, clean, entry, run), beside_of(request)
        if attempt.before is not None:
            restore_departure(frame, attempt.before, entry)
        return self.tasks.start(frame)

    def _refused(self, attempt: CallAttempt, request: Request, why: Fault) -> Response | RoutedCall:
        """Record a refusal; return it, or the route to the next agent."""
        why = self.replay.still_true(attempt.parent.run, attempt.path, attempt.entry, attempt.call, why)
        refusal = self.refusals.refuse(request, why, attempt.parent.run)
        onward = self.routing.onward(attempt.route, why) if attempt.route is not None else None
        return refusal if onward is None or _is_ending(attempt.parent) else onward

    def _answered_before(self, parent: Frame, request: Request, earlier: Response) -> Response:
        """Answer a caller with the answer that it got before, and record that."""
        response = given_again(request, earlier)
        self.recording.notice(parent, f"{earlier.id} is asked again and answered with its earlier answer")
        return response

    async def routed(self, parent: Frame, frame: Frame) -> Response:
        """Return the outcome of a routed delegation, or of the fallback that replaced it."""
        if frame.hedge_ms is not None:
            from remit.runtime.delegation.combine import race  # few capabilities use it

            frame = await race(self, parent, frame, frame.hedge_ms)
        response = await frame.outcome
        while (route := self.routing.next_leg(frame, response)) is not None:
            begun = await self.begin(parent, route.call, route=route)
            if isinstance(begun, Response):
                break  # refused: nothing happened, so the earlier outcome stands
            frame = begun
            try:
                response = await frame.outcome
            except asyncio.CancelledError:
                await self.tasks.end((frame,), "its caller was cancelled")
                raise
        return response

    async def _select_view(self, attempt: CallAttempt) -> ViewRequest | None:
        """Return the part of the caller's conversation that the callee should see, before it is cut to fit."""
        parts, parent, call, entry = self.parts, attempt.parent, attempt.call, attempt.entry
        request = draft(parent, call, attempt.card, attempt.path, 0, 0, parts.limits, is_remote=False)
        room, of = parent.request.remit.context_tokens, parent.request.session or parent.path
        room = room if call.context_tokens is None else min(room, call.context_tokens)
        # A remote agent keeps what it was shown as such, and not as part of its conversation.
        to = None if entry is not None and isinstance(entry.agent, Remote) else call.session
        return await parts.sessions.show(request, of=of, frame=parent, run=parent.run, to=to, room=room)

    def turn_down(self, parent: Frame, call: Call, path: str, why: Fault) -> Response:
        """Record that a call is refused before it is judged, and return the refusal."""
        return self.refusals.refuse(undrafted(parent, call, path), why, parent.run)


def _name_once(parent: Frame, step: str) -> None:
    if parent.named is None:
        parent.named = set()
    if step in parent.named:
        why = f"{parent.card.name} already made a call named {step} in this delegation"
        raise RemitError(fault(Code.DUPLICATE_REQUEST, why, suggestion="Give each call a name of its own."))
    parent.named.add(step)


def _too_late_to_ask(parent: Frame) -> Fault:
    return fault(Code.CANCELLED, f"{parent.card.name} was told to stop and cannot delegate any more")


def _is_ending(frame: Frame) -> bool:
    """Return whether the agent of a frame can ask for nothing more."""
    return frame.stopping is not None or isinstance(frame.state, Status)


def _warn_of_cut(frame: Frame, parent: Frame, context_tokens: int) -> None:
    """Warn the caller if it asks for more context than it may pass on."""
    held = parent.request.remit.context_tokens
    if context_tokens > max(CONTEXT_TOKENS, held):
        frame.warnings = [context_cut(context_tokens, held, "context_tokens")]


def _checked_call(call: Call) -> Call:
    """Return a validated copy of the call, or raise with every invalid field."""
    try:
        return checked(call)
    except RemitError as error:
        message, problems = f"the call is not valid: {error.fault.message}", error.fault.problems
        raise RemitError(fault(Code.INPUT_VALIDATION_FAILED, message, problems=problems)) from error
