"""The task of each delegation: start, wait, stop; and the one place where delegations end."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import nullcontext, suppress
from functools import partial
from typing import Any, NamedTuple

from msgspec.structs import replace

from remit.policy.breaker import PROBE_NOTICE, key_of
from remit.policy.redaction import Held, Raw, is_plain, strike
from remit.policy.verdict import Sealing
from remit.policy.weight import LIGHT, is_light, is_light_response
from remit.ports import NobodyServesError, Remote
from remit.protocol.envelope import Response
from remit.protocol.errors import Code, Fault, RemitError, fault
from remit.protocol.lifecycle import DelegationState, Status
from remit.protocol.records import Kind
from remit.runtime import journal
from remit.runtime.answer_cache import Flight, Landing, Lookup, answered_before, failed_beside, landing, moment
from remit.runtime.aside import aside
from remit.runtime.clock import TimerWheel
from remit.runtime.context import RunRecording, RuntimeContext
from remit.runtime.delegation import repeats
from remit.runtime.delegation.answers import judged_unfinished, withheld
from remit.runtime.delegation.repeats import watch
from remit.runtime.delegation.response import ended_response, for_record, stopped
from remit.runtime.frames import Frame, SlotGivenUp
from remit.runtime.redactor import RedactedValues
from remit.runtime.sessions import FACT_LENGTH, MOST_NEW_FACTS, memorable

log = logging.getLogger("remit")

# A callee whose time is over may clean up for a tenth of it, which is what its caller keeps back for itself: so the
# answer leaves in time; or for so many milliseconds if that is more, because clean-up waits for the event loop.
GRACE_SHARE, LEAST_GRACE_MS = 10, 100
# Bound once, because every hop needs them: looking up an enum member costs as much as a guard.
_RESULT = Kind.RESULT


class CachedAnswers:
    """Answers delegations from the cache, or from an equal delegation in flight."""

    def __init__(self, parts: RuntimeContext) -> None:
        self.parts = parts

    async def answer(self, frame: Frame, wanted: Lookup) -> Response:
        """Answer from the cache or from an equal request in flight; otherwise execute it for all who wait."""
        cache, clock, changed = self.parts.cache, self.parts.clock, frame.run.changed_at
        while True:
            if (known := cache.get(wanted.key, clock.now(), changed)) is not None:
                wanted.follows = True
                return for_record(answered_before(frame.request, known))
            if wanted.likeness is not None and (known := cache.get_alike(wanted.likeness, clock.now(), changed)):
                wanted.follows = True
                return for_record(answered_before(frame.request, known, "similar"))
            flight = cache.flights.get(wanted.key)
            # A delegation that works for others who wait never waits for one of them: that could deadlock.
            if any(above.lookup is not None and above.lookup.leads for above in frame.lineage()[1:]):
                break
            if flight is None:
                wanted.leads = True
                cache.flights[wanted.key] = Flight(asyncio.get_running_loop().create_future(), moment())
                break
            if flight.begun < changed:
                break  # it may not see what this run has changed
            wanted.follows = True
            await asyncio.wait({flight.landed})  # it continues, whichever of those that wait is cancelled
            match flight.landed.result():
                case Response() as response:
                    return for_record(answered_before(frame.request, response))
                case Code() as code:
                    return failed_beside(frame.request, code)
                case None:
                    wanted.follows = False
        wanted.begun = moment()
        response = await self.parts.transport.request(frame.request.target, frame.request, frame.deadline)
        return replace(response, cache="miss")

    def land(self, frame: Frame, wanted: Lookup, response: Response, now: float) -> None:
        """Give the answer to those who wait for an equal request, or let one of them execute it."""
        landed: Landing = None
        try:
            if not wanted.follows:
                landed = landing(wanted, response, frame.run.known, session_read=frame.session_read)
            if isinstance(landed, Response):
                landed = for_record(landed)  # a caller that modifies its copy changes nobody else's
                until = now + wanted.ttl_ms / 1_000
                self.parts.cache.put(wanted.key, landed, until, wanted.likeness, wanted.begun)
        finally:
            self.let_go(wanted, landed)

    def let_go(self, wanted: Lookup, landed: Landing) -> None:
        if wanted.leads:
            wanted.leads = False
            self.parts.cache.flights.pop(wanted.key).landed.set_result(landed)


class Settlement:
    """The one place where delegations end."""

    def __init__(
        self, parts: RuntimeContext, recording: RunRecording, cached: CachedAnswers, wheel: TimerWheel[Frame]
    ) -> None:
        self.parts = parts
        self.recording = recording
        self.cached = cached
        self._wheel = wheel

    async def settle_large(self, frame: Frame, response: Response) -> None:
        """End a delegation whose response may have to be examined outside the event loop first."""
        while True:
            stopping, run, parent = frame.stopping, frame.run, frame.parent
            if stopping is not None:
                response = self._of_stopped(frame, stopping) if self.parts.answer_guards else stopped(frame, stopping)
            if isinstance(frame.state, Status) or is_light_response(response):
                self.settle(frame, response)
                return
            work = partial(self._look_through, frame, response, run.sealing, dict(run.known), parent and parent.held)
            # If it was told to stop meanwhile, it ends with what it had by then.
            with suppress(asyncio.CancelledError):
                inspection = await aside.run(work)
                # Secrets that another part of the run learned meanwhile have to be redacted here too.
                if frame.stopping is stopping and inspection.sealing is run.sealing:
                    self.settle(frame, inspection.clean, inspection)
                    return

    def settle(self, frame: Frame, response: Response, inspection: "ResponseInspection | None" = None) -> None:
        """Settle, record and deliver the outcome exactly once, whoever comes first.

        A large response was *looked* through before, outside the event loop.
        """
        if isinstance(frame.state, Status):
            self.recording.notice(frame, "its result arrived after it was abandoned and was dropped")
            return
        now = self.parts.clock.now()
        if now >= frame.deadline and self._is_overdue(frame):
            frame.stopping, inspection = _too_late(frame), None
        if frame.stopping is not None and inspection is None:
            response = self._of_stopped(frame, frame.stopping)
        judged, run, parent = response, frame.run, frame.parent
        if response.fault is not None:
            if frame.faults_below and key_of(response.fault) in frame.faults_below:
                frame.passed_on = True
            if frame.doubt and not run.handed_back:
                response = self._in_doubt(frame, response, response.fault)
            elif response.fault.code is Code.OUTCOME_UNKNOWN and _reports_no_usage(frame):
                frame.meter_all()
        response = self._with_figures(frame, response, now)
        if inspection is not None:
            if inspection.struck:
                self.parts.redactor.keep_taken(run, inspection.struck, inspection.taken, of_user=True)
        elif run.sealing is not None and not is_plain(response, run.sealing.detect):
            response = self._redacted(frame, response, run.sealing)
        if frame.flow is not None:
            self.parts.outflow.finish(frame)
        frame.advance(response.status)
        self._wheel.discard(frame, frame.tick)
        # An unknown outcome blames nobody; a missing answer blames the callee.
        self.parts.ledger.close(frame, judged if frame.doubt else response, now, self.parts.limits.delegation_time_ms)
        if parent is not None and response.fault is not None:
            parent.note_fault_below(response.fault)
        outcome = replace(response, findings=()) if response.findings and parent is not None else response
        if inspection is not None and parent is not None and inspection.held is parent.held:
            outcome = replace(outcome, **inspection.restored)
        elif run.known and parent is not None:
            outcome = self.parts.redactor.for_caller(outcome, parent)
        if parent is not None:
            repeats.note_end(frame, parent, outcome)
        try:
            if frame.lookup is not None:
                self.cached.land(frame, frame.lookup, replace(response, findings=()), now)
            if parent is not None:  # a root response is stored by its run
                recorded = for_record(response) if inspection is None else inspection.on_record(response)
                request, wall_ms = frame.request, self.parts.clock.wall_ms
                at_ms = request.created_ms + response.duration_ms if request.created_ms else wall_ms()
                session = response.session or frame.path
                self.parts.store.append(_RESULT, at_ms, request.run, session, recorded, run.epoch)
            if response.new_facts:
                self._keep_facts(frame, response.new_facts)
            if run.steps is not None and parent is not None and not run.handed_back:
                self.recording.note_step(frame, journal.JournalStep(frame.step, True, outcome))
                run.unsaved = True
        finally:
            # Whatever a store does, nobody waits for an outcome that has been settled.
            if not frame.outcome.done():
                frame.outcome.set_result(outcome)

    def _of_stopped(self, frame: Frame, why: Fault) -> Response:
        response = _stopped(frame, why)
        return judged_unfinished(self.parts, frame, response) if self.parts.answer_guards else response

    def _is_overdue(self, frame: Frame) -> bool:
        """Return whether an agent's time was over before it ended, and only a blocked loop kept it from being stopped.

        A remote outcome is reported all the same: it is known.
        """
        if frame.stopping is not None or frame.pauses or isinstance(frame.agent, Remote):
            return False
        return bool(frame.tick) and self._wheel.is_due(frame.tick)

    def _with_figures(self, frame: Frame, response: Response, now: float) -> Response:
        """Return the response with its usage; if it used more than was granted, it has failed."""
        if (warning := repeats.note_answer(frame, response)) is not None:
            self.recording.warn(frame, warning)
        duration_ms = int((now - frame.started) * 1_000 + 0.5)
        if duration_ms:
            queued_ms = int((frame.taken_s - frame.started) * 1_000 + 0.5)
            response = replace(response, duration_ms=duration_ms, queued_ms=queued_ms)
            if frame.waited_s:
                response = replace(response, waited_ms=round(frame.waited_s * 1_000))
        if frame.warnings:
            response = replace(response, warnings=(*response.warnings, *frame.warnings))
        if frame.prompt or frame.completion or frame.bill is not None:
            response = replace(response, usage=frame.usage())
        if frame.drawn and (more := frame.used - (frame.granted - frame.drawn)) > 0:
            self.recording.notice(frame, f"{frame.card.name} took {more} more tokens from its caller")
        if response.usage.overrun:
            message = f"{frame.card.name} spent {frame.used} tokens of {frame.granted} granted"
            if response.ok:
                response = replace(response, status=Status.FAILED, fault=fault(Code.TOKEN_BUDGET_EXCEEDED, message))
            self.recording.notice(frame, message, Code.TOKEN_BUDGET_EXCEEDED)
        if frame.purse is not None:
            why = frame.purse.fault(frame.path, frame.card.name, self.parts.limits.currency)
            if why is not None:
                response = replace(response, status=Status.FAILED, fault=why) if response.ok else response
                self.recording.notice(frame, why.message, why.code)
        return response

    def _look_through(
        self, frame: Frame, response: Response, sealing: Sealing | None, known: dict[str, Raw], held: Held | None
    ) -> "ResponseInspection":
        """Return a large response as it is stored, with everything derived from it; it changes no state."""
        struck: dict[str, Raw] = {}
        clean = response if sealing is None else self._struck(frame, response, sealing, struck)
        fresh = {token: raw for token, raw in struck.items() if token not in known}
        taken = self.parts.redactor.take(frame.run.scope, struck, fresh, of_user=True)
        recorded = for_record(clean)
        restored: dict[str, Any] = {}
        if frame.parent is not None:
            given = self.parts.redactor.for_caller(clean, frame.parent, known | struck)
            fields = ((name, getattr(given, name)) for name in _RESPONSE_TEXTS)
            restored = {name: value for name, value in fields if value is not getattr(clean, name)}
        return ResponseInspection(clean, sealing, struck, taken, recorded, held, restored)

    def _in_doubt(self, frame: Frame, response: Response, why: Fault) -> Response:
        """Return the end of a delegation that may have been executed elsewhere, stopped before that was known."""
        if isinstance(frame.agent, Remote) or frame.parent is not None:
            frame.meter_all()
        if frame.parent is not None and frame.parent.stopping is not None:
            frame.parent.doubt = frame.parent.doubt or frame.doubt  # it will not see this any more
        unknown = fault(Code.OUTCOME_UNKNOWN, f"{why.message}; {frame.doubt}", detail=why.detail)
        return replace(response, status=Status.FAILED, fault=replace(unknown, origin=why.origin))

    def _redacted(self, frame: Frame, response: Response, sealing: Sealing) -> Response:
        """Return the response as it is stored, and keep the redacted values apart."""
        struck: dict[str, Raw] = {}
        clean = self._struck(frame, response, sealing, struck)
        if struck:
            # Values found on the way up are for the user, and not for agents in between that did not have them before.
            self.parts.redactor.keep(frame.run, struck, of_user=True)
        return clean

    def _struck(self, frame: Frame, response: Response, sealing: Sealing, struck: dict[str, Raw]) -> Response:
        """Return the response as it is stored, or as a failure if it cannot be redacted."""
        try:
            clean = strike(replace(response, fault=None) if response.fault is not None else response, sealing, struck)
        except Exception as error:  # noqa: BLE001 - logged without secret values
            struck.clear()
            frame.partial = frame.streamed = None  # these could not be redacted either
            if isinstance(error, RemitError):
                why = f"the answer of {frame.card.name} is invalid: {error.fault.message}"
                failed = ended_response(frame, Status.FAILED, fault(Code.RESULT_VALIDATION_FAILED, why))
            else:
                log.error("a detector failed on %s: %s", frame.path, self.parts.redactor.worded(error, sealing))
                what = f"({type(error).__name__}), so it is withheld"
                why = f"the answer of {frame.card.name} could not be redacted {what}"
                failed = ended_response(frame, Status.FAILED, fault(Code.DELEGATION_FAILED, why))
            return replace(failed, usage=response.usage)
        # Error texts are never restored, because they end up in logs.
        return (
            clean
            if response.fault is None
            else replace(clean, fault=self.parts.redactor.clean(response.fault, sealing))
        )

    def _keep_facts(self, frame: Frame, stated: tuple[str, ...]) -> None:
        """Store facts for the user and the conversation, at most a bounded number per answer."""
        facts, user = memorable(stated), frame.request.remit.user
        if len(facts) < len(stated):
            rest = f"{len(stated) - len(facts)} of {len(stated)} facts of {frame.card.name} are not stored"
            self.recording.notice(
                frame, f"{rest}: at most {MOST_NEW_FACTS} of one answer are, of {FACT_LENGTH} characters each"
            )
        self.parts.store.remember(user, frame.run.id, facts, frame.run.epoch)
        self.parts.redactor.keep_facts(frame.run, user, facts)
        self.parts.sessions.note_facts(frame.run, facts, frame.card.name)


# The texts of a response; the rest are names and numbers.
_RESPONSE_TEXTS = (
    *("result", "summary", "artifacts", "new_facts", "sources"),
    *("warnings", "finished", "unfinished", "metadata", "files"),
)


class ResponseInspection(NamedTuple):
    """What was derived from a large response outside the event loop."""

    clean: Response
    sealing: Sealing | None
    struck: dict[str, Raw]
    taken: RedactedValues
    recorded: Response
    held: Held | None
    """The values that its caller held at that time."""
    restored: dict[str, Any]
    """The fields whose values differ between the caller's response and the stored one."""

    def on_record(self, response: Response) -> Response:
        """Return the response for the record: a copy, so that the caller's changes do not affect it."""
        kept = self.recorded
        return replace(response, result=kept.result, artifacts=kept.artifacts, metadata=kept.metadata)


