"""One delegation, from the call that is wanted to its response, whatever happens."""

import asyncio
import logging

from msgspec.structs import replace

from remit.policy.reception import context_cut
from remit.policy.repeats import CallKey, Earlier, beside_of, is_outdated
from remit.policy.verdict import Ask, Facts, Refuse, Rewrite
from remit.policy.weight import is_light_call, is_light_request
from remit.protocol.card import AgentCard
from remit.protocol.codec import checked
from remit.protocol.envelope import Call, Json, Request, Response
from remit.protocol.errors import Code, Fault, RemitError, fault
from remit.protocol.lifecycle import Status
from remit.protocol.remit import CONTEXT_TOKENS
from remit.runtime import journal
from remit.runtime.aside import aside
from remit.runtime.context import Parts
from remit.runtime.delegation.admission import Admission, Heavy, Looked
from remit.runtime.delegation.approval import Approvals
from remit.runtime.delegation.cached_answers import CachedAnswers
from remit.runtime.delegation.draft import draft, errand_of, granted
from remit.runtime.delegation.recording import Recording
from remit.runtime.delegation.refusals import Refusals, undrafted
from remit.runtime.delegation.repeats import given_again
from remit.runtime.delegation.replay import Replay, go_on
from remit.runtime.delegation.routing import Routing
from remit.runtime.delegation.slots import give_slot
from remit.runtime.delegation.tasks import Tasks
from remit.runtime.ledger import Frame, Route, Run, child_path
from remit.runtime.ports import Owner, Remote
from remit.runtime.registry import Entry
from remit.runtime.sessions import Shown

log = logging.getLogger("remit")


