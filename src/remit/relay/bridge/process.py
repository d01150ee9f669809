"""The process of a local agent: started, connected by pipes, and ended with all that it started.

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

from remit.agents.lines import LineSplitter, OverlongLine
from remit.agents.mcp.settings import Program
from remit.agents.process_group import ProcessGroup
from remit.relay.bridge.ports import shown

log = logging.getLogger("remit.relay")

# How long a process has to end after its stdin was closed, then after SIGTERM, then after SIGKILL.
LEAVE_S = 1.0
TERMINATE_S = 1.0
REAP_S = 2.0
# How long its last output may take to arrive after it ended.
LAST_WORDS_S = 0.5
LAST_LINES = 20
MAX_LAST_LINE = 1_000
MAX_LAST_WORDS = 300
# Shorter values occur in ordinary words; redacting them would only make the output unreadable.
MIN_SECRET = 6

REAPER = str(Path(__file__).with_name("process_reaper.py"))

# What programs need for files, language, time zone and trusted certificates. No variable that often contains a secret,
# so no proxies and no keys: those are set by name in the profile.
PASSED_ON = (
    "HOME", "LANG", "LC_ALL", "LC_CTYPE", "LOGNAME", "PATH", "SHELL", "TERM", "TMPDIR", "TZ", "USER",
    "NODE_EXTRA_CA_CERTS", "SSL_CERT_DIR", "SSL_CERT_FILE",
    "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_RUNTIME_DIR", "XDG_STATE_HOME",
)  # fmt: skip


class NotStartedError(Exception):
    """The process could not be started; the message is a sentence without a full stop."""


class MissingError(NotStartedError):
    """The program does not exist or cannot be executed."""


def environment(given: dict[str, str]) -> dict[str, str]:
    """Return the environment of a process: what every program needs, and what the profile sets."""
    own = {name: os.environ[name] for name in PASSED_ON if name in os.environ}
    return {**own, **given}


class Child:
    """One process. Create it, `connect`, and always `end` it."""

    def __init__(self, program: Program) -> None:
        self._secrets = _secrets(program.env)
        environ = environment(program.env)
        path = _found(program, environ)
        lifeline, self._lifeline = os.pipe()
        # Until the child has its own session it would get Ctrl-C too; the reaper unblocks the signal.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            # -I and -S: neither the folder nor the environment can change the reaper.
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
            raise NotStartedError(f"cannot start the local agent's process: {error}") from error
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
        """Its stdout. The owner must read it to the end, so that the process never blocks."""

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
    def exit_code(self) -> int | None:
        """The exit code, negative for a signal; None: it is running."""
        return self._leader.exited.result() if self._leader.exited.done() else None

    async def how_it_ended(self) -> str:
        """Return how it ended and its last output, once that is known, with secrets redacted."""
        waited = {self._leader.exited, *([self._draining] if self._draining is not None else [])}
        await asyncio.wait(waited, timeout=LAST_WORDS_S)
        how = self._leader.how() if self._leader.exited.done() else "it closed its output"
        said = self.said_last()
        return f"{how}; last output: {said}" if said else how

    def said_last(self) -> str:
        """Return its last output on stderr, with secrets redacted."""
        words = "\n".join(self._last_lines)
        for secret in self._secrets:
            words = words.replace(secret, "***")
        # The end of the output says what happened.
        return shown(words[-MAX_LAST_WORDS:], MAX_LAST_WORDS)

    def kill(self) -> None:
        """Kill it and all that it started."""
        if self._alive:
            self._alive = False
            with suppress(OSError):  # the reaper has ended
                os.write(self._lifeline, b"k")
            os.close(self._lifeline)

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
            log.warning("process %s of a local agent was killed but has not ended yet", self.pid)
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
        """Read its stderr, so that it never blocks."""
        lines = LineSplitter(MAX_LAST_LINE)
        while chunk := await complained.read(65_536):
            self._remember(lines, chunk)
        self._remember(lines, b"\n")  # an unfinished last line

    def _remember(self, lines: LineSplitter, chunk: bytes) -> None:
        for line in lines.feed(chunk):
            if isinstance(line, OverlongLine):
                # A secret that was cut at the end would not be recognised, so the end is dropped.
                longest = max(map(len, self._secrets), default=0)
                line = line.head[: max(0, len(line.head) - longest)]
            self._last_lines.append(line.decode(errors="replace"))


def _secrets(given: dict[str, str]) -> list[str]:
    """Return the values to redact, longest first: those of its environment, and their lines."""
    found = {part for value in given.values() for part in (value, *value.splitlines()) if len(part) >= MIN_SECRET}
    return sorted(found, key=len, reverse=True)


def _found(program: Program, environ: dict[str, str]) -> str:
    """Return the path of the program, or raise a `MissingError` that says what is wrong."""
    if sys.platform == "win32":
        raise MissingError("local agents as processes are not supported on Windows")
    folder = program.folder
    if folder is not None and not os.path.isdir(folder):
        raise MissingError(f"the local agent's folder {folder} does not exist")
    if os.sep not in program.command:
        found = shutil.which(program.command, path=environ.get("PATH"))
        if found is None:
            raise MissingError(f"the local agent's program {program.command} was not found")
        return os.path.abspath(found)
    path = os.path.abspath(os.path.join(folder or os.curdir, program.command))
    if not os.path.exists(path):
        raise MissingError(f"the local agent's program {path} was not found")
    if not os.path.isfile(path) or not os.access(path, os.X_OK):
        raise MissingError(f"permission denied: the local agent's program {path} is not executable")
    return path
