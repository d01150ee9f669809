"""The leases of a hub on its runs: renewed, taken over from dead hubs, and controlled by other processes."""

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from typing import Protocol, TypeVar

from msgspec.structs import replace

from remit.policy.restoring import restore
from remit.ports import ControlCommand, OrphanedRun, RegisteredAgent, Remote, RunScope, StoreError, unknown_outcome
from remit.protocol.envelope import Request, Response
from remit.protocol.errors import Code, Fault, RemitError, fault
from remit.protocol.records import Progress
from remit.runtime import journal
from remit.runtime.active_runs import ActiveRun, ActiveRuns
from remit.runtime.clock import end_tasks, sleep_to_tick
from remit.runtime.context import Delegator
from remit.runtime.delegation.admission import RootAdmission
from remit.runtime.frames import Frame, Run
from remit.runtime.redactor import has_tokens
from remit.runtime.root_runs import CLOSING, RootRecords

log = logging.getLogger("remit")

T = TypeVar("T")

MAX_ATTEMPTS = 3
# A sender retries within a day; after that its request id may be used again.
KEEP_MS = 24 * 3_600_000
# A person who cancels a run from another terminal should see it end at once: within a fifth of a second in all.
LISTEN_S = 0.1
# Without a run here there is nothing to cancel, and a team file can be reloaded a moment later. Whoever cancels a run
# in its first moment waits this much longer.
IDLE_LISTEN_S = 0.5
# Taking a request takes far less time than it takes to send so many commands.
MOST_UNHEEDED = 1_000
# How many heartbeats a hub sends during a lease.
BEATS = 5
# A worker that has missed so many is late.
MISSED = 2
# A statement may take this long on a busy machine: that is no outage.
SLOW_MS = 1_000
# Whoever can make hubs hurry cannot make them do nothing but sweep.
HURRY_S = 0.1
# How often a hub looks for the runs that it was told to resume.
IMPATIENT_S = 0.25


class ResumableRuns(Protocol):
    """Runs that can be started, continued and cancelled: see `root_runs.py`."""

    @property
    def active(self) -> ActiveRuns: ...

    @property
    def lease_ms(self) -> int: ...

    def launch(self, request: Request, content: bytes, work: Coroutine[None, None, Response]) -> ActiveRun: ...

    async def run(self, request: Request, content: bytes, parked: int | None = None) -> Response: ...

    async def resume(self, frame: Frame) -> Response: ...

    def cancel(self, delegation: str, reason: str) -> bool: ...

    async def pass_cancel_on(self, run: str, why: Fault) -> None: ...

    async def cancel_handed_over(self, run: Run) -> None: ...

    async def record_late(self) -> None: ...

    def digest_of(self, request: Request) -> bytes: ...


