"""An event loop in virtual time, on which several simulated processes run."""

import asyncio
import contextvars
import heapq
import itertools
import random
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")

_numbers = itertools.count()


class NumberedTask(asyncio.Task[Any]):
    """A task whose place in a set does not depend on its address in memory."""

    def __init__(self, coro: Any, *, loop: "SimulatedLoop", **options: Any) -> None:
        self._number = next(_numbers)
        super().__init__(coro, loop=loop, **options)
        loop.kept.append(self)

    def __hash__(self) -> int:
        return self._number


class NumberedFuture(asyncio.Future[Any]):
    """A future whose place in a set does not depend on its address in memory."""

    def __init__(self, **options: Any) -> None:
        self._number = next(_numbers)
        super().__init__(**options)

    def __hash__(self) -> int:
        return self._number


class Callback(asyncio.TimerHandle):
    """A callback of one process; it sets only what is used of a handle, at a third of the cost."""

    __slots__ = ("_act", "process")

    def __init__(
        self,
        when: float,
        act: Callable[..., object],
        args: tuple[Any, ...],
        context: contextvars.Context | None,
    ) -> None:
        self._when = when
        self._act: Callable[..., object] | None = act
        self._args = args
        self._context = contextvars.copy_context() if context is None else context
        self.process = self._context[PROCESS]

    def fire(self) -> None:
        """Call it, unless it was cancelled."""
        if self._act is not None:
            self._context.run(self._act, *self._args)

    def cancel(self) -> None:
        self._act = None

    def cancelled(self) -> bool:
        return self._act is None


class SimulatedProcess:
    """A process: its callbacks run in their order, and none after it was killed."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.alive = True
        self.paused = False
        self.ready: deque[Callback] = deque()
        self.context = contextvars.copy_context()
        self.context.run(PROCESS.set, self)


PROCESS: contextvars.ContextVar[SimulatedProcess] = contextvars.ContextVar("PROCESS")


class SimulatedLoop(asyncio.AbstractEventLoop):
    """One loop for all processes.

    In a process, callbacks are called in the order in which they became ready, as asyncio promises. Which process goes
    on next is drawn. Time stands still while anything is ready, and then moves to the next timer.
    """

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._now = 1_000.0
        self._order = itertools.count()
        self._timers: list[tuple[float, int, Callback]] = []
        self._processes: list[SimulatedProcess] = []
        self._closed = False
        self.kept: list[object] = []
        """The tasks of all processes: one that is collected early would run its `finally` blocks."""
        self.errors: list[BaseException] = []
        """Errors in tasks whose results nobody has read."""

    # ── processes ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def process(self, name: str) -> SimulatedProcess:
        """Return a new process."""
        process = SimulatedProcess(name)
        self._processes.append(process)
        return process

    def start(self, process: SimulatedProcess, work: Coroutine[Any, Any, T]) -> "asyncio.Task[T]":
        """Run *work* in a process."""
        return self.create_task(work, context=process.context.copy())

    def kill(self, process: SimulatedProcess) -> None:
        """End a process in the middle of whatever it does."""
        process.alive = False
        process.ready.clear()
        self._processes.remove(process)

    def run(self, done: Callable[[], bool], until: float) -> bool:
        """Run until *done*; False: it was not at the time *until*."""
        asyncio._set_running_loop(self)  # pyright: ignore[reportPrivateUsage] - the documented way for a loop
        try:
            while not done():
                if ready := [each for each in self._processes if each.ready and not each.paused]:
                    self._turn(ready[0] if len(ready) == 1 else self._rng.choice(ready))
                elif not self._timers or self._timers[0][0] > until:
                    return False
                else:
                    self._advance()
            return True
        finally:
            asyncio._set_running_loop(None)  # pyright: ignore[reportPrivateUsage]

    def _turn(self, process: SimulatedProcess) -> None:
        for _ in range(len(process.ready)):
            if not process.ready or process.paused:
                return
            process.ready.popleft().fire()

    def _advance(self) -> None:
        self._now = self._timers[0][0]
        while self._timers and self._timers[0][0] <= self._now:
            callback = heapq.heappop(self._timers)[2]
            if not callback.cancelled():
                self._queue(callback)

    def _queue(self, callback: Callback) -> None:
        if callback.process.alive:
            callback.process.ready.append(callback)

    # ── what asyncio needs ────────────────────────────────────────────────────────────────────────────────────────────

    def time(self) -> float:
        return self._now

    def call_soon(
        self, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> Callback:
        made = Callback(self._now, callback, args, context)
        if not self._closed:
            self._queue(made)
        return made

    def call_at(
        self, when: float, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> Callback:
        made = Callback(when, callback, args, context)
        if not self._closed:
            heapq.heappush(self._timers, (when, next(self._order), made))
        return made

    def call_later(
        self, delay: float, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> Callback:
        return self.call_at(self._now + delay, callback, *args, context=context)

    def call_soon_threadsafe(
        self, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> Callback:
        return self.call_soon(callback, *args, context=context)

    def create_future(self) -> asyncio.Future[Any]:
        return NumberedFuture(loop=self)

    def create_task(
        self, coro: Any, *, name: object = None, context: contextvars.Context | None = None
    ) -> asyncio.Task[Any]:
        return NumberedTask(coro, loop=self, name=name, context=context)

    def run_in_executor(self, executor: object, func: Callable[..., T], *args: Any) -> asyncio.Future[T]:
        """Run *func* at once: a thread would take no virtual time."""
        future = self.create_future()
        try:
            future.set_result(func(*args))
        except Exception as error:  # noqa: BLE001 - whoever waits for it gets it
            future.set_exception(error)
        return future

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return not self._closed

    def is_closed(self) -> bool:
        return self._closed

    def close(self) -> None:
        self._closed = True
        self._timers.clear()
        for process in self._processes:
            process.ready.clear()
        self.kept.clear()

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Keep errors that nobody handles; that tasks of killed processes never end is no error."""
        if not self._closed and context.get("exception") is not None:
            self.errors.append(context["exception"])
