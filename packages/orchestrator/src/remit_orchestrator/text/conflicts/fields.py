"""Splits results into fields, side by side, and says whether the values of a field agree.

Owners are an integer with one bit for each, because such sets are joined and compared at every step of the search.
"""

import re
import unicodedata
from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, TypeVar, cast

from msgspec import Struct
from msgspec.structs import replace

from remit.protocol.card import Capability, Schema
from remit.protocol.envelope import Json
from remit.words.components import Component, name_words
from remit.words.units import named_unit
from remit_orchestrator.text.conflicts.assertions import VERBS, content
from remit_orchestrator.text.figures import Amount, Figure, distance, figure_in, figures, figures_agree, has_name
from remit_orchestrator.text.lexicon import word_set

# Nobody reads deeper.
_DEEPEST = 32
# Fields that identify the items of a list, most reliable first.
_IDS = ("id", "uuid", "key", "code", "sku", "isbn", "symbol", "ticker", "email", "number", "name", "title", "label")
# Fields about how a result was made, and not about its subject.
_ASIDE = word_set("result.aside")
_NAMING: frozenset[type[object]] = frozenset((str, int, bool))

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
        for ident, each, without in reversed(_identified(several)):
            if not self._left:
                break
            self._take(f"{key}[{fold_text(ident)}]", f"{path}[{ident}]", name, each, depth + 1, without)

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


C = TypeVar("C", bound=Component)

SameFields = Mapping[str, tuple[tuple[str, str], ...]]
"""By the code of a capability: the paths of such fields in its result, each with the name of the thing."""

_KEYWORD = "x-same-as"


def same_fields(capabilities: Iterable[Capability]) -> SameFields:
    """Return the fields that hold the same thing as a field of another capability.

    `x-same-as` names the thing in any words, or is the field of another capability: `TIMETABLE.departure`.
    """
    named: dict[str, list[tuple[str, str | None]]] = defaultdict(list)
    for capability in capabilities:
        named[capability.code] += _fields(capability.result_schema or {}, "", 0)
    things = {thing for paths_of_code in named.values() for _, thing in paths_of_code if thing is not None}
    same: dict[str, tuple[tuple[str, str], ...]] = {}
    for code, paths_of_code in named.items():
        paths = [(path, thing) for path, thing in paths_of_code if thing is not None]
        paths += [(path, own) for path, _ in paths_of_code if (own := f"{code}.{path}") in things]
        if paths:
            same[code] = tuple(dict.fromkeys(paths))
    return same


def _fields(schema: Schema, above: str, depth: int) -> Iterator[tuple[str, str | None]]:
    properties: Any = schema.get("properties")
    if not isinstance(properties, dict) or depth >= _DEEPEST:
        return
    for name, each in cast("dict[str, Any]", properties).items():
        path = f"{above}.{name}" if above else name
        if isinstance(each, dict):
            below = cast("Schema", each)
            thing = below.get(_KEYWORD)
            yield path, thing if isinstance(thing, str) and thing else None
            yield from _fields(below, path, depth + 1)


def with_same_fields(components: Sequence[C], codes: Sequence[str | None], same: SameFields) -> list[C]:
    """Return components with the fields that others have as well; each is the result of the capability at its position.

    The results of one capability for several inputs are about several things, so its fields are left out then.
    """
    if not same:
        return list(components)
    questions: dict[str | None, set[str]] = defaultdict(set)
    for component, code in zip(components, codes, strict=True):
        questions[code].add(component.question)
    return [
        replace(component, same_as=same.get(code or "", ())) if len(questions[code]) == 1 else component
        for component, code in zip(components, codes, strict=True)
    ]


def field_at(result: Json, path: str) -> Json:
    """Return the value of a field; None if there is none."""
    for name in path.split("."):
        if not isinstance(result, dict):
            return None
        result = cast("dict[str, Json]", result).get(name)
    return result


