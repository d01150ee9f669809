"""Compares what reading a long and a short text costs."""

import time
from collections.abc import Callable


def grows_in_proportion(read: Callable[[int], object], long: int, short: int) -> bool:
    """Say whether reading a text of eight times the length takes less than quadratic work, sixty-four times as much."""
    assert long == 8 * short
    return _seconds(lambda: read(long)) <= 24 * _seconds(lambda: read(short)) + 0.01


def _seconds(work: Callable[[], object]) -> float:
    best = float("inf")
    for _ in range(3):
        start = time.process_time()
        work()
        best = min(best, time.process_time() - start)
    return best
