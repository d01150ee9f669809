"""The terminal of a chat with a shared agent: messages scroll above a fixed footer."""

import shutil
import sys
from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import AbstractContextManager, asynccontextmanager, nullcontext
from functools import partial

from remit.cli.shared.wording import cells, folded
from remit.cli.show.screen import styled
from remit.cli.show.tree_lines import plain_ascii
from remit.cli.talk.input_line import PROMPT, Fragments, InputLine
from remit.words.terminal import speaks_unicode

Footer = Callable[[int, int], list[str]]
"""Returns the footer lines for a width and a height; may be empty."""


class FooterScreen:
    """Lines on stderr, above a footer and the input line, if the terminal can redraw.

    Otherwise, or without keyboard input, there are only lines, and a pending question is printed again.
    """

    def __init__(self, line: InputLine | None, footer: Footer) -> None:
        self._err = sys.stderr
        self._unicode = speaks_unicode(self._err)
        self._line = line
        self._footer = footer
        self.redraws = line is not None and line.redraws
        """Whether there is a footer."""
        if line is not None:
            line.shown = self._shown
        self._kept: list[str] = []
        self._lent = False

    @asynccontextmanager
    async def open(self) -> AsyncGenerator[None]:
        """Use the terminal within the block, and restore it after."""
        if self._line is None:
            yield
            return
        async with self._line.open():
            yield

    def say(self, *lines: str) -> None:
        """Print text above the footer."""
        self.tell(lines)

    def tell(self, lines: Iterable[str], *, fg: str | None = None, bold: bool = False, dim: bool = False) -> None:
        """Print lines above the footer; lines printed while the terminal is lent out appear afterwards."""
        text = list(lines)
        if self._line is None:  # a program reads the lines, or they are shown in another terminal later
            self._print(text)
            return
        width = shutil.get_terminal_size().columns
        text = [part for line in text for part in folded(line.expandtabs(4), max(10, width))]
        if (fg or bold or dim) and self._err.isatty():
            text = [styled(line, fg=fg, bold=bold, dim=dim) if line else line for line in text]
        # Agents print and log from their own threads.
        self._line.in_turn(partial(self._print, text))

    def tick(self) -> None:
        """Draw the footer again, if it has changed."""
        if self._line is not None:
            self._line.redraw()

    def cleared(self) -> AbstractContextManager[None]:
        """Remove the footer while another stream writes to the terminal."""
        return nullcontext() if self._line is None else self._line.above()

    @asynccontextmanager
    async def aside(self) -> AsyncGenerator[None]:
        """Lend the terminal, in its original state, within the block."""
        assert self._line is not None, "only a person at a terminal needs it"
        async with self._line.aside():
            self._lent = True
            try:
                yield
            finally:
                self._lent = False
                kept, self._kept = self._kept, []
                self._print(kept)

    def abandon(self) -> None:
        """Restore the terminal at once, because the process is about to end."""
        if self._line is not None:
            self._line.restore()

    # ── drawing ───────────────────────────────────────────────────────────────────────────────────────────────────────

    def _print(self, lines: list[str]) -> None:
        if self._lent:
            self._kept += lines
        elif lines:
            with self.cleared():
                text = "".join(f"{line}\n" for line in lines)
                self._err.write(text if self._unicode else plain_ascii(text))
                self._err.flush()

    def _shown(self, width: int, height: int) -> Fragments:
        """Return the footer and the prompt."""
        room = max(10, width - 1)
        footer = self._footer(room, height)
        # In a window that is too low the last lines are shown, because they list the possible commands.
        footer = [self._fitting(each, room) for each in footer[max(0, len(footer) - max(1, height - 2)) :]]
        styles = [""] * len(footer)
        if footer:
            styles[0], styles[-1] = "bold", "dim"
        return [*((style, f"{line}\n") for style, line in zip(styles, footer, strict=True)), ("", PROMPT)]

    def _fitting(self, line: str, room: int) -> str:
        """Return a line cut to a number of cells."""
        line = line if self._unicode else plain_ascii(line)
        while cells(line) > room:
            line = line[:-1]
        return line
