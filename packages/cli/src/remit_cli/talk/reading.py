"""The input line of a chat at a terminal, as the rest of the chat sees it."""

import asyncio
import os
import sys
from collections.abc import AsyncGenerator, Callable, Generator, Sequence
from contextlib import (
    asynccontextmanager,
    contextmanager,
    suppress,
)
from threading import RLock, Thread

import click

from remit_cli.show.display import can_redraw
from remit_cli.talk.transcript import PROMPT, Entered, Fragments, InputLine

# A terminal that edits lines itself drops what is typed beyond this, with the line break (N_TTY_BUF_SIZE of Linux).
LONGEST_LINE = 4_096


class PipedLines:
    """Reads one request per line from stdin."""

    def __init__(self) -> None:
        self._rest = b""

    async def read(self) -> str | None:
        """Return the next request, which may have several lines; None at the end."""
        loop = asyncio.get_running_loop()
        entered: asyncio.Future[str | None] = loop.create_future()

        def settle(text: str | None, error: Exception | None) -> None:
            if not entered.done():
                entered.set_result(text) if error is None else entered.set_exception(error)

        def work() -> None:
            text = error = None
            try:
                text = self._next()
            except (click.UsageError, OSError) as failure:
                error = failure
            with suppress(RuntimeError):  # the loop is closed: nobody waits for it any more
                loop.call_soon_threadsafe(settle, text, error)

        # A thread, because an event loop cannot watch files; a daemon thread, because nothing can interrupt its
        # reading.
        Thread(target=work, name="remit-stdin", daemon=True).start()
        return await entered

    def _next(self) -> str | None:
        text = ""
        while line := self._line():
            text += line.rstrip("\r\n")
            if not text.endswith("\\"):
                return text
            text = text[:-1] + "\n"
        return text or None

    def _line(self) -> str:
        while b"\n" not in self._rest:
            part = os.read(sys.stdin.fileno(), 65_536)
            if not part:
                break
            self._rest += part
        line, end, self._rest = self._rest.partition(b"\n")
        try:
            return (line + end).decode(sys.stdin.encoding)
        except UnicodeDecodeError as error:
            raise click.UsageError(f"stdin is not text in {sys.stdin.encoding}") from error


class PlainLine:
    """An `InputLine` that the terminal itself edits: typed text appears at the cursor."""

    redraws = False
    text = ""

    def __init__(self, terminal: int, entered: Entered, *, prompts: bool) -> None:
        self._terminal = terminal
        self._entered = entered
        self._prompts = prompts
        self._err = sys.stderr
        self._begun = ""
        """The lines of a request so far, each of which ended with a backslash."""
        self._asking = False
        # Agents print and log from their own threads.
        self._lock = RLock()
        self.shown: Callable[[int, int], Fragments] = lambda _width, _height: []

    def take(self) -> str:
        return ""

    def begin(self, text: str) -> None:
        pass

    def ask(self) -> None:
        if self._prompts:
            self._asking = True
            self._write(PROMPT)

    @asynccontextmanager
    async def open(self, history: Sequence[str] = ()) -> AsyncGenerator[None]:  # noqa: ARG002 - there is none here
        self._listen()
        try:
            yield
        finally:
            self._ignore()

    @contextmanager
    def above(self) -> Generator[None]:
        with self._lock:
            if self._asking:
                self._write("\n")
            yield
            if self._asking:
                self._write(PROMPT)

    def in_turn(self, action: Callable[[], None]) -> None:
        with self._lock:
            action()

    def redraw(self) -> None:
        pass

    @asynccontextmanager
    async def aside(self) -> AsyncGenerator[None]:
        self._ignore()
        try:
            yield
        finally:
            self._listen()

    def restore(self) -> None:
        pass

    def _listen(self) -> None:
        asyncio.get_running_loop().add_reader(self._terminal, self._read_terminal)

    def _ignore(self) -> None:
        asyncio.get_running_loop().remove_reader(self._terminal)

    def _read_terminal(self) -> None:
        try:
            raw = os.read(self._terminal, 65_536)
        except OSError:
            raw = b""
        self._asking = False
        if len(raw) >= LONGEST_LINE:
            self._begun = ""
            self._write(
                f"The terminal cut this line after {LONGEST_LINE - 1:,} bytes, so it was not entered.\n"
                "→ End a line with \\ and go on in the next one.\n"
            )
            self.ask()
            return
        if not raw:  # Ctrl-D, or the terminal is gone
            self._ignore()
            self._entered(None)
            return
        for line in raw.decode(sys.stdin.encoding, errors="replace").splitlines():
            text = self._begun + line
            self._begun = text[:-1] + "\n" if text.endswith("\\") else ""
            if not self._begun:
                self._entered(text)
        if self._begun:
            self.ask()

    def _write(self, text: str) -> None:
        self._err.write(text)
        self._err.flush()


def input_line(terminal: int, entered: Entered, *, commands: Sequence[str] = (), prompts: bool = True) -> InputLine:
    """Return the input line for a terminal; *commands* can be completed.

    Without *prompts*, a terminal that cannot redraw shows no prompt.
    """
    if not can_redraw():
        return PlainLine(terminal, entered, prompts=prompts)
    # prompt_toolkit takes a tenth of a second to import; only a chat at a terminal needs it.
    from remit_cli.talk.editor import LineEditor

    return LineEditor(terminal, entered, commands)
