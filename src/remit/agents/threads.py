"""Bounded threads for functions that are not async; each agent has its own, so that one hanging holds up no other."""

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar

A = TypeVar("A")
T = TypeVar("T")


class Threads:
    """At most *limit* daemon threads, made when they are needed: one that never returns does not keep the process."""

    def __init__(self, name: str, limit: int) -> None:
        self._name = name
        self._limit = limit
        self._count = 0
        self._idle = 0
        self._work: deque[Callable[[], None] | None] = deque()
        self._changed = threading.Condition()

    async def run(self, function: Callable[[A], T], argument: A) -> T:
        """Call *function* in a thread; if this is cancelled, work that has not begun is dropped."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        self._put(lambda: _perform(function, argument, loop, future))
        return await future

    async def close(self) -> None:
        """Let the threads end once they are idle."""
        with self._changed:
            self._work.extend([None] * self._count)
            self._changed.notify_all()

    def _put(self, work: Callable[[], None]) -> None:
        with self._changed:
            self._work.append(work)
            if self._idle == 0 and self._count < self._limit:
                self._count += 1
                threading.Thread(target=self._serve, name=f"remit-{self._name}-{self._count}", daemon=True).start()
            else:
                self._changed.notify()

    def _serve(self) -> None:
        while True:
            with self._changed:
                while not self._work:
                    self._idle += 1
                    self._changed.wait()
                    self._idle -= 1
                work = self._work.popleft()
                if work is None:
                    self._count -= 1
                    return
            work()


def _perform(
    function: Callable[[A], T], argument: A, loop: asyncio.AbstractEventLoop, future: asyncio.Future[T]
) -> None:
    if future.cancelled():
        return
    error: BaseException | None = None
    value: Any = None
    try:
        value = function(argument)
    except BaseException as raised:  # noqa: BLE001 - it is handed to whoever waits
        error = raised
    with suppress(RuntimeError):  # the loop is closed: nobody waits any more
        loop.call_soon_threadsafe(_settle, future, value, error)


def _settle(future: asyncio.Future[T], value: T, error: BaseException | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(value)
    elif isinstance(error, StopIteration):
        future.set_exception(RuntimeError("the function raised StopIteration"))
    else:
        future.set_exception(error)
