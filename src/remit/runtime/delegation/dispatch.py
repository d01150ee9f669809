"""One delegation, end to end: judged, reserved, carried out, and answered with a response whatever happens."""

import asyncio
import logging
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from remit.policy.reception import context_cut
from remit.policy.redaction import Held, redaction, restore, reveal, strike
from remit.policy.repeats import CallKey, Earlier, beside_of, is_outdated
from remit.policy.verdict import GUARD_FAILED, Ask, Facts, Guard, Refuse, Rewrite, Sealing, judge
from remit.policy.weight import LIGHT, is_light_call, is_light_request, said_in
from remit.protocol.card import AgentCard
from remit.protocol.codec import checked
from remit.protocol.envelope import VERSION, Call, Json, Request, Response, Usage
from remit.protocol.errors import Code, Fault, RemitError, fault
from remit.protocol.lifecycle import Status
from remit.protocol.records import Kind, Notice, Refusal
from remit.protocol.remit import CONTEXT_TOKENS
from remit.runtime import journal
from remit.runtime.answer_cache import Lookup
from remit.runtime.answer_cache import lookup as lookup_of
from remit.runtime.aside import aside
from remit.runtime.delegation.draft import draft, errand_of, granted
from remit.runtime.delegation.guards import GUARDS
from remit.runtime.delegation.repeats import count_change, given_again, is_read_only, keep_answer
from remit.runtime.delegation.response import brief_fault, presentable, refused
from remit.runtime.delegation.routing import Routing
from remit.runtime.delegation.tasks import give_slot, regain_slot
from remit.runtime.ledger import Frame, Route, Run, child_path
from remit.runtime.ports import Owner, Remote
from remit.runtime.redactor import Taken
from remit.runtime.registry import Entry
from remit.runtime.schemas import unfit_input
from remit.runtime.sessions import Shown

log = logging.getLogger("remit")


