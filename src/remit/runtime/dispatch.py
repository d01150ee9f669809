"""One delegation, end to end: judged, reserved, carried out in a task of its own, settled, recorded."""

import asyncio
import logging
from collections.abc import Iterable, Sequence
from contextlib import suppress

from msgspec.structs import replace

from remit.policy.verdict import Ask, Facts, Refuse, Rewrite, judge
from remit.protocol.codec import checked
from remit.protocol.envelope import VERSION, Call, Request, Response
from remit.protocol.errors import Code, Fault, RemitError, fault
from remit.protocol.lifecycle import Status, advance
from remit.protocol.records import Kind, Notice, Refusal
from remit.runtime import journal
from remit.runtime.draft import draft, errand_of
from remit.runtime.ledger import Frame
from remit.runtime.parts import Parts
from remit.runtime.ports import NobodyServesError, Owner
from remit.runtime.registry import Entry
from remit.runtime.respond import ended, for_record, presentable, refused, stopped
from remit.runtime.schemas import misfits
from remit.runtime.wheel import Wheel

log = logging.getLogger("remit")

# A guard that still asks after a person has agreed this often is not going to be satisfied.
MAX_QUESTIONS = 8


class Dispatch:
    """Carries out delegations: the way from a wanted call to its response."""

    def __init__(self, parts: Parts) -> None:
        self.parts = parts
        self.abandoned: set[asyncio.Task[None]] = set()
        self._wheel: Wheel[Frame] = Wheel(parts.clock, self._due)

    # ── asking ────────────────────────────────────────────────────────────────────────────────────────────────────────

    async def delegate(self, parent: Frame, call: Call) -> Response:
        """Carry out one call in *parent*'s name and return how it ended, whatever happened."""
        begun = await self.begin(parent, call)
        if isinstance(begun, Response):
            await asyncio.sleep(0)  # who asks again and again must not keep others from running
            return begun
        _give_slot(parent)
        try:
            response = await begun.outcome
        except asyncio.CancelledError:
            await self._give_up(parent, (begun,))
            raise
        parent.waiting -= 1
        if parent.waiting == 0 and parent.slot is not None and not parent.slot.regain_now():
            await parent.slot.regain()
        return response

    async def begin(self, parent: Frame, call: Call, *, at_once: int | None = None) -> Frame | Response:
        """Judge a call and start it, or return the refusal; with a refusal, nothing was started.

        *at_once* is how many delegations the caller wants to have in flight, if that was counted beforehand.
        """
        parts = self.parts
        parent.calls += 1
        path = f"{parent.path}.{parent.calls}"
        owner: Owner | None = None
        approved: frozenset[str] = frozenset()
        try:
            call = _checked_call(call)
            entry = parts.registry.route(call)
            if parts.store.full:
                await parts.store.room()
            if call.session is not None:
                owner = await parts.store.owner(call.session)
            while True:
                now = parts.clock.now()
                left_ms = int((parent.deadline - now) * 1_000)
                card = entry.card if entry is not None else None
                request = draft(parent, call, card, path, left_ms, parts.clock.wall_ms(), parts.limits)
                if parent.stopping is not None or isinstance(parent.state, Status):
                    return self.refuse(request, _too_late_to_ask(parent))
                if parent.run.steps is not None and entry is not None:
                    known = self._recall(parent, request, entry)
                    if known is not None:
                        return known
                errand = errand_of(request)
                ledger = parts.ledger
                facts = Facts(
                    target=card,
                    address=entry.address if entry is not None else "",
                    caller=parent.card,
                    held=parent.request.remit,
                    limits=parts.limits,
                    agents=parts.registry.agents,
                    asked_tools=call.tools,
                    session_user=owner.user if owner is not None else None,
                    session_agent=owner.agent if owner is not None else None,
                    at_once=at_once or parent.in_flight() + 1,
                    repeated=parent.errands is not None and errand in parent.errands,
                    overrun=parent.run.overrun,
                    rate_wait_ms=ledger.rate_wait_ms(card, now) if card is not None and card.rate else 0,
                    breaker_wait_ms=ledger.breaker_wait_ms(request.target, now),
                    approved=approved,
                )
                match self.judge(request, facts):
                    case Rewrite(request=request):
                        assert entry is not None, "a guard refuses unknown targets"
                        if call.session is not None and owner is None:
                            # Taken only by who may have it; then all is judged anew, since others may have been first.
                            owner = await parts.store.session(call.session, request.remit.user, request.target)
                            continue
                        frame = Frame(request, entry, parent.run, parent, now, errand)
                        self.parts.ledger.open(frame)
                        return self.start(frame)
                    case Refuse(fault=why):
                        return self.refuse(request, why)
                    case Ask(question=question):
                        approved = await self._ask_while_clocks_stand(parent, request, question, approved)
        except RemitError as error:
            return self.refuse(_undrafted(parent, call, path), error.fault)

    def judge(self, request: Request, facts: Facts) -> Rewrite | Refuse | Ask:
        """Ask the guards, then the schema of the capability; a guard that fails lets nothing through."""
        try:
            verdict = judge(request, facts, self.parts.guards)
        except Exception as error:
            log.exception("a guard failed on %s", request.id)
            return Refuse(
                fault(Code.PERMISSION_DENIED, f"a guard failed ({type(error).__name__}), so nothing is let through")
            )
        if isinstance(verdict, Rewrite) and request.capability is not None and facts.target is not None:
            capability = facts.target.capability(request.capability)
            schema = capability.input_schema if capability is not None else None
            if schema is not None and (problems := misfits(schema, verdict.request.input)):
                message = f"the input does not fit {request.capability}"
                return Refuse(fault(Code.INPUT_VALIDATION_FAILED, message, problems=problems))
        return verdict

    async def ask_person(self, request: Request, question: str, approved: frozenset[str]) -> frozenset[str]:
        """Return the questions agreed to, this one included, or raise if nobody agreed to it."""
        approver, timeout_ms = self.parts.approver, self.parts.limits.approval_timeout_ms
        if approver is None:
            raise RemitError(fault(Code.APPROVAL_DECLINED, f"nobody is there to be asked: {question}"))
        if question in approved or len(approved) >= MAX_QUESTIONS:
            raise RemitError(fault(Code.APPROVAL_DECLINED, f"asked again after a yes: {question}"))
        try:
            async with asyncio.timeout(timeout_ms / 1_000):
                agreed = await approver(request, question)
        except TimeoutError as error:
            message = f"nobody answered within {timeout_ms} ms: {question}"
            raise RemitError(fault(Code.APPROVAL_DECLINED, message)) from error
        except Exception as error:
            log.exception("the approver failed on %s", request.path)
            message = f"nobody could be asked ({type(error).__name__}): {question}"
            raise RemitError(fault(Code.APPROVAL_DECLINED, message)) from error
        if agreed is not True:
            raise RemitError(fault(Code.APPROVAL_DECLINED, f"declined: {question}"))
        return approved | {question}

    async def _ask_while_clocks_stand(
        self, frame: Frame, request: Request, question: str, approved: frozenset[str]
    ) -> frozenset[str]:
        """Ask a person; meanwhile no time passes for *frame* and all above it, and its slot is free."""
        waiting = frame.lineage()
        now = self.parts.clock.now()
        for each in waiting:
            each.pauses += 1
            if each.pauses == 1:
                each.paused_since = now
                self._wheel.discard(each, each.tick)
        _give_slot(frame)
        try:
            approved = await self.ask_person(request, question, approved)
        finally:
            frame.waiting -= 1
            now = self.parts.clock.now()
            for each in waiting:
                each.pauses -= 1
                if each.pauses == 0 and each.stopping is None and not isinstance(each.state, Status):
                    each.deadline += now - each.paused_since
                    each.tick = self._wheel.add(each, each.deadline)
        await _regain_slot(frame)
        return approved

    def refuse(self, request: Request, why: Fault) -> Response:
        """Record a refusal and return it."""
        response = refused(request, why)
        # Not in the session that it asked for: that may be another user's.
        session = request.parent_session or request.run
        self._record(Kind.REFUSED, request.run, session, Refusal(request=request, response=response))
        return response

    # ── carrying out ──────────────────────────────────────────────────────────────────────────────────────────────────

    def start(self, frame: Frame) -> Frame:
        """Record and set going what was admitted and reserved."""
        request = frame.request
        if frame.parent is not None:
            at_ms = request.created_ms or self.parts.clock.wall_ms()
            self.parts.store.append(Kind.DELEGATION, at_ms, request.run, request.session or frame.path, request)
        loop = asyncio.get_running_loop()
        frame.outcome = loop.create_future()
        if frame.stopping is not None:
            self._close(frame, stopped(frame, frame.stopping))
            return frame
        frame.tick = self._wheel.add(frame, frame.deadline)
        frame.task = loop.create_task(self._carry(frame))
        return frame

    async def join(self, parent: Frame | None, frames: Sequence[Frame]) -> list[Response]:
        """Wait for what was started. The caller's slot is free meanwhile; if the caller is cancelled, so are they."""
        if parent is not None:
            _give_slot(parent)
        try:
            responses = [await frame.outcome for frame in frames]
        except asyncio.CancelledError:
            await self._give_up(parent, frames)
            raise
        if parent is not None:
            parent.waiting -= 1
            await _regain_slot(parent)
        return responses

    async def _give_up(self, parent: Frame | None, frames: Sequence[Frame]) -> None:
        """End what the caller does not wait for any more."""
        try:
            await self.end(frames, "its caller was cancelled")
        finally:
            if parent is not None:
                parent.waiting -= 1
                # Who only gave up waiting, by a time-out of its own, works on, and does so in a slot.
                if parent.stopping is None:
                    await _regain_slot(parent)

    async def end(self, frames: Iterable[Frame], reason: str) -> None:
        """Stop what is still in flight and return once it is gone or abandoned."""
        going = [frame for frame in frames if not isinstance(frame.state, Status)]
        for frame in going:
            if frame.outcome.cancelled():
                frame.outcome = asyncio.get_running_loop().create_future()
            self.stop(frame, fault(Code.CANCELLED, f"{frame.request.target} was cancelled: {reason}"))
        for frame in going:
            await frame.outcome

    def stop(self, frame: Frame, why: Fault) -> None:
        """Cancel a delegation and everything below it, all at once; each then has the grace time to clean up."""
        grace_end = self.parts.clock.now() + self.parts.limits.grace_ms / 1_000
        for each in frame.subtree():
            if each.stopping is not None or isinstance(each.state, Status):
                continue
            above = fault(
                Code.CANCELLED,
                f"{each.request.target} was cancelled: {frame.request.target}, which it worked for, was stopped",
            )
            each.stopping = why if each is frame else above
            if each.task is None:
                continue  # not started yet: it will find that it need not be
            self._wheel.discard(each, each.tick)
            each.tick = self._wheel.add(each, grace_end)
            each.task.cancel()
            if not each.begun:
                # A task that is cancelled before its first step never runs its own end.
                self._close(each, stopped(each, each.stopping))

    async def _carry(self, frame: Frame) -> None:
        frame.begun = True
        try:
            if frame.run.steps is not None and frame.parent is not None:
                await self._note_begun(frame)
            response = await self.parts.transport.request(frame.request.target, frame.request, frame.deadline)
        except asyncio.CancelledError:
            response = ended(frame, Status.FAILED, fault(Code.DELEGATION_FAILED, f"{frame.card.name} cancelled itself"))
        except NobodyServesError:
            response = ended(
                frame, Status.FAILED, fault(Code.DELEGATION_UNAVAILABLE, f"nobody serves {frame.request.target}")
            )
        except TimeoutError:
            response = ended(frame, Status.TIMEOUT, _too_late(frame))
        except RemitError as error:
            status = Status.REFUSED if error.fault.code is Code.OVERLOADED else Status.FAILED
            response = ended(frame, status, error.fault)
        except Exception as error:
            log.exception("the transport failed on %s", frame.path)
            response = ended(
                frame, Status.FAILED, fault(Code.DELEGATION_FAILED, f"the transport failed: {type(error).__name__}")
            )
        while frame.children and not frame.abandoned:
            # Told to stop meanwhile, they are stopping already: only the waiting begins anew.
            with suppress(asyncio.CancelledError):
                await self.end(tuple(frame.children), f"{frame.card.name} answered without waiting for it")
        self._close(frame, response)

    def _close(self, frame: Frame, response: Response) -> None:
        """Settle, record and hand over the outcome: exactly once, whoever comes first."""
        if isinstance(frame.state, Status):
            self.notice(frame, "its result came after it had been abandoned, and was dropped")
            return
        if frame.stopping is not None:
            response = stopped(frame, frame.stopping)
        now = self.parts.clock.now()
        duration_ms = int((now - frame.started) * 1_000 + 0.5)
        if duration_ms:
            queued_ms = int((frame.taken_s - frame.started) * 1_000 + 0.5)
            response = replace(response, duration_ms=duration_ms, queued_ms=queued_ms)
        if frame.used:
            response = replace(response, usage=frame.usage())
        if response.usage.overrun:
            message = f"{frame.card.name} spent {frame.used} tokens of {frame.granted} granted"
            if response.ok:
                response = replace(response, status=Status.FAILED, fault=fault(Code.TOKEN_BUDGET_EXCEEDED, message))
            self.notice(frame, message, Code.TOKEN_BUDGET_EXCEEDED)
        frame.state = advance(frame.state, response.status)
        self._wheel.discard(frame, frame.tick)
        self.parts.ledger.close(frame, response, now)
        if frame.parent is not None:
            self._record(Kind.RESULT, frame.run.id, response.session or frame.path, for_record(response))
            if frame.run.steps is not None:
                self._note_done(frame, response)
        if response.new_facts:
            self.parts.store.remember(frame.request.remit.user, frame.run.id, response.new_facts)
        if not frame.outcome.done():
            frame.outcome.set_result(response)

    def _due(self, frame: Frame, tick: int) -> None:
        if tick != frame.tick:
            return
        if frame.stopping is None:
            self.stop(frame, _too_late(frame))
        elif not frame.children:
            self._abandon(frame)

    def _abandon(self, frame: Frame) -> None:
        frame.abandoned = True
        grace_end = self.parts.clock.now() + self.parts.limits.grace_ms / 1_000
        for above in frame.lineage()[1:]:
            # It could not stop before this one did, and has its own time to clean up from now on.
            if above.stopping is not None:
                self._wheel.discard(above, above.tick)
                above.tick = self._wheel.add(above, grace_end)
        if frame.task is not None:
            self.abandoned.add(frame.task)
            frame.task.add_done_callback(self.abandoned.discard)
        log.warning("agent %s ignores cancellation; %s was abandoned", frame.card.name, frame.path)
        self.notice(frame, f"{frame.card.name} did not stop within {self.parts.limits.grace_ms} ms and was abandoned")
        assert frame.stopping is not None
        self._close(frame, stopped(frame, frame.stopping))

    def close(self) -> None:
        """Stop the clock of all deadlines."""
        self._wheel.stop()

    # ── facts and records ─────────────────────────────────────────────────────────────────────────────────────────────

    def notice(self, frame: Frame, text: str, code: Code | None = None) -> None:
        """Record something that an operator should know."""
        body = Notice(delegation=frame.path, agent=frame.card.name, text=text, code=code)
        self._record(Kind.NOTICE, frame.run.id, frame.request.session or frame.path, body)

    def _record(self, kind: Kind, run: str, session: str, body: "Request | Response | Refusal | Notice") -> None:
        self.parts.store.append(kind, self.parts.clock.wall_ms(), run, session, body)

    # ── the journal ───────────────────────────────────────────────────────────────────────────────────────────────────

    def _recall(self, parent: Frame, request: Request, entry: Entry) -> Response | None:
        step = journal.recall(parent.run, request.id, journal.errand_digest(request), repeatable=entry.card.resumable)
        if isinstance(step, Fault):
            return self.refuse(request, step)
        if step is None or step.response is None:
            return None
        parent.meter(step.response.usage)
        if step.response.usage.overrun:
            parent.run.overrun = True
        if step.response.status is Status.SUCCESS:
            parent.errands = {*(parent.errands or ()), errand_of(request)}
        self._record(Kind.NOTICE, request.run, request.session or request.id, _replayed(request))
        return step.response

    async def _note_begun(self, frame: Frame) -> None:
        store, run = self.parts.store, frame.run
        store.journal(run.id, run.epoch, frame.path, journal.begun(journal.errand_digest(frame.request)))
        if not frame.card.resumable:
            await store.flush()

    def _note_done(self, frame: Frame, response: Response) -> None:
        value = journal.done(journal.errand_digest(frame.request), response=response)
        self.parts.store.journal(frame.run.id, frame.run.epoch, frame.path, value)


def _give_slot(frame: Frame) -> None:
    """Let others have the slot of a delegation that waits, for one or for several."""
    frame.waiting += 1
    if frame.waiting == 1 and frame.slot is not None:
        frame.slot.release()


async def _regain_slot(frame: Frame) -> None:
    """Take the slot again once nothing is waited for any more."""
    if frame.waiting == 0 and frame.slot is not None and not frame.slot.regain_now():
        await frame.slot.regain()


def _too_late(frame: Frame) -> Fault:
    return fault(Code.TIMEOUT, f"Delegation timeout after {frame.request.remit.time_ms}ms")


def _too_late_to_ask(parent: Frame) -> Fault:
    return fault(Code.CANCELLED, f"{parent.card.name} was told to stop and cannot delegate any more")


def _replayed(request: Request) -> Notice:
    return Notice(
        delegation=request.id, agent=request.target, text="answered from the journal: it was done before the restart"
    )


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
