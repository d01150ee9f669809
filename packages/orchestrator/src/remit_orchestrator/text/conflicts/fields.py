"""The meaning of a field's value, and whether two values agree."""

import re
from collections.abc import Sequence

from msgspec import Struct

from remit_orchestrator.text.clauses import DIGIT, content
from remit_orchestrator.text.conflicts.result_fields import Value, fold_text
from remit_orchestrator.text.figures import figure_in, figures, has_name
from remit_orchestrator.text.lexicon import word_set
from remit_orchestrator.text.quantities import Amount, Figure, distance, figures_agree
from remit_orchestrator.text.vocabulary import AXES, CLAUSE_VERBS

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
    return bool(DIGIT.search(value)) or has_name(value)


def is_prose(text: str, name: tuple[str, ...]) -> bool:
    """Return whether to read a text under a field of that name sentence by sentence."""
    if len(text) <= _SHORT and name and name[-1] not in _PROSE and text.isascii():
        runs = _RUNS.findall(text.lower())
        # One or two words without a verb are a value.
        if len(runs) < 3 and CLAUSE_VERBS.isdisjoint(runs):
            return False
    meant = _text_meaning(text, name)
    return meant is not None and meant.prose


def _text_meaning(value: str, name: tuple[str, ...]) -> Meaning | None:
    if len(value) > _SHORT:
        return _SENTENCES if value.strip() else None
    found = tuple(figures(value)) if may_say_figures(value) else ()
    # The most common value is a figure and nothing else.
    if found and found[0].start == 0 and found[0].end == len(value):
        return Meaning(found)
    bare = fold_text(value).rstrip(".!")
    if bare in _MISSING:
        return None
    if bare in _TRUTHS:
        return Meaning(truth=_TRUTHS[bare])
    if found:
        rest = frozenset(word for _, word in content(_without(value, found)))
        # "The answer is 42" says no more than 42. "30 staff" is a sentence in prose, but a value in a field.
        if not rest or (name and len(rest) < _SHORT_WORDS and rest.isdisjoint(CLAUSE_VERBS)):
            return Meaning(found, rest)
    words = _words(bare)
    named = not name and ": " in value  # by itself "Carrier: DHL" is a sentence
    if found or named or len(words) > _SHORT_WORDS or not _PROSE.isdisjoint(name[-1:]) or _is_sentence(value, words):
        return _SENTENCES
    return Meaning(words=words - _NEGATIONS, denied=not words.isdisjoint(_NEGATIONS))


_SENTENCES = Meaning(prose=True)


def _is_sentence(text: str, words: frozenset[str]) -> bool:
    if text.rstrip().endswith(".") and len(words) > 1 and text.split(maxsplit=1)[0].lower() in _BEGINNINGS:
        return True  # "The pump works."
    return not CLAUSE_VERBS.isdisjoint(words) or (
        len(words) > 2 and (text.rstrip().endswith(".") or not AXES.keys().isdisjoint(words))
    )


def _without(text: str, found: Sequence[Figure]) -> str:
    parts, end = list[str](), 0
    for figure in found:
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
