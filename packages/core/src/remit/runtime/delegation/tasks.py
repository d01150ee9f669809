"""The task of each delegation: start, wait, stop, abandon."""

import asyncio
import logging
from collections.abc import Iterable, Sequence
from contextlib import nullcontext, suppress

from msgspec.structs import replace

from remit.policy.breaker import PROBE_NOTICE
from remit.policy.weight import is_light_response
from remit.protocol.envelope import Response
from remit.protocol.errors import Code, Fault, RemitError, fault
from remit.protocol.lifecycle import DelegationState, Status
from remit.protocol.records import Kind
from remit.runtime import journal
from remit.runtime.answer_cache import Flight, Landing, Lookup, answered_before, failed_beside, landing, moment
from remit.runtime.clock import TimerWheel
from remit.runtime.context import RunRecording, RuntimeContext, SharedAnswers
from remit.runtime.delegation.repeats import circling, watch
from remit.runtime.delegation.response import ended_response, for_record, stopped
from remit.runtime.delegation.settlement import Settlement
from remit.runtime.frames import Frame, SlotGivenUp
from remit.runtime.ports import NobodyServesError, Remote


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


log = logging.getLogger("remit")

# Bound once, because every hop needs them: looking up an enum member costs as much as a guard.
_DELEGATION = Kind.DELEGATION


class DelegationTasks:
    """Starts delegations, waits for them and stops them."""

    def __init__(self, parts: RuntimeContext, recording: RunRecording, cached: SharedAnswers) -> None:
        self.parts = parts
        self.recording = recording
        self.cached = cached
        self.abandoned: set[asyncio.Task[None]] = set()
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
                asked = watch(parent, request.target, capability, request.objective, request.input)
                if asked is not None:
                    frame.asked = asked
                    if asked.circles:
                        self.recording.warn(frame, circling(parent, request.target))
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
        grace_end = self.parts.clock.now() + self.parts.limits.grace_ms / 1_000
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
        while not frame.abandoned and any(not isinstance(each.state, Status) for each in frame.children or ()):
            # If told to stop meanwhile, they are stopping already: only the waiting begins again.
            with suppress(asyncio.CancelledError):
                await self.end(tuple(frame.children), f"{frame.card.name} answered without waiting for it")
        if frame.flow is not None and self.parts.outflow.is_long(frame):
            with suppress(asyncio.CancelledError):
                await self.parts.outflow.finish_long(frame)
        if frame.stopping is not None or not (response is frame.short_text or is_light_response(response)):
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

    def _abandon(self, frame: Frame) -> None:
        frame.abandoned = True
        grace_end = self.parts.clock.now() + self.parts.limits.grace_ms / 1_000
        for above in frame.lineage()[1:]:
            # It could not stop before this one did, so its own grace time starts now.
            if above.stopping is not None:
                self._wheel.discard(above, above.tick)
                above.tick = self._wheel.add(above, grace_end)
        if frame.task is not None:
            self.abandoned.add(frame.task)
            frame.task.add_done_callback(self.abandoned.discard)
        log.warning("agent %s ignores cancellation; %s was abandoned", frame.card.name, frame.path)
        grace_ms = self.parts.limits.grace_ms
        self.recording.notice(frame, f"{frame.card.name} did not stop within {grace_ms} ms and was abandoned")
        assert frame.stopping is not None
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


def _too_late(frame: Frame) -> Fault:
    return fault(Code.TIMEOUT, f"Delegation timeout after {frame.request.remit.time_ms}ms")