class Dispatch(Routing):
    """The way from a wanted call to its response."""

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
            await self._give_up(parent, (begun,))
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
                route = route or self.route(parent, call, call.capability, path, owner)
                if route is not None and not route.names:
                    await self.recall()
                    route = self.route(parent, call, call.capability, path, owner)
                if route is not None:
                    target, path = route.names[0], route.leg_path
            entry = parts.registry.agents.get(target) if target is not None else None
            if call.context is not None:
                shown = await self._shown(parent, call, entry, path)
            if call.retry_of is not None and run.steps is not None:
                await self._take_over(parent, call.retry_of, path)
            first = call  # a person's edit is neither what the agent sent nor known before they are asked
            if run.steps is not None and entry is not None and not _is_ending(parent):
                recalled = self._recalled(parent, call, entry, path)
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
                    return self.refuse(request, self._still_true(run, path, entry, call, _too_late_to_ask(parent)))
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
                match self.judge(request, facts, run, looked):
                    case Heavy():
                        sent = self._draft(parent, first, entry, path)
                        looked = await self.look_through(request, facts, run, of_user=False, sent=sent)
                    case Rewrite(request=clean, struck=struck):
                        assert entry is not None, "a guard refuses unknown targets"
                        if call.session is not None and owner is None:
                            # Taken only by who may have it; then all is judged anew, since others may have been first.
                            owner = await parts.store.session(call.session, request.remit.user, request.target)
                            continue
                        if struck:
                            # Guards, and people whom they ask, may have put more into it than the caller sent.
                            self._holds(parent, self._draft(parent, first, entry, path), looked)
                            self.keep(run, struck, looked, of_user=False)
                        if clean.handoff is not None:
                            parts.sessions.heed(run, clean.handoff, clean.origin)
                        frame = self.admitted(clean, entry, run, parent, now, errand)
                        _take_up(frame, step, call.context_tokens)
                        if route is not None:
                            self.under_way(frame, route, hedge=hedge)
                        if request.capability is not None:
                            frame.lookup, frame.beside = self.lookup(request, clean, entry, run), beside_of(request)
                        if before is not None:
                            _go_on(frame, before, entry)
                        return self.start(frame)
                    case Refuse(fault=why) if why.code is Code.CYCLE_DETECTED and earlier is not None:
                        return self._answered_before(parent, request, earlier)
                    case Refuse(fault=why):
                        why = self._still_true(run, path, entry, call, why)
                        refusal = self.refuse(request, why)
                        onward = self.onward(route, why) if route is not None else None
                        if onward is None:
                            return refusal
                        return await self.begin(parent, onward.call, at_once=at_once, route=onward, hedge=hedge)
                    case Ask() as ask:
                        edits = await self._consult(parent, request, ask, questions)
                        # A yes is to what the person was shown: what another makes of it is asked about again.
                        approved = (frozenset[str]() if edits else approved) | {ask.question}
                        questions += 1
                        call = _edited(call, edits)
                        entry = parts.registry.agents.get(target) if target is not None else None
        except RemitError as error:
            why = self._still_true(run, path, entry, call, error.fault)
            return self.refuse(_undrafted(parent, call, path), why)

    def _draft(self, parent: Frame, call: Call, entry: Entry | None, path: str) -> Request:
        """Return the request that a call makes now."""
        parts, now = self.parts, self.parts.clock.now()
        card, caller = entry.card if entry is not None else None, parts.registry.agents[parent.card.name].card
        left_ms = parent.time_left_ms(now)
        return draft(parent, call, card, path, left_ms, parts.clock.wall_ms(), parts.limits, caller)

    def _recalled(
        self, parent: Frame, call: Call, entry: Entry, path: str
    ) -> Response | tuple[bytes, journal.Step | None]:
        """Return what came of a call before a restart; if that is not known, what identifies it and how far it came."""
        request, keys = self._draft(parent, call, entry, path), self.parts.redactor.keys
        step = journal.errand_digest(parent.run, request, keys)
        known = self._recall(parent, request, entry, step)
        if known is not None:
            return known
        before = journal.begun(parent.run, path, keys)
        if before is not None and (gone := _at_home_now(entry, before)) is not None:
            return self.refuse(request, gone)
        return step, before

    def _answered_before(self, parent: Frame, request: Request, earlier: Earlier) -> Response:
        """Give a caller the answer that it got before, and record that."""
        response = given_again(parent, request, earlier)
        self.notice(parent, response.warnings[-1])
        return response

    def lookup(self, request: Request, clean: Request, entry: Entry, run: Run) -> Lookup | None:
        """Return where an earlier answer to the same may be kept."""
        cache, keys = self.parts.cache, self.parts.redactor.keys
        return lookup_of(request, clean, entry.card, known=run.known, generation=cache.generation, keys=keys)

    async def _gone_on_from(self, known: Response, parent: Frame, route: Route | None) -> Frame | Response:
        """Return what came of a call before a restart; of a leg that failed then, what comes of the next one."""
        onward = self.recorded_leg(parent.run, route, route.leg + 1) if route is not None and not known.ok else None
        return known if onward is None else await self.begin(parent, onward.call, route=onward)

    def _still_true(self, run: Run, path: str, entry: Entry | None, call: Call, why: Fault) -> Fault:
        """Return why a call is refused; of one that had begun before a restart, that it may have been done."""
        before = journal.begun(run, path, self.parts.redactor.keys) if run.steps else None
        doubt = "" if before is None else _doubt(before, entry, call.capability)
        if not doubt or why.code is Code.OUTCOME_UNKNOWN:
            return why
        return fault(Code.OUTCOME_UNKNOWN, f"{doubt}; it cannot be resumed now: {why.message}", detail=why.detail)

    async def routed(self, parent: Frame, frame: Frame) -> Response:
        """Return how a routed delegation ended: where another may be asked instead, and does it, how that one's did."""
        if frame.hedge_ms is not None:
            from remit.runtime.delegation.hedging import race  # few capabilities want it

            # Both count as one of those that the caller has in flight.
            frame = await race(
                self,
                frame,
                frame.hedge_ms,
                lambda route: self.begin(parent, route.call, at_once=max(1, parent.in_flight()), route=route),
            )
        response = await frame.outcome
        while (route := self.next_leg(frame, response)) is not None:
            begun = await self.begin(parent, route.call, route=route)
            if isinstance(begun, Response):
                break  # refused: nothing came of it, and what went before stands
            frame = begun
            try:
                response = await frame.outcome
            except asyncio.CancelledError:
                await self.end((frame,), "its caller was cancelled")
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

    async def confirm(self, frame: Frame, question: str) -> bool:
        """Have a person asked in the name of an agent at work, and return whether they agreed."""
        try:
            await self._consult(frame, frame.recorded or frame.request, Ask(question), 0)
        except RemitError as error:
            if error.fault.code is not Code.APPROVAL_DECLINED:
                raise
            return False
        return True

    async def _consult(self, parent: Frame, request: Request, ask: Ask, questions: int) -> dict[str, Json]:
        """Have a person asked, while no time passes for who waits; return what they changed before agreeing."""
        self.pause(parent)
        try:
            return await self.ask_person(request, ask, questions, parent.run.sealing)
        finally:
            self.unpause(parent)
            if parent.stopping is None:  # whoever goes on, after a no too, does so in a slot
                await regain_slot(parent)

    def admitted(
        self, clean: Request, entry: Entry, run: Run, parent: Frame | None, now: float, errand: CallKey | None = None
    ) -> Frame:
        """Reserve what a request was granted, and return its frame: its callee sees what its team lets it see raw."""
        frame = Frame(clean, entry, run, parent, now, errand)
        if run.known:
            frame.request = reveal(clean, run.known, entry.card)
            frame.recorded = clean
        if clean.view is not None:
            frame.recorded = replace(clean, view=clean.view.recorded())
        if parent is None and (remarks := self.parts.remarks.pop(run.id, None)):
            frame.warnings = [*remarks]
        self.parts.ledger.open(frame)
        return frame

    def judge(
        self, request: Request, facts: Facts, run: Run, looked: "Looked | None" = None
    ) -> "Rewrite | Refuse | Ask | Heavy":
        """Ask the guards, then the schema of the capability, then redact; a guard that fails lets nothing through.

        A large request is to be looked through outside the event loop (`look_through`), unless it is refused for
        something that is seen at once; what was *looked* through is judged again by the facts as they are now.
        """
        if is_light_request(request):
            return self._judge(request, facts, run.known)
        facts = replace(facts, counted=True)
        at_once = self._judge_by(GUARDS, request, facts)
        if not isinstance(at_once, Rewrite):
            return at_once
        if looked is None or not looked.is_of(request, facts):
            return HEAVY
        return looked.verdict_on(request)

    async def look_through(
        self, request: Request, facts: Facts, run: Run, *, of_user: bool, sent: Request | None = None
    ) -> "Looked":
        """Judge a large request outside the event loop, and make ready what is to be kept of it.

        *sent* is what the caller itself sent, if it is an agent, which gets that back.
        """
        known, redactor = dict(run.known), self.parts.redactor

        def look() -> Looked:
            verdict = self._judge(request, facts, known)
            taken, mine = None, dict[str, str | int]()
            if isinstance(verdict, Rewrite) and verdict.struck:
                fresh = {token: raw for token, raw in verdict.struck.items() if token not in known}
                taken = redactor.take(run.scope, verdict.struck, fresh, of_user=of_user)
                mine = _struck_in(sent, facts.sealing) if sent is not None else mine
            return Looked(said_in(request), facts.sealing, facts.approved, verdict, taken, mine)

        return await aside.run(look)

    def keep(self, run: Run, struck: Mapping[str, str | int], looked: "Looked | None", *, of_user: bool) -> None:
        """Remember what tokens stand for, as it was made ready if the request was large."""
        if looked is not None and looked.taken is not None:
            self.parts.redactor.keep_taken(run, struck, looked.taken, of_user=of_user)
        else:
            self.parts.redactor.keep(run, struck, of_user=of_user)

    def _judge_by(self, guards: Iterable[Guard], request: Request, facts: Facts) -> Rewrite | Refuse | Ask:
        try:
            return judge(request, facts, guards)
        except Exception as error:  # noqa: BLE001 - logged without what it must not show
            return self._guard_failed(request, error)

    def _judge(self, request: Request, facts: Facts, known: Held) -> Rewrite | Refuse | Ask:
        try:
            verdict = judge(request, facts, self.parts.guards)
            if not isinstance(verdict, Rewrite):
                return verdict
            request = verdict.request
            if request.capability is not None and (why := _misfit(request, facts.target, known)) is not None:
                return Refuse(why)
            last = redaction(request, facts)
            if isinstance(last, Rewrite):
                return Rewrite(last.request, {**verdict.struck, **last.struck}) if verdict.struck else last
            return verdict
        except RemitError as error:
            return Refuse(error.fault)
        except Exception as error:  # noqa: BLE001 - logged without what it must not show
            return self._guard_failed(request, error)

    def _guard_failed(self, request: Request, error: Exception) -> Refuse:
        log.error("a guard failed on %s: %s", request.id, self.parts.redactor.traced(error))
        return Refuse(
            fault(
                Code.PERMISSION_DENIED,
                f"a guard failed ({type(error).__name__}), so nothing is let through",
                suggestion=GUARD_FAILED,
            )
        )

    def refused(self, request: Request, why: Fault) -> Response:
        """Return a refusal, with the version of the agent that was asked for."""
        entry = self.parts.registry.agents.get(request.target)
        return refused(request, why, None if entry is None else entry.card)

    def refuse(self, request: Request, why: Fault) -> Response:
        """Record a refusal and return it."""
        sealing = self.sealing_of(request.run)
        response = self.refused(request, self.parts.redactor.clean(brief_fault(why), sealing))
        caller = self.parts.ledger.frames.get(request.parent) if request.parent is not None else None
        if caller is not None and response.fault is not None:
            caller.note_fault_below(response.fault)
        if not self._is_recorded(request.run, why):
            return response
        if not is_light_request(request):
            request = _without_words(request)
        if request.view is not None:
            # Redacted before it is cut: of half a number no detector knows whose it is.
            request = replace(request, view=self.parts.redactor.clean(request.view, sealing).recorded())
        # Not in the session that it asked for: that may be another user's.
        # Nor in one that a sender names as its own: that is a claim.
        session = (request.parent_session if request.via is None else None) or request.run
        self.record(Kind.REFUSED, request.run, session, Refusal(request=request, response=response))
        return response

    def _is_recorded(self, id: str, why: Fault) -> bool:
        """Say whether one more refusal in a run goes on record: an agent that asks on and on must not fill it."""
        root = self.parts.ledger.frames.get(id)
        if root is None:
            return True
        run, most = root.run, self.parts.limits.max_delegations
        if run.refusals >= most:
            return False
        # Of those for want of room, one is told.
        run.refusals = most if why.code is Code.RECORD_LIMIT_EXCEEDED else run.refusals + 1
        if run.refusals == most:
            self.notice(root, "further refusals in this run are not recorded", why.code)
        return True

    def turn_down(self, parent: Frame, call: Call, path: str, why: Fault) -> Response:
        """Record that a call is not even judged, and return that as its refusal."""
        return self.refuse(_undrafted(parent, call, path), why)

    async def _take_over(self, parent: Frame, of: str, path: str) -> None:
        """Let a call that tries another of the same caller again know what was done below that one."""
        if of.startswith(f"{parent.path}."):
            await self.parts.store.flush()
            steps = await self.parts.store.load(parent.run.id)
            journal.take_over(parent.run, path, parent.run.id, of, steps, self.parts.redactor.keys)

    def _recall(self, parent: Frame, request: Request, entry: Entry, digest: bytes) -> Response | None:
        keys = self.parts.redactor.keys
        repeatable = journal.is_repeatable(entry.card, request)
        step = journal.recall(parent.run, request.id, digest, keys, repeatable=repeatable)
        if isinstance(step, Fault):
            return self.refuse(request, step)
        if step is None or step.response is None:
            return None
        if step.response.status is Status.SUCCESS:
            key = errand_of(request)
            parent.errands = {**(parent.errands or {}), key: None}
            if is_read_only(entry.card, request):
                keep_answer(parent, key, step.response, parent.run.changes, beside_of(request))
        if not is_read_only(entry.card, request):
            count_change(parent)
        if step.response.fault is not None:
            parent.note_fault_below(step.response.fault)
        self._holds(parent, request)
        self.record(Kind.NOTICE, request.run, request.session or request.id, _replayed(request, step))
        if step.earlier:  # what it took was counted in the run that did it
            return replace(step.response, id=request.id, run=request.run, usage=Usage())
        parent.meter(step.response.usage)
        if step.response.usage.overrun:
            parent.run.overrun = True
        return step.response

    def _holds(self, parent: Frame, sent: Request, looked: "Looked | None" = None) -> None:
        """Remember what an agent itself has sent raw: that, and nothing that others put beside it, comes back to it."""
        mine = looked.mine if looked is not None else _struck_in(sent, parent.run.sealing)
        if mine:
            parent.held = {**(parent.held or {}), **mine}


