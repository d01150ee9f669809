"""Runs long computations in one thread beside the event loop, and lets threads wait."""

import asyncio
import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from contextvars import ContextVar
from functools import partial
from typing import Any, ParamSpec, TypeVar

from remit.policy.shares import SharedTotal, ShareOwner, ThreadQueue
from remit.protocol.errors import Code, RemitError, fault

P = ParamSpec("P")
T = TypeVar("T")

# Each may hold an envelope of 4 MiB; behind this many, another server answers sooner.
MOST_WAITING = 64
BUSY_MS = 1_000
# Examined in the event loop, which takes up to a millisecond per kilobyte of hostile text.
SMALL_BODY = 16 * 1024


current_share: ContextVar[ShareOwner] = ContextVar("current_share", default=ShareOwner())  # noqa: B039 - it is immutable
"""Whose work the current task does."""


class Aside:
    """One thread for work that would block the event loop; clients and their users have equal parts of its time.

    One, because threads share the interpreter: with two that compute, the loop would wait for both at each of its
    turns.
    """

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self.forget()

    def forget(self) -> None:
        """Start again in a forked process: threads are not inherited."""
        self._pool: ThreadPoolExecutor | None = None
        self._lock = threading.Lock()
        self._queue: ThreadQueue[_Work] = ThreadQueue()
        self.load = SharedTotal(MOST_WAITING)

    @property
    def waiting(self) -> int:
        """How much work is running or waiting."""
        return self.load.held

    async def run(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Return the result of *work*, or raise its exception; it is not run if the caller is cancelled before."""
        if self._pool is None:
            self._pool = ThreadPoolExecutor(1, "remit-aside")
        share, task = current_share.get(), _Work(partial(work, *args, **kwargs))
        with self._lock:
            self._queue.put(share, task)
            self.load.take(share)
        try:
            self._pool.submit(self._work_next)  # one for each: whichever work is next then
            return await asyncio.wrap_future(task.future)
        finally:
            with self._lock:
                self.load.give_back(share)

    def _work_next(self) -> None:
        with self._lock:
            share, task = self._queue.take()
        start = self._clock()
        task.run()
        with self._lock:
            self._queue.charge(share, self._clock() - start)

    def refuse_if_full(self) -> None:
        """Raise a `RemitError` if so much is waiting that no more work should be accepted from this client or user."""
        if not self.load.has_room(current_share.get()):
            why = "too many large requests wait for this server at once; nothing was started"
            raise RemitError(fault(Code.OVERLOADED, why, retry_after_ms=BUSY_MS))


class _Work:
    """Work for the thread, and the future of its result."""

    __slots__ = ("_work", "future")

    def __init__(self, work: Callable[[], Any]) -> None:
        self._work = work
        self.future: Future[Any] = Future()

    def run(self) -> None:
        if not self.future.set_running_or_notify_cancel():
            return
        try:
            result = self._work()
        except BaseException as error:  # noqa: BLE001 - it is raised where the result is awaited
            self.future.set_exception(error)
        else:
            self.future.set_result(result)


aside = Aside()
"""All hubs and servers of a process share its interpreter, so there is one instance."""
os.register_at_fork(after_in_child=aside.forget)


# Its own module: an isolated agent's process needs this and nothing else of the delegation code.
stepping_aside: ContextVar[Callable[[], AbstractContextManager[None]]] = ContextVar(
    "stepping_aside", default=nullcontext
)
"""The owner of a thread may let another thread work while this one waits."""
