"""When a program that failed may be started again: later after each failure in a row."""

from collections.abc import Callable, Sequence


class RestartPause:
    """Counts failures in a row. After each, the next start waits for the next of *pauses_s*, at the end for the
    last one.
    """

    def __init__(self, pauses_s: Sequence[float], now: Callable[[], float]) -> None:
        self._pauses_s = pauses_s
        self._now = now
        self.failures = 0
        self._not_before = float("-inf")

    def left_s(self) -> float:
        """Return how many seconds are left until the next start; 0 if it need not wait."""
        return max(0.0, self._not_before - self._now())

    def fail(self) -> None:
        """Count a failure, and begin the pause after it."""
        self._not_before = self._now() + self._pauses_s[min(self.failures, len(self._pauses_s) - 1)]
        self.failures += 1

    def succeed(self) -> None:
        """Count from zero again; a pause that has begun goes on."""
        self.failures = 0

    def reset(self) -> None:
        """Forget all failures, and the pause."""
        self.failures, self._not_before = 0, float("-inf")
