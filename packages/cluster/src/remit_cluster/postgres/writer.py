"""The writer of a hub: everything that the event loop queues, many items in each transaction.

A commit waits for the server's disk. So items that are queued during a commit share the next one.
"""

import asyncio
import logging
import sys
from collections import deque
from collections.abc import Callable
from typing import Any

from remit.ports import StoreError
from remit.stores.group_commit import MAX_BATCH, resolve
from remit.stores.requests import JournalWrite, Write
from remit.stores.writer import IDLE_SECONDS, SOON_SECONDS, WAKE_AT, notice_of
from remit_cluster.postgres.commits import (
    PASSING,
    PATIENCE_SECONDS,
    RETRY_SECONDS,
    BatchCommits,
    Change,
    Item,
    QueuedWrite,
    UnreachableError,
)
from remit_cluster.postgres.connection import DatabaseAddress, PgConnection
from remit_cluster.postgres.transaction import PgTransaction

_log = logging.getLogger("remit.store")


class PgWriter:
    """The queue, the write connection, and the task that writes; used in one event loop."""

    def __init__(
        self, address: DatabaseAddress, *, wall_ms: Callable[[], int], committed: Callable[[PgTransaction], None]
    ) -> None:
        self._address = address
        self._on_commit = committed
        self.commits = BatchCommits(address, wall_ms=wall_ms, committed=self._committed, requeue=self._requeue)
        self.queue: deque[Item] = deque()
        """Items to write, oldest first. It outlives the task, so nothing is lost between two openings."""
        self.sizes: dict[str, int] = {}
        self.calm = sys.maxsize
        """Up to this queue length, callers that append need not `nudge`."""
        self.eager = False
        """Whether somebody listens who must not wait."""
        self._wake = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None
        self._crowd: list[asyncio.Future[None]] = []
        self._busy = False
        self._stopping = False
        self._troubled = False
        self._task: asyncio.Task[None] | None = None

    def start(self, connection: PgConnection) -> None:
        self.commits.start(connection)
        self._stopping = False
        self.calm = 0
        self._task = asyncio.get_running_loop().create_task(self._run(), name="remit-postgres-writer")
        if self.queue:
            self._wake.set()

    async def stop(self) -> None:
        """End the task; the queue was flushed before, or stays for the next opening."""
        self._stopping = True
        self.calm = sys.maxsize
        self.wake()
        if self._task is not None:
            await self._task
            self._task = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        await self.commits.stop(everything=not self.queue)

    # ── queueing ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def nudge(self) -> None:
        """Write the queue: now if it is long enough or somebody listens, else shortly."""
        if len(self.queue) >= WAKE_AT or self.eager:
            self.wake()
            self.calm = 0 if self.eager else len(self.queue) + WAKE_AT
        else:
            self.wake_within(IDLE_SECONDS)
            self.calm = WAKE_AT - 1

    def wake(self) -> None:
        self._wake.set()

    def wake_within(self, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        if self._timer is not None:
            if self._timer.when() <= loop.time() + seconds:
                return
            self._timer.cancel()
        self._timer = loop.call_later(seconds, self.wake)

    def do(self, what: Write | Change | None, *, kept: bool = False, soon: bool = False) -> "asyncio.Future[Any]":
        """Queue a write; the future has its result once the transaction that it was part of is durable."""
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.queue.append(QueuedWrite(what, future, kept))
        if soon and not self.eager:
            self.wake_within(SOON_SECONDS)
        else:
            self.wake()
        return future

    def later(self, what: JournalWrite | Change) -> None:
        """Queue a write for when a batch is written anyway."""
        self.queue.append(QueuedWrite(what, None))
        if len(self.queue) > self.calm:
            self.nudge()

    @property
    def is_idle(self) -> bool:
        """Whether everything that was queued is written."""
        return not self.queue and not self._busy and not self.commits.doubts()

    async def room(self, limit: int) -> None:
        """Return once fewer than *limit* items are queued."""
        while len(self.queue) >= limit and not self._stopping:
            waiting: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._crowd.append(waiting)
            self.wake()
            await waiting

    # ── writing ───────────────────────────────────────────────────────────────────────────────────────────────────────

    async def _run(self) -> None:
        while not self._stopping:
            await self._wake.wait()
            # Once around the loop: what all ready tasks queue shares this commit.
            await asyncio.sleep(0)
            self._wake.clear()
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
            self._busy = True
            try:
                works = await self._drain()
            except Exception:  # noqa: BLE001 - the task must go on, and callers are told below
                _log.exception("%s: the writer failed", self._address.name)
                works = False
            self._busy = False
            self.calm = 0
            if not works and not self._stopping:
                self.wake_within(RETRY_SECONDS * 5)
            elif self.queue:
                self.nudge()
        self._release_crowd()

    async def _drain(self) -> bool:
        """Write what is queued now; return whether writing works."""
        left = max(len(self.queue), 1)
        while left > 0 and (self.queue or self.commits.doubts()):
            take = min(len(self.queue), MAX_BATCH)
            batch = [self.queue.popleft() for _ in range(take)]
            left -= max(take, 1)
            if not await self._write_batch(batch):
                self._release_crowd()
                return False
            self._release_crowd()
        return True

    def _release_crowd(self) -> None:
        crowd, self._crowd = self._crowd, []
        for waiting in crowd:
            resolve(waiting, None)

    async def _write_batch(self, batch: list[Item]) -> bool:
        """Write the batch and return whether that worked; items without a caller are queued again if it did not."""
        try:
            await self._persist(batch)
        except PASSING as error:
            self._set_aside(batch, error)
            return False
        except Exception:  # noqa: BLE001 - whichever item is to blame, the others must not suffer for it
            return await self._write_each(batch)
        self._troubled = False
        return True

    async def _write_each(self, batch: list[Item]) -> bool:
        for place, item in enumerate(batch):
            alone = [item]
            try:
                await self._write_alone(alone)
            except PASSING as error:
                self._set_aside(alone, error)
                self._requeue(batch[place + 1 :], error)
                return False
        return True

    async def _write_alone(self, alone: list[Item]) -> None:
        """Write one item; if that fails, report it to the caller, or write a notice in place of the record."""
        (item,) = alone
        try:
            await self._persist(alone)
        except PASSING:
            raise
        except Exception as error:  # noqa: BLE001 - what it can be depends on what agents put into their answers
            # Only the type of the error is reported: its text may quote unredacted data.
            _log.error("%s: something could not be written (%s)", self._address.name, type(error).__name__)
            if not isinstance(item, QueuedWrite):
                await self._persist([notice_of(item, error)])
            elif item.future:
                resolve(item.future, None, self._address.translate(error))

    async def _persist(self, batch: list[Item]) -> None:
        # Once callers were told of trouble, later ones are told at once.
        await self.commits.persist(batch, 0 if self._troubled else PATIENCE_SECONDS)

    def _committed(self, transaction: PgTransaction) -> None:
        sizes = self.sizes
        for run, size in transaction.sizes:
            if run in sizes:
                sizes[run] += size
        self._on_commit(transaction)

    def _set_aside(self, batch: list[Item], error: BaseException) -> None:
        """Report the store's error to waiting callers, and keep the rest for later."""
        if not self._troubled:
            _log.warning("%s", self._problem(error))
            self._troubled = True
        if self.commits.doubts(batch):
            self._tell(batch, error)  # the next connection finds out whether it was committed
        else:
            self._requeue(batch, error)

    def _requeue(self, batch: list[Item], error: BaseException | None = None) -> None:
        """Queue what nobody waits for again, before everything else."""
        if error is not None:
            self._tell(batch, error)
        kept = [item for item in batch if not (isinstance(item, QueuedWrite) and item.future)]
        self.queue.extendleft(reversed(kept))

    def _tell(self, batch: list[Item], error: BaseException) -> None:
        problem = self._problem(error)
        for item in batch:
            if isinstance(item, QueuedWrite) and item.future:
                resolve(item.future, None, problem)

    def _problem(self, error: BaseException) -> StoreError:
        return error.problem if isinstance(error, UnreachableError) else self._address.translate(error)
