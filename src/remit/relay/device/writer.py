"""What is done with a device's state, in one thread: what waits together is committed together.

A commit waits for the disk, which takes longer than most of what is committed. So whatever is wanted while one is under
way goes into the next one, whole or not at all each, and nobody is told that it is done before it is durable.
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
from remit.stores.faults import TROUBLE

T = TypeVar("T")

# So many that the disk no longer counts, and few enough that whoever comes next is not kept waiting for long.
MOST_AT_ONCE = 64


class FailedWork(Struct, frozen=True):
    """A work of which nothing was kept, and why."""

    error: Exception


class Work(Struct, frozen=True):
    """Something to do, and who hears what came of it, once that is durable: its result, or a `FailedWork`."""

    do: Callable[[], Any]
    heard: Callable[[Any], None]


class Commits:
    """Does works in the order in which they are wanted.

    *company* may add to the works of a commit, first or last, before it begins.
    """

    def __init__(self, state: DeviceFile, company: Callable[[list[Work]], None] = lambda _: None) -> None:
        self._state = state
        self._company = company
        self._thread = ThreadPoolExecutor(1, "remit-device")
        self._waiting: deque[Work] = deque()
        self._idle = asyncio.Event()
        self._idle.set()

    def do(self, work: Callable[[], T]) -> "asyncio.Future[T]":
        """Return what will come of *work*. It is done even if nobody waits for it any more."""
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._waiting.append(Work(work, partial(_resolve, future)))
        if self._idle.is_set():
            self._begin()
        return future

    async def close(self) -> None:
        """Return when everything is done; nothing can be wanted after that."""
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
        except RemitError as error:  # the store is in trouble: nothing of this was kept
            outcomes = [each if isinstance(each, FailedWork) else FailedWork(error) for each in outcomes]
            outcomes += [FailedWork(error) for _ in batch[len(outcomes) :]]
        return outcomes

    def _outcome(self, work: Work) -> Any:
        try:
            with self._state.apart():
                return work.do()
        except Exception as error:
            if isinstance(error, TROUBLE) or not self._state.is_writing:
                raise  # it is no fault of this work
            return FailedWork(error)


def _resolve(future: "asyncio.Future[Any]", outcome: object) -> None:
    if future.done():
        return  # whoever wanted it was cancelled
    if isinstance(outcome, FailedWork):
        future.set_exception(outcome.error)
    else:
        future.set_result(outcome)
