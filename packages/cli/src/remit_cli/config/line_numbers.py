"""Finds the line of each key in a TOML text, which `tomllib` does not report."""

import json
import re
import tomllib
from typing import Any, NamedTuple, cast

Place = tuple[str | int, ...]
"""The steps to a value: keys of tables, indexes of arrays."""


def dotted(place: Place) -> str:
    """Return a place as text: `agents.tax-ai.may_call`, `rules[0].then`."""
    shown = ""
    for step in place:
        if isinstance(step, int):
            shown += f"[{step}]"
        else:
            shown += "." * bool(shown) + (step if re.fullmatch(r"[A-Za-z0-9_-]+", step) else json.dumps(step))
    return shown


def value_at(said: Any, place: Place) -> Any:
    """Return the value at a place, or None if there is none."""
    for step in place:
        if isinstance(said, dict):
            said = cast("dict[Any, Any]", said).get(step)
        elif isinstance(said, list) and isinstance(step, int):
            said = cast("list[Any]", said)[step]
        else:
            return None
    return said


class DuplicateKey(NamedTuple):
    """A key that has a value already."""

    place: Place
    first: int
    line: int


_BLANK = re.compile(r"[ \t]*+")
# Between statements, and between the values of an array.
_GAP = re.compile(r"(?:[ \t\r\n]|#[^\n]*)*+")
_END = re.compile(r"[ \t]*(?:#[^\n]*)?(?:\n|\Z)")
_KEY = re.compile(r"""[A-Za-z0-9_-]+|"(?:[^"\\\n]|\\.)*"|'[^'\n]*'""")
# The longer quotes first; up to two quotes may stand before those that end a text of several lines.
_TEXT = re.compile(
    r'''"""(?:[^"\\]|\\.|"{1,2}(?!"))*+"{3,5}|\'\'\'(?:[^']|'{1,2}(?!'))*+'{3,5}|"(?:[^"\\\n]|\\.)*+"|'[^'\n]*+\'''',
    re.DOTALL,
)
# Numbers, truth values and times; a time may have a space within.
_PLAIN = re.compile(r"[^,\]}#\n]+")


class TomlLines:
    """The lines of a TOML text, by the places of its keys and values.

    Invalid TOML is read up to the error.
    """

    def __init__(self, text: str) -> None:
        self._text = text.replace("\r\n", "\n")
        self._at = 0
        self._line = 1
        self._counted = 0
        self._tables: dict[Place, int] = {}
        """The number of tables so far in each array of tables."""
        self._said: set[Place] = set()
        """Places that a statement named, rather than only passed through."""
        self.of: dict[Place, int] = {}
        self.twice: list[DuplicateKey] = []
        self._read()

    def _read(self) -> None:
        table: Place | None = ()
        while table is not None:
            self._skip(_GAP)
            if self._at >= len(self._text):
                return
            if self._take("[["):
                table = self._header("]]")
            elif self._take("["):
                table = self._header("]")
            elif not self._pair(table):
                return
            if not self._ends():
                return

    # ── statements ────────────────────────────────────────────────────────────────────────────────────────────────────

    def _header(self, closing: str) -> Place | None:
        keys = self._keys()
        if not keys or not self._take(closing):
            return None
        line = self._here()
        place: Place = ()
        for key in keys[:-1]:
            place = (*place, key)
            self.of.setdefault(place, line)
            if place in self._tables:
                place = (*place, self._tables[place] - 1)
        place = (*place, keys[-1])
        if closing == "]":
            self._say(place, line)
            return place
        index = self._tables[place] = self._tables.get(place, 0) + 1
        self.of.setdefault(place, line)
        place = (*place, index - 1)
        self.of[place] = line
        return place

    def _pair(self, table: Place) -> bool:
        line = self._here()
        keys = self._keys()
        if not keys or not self._take("="):
            return False
        place = table
        for key in keys[:-1]:
            place = (*place, key)
            self.of.setdefault(place, line)
        place = (*place, keys[-1])
        self._say(place, line)
        self._skip(_BLANK)
        return self._value(place)

    def _say(self, place: Place, line: int) -> None:
        if place in self._said:
            self.twice.append(DuplicateKey(place, self.of[place], line))
            return
        self._said.add(place)
        self.of[place] = line

    def _keys(self) -> list[str]:
        keys: list[str] = []
        while True:
            self._skip(_BLANK)
            found = _KEY.match(self._text, self._at)
            if found is None:
                return []
            self._at = found.end()
            try:
                keys.append(_unquoted(found[0]))
            except tomllib.TOMLDecodeError:
                return []
            self._skip(_BLANK)
            if not self._take("."):
                return keys

    # ── values ────────────────────────────────────────────────────────────────────────────────────────────────────────

    def _value(self, place: Place) -> bool:
        if self._take("["):
            return self._array(place)
        if self._take("{"):
            return self._inline_table(place)
        return self._skip(_TEXT) or self._skip(_PLAIN)

    def _array(self, place: Place) -> bool:
        index = 0
        while True:
            self._skip(_GAP)
            if self._take("]"):
                return True
            item = (*place, index)
            self.of[item] = self._here()
            if not self._value(item):
                return False
            index += 1
            self._skip(_GAP)
            if not self._take(","):
                return self._take("]")

    def _inline_table(self, place: Place) -> bool:
        while True:
            # TOML 1.1 allows inline tables over several lines; whether that is valid is up to `tomllib`.
            self._skip(_GAP)
            if self._take("}"):
                return True
            if not self._pair(place):
                return False
            self._skip(_GAP)
            if not self._take(","):
                return self._take("}")

    # ── letters ───────────────────────────────────────────────────────────────────────────────────────────────────────

    def _skip(self, pattern: re.Pattern[str]) -> bool:
        found = pattern.match(self._text, self._at)
        if found is None:
            return False
        self._at = found.end()
        return True

    def _take(self, letters: str) -> bool:
        if not self._text.startswith(letters, self._at):
            return False
        self._at += len(letters)
        return True

    def _ends(self) -> bool:
        """Return whether only a comment follows in this line."""
        return _END.match(self._text, self._at) is not None

    def _here(self) -> int:
        self._line += self._text.count("\n", self._counted, self._at)
        self._counted = self._at
        return self._line


def _unquoted(key: str) -> str:
    return tomllib.loads(f"key = {key}")["key"] if key[0] in "\"'" else key
