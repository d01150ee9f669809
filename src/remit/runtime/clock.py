"""The event loop's own time."""

import asyncio
import time
from collections.abc import Callable


class LoopClock:
    """Time as the running event loop counts it."""

    now = staticmethod(time.monotonic)

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def call_at(self, when: float, callback: Callable[[], None]) -> Callable[[], None]:
        return asyncio.get_running_loop().call_at(when, callback).cancel
