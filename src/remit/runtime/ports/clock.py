"""The clock, so that tests can control time."""

from collections.abc import Callable
from typing import Protocol


class Clock(Protocol):
    """A clock that tests can control."""

    def now(self) -> float:
        """Return the seconds of a monotonic clock."""
        ...

    def wall_ms(self) -> int:
        """Return the milliseconds since 1970, for people to read. Only leases depend on it."""
        ...

    def call_at(self, when: float, callback: Callable[[], None]) -> Callable[[], None]:
        """Call *callback* once `now()` reaches *when*. The returned function cancels it."""
        ...
