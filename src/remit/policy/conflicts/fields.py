"""A result taken apart into its fields, and whether the values of one field agree."""

import re
import unicodedata
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple, cast

from remit.policy.components import name_words, words_of
from remit.policy.conflicts.claims import content
from remit.policy.conflicts.english import AXES, VERBS
from remit.policy.conflicts.figures import figure_in, figures
from remit.policy.conflicts.quantities import Amount, Figure, distance, figures_agree
from remit.policy.conflicts.units import named_unit
from remit.protocol.envelope import Json

# Deeper than any reader goes.
_DEEPEST = 32
_NEGATIONS = words_of("not no never non without")
_ARTICLES = words_of("the a an")
_MISSING = frozenset(("", "-", "–", "?", "n/a", "na", "none", "null", "nil", "tbd", "unknown", "not known"))
_TRUTHS = {"true": True, "yes": True, "y": True, "on": True, "false": False, "no": False, "n": False, "off": False}
# What tells the things in a list apart, the surest first.
_IDS = ("id", "uuid", "key", "code", "sku", "isbn", "symbol", "ticker", "email", "number", "name", "title", "label")
# What a result says of its own making, and not of the world.
_ASIDE = words_of("""
    request_id response_id trace_id span_id session_id run_id correlation_id timestamp created_at updated_at
    generated_at processing_time_ms elapsed_ms latency_ms took_ms confidence confidence_level token_usage
""")
# Under these is prose, however short: two may say the same in other words.
_PROSE = words_of("""
    summary description comment comments note notes reason reasons explanation rationale text message caveat details
    detail title label headline warning warnings assumption assumptions
""")
# A short text is compared as a whole; a longer one, and a sentence, by what it claims.
_SHORT_WORDS = 4
_SHORT = 80
_TOKENS = re.compile(r"[^\W_]+(?:['’.&-][^\W_]+)*")


Scalar = str | int | float
Value = Scalar | tuple[Scalar, ...]


class Field(NamedTuple):
    """A value in a result, and where it stands."""

    key: str
    """The same for the same place, however its names are spelled."""
    path: str
    name: tuple[str, ...]
    value: Value


class Meaning(NamedTuple):
    """What a value says, however it is written."""

    figures: tuple[Figure, ...] = ()
    words: frozenset[str] = frozenset()
    denied: bool = False
    truth: bool | None = None
    several: "tuple[Meaning, ...] | None" = None
    prose: bool = False


# ── taking apart ──────────────────────────────────────────────────────────────────────────────────────────────────────


_Place = tuple[str, str, tuple[str, ...], Json, int]
"""A part of a result that has yet to be taken apart: its key, path and name, what it is, and how deep it lies."""


def fields(result: Json, most: int) -> Iterator[Field]:
    """Give the fields of a result, no more than *most*, and none that is deeper than any reader goes."""
    stack: list[_Place] = [("", "", (), result, 0)]
    while stack and most:
        key, path, name, part, depth = stack.pop()
        if isinstance(part, str | int | float):
            most -= 1
            yield Field(key, path, name, part)
        elif depth < _DEEPEST and isinstance(part, dict):
            for member, each in cast("dict[str, Json]", part).items():
                known, words = _known(member)
                # At the top stands the id of the answer, not of what it is about.
                if known and not (depth == 0 and known == "id"):
                    if path:
                        stack.append((f"{key}.{known}", f"{path}.{member}", words, each, depth + 1))
                    else:
                        stack.append((known, member, words, each, depth + 1))
        elif depth < _DEEPEST and isinstance(part, list | tuple):
            several = cast("Sequence[Json]", part)
            simple = tuple(each for each in several if isinstance(each, str | int | float))
            if len(simple) == len(several):
                most -= 1
                yield Field(key, path, name, simple)
            else:
                for ident, each in _identified(several):
                    stack.append((f"{key}[{_plain(ident)}]", f"{path}[{ident}]", name, each, depth + 1))


@lru_cache(maxsize=4096)
def _known(name: str) -> tuple[str | None, tuple[str, ...]]:
    """Return the name of a field as all spell it, without its unit, and its words; None if it is worth no look."""
    words = name_words(name)
    known = "_".join(words)
    return None if known in _ASIDE else "_".join(words[:-1]) if named_unit(words) else known or name, words


def _identified(several: Sequence[Json]) -> Iterator[tuple[str, Json]]:
    """Give each thing in a list with what tells it apart; none, if nothing does."""
    rows = [cast("Sequence[Json]", each) for each in several if isinstance(each, list | tuple)]
    objects = [cast("dict[str, Json]", each) for each in several if isinstance(each, dict)]
    if ident := _ident_in(objects):
        for each in objects:
            yield str(each[ident]), {name: part for name, part in each.items() if name != ident}
    elif len(several) == 1:
        yield "", several[0]
    elif len(rows) == len(several):
        # Of a table, the first column says what a row is about.
        for row in rows:
            if row and isinstance(row[0], str):
                yield row[0], {str(place): cell for place, cell in enumerate(row[1:], 1)}


