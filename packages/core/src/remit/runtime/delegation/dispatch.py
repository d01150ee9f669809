"""One delegation, from the call to its response."""

import asyncio
import logging

from msgspec.structs import replace

from remit.policy.guards import GUARDS, asked_too_often, passes_again
from remit.policy.reception import context_cut, of_user
from remit.policy.redaction import is_clean
from remit.policy.repeats import CallKey, EarlierAnswer, beside_of, is_outdated
from remit.policy.verdict import Ask, Refuse, Rewrite
from remit.policy.weight import LIGHT_TO_ENCODE, is_light_call, is_light_request
from remit.protocol.codec import checked
from remit.protocol.envelope import Call, Request, Response
from remit.protocol.errors import Code, Fault, RemitError, fault
from remit.protocol.lifecycle import Status
from remit.protocol.remit import CONTEXT_TOKENS
from remit.runtime.aside import aside
from remit.runtime.context import RuntimeContext
from remit.runtime.delegation.admission import Admission, Heavy, RequestInspection
from remit.runtime.delegation.approval import Approvals
from remit.runtime.delegation.draft import (
    CallAttempt,
    DraftedRequest,
    attempt_at,
    call_key_of,
    draft,
    draft_again,
    granted,
    is_like,
    passed_call,
)
from remit.runtime.delegation.recording import DelegationRefusals, RunRecorder, undrafted
from remit.runtime.delegation.repeats import given_again
from remit.runtime.delegation.replay import JournalReplay, restore_departure
from remit.runtime.delegation.routing import Routing
from remit.runtime.delegation.tasks import CachedAnswers, DelegationTasks
from remit.runtime.frames import Frame, PassedCall, RoutedCall, SlotGivenUp
from remit.runtime.ports import RegisteredAgent, Remote
from remit.runtime.sessions import ViewRequest, session_of

