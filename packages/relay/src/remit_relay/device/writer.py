"""The writer of a device's state, with group commit.

Each piece of work is applied whole or not at all, and is reported only when it is durable.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, TypeVar

from msgspec import Struct

from remit.runtime.ports import StoreError
from remit.stores.connection import TROUBLE
from remit.stores.group_commit import GroupCommit, resolve
from remit_relay.device.state import DeviceFile

T = TypeVar("T")

# Enough that the disk is not the bottleneck, and few enough that later work does not wait long.
MOST_AT_ONCE = 64
# A full disk gets space at any time; looking once a second costs nothing beside what waits for it.
AGAIN_S = 1.0

_log = logging.getLogger("remit.relay")


class FailedWork(Struct, frozen=True):
    """Work that was rolled back, and why."""

    error: Exception


class Work(Struct, frozen=True):
    """A function to run, and a callback for its result once that is durable, or for a `FailedWork`."""

    do: Callable[[], Any]
    heard: Callable[[Any], None]


class Commits:
    """Runs work in order, several pieces in each commit.

    *company* may add work to a commit, first or last, before it begins. It learns the outcome of that work before it is
    called for the next commit, so the thread gets one batch at a time.
    """

    def __init__(self, state: DeviceFile, company: Callable[[list[Work]], None] = lambda _: None) -> None:
        self._state = state
        self._company = company
        self._group = GroupCommit[Work](f"remit-device {state.path.name}", self._commit)
        self._group.start()
        self._waiting: deque[Work] = deque()
        self._idle = asyncio.Event()
        self._idle.set()

    def do(self, work: Callable[[], T]) -> "asyncio.Future[T]":
        """Queue *work* and return a future of its result. It runs even if the future is cancelled."""
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._waiting.append(Work(work, partial(_report, future)))
        if self._idle.is_set():
            self._begin()
        return future

    async def close(self) -> None:
        """Wait for all work and end the thread; no work can be queued after that."""
        await self._idle.wait()
        await self._group.stop()

    def _begin(self) -> None:
        self._idle.clear()
        batch = [self._waiting.popleft() for _ in range(min(MOST_AT_ONCE, len(self._waiting)))]
        self._company(batch)
        self._group.queue.extend(batch)
        self._group.wake()

    def _end(self, batch: list[Work], outcomes: list[Any]) -> None:
        for work, outcome in zip(batch, outcomes, strict=True):
            work.heard(outcome)
        if self._waiting:
            self._begin()
        else:
            self._idle.set()

    # ── in the thread ─────────────────────────────────────────────────────────────────────────────────────────────────

    def _commit(self, batch: list[Work]) -> bool:
        if not batch:
            return True
        outcomes: list[Any] = []
        works = True
        try:
            with self._state.writing():
                for work in batch:
                    outcomes.append(self._outcome(work))
        except Exception as error:  # noqa: BLE001 - the store failed: the whole commit was rolled back
            outcomes = [each if isinstance(each, FailedWork) else FailedWork(error) for each in outcomes]
            outcomes += [FailedWork(error) for _ in batch[len(outcomes) :]]
            works = False
        self._group.tell(self._end, batch, outcomes)
        return works

    def _outcome(self, work: Work) -> Any:
        try:
            with self._state.apart():
                return work.do()
        except Exception as error:
            if isinstance(error, TROUBLE) or not self._state.is_writing:
                raise  # the store failed, not this work
            return FailedWork(error)


async def until_stored(work: Callable[[], Awaitable[T]]) -> T:
    """Return the result of *work*; while the store cannot be used, as on a full disk, try it again each second.

    It is for work that nobody asked for and so nobody would repeat. The work must change nothing if it fails.
    """
    trouble = ""
    while True:
        try:
            result = await work()
        except StoreError as error:
            if error.fault.message != trouble:
                trouble = error.fault.message
                _log.error("%s; trying again each second", trouble)
            await asyncio.sleep(AGAIN_S)
        else:
            if trouble:
                _log.warning("writing works again after: %s", trouble)
            return result


def _report(future: "asyncio.Future[Any]", outcome: object) -> None:
    if isinstance(outcome, FailedWork):
        resolve(future, None, outcome.error)
    else:
        resolve(future, outcome)
