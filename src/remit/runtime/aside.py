"""Runs long computations in one thread beside the event loop, and lets threads wait."""

import asyncio
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from contextvars import ContextVar
from typing import ParamSpec, TypeVar

from remit.protocol.errors import Code, RemitError, fault

P = ParamSpec("P")
T = TypeVar("T")

# Each may hold an envelope of 4 MiB; behind this many, another server answers sooner.
MOST_WAITING = 64
BUSY_MS = 1_000
# Examined in the event loop, which takes up to a millisecond per kilobyte of hostile text.
SMALL_BODY = 16 * 1024


class Aside:
    """One thread for work that would block the event loop.

    One, because threads share the interpreter: with two that compute, the loop would wait for both at each of its
    turns.
    """

    def __init__(self) -> None:
        self._pool: ThreadPoolExecutor | None = None
        self.waiting = 0
        """The work that is running or waiting."""

    async def run(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Return the result of *work*, or raise its exception; it is not run if the caller is cancelled before."""
        if self._pool is None:
            self._pool = ThreadPoolExecutor(1, "remit-aside")
        self.waiting += 1
        try:
            return await asyncio.wrap_future(self._pool.submit(work, *args, **kwargs))
        finally:
            self.waiting -= 1

    def refuse_if_full(self) -> None:
        """Raise a `RemitError` if so much is waiting that no more work should be accepted from elsewhere."""
        if self.waiting >= MOST_WAITING:
            why = "too many large requests wait for this server at once; nothing was started"
            raise RemitError(fault(Code.OVERLOADED, why, retry_after_ms=BUSY_MS))

    def forget(self) -> None:
        """Start again in a forked process: threads are not inherited."""
        self._pool, self.waiting = None, 0


aside = Aside()
"""All hubs and servers of a process share its interpreter, so there is one instance."""
os.register_at_fork(after_in_child=aside.forget)


# Its own module: an isolated agent's process needs this and nothing else of the delegation code.
stepping_aside: ContextVar[Callable[[], AbstractContextManager[None]]] = ContextVar(
    "stepping_aside", default=nullcontext
)
"""The owner of a thread may let another thread work while this one waits."""
