"""Shows a running run on stderr: as a redrawn tree, or as one line per record."""

import os
import sys
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol

import click

from remit.cli.show.screen import now_ms
from remit.cli.show.sentences import sentence
from remit.cli.show.tree import Node, Tree
from remit.cli.show.tree_lines import plain_ascii
from remit.protocol.records import Delta, Record
from remit.text.terminal import speaks_unicode


class Display(Protocol):
    """Shows a run; everything goes to stderr, because stdout is data."""

    def show(self, record: Record, node: Node) -> None:
        """Show what a record tells, which the tree knows already."""
        ...

    def tick(self) -> None:
        """Show that time has passed."""
        ...

    def say(self, text: str) -> None:
        """Show a message that is not from a record."""
        ...

    def aside(self) -> AbstractContextManager[None]:
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
            return  # a word or two; the answer comes as a whole
        if self._began_ms is None:
            self._began_ms = record.at_ms
        elapsed = max(0, record.at_ms - self._began_ms) / 1_000
        self.say(f"{elapsed:8.2f}  {sentence(record, node)}")

    def tick(self) -> None:
        pass

    def say(self, text: str) -> None:
        click.echo(text if self._unicode else plain_ascii(text), err=True)

    @contextmanager
    def aside(self) -> Generator[None]:
        yield

    def close(self) -> None:
        pass

    def abandon(self) -> None:
        pass


def display_for(tree: Tree, now_ms: Callable[[], int] = now_ms) -> Display:
    """Return the tree where stderr is a terminal that can redraw, and lines elsewhere."""
    if not can_redraw():
        return LineDisplay()
    from remit.cli.show.live import LiveTree

    return LiveTree(tree, now_ms)


def can_redraw() -> bool:
    """Say whether stderr is a terminal in which a line can be written over."""
    return sys.stderr.isatty() and os.environ.get("TERM", "") not in ("", "dumb")
