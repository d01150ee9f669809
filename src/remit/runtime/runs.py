"""Root requests: durable before their agent starts, executed at most once, answered after every record is durable."""

import asyncio
import logging
from collections.abc import Awaitable, Coroutine
from contextlib import suppress
from typing import NamedTuple, TypeVar, cast

from msgspec.structs import replace

from remit.policy.verdict import Ask, Facts, Refuse, Rewrite
from remit.protocol.codec import digest
from remit.protocol.envelope import VERSION, Request, Response
from remit.protocol.errors import Code, Fault, RemitError, fault
from remit.protocol.lifecycle import Status
from remit.runtime.dispatch import Dispatch
from remit.runtime.ledger import Frame, Run
from remit.runtime.ports import Accepted, Expired, Known, StoreError
from remit.runtime.registry import Entry
from remit.runtime.respond import refused

log = logging.getLogger("remit")

T = TypeVar("T")

# A worker that has not been heard of for this long is taken to be dead, and what it had claimed is taken up again.
LEASE_MS = 5_000
MAX_ATTEMPTS = 3
# A sender that retries does so within a day; after that its request id may be used again.
KEEP_MS = 24 * 3_600_000


# How often a hub that closes looks for runs that were still being admitted when it began to.
CLOSING_S = 0.05


class Going(NamedTuple):
    """A root request that this hub carries out."""

    digest: bytes
    run: str
    task: asyncio.Task[Response]