class Dispatch:
    """The way from a wanted call to its response."""

    def __init__(self, parts: Parts) -> None:
        self.parts = parts
        self.recording = Recording(parts)
        self.refusals = Refusals(parts, self.recording)
        self.admission = Admission(parts)
        self.tasks = Tasks(parts, self.recording, CachedAnswers(parts))
        self.approval = Approvals(parts, self.recording, self.tasks)
        self.routing = Routing(parts)
        self.replay = Replay(parts, self.recording, self.refusals, self.admission)

    async def delegate(self, parent: Frame, call: Call) -> Response:
        """Carry out one call in *parent*'s name and return how it ended, whatever happened."""
        begun = await self.begin(parent, call, hedge=True)
        if isinstance(begun, Response):
            await asyncio.sleep(0)  # who asks again and again must not keep others from running
            return begun
        give_slot(parent)
        try:
            response = await (begun.outcome if begun.route is None else self.routed(parent, begun))
        except asyncio.CancelledError:
            await self.tasks.give_up(parent, (begun,))
            raise
        parent.waiting -= 1
        if parent.waiting == 0 and parent.slot is not None and not parent.slot.regain_now():
            await parent.slot.regain()
        return response

    async def begin(
        self,
        parent: Frame,
        call: Call,
        *,
        at_once: int | None = None,
        route: Route | None = None,
        hedge: bool = False,
    ) -> Frame | Response:
        """Judge a call and start it, or return the refusal; with a refusal, nothing was started.

        *at_once* is how many delegations the caller wants to have in flight, if that was counted beforehand; *route*
        is given if others were asked before; *hedge* promises that its end is awaited by `routed`.
        """
        parts = self.parts
        run: Run = parent.run
        tally, asking = run.tally, parent.card.name
        tally.delegations += 1
        asked = tally.by_agent[asking] = tally.by_agent.get(asking, 0) + 1
        if route is None:
            parent.calls += 1
            path = child_path(parent, parent.calls if call.step is None else call.step)
        else:
            path = route.leg_path
        owner: Owner | None = None
        approved: frozenset[str] = frozenset()
        questions = 0
        step = b""
        before: journal.Step | None = None
        shown: Shown | None = None
        entry: Entry | None = None
        looked: Looked | None = None
        try:
            call = _checked_call(call) if is_light_call(call) else await aside.run(_checked_call, call)
            if call.step is not None and route is None:
                _name_once(parent, call.step)
            if parts.store.full:
                await parts.store.room()
            if call.session is not None:
                owner = await parts.store.owner(call.session)
            target = call.target
            if target is None and call.capability is not None:
                route = route or self.routing.route(parent, call, call.capability, path, owner)
                if route is not None and not route.names:
                    await self.routing.recall()
                    route = self.routing.route(parent, call, call.capability, path, owner)
                if route is not None:
                    target, path = route.names[0], route.leg_path
            entry = parts.registry.agents.get(target) if target is not None else None
            if call.context is not None:
                shown = await self._shown(parent, call, entry, path)
            if call.retry_of is not None and run.steps is not None:
                await self.replay.take_over(parent, call.retry_of, path)
            first = call  # a person's edit is neither what the agent sent nor known before they are asked
            if run.steps is not None and entry is not None and not _is_ending(parent):
                recalled = self.replay.find_again(parent, call, entry, path)
                if isinstance(recalled, Response):
                    return await self._gone_on_from(recalled, parent, route)
                step, before = recalled
            while True:
                now = parts.clock.now()
                left_ms = parent.time_left_ms(now) if parent.pauses else int((parent.deadline - now) * 1_000)
                card: AgentCard | None = entry.card if entry is not None else None
                # As it is now: a permission that was taken away is not used any more, not even by who is at work.
                caller = parts.registry.agents[parent.card.name].card
                request = draft(parent, call, card, path, left_ms, parts.clock.wall_ms(), parts.limits, caller)
                if _is_ending(parent):
                    why = self.replay.still_true(run, path, entry, call, _too_late_to_ask(parent))
                    return self.refusals.refuse(request, why)
                if shown is not None:
                    request = await parts.sessions.shown_aside(request, shown)
                light = is_light_request(request)
                errand = errand_of(request) if light else await aside.run(errand_of, request)
                waited = shown is not None or not light
                if waited and granted(parent, call, card, parts.limits) < request.remit.tokens:
                    continue  # others were granted some while this was looked through
                earlier = None if parent.errands is None else parent.errands.get(errand)
                ledger = parts.ledger
                # More than fifteen keywords cost four times as much: what is seldom there comes after.
                facts = Facts(
                    target=card,
                    address=entry.address if entry is not None else "",
                    caller=caller,
                    held=parent.request.remit,
                    limits=parts.limits,
                    agents=parts.registry.agents,
                    delegations=tally.delegations,
                    agent_delegations=asked,
                    record_bytes=parts.store.sizes.get(run.id, 0),
                    at_once=at_once or parent.in_flight() + 1,
                    repeated=_is_repeated(parent, request, errand, earlier),
                    overrun=run.overrun,
                    # What was let through before a restart is only gone on with.
                    rate_wait_ms=ledger.rate_wait_ms(card, now) if card and card.rate and before is None else 0,
                    breaker_wait_ms=ledger.breaker_wait_ms(request.target, now) if before is None else 0,
                    sealing=run.sealing,
                )
                facts = _with_the_rest(facts, owner, call.tools, approved)
                match self.admission.judge(request, facts, run, looked):
                    case Heavy():
                        sent = self.admission.draft_now(parent, first, entry, path)
                        looked = await self.admission.look_through(request, facts, run, of_user=False, sent=sent)
                    case Rewrite(request=clean, struck=struck):
                        assert entry is not None, "a guard refuses unknown targets"
                        if call.session is not None and owner is None:
                            # Taken only by who may have it; then all is judged anew, since others may have been first.
                            owner = await parts.store.session(call.session, request.remit.user, request.target)
                            continue
                        if struck:
                            # Guards, and people whom they ask, may have put more into it than the caller sent.
                            self.admission.holds(parent, self.admission.draft_now(parent, first, entry, path), looked)
                            self.admission.keep(run, struck, looked, of_user=False)
                        if clean.handoff is not None:
                            parts.sessions.heed(run, clean.handoff, clean.origin)
                        frame = self.admission.reserve(clean, entry, run, parent, now, errand)
                        _take_up(frame, step, call.context_tokens)
                        if route is not None:
                            self.routing.under_way(frame, route, hedge=hedge)
                        if request.capability is not None:
                            frame.lookup, frame.beside = (
                                self.admission.lookup(request, clean, entry, run),
                                beside_of(request),
                            )
                        if before is not None:
                            go_on(frame, before, entry)
                        return self.tasks.start(frame)
                    case Refuse(fault=why) if why.code is Code.CYCLE_DETECTED and earlier is not None:
                        return self._answered_before(parent, request, earlier)
                    case Refuse(fault=why):
                        why = self.replay.still_true(run, path, entry, call, why)
                        refusal = self.refusals.refuse(request, why)
                        onward = self.routing.onward(route, why) if route is not None else None
                        if onward is None:
                            return refusal
                        return await self.begin(parent, onward.call, at_once=at_once, route=onward, hedge=hedge)
                    case Ask() as ask:
                        edits = await self.approval.consult(parent, request, ask, questions)
                        # A yes is to what the person was shown: what another makes of it is asked about again.
                        approved = (frozenset[str]() if edits else approved) | {ask.question}
                        questions += 1
                        call = _edited(call, edits)
                        entry = parts.registry.agents.get(target) if target is not None else None
        except RemitError as error:
            why = self.replay.still_true(run, path, entry, call, error.fault)
            return self.refusals.refuse(undrafted(parent, call, path), why)

    def _answered_before(self, parent: Frame, request: Request, earlier: Earlier) -> Response:
        """Give a caller the answer that it got before, and record that."""
        response = given_again(parent, request, earlier)
        self.recording.notice(parent, response.warnings[-1])
        return response

    async def _gone_on_from(self, known: Response, parent: Frame, route: Route | None) -> Frame | Response:
        """Return what came of a call before a restart; of a leg that failed then, what comes of the next one."""
        if route is None or known.ok:
            return known
        onward = self.routing.recorded_leg(parent.run, route, route.leg + 1)
        return known if onward is None else await self.begin(parent, onward.call, route=onward)

    async def routed(self, parent: Frame, frame: Frame) -> Response:
        """Return how a routed delegation ended: where another may be asked instead, and does it, how that one's did."""
        if frame.hedge_ms is not None:
            from remit.runtime.delegation.hedging import race  # few capabilities want it

            # Both count as one of those that the caller has in flight.
            frame = await race(
                self.tasks,
                self.routing,
                frame,
                frame.hedge_ms,
                lambda route: self.begin(parent, route.call, at_once=max(1, parent.in_flight()), route=route),
            )
        response = await frame.outcome
        while (route := self.routing.next_leg(frame, response)) is not None:
            begun = await self.begin(parent, route.call, route=route)
            if isinstance(begun, Response):
                break  # refused: nothing came of it, and what went before stands
            frame = begun
            try:
                response = await frame.outcome
            except asyncio.CancelledError:
                await self.tasks.end((frame,), "its caller was cancelled")
                raise
        return response

    async def _shown(self, parent: Frame, call: Call, entry: Entry | None, path: str) -> Shown | None:
        """Return what the callee is to be shown of the caller's conversation, before it is known what fits."""
        parts = self.parts
        card = entry.card if entry is not None else None
        request = draft(parent, call, card, path, 0, 0, parts.limits)
        room, of = parent.request.remit.context_tokens, parent.request.session or parent.path
        room = room if call.context_tokens is None else min(room, call.context_tokens)
        # What an agent elsewhere was shown before is kept there as it was shown, and not as part of its conversation.
        to = None if entry is not None and isinstance(entry.agent, Remote) else call.session
        return await parts.sessions.show(request, of=of, frame=parent, run=parent.run, to=to, room=room)

    def turn_down(self, parent: Frame, call: Call, path: str, why: Fault) -> Response:
        """Record that a call is not even judged, and return that as its refusal."""
        return self.refusals.refuse(undrafted(parent, call, path), why)


