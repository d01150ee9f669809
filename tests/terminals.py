"""A terminal for tests: a command in a pseudo-terminal of its own, and what its screen shows."""

import codecs
import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Self

from rich.cells import cell_len

from commands import REMIT, popen
from fork_server import take_terminal
from waiting import PATIENCE_S

# Far more than anything takes, so that only a test that would hang ever sees it.
LIMIT_S = PATIENCE_S

_SEQUENCE = re.compile(r"\x1b\[([0-?]*)([@-~])")
# The end of it has not been read yet.
_UNFINISHED = re.compile(r"\x1b(\[[0-?]*)?\Z")


class Screen:
    """As much of a terminal as our output needs: lines, the cursor, what it erases. It fails on anything else.

    A line that is wider than the terminal goes on in the next row, and is one line in `text`. A letter of two cells has
    an empty cell behind it.
    """

    def __init__(self, width: int) -> None:
        self.width = width
        self.lines: list[list[str]] = [[]]
        self.row = self.column = 0
        self._wraps = True
        self._continued: set[int] = set()
        """The rows in which a line of the row above goes on."""

    def feed(self, data: str) -> None:
        place = 0
        while place < len(data):
            letter = data[place]
            if letter == "\x1b":
                if _UNFINISHED.match(data, place):
                    return
                match = _SEQUENCE.match(data, place)
                assert match, f"an unknown sequence: {data[place : place + 20]!r}"
                self._act(match[1], match[2])
                place = match.end()
                continue
            if letter == "\r":
                self.column = 0
            elif letter == "\b":
                self.column = max(0, min(self.column, self.width - 1) - 1)
            elif letter == "\n":
                self._down()
            elif letter != "\x07":
                assert letter.isprintable(), f"{letter!r} reached the terminal"
                self._put(letter)
            place += 1

    def _put(self, letter: str) -> None:
        cells = cell_len(letter)
        if self.column + cells > self.width and self._wraps:
            self._down()
            self.column = 0
            self._continued.add(self.row)
        self.column = min(self.column, self.width - cells)
        line = self.lines[self.row]
        line.extend(" " * (self.column + cells - len(line)))
        if cells:
            line[self.column : self.column + cells] = [letter, *[""] * (cells - 1)]
        elif self.column:
            line[self.column - 1] += letter  # it changes the letter before
        self.column += cells

    def _down(self) -> None:
        self.row += 1
        while self.row >= len(self.lines):
            self.lines.append([])
        self._continued.discard(self.row)

    def _act(self, numbers: str, action: str) -> None:
        count = int(numbers) if numbers.isdigit() else 1
        match action:
            case "A":
                self.row = max(0, self.row - count)
            case "C":
                self.column = min(self.width - 1, self.column + count)
            case "D":
                self.column = max(0, min(self.column, self.width - 1) - count)
            case "J":
                assert numbers in ("", "0"), "only what is below the cursor is erased"
                self.lines[self.row] = self.lines[self.row][: self.column]
                del self.lines[self.row + 1 :]
            case "K":
                line = self.lines[self.row]
                self.lines[self.row] = [] if numbers == "2" else line[: self.column]
            case "h" | "l" if numbers == "?7":
                self._wraps = action == "h"
            case "m" | "h" | "l":
                pass
            case _:
                raise AssertionError(f"an unknown sequence: {numbers}{action}")

    def text(self) -> str:
        rows = ["".join(line) for line in self.lines]
        rows = [text if row in self._continued else text.rstrip() for row, text in enumerate(rows, 1)]
        while len(rows) > self.row + 1 and not rows[-1]:
            rows.pop()  # nothing stands below the cursor
        starts = ("" if row in self._continued else "\n" for row in range(len(rows)))
        return "".join(start + row for start, row in zip(starts, rows, strict=True)).removeprefix("\n")


