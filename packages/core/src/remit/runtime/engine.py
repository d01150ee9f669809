"""The engine of a hub: its parts wired together, opened in order, watched, and closed whatever fails."""

import asyncio
import logging
import os
import sys
import threading
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Iterable
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from functools import partial
from typing import NamedTuple

from remit.policy import redaction
from remit.ports import Companion, Remote
from remit.protocol.card import AgentCard
from remit.protocol.errors import Code, RemitError, fault
from remit.runtime.brief_backend import LocalBriefBackend
from remit.runtime.context import RuntimeContext
from remit.runtime.delegation.admission import RootAdmission
from remit.runtime.delegation.dispatch import Dispatch
from remit.runtime.events import HubEvents
from remit.runtime.execution import Executor
from remit.runtime.frames import Frame
from remit.runtime.incoming import IncomingRequests
from remit.runtime.leases import Leases
from remit.runtime.root_runs import RootRecords, RootRuns
from remit.runtime.shared_requests import SharedLimits, SharedRequests

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


# A loop that is blocked for this long delays every deadline and every other agent.
BLOCKED_S = 0.25


class Watchdog:
    """Watches the event loop; when it is blocked, reports the delegation whose code is running."""

    def __init__(self, running: Callable[[], list[Frame]], report: Callable[[Frame], None]) -> None:
        self._running = running
        self._report = report
        self._asked = self._answered = 0
        """The last question of the thread to the loop, and the last one that the loop has answered."""
        self._loop_thread = 0
        self._stop = threading.Event()
        self._begun = threading.Event()
        """Set when an agent begins to work, and at the end."""
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Watch the running loop."""
        loop = asyncio.get_running_loop()
        self._loop_thread = threading.get_ident()
        self._stop.clear()
        self._thread = threading.Thread(target=self._watch, args=(loop,), name="remit-watchdog", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop watching."""
        self._stop.set()
        self._begun.set()
        if self._thread is not None:
            self._thread.join()

    def wake(self) -> None:
        """Watch the loop while an agent is at work: one begins now."""
        self._begun.set()

    def _answer(self, question: int) -> None:
        self._answered = question

    def _watch(self, loop: asyncio.AbstractEventLoop) -> None:
        asked_at, reported = 0.0, 0
        while not self._stop.wait(BLOCKED_S):
            if self._answered == self._asked:
                # Without an agent at work there is nobody to report, and neither the loop nor this thread is woken.
                self._begun.clear()
                if self._stop.is_set():  # perhaps set before that, together with what was cleared
                    return
                if not self._running():
                    self._begun.wait()
                    continue
                self._asked += 1
                asked_at = time.monotonic()
                with suppress(RuntimeError):  # the loop was closed without `stop`
                    loop.call_soon_threadsafe(self._answer, self._asked)
                continue
            if time.monotonic() - asked_at < BLOCKED_S or self._asked == reported:
                continue
            task = asyncio.current_task(loop)
            if task is None:  # a callback blocks it, and frames that have not started have no task either
                continue
            blocking = next((frame for frame in self._running() if frame.task is task), None)
            if blocking is not None and not _is_redacting(self._loop_thread):
                reported = self._asked
                log.warning("agent %s blocks the event loop in %s", blocking.card.name, blocking.path)
                loop.call_soon_threadsafe(self._report, blocking)


def _is_redacting(thread: int) -> bool:
    """Return whether a thread is running redaction: that is the hub's own work, and takes long when detectors load."""
    frame = sys._current_frames().get(thread)  # pyright: ignore[reportPrivateUsage] - there is no other
    while frame is not None:
        if frame.f_code.co_filename == redaction.__file__:
            return True
        frame = frame.f_back
    return False


class Engine(NamedTuple):
    """The parts of one hub, wired together."""

    context: RuntimeContext
    dispatch: Dispatch
    executor: Executor
    runs: RootRuns
    leases: Leases
    incoming: IncomingRequests
    shared: SharedRequests
    """Requests from and for the hubs that share this hub's store."""
    shared_limits: SharedLimits | None
    """Limits that hold over all hubs that share the store; None: this hub counts alone."""
    events: HubEvents

    def frames(self) -> list[Frame]:
        """Return the delegations in flight."""
        return list(self.context.ledger.frames.values())


def engine_of(context: RuntimeContext, *, shares_limits: bool = False) -> Engine:
    """Wire the parts that work in this context."""
    dispatch = Dispatch(context)
    admission = RootAdmission(context, dispatch.admission)
    worker = f"{context.registry.hub}-{os.urandom(8).hex()}"
    records = RootRecords(context, dispatch.recording, dispatch.refusals, worker)
    runs = RootRuns(dispatch, admission, records, dispatch.extension.budgets)
    leases = Leases(dispatch, admission, records, runs)
    return Engine(
        context=context,
        dispatch=dispatch,
        executor=Executor(dispatch, partial(LocalBriefBackend, dispatch)),
        runs=runs,
        leases=leases,
        incoming=IncomingRequests(context, runs),
        shared=SharedRequests(context, admission, records, runs, leases),
        shared_limits=SharedLimits(context, dispatch.routing) if shares_limits else None,
        events=HubEvents(context.store, context.outflow, context.clock),
    )