_NEGATIONS = word_set("result.negations")
_ARTICLES = word_set("result.articles")
_BEGINNINGS = word_set("result.beginnings")
_MISSING = frozenset(("", "-", "–", "?", "n/a", "na", "none", "null", "nil", "tbd", "unknown", "not known"))
_TRUTHS = {"true": True, "yes": True, "y": True, "on": True, "false": False, "no": False, "n": False, "off": False}
# Fields with these names contain prose, however short: two texts may say the same in other words.
_PROSE = word_set("result.prose")
# A short text is compared as a whole; a longer one, and a sentence, by its claims.
_SHORT_WORDS = 4
_SHORT = 80
_RUNS = re.compile(r"[a-z]+|[0-9]+")
_DIGIT = re.compile(r"\d")
_TOKENS = re.compile(r"[^\W_]+(?:['’.&-][^\W_]+)*")


class Meaning(Struct, frozen=True, gc=False):
    """The meaning of a value, however it is written."""

    figures: tuple[Figure, ...] = ()
    words: frozenset[str] = frozenset()
    """The words beside the figures."""
    denied: bool = False
    """Whether it has a negation: "not available"."""
    truth: bool | None = None
    """For a value that says yes or no."""
    several: "tuple[Meaning, ...] | None" = None
    """For a list, what its items mean."""
    prose: bool = False
    """Whether to read it sentence by sentence."""


# ── reading ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def meaning(value: Value, name: tuple[str, ...]) -> Meaning | None:
    """Return the meaning of a value under a field of that name; None if it has none."""
    match value:
        case bool():
            return Meaning(truth=value)
        case int() | float():
            figure = figure_in(value, name)
            return Meaning(figures=(figure,)) if figure else None
        case str():
            return _text_meaning(value, name)
        case tuple():
            several = (meaning(each, name) for each in value)
            return Meaning(several=tuple(each for each in several if each is not None))


def may_say_figures(value: Value) -> bool:
    """Return whether a value may contain figures and is worth reading for them."""
    if not isinstance(value, str):
        return not isinstance(value, (bool, tuple))
    return bool(_DIGIT.search(value)) or has_name(value)


def is_prose(text: str, name: tuple[str, ...]) -> bool:
    """Return whether to read a text under a field of that name sentence by sentence."""
    if len(text) <= _SHORT and name and name[-1] not in _PROSE and text.isascii():
        runs = _RUNS.findall(text.lower())
        # One or two words without a verb are a value.
        if len(runs) < 3 and VERBS.isdisjoint(runs):
            return False
    meant = _text_meaning(text, name)
    return meant is not None and meant.prose


def _text_meaning(value: str, name: tuple[str, ...]) -> Meaning | None:
    if len(value) > _SHORT:
        return _SENTENCES if value.strip() else None
    numbers = tuple(figures(value)) if may_say_figures(value) else ()
    # The most common value is a figure and nothing else.
    if numbers and numbers[0].start == 0 and numbers[0].end == len(value):
        return Meaning(numbers)
    bare = fold_text(value).rstrip(".!")
    if bare in _MISSING:
        return None
    if bare in _TRUTHS:
        return Meaning(truth=_TRUTHS[bare])
    if numbers:
        rest = frozenset(content(_cut_figures(value, numbers)))
        # "The answer is 42" says no more than 42. "30 staff" is a sentence in prose, but a value in a field.
        if not rest or (name and len(rest) < _SHORT_WORDS and rest.isdisjoint(VERBS)):
            return Meaning(numbers, rest)
    words = _words(bare)
    named = not name and ": " in value  # by itself "Carrier: DHL" is a sentence
    if numbers or named or len(words) > _SHORT_WORDS or not _PROSE.isdisjoint(name[-1:]) or _is_sentence(value, words):
        return _SENTENCES
    return Meaning(words=words - _NEGATIONS, denied=not words.isdisjoint(_NEGATIONS))


_SENTENCES = Meaning(prose=True)


def _is_sentence(text: str, words: frozenset[str]) -> bool:
    if text.rstrip().endswith(".") and len(words) > 1 and text.split(maxsplit=1)[0].lower() in _BEGINNINGS:
        return True  # "The pump works."
    return not VERBS.isdisjoint(words) or (len(words) > 2 and text.rstrip().endswith("."))


