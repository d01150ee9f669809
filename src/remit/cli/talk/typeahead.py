"""Reads keys while an answer is streamed; readline has the terminal only between answers."""

import asyncio
import codecs
import os
import re
import sys
import termios
from collections.abc import Callable, Iterator

from remit.cli.show.display import can_redraw

END = "\x04"
PASTE, PASTED = "\x1b[200~", "\x1b[201~"
# A key: a sequence of several characters, or one character.
_KEY = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|\x1bO[\s\S]|\x1b[^\[O]|[^\x1b]")
_UNFINISHED = re.compile(r"\x1b(\[[0-?]*[ -/]*|O)?\Z")


class Typed:
    """Lines from keys: enough editing for a word or two, and pasted text in one piece."""

    def __init__(self) -> None:
        self.text = ""
        """The line that has not been entered yet."""
        self._rest = ""
        self._pasting = False

    def feed(self, keys: str) -> Iterator[str | None]:
        """Take what was typed and yield each line that was entered; None for the end of input."""
        keys, self._rest = self._rest + keys, ""
        place = 0
        while place < len(keys):
            key = _KEY.match(keys, place)
            if key is None:
                self._rest = keys[place:] if _UNFINISHED.match(keys, place) else ""
                return
            place = key.end()
            yield from self._press(key[0])

    def _press(self, key: str) -> Iterator[str | None]:
        match key:
            case _ if key in (PASTE, PASTED):
                self._pasting = key == PASTE
            case "\r" | "\n" if not self._pasting:
                entered, self.text = self.text, ""
                yield entered
            case "\r" | "\n":
                self.text += "\n"
            case "\x7f" | "\b":
                self.text = self.text[:-1]
            case "\x15":  # Ctrl-U
                self.text = ""
            case "\x17":  # Ctrl-W
                self.text = self.text.rstrip().rpartition(" ")[0]
            case "\x04" if not self.text:
                yield None
            case _ if key.isprintable() or key == "\t":
                self.text += key
            case _:
                pass


class TypeAhead:
    """Reads the terminal without holding up the event loop; what is typed is shown by whoever draws."""

    def __init__(self, terminal: int, entered: Callable[[str | None], None]) -> None:
        self._terminal = terminal
        self._entered = entered
        self._decode = codecs.getincrementaldecoder("utf-8")(errors="replace").decode
        self._typed = Typed()
        self._before: list[object] | None = None
        # Asked now: later what is printed may be caught, and with it what says that this is a terminal.
        self._draws = can_redraw()
        self.changed: Callable[[], None] = lambda: None
        """Is told that something was typed."""

    @property
    def text(self) -> str:
        """The line that is being typed."""
        return self._typed.text

    def take(self) -> str:
        """Return that line, and forget it: it is typed on elsewhere."""
        text, self._typed.text = self._typed.text, ""
        return text

    def begin(self, text: str) -> None:
        """Have a line begun with a text, to be changed and entered."""
        self._typed.text = text

    def start(self) -> None:
        """Read from now on."""
        self._before = termios.tcgetattr(self._terminal)
        changed = list(self._before)
        assert isinstance(changed[3], int)
        # One key at a time, shown where what is typed can be drawn again; Ctrl-C stays a signal.
        changed[3] &= ~(termios.ICANON | (termios.ECHO if self._draws else 0))
        termios.tcsetattr(self._terminal, termios.TCSANOW, changed)  # pyright: ignore[reportArgumentType]
        self._bracket("h")
        asyncio.get_running_loop().add_reader(self._terminal, self._read)

    def stop(self) -> None:
        """Leave the terminal as it was."""
        asyncio.get_running_loop().remove_reader(self._terminal)
        self.restore()

    def restore(self) -> None:
        """Give the terminal back, from whichever thread."""
        if self._before is not None:
            self._bracket("l")
            termios.tcsetattr(self._terminal, termios.TCSANOW, self._before)  # pyright: ignore[reportArgumentType]
            self._before = None

    def _bracket(self, onoff: str) -> None:
        """Have pasted text marked as such, or no longer."""
        if self._draws:
            os.write(sys.stderr.fileno(), f"\x1b[?2004{onoff}".encode())

    def _read(self) -> None:
        try:
            raw = os.read(self._terminal, 65_536)
        except OSError:
            raw = b""
        if not raw:  # the terminal is gone
            asyncio.get_running_loop().remove_reader(self._terminal)
            self._entered(None)
            return
        for line in self._typed.feed(self._decode(raw)):
            self._entered(line)
        self.changed()
