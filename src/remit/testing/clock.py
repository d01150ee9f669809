"""A clock that stands still until a test turns it."""

import heapq
import time
from collections.abc import Callable
from itertools import count


class TurnedClock:
    """Time that passes only when it is turned; implements `remit.runtime.ports.Clock`.

    Deadlines, rates and breakers of a hub made with `Hub(clock=TurnedClock())` then wait for the test. The date starts
    at *wall_ms*, or today: a store has a clock of its own, and would forget outcomes that look old to it.
    """

    def __init__(self, *, now: float = 1_000.0, wall_ms: int | None = None) -> None:
        self._now = self._start = now
        self._wall_ms = time.time_ns() // 1_000_000 if wall_ms is None else wall_ms
        self._numbers = count()
        self._planned: list[tuple[float, int, Callable[[], None]]] = []
        self._taken_back: set[int] = set()

    def now(self) -> float:
        return self._now

    def wall_ms(self) -> int:
        return self._wall_ms + round((self._now - self._start) * 1_000)

    def call_at(self, when: float, callback: Callable[[], None]) -> Callable[[], None]:
        """Call back at the turn that reaches *when*, or at the next turn if that time has passed."""
        number = next(self._numbers)
        heapq.heappush(self._planned, (when, number, callback))
        return lambda: self._taken_back.add(number)

    def turn(self, seconds: float) -> None:
        """Let time pass; due callbacks run in order, each at its own time."""
        if seconds < 0:
            raise ValueError(f"time only moves forward, not by {seconds} s")
        end = self._now + seconds
        while self._planned and self._planned[0][0] <= end:
            when, number, callback = heapq.heappop(self._planned)
            if number not in self._taken_back:
                self._now = max(self._now, when)
                callback()
            self._taken_back.discard(number)
        self._now = end
