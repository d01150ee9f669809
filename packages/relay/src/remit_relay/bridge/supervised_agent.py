"""A local agent in a supervised process: one prompt at a time, started when needed, with a pause after failures."""

import asyncio
import logging
import os
import shutil
import signal
import sys
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from remit.agents.piped_process import PipedProcess, start
from remit.agents.program import Program, RestartPause, user_program_variables
from remit.ports import Clock
from remit.runtime.clock import LoopClock
from remit_relay.bridge.ports import WITH_TOOLS_MS, Draft, DraftFailure, PromptRequest, shown, time_limit_s

# ── the process ───────────────────────────────────────────────────────────────────────────────────────────────────────

# It runs in a process group of its own under a small parent process (`process_reaper.py`). That parent ends everything
# when the host is killed. On Linux it also adopts and kills processes that left the group; elsewhere it ends the group.

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
    output: str

    def __str__(self) -> str:
        return f"{self.how}; last output: {self.output}" if self.output else self.how


class Child:
    """One process. Create it, `connect`, and always `end` it."""

    def __init__(self, program: Program) -> None:
        self._secrets = _secrets(program.env)
        environ = {**user_program_variables(os.environ), **program.env}
        path = _find_program(program, environ)
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
        self.output = self._process.stdout
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
        return Ending(how, self.last_output())

    def last_output(self) -> str:
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
    values = {part for value in given.values() for part in (value, *value.splitlines()) if len(part) >= MIN_SECRET}
    return sorted(values, key=len, reverse=True)


def _find_program(program: Program, environ: dict[str, str]) -> str:
    """Return the path of the program, or raise a `MissingError` that says what is wrong."""
    if sys.platform == "win32":
        raise MissingError("local agents as processes are not supported on Windows")
    folder = program.folder
    if folder is not None and not os.path.isdir(folder):
        raise MissingError(f"the local agent's folder {folder} does not exist")
    if os.sep not in program.command:
        executable = shutil.which(program.command, path=environ.get("PATH"))
        if executable is None:
            raise MissingError(f"the local agent's program {program.command} was not found")
        return os.path.abspath(executable)
    path = os.path.abspath(os.path.join(folder or os.curdir, program.command))
    if not os.path.exists(path):
        raise MissingError(f"the local agent's program {path} was not found")
    if not os.path.isfile(path) or not os.access(path, os.X_OK):
        raise MissingError(f"permission denied: the local agent's program {path} is not executable")
    return path


# ── the agent ─────────────────────────────────────────────────────────────────────────────────────────────────────────


# A profile may have a few sessions at once, and each prompt may take two minutes: more waiting prompts are refused.
MAX_WAITING = 8


class OneAtATime:
    """Runs one prompt at a time; up to `MAX_WAITING` others wait, in order."""

    def __init__(self) -> None:
        self._slot = asyncio.Semaphore(1)
        self._here = 0

    async def run(self, ask: Callable[[], Awaitable[Draft | DraftFailure]]) -> Draft | DraftFailure:
        """Run *ask* in its turn; fail softly at once if too many prompts wait already."""
        if self._here > MAX_WAITING:
            reason = f"{MAX_WAITING} prompts are already waiting for this local agent; try again later"
            return DraftFailure(reason=reason, hard=False)
        self._here += 1
        try:
            async with self._slot:
                return await ask()
        finally:
            self._here -= 1


log = logging.getLogger("remit.relay")

# After repeated failures the process is started less and less often; a person still waits a minute.
PAUSES_S = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0)


PartialText = Callable[[PromptRequest, Callable[[], str]], None]
"""Takes a request whose draft is being written, and a function that returns the text so far."""


class AgentLink(ABC):
    """The connection to one process in one protocol, from its start to its end."""

    @abstractmethod
    async def open(self) -> None:
        """Start the process; raise a `NotStartedError` if it does not become ready."""

    @abstractmethod
    async def ask(self, request: PromptRequest, timer: asyncio.Timeout) -> Draft | DraftFailure:
        """Ask for a draft; *timer* limits the wait, and may be postponed while a person is asked."""

    @abstractmethod
    async def cancel_turn(self) -> bool:
        """Cancel the abandoned turn; return whether the process can be used again."""

    @abstractmethod
    async def end(self) -> None:
        """End the process and all that it started, even if it was never opened."""

    @abstractmethod
    async def exit_failure(self) -> Ending | None:
        """Return how the process failed since its last turn; None: it runs, or ended with exit code 0."""

    @property
    @abstractmethod
    def is_up(self) -> bool:
        """Whether it is ready for a prompt."""

    def explanation(self) -> str:
        """Return a possible cause of a missing answer, to append to a sentence; may be empty."""
        return ""


