"""Splits results into fields, side by side: the values at each path, and their owners.

Owners are an integer with one bit for each, because such sets are joined and compared at every step of the search.
"""

import unicodedata
from collections.abc import Hashable, Sequence
from functools import lru_cache
from typing import cast

from msgspec import Struct
from msgspec.json import Encoder

from remit.protocol.envelope import Json
from remit.words.components import name_words
from remit.words.units import named_unit
from remit_orchestrator.text.lexicon import word_set

# Nobody reads deeper.
_DEEPEST = 32
# Fields that identify the items of a list, most reliable first.
_IDS = ("id", "uuid", "key", "code", "sku", "isbn", "symbol", "ticker", "email", "number", "name", "title", "label")
# Fields about how a result was made, and not about its subject.
_ASIDE = word_set("result.aside")
_encoder = Encoder()
_NAMING: frozenset[type[object]] = frozenset((str, int, bool))
_UNWRITABLE = (TypeError, ValueError, OverflowError, RecursionError)

Scalar = str | int | float
Value = Scalar | tuple[Scalar, ...]


class PlacedValue(Struct, eq=False, gc=False):
    """A value, its place and its owners."""

    path: str
    """`flights[AF12].departure`"""
    name: tuple[str, ...]
    """The words of the field's name."""
    value: Value
    owners: int
    """The components that have it, one bit for each."""


Places = dict[str, dict[Hashable, PlacedValue]]
"""The different values at each place; a place has one key, however its names are spelled."""


class ResultFields:
    """The fields of several results, by place."""

    def __init__(self, most: int) -> None:
        self.places: Places = {}
        self.complete = True
        """Whether no result reached the limit of fields."""
        self._most = most
        self._left = 0
        self._owner = 0
        self._seen: list[PlacedValue] | None = None
        """The fields found so far in an item of a list."""
        self._listed: dict[Hashable, dict[tuple[str, bytes], list[PlacedValue]]] = {}
        """The fields of list items, by the place of the list; sources that agree have exactly the same."""

    def take(self, result: Json, owner: int) -> None:
        """Split one more result into fields, down to the maximum depth."""
        self._owner, self._left = 1 << owner, self._most
        self._take("", "", (), result, 0)
        if not self._left:
            self.complete = False

    def take_field(self, thing: str, path: str, value: Json, owner: int) -> None:
        """Take one field of a result, at the place of the thing that it holds."""
        self._owner, self._left = 1 << owner, self._most
        self._take(thing, path, name_words(path.rpartition(".")[2]), value, 1)
        self.complete = self.complete and self._left > 0

    def _take(
        self, key: str, path: str, name: tuple[str, ...], part: Json, depth: int, without: str | None = None
    ) -> None:
        """Split a part into fields, last one first; its member *without* identifies it and is not a value."""
        if isinstance(part, (str, int, float)):
            self._hold(key, path, name, part, type(part), part)
        elif depth >= _DEEPEST:
            pass
        elif isinstance(part, dict):
            for member, each in reversed(cast("dict[str, Json]", part).items()):
                if not self._left:
                    break
                known, words = _known(member)
                # At the top level, the id is that of the answer, not of its subject.
                if known and member != without and not (depth == 0 and known == "id"):
                    key_below, path_below = (f"{key}.{known}", f"{path}.{member}") if path else (known, member)
                    if isinstance(each, (str, int, float)):
                        self._hold(key_below, path_below, words, each, type(each), each)
                    else:
                        self._take(key_below, path_below, words, each, depth + 1)
        elif isinstance(part, (list, tuple)):
            several = cast("Sequence[Json]", part)
            simple = tuple(each for each in several if isinstance(each, (str, int, float)))
            if len(simple) == len(several):
                self._hold(key, path, name, simple, tuple, repr(simple))
            else:
                self._take_list(key, path, name, several, depth)

    def _take_list(self, key: str, path: str, name: tuple[str, ...], several: Sequence[Json], depth: int) -> None:
        known = self._listed.setdefault((key, path, depth), {})
        things = _identified(several)
        # Inside a part that is written as a whole, nothing is written again.
        outermost = self._seen is None
        written = _written([each for _, each, _ in things]) if outermost else []
        for place in range(len(things) - 1, -1, -1):
            if not self._left:
                break
            ident, each, without = things[place]
            same = (ident, written[place] if written else b"")
            found = known.get(same)
            if found is not None and len(found) <= self._left:
                for held in found:
                    held.owners |= self._owner
                self._left -= len(found)
                continue
            if outermost:
                self._seen = []
            self._take(f"{key}[{fold_text(ident)}]", f"{path}[{ident}]", name, each, depth + 1, without)
            if outermost:
                if same[1] and self._left:
                    known[same] = self._seen or []
                self._seen = None

    def _hold(
        self, key: str, path: str, name: tuple[str, ...], value: Value, kind: type[object], content: Hashable
    ) -> None:
        """Add a value; values of different types differ: 1 and true are equal in Python, but not the same."""
        self._left -= 1
        values = self.places.get(key)
        if values is None:
            values = self.places[key] = {}
        same = (name, kind, content)
        held = values.get(same)
        if held is None:
            held = values[same] = PlacedValue(path, name, value, self._owner)
        else:
            held.owners |= self._owner
            if path < held.path:
                held.path, held.value = path, value
        if self._seen is not None:
            self._seen.append(held)


