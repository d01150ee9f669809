"""The writer of a device's state: one thread with group commit.

A commit waits for the disk, which takes longer than most of its content. So work that arrives during a commit goes into
the next one. Each piece of work is applied whole or not at all, and is reported only when it is durable.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar

from msgspec import Struct

from remit.protocol.errors import RemitError
from remit.relay.device.state import DeviceFile
from remit.stores.connection import TROUBLE

T = TypeVar("T")

# Enough that the disk is not the bottleneck, and few enough that later work does not wait long.
MOST_AT_ONCE = 64


class FailedWork(Struct, frozen=True):
    """Work that was rolled back, and why."""

    error: Exception


class Work(Struct, frozen=True):
    """A function to run, and a callback for its result once that is durable, or for a `FailedWork`."""

    do: Callable[[], Any]
    heard: Callable[[Any], None]


class Commits:
    """Runs work in order, several pieces in each commit.

    *company* may add work to a commit, first or last, before it begins.
    """

    def __init__(self, state: DeviceFile, company: Callable[[list[Work]], None] = lambda _: None) -> None:
        self._state = state
        self._company = company
        self._thread = ThreadPoolExecutor(1, "remit-device")
        self._waiting: deque[Work] = deque()
        self._idle = asyncio.Event()
        self._idle.set()

    def do(self, work: Callable[[], T]) -> "asyncio.Future[T]":
        """Queue *work* and return a future of its result. It runs even if the future is cancelled."""
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._waiting.append(Work(work, partial(_resolve, future)))
        if self._idle.is_set():
            self._begin()
        return future

    async def close(self) -> None:
        """Wait for all work and end the thread; no work can be queued after that."""
        await self._idle.wait()
        await asyncio.to_thread(self._thread.shutdown)

    def _begin(self) -> None:
        self._idle.clear()
        batch = [self._waiting.popleft() for _ in range(min(MOST_AT_ONCE, len(self._waiting)))]
        self._company(batch)
        done = asyncio.get_running_loop().run_in_executor(self._thread, self._commit, batch)
        done.add_done_callback(lambda future: self._end(batch, future))

    def _end(self, batch: list[Work], future: "asyncio.Future[list[Any]]") -> None:
        error = future.exception()
        outcomes = [FailedWork(error)] * len(batch) if isinstance(error, Exception) else future.result()
        for work, outcome in zip(batch, outcomes, strict=True):
            work.heard(outcome)
        if self._waiting:
            self._begin()
        else:
            self._idle.set()

    # ── in the thread ─────────────────────────────────────────────────────────────────────────────────────────────────

    def _commit(self, batch: list[Work]) -> list[Any]:
        outcomes: list[Any] = []
        try:
            with self._state.writing():
                for work in batch:
                    outcomes.append(self._outcome(work))
        except RemitError as error:  # the store failed: the whole commit was rolled back
            outcomes = [each if isinstance(each, FailedWork) else FailedWork(error) for each in outcomes]
            outcomes += [FailedWork(error) for _ in batch[len(outcomes) :]]
        return outcomes

    def _outcome(self, work: Work) -> Any:
        try:
            with self._state.apart():
                return work.do()
        except Exception as error:
            if isinstance(error, TROUBLE) or not self._state.is_writing:
                raise  # the store failed, not this work
            return FailedWork(error)


def _resolve(future: "asyncio.Future[Any]", outcome: object) -> None:
    if future.done():
        return  # the caller was cancelled
    if isinstance(outcome, FailedWork):
        future.set_exception(outcome.error)
    else:
        future.set_result(outcome)
