"""Input of a conversation: typed lines or a pipe."""

import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from select import select
from typing import Protocol

import click

from remit.cli.show.display import can_redraw
from remit.cli.show.screen import without_style
from remit.cli.talk.commands import COMMANDS

PROMPT, MORE = "> ", "… "
LOOK_S = 0.25


class LineReader(Protocol):
    """Gives one request or command after the other."""

    def read(self, begun: str = "") -> str | None:
        """Return the next one, which may be of several lines; None at the end. *begun* was typed already."""
        ...


class Piped:
    """One request per line, from whatever stdin is."""

    def __init__(self) -> None:
        self._rest = b""

    def read(self, begun: str = "") -> str | None:  # noqa: ARG002 - nobody types here
        text = ""
        while line := self._line():
            text += line.rstrip("\r\n")
            if not text.endswith("\\"):
                return text
            text = text[:-1] + "\n"
        return text or None

    def _line(self) -> str:
        stdin = sys.stdin.fileno()
        while b"\n" not in self._rest:
            # A signal that comes just before a read does not end it, and Python does not look for it meanwhile.
            while not select([stdin], [], [], LOOK_S)[0]:
                pass
            part = os.read(stdin, 65_536)
            if not part:
                break
            self._rest += part
        line, end, self._rest = self._rest.partition(b"\n")
        try:
            return (line + end).decode(sys.stdin.encoding)
        except UnicodeDecodeError as error:
            raise click.UsageError(f"stdin is not text in {sys.stdin.encoding}") from error


class Keyboard:
    """Lines that are typed, with what readline offers: editing, earlier lines, completion, pasting as one."""

    def __init__(self, before: Sequence[str], *, unicode: bool) -> None:
        self._more = MORE if unicode else ". "
        self._readline = None
        with suppress(ImportError):  # Python can be built without it: then the terminal's own editing has to do
            import readline

            self._readline = readline
            if can_redraw():
                # Python turns this off; without it a pasted text is as many requests as it has lines.
                readline.parse_and_bind("set enable-bracketed-paste on")
            readline.parse_and_bind("tab: complete")
            readline.set_completer_delims(" ")
            readline.set_completer(_completed)
            for line in before:
                readline.add_history(line)

    def read(self, begun: str = "") -> str | None:
        try:
            text = self._line(PROMPT, begun)
            while text.endswith("\\"):
                text = text[:-1] + "\n" + self._line(self._more)
        except EOFError:
            return None
        return text

    def _line(self, prompt: str, begun: str = "") -> str:
        if self._readline is None:
            return input(prompt)
        insert = self._readline.insert_text
        self._readline.set_startup_hook(lambda: insert(begun))
        if not without_style():
            # What takes no room on the screen stands between these two, so that readline counts right.
            prompt = f"\x01\x1b[1m\x02{prompt}\x01\x1b[0m\x02"
        return input(prompt)


def _completed(text: str, number: int) -> str | None:
    found = [f"/{name}" for name in COMMANDS if text.startswith("/") and f"/{name}".startswith(text)]
    return found[number] + " " if number < len(found) else None
