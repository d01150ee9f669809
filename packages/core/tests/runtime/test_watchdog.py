"""The watchdog leaves an idle event loop alone, and names each agent that blocks it."""

import asyncio
import logging
import threading
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from remit import Brief, Hub
from remit.protocol.records import Notice
from remit.runtime import engine
from remit.runtime.engine import Watchdog
from remit.runtime.frames import Frame
from waiting import PATIENCE_S, eventually


class Begun(threading.Event):
    """Counts how often the thread of the watchdog rests until an agent begins."""

    rests = 0

    def wait(self, timeout: float | None = None) -> bool:
        self.rests += 1
        return super().wait(timeout)


class WatchedLoop:
    """The running loop under a watchdog: how often that looked for agents, what it asked, and whom it reported."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.at_work: list[Frame] = []
        self.looks = self.questions = 0
        self.reported: list[str] = []
        self.watchdog = Watchdog(self._running, lambda frame: self.reported.append(frame.path))
        self.begun = self.watchdog._begun = Begun()  # pyright: ignore[reportPrivateUsage]
        self.ask = loop.call_soon_threadsafe

    def _running(self) -> list[Frame]:
        self.looks += 1
        return list(self.at_work)

    def call_soon_threadsafe(self, act: Callable[..., object], *args: Any, **options: Any) -> asyncio.Handle:
        self.questions += act == self.watchdog._answer  # pyright: ignore[reportPrivateUsage]
        return self.ask(act, *args, **options)

    def begin(self, path: str, task: "asyncio.Task[Any] | None") -> Frame:
        """Let an agent be at work in a task."""
        frame = SimpleNamespace(path=path, task=task, card=SimpleNamespace(name=f"agent-{path}"))
        self.at_work.append(cast(Frame, frame))
        self.watchdog.wake()
        return self.at_work[-1]

    async def looked(self, times: int = 5) -> None:
        enough = self.looks + times
        await eventually(lambda: self.looks >= enough)


@asynccontextmanager
async def watched(monkeypatch: pytest.MonkeyPatch) -> AsyncGenerator[WatchedLoop]:
    monkeypatch.setattr(engine, "BLOCKED_S", 0.01)
    loop = asyncio.get_running_loop()
    watched_loop = WatchedLoop(loop)
    monkeypatch.setattr(loop, "call_soon_threadsafe", watched_loop.call_soon_threadsafe)
    watched_loop.watchdog.start()
    try:
        yield watched_loop
    finally:
        watched_loop.watchdog.stop()


class Named(logging.Handler):
    """Hears whom the log names, in the thread of the watchdog: the loop is blocked then."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []
        self.logged = threading.Event()

    def emit(self, record: logging.LogRecord) -> None:
        if "blocks the event loop" in record.getMessage():
            self.lines.append(record.getMessage())
            self.logged.set()

    def block(self) -> None:
        """Block the loop until somebody was named for it."""
        self.logged.clear()
        assert self.logged.wait(PATIENCE_S)


@contextmanager
def named() -> Generator[Named]:
    log, handler = logging.getLogger("remit"), Named()
    log.addHandler(handler)
    try:
        yield handler
    finally:
        log.removeHandler(handler)


async def test_a_loop_without_an_agent_at_work_is_asked_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    async with watched(monkeypatch) as loop:
        await eventually(lambda: loop.begun.rests == 1)
        assert (loop.looks, loop.questions) == (1, 0)
        # With an agent it is, and after its end no more.
        frame = loop.begin("one", None)
        await eventually(lambda: loop.questions >= 3)
        loop.at_work.remove(frame)
        await eventually(lambda: loop.begun.rests == 2)
        looks, questions = loop.looks, loop.questions
        loop.watchdog.wake()
        await eventually(lambda: loop.begun.rests == 3)
        assert (loop.looks, loop.questions) == (looks + 1, questions)
    assert loop.reported == []


async def test_an_agent_that_blocks_the_loop_is_named_each_time_it_does(monkeypatch: pytest.MonkeyPatch) -> None:
    async with watched(monkeypatch) as loop:
        with named() as log:
            loop.begin("one", None)
            loop.begin("two", asyncio.current_task())
            await loop.looked()
            for times in (1, 2, 3):
                log.block()
                await eventually(lambda times=times: len(loop.reported) >= times)
    # A machine that is slow for a moment may be taken for an agent that is; so there may be more.
    assert set(loop.reported) == {"two"}
    assert set(log.lines) == {"agent agent-two blocks the event loop in two"}


async def test_one_block_is_named_once_however_long_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    async with watched(monkeypatch) as loop:
        with named() as log:
            loop.begin("one", asyncio.current_task())
            await loop.looked()
            log.block()
            lines, turns = len(log.lines), threading.Event()
            for _ in range(5):
                turns.wait(engine.BLOCKED_S)
            assert len(log.lines) == lines
            assert loop.watchdog._thread is not None  # pyright: ignore[reportPrivateUsage]
            assert loop.watchdog._thread.is_alive()  # pyright: ignore[reportPrivateUsage]


async def test_an_agent_that_has_not_started_is_not_named_for_a_callback(monkeypatch: pytest.MonkeyPatch) -> None:
    async with watched(monkeypatch) as loop:
        with named() as log:
            loop.begin("one", None)
            await loop.looked()
            turned, turns = asyncio.Event(), threading.Event()

            def block() -> None:
                for _ in range(10):
                    turns.wait(engine.BLOCKED_S)
                turned.set()

            asyncio.get_running_loop().call_soon(block)
            await turned.wait()
    assert (log.lines, loop.reported) == ([], [])


async def test_the_agent_of_a_hub_that_was_idle_is_named_in_its_run_twice(tmp_path: Path) -> None:
    hub = Hub(store=tmp_path / "hub.db", durability="process")
    with named() as log:

        async def blocked() -> list[str]:
            """Return the runs of which the record says that their agent blocked the loop."""
            notices = [each for each in await hub.store.records() if isinstance(each.body, Notice)]
            return [each.run for each in notices if "stubborn blocked the event loop" in str(each.body)]

        @hub.agent("stubborn")
        async def stubborn(brief: Brief) -> str:
            before = len(await blocked())
            log.block()
            await eventually(blocked, when=lambda runs: len(runs) > before)
            return "done"

        async with hub:
            runs = [(await hub.ask("stubborn", "x", user="u")).run for _ in range(2)]
            assert sorted({*await blocked()}) == sorted(runs)


def test_a_loop_that_was_closed_under_the_watchdog_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "BLOCKED_S", 0.01)
    looks = threading.Semaphore(0)
    frame = SimpleNamespace(path="one", task=None, card=SimpleNamespace(name="agent-one"))

    def running() -> list[Frame]:
        looks.release()
        return [cast(Frame, frame)]

    dog = Watchdog(running, lambda _: None)

    async def begin() -> None:
        dog.start()

    asyncio.run(begin())
    assert looks.acquire(timeout=PATIENCE_S)
    dog.stop()


async def test_a_watchdog_that_is_stopped_while_it_looks_for_agents_ends() -> None:
    class StoppedMeanwhile(threading.Event):
        """The end of the watchdog comes right before its thread clears this."""

        def clear(self) -> None:
            dog._stop.set()  # pyright: ignore[reportPrivateUsage]
            self.set()
            super().clear()

    dog = Watchdog(list, lambda _: None)
    dog._begun = StoppedMeanwhile()  # pyright: ignore[reportPrivateUsage]
    dog.start()
    thread = dog._thread  # pyright: ignore[reportPrivateUsage]
    assert thread is not None
    await eventually(lambda: not thread.is_alive())
