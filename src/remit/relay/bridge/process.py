"""A local agent's process: started, spoken with over its pipes, ended with all that it started.

It runs in a process group of its own under a small parent process (`process_reaper.py`). That parent ends everything
when the host is killed. On Linux it also adopts and kills processes that left the group; elsewhere it ends the group.
"""

import asyncio
import logging
import os
import shutil
import signal
import subprocess
import sys
from collections import deque
from contextlib import suppress
from functools import partial
from pathlib import Path

from remit.agents.mcp.lines import LineSplitter, OverlongLine
from remit.agents.mcp.settings import Program
from remit.agents.process_group import ProcessGroup
from remit.relay.bridge.limits import shown

log = logging.getLogger("remit.relay")

# How long a process has to end by itself after its stdin was closed, then after being told to, then once killed.
LEAVE_S = 1.0
TERMINATE_S = 1.0
REAP_S = 2.0
# How long what it said last may take to arrive after it is gone.
LAST_WORDS_S = 0.5
LAST_LINES = 20
MAX_LAST_LINE = 1_000
MAX_LAST_WORDS = 300
# Shorter ones are in ordinary words, and to strike them would only make what is shown unreadable.
MIN_SECRET = 6

REAPER = str(Path(__file__).with_name("process_reaper.py"))

# What programs need to find their files, their user's language, the hour, and whom to trust; no variable that often
# holds a secret, so no proxies and no keys: those are given by name in the profile.
PASSED_ON = (
    "HOME", "LANG", "LC_ALL", "LC_CTYPE", "LOGNAME", "PATH", "SHELL", "TERM", "TMPDIR", "TZ", "USER",
    "NODE_EXTRA_CA_CERTS", "SSL_CERT_DIR", "SSL_CERT_FILE",
    "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_RUNTIME_DIR", "XDG_STATE_HOME",
)  # fmt: skip


class NotStartedError(Exception):
    """There is no process to speak with; the message says why, as a sentence without a full stop."""


class MissingError(NotStartedError):
    """There is nothing to start, so nothing was."""


def environment(given: dict[str, str]) -> dict[str, str]:
    """Return what a process finds in its environment: what every program needs, and what it is given by name."""
    own = {name: os.environ[name] for name in PASSED_ON if name in os.environ}
    return {**own, **given}


