"""Time, so that tests can turn it."""

from collections.abc import Callable
from typing import Protocol


class Clock(Protocol):
    """Time, so that tests can turn it."""

    def now(self) -> float:
        """Seconds on a clock that only moves forward."""
        ...

    def wall_ms(self) -> int:
        """Milliseconds since 1970, for people to read; nothing is decided by it but leases."""
        ...

    def call_at(self, when: float, callback: Callable[[], None]) -> Callable[[], None]:
        """Call back once `now()` has reached *when*; the function returned takes it back."""
        ...
