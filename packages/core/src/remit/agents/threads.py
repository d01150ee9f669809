"""Bounded threads for functions that are not async; each agent has its own, so that a hanging one blocks no other."""

import asyncio
import logging
import threading
from collections import deque
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

from remit.ports.brief import RECORDED_TURN
from remit.runtime.aside import stepping_aside

log = logging.getLogger("remit")

A = TypeVar("A")
T = TypeVar("T")


class Threads:
    """At most *limit* daemon threads, started on demand: a function that never returns does not keep the
    process alive.
    """

    def __init__(self, name: str, limit: int) -> None:
        self._name = name
        self._limit = limit
        self._count = 0
        self._idle = 0
        """Idle threads that have not been assigned any work."""
        self._generation = 0
        self._work: deque[Callable[[], None]] = deque()
        self._changed = threading.Condition()

    async def run(self, function: Callable[[A], T], argument: A) -> T:
        """Call *function* in a thread; if this is cancelled, work that has not begun is dropped.

        Work that has begun cannot be stopped: its thread stays busy until it returns, and a warning is logged.
        """
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        begun = threading.Event()
        turn = RECORDED_TURN.get()

        def perform() -> None:
            RECORDED_TURN.set(turn)  # a thread has its own context
            _perform(function, argument, loop, future, begun)

        self._put(perform)
        try:
            return await future
        except asyncio.CancelledError:
            if begun.is_set():
                log.warning("a thread of %s is still busy with work that was cancelled", self._name)
            raise

    async def close(self) -> None:
        """Let the threads end once they are idle; later work gets new ones."""
        with self._changed:
            self._generation += 1
            self._count = self._idle = 0
            self._changed.notify_all()

    @contextmanager
    def _step_aside(self) -> Generator[None, None, None]:
        """Do not count this thread while it only waits, so that it cannot block the work that it waits for."""
        with self._changed:
            self._count -= 1
            if self._work:
                self._bring_one_more()
        try:
            yield
        finally:
            with self._changed:
                self._count += 1

    def _put(self, work: Callable[[], None]) -> None:
        with self._changed:
            self._work.append(work)
            self._bring_one_more()

    def _bring_one_more(self) -> None:
        if self._idle > 0:
            self._idle -= 1
            self._changed.notify()
        elif self._count < self._limit:
            self._count += 1
            name = f"remit-{self._name}-{self._count}"
            threading.Thread(target=self._serve, args=(self._generation,), name=name, daemon=True).start()

    def _serve(self, generation: int) -> None:
        stepping_aside.set(self._step_aside)
        while (work := self._next(generation)) is not None:
            work()

    def _next(self, generation: int) -> Callable[[], None] | None:
        with self._changed:
            while generation == self._generation:
                if self._work:
                    return self._work.popleft()
                # The caller that wakes this thread removes it from the idle ones; if its work was already taken, it is
                # idle again.
                self._idle += 1
                self._changed.wait()
            return None


def _perform(
    function: Callable[[A], T],
    argument: A,
    loop: asyncio.AbstractEventLoop,
    future: asyncio.Future[T],
    begun: threading.Event,
) -> None:
    if future.cancelled():
        return
    begun.set()
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
