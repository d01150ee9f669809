"""One delegation, from the call to its response."""

import asyncio
import logging

from msgspec.structs import replace

from remit.policy.budget import asked_too_often
from remit.policy.reception import context_cut, of_user
from remit.policy.repeats import CallKey, EarlierAnswer, beside_of, is_outdated
from remit.policy.verdict import ALLOW, Ask, Refuse, Rewrite
from remit.policy.weight import LIGHT_TO_ENCODE, is_light_call, is_light_request
from remit.protocol.codec import checked
from remit.protocol.envelope import Call, Request, Response
from remit.protocol.errors import Code, Fault, RemitError, fault
from remit.protocol.lifecycle import Status
from remit.protocol.remit import CONTEXT_TOKENS
from remit.runtime.aside import aside
from remit.runtime.context import RuntimeContext
from remit.runtime.delegation.admission import Admission, Heavy
from remit.runtime.delegation.approval import Approvals
from remit.runtime.delegation.attempt import CallAttempt
from remit.runtime.delegation.cached_answers import CachedAnswers
from remit.runtime.delegation.draft import call_key_of, draft, draft_again, is_like
from remit.runtime.delegation.recording import DelegationRefusals, RunRecorder, undrafted
from remit.runtime.delegation.repeats import given_again
from remit.runtime.delegation.replay import JournalReplay, restore_departure
from remit.runtime.delegation.routing import Routing
from remit.runtime.delegation.slots import SlotGivenUp
from remit.runtime.delegation.tasks import DelegationTasks
from remit.runtime.frames import Frame, RoutedCall
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
            attempt = CallAttempt(parent, call, route, at_once, hedge)
            try:
                begun = self._start_short_text(attempt) if attempt.is_short_text else None
                if begun is None:
                    begun = await self._try(attempt)
            except RemitError as error:
                why = self.replay.still_true(parent.run, attempt.path, attempt.entry, attempt.call, error.fault)
                return self.refusals.refuse(undrafted(parent, attempt.call, attempt.path), why)
            if not isinstance(begun, RoutedCall):
                return begun
            # The next agent that offers the same capability, judged anew.
            route, call, at_once, hedge = begun, begun.call, attempt.at_once, attempt.hedge

    def _start_short_text(self, attempt: CallAttempt) -> Frame | None:
        """Start a short text that passes all guards like the last one of its caller; None: `_try` has to decide.

        Most calls are such: nothing of them has to be validated, prepared, awaited or refused.
        """
        parts, parent, call, last = self.parts, attempt.parent, attempt.call, attempt.parent.passed
        if last is None or parts.store.full or parent.run.steps is not None or _is_ending(parent):
            return None
        agents, clock = parts.registry.agents, parts.clock
        attempt.entry = entry = agents.get(call.target or "")
        if entry is None or not is_like(last, call, entry.card, agents[parent.card.name].card, parts.limits):
            return None
        attempt.now = now = clock.now()
        left_ms = parent.time_left_ms(now) if parent.pauses else int((parent.deadline - now) * 1_000)
        if parent.left < last.request.remit.tokens:
            return None
        request = draft_again(last, call, attempt.path, left_ms, clock.wall_ms())
        key = call_key_of(request)
        if parent.calls_by_key is not None and key in parent.calls_by_key:
            return None
        verdict = self.admission.allow_again(attempt, request, last)
        if verdict is not ALLOW:
            return self._start(attempt, request, verdict, key) if isinstance(verdict, Rewrite) else None
        # It has no route, capability, hand-off or journal, and asks for no context: nothing else is to be noted.
        return self.tasks.start(self.admission.reserve(request, entry, parent.run, parent, now, key))

    async def _try(self, attempt: CallAttempt) -> Frame | Response | RoutedCall:
        """Start a call, refuse it, or return the route to the next agent."""
        parts, parent, call = self.parts, attempt.parent, attempt.call
        if not attempt.is_short_text:
            call = _checked_call(call) if is_light_call(call) else await aside.run(_checked_call, call)
            attempt.call = attempt.sent = call
        if parts.store.full:
            await parts.store.room()
        if attempt.is_short_text or _is_plain(call):
            attempt.entry = parts.registry.agents.get(call.target) if call.target is not None else None
        else:
            await self._prepare(attempt)
        if parent.run.steps is not None and (known := await self._known_before(attempt)) is not None:
            return known
        while True:
            request = self._draft(attempt)
            if _is_ending(parent):
                return self._refused(attempt, request, _too_late_to_ask(parent))
            if attempt.shown is not None:
                request = await parts.sessions.shown_aside(request, attempt.shown)
            light = attempt.is_short_text or is_light_request(request)
            quick = light or is_light_request(request, LIGHT_TO_ENCODE)
            key = call_key_of(request) if quick else await aside.run(call_key_of, request)
            if (attempt.shown is not None or not light) and attempt.granted(parts.limits) < request.remit.tokens:
                continue  # others were granted tokens while this was examined
            earlier, repeated = None, False
            if parent.calls_by_key is not None and key in parent.calls_by_key:
                earlier = parent.calls_by_key[key]
                # In flight, or done with success and still valid.
                repeated = earlier is None or not is_outdated(earlier, request, parent.run.changes)
            facts = self.admission.facts_of_call(attempt, request, repeated=repeated)
            match self.admission.judge(request, facts, parent.run, attempt.looked, light=light):
                case Rewrite() as verdict:
                    if attempt.call.session is not None and attempt.owner is None:
                        # Taken only by a caller that may have it; then everything is judged again, since another may
                        # have been first.
                        user = request.remit.user
                        attempt.owner = await parts.store.session(attempt.call.session, user, request.target)
                    elif parts.shared is not None and attempt.needs_permit:
                        if (wait_ms := await parts.shared.rate_wait_ms(attempt.card)) > 0:
                            return self._refused(attempt, request, asked_too_often(request.target, wait_ms).fault)
                        # Other calls may have been admitted meanwhile: everything is judged again.
                        attempt.permitted = True
                    else:
                        self.admission.note_passed(attempt, request)
                        return self._start(attempt, request, verdict, key)
                case Heavy():
                    sent = self.admission.draft_now(parent, attempt.sent, attempt.entry, attempt.path)
                    attempt.looked = await self.admission.look_through(
                        request, facts, parent.run, of_user=False, sent=sent
                    )
                case Refuse(fault=why) if why.code is Code.CYCLE_DETECTED and earlier is not None:
                    return self._answered_before(parent, request, earlier)
                case Refuse(fault=why):
                    return self._refused(attempt, request, why)
                case Ask() as ask:
                    await self._ask(attempt, request, ask)

    async def _prepare(self, attempt: CallAttempt) -> None:
        """Resolve the callee, the session, and what the callee is shown."""
        parts, parent, call, route = self.parts, attempt.parent, attempt.call, attempt.route
        if call.step is not None and route is None:
            _name_once(parent, call.step)
        if call.session is not None:
            user = parent.request.remit.user
            session, attempt.owner = await session_of(parts.store, call.session, user)
            if attempt.owner is None:  # agents of two users that begin it at the same time must not share it
                session = of_user(session, user)
            if session != call.session:
                attempt.call = call = replace(call, session=session)
        target = call.target
        if target is None and call.capability is not None:
            route = route or self.routing.route(parent, call, call.capability, attempt.path, attempt.owner)
            if route is not None and not route.names:
                await self.routing.recall()
                route = self.routing.route(parent, call, call.capability, attempt.path, attempt.owner)
            if route is not None:
                target, attempt.path, attempt.route = route.names[0], route.leg_path, route
        attempt.entry = parts.registry.agents.get(target) if target is not None else None
        if call.context is not None:
            attempt.shown = await self._shown(parent, call, attempt.entry, attempt.path)
        if call.retry_of is not None and parent.run.steps is not None:
            await self.replay.take_over(parent, call.retry_of, attempt.path)

    async def _known_before(self, attempt: CallAttempt) -> Response | RoutedCall | None:
        """Return a call's outcome from before a restart; after an attempt that failed then, the route to the next."""
        if attempt.entry is None or _is_ending(attempt.parent):
            return None
        known = await self.replay.find_again(attempt.parent, attempt.call, attempt.entry, attempt.path)
        if not isinstance(known, Response):
            attempt.step, attempt.before = known
            return None
        if attempt.route is None or known.ok:
            return known
        onward = self.routing.recorded_leg(attempt.parent.run, attempt.route, attempt.route.leg + 1)
        if onward is not None:
            attempt.at_once, attempt.hedge = None, False
        return onward or known

    def _draft(self, attempt: CallAttempt) -> Request:
        """Return the request that a call makes now."""
        parts, parent, clock = self.parts, attempt.parent, self.parts.clock
        attempt.now = now = clock.now()
        left_ms = parent.time_left_ms(now) if parent.pauses else int((parent.deadline - now) * 1_000)
        # The card as it is now: a revoked permission is not used any more, not even by a running agent.
        attempt.caller = caller = parts.registry.agents[parent.card.name].card
        entry = attempt.entry
        attempt.card = card = None if entry is None else entry.card
        return draft(parent, attempt.call, card, attempt.path, left_ms, clock.wall_ms(), parts.limits, caller)

    def _start(self, attempt: CallAttempt, request: Request, verdict: Rewrite, key: CallKey) -> Frame:
        """Reserve the grant of a call and start it."""
        parent, entry, clean = attempt.parent, attempt.entry, verdict.request
        assert entry is not None, "a guard refuses unknown targets"
        entry = self.replay.whereabouts(entry, attempt.before) or entry
        clean = self.admission.with_approvals(clean, entry, attempt.approved)
        run = parent.run
        if verdict.struck:
            # Guards, and people they ask, may have added raw values that the caller did not send.
            sent = self.admission.draft_now(parent, attempt.sent, entry, attempt.path)
            self.admission.holds(parent, sent, attempt.looked)
            self.admission.keep(run, verdict.struck, attempt.looked, of_user=False)
        if clean.handoff is not None:
            self.parts.sessions.note_handoff(run, clean.handoff, clean.origin)
        parent.release_journaled(attempt.path)
        frame = self.admission.reserve(clean, entry, run, parent, attempt.now, key)
        _take_up(frame, attempt.step, attempt.call.context_tokens)
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

    async def _ask(self, attempt: CallAttempt, request: Request, ask: Ask) -> None:
        """Ask a person, and continue with what they agreed to."""
        edits = await self.approval.consult(attempt.parent, request, ask, attempt.questions)
        attempt.agreed(ask.question, edits)
        target = attempt.call.target if attempt.route is None else attempt.route.names[0]
        attempt.entry = self.parts.registry.agents.get(target) if target is not None else None

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

    async def _shown(self, parent: Frame, call: Call, entry: RegisteredAgent | None, path: str) -> ViewRequest | None:
        """Return the part of the caller's conversation that the callee should see, before it is cut to fit."""
        parts = self.parts
        card = entry.card if entry is not None else None
        request = draft(parent, call, card, path, 0, 0, parts.limits)
        room, of = parent.request.remit.context_tokens, parent.request.session or parent.path
        room = room if call.context_tokens is None else min(room, call.context_tokens)
        # A remote agent keeps what it was shown as such, and not as part of its conversation.
        to = None if entry is not None and isinstance(entry.agent, Remote) else call.session
        return await parts.sessions.show(request, of=of, frame=parent, run=parent.run, to=to, room=room)

    def turn_down(self, parent: Frame, call: Call, path: str, why: Fault) -> Response:
        """Record that a call is refused before it is judged, and return the refusal."""
        return self.refusals.refuse(undrafted(parent, call, path), why)


def _is_plain(call: Call) -> bool:
    """Return whether the callee is known at once and nothing has to be read before."""
    return (
        call.target is not None
        and call.session is None
        and call.context is None
        and call.step is None
        and call.retry_of is None
    )


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


def _take_up(frame: Frame, step: bytes, context_tokens: int | None) -> None:
    """Note the digest of a call for a restart, and warn its caller if it asks for more context than is allowed."""
    frame.step = step
    if context_tokens is not None and context_tokens > CONTEXT_TOKENS and frame.parent is not None:
        held = frame.parent.request.remit.context_tokens
        if context_tokens > held:
            frame.warnings = [context_cut(context_tokens, held, "context_tokens")]


def _checked_call(call: Call) -> Call:
    """Return a validated copy of the call, or raise with every invalid field."""
    try:
        return checked(call)
    except RemitError as error:
        wrong = error.fault
        message = f"the call is not valid: {wrong.message}"
        raise RemitError(fault(Code.INPUT_VALIDATION_FAILED, message, problems=wrong.problems)) from error
