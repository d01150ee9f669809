"""Handles stop signals: the first one stops gently, the second one at once."""

import asyncio
import os
import signal
from collections.abc import Callable, Generator
from contextlib import contextmanager
from types import FrameType

INTERRUPTED = 130


@contextmanager
def hearing(hear: Callable[[int, FrameType | None], None]) -> Generator[None]:
    """Call *hear* at each stop signal, within the block.

    Signals that this process ignores, as under `nohup`, stay ignored.
    """
    known = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    wanted = [number for number in known if signal.getsignal(number) is not signal.SIG_IGN]
    before = {number: signal.signal(number, hear) for number in wanted}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def interrupts(stop: Callable[[str], None], leave: Callable[[], None]) -> Generator[None]:
    """Call *stop* in the event loop at the first stop signal; at the second, call *leave* and exit at once."""
    loop = asyncio.get_running_loop()
    heard: list[int] = []

    # Not `loop.add_signal_handler`: an agent that blocks the loop must not make the second one wait.
    def hear(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 - as Python calls it
        heard.append(number)
        if len(heard) > 1:
            leave()
            os._exit(INTERRUPTED)
        loop.call_soon_threadsafe(stop, signal.Signals(number).name)

    with hearing(hear):
        yield