class Terminal:
    """A command whose stdin and stderr, and stdout unless *stdout* is a file, are a pseudo-terminal."""

    def __init__(
        self,
        command: Sequence[str],
        *,
        folder: Path,
        width: int = 100,
        height: int = 30,
        env: dict[str, str] | None = None,
        stdout: Path | None = None,
    ) -> None:
        self.raw = b""
        self._widths = [(0, width)]
        """From which byte of the output on the terminal has which width."""
        self._ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", height, width, 0, 0))
        variables = {**os.environ, "TERM": "xterm-256color", **(env or {})}
        for name in ("NO_COLOR", "COLUMNS", "LINES"):
            if name not in (env or {}):
                variables.pop(name, None)
        output = stdout.open("wb") if stdout else None
        files: dict[str, Any] = {"stdin": theirs, "stdout": output or theirs, "stderr": theirs}
        if command[0] == REMIT:
            strict = {**variables, "PYTHONWARNINGS": "error"}
            self.process: subprocess.Popen[Any] = popen(command, cwd=folder, env=strict, terminal=True, **files)
        else:
            self.process = subprocess.Popen(command, cwd=folder, env=variables, preexec_fn=take_terminal, **files)  # noqa: PLW1509 - no thread of the tests is at work then
        os.close(theirs)
        if output:
            output.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        os.close(self._ours)

    def type(self, text: str) -> None:
        os.write(self._ours, text.encode())

    @property
    def number(self) -> int:
        """The file of the terminal."""
        return self._ours

    @property
    def screen(self) -> str:
        """What the terminal shows, all that scrolled away included."""
        screen = Screen(self._widths[0][1])
        ends = [*(start for start, _ in self._widths[1:]), len(self.raw)]
        decode = codecs.getincrementaldecoder("utf-8")(errors="replace").decode
        for (start, width), end in zip(self._widths, ends, strict=True):
            screen.width = width
            screen.feed(decode(self.raw[start:end]))
        return screen.text()

    def resize(self, width: int, height: int) -> None:
        """Give the window another size; what it shows stays as it is."""
        while self._read_output(0):
            pass
        self._widths.append((len(self.raw), width))
        fcntl.ioctl(self._ours, termios.TIOCSWINSZ, struct.pack("HHHH", height, width, 0, 0))

    def hang_up(self) -> None:
        """Close the window."""
        nothing = os.open(os.devnull, os.O_RDWR)
        os.dup2(nothing, self._ours)
        os.close(nothing)

    def wait_for(self, *texts: str) -> str:
        """Return the screen once it shows all of the texts."""
        return self.wait_until(lambda screen: all(text in screen for text in texts), f"{texts}")

    def wait_until(self, shows: Callable[[str], bool], what: str = "what was expected") -> str:
        until = time.monotonic() + LIMIT_S
        while not shows(screen := self.screen):
            assert time.monotonic() < until, f"{what} did not appear:\n{screen}"
            if not self._read_output(0.1) and self.process.poll() is not None:
                until = 0  # nothing more will come
        return screen

    def wait(self) -> int:
        """Return the exit code once the command has ended."""
        until = time.monotonic() + LIMIT_S
        while (code := self.process.poll()) is None:
            assert time.monotonic() < until, f"it did not end:\n{self.screen}"
            self._read_output(0.05)
        while self._read_output(0):
            pass
        return code

    def interrupt(self) -> int:
        """Press Ctrl-C until the command has ended, and return its exit code.

        A blocking read in Python does not see an interrupt that comes after the prompt and just before the read begins:
        a person presses the keys again then.
        """
        until = time.monotonic() + LIMIT_S
        while self.process.poll() is None:
            assert time.monotonic() < until, f"it did not end:\n{self.screen}"
            self.type("\x03")
            again = time.monotonic() + 2
            while self.process.poll() is None and time.monotonic() < again:
                self._read_output(0.05)
        return self.wait()

    def _read_output(self, timeout: float) -> bool:
        if not select.select([self._ours], [], [], timeout)[0]:
            return False
        try:
            data = os.read(self._ours, 65_536)
        except OSError:  # Linux says so when the other end is closed
            return False
        self.raw += data
        return bool(data)
