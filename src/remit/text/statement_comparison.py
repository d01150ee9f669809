"""Compares two parts of sentences: opposites, negations, limits, directions and other words."""

from collections.abc import Mapping, Sequence
from typing import Literal

from remit.text.markers import CONDITION, DOUBT, POSSIBLY, STRICT_CONDITION
from remit.text.stated_figures import StatedFigure
from remit.text.statements import EMPTY_WORDS, ReadSentence, Segment
from remit.text.vocabulary import words_of
from remit.text.word_relations import Sides, same_meaning

Why = Literal[
    "figure", "name", "subject", "negation", "opposite", "bound", "direction", "certainty", "condition", "other word",
    "advice", "cause", "not in the results",
]  # fmt: skip
"""What a sentence says otherwise than its sources, or in addition to them."""


_FROM, _TO = words_of("from von aus ab"), words_of("to nach into zu zum zur an towards for für")


def is_among(figure: StatedFigure, figures: Mapping[str, Sequence[StatedFigure]]) -> bool:
    return any(figure.same(other) for token in figure.tokens for other in figures.get(token, ()))


def words_in(said: ReadSentence | Segment) -> list[str]:
    if isinstance(said, Segment):
        return said.words
    return [word for segment in said.segments for word in segment.words]


_COPULAS = words_of("is are was were be been remains remain stays ist sind war waren bleibt wird wurde")


def is_state(words: Sequence[str], word: str) -> bool:
    """Return whether a word tells the state of something: it ends the statement, or follows "is"."""
    at = words.index(word)
    return at == len(words) - 1 or bool(at and words[at - 1] in _COPULAS)


def is_other(one: str, other: str) -> bool:
    """Return whether two words that stand in one place may mean different things."""
    if {one, other} in ({"with", "without"}, {"mit", "ohne"}, {"before", "after"}, {"vor", "nach"}):
        return True
    if not (one.isalpha() and other.isalpha()) or one in EMPTY_WORDS or other in EMPTY_WORDS:
        return False
    return not same_meaning(one, other)


def bounds_differ(one: StatedFigure, other: StatedFigure) -> bool:
    if one.bound * other.bound < 0:
        return True
    return one.bound != other.bound and (one.strong or other.strong) and 0 in (one.bound, other.bound)


def share_axis(sides: Sides, segment: Segment) -> bool:
    axes = {axis for axis, _ in sides}
    return any(axis in axes for each in segment.sides.values() for axis, _ in each)


def count_opposites(one: Segment, other: Segment) -> int:
    """Count the words of one segment that have their opposite in the other's."""
    flips = 0
    for concept, sides in one.sides.items():
        if concept in other.own or concept in other.sides:
            continue
        opposed = {(axis, -sign) for axis, sign in sides}
        there = [each for name, each in other.sides.items() if name not in one.own and name not in one.sides]
        if any(opposed & each for each in there) and not any(sides & each for each in there):
            flips += 1
    return flips


def same_predicate(one: Segment, other: Segment) -> bool:
    words = {token for token in one.own if token in other.own}
    flips = count_opposites(one, other)
    shared = len(words) + flips
    return shared > 1 or (shared > 0 and shared >= 0.6 * min(len(one.own), len(other.own)))


def sense_differs(one: Segment, other: Segment) -> Why | None:
    """Return what a segment denies, turns round or leaves out of a statement that speaks of the same."""
    flips = count_opposites(one, other)
    if (one.denies + other.denies + flips) % 2 and one.lacks == other.lacks:
        plain, denied = (other, one) if one.denies else (one, other)
        if not flips and any(_is_negative(plain, concept) for concept in plain.sides if concept not in denied.sides):
            return None  # "cannot use it" and "it is closed"
        return "opposite" if flips else "negation"
    if DOUBT.search(other.text) and not POSSIBLY.search(one.sentence.small):
        return "certainty"
    if STRICT_CONDITION.search(other.text) and not CONDITION.search(one.sentence.small):
        return "condition"
    return None


def _is_negative(segment: Segment, concept: str) -> bool:
    return all(sign < 0 for _, sign in segment.sides[concept])


def direction_of(segment: Segment, name: str) -> int:
    before = segment.roles.get(name, "")
    return -1 if before in _FROM else 1 if before in _TO else 0
