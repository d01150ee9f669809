"""The readiness check: whether the store can write, tested by a write."""

import asyncio
import time

from remit.runtime.ports import Store, StoreError

# A more frequent probe gets the last result: it must not keep the disk busy.
FRESH_S = 1.0

_COUNTER = "remit/readyz"
_WINDOW_MS = 60_000


class Readiness:
    """Probes the store with a tiny durable write. Concurrent probes, and those within a second, share one write."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._probe: asyncio.Task[bool] | None = None
        self._written_at = float("-inf")

    async def can_write(self, wait_s: float) -> bool:
        """Say whether the store wrote something lately, or does so within *wait_s*."""
        if time.monotonic() - self._written_at < FRESH_S:
            return True
        if self._probe is None or self._probe.done():
            self._probe = asyncio.create_task(self._write(wait_s))
        return await asyncio.shield(self._probe)

    async def _write(self, wait_s: float) -> bool:
        try:
            async with asyncio.timeout(wait_s):
                # One row that is overwritten: it passes the writer, behind what is queued, and is durable on return.
                await self._store.incr(_COUNTER, 1, _WINDOW_MS)
        except (StoreError, TimeoutError):
            return False
        self._written_at = time.monotonic()
        return True

    async def close(self) -> None:
        """Cancel a running probe."""
        if self._probe is not None:
            self._probe.cancel()
            await asyncio.wait({self._probe})