class Child:
    """One process. Make it, `connect`, and `end` it in any case."""

    def __init__(self, program: Program) -> None:
        self._secrets = _secrets(program.env)
        environ = environment(program.env)
        path = _found(program, environ)
        lifeline, self._lifeline = os.pipe()
        # Until the child has a session of its own, Ctrl-C is for it as well: the reaper lets it through again.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            # -I and -S: nothing in the folder or the environment changes what the reaper is.
            self._popen = subprocess.Popen(
                [sys.executable, "-I", "-S", REAPER, str(lifeline), path, *program.args],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=environ,
                cwd=program.folder,
                pass_fds=(lifeline,),
                start_new_session=True,
                bufsize=0,
            )
        except (OSError, ValueError) as error:
            os.close(self._lifeline)
            raise NotStartedError(f"the local agent's process cannot be started: {error}") from error
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
            os.close(lifeline)
        self._alive = True
        self._leader = ProcessGroup(self._popen)
        self._transports: list[asyncio.BaseTransport] = []
        self._draining: asyncio.Task[None] | None = None
        self._ending: asyncio.Task[None] | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._last_lines: deque[str] = deque(maxlen=LAST_LINES)
        self.said = asyncio.StreamReader()
        """Its stdout. Whoever has a child reads it to its end, so that the process never has to wait."""

    async def connect(self) -> None:
        """Take up its pipes; from now on what it complains of is read."""
        loop, complained = asyncio.get_running_loop(), asyncio.StreamReader()
        for reader, pipe in ((self.said, self._popen.stdout), (complained, self._popen.stderr)):
            transport, _ = await loop.connect_read_pipe(partial(asyncio.StreamReaderProtocol, reader), pipe)
            self._transports.append(transport)
        transport, protocol = await loop.connect_write_pipe(asyncio.streams.FlowControlMixin, self._popen.stdin)
        self._writer = asyncio.StreamWriter(transport, protocol, None, loop)
        self._draining = loop.create_task(self._drain(complained))

    async def write(self, line: bytes) -> None:
        """Hand it a line; raise an `OSError` if it takes none any more."""
        if self._writer is None or self._writer.is_closing():
            raise BrokenPipeError
        self._writer.write(line + b"\n")
        await self._writer.drain()

    @property
    def pid(self) -> int:
        """The number of its group."""
        return self._leader.pid

    @property
    def exit_code(self) -> int | None:
        """How it ended, a signal as a negative number; None: it has not."""
        return self._leader.exited.result() if self._leader.exited.done() else None

    async def how_it_ended(self) -> str:
        """Return how it ended and what it said last, once that is known; what it was given as a secret is struck."""
        waited = {self._leader.exited, *([self._draining] if self._draining is not None else [])}
        await asyncio.wait(waited, timeout=LAST_WORDS_S)
        how = self._leader.how() if self._leader.exited.done() else "it closed its output"
        said = self.said_last()
        return f"{how}; it said last: {said}" if said else how

    def said_last(self) -> str:
        """Return what it complained of last; what it was given as a secret is struck."""
        words = "\n".join(self._last_lines)
        for secret in self._secrets:
            words = words.replace(secret, "***")
        # The end says what happened; what comes before is how it came about.
        return shown(words[-MAX_LAST_WORDS:], MAX_LAST_WORDS)

    def kill(self) -> None:
        """End it and all that it started, at once."""
        if self._alive:
            self._alive = False
            with suppress(OSError):  # the reaper is gone
                os.write(self._lifeline, b"k")
            os.close(self._lifeline)

    async def end(self) -> None:
        """Ask it to end, and see to it that it does; every wait is bounded. Whoever is cancelled here kills it."""
        if self._ending is None:
            self._ending = asyncio.get_running_loop().create_task(self._end())
        try:
            await asyncio.shield(self._ending)
        except asyncio.CancelledError:
            self.kill()
            await asyncio.wait({self._ending})
            raise

    async def _end(self) -> None:
        exited = self._leader.exited
        if self._writer is not None:
            self._writer.close()
        for wait_s, strike in (
            (LEAVE_S, lambda: self._leader.kill(signal.SIGTERM)),
            (TERMINATE_S, self.kill),
            (REAP_S, self._leader.kill),
            (REAP_S, lambda: None),
        ):
            done, _ = await asyncio.wait({exited}, timeout=wait_s)
            if done:
                break
            strike()
        else:
            log.warning("process %s of a local agent was killed and is not gone yet", self.pid)
        self.kill()
        if self._draining is not None:
            await asyncio.wait({self._draining}, timeout=LAST_WORDS_S)
            self._draining.cancel()
            await asyncio.wait({self._draining})
        if self._writer is None:
            for pipe in (self._popen.stdin, self._popen.stdout, self._popen.stderr):
                if pipe is not None:
                    pipe.close()
        for transport in self._transports:
            transport.close()

    async def _drain(self, complained: asyncio.StreamReader) -> None:
        """Read what it complains of, so that it never has to wait for someone who does."""
        lines = LineSplitter(MAX_LAST_LINE)
        while chunk := await complained.read(65_536):
            self._remember(lines, chunk)
        self._remember(lines, b"\n")  # what it was killed at saying

    def _remember(self, lines: LineSplitter, chunk: bytes) -> None:
        for line in lines.feed(chunk):
            if isinstance(line, OverlongLine):
                # Where it was cut a secret may be cut as well, and would not be known for one.
                longest = max(map(len, self._secrets), default=0)
                line = line.head[: max(0, len(line.head) - longest)]
            self._last_lines.append(line.decode(errors="replace"))


def _secrets(given: dict[str, str]) -> list[str]:
    """Return what must not be shown of what a process says, the longest first: what it was given, and lines of that."""
    found = {part for value in given.values() for part in (value, *value.splitlines()) if len(part) >= MIN_SECRET}
    return sorted(found, key=len, reverse=True)


def _found(program: Program, environ: dict[str, str]) -> str:
    """Return the file to run, or raise a `MissingError` that says what is wrong with it."""
    if sys.platform == "win32":
        raise MissingError("a local agent's process needs a system with process groups, which Windows is not")
    folder = program.folder
    if folder is not None and not os.path.isdir(folder):
        raise MissingError(f"the local agent's folder {folder} is not there")
    if os.sep not in program.command:
        found = shutil.which(program.command, path=environ.get("PATH"))
        if found is None:
            raise MissingError(f"there is no program {program.command} to start the local agent with")
        return os.path.abspath(found)
    path = os.path.abspath(os.path.join(folder or os.curdir, program.command))
    if not os.path.exists(path):
        raise MissingError(f"there is no program {path} to start the local agent with")
    if not os.path.isfile(path) or not os.access(path, os.X_OK):
        raise MissingError(f"permission denied: {path}, which the local agent is started with, may not be executed")
    return path