class Lifecycle:
    """Opens the parts of a hub and what accompanies it, and closes them."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._context = engine.context
        self._watchdog = Watchdog(engine.frames, self._report_blocking)
        engine.context.ledger.begun = self._watchdog.wake
        self._stop_serving: list[Callable[[], None]] = []
        self.checks: list[Callable[[], None]] = []
        """Called when the hub is about to open; an error keeps it closed."""
        self.companions: list[Companion] = []
        """Opened and closed with the hub."""
        self.closers: list[Callable[[], Awaitable[None]]] = []
        """Awaited when the hub closes, after its runs have ended."""
        self.closing = ClosingTime()
        self.is_open = False
        self.loop: asyncio.AbstractEventLoop | None = None
        """The event loop of the open hub."""
        self._process = 0
        """The process that opened the hub; a process forked from it has a copy of the hub, and not its threads."""

    async def open(self) -> None:
        """Open the store and all that stands on it; if a part cannot be opened, none stays open."""
        if self.is_open:
            self.refuse_if_forked()
            raise RemitError(fault(Code.TEAM_INVALID, "the hub is open already", suggestion=""))
        context, engine = self._context, self._engine
        for check in (*self.checks, context.registry.check):
            check()
        await context.store.open()
        try:
            context.redactor.open(context.store)
            for card in context.registry.cards():
                self.serve(card)
            self._watchdog.start()
            await engine.leases.open()
        except BaseException:
            await self._close_parts()
            raise
        self.is_open = True
        self.loop, self._process = asyncio.get_running_loop(), os.getpid()
        try:
            for each in self.companions:
                await each.open()
            if engine.shared_limits is not None:
                engine.shared_limits.open()
        except BaseException:
            await self.close()
            raise

    def running_loop(self) -> asyncio.AbstractEventLoop:
        """Return the event loop of the open hub; raises a `RuntimeError` in a process that was forked since."""
        self.refuse_if_forked()
        assert self.loop is not None, "the caller asks whether the hub is open"
        return self.loop

    def refuse_if_forked(self) -> None:
        """Raise a `RuntimeError` in a process that was forked after the hub was opened: nothing here would answer."""
        if self._process != os.getpid():
            raise RuntimeError("this process was forked while the hub was open: create and open a hub after the fork")

    def serve(self, card: AgentCard) -> None:
        """Execute the requests for an agent from now on."""
        agent, transport = self._context.registry.agents[card.name].agent, self._context.transport
        slots = agent.slots(card.concurrency) if isinstance(agent, Remote) else card.concurrency
        elsewhere, execute = isinstance(agent, Remote), self._engine.executor.execute
        self._stop_serving.append(transport.serve(card.name, slots, card.queue, execute, elsewhere=elsewhere))

    async def close(self) -> None:
        """End all runs, or hand them back, and close everything."""
        engine = self._engine
        self.is_open, self.loop = False, None
        try:
            async with self.closing.leaving(AFTER_RUNS_S, "a run"):
                for each in self.companions:
                    await each.leave()
                await engine.leases.close()
                await engine.runs.close()
                await engine.incoming.close()
        finally:
            await self._close_parts()

    async def _close_parts(self) -> None:
        """Close everything; a failure in one part does not keep the others open."""
        engine, context = self._engine, self._context
        self._watchdog.stop()
        for leave in self._stop_serving:
            leave()
        self._stop_serving.clear()
        shared = [] if engine.shared_limits is None else [engine.shared_limits.close]
        await self.closing.close_each([*shared, *self.closers], context.redactor.worded)
        for task in engine.dispatch.tasks.abandoned:
            task.cancel()
        engine.dispatch.tasks.close()
        try:
            await self.closing.finish(context.store.close(), "the store")
        finally:
            engine.events.close()

    def _report_blocking(self, frame: Frame) -> None:
        self._engine.dispatch.recording.notice(
            frame, f"{frame.card.name} blocked the event loop; make it async, or a plain function, or a process"
        )


class Background:
    """A thread with an event loop in which a hub is open, also between calls.

    If the loop ran only during calls, leases would expire and records would wait. The caller's own loop, as in a
    notebook, cannot be used: a blocking wait in it would stop it.
    """

    def __init__(self, hub: AbstractAsyncContextManager[object]) -> None:
        self._hub = hub
        self._process = os.getpid()
        self._closing = asyncio.Event()
        self._loop: Future[asyncio.AbstractEventLoop] = Future()
        """The loop once the hub is open, or the error that kept it from opening."""
        self._ended: Future[None] = Future()
        threading.Thread(target=self._run, name="remit-hub", daemon=True).start()

    def wait_until_open(self) -> None:
        """Return once the hub is open, or raise the error that kept it from opening."""
        self._loop.result()

    def close(self) -> None:
        """Close the hub and return once it is closed, or raise the error of its thread.

        In a process that was forked from the one that opened the hub there is nothing to close.
        """
        if self._process != os.getpid():
            return
        with suppress(RuntimeError):  # the loop has ended by itself
            self._loop.result().call_soon_threadsafe(self._closing.set)
        self._ended.result()

    def _run(self) -> None:
        try:
            asyncio.run(self._live())
        except BaseException as error:  # noqa: BLE001 - raised in the thread that opened or closes the hub
            if not self._loop.done():
                self._loop.set_exception(error)
            self._ended.set_exception(error)
        else:
            self._ended.set_result(None)

    async def _live(self) -> None:
        async with self._hub:
            self._loop.set_result(asyncio.get_running_loop())
            await self._closing.wait()