class Runs:
    """The runs of one hub: starting, attaching to, finishing and taking up again."""

    def __init__(self, dispatch: Dispatch, worker: str) -> None:
        self._dispatch = dispatch
        self._worker = worker
        self._going: dict[tuple[str, str, str], Going] = {}
        self._tasks: set[asyncio.Task[Response]] = set()
        self._waiting: dict[asyncio.Task[Response], Fault | None] = {}
        """Those that wait for a person or for another hub, and why they need not wait any more."""
        self._called_off: dict[str, Fault] = {}
        """Runs that were cancelled before they were admitted."""
        self._unrecorded: list[tuple[Run, Response]] = []
        """Outcomes that the store could not take; they are kept until it can."""
        self._keeper: asyncio.Task[None] | None = None

    async def ask(self, request: Request) -> Response:
        """Carry out a root request, or attach to the same one under way; only the first who asked can cancel it."""
        key, content = (request.origin, request.remit.user, request.id), digest(request)
        going = self._going.get(key)
        if going is not None:
            if going.digest != content:
                return await self._refuse(request, _duplicate(request))
            return await asyncio.shield(going.task)
        task = self._go(key, content, request.run, self._run(request, content))
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            if not task.done():
                self.cancel(request.run, "its caller was cancelled")
                await asyncio.wait({task})
            raise

    def cancel(self, delegation: str, reason: str) -> bool:
        """Stop a run, by its id or its request's, or one delegation of it; False if nothing of that id is in flight."""
        why = fault(Code.CANCELLED, f"cancelled: {reason}")
        for (_, _, request_id), going in self._going.items():
            if delegation in (going.run, request_id) and self._interrupt(going.task, why):
                return True
        frames = self._dispatch.parts.ledger.frames
        # Request ids are the sender's own, so two users may have chosen the same one: then it names neither.
        by_request = [frame for frame in frames.values() if frame.request.id == delegation]
        frame = frames.get(delegation) or (by_request[0] if len(by_request) == 1 else None)
        if frame is None:
            return self._call_off(delegation, why)
        self._dispatch.notice(frame, why.message, why.code)
        self._dispatch.stop(frame, fault(Code.CANCELLED, f"{frame.request.target} was cancelled: {reason}"))
        return True

    def _call_off(self, delegation: str, why: Fault) -> bool:
        """See to it that a run that is still being admitted does not start."""
        for (_, _, request_id), going in self._going.items():
            if delegation in (going.run, request_id):
                self._called_off[going.run] = why
                return True
        return False

    def open(self) -> None:
        """Keep this hub's claims alive and take up what others left behind."""
        self._keeper = asyncio.get_running_loop().create_task(self._keep())

    async def close(self) -> None:
        """Stop everything and return once its outcome is durable."""
        if self._keeper is not None:
            self._keeper.cancel()
            await asyncio.wait({self._keeper})
        why = fault(Code.CANCELLED, "cancelled: the hub is closing")
        while self._tasks:
            for run in [frame.path for frame in self._dispatch.parts.ledger.frames.values() if frame.parent is None]:
                self.cancel(run, "the hub is closing")
            for task in self._tasks:
                self._interrupt(task, why)
            for going in self._going.values():
                self._called_off[going.run] = why
            # One that was still being admitted may start after this; the next turn of the loop finds it.
            await asyncio.wait(self._tasks, timeout=CLOSING_S, return_when=asyncio.FIRST_COMPLETED)
        with suppress(StoreError):
            await self._record_late()

    # ── one run ───────────────────────────────────────────────────────────────────────────────────────────────────────

    def _go(
        self, key: tuple[str, str, str], content: bytes, run: str, work: Coroutine[None, None, Response]
    ) -> asyncio.Task[Response]:
        task = asyncio.get_running_loop().create_task(work)
        going = self._going[key] = Going(content, run, task)
        self._tasks.add(task)
        task.add_done_callback(lambda _: self._gone(key, going))
        return task

    def _gone(self, key: tuple[str, str, str], going: Going) -> None:
        self._tasks.discard(going.task)
        self._called_off.pop(going.run, None)
        if self._going.get(key) is going:
            del self._going[key]

    def _interrupt(self, task: asyncio.Task[Response], why: Fault) -> bool:
        """End the waiting of a run for a person or another hub; False if it does not wait for one."""
        if task not in self._waiting:
            return False
        self._waiting[task] = self._waiting[task] or why
        task.cancel()
        return True

    async def _interruptible(self, waiting: Awaitable[T]) -> T:
        """Await a person or another hub; `cancel` and `close` end it with a fault."""
        task = cast("asyncio.Task[Response]", asyncio.current_task())
        self._waiting[task] = None
        try:
            return await waiting
        except asyncio.CancelledError:
            why = self._waiting[task]
            if why is None:
                raise
            raise RemitError(why) from None
        finally:
            del self._waiting[task]

    async def _run(self, request: Request, content: bytes) -> Response:
        try:
            return await self._admit(request, content)
        except StoreError as error:
            return refused(request, error.fault)
        except RemitError as error:
            return await self._refuse(request, error.fault)

    async def _admit(self, request: Request, content: bytes) -> Response:
        parts = self._dispatch.parts
        entry = parts.registry.agents.get(request.target)
        # What the sender chose may have been used before: an id for the same request, a session by its owner.
        if request.id != request.run and (known := await parts.store.find(request, content)) is not None:
            return await self._known(request, known)
        chosen = request.session if request.session != request.run else None
        owner = await parts.store.owner(chosen) if chosen else None
        approved: frozenset[str] = frozenset()
        while True:
            now = parts.clock.now()
            facts = Facts(
                target=entry.card if entry else None,
                address=entry.address if entry else "",
                limits=parts.limits,
                agents=parts.registry.agents,
                session_user=owner.user if owner else None,
                session_agent=owner.agent if owner else None,
                rate_wait_ms=parts.ledger.rate_wait_ms(entry.card, now) if entry else 0,
                breaker_wait_ms=parts.ledger.breaker_wait_ms(request.target, now),
                approved=approved,
            )
            match self._dispatch.judge(request, facts):
                case Refuse(fault=why):
                    return await self._refuse(request, why)
                case Ask(question=question):
                    asking = self._dispatch.ask_person(request, question, approved)
                    approved = await self._interruptible(asking)
                case Rewrite(request=request):
                    assert entry is not None, "a guard refuses unknown targets"
                    if chosen and owner is None:
                        owner = await parts.store.session(chosen, request.remit.user, request.target)
                        continue
                    if (why := self._called_off.get(request.run)) is not None:
                        return await self._refuse(request, why)
                    run = Run(request, 0, {} if entry.card.resumable else None)
                    frame = Frame(request, entry, run, None, now)
                    # What the guards allowed is taken before anything is awaited, so that others cannot take it too.
                    parts.ledger.open(frame)
                    return await self._submit(frame, content)

    async def _submit(self, frame: Frame, content: bytes) -> Response:
        parts, request = self._dispatch.parts, frame.request
        try:
            submitted = await parts.store.submit(request, content, worker=self._worker, lease_ms=LEASE_MS)
        except BaseException:
            parts.ledger.withdraw(frame, parts.clock.now())
            raise
        if isinstance(submitted, Accepted):
            frame.run.epoch = submitted.epoch
            return await self._carry_out(frame)
        parts.ledger.withdraw(frame, parts.clock.now())
        return await self._known(request, submitted)

    async def _known(self, request: Request, known: Known) -> Response:
        if not known.same_content:
            return await self._refuse(request, _duplicate(request))
        return known.response or await self._attach(request, known.run)

    async def _attach(self, request: Request, run: str) -> Response:
        """Wait for another process to finish the same request, as long as this one may take."""
        try:
            async with asyncio.timeout(request.remit.time_ms / 1_000):
                return await self._interruptible(self._dispatch.parts.store.wait(run))
        except TimeoutError:
            return refused(
                request,
                fault(Code.TIMEOUT, f"the same request, run {run}, had not ended after {request.remit.time_ms} ms"),
            )

    async def _carry_out(self, frame: Frame) -> Response:
        (response,) = await self._dispatch.join(None, (self._dispatch.start(frame),))
        # Only what happened after the agent's code began is kept: before that, the same request may come again.
        return await self._finish(frame.run, response, keep=frame.ran)

    async def _finish(self, run: Run, response: Response, *, keep: bool = True) -> Response:
        parts = self._dispatch.parts
        try:
            recorded = await parts.store.finish(run.id, run.epoch, response, parts.clock.wall_ms(), keep=keep)
        except StoreError as error:
            self._unrecorded.append((run, response))
            return replace(response, status=Status.FAILED, result=None, artifacts=(), fault=error.fault)
        if recorded:
            return response
        why = fault(
            Code.OUTCOME_UNKNOWN, "another hub took this run over, because this one had not been heard of for too long"
        )
        return replace(response, status=Status.FAILED, result=None, fault=why)

    async def _refuse(self, request: Request, why: Fault) -> Response:
        response = self._dispatch.refuse(request, why)
        await self._dispatch.parts.store.flush()
        return response

    # ── what others left behind ───────────────────────────────────────────────────────────────────────────────────────

    async def _keep(self) -> None:
        store = self._dispatch.parts.store
        while True:
            try:
                await store.heartbeat(self._worker, LEASE_MS)
                await self._record_late()
                for expired in await store.sweep(max_attempts=MAX_ATTEMPTS, keep_ms=KEEP_MS):
                    await self._take_up(expired)
            except StoreError:
                log.exception("the store cannot be swept; trying again")
            await asyncio.sleep(LEASE_MS / 3_000)

    async def _record_late(self) -> None:
        parts = self._dispatch.parts
        while self._unrecorded:
            run, response = self._unrecorded[0]
            await parts.store.finish(run.id, run.epoch, response, parts.clock.wall_ms())
            self._unrecorded.pop(0)

    async def _take_up(self, expired: Expired) -> None:
        store, request = self._dispatch.parts.store, expired.request
        entry = self._dispatch.parts.registry.agents.get(request.target)
        if entry is None or expired.run in self._dispatch.parts.ledger.frames:
            return  # another hub on this store may have the agent; or it is at work here, and its lease was lost
        epoch = await store.claim(expired.run, self._worker, LEASE_MS)
        if epoch is None:
            return
        key = (request.origin, request.remit.user, request.id)
        work = self._resume(request, entry, epoch) if entry.card.resumable else self._give_up(request, epoch)
        self._go(key, digest(request), request.run, work)

    async def _resume(self, request: Request, entry: Entry, epoch: int) -> Response:
        parts = self._dispatch.parts
        run = Run(request, epoch, await parts.store.load(request.run))
        frame = Frame(request, entry, run, None, parts.clock.now())
        parts.ledger.open(frame)
        self._dispatch.notice(frame, "taken up again after a restart")
        return await self._carry_out(frame)

    async def _give_up(self, request: Request, epoch: int) -> Response:
        why = fault(
            Code.OUTCOME_UNKNOWN,
            f"the hub stopped while {request.target} was at work, and it is not known how far it came",
        )
        response = Response(
            version=VERSION,
            id=request.id,
            target=request.target,
            status=Status.FAILED,
            run=request.run,
            session=request.session,
            fault=why,
        )
        return await self._finish(Run(request, epoch, None), response)


def _duplicate(request: Request) -> Fault:
    return fault(Code.DUPLICATE_REQUEST, f"request id {request.id} was used before with another content")
