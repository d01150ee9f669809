"""Shows the progress of a run to end users, without names of agents."""

import os
import shutil
import sys
import time
from collections.abc import Callable, Collection, Generator
from contextlib import contextmanager

import click

from remit.cli.show.display import can_redraw
from remit.cli.show.tree import Node
from remit.cli.show.tree_lines import plain_ascii
from remit.protocol.records import Progress, Record
from remit.text.terminal import one_line, speaks_unicode

# Beside the text: how many seconds it has taken.
ROOM_FOR_SECONDS = 8


class PlainDisplay:
    """A `Display` of what is said by those who speak to users: the orchestrator, and workflows."""

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

    @contextmanager
    def aside(self) -> Generator[None]:
        self._end_line()
        self._text, self._may_draw = "", False
        try:
            yield
        finally:
            self._may_draw = True

    def close(self) -> None:
        if self._redraws and self._text:
            click.echo("\n", err=True)  # the answer stands apart from what was said before it
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
