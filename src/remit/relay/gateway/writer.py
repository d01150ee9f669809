"""The writer of a gateway's file, with group commit: requests made during a transaction share the next one."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeVar, cast

from remit.relay.gateway.ports import Placed, SentMessage
from remit.relay.gateway.queue import Queue
from remit.relay.wire import MAX_BODY, Refused
from remit.stores.connection import write_lock
from remit.stores.group_commit import GroupCommit, resolve

T = TypeVar("T")

# The event loop writes this few jobs itself while the disk is fast.
FEW = 32

# Jobs that are not urgent wait this long for others: a commit costs more than its content. Receivers have these
# messages already and acknowledge many of them meanwhile, so that they need not be written.
PATIENCE_S = 0.01
# With so many no commit waits for others. The bytes are half of what a device sends without receipts; a device that
# sends its 256 messages within 10 ms has nothing to wait for.
MOST_DELIVERED = 512
MOST_DELIVERED_BYTES = 8 * MAX_BODY

_log = logging.getLogger("remit.relay")


class Job(NamedTuple):
    """A function to run in the thread, and a callback for the event loop once its result is durable."""

    run: Callable[[Queue], Any]
    then: Callable[[Any], None]


class GatewayWriter:
    """Runs jobs in order. Everything but `_commit` and what it calls runs in the event loop."""

    def __init__(
        self,
        path: Path,
        queue: Queue,
        *,
        placed: Callable[[Sequence[SentMessage], Sequence[Placed | Refused]], None],
        settled: Callable[[], None],
        troubled: Callable[[], None],
        commit_hook: Callable[[], None] | None = None,
    ) -> None:
        self._path = path
        self._queue = queue
        self._placed = placed
        self._settled = settled
        self._troubled = troubled
        self._commit_hook = commit_hook
        self._failed = False
        self._miscounted = False
        self._waiting: set[asyncio.Future[Any]] = set()
        self._loop = asyncio.get_running_loop()
        self._staged: list[Job] = []
        """The jobs that the thread does not know yet."""
        self._run: list[SentMessage] | None = None
        """The messages of the last staged job, if it may get more of them."""
        self._delivered = self._delivered_bytes = 0
        """How many messages in staged jobs were delivered already, and their size."""
        self._planned = False
        self._timer: asyncio.TimerHandle | None = None
        # In the queue, None marks the end of a failure. A hook simulates slow or failing disks, which must not block
        # the event loop.
        self._group = GroupCommit[Job | None](
            f"remit-gateway {path.name}",
            self._commit,
            close=queue.connection.close,
            in_loop=0 if commit_hook else FEW,
        )
        self._group.start()

    # ── in the event loop ─────────────────────────────────────────────────────────────────────────────────────────────

    def do(self, run: Callable[[Queue], T], then: Callable[[T], None], *, urgent: bool = True) -> None:
        """Queue *run*; *then* gets its result once that is durable, and is never called if it fails."""
        self._run = None
        self._staged.append(Job(run, then))
        if urgent:
            self._pass_soon()
        else:
            self._pass_later()

    def put_delivered(self, message: SentMessage) -> None:
        """Queue a message that its receiver was sent already; it shares a job with others before and after it."""
        if self._run is None:
            self._run = run = []
            self._staged.append(Job(partial(_put_all, run), partial(self._placed, run)))
            self._pass_later()
        self._run.append(message)
        self._delivered += 1
        self._delivered_bytes += len(message.put.body)
        if self._delivered >= MOST_DELIVERED or self._delivered_bytes >= MOST_DELIVERED_BYTES:
            self._pass_soon()

    def _pass_soon(self) -> None:
        """Pass all staged jobs to the thread after all ready tasks have run: jobs that they queue share the commit."""
        if not self._planned:
            self._planned = True
            self._loop.call_soon(self._pass)

    def _pass_later(self) -> None:
        if self._timer is None:
            self._timer = self._loop.call_later(PATIENCE_S, self._pass)

    def _pass(self) -> None:
        self._unstage()
        self._group.wake()

    def _unstage(self) -> None:
        self._planned, self._run = False, None
        self._delivered = self._delivered_bytes = 0
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._group.queue.extend(self._staged)
        self._staged.clear()

    async def ask(self, run: Callable[[Queue], T]) -> T:
        """Return the result of *run* once it is durable; raises `OSError` if writing fails."""
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._waiting.add(future)
        try:
            self.do(run, partial(resolve, future))
            return await future
        finally:
            self._waiting.discard(future)

    async def stop(self) -> None:
        """Finish all jobs, and end the thread."""
        self._unstage()
        await self._group.stop()
        self._give_up("the gateway is closed")

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
        self._give_up(str(error))
        self._troubled()
        self._unstage()
        self._group.queue.append(None)
        self._group.wake()

    def _give_up(self, why: str) -> None:
        for future in self._waiting:
            resolve(future, None, OSError(f"{self._path}: {why}"))

    # ── in the thread ─────────────────────────────────────────────────────────────────────────────────────────────────

    def _commit(self, batch: list[Job | None]) -> bool:
        jobs = self._accepted(batch)
        if not jobs:
            return True
        done: list[tuple[Callable[[Any], None], Any]] = []
        try:
            with write_lock(self._queue.connection):
                if self._miscounted:
                    self._queue.reload()
                    self._miscounted = False
                for run, then in jobs:
                    done.append((then, run(self._queue)))
                self._queue.write()
                if self._commit_hook:
                    self._commit_hook()
        except Exception as error:  # noqa: BLE001 - whatever it is, the whole batch failed, and all callers are notified
            self._failed = self._miscounted = True
            self._group.tell(self._fail, error)
            return False
        self._group.tell(self._settle, done)
        return True

    def _accepted(self, batch: list[Job | None]) -> list[Job]:
        """Return the jobs to run; those that were queued before everyone was notified of a failure are dropped."""
        if not self._failed:
            return cast("list[Job]", batch)  # the mark only follows a failure
        jobs: list[Job] = []
        for job in batch:
            if job is None:
                self._failed = False
            elif not self._failed:
                jobs.append(job)
        return jobs


def _put_all(messages: list[SentMessage], queue: Queue) -> list[Placed | Refused]:
    return queue.put_all(messages)
