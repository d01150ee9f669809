"""The process of a local agent: started, connected by pipes, and ended with all that it started.

It runs in a process group of its own under a small parent process (`process_reaper.py`). That parent ends everything
when the host is killed. On Linux it also adopts and kills processes that left the group; elsewhere it ends the group.
"""

import os
import shutil
import signal
import sys
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from remit.agents.inherited_variables import user_program_variables
from remit.agents.mcp.settings import Program
from remit.agents.piped_process import PipedProcess, start
from remit.relay.bridge.ports import shown

MAX_LAST_WORDS = 300
# Shorter values occur in ordinary words; redacting them would only make the output unreadable.
MIN_SECRET = 6

REAPER = str(Path(__file__).with_name("process_reaper.py"))


class NotStartedError(Exception):
    """The process could not be started; the message is a sentence without a full stop.

    *recorded* is the sentence for the record, if the message has words of the agent in it.
    """

    def __init__(self, message: str, recorded: str = "") -> None:
        super().__init__(message)
        self.recorded = recorded


class MissingError(NotStartedError):
    """The program does not exist or cannot be executed."""


class Ending(NamedTuple):
    """How a process ended, and its last output."""

    how: str
    said: str

    def __str__(self) -> str:
        return f"{self.how}; last output: {self.said}" if self.said else self.how


class Child:
    """One process. Create it, `connect`, and always `end` it."""

    def __init__(self, program: Program) -> None:
        self._secrets = _secrets(program.env)
        environ = {**user_program_variables(os.environ), **program.env}
        path = _found(program, environ)
        lifeline, self._lifeline = os.pipe()
        self._alive = True
        # Until the child has its own session it would get Ctrl-C too; the reaper unblocks the signal.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            # -I and -S: neither the folder nor the environment can change the reaper.
            command = [sys.executable, "-I", "-S", REAPER, str(lifeline), path, *program.args]
            popen = start(command, environ=environ, folder=program.folder, pass_fds=(lifeline,))
        except (OSError, ValueError) as error:
            os.close(self._lifeline)
            raise NotStartedError(f"cannot start the local agent's process: {error}") from error
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
            os.close(lifeline)
        self._process = PipedProcess(popen, "a local agent", kill=self.kill)
        self.said = self._process.said
        """Its stdout. The owner must read it to the end, so that the process never blocks."""

    async def connect(self) -> None:
        """Connect its pipes, and start to read its stderr."""
        await self._process.connect()

    async def write(self, line: bytes) -> None:
        """Write a line; raise an `OSError` if it no longer accepts input."""
        await self._process.write(line)

    async def end(self) -> None:
        """End it, with force if needed; all waits are limited. Cancelling this kills it."""
        await self._process.end()

    @property
    def pid(self) -> int:
        """The id of its process group."""
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """The exit code, negative for a signal; None: it is running."""
        return self._process.exited.result() if self._process.exited.done() else None

    async def how_it_ended(self) -> Ending:
        """Return how it ended and its last output, once that is known, with secrets redacted."""
        await self._process.last_words()
        how = self._process.how() if self._process.exited.done() else "it closed its output"
        return Ending(how, self.said_last())

    def said_last(self) -> str:
        """Return its last output on stderr, with secrets redacted."""
        # A secret that was cut at the end would not be recognised, so the end is dropped.
        words = "\n".join(self._process.last_lines(clip=max(map(len, self._secrets), default=0)))
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
