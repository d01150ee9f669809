"""One timer for all deadlines: a wheel of ticks instead of a timer for each delegation."""

from collections.abc import Callable
from typing import Generic, TypeVar

from remit.runtime.ports import Clock

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
