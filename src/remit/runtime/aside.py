"""Runs what takes long in one thread beside the event loop, one after another."""

import asyncio
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

from remit.protocol.errors import Code, RemitError, fault

P = ParamSpec("P")
T = TypeVar("T")

# Each may hold an envelope of 4 MiB; whoever is behind so many is served sooner by another server.
MOST_WAITING = 64
BUSY_MS = 1_000
# Read in the event loop, which takes up to a millisecond for each kilobyte that is made to be slow.
SMALL_BODY = 16 * 1024


class Aside:
    """One thread for what would hold the event loop.

    One, because threads share the interpreter: of two that compute, the loop would wait for both at each of its turns.
    """

    def __init__(self) -> None:
        self._pool: ThreadPoolExecutor | None = None
        self.waiting = 0
        """How much is being worked on or waits for its turn."""

    async def run(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Return what *work* returns, or raise what it raises; it is not done if the caller is cancelled before."""
        if self._pool is None:
            self._pool = ThreadPoolExecutor(1, "remit-aside")
        self.waiting += 1
        try:
            return await asyncio.wrap_future(self._pool.submit(work, *args, **kwargs))
        finally:
            self.waiting -= 1

    def refuse_if_full(self) -> None:
        """Raise a `RemitError` if so much waits that no more should be taken from elsewhere."""
        if self.waiting >= MOST_WAITING:
            why = "too many large requests wait for this server at once; nothing was started"
            raise RemitError(fault(Code.OVERLOADED, why, retry_after_ms=BUSY_MS))

    def forget(self) -> None:
        """Start anew in a process that was forked: threads do not come along."""
        self._pool, self.waiting = None, 0


aside = Aside()
"""All hubs and servers of a process share its interpreter, so there is one of these."""
os.register_at_fork(after_in_child=aside.forget)
