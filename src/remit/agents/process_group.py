"""A child process with its own process group: its descendants end with it, and it can be killed at any time."""

import asyncio
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress


class ProcessGroup:
    """A process that was started with `start_new_session` and that nobody else reaps."""

    def __init__(
        self,
        popen: subprocess.Popen[bytes],
        gone: Callable[[], None] = lambda: None,
        clear: Callable[[], None] = lambda: None,
    ) -> None:
        """Watch a process; when it exits, call *clear* in a thread, then *gone* in the event loop."""
        self._popen = popen
        self._gone = gone
        self._clear = clear
        self._reaped = False
        self._reaping = threading.Lock()
        loop = asyncio.get_running_loop()
        self.exited: asyncio.Future[int] = loop.create_future()
        # The end of its streams is no sign: descendants of the process may hold them open.
        name = f"remit-process-{popen.pid}"
        threading.Thread(target=self._watch, args=(loop,), name=name, daemon=True).start()

    @property
    def pid(self) -> int:
        return self._popen.pid

    def kill(self, number: signal.Signals = signal.SIGKILL) -> None:
        """Send a signal to the process and its descendants, unless it has exited."""
        with self._reaping:
            if not self._reaped:
                self._signal_group(number)

    def is_gone(self) -> bool:
        """Return whether the process has exited."""
        with self._reaping:
            return self._reaped

    def how(self) -> str:
        """Return the exit code or signal as text."""
        if not self.exited.done():
            return "it cannot be reaped"
        code = self.exited.result()
        return f"signal {-code}" if code < 0 else f"exit code {code}"

    def _watch(self, loop: asyncio.AbstractEventLoop) -> None:
        # Its process id can be reused only once it is reaped, so the rest of its group is killed before that.
        if sys.platform == "darwin":  # has no way to wait without reaping before Python 3.13
            self._popen.wait()
        else:
            with suppress(ChildProcessError):  # someone else reaped it
                os.waitid(os.P_PID, self._popen.pid, os.WEXITED | os.WNOWAIT)
        with self._reaping:
            self._signal_group(signal.SIGKILL)
            code = self._popen.wait()
            self._reaped = True
        self._clear()
        with suppress(RuntimeError):  # the loop is closed: nobody waits any more
            loop.call_soon_threadsafe(self._note_exit, code)

    def _note_exit(self, code: int) -> None:
        self._gone()
        if not self.exited.done():
            self.exited.set_result(code)

    def _signal_group(self, number: signal.Signals) -> None:
        with suppress(ProcessLookupError, PermissionError):  # macOS forbids it if only zombies are left
            os.killpg(self._popen.pid, number)