class Leases:
    """Keeps the runs of one hub claimed, among others that share its store."""

    def __init__(
        self, dispatch: Delegator, admission: RootAdmission, records: RootRecords, runs: ResumableRuns
    ) -> None:
        self._dispatch = dispatch
        self._admission = admission
        self._records = records
        self._runs = runs
        self._attendants: list[asyncio.Task[None]] = []
        self.on_reload: Callable[[ControlCommand], Awaitable[None]] | None = None
        """Called when someone asks every hub to reload its team file."""
        self.only: frozenset[str] | None = None
        """The orphaned runs to resume; None: all."""
        self._unheeded: dict[str, list[ControlCommand]] = {}
        """The newest commands about runs that are not in progress here."""
        self._idle: set[tuple[str, int]] = set()
        """The claims, each with its epoch, on which nothing here worked at the last look."""
        self.on_unclaimed: Callable[[OrphanedRun], None] | None = None
        """Called with each request for any host that nobody has taken; None: this hub takes them as they come."""

        self._hurry = asyncio.Event()
        self._beaten = 0.0
        """When the last heartbeat was sent."""
        self._judges_from = 0.0
        """Before, other hubs may be alive although their leases have ended: the store was away."""

    async def open(self) -> None:
        """Renew this hub's claims, resume orphaned runs, and listen to other processes."""
        self._beaten = asyncio.get_running_loop().time()
        # What was sent before this hub came is not for it.
        newest = max((each.seq for each in await self._dispatch.parts.store.controls(0)), default=0)
        loop = asyncio.get_running_loop()
        self._attendants = [
            loop.create_task(self._beat()),
            loop.create_task(self._keep()),
            loop.create_task(self._listen(newest)),
        ]

    async def close(self) -> None:
        """Resume nothing more."""
        await end_tasks(self._attendants)

    # ── what others want ──────────────────────────────────────────────────────────────────────────────────────────────

    async def _listen(self, after: int) -> None:
        """Execute the commands of other processes that come through the store."""
        store, turn = self._dispatch.parts.store, asyncio.Lock()
        async with asyncio.TaskGroup() as group:
            while True:
                await sleep_to_tick(LISTEN_S if len(self._runs.active) else IDLE_LISTEN_S)
                try:
                    for control in await store.controls(after):
                        after = control.seq
                        self.obey(control)
                        if control.action == "reload":
                            # Beside the listening, because it may take long.
                            group.create_task(self._reload(control, turn))
                except StoreError as error:
                    log.error("the store cannot be read; trying again: %s", error)

    async def _reload(self, control: ControlCommand, turn: asyncio.Lock) -> None:
        try:
            async with turn:
                if self.on_reload is not None:
                    await self.on_reload(control)
        except Exception as error:  # noqa: BLE001 - logged; the earlier configuration stays
            log.error("the configuration could not be reloaded: %s", self._dispatch.parts.redactor.worded(error))

    def obey(self, control: ControlCommand) -> bool:
        """Carry out a command about a run; False: it is not in progress here, or the command is none for a run."""
        if control.action != "cancel":
            return False
        why = f"by {control.by}" + (f", {control.reason}" if control.reason else "")
        if self._runs.cancel(control.delegation or control.run, why):
            return True
        if not control.delegation:
            # It may be of another hub, or one that this hub is about to take.
            self._unheeded.setdefault(control.run, []).append(control)
            if len(self._unheeded) > MOST_UNHEEDED:
                self._unheeded.pop(next(iter(self._unheeded)))
        return False

    # ── what others left behind ───────────────────────────────────────────────────────────────────────────────────────

    async def _beat(self) -> None:
        """Say that this hub is alive, however long it takes to resume what others left behind."""
        now = asyncio.get_running_loop().time
        while True:
            try:
                await self._dispatch.parts.store.heartbeat(self._records.worker, self._runs.lease_ms)
                if not self._is_prompt(self._beaten):
                    self._judges_from = now() + self._runs.lease_ms / 1_000
                    self.sweep_soon()  # other hubs may have taken runs of this one over
                self._beaten = now()
            except Exception as error:  # noqa: BLE001 - without its heartbeat a hub would lose all its runs
                log.error("no heartbeat was sent; trying again: %s", self._dispatch.parts.redactor.worded(error))
            # Hubs with runs write then, and should not all do so at once.
            pause = asyncio.sleep if len(self._runs.active) else sleep_to_tick
            await pause(self._runs.lease_ms / 1_000 / BEATS)

    async def _keep(self) -> None:
        while True:
            try:
                await self._runs.record_late()
                await self._compare_claims()
                await self._sweep()
            except Exception as error:  # noqa: BLE001 - logged; what expired is still there
                log.error("the store cannot be swept; trying again: %s", self._dispatch.parts.redactor.worded(error))
            # A hub that resumes certain runs waits for them.
            with suppress(TimeoutError):
                async with asyncio.timeout(self._runs.lease_ms / 3_000 if self.only is None else IMPATIENT_S):
                    await self._hurry.wait()
            if self._hurry.is_set():
                await asyncio.sleep(HURRY_S)
            self._hurry.clear()

    async def _sweep(self) -> None:
        """Take up what dead hubs left behind.

        While the store was away, no hub could renew its leases: the others then have as long as a lease to do so.
        """
        now = asyncio.get_running_loop().time
        began = now()
        if began < self._judges_from or not self._is_prompt(self._beaten):
            return
        expired_runs = await self._dispatch.parts.store.sweep(max_attempts=MAX_ATTEMPTS, keep_ms=KEEP_MS)
        for expired in expired_runs if self._is_prompt(began) else ():
            await self._take_up(expired)

    def _is_prompt(self, since: float) -> bool:
        """Return whether too little time has passed for an outage in which hubs missed their heartbeats."""
        passed_ms = (asyncio.get_running_loop().time() - since) * 1_000
        return passed_ms < max(self._runs.lease_ms * MISSED / BEATS, SLOW_MS)

    @property
    def lease_ms(self) -> int:
        """For how long a run is claimed."""
        return self._runs.lease_ms

    async def late_workers(self) -> list[str]:
        """Return the workers of other hubs that have missed a heartbeat."""
        late = await self._dispatch.parts.store.late_workers(self._late_within_ms)
        return [worker for worker in late if worker != self._records.worker]

    async def end_leases(self, worker: str) -> bool:
        """End the leases of a worker that is known to be dead; False: it has none, or has sent a heartbeat since."""
        ended = await self._dispatch.parts.store.end_leases(worker, self._late_within_ms)
        if ended:
            log.warning("%s is gone: its runs are resumed where that is possible", worker)
        return ended

    def sweep_soon(self) -> None:
        """Resume expired runs now, and not at the next heartbeat."""
        self._hurry.set()

    @property
    def _late_within_ms(self) -> int:
        return self._runs.lease_ms * (BEATS - MISSED) // BEATS

    async def _compare_claims(self) -> None:
        """Stop what another hub has taken over, and release the runs that nothing here works on.

        A store that fails during a claim, or right after it, leaves such runs: the hub lives, so that no other would
        ever take them. What is found once may be a claim that is just being made.
        """
        store, frames = self._dispatch.parts.store, self._dispatch.parts.ledger.frames
        held = [
            frame for frame in frames.values() if frame.parent is None and self._runs.active.is_recorded(frame.path)
        ]
        claims = await store.claimed(self._records.worker)
        for frame in held:
            if (frame.run.id, frame.run.epoch) not in claims and frames.get(frame.path) is frame:
                self._leave_to_others(frame)
        idle = {
            (run, epoch)
            for run, epoch in claims
            if run not in frames and not self._runs.active.has(run) and not self._records.holds(run)
        }
        for run, epoch in sorted(idle & self._idle):
            if await store.release(run, epoch):
                log.warning("run %s was claimed by this hub, which does not work on it; it is given back", run)
        self._idle = idle

    def _leave_to_others(self, frame: Frame) -> None:
        """Stop a run that this hub has no claim on any more, without a cancel of what it had sent to other hubs."""
        if frame.stopping is None:
            log.warning("run %s was taken over by another hub while this one did not answer; it is stopped", frame.path)
            frame.run.handed_back = True
            self._dispatch.tasks.stop(frame, journal.TAKEN_OVER)

    async def _take_up(self, expired: OrphanedRun) -> None:
        if self.only is not None and expired.run not in self.only:
            return
        entry, hub = self._dispatch.parts.registry.agents.get(expired.request.target), self._dispatch.parts.registry.hub
        if entry is None or expired.run in self._dispatch.parts.ledger.frames or expired.run in self._records.parked:
            return  # another hub on this store may have the agent; or it runs here, and its lease was lost
        if isinstance(entry.agent, Remote) and entry.agent.shares_store and expired.request.via == hub:
            return  # a hub that hosts the agent resumes it
        if expired.waiting and expired.request.via == hub:  # submitted for any host to take
            if self.on_unclaimed is not None:
                self.on_unclaimed(expired)
                return
        elif expired.waiting and self._dispatch.parts.approver is None:
            return  # another hub may have a person to ask
        elif isinstance(entry.agent, Remote):
            # What began in the process of a hub that hosts the agent is resumed by such a hub, from its journal.
            is_left = entry.agent.shares_store and await entry.agent.is_resumable(0) is not False
            if is_left and not await self._was_handed_over(expired, hub):
                return
        elif await self._was_handed_over(expired, hub):
            # It was sent to the hubs that host the agent: the outcome there is asked for.
            entry = self._dispatch.parts.registry.elsewhere(entry)
        if entry is None:
            return
        await _to_the_end(self._claim(expired, entry))

    async def _was_handed_over(self, expired: OrphanedRun, hub: str) -> bool:
        """Return whether a hub of the team had submitted a run's request for another hub, under the id of the run."""
        return bool(await self._dispatch.parts.store.named(expired.run, RunScope(via=hub)))

    async def _claim(self, expired: OrphanedRun, entry: RegisteredAgent) -> None:
        epoch = await self._dispatch.parts.store.claim(expired.run, self._records.worker, self._runs.lease_ms)
        if epoch is not None:
            await self._resume_or_release(expired, entry, epoch)

    async def take(self, run: str, *, new: bool) -> ActiveRun | None:
        """Take a request for any host and start it; None if another hub has it, or it has begun or ended.

        A *new* one was submitted while this hub was open, so that it has heard every command about it.
        """
        return await _to_the_end(self._take(run, new=new))

    async def _take(self, run: str, *, new: bool) -> ActiveRun | None:
        parts = self._dispatch.parts
        # If nobody can be asked about it, it begins or is refused: that needs no commit of its own.
        begin = not self._dispatch.approval.may_ask
        taken = await parts.store.take(run, self._records.worker, self._runs.lease_ms, begin=begin)
        if taken is None:
            return None
        entry = parts.registry.agents.get(taken.request.target)
        if entry is None:
            await parts.store.release(run, taken.epoch, begun=False)
            return None
        if begin:
            self._records.begun_with_claim(run, taken.request)
        expired = OrphanedRun(run, taken.request, waiting=True)
        return await self._resume_or_release(expired, entry, taken.epoch, new=new)

    async def _resume_or_release(
        self, expired: OrphanedRun, entry: RegisteredAgent, epoch: int, *, new: bool = False
    ) -> ActiveRun:
        try:
            return await self._resume_claimed(expired, entry, epoch, new=new)
        except StoreError:
            with suppress(StoreError):
                await self._dispatch.parts.store.release(expired.run, epoch, begun=not expired.waiting)
            self._records.unpark(expired.run)
            raise

    async def _resume_claimed(
        self, expired: OrphanedRun, entry: RegisteredAgent, epoch: int, *, new: bool
    ) -> ActiveRun:
        """Resume a claimed run."""
        store, request = self._dispatch.parts.store, expired.request
        called_off = [] if new else await store.controls(0, request.run)
        run = Run(request, epoch, None, self._dispatch.parts.redactor.sealing(request.session or request.run))
        run.tally = self._dispatch.parts.ledger.tally_of(request)
        if not expired.waiting or has_tokens(request):
            await self._dispatch.parts.redactor.recall(run)
        # The user's words, as guards and digest knew them before; what was shown with them is found again, unless it
        # came from elsewhere.
        original = (
            restore(request, run.held) if request.via is not None else replace(restore(request, run.held), view=None)
        )
        content = self._runs.digest_of(original)
        if expired.waiting:
            work = self._runs.run(original, content, epoch)
        elif entry.card.resumable:
            work = self._heeding(run.id, self._resume(run, entry))
        else:
            work = self._give_up(Run(request, epoch, None))
        going = self._runs.launch(request, content, work)
        self._runs.active.note_on_record(request, request.run)
        for control in (*called_off, *self._unheeded.pop(request.run, ())):
            self.obey(control)
        return going

    async def _heeding(self, run: str, resuming: Coroutine[None, None, Response]) -> Response:
        """Resume a run; if the store fails, a cancel that was accepted meanwhile is for whoever resumes it next."""
        try:
            return await resuming
        except StoreError:
            why = self._runs.active.why_called_off(run)
            if why is not None and why is not CLOSING:
                await self._runs.pass_cancel_on(run, why)
            raise

    async def _resume(self, run: Run, entry: RegisteredAgent) -> Response:
        parts = self._dispatch.parts
        run.steps = await parts.store.load(run.id)
        run.reported = await self._reported(run.id)
        try:
            run.request = await self._admission.redacted(
                run, await self._admission.with_context(run, run.request, goes_on=True)
            )
        except StoreError:
            raise
        except RemitError as error:  # what it was shown before may not be allowed any more
            return await self._give_up(run, f", and cannot go on: {error.fault.message}")
        before = journal.begun(run, run.id, parts.redactor.keys)
        left = None if before is None else before.departed
        if left is not None and not isinstance(entry.agent, Remote):
            because = f": it was sent to another hub, and {entry.card.name} lives in this hub now"
            return await self._give_up(run, because, detail=f"it was sent to {left.to}")
        if left is None and isinstance(entry.agent, Remote) and not await entry.agent.is_resumable(0):
            # A hub that hosts the agent may have executed it in its own process.
            return await self._give_up(run)
        journal.recall_reserved(run, parts.redactor.keys)
        frame = self._admission.reserve_again(run, entry)
        frame.ran = True  # its code was called before, whatever happens here
        frame.departed = left
        if left is not None:
            frame.doubt = "it was sent to another hub before the restart and may have been executed"
        elif not isinstance(entry.agent, Remote):
            frame.doubt = "it had begun before the restart, and its progress is unknown"
        if (why := self._runs.active.why_called_off(run.id)) is not None:
            run.handed_back = why is CLOSING
            if left is None:
                self._dispatch.tasks.stop(frame, why)
            else:  # one turn of the loop after its start, so that whoever has it is told to stop
                loop = asyncio.get_running_loop()
                loop.call_soon(loop.call_soon, self._dispatch.tasks.stop, frame, why)
        self._dispatch.recording.notice(frame, "resumed after a restart")
        response = await self._runs.resume(frame)
        if frame.stopping is not None and not run.handed_back:
            # It may not have come back to calls that it had handed over before, or to its own request.
            await self._runs.cancel_handed_over(run)
        return response

    async def _reported(self, run: str) -> Counter[tuple[str, str]]:
        """Return the progress that the agents of a run have reported so far."""
        reported: Counter[tuple[str, str]] = Counter()
        seq = 0
        while page := await self._dispatch.parts.store.records(run=run, after=seq):
            seq = page[-1].seq
            reported.update((each.body.delegation, each.body.text) for each in page if isinstance(each.body, Progress))
        return reported

    async def _give_up(self, run: Run, because: str = "", *, detail: str = "") -> Response:
        request = run.request
        why = fault(
            Code.OUTCOME_UNKNOWN,
            f"the hub stopped while {request.target} was at work, and its progress is unknown{because}",
            detail=detail,
        )
        return await self._records.finish(run, unknown_outcome(request, why))


async def _to_the_end(claiming: Coroutine[None, None, T]) -> T:
    """Finish a claim even if cancelled: a closing hub must not keep a claim on a run that nobody works on."""
    task = asyncio.get_running_loop().create_task(claiming)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait({task})
        raise
