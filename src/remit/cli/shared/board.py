"""The terminal of a chat with a shared agent: messages scroll above a fixed footer."""

import shutil
import sys
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from threading import RLock
from typing import Literal

from remit.cli.shared.wording import cells, folded
from remit.cli.show.display import can_redraw
from remit.cli.show.screen import styled
from remit.cli.show.tree_lines import plain_ascii
from remit.cli.talk.typeahead import TypeAhead
from remit.text.terminal import one_line, speaks_unicode

_LINE = "\r\x1b[K"
_UP = "\x1b[A\x1b[2K"

PROMPT = "> "

Footer = Callable[[int, int], list[str]]
"""Returns the footer lines for a width and a height; may be empty."""


class Board:
    """Lines on stderr, above a footer and the line that is being typed, where the terminal can draw over itself.

    Where it cannot, or nobody types, there are lines alone, and whoever has a question says it again.
    """

    def __init__(self, ahead: TypeAhead | None, footer: Footer) -> None:
        self._err = sys.stderr
        self._unicode = speaks_unicode(self._err)
        self._ahead = ahead
        self._footer = footer
        self.redraws = ahead is not None and can_redraw()
        """Whether there is a footer."""
        if ahead is not None:
            ahead.changed = self.tick
        # What agents print and log comes from threads of their own.
        self._lock = RLock()
        self._shown: list[str] = []
        self._kept: list[str] = []
        self._has: Literal["nothing", "terminal", "no terminal"] = "nothing"
        """Nothing yet or any more; the terminal; or no terminal for a while, because someone else has it."""

    @contextmanager
    def open(self) -> Generator[None]:
        """Use the terminal within the block, and restore it after."""
        self._begin()
        try:
            yield
        finally:
            self._end()
            self._has = "nothing"

    def say(self, *lines: str) -> None:
        """Print text above the footer."""
        self.tell(lines)

    def tell(self, lines: Iterable[str], *, fg: str | None = None, bold: bool = False, dim: bool = False) -> None:
        """Print lines above the footer; lines printed while the terminal is lent out appear afterwards."""
        text = list(lines)
        if self._ahead is not None:  # else lines are read by a program, or by somebody else's terminal later
            width = shutil.get_terminal_size().columns
            text = [part for line in text for part in folded(line.expandtabs(4), max(10, width))]
        if (fg or bold or dim) and self._err.isatty():
            text = [styled(line, fg=fg, bold=bold, dim=dim) if line else line for line in text]
        with self._lock:
            if self._has == "no terminal":
                self._kept += text
                return
            self._write(self._erased() + "".join(f"{line}\n" for line in text) + self._drawn())

    def tick(self) -> None:
        """Draw the footer again, if it has changed."""
        with self._lock:
            if self.redraws and self._has == "terminal" and self._lines() != self._shown:
                self._write(self._erased() + self._drawn())

    @contextmanager
    def cleared(self) -> Generator[None]:
        """Remove the footer while another stream writes to the terminal."""
        with self._lock:
            self._write(self._erased())
            try:
                yield
            finally:
                self._write(self._drawn())

    @contextmanager
    def aside(self) -> Generator[None]:
        """Lend the terminal, in its original state, within the block."""
        self._end()
        try:
            yield
        finally:
            self._begin()

    def abandon(self) -> None:
        """Give the terminal back at once: the process is about to end."""
        if self._ahead is not None:
            self._ahead.restore()

    # ── how ───────────────────────────────────────────────────────────────────────────────────────────────────────────

    def _begin(self) -> None:
        with self._lock:
            self._has = "terminal"
            if self._ahead is not None:
                self._ahead.start()
            kept, self._kept = self._kept, []
            self._write("".join(f"{line}\n" for line in kept) + self._drawn())

    def _end(self) -> None:
        with self._lock:
            self._write(self._erased())
            self._has = "no terminal"
            if self._ahead is not None:
                self._ahead.stop()

    def _write(self, text: str) -> None:
        if text:
            self._err.write(text if self._unicode else plain_ascii(text))
            self._err.flush()

    def _erased(self) -> str:
        """Return the codes that erase the footer, also when a narrower window wrapped its lines."""
        if not self._shown:
            return ""
        width = max(1, shutil.get_terminal_size().columns)
        rows = sum(max(1, -(-cells(line) // width)) for line in self._shown)
        self._shown = []
        return _LINE + _UP * (rows - 1)

    def _drawn(self) -> str:
        if not self.redraws or self._has != "terminal":
            return ""
        self._shown = lines = self._lines()
        *above, typed = lines
        if above:
            above[0], above[-1] = styled(above[0], bold=True), styled(above[-1], dim=True)
        return "".join(f"{line}\n" for line in above) + typed

    def _lines(self) -> list[str]:
        width, height = shutil.get_terminal_size()
        room = max(10, width - 1)
        footer = self._footer(room, height)
        # A footer that is higher than the window could not be taken away again; what can be typed stands last in it.
        footer = footer[max(0, len(footer) - max(1, height - 2)) :]
        typed = "" if self._ahead is None else self._ahead.text
        typed = one_line(typed[-room:]) + " " * typed.endswith(" ")
        while cells(PROMPT + typed) > room:
            typed = typed[1:]
        return [*(self._fitting(each, room) for each in footer), PROMPT + typed]

    def _fitting(self, line: str, room: int) -> str:
        """Return a line cut to a number of cells."""
        line = line if self._unicode else plain_ascii(line)
        while cells(line) > room:
            line = line[:-1]
        return line