class SupervisedAgent:
    """Implements `LocalAgent` with one process after another.

    - One prompt runs at a time. Others wait (`OneAtATime`), and their time limit starts with their turn.
    - A process that crashed, broke the protocol or timed out is ended. The current prompt fails hard. The next prompt
      starts a new process, unless the pause after a failure (`PAUSES_S`, by failures in a row) is not over: then that
      prompt fails hard as well, and says when to try again.
    - A process that ended between prompts with exit code 0 is simply started again.
    - When the task of a prompt is cancelled, its turn is cancelled, or the process is ended if that is not possible.
    """

    def __init__(
        self, link: Callable[[], AgentLink], *, ceiling_ms: int = WITH_TOOLS_MS, clock: Clock | None = None
    ) -> None:
        self._make = link
        self._ceiling_ms = ceiling_ms
        self._clock = clock or LoopClock()
        self._link: AgentLink | None = None
        self._turns = OneAtATime()
        self._idle = asyncio.Event()
        self._idle.set()
        self._ending: asyncio.Task[None] | None = None
        self._pause = RestartPause(PAUSES_S, self._clock.now)
        self._closed = False
        self.written: PartialText = lambda _request, _text: None
        """Called while a draft is being written, if the protocol tells its words one by one."""

    async def prompt(self, request: PromptRequest) -> Draft | DraftFailure:
        """Ask for the next message; see the class for failures."""
        return await self._turns.run(lambda: self._prompt(request))

    async def close(self) -> None:
        """End the process and all that it started; running and waiting prompts fail hard."""
        self._closed = True
        if self._link is not None:
            await self._link.end()
        await self._idle.wait()
        await self._wait_until_ended()

    async def _prompt(self, request: PromptRequest) -> Draft | DraftFailure:
        self._idle.clear()
        try:
            return await self._ask(request)
        finally:
            self._idle.set()

    async def _ask(self, request: PromptRequest) -> Draft | DraftFailure:
        await self._wait_until_ended()
        link = await self._ready()
        if isinstance(link, DraftFailure):
            return link
        limit_s = time_limit_s(request.constraints, self._ceiling_ms)
        try:
            async with asyncio.timeout(limit_s) as timer:
                outcome = await link.ask(request, timer)
        except TimeoutError:
            self._cancel_turn(link)
            return DraftFailure(
                reason=f"the local agent did not answer within {limit_s:g} s{link.explanation()}", hard=True
            )
        except BaseException:
            self._cancel_turn(link, blamed=False)
            raise
        if self._closed:
            return _closed()
        if isinstance(outcome, DraftFailure) and outcome.hard:
            self._retire(link)
        else:
            self._pause.succeed()
        return outcome

    async def _ready(self) -> AgentLink | DraftFailure:
        """Return a link that is ready, or why there is none."""
        if self._closed:
            return _closed()
        if self._link is not None:
            if self._link.is_up:
                return self._link
            died = await self._link.exit_failure()
            self._retire(self._link, blamed=died is not None)
            if died is not None:
                ended = "the local agent's process ended after its last turn"
                return DraftFailure(reason=f"{ended}: {died}", recorded=f"{ended}: {died.how}", hard=True)
            await self._wait_until_ended()
        if (wait_s := self._pause.left_s()) > 0:
            failures = self._pause.failures
            times = "once" if failures == 1 else f"{failures} times in a row"
            reason = f"the local agent failed {times}; it can be started again in {max(wait_s, 0.1):.1f} s"
            return DraftFailure(reason=reason, hard=True)
        if self._closed:
            return _closed()
        self._link = link = self._make()
        try:
            await link.open()
        except NotStartedError as error:
            self._retire(link, blamed=not isinstance(error, MissingError))
            if self._closed:
                return _closed()
            return DraftFailure(reason=str(error), recorded=error.recorded, hard=True)
        except BaseException:
            self._retire(link, blamed=False)
            raise
        if self._closed:  # it was closed while it started, so it must be ended here
            self._retire(link, blamed=False)
            return _closed()
        return link

    # ── ending ────────────────────────────────────────────────────────────────────────────────────────────────────────

    def _retire(self, link: AgentLink, *, blamed: bool = True) -> None:
        """End a link in the background; the next prompt waits for that."""
        self._link = None
        if blamed:
            self._pause.fail()
        self._begin(link.end())

    def _cancel_turn(self, link: AgentLink, *, blamed: bool = True) -> None:
        """Cancel the turn of a link, or end the link if that fails."""

        async def cancel() -> None:
            if not self._closed and await link.cancel_turn():
                return
            self._link = None
            if blamed:
                self._pause.fail()
            await link.end()

        self._begin(cancel())

    def _begin(self, ending: Coroutine[object, object, None]) -> None:
        self._ending = asyncio.get_running_loop().create_task(ending)

    async def _wait_until_ended(self) -> None:
        """Wait until the previous link has ended."""
        if (ending := self._ending) is None:
            return
        await asyncio.wait({ending})
        if self._ending is ending:
            self._ending = None
        if not ending.cancelled() and (error := ending.exception()) is not None:
            log.error("ending a local agent failed: %s", type(error).__name__)


def _closed() -> DraftFailure:
    return DraftFailure(reason="the local agent was closed", hard=True)