def _ident_in(objects: Sequence[dict[str, Json]]) -> str | None:
    """Return the field that tells objects apart: one named for it, or else the first text that each has its own of."""
    shared = sorted(set(objects[0]).intersection(*objects[1:])) if objects else []
    named = {"_".join(name_words(name)): name for name in shared}
    ids = [named.pop(each) for each in _IDS[:2] if each in named]
    ids += [name for known, name in named.items() if known.endswith("_id")]
    ids += [named[each] for each in _IDS if each in named]
    texts = [name for name in shared if len(objects) > 1 and isinstance(objects[0][name], str)]
    return next((name for name in (*ids, *texts) if _tells_apart(name, objects)), None)


def _tells_apart(name: str, objects: Sequence[dict[str, Json]]) -> bool:
    held = [each[name] for each in objects]
    return all(isinstance(each, str | int) for each in held) and len(set(map(str, held))) == len(held)


# ── reading ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def meaning(value: Value, name: tuple[str, ...]) -> Meaning | None:
    """Return what a value says under a field of that name; None if it says nothing."""
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


def is_prose(text: str, name: tuple[str, ...]) -> bool:
    """Say whether a text under a field of that name is to be read sentence by sentence."""
    meant = _text_meaning(text, name)
    return meant is not None and meant.prose


def _text_meaning(value: str, name: tuple[str, ...]) -> Meaning | None:
    if len(value) > _SHORT:
        return _SENTENCES if value.strip() else None
    plain = _plain(value).rstrip(".!")
    if plain in _MISSING:
        return None
    if plain in _TRUTHS:
        return Meaning(truth=_TRUTHS[plain])
    found = tuple(figures(value))
    if found:
        rest = frozenset(word for _, word in content(_without(value, found)))
        # "The answer is 42" says no more than 42. By itself "30 staff" is a sentence, in a field it is a value.
        if not rest or (name and len(rest) < _SHORT_WORDS and rest.isdisjoint(VERBS)):
            return Meaning(found, rest)
    words = _words(plain)
    if found or len(words) > _SHORT_WORDS or not _PROSE.isdisjoint(name[-1:]) or _is_sentence(value, words):
        return _SENTENCES
    return Meaning(words=words - _NEGATIONS, denied=not words.isdisjoint(_NEGATIONS))


_SENTENCES = Meaning(prose=True)


def _is_sentence(text: str, words: frozenset[str]) -> bool:
    return not VERBS.isdisjoint(words) or (
        len(words) > 2 and (text.rstrip().endswith(".") or not AXES.keys().isdisjoint(words))
    )


def _without(text: str, found: Sequence[Figure]) -> str:
    parts, end = list[str](), 0
    for figure in found:
        parts.append(text[end : figure.start])
        end = figure.end
    return " ".join((*parts, text[end:]))


def _words(plain: str) -> frozenset[str]:
    words = frozenset(_TOKENS.findall(plain))
    return words - _ARTICLES or words


def _plain(text: str) -> str:
    """Return a text without what makes no difference: case, spacing, accents."""
    if not text.isascii():
        text = "".join(sign for sign in unicodedata.normalize("NFKD", text) if not unicodedata.combining(sign))
    return " ".join(text.casefold().split())


# ── comparison ────────────────────────────────────────────────────────────────────────────────────────────────────────


def agreed(one: Meaning, other: Meaning) -> bool | None:
    """Say whether two values of one field say the same; None if they cannot be compared."""
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
    verdicts = {(a, b): figures_agree(a, b) for a in one.figures for b in other.figures}
    if all(verdict is None for verdict in verdicts.values()):
        return None
    alone = [a for a in one.figures if not any(verdicts[a, b] for b in other.figures)]
    other_alone = [b for b in other.figures if not any(verdicts[a, b] for a in one.figures)]
    return not any(verdicts[a, b] is False for a in alone for b in other_alone)


def _words_agree(one: frozenset[str], other: frozenset[str]) -> bool:
    """Say whether two short texts name one thing: one may say more of it, or be its initials."""
    if one <= other or other <= one:
        return True
    return _initials(one, other) or _initials(other, one)


def _initials(short: frozenset[str], long: frozenset[str]) -> bool:
    letters = sorted(word[0] for word in long)
    return len(short) == 1 < len(long) and sorted(next(iter(short)).replace(".", "")) == letters


def _lists_agree(one: Meaning, other: Meaning) -> bool | None:
    """Say whether two lists do, as sets: what is only in one is missing in the other, and that is no conflict.

    But numbers of which there are as many on both sides are a series, and each stands for something.
    """
    here, there = _items(one), _items(other)
    if len(here) != len(there) or not here or not all(map(_is_amount, (*here, *there))):
        return None if set(here).isdisjoint(there) else True
    # In another order they are a set, and the same one.
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
    """Return how far apart two values that do not agree are: 1 and more for nothing alike."""
    if one.several is not None or other.several is not None:
        return max(difference(a, b) for a, b in zip(_items(one), _items(other), strict=False))
    if one.truth is not None or one.denied != other.denied:
        return 1.0
    pairs = [(a.quantity, b.quantity) for a in one.figures for b in other.figures if figures_agree(a, b) is False]
    return max((distance(a, b) for a, b in pairs), default=_UNLIKE)


# How far apart two names are cannot be measured; it is neither the gravest difference nor none.
_UNLIKE = 0.05
