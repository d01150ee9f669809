"""A terminal for tests: a command in a pseudo-terminal of its own, and what its screen shows."""

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

from commands import REMIT, popen
from fork_server import take_terminal
from waiting import PATIENCE_S

# Far more than anything takes, so that only a test that would hang ever sees it.
LIMIT_S = PATIENCE_S

_SEQUENCE = re.compile(r"\x1b\[([0-?]*)([@-~])")
# The end of it has not been read yet.
_UNFINISHED = re.compile(r"\x1b(\[[0-?]*)?\Z")


class Screen:
    """As much of a terminal as our output needs: lines, the cursor, what it erases. It fails on anything else."""

    def __init__(self, width: int) -> None:
        self.width = width
        self.lines: list[list[str]] = [[]]
        self.row = self.column = 0

    def feed(self, data: str) -> None:
        place = 0
        while place < len(data):
            letter = data[place]
            if letter == "\x1b":
                if _UNFINISHED.match(data, place):
                    return
                found = _SEQUENCE.match(data, place)
                assert found, f"an unknown sequence: {data[place : place + 20]!r}"
                self._act(found[1], found[2])
                place = found.end()
                continue
            if letter == "\r":
                self.column = 0
            elif letter == "\b":
                self.column = max(0, self.column - 1)
            elif letter == "\n":
                self.row += 1
                while self.row >= len(self.lines):
                    self.lines.append([])
            elif letter != "\x07":
                assert letter.isprintable(), f"{letter!r} reached the terminal"
                line = self.lines[self.row]
                line.extend(" " * (self.column + 1 - len(line)))
                line[self.column] = letter
                self.column += 1
            place += 1

    def _act(self, numbers: str, action: str) -> None:
        count = int(numbers) if numbers.isdigit() else 1
        match action:
            case "A":
                self.row = max(0, self.row - count)
            case "C":
                self.column += count
            case "K":
                line = self.lines[self.row]
                self.lines[self.row] = [] if numbers == "2" else line[: self.column]
            case "m" | "h" | "l":
                pass
            case _:
                raise AssertionError(f"an unknown sequence: {numbers}{action}")

    def text(self) -> str:
        return "\n".join("".join(line).rstrip() for line in self.lines)


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
        self.width = width
        self._ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", height, width, 0, 0))
        variables = {**os.environ, "TERM": "xterm-256color", **(env or {})}
        for name in ("NO_COLOR", "COLUMNS", "LINES"):
            if name not in (env or {}):
                variables.pop(name, None)
        output = stdout.open("wb") if stdout else None
        files: dict[str, Any] = {"stdin": theirs, "stdout": output or theirs, "stderr": theirs}
        # Some libraries look at what the terminal can do when they are imported.
        if command[0] == REMIT and "TERM" not in (env or {}):
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
        screen = Screen(self.width)
        screen.feed(self.raw.decode(errors="replace"))
        return screen.text()

    def wait_for(self, *texts: str) -> str:
        """Return the screen once it shows all of the texts."""
        return self.wait_until(lambda screen: all(text in screen for text in texts), f"{texts}")

    def wait_until(self, shows: Callable[[str], bool], what: str = "what was expected") -> str:
        until = time.monotonic() + LIMIT_S
        while not shows(screen := self.screen):
            assert time.monotonic() < until, f"{what} did not appear:\n{screen}"
            if not self._read(0.1) and self.process.poll() is not None:
                until = 0  # nothing more will come
        return screen

    def wait(self) -> int:
        """Return the exit code once the command has ended."""
        until = time.monotonic() + LIMIT_S
        while (code := self.process.poll()) is None:
            assert time.monotonic() < until, f"it did not end:\n{self.screen}"
            self._read(0.05)
        while self._read(0):
            pass
        return code

    def _read(self, timeout: float) -> bool:
        if not select.select([self._ours], [], [], timeout)[0]:
            return False
        try:
            data = os.read(self._ours, 65_536)
        except OSError:  # Linux says so when the other end is closed
            return False
        self.raw += data
        return bool(data)