def _name_once(parent: Frame, step: str) -> None:
    if parent.named is None:
        parent.named = set()
    if step in parent.named:
        why = f"{parent.card.name} has made a call named {step} before in this delegation"
        raise RemitError(fault(Code.DUPLICATE_REQUEST, why, suggestion="Give each call a name of its own."))
    parent.named.add(step)


def _edited(call: Call, edits: dict[str, Json]) -> Call:
    return replace(call, **edits) if edits else call


def _too_late_to_ask(parent: Frame) -> Fault:
    return fault(Code.CANCELLED, f"{parent.card.name} was told to stop and cannot delegate any more")


def _is_ending(frame: Frame) -> bool:
    """Say whether whoever is at work there can ask for nothing more."""
    return frame.stopping is not None or isinstance(frame.state, Status)


def _take_up(frame: Frame, step: bytes, context_tokens: int | None) -> None:
    """Note by what a call is known after a restart, and warn its caller if it asks for more context than there is."""
    frame.step = step
    if context_tokens is not None and context_tokens > CONTEXT_TOKENS and frame.parent is not None:
        held = frame.parent.request.remit.context_tokens
        if context_tokens > held:
            frame.warnings = [context_cut(context_tokens, held, "context_tokens")]


def _is_repeated(parent: Frame, request: Request, key: CallKey, earlier: Earlier | None) -> bool:
    """Say whether a call is the same as one under way, or one that succeeded and whose answer is still true."""
    if parent.errands is None or key not in parent.errands:
        return False
    return earlier is None or not is_outdated(earlier, request, parent.run.changes)


def _with_the_rest(facts: Facts, owner: Owner | None, tools: frozenset[str] | None, approved: frozenset[str]) -> Facts:
    """Return the facts with those that are seldom there."""
    if owner is not None:
        facts = replace(facts, session_user=owner.user, session_agent=owner.agent)
    if tools is not None:
        facts = replace(facts, asked_tools=tools)
    return replace(facts, approved=approved) if approved else facts


def _checked_call(call: Call) -> Call:
    """Return a copy of the call that is what it says it is, or raise with every field that is not."""
    target, objective, tokens = call.target, call.objective, call.max_tokens
    # The commonest call, a short text for a named agent, is told from the others sooner than it could be checked.
    if (
        type(target) is str
        and type(objective) is str
        and (tokens is None or (type(tokens) is int and tokens >= 0))
        and target.isprintable()
        and (target + objective).isascii()
        and 0 < len(target) <= 128
        and len(objective) <= 10_000
        and call == Call(target=target, objective=objective, max_tokens=tokens)
    ):
        return call
    try:
        return checked(call)
    except RemitError as error:
        wrong = error.fault
        message = f"the call is not valid: {wrong.message}"
        raise RemitError(fault(Code.INPUT_VALIDATION_FAILED, message, problems=wrong.problems)) from error