def _doubt(before: journal.Step, entry: Entry | None, asked: str | None) -> str:
    """Say why it is not known what came of a step that was begun before a restart; empty: then nothing came of it."""
    if before.departed is not None:
        return "it had left for another hub before the restart, and may have been done"
    capability = entry.card.capability(asked) if entry is not None and asked is not None else None
    if (entry is not None and isinstance(entry.agent, Remote)) or (capability is not None and capability.read_only):
        return ""
    return "it had begun before the restart, and it is not known how far it came"


def _at_home_now(entry: Entry, before: journal.Step) -> Fault | None:
    """Return what to say of a call that left for a peer before the restart, if its agent lives here now."""
    left = before.departed
    if left is None or isinstance(entry.agent, Remote):
        return None
    what = f"it had left for another hub before the restart, and {entry.card.name} lives in this hub now"
    return fault(Code.OUTCOME_UNKNOWN, f"{what}: it is not known what came of it", detail=f"it was sent to {left.to}")


class Heavy(Struct, frozen=True):
    """Nothing to object so far, and too much to be looked through in the event loop."""


HEAVY = Heavy()


class Looked(NamedTuple):
    """What came of looking a large request through outside the event loop, and what was looked at."""

    said: tuple[Json, ...]
    sealing: Sealing | None
    approved: frozenset[str]
    verdict: Rewrite | Refuse | Ask
    taken: Taken | None
    mine: dict[str, str | int]
    """What its caller itself had put into it."""

    def is_of(self, request: Request, facts: Facts) -> bool:
        """Say whether it is this that was looked at, and nothing was learned meanwhile that is to be struck too."""
        return self.sealing is facts.sealing and self.approved == facts.approved and self.said == said_in(request)

    def verdict_on(self, request: Request) -> Rewrite | Refuse | Ask:
        """Return the verdict; what is left of time and tokens has changed while it was looked through."""
        verdict = self.verdict
        if not isinstance(verdict, Rewrite):
            return verdict
        clean, now = verdict.request, request.remit
        remit = replace(
            clean.remit, time_ms=min(clean.remit.time_ms, now.time_ms), tokens=min(clean.remit.tokens, now.tokens)
        )
        return Rewrite(replace(clean, remit=remit, created_ms=request.created_ms), verdict.struck)