def _written(things: Sequence[Json]) -> list[bytes]:
    """Return each item as it is written, or nothing if different items might be written alike."""
    try:
        written = _encoder.encode_lines(things).split(b"\n")
    except _UNWRITABLE:
        return []
    # NaN, infinity and null are all written like this.
    return [b"" if b"null" in each else each for each in written]


@lru_cache(maxsize=4096)
def _known(name: str) -> tuple[str | None, tuple[str, ...]]:
    """Return the normalised name of a field without its unit, and its words; None if the field should be skipped."""
    words = name_words(name)
    known = "_".join(words)
    return None if known in _ASIDE else "_".join(words[:-1]) if named_unit(words) else known or name, words


def _identified(several: Sequence[Json]) -> list[tuple[str, Json, str | None]]:
    """Return each item of a list with its identifier, and the field that holds it; none if there is no such field."""
    objects = [cast("dict[str, Json]", each) for each in several if isinstance(each, dict)]
    if ident := _ident_in(objects):
        return [(str(each[ident]), each, ident) for each in objects]
    if len(several) == 1:
        return [("", several[0], None)]
    rows = [cast("Sequence[Json]", each) for each in several if isinstance(each, (list, tuple))]
    if len(rows) < len(several):
        return []
    # The first column of a table identifies its rows.
    return [
        (row[0], {str(place): cell for place, cell in enumerate(row[1:], 1)}, None)
        for row in rows
        if row and isinstance(row[0], str)
    ]


def _ident_in(objects: Sequence[dict[str, Json]]) -> str | None:
    """Return the field that identifies objects: one with a fitting name, or else the first text that is unique
    to each.
    """
    shared = sorted(set(objects[0]).intersection(*objects[1:])) if objects else []
    named = {"_".join(name_words(name)): name for name in shared}
    ids = [named.pop(each) for each in _IDS[:2] if each in named]
    ids += [name for known, name in named.items() if known.endswith("_id")]
    ids += [named[each] for each in _IDS if each in named]
    texts = [name for name in shared if len(objects) > 1 and isinstance(objects[0][name], str)]
    return next((name for name in (*ids, *texts) if _tells_apart(name, objects)), None)


def _tells_apart(name: str, objects: Sequence[dict[str, Json]]) -> bool:
    held = [each[name] for each in objects]
    return _NAMING.issuperset(map(type, held)) and len(set(map(str, held))) == len(held)


def fold_text(text: str) -> str:
    """Return a text without differences of case, spacing and accents."""
    if not text.isascii():
        text = "".join(sign for sign in unicodedata.normalize("NFKD", text) if not unicodedata.combining(sign))
    return " ".join(text.casefold().split())
