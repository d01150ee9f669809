"""Shows a running run on stderr: as a redrawn tree, as one line per record, or plainly for end users."""

import os
import shutil
import sys
import time
from collections.abc import AsyncGenerator, Callable, Collection
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Protocol

import click

from remit.protocol.records import Delta, Progress, Record
from remit.runtime.run_tree import Node, Tree
from remit.words.terminal import one_line, speaks_unicode
from remit_cli.show.screen import now_ms
from remit_cli.show.tree_lines import plain_ascii, sentence


class Display(Protocol):
    """Shows a run; everything goes to stderr, because stdout is data."""

    def show(self, record: Record, node: Node) -> None:
        """Show a record that the tree has already processed."""
        ...

    def tick(self) -> None:
        """Show the elapsed time."""
        ...

    def say(self, text: str) -> None:
        """Show a message that is not from a record."""
        ...

    def aside(self) -> AbstractAsyncContextManager[None]:
        """Stop drawing while someone else uses the terminal."""
        ...

    def close(self) -> None:
        """Leave the terminal as it should stay."""
        ...

    def abandon(self) -> None:
        """Restore the terminal at once, because the process is about to end."""
        ...


class LineDisplay:
    """One line per record, with the seconds since the run began."""

    def __init__(self) -> None:
        self._began_ms: int | None = None
        self._unicode = speaks_unicode(sys.stderr)

    def show(self, record: Record, node: Node) -> None:
        if isinstance(record.body, Delta):
            return  # only a word or two; the answer is printed as a whole
        if self._began_ms is None:
            self._began_ms = record.at_ms
        elapsed = max(0, record.at_ms - self._began_ms) / 1_000
        self.say(f"{elapsed:8.2f}  {sentence(record, node)}")

    def tick(self) -> None:
        pass

    def say(self, text: str) -> None:
        click.echo(text if self._unicode else plain_ascii(text), err=True)

    @asynccontextmanager
    async def aside(self) -> AsyncGenerator[None]:
        yield

    def close(self) -> None:
        pass

    def abandon(self) -> None:
        pass


def display_for(tree: Tree) -> Display:
    """Return the tree where stderr is a terminal that can redraw, and lines elsewhere."""
    if not can_redraw():
        return LineDisplay()
    from remit_cli.show.live import LiveTree

    return LiveTree(tree, now_ms)


def can_redraw() -> bool:
    """Return whether stderr is a terminal in which a line can be overwritten."""
    return sys.stderr.isatty() and os.environ.get("TERM", "") not in ("", "dumb")


# The elapsed seconds beside the text.
ROOM_FOR_SECONDS = 8


class PlainDisplay:
    """A `Display` of what the agents that address users say: the orchestrator, and workflows."""

    def __init__(self, speakers: Collection[str], now_s: Callable[[], float] = time.monotonic) -> None:
        self._speakers = speakers
        self._now_s = now_s
        self._unicode = speaks_unicode(sys.stderr)
        self._redraws = can_redraw()
        self._text = ""
        self._since = 0.0
        self._may_draw = True

    def show(self, record: Record, node: Node) -> None:
        match record.body:
            case Progress(text=text) if node.agent in self._speakers and text != self._text:
                self._end_line()
                self._text, self._since = text, self._now_s()
                click.echo(self._line(), nl=not self._redraws, err=True)
            case _:
                pass

    def tick(self) -> None:
        if self._redraws and self._may_draw and self._text and self._seconds():
            click.echo(f"\r{self._line()} {self._seconds()} s\x1b[K", nl=False, err=True)

    def say(self, text: str) -> None:
        self._end_line()
        self._text = ""
        click.echo(text if self._unicode else plain_ascii(text), err=True)

    @asynccontextmanager
    async def aside(self) -> AsyncGenerator[None]:
        self._end_line()
        self._text, self._may_draw = "", False
        try:
            yield
        finally:
            self._may_draw = True

    def close(self) -> None:
        if self._redraws and self._text:
            click.echo("\n", err=True)  # separate the answer from the text before it
        self._text, self._may_draw = "", False

    def abandon(self) -> None:
        if self._redraws and self._text:
            os.write(sys.stderr.fileno(), b"\r\n")

    def _line(self) -> str:
        width = shutil.get_terminal_size().columns - ROOM_FOR_SECONDS if self._redraws else None
        text = one_line(self._text) if width is None else one_line(self._text, max(20, width))
        return text if self._unicode else plain_ascii(text)

    def _seconds(self) -> int:
        return int(self._now_s() - self._since)

    def _end_line(self) -> None:
        if self._redraws and self._text:
            click.echo(err=True)
