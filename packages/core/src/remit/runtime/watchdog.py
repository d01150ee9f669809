"""Reports the agent that blocks the event loop, from a thread beside it."""

import asyncio
import logging
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress

from remit.policy import redaction
from remit.runtime.frames import Frame

log = logging.getLogger("remit")

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
