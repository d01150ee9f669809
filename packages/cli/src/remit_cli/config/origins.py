"""Where each value of a team file comes from: a line of the file, an environment variable or a flag."""

import json
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple, cast, get_args, get_origin

import msgspec
from msgspec import Struct
from msgspec.structs import FieldInfo

from remit.protocol.problems import did_you_mean, options
from remit_cli.config.team import file_type
from remit_cli.config.team_search import BETWEEN, PREFIX

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


def value_at(value: Any, place: Place) -> Any:
    """Return the value at a place, or None if there is none."""
    for step in place:
        if isinstance(value, dict):
            value = cast("dict[Any, Any]", value).get(step)
        elif isinstance(value, list) and isinstance(step, int):
            value = cast("list[Any]", value)[step]
        else:
            return None
    return value


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
        self._stated: set[Place] = set()
        """Places that a statement named, rather than only passed through."""
        self.of: dict[Place, int] = {}
        self.twice: list[DuplicateKey] = []
        self._read_statements()

    def _read_statements(self) -> None:
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
            self._state(place, line)
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
        self._state(place, line)
        self._skip(_BLANK)
        return self._value(place)

    def _state(self, place: Place, line: int) -> None:
        if place in self._stated:
            self.twice.append(DuplicateKey(place, self.of[place], line))
            return
        self._stated.add(place)
        self.of[place] = line

    def _keys(self) -> list[str]:
        keys: list[str] = []
        while True:
            self._skip(_BLANK)
            match = _KEY.match(self._text, self._at)
            if match is None:
                return []
            self._at = match.end()
            try:
                keys.append(_unquoted(match[0]))
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
        match = pattern.match(self._text, self._at)
        if match is None:
            return False
        self._at = match.end()
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


# The only key outside sections that can be overridden; REMIT_VERSION more likely belongs to another program.
NAME = "REMIT_NAME"


class Override(NamedTuple):
    """A value from outside the file, and its origin."""

    source: str
    place: Place
    value: Any


class Unusable(NamedTuple):
    """An invalid override, and the reason."""

    source: str
    message: str


def variable(place: Place) -> str:
    """Return the environment variable that overrides the key at *place*.

    Each part is in capitals, with one `_` for each run of characters that a variable cannot contain.
    """
    return PREFIX + BETWEEN.join(_in_capitals(str(step)) for step in place)


def from_environment(environ: Mapping[str, str], values: dict[str, Any]) -> Iterator[Override | Unusable]:
    """Return the overrides in the environment; names of agents, tools and the like are looked up in *values*."""
    for name in sorted(environ):
        if name != NAME and not (name.startswith(PREFIX) and BETWEEN in name):
            continue
        steps = name.removeprefix(PREFIX).split(BETWEEN)
        try:
            place = _place_of(steps, values)
        except LookupError as error:
            yield Unusable(name, str(error.args[0]))
        else:
            yield Override(name, place, value_of(environ[name], kind_at(place)))


def from_flags(flags: Iterable[str]) -> Iterator[Override | Unusable]:
    """Return the overrides of flags like `limits.max_depth=3`."""
    for flag in flags:
        place, value = _split(flag)
        if place:
            yield Override(
                f"--set {flag[: len(flag) - len(value) - 1].strip()}", place, value_of(value.strip(), kind_at(place))
            )
        else:
            yield Unusable("--set", f"expected key=value such as limits.max_depth=3, got {flag!r}")


def apply(override: Override, values: dict[str, Any]) -> Unusable | None:
    """Apply an override to *values*; return the reason if that fails."""
    table: Any = values
    for depth, step in enumerate(override.place[:-1]):
        table = cast("dict[Any, Any]", table).setdefault(step, {})
        if not isinstance(table, dict):
            return Unusable(override.source, f"`{'.'.join(map(str, override.place[: depth + 1]))}` is not a table")
    table[override.place[-1]] = override.value
    return None


def value_of(text: str, kind: Any) -> Any:
    """Return a text as a TOML value; the text itself if it is not TOML, or if only a text fits *kind*."""
    try:
        read = tomllib.loads(f"value = {text}")
    except (tomllib.TOMLDecodeError, RecursionError):
        return text
    if list(read) != ["value"]:
        return text
    value = read["value"]
    return text if not _fits(value, kind) and _fits(text, kind) else value


def kind_at(place: Place) -> Any:
    """Return the type of the value at *place*; `Any` if the key is unknown."""
    kind: Any = file_type()
    for step in place:
        kind = next((part for option in options(kind) for part in _part(option, step)), Any)
    return kind


def fields_at(place: Place) -> tuple[FieldInfo, ...] | None:
    """Return the keys of the table at *place*; None if it is not a table with known keys."""
    return next((msgspec.structs.fields(option) for option in options(kind_at(place)) if is_struct(option)), None)


def _part(option: Any, step: str | int) -> Iterator[Any]:
    if is_struct(option):
        yield from (each.type for each in msgspec.structs.fields(option) if each.encode_name == step)
    elif get_origin(option) is dict:
        yield get_args(option)[1]
    elif get_origin(option) is tuple and isinstance(step, int):
        yield get_args(option)[0]


def is_struct(option: Any) -> bool:
    return isinstance(option, type) and issubclass(option, Struct)


def _fits(value: Any, kind: Any) -> bool:
    try:
        msgspec.convert(value, kind)
    except msgspec.ValidationError:
        return False
    return True


def _in_capitals(step: str) -> str:
    return re.sub(r"[^A-Za-z0-9]+", "_", step).upper()


def _place_of(steps: list[str], values: Any) -> Place:
    """Return the place that the name of a variable refers to, or raise a LookupError with the reason."""
    place: Place = ()
    kind: Any = file_type()
    for step in steps:
        known, is_open = _names_in(kind, values)
        fitting = [name for name in known if _in_capitals(name) == step]
        if len(fitting) > 1:
            raise LookupError(f"`{step}` is ambiguous: {', '.join(fitting)}; use --set with the full name")
        if not fitting and not is_open:
            inside = f"`{'.'.join(map(str, place))}`" if place else "a team file"
            near = did_you_mean(step, [_in_capitals(name) for name in known])
            raise LookupError(f"there is no `{step}` in {inside}{near}")
        name = fitting[0] if fitting else step
        place = (*place, name)
        kind = kind_at(place)
        values = cast("dict[str, Any]", values).get(name) if isinstance(values, dict) else None
    return place


def _names_in(kind: Any, value: Any) -> tuple[list[str], bool]:
    """Return the keys of a table of *kind*, and whether a variable may add others."""
    for option in options(kind):
        if is_struct(option):
            return [each.encode_name for each in msgspec.structs.fields(option)], False
        if get_origin(option) is dict:
            names = list(cast("dict[str, Any]", value)) if isinstance(value, dict) else []
            return names, not any(is_struct(each) for each in options(get_args(option)[1]))
    return [], False


def _split(flag: str) -> tuple[Place, str]:
    """Return the keys and the value of `key=value`; a key may be dotted, and a quoted one may contain `=`."""
    for equals in re.finditer("=", flag):
        try:
            table: Any = tomllib.loads(f"{flag[: equals.start()]} = 0")
        except tomllib.TOMLDecodeError:
            continue
        keys: list[str] = []
        while isinstance(table, dict) and len(cast("dict[str, Any]", table)) == 1:
            key, table = next(iter(cast("dict[str, Any]", table).items()))
            keys.append(key)
        return (tuple(keys), flag[equals.end() :]) if table == 0 else ((), "")
    return (), ""
