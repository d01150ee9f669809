"""A child process connected by pipes, and ended with everything that it started."""

import asyncio
import logging
import signal
import subprocess
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from remit.agents.lines import LineSplitter, OverlongLine
from remit.agents.process_group import ProcessGroup

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
        self.said = asyncio.StreamReader()
        """Its stdout, referenced until the end: without a reader, asyncio would keep reading and discard the data."""
        self.tasks: list[asyncio.Task[None]] = []
        """Tasks of the owner that use its pipes; they are cancelled when it has ended."""
        self.ended_by_itself: str | None = None
        """How it exited, if that was before it was told to end."""

    async def connect(self) -> None:
        """Connect its pipes, and start to read its stderr."""
        loop, complained = asyncio.get_running_loop(), asyncio.StreamReader()
        for reader, pipe in ((self.said, self._popen.stdout), (complained, self._popen.stderr)):
            transport, _ = await loop.connect_read_pipe(partial(asyncio.StreamReaderProtocol, reader), pipe)
            self._transports.append(transport)
        transport, protocol = await loop.connect_write_pipe(asyncio.streams.FlowControlMixin, self._popen.stdin)
        self._writer = asyncio.StreamWriter(transport, protocol, None, loop)
        self._draining = loop.create_task(self._drain(complained))

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
        if self.said.at_eof():
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

    async def _drain(self, complained: asyncio.StreamReader) -> None:
        """Read its stderr, so that it never blocks on a full pipe."""
        lines = LineSplitter(MAX_LAST_LINE)
        while chunk := await complained.read(65_536):
            self._last_lines.extend(lines.feed(chunk))
        self._last_lines.extend(lines.feed(b"\n"))  # an unfinished last line
