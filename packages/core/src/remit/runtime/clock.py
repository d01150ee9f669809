"""The event loop's clock, jumps of the wall clock, one timer for all deadlines, and the end of tasks without one."""

import asyncio
import time
from collections.abc import Callable, Iterable
from typing import Any, Generic, NamedTuple, TypeVar

from remit.ports import Clock

# How often a store notes the wall clock: often enough to tell a restart from a pause, rarely enough for the disk.
SEEN_EVERY_MS = 60_000
# A correction below this is not a jump.
LEAST_JUMP_MS = 60_000
# While nobody had the store open, a pause cannot be told from a jump: it counts up to an hour. So ids are kept for
# longer after a long pause, and a jump of weeks costs an id at most an hour of its window.
MOST_PAUSE_MS = 3_600_000

# Long enough for a task to end in order, rollback and all.
CANCELLED_AGAIN_S = 5.0


async def end_tasks(tasks: Iterable[asyncio.Task[Any]]) -> None:
    """Cancel tasks that would go on for ever, and return once they have ended.

    In Python 3.11 `asyncio.wait_for`, by which clients of databases and buses wait, loses a cancel that comes together
    with what it waits for. So a task that goes on is cancelled again.
    """
    left = set(tasks)
    while left:
        for task in left:
            task.cancel()
        _, left = await asyncio.wait(left, timeout=CANCELLED_AGAIN_S)


class LoopClock:
    """The time of the running event loop."""

    now = staticmethod(time.monotonic)

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def call_at(self, when: float, callback: Callable[[], None]) -> Callable[[], None]:
        return asyncio.get_running_loop().call_at(when, callback).cancel


async def sleep_to_tick(seconds: float) -> None:
    """Sleep until the loop's time is a multiple of *seconds*.

    Tasks that look for something now and then so wake up together. An idle process uses most of its time for waking up.
    """
    await asyncio.sleep(until_tick(seconds))


def until_tick(seconds: float) -> float:
    """Return how long it is until the loop's time is a multiple of *seconds* again."""
    left = seconds - asyncio.get_running_loop().time() % seconds
    # 0.3 % 0.1 is a little less than 0.1. So short a rest ends before the clock moves: this is the tick already.
    return left if left > seconds / 1_000 else seconds


class _Seen(NamedTuple):
    noted_ms: int
    wall_ms: int
    at: float


class Jumps:
    """Tells jumps of the wall clock from time that passed."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._seen: _Seen | None = None

    def since(self, noted_ms: int, now_ms: int) -> int:
        """Return by how many milliseconds the wall clock jumped since a store noted it (0: never noted)."""
        at = self._monotonic()
        if self._seen is None or self._seen.noted_ms != noted_ms:
            # Noted by another process, or an earlier one: the time since then is unknown.
            self._seen = _Seen(noted_ms, now_ms, at)
            passed_ms = min(max(now_ms - noted_ms, 0), MOST_PAUSE_MS)
            jump_ms = now_ms - noted_ms - passed_ms if noted_ms else 0
        else:
            jump_ms = now_ms - self._seen.wall_ms - round((at - self._seen.at) * 1_000)
        return jump_ms if abs(jump_ms) > LEAST_JUMP_MS else 0

    def noted(self, now_ms: int) -> None:
        """Continue from a time that the store has just noted."""
        self._seen = _Seen(now_ms, now_ms, self._monotonic())


T = TypeVar("T")

# Deadlines are honoured to the next tick; a caller's reserve for its answer is at least five of them.
TICK_S = 0.01


class TimerWheel(Generic[T]):
    """Calls back with each due item and its tick, at most one tick late and never early.

    An item that is removed while its own tick is being processed is still called: compare the tick.
    """

    def __init__(self, clock: Clock, due: Callable[[T, int], None]) -> None:
        self._clock = clock
        self._due = due
        self._ticks: dict[int, set[T]] = {}
        self._next: int | None = None
        self._take_back: Callable[[], None] | None = None

    def add(self, item: T, when: float) -> int:
        """Schedule *item* at *when*; returns the tick that `discard` needs."""
        tick = int(when / TICK_S) + 1
        items = self._ticks.get(tick)
        if items is None:
            self._ticks[tick] = {item}
            if self._next is None or tick < self._next:
                self._arm(tick)
        else:
            items.add(item)
        return tick

    def discard(self, item: T, tick: int) -> None:
        """Remove *item*."""
        items = self._ticks.get(tick)
        if items is not None:
            items.discard(item)
            if not items:
                del self._ticks[tick]

    def is_due(self, tick: int) -> bool:
        """Return whether a tick is due, even if its callbacks have not run yet."""
        return tick <= self._now()

    def stop(self) -> None:
        """Remove everything."""
        self._ticks.clear()
        if self._take_back is not None:
            self._take_back()
        self._next = self._take_back = None

    def _arm(self, tick: int) -> None:
        if self._take_back is not None:
            self._take_back()
        self._next = tick
        self._take_back = self._clock.call_at(tick * TICK_S, self._turn)

    def _turn(self) -> None:
        self._next = self._take_back = None
        now = self._now()
        for tick in sorted(tick for tick in self._ticks if tick <= now):
            for item in self._ticks.pop(tick, ()):
                self._due(item, tick)
        if self._ticks and (self._next is None or min(self._ticks) < self._next):
            self._arm(min(self._ticks))

    def _now(self) -> int:
        return int(self._clock.now() / TICK_S + 1e-6)
