"""Group commit: one thread writes everything that an event loop queues, many items in each transaction.

A commit waits for the disk, which takes longer than most of its content. So items that are queued during a commit share
the next one. What a transaction contains, and who is told what about a failure, is decided by the owner of the queue.
"""

import asyncio
import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any, Generic, TypeVar, TypeVarTuple

T = TypeVar("T")
Ts = TypeVarTuple("Ts")
Item = TypeVar("Item")

# Larger batches gain nothing (an insert costs the same), and the first callers would wait longer.
MAX_BATCH = 1_000

# With a disk this fast, a small transaction costs less than switching threads twice.
QUICK_S = 0.001
# The time that each item adds: it is encoded, hashed and inserted.
ITEM_S = 0.000_05
# After a slow transaction, this many fast ones in a row show that the disk is fast again, so slow ones rarely block the
# loop.
STEADY = 16

_log = logging.getLogger("remit.store")


class GroupCommit(Generic[Item]):
    """A queue, and the thread that writes it. All methods but `tell` are called in the event loop.

    *commit* writes a batch in one transaction, reports with `tell`, and returns whether that worked. After a failure
    the thread rests until it is woken, or for `again_s`. *commit* may get an empty batch. *close* is called at the end.
    Both run in the thread, unless *in_loop* says otherwise.

    If fewer than *enough* items arrived during a transaction, they wait up to *linger_s* for others: beside a busy
    loop, a thread that took whatever is there would commit a few items at a time, at twice the cost. Up to *in_loop*
    items are written by the loop itself while the thread is idle and the last transactions were fast (`QUICK_S`). A
    disk that suddenly becomes slow then blocks the loop for one transaction. If *commit* fails in the loop, it is
    called again in the thread.
    """

    def __init__(
        self,
        name: str,
        commit: Callable[[list[Item]], bool],
        *,
        close: Callable[[], None] = lambda: None,
        enough: int = 1,
        linger_s: float = 0.0,
        in_loop: int = 0,
    ) -> None:
        self._name = name
        self._commit = commit
        self._close = close
        self._enough = enough
        self._linger_s = linger_s
        self._in_loop = in_loop
        self.queue: deque[Item] = deque()
        """Items to write, oldest first. The queue outlives the thread, so nothing is lost between two threads."""
        self.again_s: float | None = None
        """Set by *commit*: the thread calls it again after this time, even if nobody wakes it."""
        self.busy = False
        """Whether the thread was woken and has not finished; set in the loop, cleared in the thread."""
        self._gate = threading.Lock()
        self._gate.acquire()
        self._signalled = False
        """Whether the gate is open; it is opened only once until the thread has passed it."""
        self._turn = threading.Lock()
        """Held while a batch is taken and written, so that batches keep the order of the queue."""
        self._planned = False
        self._timer: asyncio.TimerHandle | None = None
        self._reported_at: float | None = None
        """When the current transaction was first reported."""
        self._fast = 0
        """The number of fast transactions in a row."""
        self._loop_thread = 0
        self.stopping = False
        """Whether the thread is told to end, or has ended."""

    def start(self) -> None:
        """Start the thread; it is woken if items are queued already."""
        self.stopping = False
        self._loop = asyncio.get_running_loop()
        self._loop_thread = threading.get_ident()
        self._stopped: asyncio.Future[None] = self._loop.create_future()
        self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
        self._thread.start()
        if self.queue:
            self.wake()

    async def stop(self) -> None:
        """Write the queue, if that is possible, and end the thread; what could not be written stays in the queue."""
        self.stopping = True
        self.wake()
        await self._stopped
        self._thread.join()

    # ── in the event loop ─────────────────────────────────────────────────────────────────────────────────────────────

    def wake_soon(self) -> None:
        """Write the queue after all ready tasks have run: items that they queue share the same commit."""
        if not self._planned and not self._signalled:
            self._planned = True
            self._loop.call_soon(self.wake)

    def wake_within(self, seconds: float) -> None:
        """Write the queue after this time, unless it is written earlier."""
        if self._signalled:
            return
        due = self._loop.time() + seconds
        if self._timer is not None:
            if self._timer.when() <= due:
                return
            self._timer.cancel()
        self._timer = self._loop.call_at(due, self.wake)

    def wake(self) -> None:
        """Write the queue now."""
        self._planned = False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._signalled:
            return
        is_fast = self._fast >= STEADY and len(self.queue) <= self._in_loop
        if is_fast and not self.stopping and self._turn.acquire(False):
            try:
                works = self._write_batch()
            finally:
                self._turn.release()
            if works:
                return
        self.wake_thread()

    def wake_thread(self) -> None:
        """Have the thread write the queue, even if the queue is empty."""
        if not self._signalled:
            self._signalled = self.busy = True
            self._gate.release()

    @property
    def is_in_loop(self) -> bool:
        """Whether the caller runs in the event loop, and not in the thread."""
        return threading.get_ident() == self._loop_thread

    # ── in the thread, and in the loop while the disk is fast ─────────────────────────────────────────────────────────

    def tell(self, callback: Callable[[*Ts], object], *args: *Ts) -> None:
        """Call *callback* in the event loop, after all earlier callbacks."""
        self._reported_at = self._reported_at or time.perf_counter()
        try:
            if self.is_in_loop:
                self._loop.call_soon(callback, *args)
            else:
                self._loop.call_soon_threadsafe(callback, *args)
        except RuntimeError:
            _log.warning("the event loop was closed before %s", self._name)

    def _run(self) -> None:
        works = True
        while not self.stopping:
            # Without the result of `acquire`, a signal at the moment of a time-out would be forgotten.
            if self._gate.acquire(timeout=-1 if self.again_s is None else self.again_s):
                self._signalled = False
            works = self._drain()
            self.busy = self._signalled
        if works and self.queue:
            self._drain()
        try:
            self._close()
        finally:
            self.tell(self._stopped.set_result, None)

    def _drain(self) -> bool:
        """Write the queue, except for a few items that arrived meanwhile; return whether writing works."""
        left = len(self.queue)
        while True:
            left -= min(len(self.queue), MAX_BATCH)
            with self._turn:
                self.again_s = None
                works = self._write_batch()
            if not works or not self.queue:
                return works
            if left <= 0 and len(self.queue) < self._enough and not self.stopping:
                self.again_s = min(self._linger_s, self.again_s or self._linger_s)
                return True

    def _write_batch(self) -> bool:
        take = self.queue.popleft
        batch = [take() for _ in range(min(len(self.queue), MAX_BATCH))]
        self._reported_at = None
        began = time.perf_counter()
        works = self._commit(batch)
        # Measured until the report, which may give the interpreter lock to the loop for a while.
        took_s = (self._reported_at or time.perf_counter()) - began
        self._fast = self._fast + 1 if works and took_s < QUICK_S + len(batch) * ITEM_S else 0
        return works


def resolve(future: "asyncio.Future[T]", result: Any, error: Exception | None = None) -> None:
    """Set the result or the error of *future*, unless its caller was cancelled."""
    if future.done():
        return
    if error is None:
        future.set_result(result)
    else:
        future.set_exception(error)
