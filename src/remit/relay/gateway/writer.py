"""The writer of a gateway's file, with group commit: requests made during a transaction share the next one.

A thread runs the transactions, so that a slow disk does not block the event loop. While the last transaction was fast
and there is little to do, the loop runs it itself if the thread is idle: switching threads would take longer. A disk
that suddenly becomes slow blocks the loop for one transaction.
"""

import asyncio
import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from remit.relay.gateway.queue import Queue
from remit.stores.connection import write_lock

T = TypeVar("T")

# With larger batches the first jobs would wait too long and gain nothing.
MAX_BATCH = 1_000

# With a disk this fast and this few jobs, a transaction costs less than switching threads twice.
QUICK_S = 0.001
FEW = 32

# Jobs that are not urgent wait this long for others: a commit costs more than its content.
PATIENCE_S = 0.003

_log = logging.getLogger("remit.relay")


class Job(NamedTuple):
    """A function to run in the thread, and a callback for the event loop once its result is durable."""

    run: Callable[[Queue], Any]
    then: Callable[[Any], None]


class GatewayWriter:
    """The job queue and its thread. Everything but `_run` and what it calls runs in the event loop."""

    def __init__(
        self,
        path: Path,
        queue: Queue,
        *,
        settled: Callable[[], None],
        troubled: Callable[[Exception], None],
        commit_hook: Callable[[], None] | None = None,
    ) -> None:
        self._path = path
        self._queue = queue
        self._settled = settled
        self._troubled = troubled
        self._commit_hook = commit_hook
        self._jobs: deque[Job | None] = deque()
        """The jobs, in order; None marks the end of a failure."""
        self._gate = threading.Lock()
        self._gate.acquire()
        self._signalled = False
        self._resting = False
        """Whether the thread waits for a signal, and so does not use the file."""
        self._quick = False
        """Whether the last transaction was fast (`QUICK_S`)."""
        self._planned = False
        self._later: asyncio.TimerHandle | None = None
        self._failed = False
        self._miscounted = False
        self._stopping = False
        self._loop = asyncio.get_running_loop()
        self._stopped: asyncio.Future[None] = self._loop.create_future()
        self._waiting: set[asyncio.Future[Any]] = set()
        self._thread = threading.Thread(target=self._run, name=f"remit-gateway {path.name}", daemon=True)
        self._thread.start()

    # ── in the event loop ─────────────────────────────────────────────────────────────────────────────────────────────

    def do(self, run: Callable[[Queue], T], then: Callable[[T], None], *, urgent: bool = True) -> None:
        """Queue *run*; *then* gets its result once that is durable, and is never called if it fails."""
        self._jobs.append(Job(run, then))
        if self._signalled:
            return
        if urgent and not self._planned:
            # Not now but after all ready tasks have run: their requests then share the same commit.
            self._planned = True
            self._loop.call_soon(self._wake)
        elif not urgent and self._later is None:
            self._later = self._loop.call_later(PATIENCE_S, self._wake)

    async def ask(self, run: Callable[[Queue], T]) -> T:
        """Return the result of *run* once it is durable; raises `OSError` if writing fails."""
        future: asyncio.Future[T] = self._loop.create_future()

        def then(result: T) -> None:
            if not future.done():
                future.set_result(result)

        self._waiting.add(future)
        try:
            self.do(run, then)
            return await future
        finally:
            self._waiting.discard(future)

    async def stop(self) -> None:
        """Finish all jobs, and end the thread."""
        self._stopping = True
        self._wake()
        await self._stopped
        self._thread.join()
        for future in self._waiting:
            if not future.done():
                future.set_exception(OSError(f"{self._path}: the gateway is closed"))

    def _wake(self) -> None:
        self._planned = False
        if self._later:
            self._later.cancel()
            self._later = None
        if self._signalled:
            return
        # A hook simulates slow or failing disks, which must not block the event loop.
        if self._resting and self._quick and len(self._jobs) <= FEW and not self._stopping and not self._commit_hook:
            self._do_batch()
            return
        self._signalled = True
        self._gate.release()

    def _settle(self, done: list[tuple[Callable[[Any], None], Any]]) -> None:
        for then, result in done:
            try:
                then(result)
            except Exception:  # noqa: BLE001 - an error of one connection must not keep the others from their results
                _log.exception("delivering a result failed")
        self._settled()

    def _fail(self, error: Exception) -> None:
        """Fail all waiting callers; no job runs until they have been notified."""
        _log.error("cannot write to %s: %s", self._path, error)
        for future in self._waiting:
            if not future.done():
                future.set_exception(OSError(f"{self._path}: {error}"))
        self._troubled(error)
        self._jobs.append(None)
        self._wake()

    # ── in the thread ─────────────────────────────────────────────────────────────────────────────────────────────────

    def _run(self) -> None:
        while not self._stopping or self._jobs:
            if not self._jobs:
                self._resting = True
                self._gate.acquire()
                self._resting = self._signalled = False
            self._do_batch()
        try:
            self._queue.connection.close()
        finally:
            self._tell(lambda: self._stopped.set_result(None))

    def _do_batch(self) -> None:
        batch = self._take()
        if not batch:
            return
        done: list[tuple[Callable[[Any], None], Any]] = []
        began = time.perf_counter()
        try:
            with write_lock(self._queue.connection):
                if self._miscounted:
                    self._queue.reload()
                    self._miscounted = False
                for run, then in batch:
                    done.append((then, run(self._queue)))
                self._queue.write()
                if self._commit_hook:
                    self._commit_hook()
        except Exception as error:  # noqa: BLE001 - whatever it is, the whole batch failed, and all callers are notified
            self._failed = self._miscounted = True
            self._quick = False
            self._tell(lambda error=error: self._fail(error))
            return
        self._quick = time.perf_counter() - began < QUICK_S
        self._tell(lambda: self._settle(done))

    def _take(self) -> list[Job]:
        """The next jobs; those that were queued before everyone was notified of a failure are dropped."""
        batch: list[Job] = []
        while self._jobs and len(batch) < MAX_BATCH:
            job = self._jobs.popleft()
            if job is None:
                self._failed = False
            elif not self._failed:
                batch.append(job)
        return batch

    def _tell(self, callback: Callable[[], None]) -> None:
        try:
            self._loop.call_soon_threadsafe(callback)
        except RuntimeError:
            _log.warning("the event loop was closed before the gateway")