def _stopped(frame: Frame, why: Fault) -> Response:
    """Return the response of a delegation that was stopped, with its partial answer unless that is large."""
    response = stopped(frame, why)
    if is_light_response(response):
        return response
    # Only for an agent that does not stop: nothing can be awaited for it any more.
    frame.partial = frame.streamed = None
    return replace(
        stopped(frame, why), warnings=(f"What was finished is not stored: it is larger than {LIGHT} characters.",)
    )


def _reports_no_usage(frame: Frame) -> bool:
    """Return whether a peer that was called did not say what it had spent."""
    return isinstance(frame.agent, Remote) and frame.parent is not None and not frame.used


def _too_late(frame: Frame) -> Fault:
    return fault(Code.TIMEOUT, f"Delegation timeout after {frame.request.remit.time_ms}ms")


# Bound once, because every hop needs them: looking up an enum member costs as much as a guard.
_DELEGATION = Kind.DELEGATION


class DelegationTasks:
    """Starts delegations, waits for them and stops them."""

    def __init__(self, parts: RuntimeContext, recording: RunRecording, cached: CachedAnswers) -> None:
        self.parts = parts
        self.recording = recording
        self.cached = cached
        self.abandoned: set[asyncio.Task[None]] = set()
        self.judge_answer: Callable[[Frame, Response], Awaitable[Response]] | None = None
        """What judges an answer before its caller gets it; it may ask a person, for which it needs these tasks."""
        self._wheel: TimerWheel[Frame] = TimerWheel(parts.clock, self._due)
        self.settlement = Settlement(parts, recording, cached, self._wheel)

    def start(self, frame: Frame) -> Frame:
        """Record and start a delegation that was admitted and reserved."""
        request, parent, capability = frame.request, frame.parent, frame.request.capability
        if parent is not None:
            at_ms = request.created_ms or self.parts.clock.wall_ms()
            recorded = frame.recorded or request
            session = request.session or frame.path
            self.parts.store.append(_DELEGATION, at_ms, request.run, session, recorded, frame.run.epoch)
            if frame.route is None or not frame.route.leg:
                light = request.input is None or is_light(request.input)
                watched = parent, request.target, capability, request.objective, request.input
                frame.past_call = watch(*watched) if light else None
        if capability is not None and frame.run.known:
            self.recording.warn_of_tokens(frame, capability)
        if frame.is_probe:
            self.recording.notice(frame, PROBE_NOTICE)
        loop = asyncio.get_running_loop()
        # Future and task are made directly: the loop's own methods add only checks, at half a microsecond. And a task
        # factory of the program would not do: a task that starts eagerly would end before its frame knows it.
        frame.outcome = asyncio.Future(loop=loop)
        if frame.stopping is not None:
            self.settlement.settle(frame, stopped(frame, frame.stopping))
            return frame
        frame.tick = self._wheel.add(frame, frame.deadline)
        # A name of its own is worth more than `Task-7`, and costs less to make.
        frame.task = asyncio.Task(self._carry(frame), loop=loop, name=frame.path)
        return frame

    async def join(
        self,
        parent: Frame | None,
        frames: Sequence[Frame],
        outcomes: Sequence[asyncio.Future[Response]] | None = None,
    ) -> list[Response]:
        """Wait for delegations. The caller's slot is free meanwhile; if the caller is cancelled, so are they.

        *outcomes* are awaited in place of the frames' own, where those may not be final.
        """
        async with nullcontext() if parent is None else SlotGivenUp(parent):
            try:
                return [await outcome for outcome in outcomes or [frame.outcome for frame in frames]]
            except asyncio.CancelledError:
                await self.end(frames, "its caller was cancelled")
                raise

    async def end(self, frames: Iterable[Frame], reason: str) -> None:
        """Stop what is still in flight and return once it has ended or was abandoned."""
        going = [frame for frame in frames if not isinstance(frame.state, Status)]
        for frame in going:
            if frame.outcome.cancelled():
                frame.outcome = asyncio.get_running_loop().create_future()
            self.stop(frame, fault(Code.CANCELLED, f"{frame.request.target} was cancelled: {reason}"))
        for frame in going:
            await frame.outcome

    def stop(self, frame: Frame, why: Fault) -> None:
        """Cancel a delegation and everything below it at once; each then has the grace time to clean up."""
        grace_end = self._grace_end(frame, why)
        if frame.children and why.code is Code.TIMEOUT:
            frame.passed_on = True  # its time was used by those that it waited for
        for each in frame.subtree():
            if each.stopping is not None or isinstance(each.state, Status):
                continue
            above = fault(
                Code.CANCELLED,
                f"{each.request.target} was cancelled: {frame.request.target}, which it worked for, was stopped",
            )
            each.stopping = why if each is frame else above
            if each.doubt and not isinstance(each.agent, Remote):
                each.doubt = ""  # it had begun and is stopped: that is the whole reason
            if each.lookup is not None:
                self.cached.let_go(each.lookup, None)  # those who wait need not wait for its cleanup
            if each.task is None:
                continue  # not started yet: it will see that it must not start
            self._wheel.discard(each, each.tick)
            each.tick = self._wheel.add(each, grace_end)
            each.task.cancel()
            if not each.begun:
                # A task that is cancelled before its first step never runs its own cleanup.
                self.settlement.settle(each, stopped(each, each.stopping))

    async def _carry(self, frame: Frame) -> None:
        frame.begun = True
        try:
            if frame.run.steps is not None and frame.parent is not None:
                await self._note_begun(frame)
            if frame.lookup is not None:
                response = await self.cached.answer(frame, frame.lookup)
                if frame.lookup.follows:
                    frame.advance(DelegationState.RUNNING)  # by another in its place
            elif frame.doubt:
                response = await self._request_again(frame)
            else:
                response = await self.parts.transport.request(frame.request.target, frame.request, frame.deadline)
        except asyncio.CancelledError:
            response = ended_response(
                frame, Status.FAILED, fault(Code.DELEGATION_FAILED, f"{frame.card.name} cancelled itself")
            )
        except NobodyServesError:
            response = ended_response(
                frame, Status.FAILED, fault(Code.DELEGATION_UNAVAILABLE, f"nobody serves {frame.request.target}")
            )
        except TimeoutError:
            response = ended_response(frame, Status.TIMEOUT, _too_late(frame))
        except RemitError as error:
            status = Status.REFUSED if error.fault.code is Code.OVERLOADED else Status.FAILED
            response = ended_response(frame, status, error.fault)
        except Exception as error:  # noqa: BLE001 - logged without secret values
            log.error("the transport failed on %s: %s", frame.path, self.parts.redactor.traced(error))
            response = ended_response(
                frame, Status.FAILED, fault(Code.DELEGATION_FAILED, f"the transport failed: {type(error).__name__}")
            )
        if self.parts.answer_guards and self.judge_answer and not (frame.stopping or frame.consulted):
            try:
                response = await self.judge_answer(frame, response)
            except asyncio.CancelledError:
                why = fault(Code.CANCELLED, f"{frame.card.name} was cancelled before its answer was judged")
                response = withheld(frame, response, why)
        # One that has ended stays among the children if its settlement failed, and nothing of it is left to wait for.
        while not frame.abandoned and any(not isinstance(each.state, Status) for each in frame.children or ()):
            # If told to stop meanwhile, they are stopping already: only the waiting begins again.
            with suppress(asyncio.CancelledError):
                await self.end(tuple(frame.children or ()), f"{frame.card.name} answered without waiting for it")
        if frame.flow is not None and self.parts.outflow.is_long(frame):
            with suppress(asyncio.CancelledError):
                await self.parts.outflow.finish_long(frame)
        if frame.stopping is not None or not is_light_response(response):
            await self.settlement.settle_large(frame, response)
        else:
            self.settlement.settle(frame, response)

    async def _request_again(self, frame: Frame) -> Response:
        """Resume a delegation that had begun before a restart; it waits for its turn, however long the queue is."""
        while True:
            try:
                return await self.parts.transport.request(frame.request.target, frame.request, frame.deadline)
            except RemitError as error:
                if not frame.doubt or error.fault.code is not Code.OVERLOADED:
                    raise
                await asyncio.sleep((error.fault.retry_after_ms or 0) / 1_000)

    def _due(self, frame: Frame, tick: int) -> None:
        if tick != frame.tick:
            return
        if frame.stopping is None:
            self.stop(frame, _too_late(frame))
        elif not frame.children:
            self._abandon(frame)

    def _grace_end(self, frame: Frame, why: Fault) -> float:
        """Return when a delegation that is stopped now is abandoned: soon, if its time is over.

        A remote agent keeps all of the grace time, or a known outcome would be reported as unknown.
        """
        grace_ms = self.parts.limits.grace_ms
        if why.code is Code.TIMEOUT and not any(isinstance(each.agent, Remote) for each in frame.subtree()):
            grace_ms = min(grace_ms, max(LEAST_GRACE_MS, frame.request.remit.time_ms // GRACE_SHARE))
        return self.parts.clock.now() + grace_ms / 1_000

    def _abandon(self, frame: Frame) -> None:
        frame.abandoned = True
        assert frame.stopping is not None
        for above in frame.lineage()[1:]:
            # It could not stop before this one did, so its own grace time starts now.
            if above.stopping is not None:
                self._wheel.discard(above, above.tick)
                above.tick = self._wheel.add(above, self._grace_end(above, above.stopping))
        if frame.task is not None:
            self.abandoned.add(frame.task)
            frame.task.add_done_callback(self.abandoned.discard)
        log.warning("agent %s ignores cancellation; %s was abandoned", frame.card.name, frame.path)
        self.recording.notice(frame, f"{frame.card.name} did not stop when it was cancelled, and was abandoned")
        self.settlement.settle(frame, stopped(frame, frame.stopping))

    def close(self) -> None:
        """Stop the timer of all deadlines."""
        self._wheel.stop()

    def pause(self, frame: Frame) -> None:
        """Stop the clocks of *frame* and all above it until `unpause`; several may do so at once."""
        now = self.parts.clock.now()
        for each in frame.lineage():
            each.pauses += 1
            if each.pauses == 1:
                each.paused_since = now
                self._wheel.discard(each, each.tick)

    def unpause(self, frame: Frame) -> None:
        """Restart the clocks; the time in between counts for nobody."""
        now = self.parts.clock.now()
        for each in frame.lineage():
            each.pauses -= 1
            if each.pauses == 0 and each.stopping is None and not isinstance(each.state, Status):
                each.waited_s += now - each.paused_since
                each.deadline += now - each.paused_since
                each.tick = self._wheel.add(each, each.deadline)

    async def _note_begun(self, frame: Frame) -> None:
        if frame.departed is not None:
            return  # the record of it says more
        step = journal.JournalStep(frame.step, local=not isinstance(frame.agent, Remote), tokens=frame.reservation)
        # A repeatable delegation can begin unrecorded. Earlier steps are stored first, also repeatable ones: a model's
        # result costs money to get again.
        if frame.run.unsaved or not journal.is_repeatable(frame.card, frame.request):
            frame.run.unsaved = False
            await journal.note_durably(self.parts.store, frame.run, frame.path, step, self.parts.redactor.keys)
        else:
            self.recording.note_step(frame, step)
