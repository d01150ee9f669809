"""A child process connected by pipes, and how it ends with all that it started."""

import asyncio
import logging
import os
import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import NamedTuple


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


class OverlongLine(NamedTuple):
    """The beginning of a line that was too long; the rest is skipped."""

    head: bytes


class LineSplitter:
    """Splits chunks into lines; never holds more than *most* bytes of one line."""

    HEAD = 1_000

    def __init__(self, most: int) -> None:
        self._most = most
        self._line = bytearray()
        self._skipping = False

    def feed(self, chunk: bytes) -> Iterator[bytes | OverlongLine]:
        """Yield the lines that end in *chunk*, except empty ones."""
        first, *rest = chunk.split(b"\n")
        yield from self._grow(first)
        for piece in rest:
            if not self._skipping and self._line.strip():
                yield bytes(self._line)
            self._line.clear()
            self._skipping = False
            yield from self._grow(piece)

    def _grow(self, piece: bytes) -> Iterator[OverlongLine]:
        if self._skipping:
            return
        self._line += piece
        if len(self._line) > self._most:
            yield OverlongLine(bytes(self._line[: self.HEAD]))
            self._line.clear()
            self._skipping = True


log = logging.getLogger("remit")

# How long a process has to end after its stdin was closed, then after SIGTERM, then after SIGKILL.
LEAVE_S = 1.0
TERMINATE_S = 1.0
REAP_S = 2.0
# How long its last output may take to arrive after it ended, and its end after its last output.
LAST_WORDS_S = 0.5
LAST_LINES = 20
MAX_LAST_LINE = 10_000


def start(
    command: Sequence[str], *, environ: Mapping[str, str], folder: str | None, pass_fds: Sequence[int] = ()
) -> "subprocess.Popen[bytes]":
    """Start a process for `PipedProcess`: with three pipes, in a session of its own."""
    return subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environ,
        cwd=folder,
        pass_fds=pass_fds,
        start_new_session=True,
        bufsize=0,
    )


class PipedProcess:
    """One process. Create it, `connect`, and always `end` it.

    *kill* replaces a SIGKILL to its group, for an owner that can also kill descendants outside the group. *what* names
    it in the log.
    """

    def __init__(self, popen: "subprocess.Popen[bytes]", what: str, *, kill: Callable[[], None] | None = None) -> None:
        self._popen = popen
        self._what = what
        self._leader = ProcessGroup(popen)
        self._leader.exited.add_done_callback(self._note_exit)
        self.kill: Callable[[], None] = kill or self._leader.kill
        """Kills it and all its descendants."""
        self._transports: list[asyncio.BaseTransport] = []
        """The transports of its stdout and its stderr."""
        self._writer: asyncio.StreamWriter | None = None
        self._draining: asyncio.Task[None] | None = None
        self._ending: asyncio.Task[None] | None = None
        self._closing = False
        self._last_lines: deque[bytes | OverlongLine] = deque(maxlen=LAST_LINES)
        self.stdout = asyncio.StreamReader()
        """Its stdout, referenced until the end: without a reader, asyncio would keep reading and discard the data."""
        self.tasks: list[asyncio.Task[None]] = []
        """Tasks of the owner that use its pipes; they are cancelled when it has ended."""
        self.ended_by_itself: str | None = None
        """How it exited, if that was before it was told to end."""

    async def connect(self) -> None:
        """Connect its pipes, and start to read its stderr."""
        loop, stderr = asyncio.get_running_loop(), asyncio.StreamReader()
        for reader, pipe in ((self.stdout, self._popen.stdout), (stderr, self._popen.stderr)):
            transport, _ = await loop.connect_read_pipe(partial(asyncio.StreamReaderProtocol, reader), pipe)
            self._transports.append(transport)
        transport, protocol = await loop.connect_write_pipe(asyncio.streams.FlowControlMixin, self._popen.stdin)
        self._writer = asyncio.StreamWriter(transport, protocol, None, loop)
        self._draining = loop.create_task(self._drain(stderr))

    async def write(self, line: bytes) -> None:
        """Write a line; raise an `OSError` if it no longer accepts input."""
        if self._writer is None or self._writer.is_closing():
            raise BrokenPipeError
        self._writer.write(line + b"\n")
        await self._writer.drain()

    @property
    def pid(self) -> int:
        """The id of its process group."""
        return self._leader.pid

    @property
    def exited(self) -> "asyncio.Future[int]":
        """Its exit code, negative for a signal, once it has exited."""
        return self._leader.exited

    def how(self) -> str:
        """Return the exit code or signal as text."""
        return self._leader.how()

    async def last_words(self) -> None:
        """Return once it has exited and its stderr was read, or after `LAST_WORDS_S`."""
        waited = {self.exited, *([self._draining] if self._draining is not None else [])}
        await asyncio.wait(waited, timeout=LAST_WORDS_S)

    def last_lines(self, clip: int = 0) -> list[str]:
        """Return the last lines of its stderr; the last *clip* bytes of a line that was too long are missing, too."""
        lines = [
            line.head[: max(0, len(line.head) - clip)] if isinstance(line, OverlongLine) else line
            for line in self._last_lines
        ]
        return [line.decode(errors="replace") for line in lines]

    # ── ending ────────────────────────────────────────────────────────────────────────────────────────────────────────

    async def end(self) -> None:
        """End it, with force if needed; all waits are limited. Cancelling this kills it."""
        if self._ending is None:
            self._ending = asyncio.get_running_loop().create_task(self._end())
        try:
            await asyncio.shield(self._ending)
        except asyncio.CancelledError:
            self.kill()
            await asyncio.wait({self._ending})
            raise

    async def _end(self) -> None:
        if self.stdout.at_eof():
            # Most likely it is exiting, and its exit code is worth knowing.
            await asyncio.wait({self.exited}, timeout=LAST_WORDS_S)
        self._closing = True
        if self._writer is not None:
            self._writer.close()
        for wait_s, strike in (
            (LEAVE_S, lambda: self._leader.kill(signal.SIGTERM)),
            (TERMINATE_S, self.kill),
            (REAP_S, self._leader.kill),
            (REAP_S, lambda: None),
        ):
            done, _ = await asyncio.wait({self.exited}, timeout=wait_s)
            if done:
                break
            strike()
        else:
            log.warning("process %s of %s was killed but has not ended yet", self.pid, self._what)
        self.kill()
        await self._end_tasks()
        if self._writer is None:
            for pipe in (self._popen.stdin, self._popen.stdout, self._popen.stderr):
                if pipe is not None:
                    pipe.close()
        for transport in self._transports:
            transport.close()

    async def _end_tasks(self) -> None:
        if self._draining is not None:
            # Its last output may still be in the pipe. Descendants may hold the pipe open; they are not waited for.
            await asyncio.wait({self._draining}, timeout=LAST_WORDS_S)
            self.tasks.append(self._draining)
        for task in self.tasks:
            task.cancel()
        if self.tasks:
            await asyncio.wait(self.tasks)

    def _note_exit(self, _: "asyncio.Future[int]") -> None:
        if not self._closing:
            self.ended_by_itself = self._leader.how()

    async def _drain(self, stderr: asyncio.StreamReader) -> None:
        """Read its stderr, so that it never blocks on a full pipe."""
        lines = LineSplitter(MAX_LAST_LINE)
        while chunk := await stderr.read(65_536):
            self._last_lines.extend(lines.feed(chunk))
        self._last_lines.extend(lines.feed(b"\n"))  # an unfinished last line
