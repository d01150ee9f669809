"""Bounds the time in which a hub closes, whatever its store or a peer does."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Iterable
from contextlib import asynccontextmanager

log = logging.getLogger("remit")

# How long a server or a worker may take after its drain, so that both end before others kill it: a container is given
# 30 seconds to stop (`deploy/`), of which 20 are for the drain by default.
CLOSE_S = 8.0
# What is left for the rest when the answers of a server are sent, when the runs have ended, and when all resources but
# the store are closed.
AFTER_ANSWERS_S, AFTER_RUNS_S, AFTER_RESOURCES_S = 6.0, 3.0, 2.0
# A task that is cancelled when the time is over has this long to end.
_LAST_S = 0.5


class ClosingTime:
    """The moment by which a hub has closed; without one, it takes as long as it takes."""

    def __init__(self) -> None:
        self.until: float | None = None
        """In the time of the event loop."""

    def begin(self, drain_s: float) -> None:
        """Set the moment: a drain from now on, and the time to close after it."""
        self.until = asyncio.get_running_loop().time() + drain_s + CLOSE_S

    def left_s(self, reserve_s: float, most_s: float) -> float:
        """Return how much time there is until only *reserve_s* is left, at most *most_s*."""
        if self.until is None:
            return most_s
        return max(0.0, min(most_s, self.until - reserve_s - asyncio.get_running_loop().time()))

    @asynccontextmanager
    async def leaving(self, reserve_s: float, what: str) -> AsyncGenerator[None]:
        """Give up what the block does when only *reserve_s* is left."""
        limit = asyncio.timeout_at(None if self.until is None else self.until - reserve_s)
        try:
            async with limit:
                yield
        except TimeoutError:
            if not limit.expired():
                raise
            _say_given_up(what)

    async def close_each(
        self, closers: Iterable[Callable[[], Awaitable[None]]], worded: Callable[[BaseException], str]
    ) -> None:
        """Close resources one after another; a failure in one does not keep the others open."""
        for close in closers:
            try:
                async with self.leaving(AFTER_RESOURCES_S, "a resource"):
                    await close()
            except Exception as error:  # noqa: BLE001 - logged; the store has yet to be closed
                log.error("failed to close a resource: %s", worded(error))

    async def finish(self, work: Coroutine[None, None, None], what: str) -> None:
        """Close the last of it; if that hangs even when it is cancelled, leave it behind."""
        if self.until is None:
            await work
            return
        task = asyncio.create_task(work)
        await asyncio.wait({task}, timeout=self.left_s(_LAST_S, CLOSE_S))
        if not task.done():
            _say_given_up(what)
            task.cancel()
            await asyncio.wait({task}, timeout=_LAST_S)
        if task.done() and not task.cancelled():
            task.result()


def _say_given_up(what: str) -> None:
    log.error("the time to close is over: %s was not closed in order, and the next hub resumes what it can", what)