log = logging.getLogger("remit")


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
        self.routing = Routing(parts)
        self.replay = JournalReplay(parts, self.recording, self.refusals, self.admission)

    async def delegate(self, parent: Frame, call: Call) -> Response:
        """Execute one call for *parent* and return its response, whatever happened."""
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
            try:
                if not attempt.is_short_text or self.parts.store.full:
                    attempt = await self._resolve(attempt)
                known = attempt if parent.run.steps is None else await self._known_before(attempt)
                begun = await self._judge(known) if isinstance(known, CallAttempt) else known
            except RemitError as error:
                why = self.replay.still_true(parent.run, attempt.path, attempt.entry, attempt.call, error.fault)
                return self.refusals.refuse(undrafted(parent, attempt.call, attempt.path), why)
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
            user = parent.request.remit.user
            session, owner = await session_of(parts.store, call.session, user)
            if owner is None:  # agents of two users that begin it at the same time must not share it
                session = of_user(session, user)
            if session != call.session:
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
        parent, call, entry = attempt.parent, attempt.call, attempt.entry
        if call.retry_of is not None:
            await self.replay.take_over(parent, call.retry_of, attempt.path)
        if entry is None or _is_ending(parent):
            return attempt
        known = await self.replay.find_again(parent, call, entry, attempt.path)
        if not isinstance(known, Response):
            step, before = known
            return replace(attempt, step=step, before=before)
        if attempt.route is None or known.ok:
            return known
        return self.routing.recorded_leg(parent.run, attempt.route, attempt.route.leg + 1) or known

    async def _judge(self, attempt: CallAttempt) -> Frame | Response | RoutedCall:
        """Have a call judged until it is refused, or started; or return the route to the next agent."""
        parts, parent, looked, permitted = self.parts, attempt.parent, None, False
        shown = None if attempt.call.context is None else await self._shown(attempt)
        while True:
            made = self._draft(attempt)
            if _is_ending(parent):
                return self._refused(attempt, made.request, _too_late_to_ask(parent))
            if shown is not None:
                made = made._replace(request=await parts.sessions.shown_aside(made.request, shown))
            request = made.request
            light = attempt.is_short_text or is_light_request(request)
            quick = light or is_light_request(request, LIGHT_TO_ENCODE)
            key = call_key_of(request) if quick else await aside.run(call_key_of, request)
            if shown is not None or not light:
                left = granted(parent, attempt.call, attempt.card, attempt.path, parts.limits)
                if left < request.remit.tokens:
                    continue  # others were granted tokens while this was examined
            earlier, repeated = None, False
            if parent.calls_by_key is not None and key in parent.calls_by_key:
                earlier = parent.calls_by_key[key]
                # In flight, or done with success and still valid.
                repeated = earlier is None or not is_outdated(earlier, request, parent.run.changes)
            facts = self.admission.facts_of_call(attempt, request, made.caller, made.now, repeated=repeated)
            match self.admission.judge(request, facts, parent.run, looked, light=light):
                case Rewrite() as verdict:
                    if attempt.call.session is not None and attempt.owner is None:
                        # Taken only by a caller that may have it; then everything is judged again, since another may
                        # have been first.
                        user = request.remit.user
                        owner = await parts.store.session(attempt.call.session, user, request.target)
                        attempt = replace(attempt, owner=owner)
                    elif parts.shared is not None and not permitted and attempt.needs_permit:
                        if (wait_ms := await parts.shared.rate_wait_ms(attempt.card)) > 0:
                            return self._refused(attempt, request, asked_too_often(request.target, wait_ms).fault)
                        # Other calls may have been admitted meanwhile: everything is judged again.
                        permitted = True
                    else:
                        return self._start(attempt, made, verdict, key, looked)
                case Heavy():
                    sent = self.admission.draft_now(parent, attempt.sent, attempt.entry, attempt.path)
                    looked = await self.admission.look_through(request, facts, parent.run, of_user=False, sent=sent)
                case Refuse(fault=why) if why.code is Code.CYCLE_DETECTED and earlier is not None:
                    return self._answered_before(parent, request, earlier)
                case Refuse(fault=why):
                    return self._refused(attempt, request, why)
                case Ask() as ask:
                    edits = await self.approval.consult(parent, request, ask, attempt.questions)
                    attempt = attempt.agreed(ask.question, edits, self._callee(attempt))

    def _callee(self, attempt: CallAttempt) -> RegisteredAgent | None:
        """Return the callee of a call as it is now."""
        target = attempt.call.target if attempt.route is None else attempt.route.names[0]
        return None if target is None else self.parts.registry.agents.get(target)

    def _draft(self, attempt: CallAttempt) -> DraftedRequest:
        """Return the request that a call makes now."""
        parts, parent, clock = self.parts, attempt.parent, self.parts.clock
        now = clock.now()
        # The card as it is now: a revoked permission is not used any more, not even by a running agent.
        caller = parts.registry.agents[parent.card.name].card
        left_ms, wall_ms = parent.time_left_ms(now), clock.wall_ms()
        request = draft(parent, attempt.call, attempt.card, attempt.path, left_ms, wall_ms, parts.limits, caller)
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
        if parent.left < last.request.remit.tokens:
            return None
        now = clock.now()
        left_ms = parent.time_left_ms(now) if parent.pauses else int((parent.deadline - now) * 1_000)
        request = draft_again(last, call, attempt.path, left_ms, clock.wall_ms())
        key = call_key_of(request)
        repeated = parent.calls_by_key is not None and key in parent.calls_by_key
        facts = self.admission.facts_of_call(attempt, request, caller, now, repeated=repeated)
        if not passes_again(request, facts) or not is_clean(request, facts.sealing):
            return None
        return self.tasks.start(self.admission.reserve(request, entry, parent.run, parent, now, key))

    def _start(
        self,
        attempt: CallAttempt,
        made: DraftedRequest,
        verdict: Rewrite,
        key: CallKey,
        looked: RequestInspection | None,
    ) -> Frame:
        """Reserve the grant of a call and start it."""
        parent, entry, request, clean = attempt.parent, attempt.entry, made.request, verdict.request
        assert entry is not None, "a guard refuses unknown targets"
        if attempt.is_short_text and len(self.parts.guards) == len(GUARDS):
            # For the next one of its caller. A team's own guards may read anything, so they are always asked.
            limits, guards = self.parts.limits, self.parts.guards
            parent.passed = passed_call(request, parent, attempt.call, entry.card, made.caller, limits, guards)
        if attempt.before is not None:
            entry = self.replay.whereabouts(entry, attempt.before) or entry
        if attempt.approved:
            clean = self.admission.with_approvals(clean, entry, attempt.approved)
        run = parent.run
        if verdict.struck:
            # Guards, and people they ask, may have added raw values that the caller did not send.
            sent = self.admission.draft_now(parent, attempt.sent, entry, attempt.path)
            self.admission.holds(parent, sent, looked)
            self.admission.keep(run, verdict.struck, looked, of_user=False)
        if clean.handoff is not None:
            self.parts.sessions.note_handoff(run, clean.handoff, clean.origin)
        if parent.journaled:
            parent.release_journaled(attempt.path)
        frame = self.admission.reserve(clean, entry, run, parent, made.now, key)
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
        refusal = self.refusals.refuse(request, why)
        onward = self.routing.onward(attempt.route, why) if attempt.route is not None else None
        return refusal if onward is None or _is_ending(attempt.parent) else onward

    def _answered_before(self, parent: Frame, request: Request, earlier: EarlierAnswer) -> Response:
        """Answer a caller with the answer that it got before, and record that."""
        response = given_again(request, earlier)
        self.recording.notice(parent, f"{earlier.response.id} is asked again and answered with its earlier answer")
        return response

    async def routed(self, parent: Frame, frame: Frame) -> Response:
        """Return the outcome of a routed delegation, or of the fallback that replaced it."""
        if frame.hedge_ms is not None:
            from remit.runtime.delegation.hedging import race  # few capabilities use it

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

    async def _shown(self, attempt: CallAttempt) -> ViewRequest | None:
        """Return the part of the caller's conversation that the callee should see, before it is cut to fit."""
        parts, parent, call, entry = self.parts, attempt.parent, attempt.call, attempt.entry
        card = entry.card if entry is not None else None
        request = draft(parent, call, card, attempt.path, 0, 0, parts.limits)
        room, of = parent.request.remit.context_tokens, parent.request.session or parent.path
        room = room if call.context_tokens is None else min(room, call.context_tokens)
        # A remote agent keeps what it was shown as such, and not as part of its conversation.
        to = None if entry is not None and isinstance(entry.agent, Remote) else call.session
        return await parts.sessions.show(request, of=of, frame=parent, run=parent.run, to=to, room=room)

    def turn_down(self, parent: Frame, call: Call, path: str, why: Fault) -> Response:
        """Record that a call is refused before it is judged, and return the refusal."""
        return self.refusals.refuse(undrafted(parent, call, path), why)


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
        wrong = error.fault
        message = f"the call is not valid: {wrong.message}"
        raise RemitError(fault(Code.INPUT_VALIDATION_FAILED, message, problems=wrong.problems)) from error