def _cut_figures(text: str, numbers: Sequence[Figure]) -> str:
    parts, end = list[str](), 0
    for figure in numbers:
        parts.append(text[end : figure.start])
        end = figure.end
    return " ".join((*parts, text[end:]))


def _words(bare: str) -> frozenset[str]:
    words = frozenset(_TOKENS.findall(bare))
    return words - _ARTICLES or words


# ── comparison ────────────────────────────────────────────────────────────────────────────────────────────────────────


def agreed(one: Meaning, other: Meaning) -> bool | None:
    """Return whether two values of one field mean the same; None if they cannot be compared."""
    if one.several is not None or other.several is not None:
        return _lists_agree(one, other)
    if one.prose or other.prose:
        return None
    if one.truth is not None or other.truth is not None:
        return one.truth == other.truth if one.truth is not None and other.truth is not None else None
    if one.figures and other.figures:
        return _figures_agree(one, other)
    if one.figures or other.figures:
        return None
    return one.denied == other.denied and _words_agree(one.words, other.words)


def _figures_agree(one: Meaning, other: Meaning) -> bool | None:
    if one.words and other.words and one.words.isdisjoint(other.words):
        return None
    if len(one.figures) == len(other.figures) == 1:
        return figures_agree(one.figures[0], other.figures[0])
    verdicts = {(a, b): figures_agree(a, b) for a in one.figures for b in other.figures}
    if all(verdict is None for verdict in verdicts.values()):
        return None
    alone = [a for a in one.figures if not any(verdicts[a, b] for b in other.figures)]
    other_alone = [b for b in other.figures if not any(verdicts[a, b] for a in one.figures)]
    return not any(verdicts[a, b] is False for a in alone for b in other_alone)


def _words_agree(one: frozenset[str], other: frozenset[str]) -> bool:
    """Return whether two short texts name one thing: one may be more detailed, or consist of the other's initials."""
    if one <= other or other <= one:
        return True
    return _initials(one, other) or _initials(other, one)


def _initials(short: frozenset[str], long: frozenset[str]) -> bool:
    letters = sorted(word[0] for word in long)
    return len(short) == 1 < len(long) and sorted(next(iter(short)).replace(".", "")) == letters


def _lists_agree(one: Meaning, other: Meaning) -> bool | None:
    """Return whether two lists agree as sets: an item that one of them lacks is missing there, and not a conflict.

    But equally many numbers on both sides are a series, in which each position has a meaning.
    """
    here, there = _items(one), _items(other)
    if len(here) != len(there) or not here or not all(map(_is_amount, (*here, *there))):
        return None if set(here).isdisjoint(there) else True
    # In another order they are the same set.
    in_order = zip(sorted(here, key=_least), sorted(there, key=_least), strict=True)
    return all(map(agreed, here, there)) or all(agreed(a, b) for a, b in in_order)


def _is_amount(meant: Meaning) -> bool:
    return len(meant.figures) == 1 and isinstance(meant.figures[0].quantity, Amount)


def _least(meant: Meaning) -> float:
    quantity = meant.figures[0].quantity
    return quantity.low if isinstance(quantity, Amount) else 0.0


def _items(meant: Meaning) -> tuple[Meaning, ...]:
    return (meant,) if meant.several is None else meant.several


def difference(one: Meaning, other: Meaning) -> float:
    """Return how far apart two conflicting values are: 1 or more if they have nothing in common."""
    if one.several is not None or other.several is not None:
        return max(difference(a, b) for a, b in zip(_items(one), _items(other), strict=False))
    if one.truth is not None or one.denied != other.denied:
        return 1.0
    pairs = [(a.quantity, b.quantity) for a in one.figures for b in other.figures if figures_agree(a, b) is False]
    return max((distance(a, b) for a, b in pairs), default=_UNLIKE)


# The distance between two names cannot be measured; assume neither the largest nor none.
_UNLIKE = 0.05