def _struck_in(sent: Request, sealing: Sealing | None) -> dict[str, str | int]:
    mine: dict[str, str | int] = {}
    if sealing is not None:
        with suppress(Exception):  # someone else's detector: what cannot be told to be its own, it does not get
            strike(sent, sealing, mine)
    return mine


def _without_words(request: Request) -> Request:
    """Return a large request as its refusal is recorded: who asked whom, and that it was too large to be kept."""
    return replace(
        request,
        objective=f"[not kept: the request is larger than {LIGHT} characters, and was refused]",
        input=None,
        handoff=None,
        context=None,
        view=None,
        hints=(),
        reason="",
    )


def _name_once(parent: Frame, step: str) -> None:
    if parent.named is None:
        parent.named = set()
    if step in parent.named:
        why = f"{parent.card.name} has made a call named {step} before in this delegation"
        raise RemitError(fault(Code.DUPLICATE_REQUEST, why, suggestion="Give each call a name of its own."))
    parent.named.add(step)


def _edited(call: Call, edits: dict[str, Json]) -> Call:
    return replace(call, **edits) if edits else call


def _misfit(request: Request, card: AgentCard | None, known: Held) -> Fault | None:
    """Say what is wrong with the input of a capability; tokens are judged as what they stand for."""
    capability = card.capability(request.capability) if card is not None and request.capability is not None else None
    schema = capability.input_schema if capability is not None else None
    if schema is None:
        return None
    return unfit_input(request.capability or "", schema, restore(request.input, known), request.input)


def _too_late_to_ask(parent: Frame) -> Fault:
    return fault(Code.CANCELLED, f"{parent.card.name} was told to stop and cannot delegate any more")


def _replayed(request: Request, step: journal.Step) -> Notice:
    when = "in the run that this one tries again" if step.earlier else "before the restart"
    return Notice(delegation=request.id, agent=request.target, text=f"answered from the journal: it was done {when}")


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


def _go_on(frame: Frame, before: journal.Step, entry: Entry) -> None:
    """Let a call go on from where it was before a restart."""
    frame.departed = before.departed
    frame.doubt = _doubt(before, entry, frame.request.capability)


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


def _undrafted(parent: Frame, call: Call, path: str) -> Request:
    """Return as much of a request as can be said of a call that could not be made into one."""
    asking, target = parent.request, call.target or call.capability
    return Request(
        version=VERSION,
        id=path,
        origin=asking.target,
        target=presentable(target),
        remit=asking.remit.narrow(caller=parent.address, time_ms=0, tokens=0),
        run=asking.run,
        parent=parent.path,
        parent_session=asking.session,
    )
