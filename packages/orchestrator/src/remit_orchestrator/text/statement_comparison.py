"""Compares statements with those of sources: which speak of the same, and where they differ."""

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Literal, cast

from remit.protocol.envelope import Json
from remit.words.components import Component, in_words, laid_out, short_value
from remit_orchestrator.text.lexicon import table, word_set
from remit_orchestrator.text.sentences import sentence_spans
from remit_orchestrator.text.statements import EMPTY_WORDS, ReadSentence, Segment, SentenceReader, StatedFigure
from remit_orchestrator.text.vocabulary import (
    CONDITION,
    DOUBT,
    EXCEPTION,
    ONLY,
    POSSIBLY,
    RESTRICTS,
    STRICT_CONDITION,
    STRICT_EXCEPTION,
    Sides,
    concept_of,
    same_meaning,
)

Why = Literal[
    "figure", "name", "subject", "negation", "opposite", "bound", "direction", "certainty", "condition", "other word",
    "advice", "cause", "not in the results",
]  # fmt: skip
"""What a sentence says otherwise than its sources, or in addition to them."""


_FROM, _TO = word_set("comparison.from"), word_set("comparison.to")


def is_among(figure: StatedFigure, figures: Mapping[str, Sequence[StatedFigure]]) -> bool:
    return any(figure.same(other) for token in figure.tokens for other in figures.get(token, ()))


def words_in(statement: ReadSentence | Segment) -> list[str]:
    if isinstance(statement, Segment):
        return statement.words
    return [word for segment in statement.segments for word in segment.words]


_COPULAS = word_set("comparison.copulas")


def is_state(words: Sequence[str], word: str) -> bool:
    """Return whether a word tells the state of something: it ends the statement, or follows "is"."""
    at = words.index(word)
    return at == len(words) - 1 or bool(at and words[at - 1] in _COPULAS)


_OPPOSITE_PREPOSITIONS = (
    *({"with", "without"}, {"before", "after"}, {"on", "off"}, {"in", "out"}, {"up", "down"}, {"inside", "outside"}),
    *({"mit", "ohne"}, {"vor", "nach"}, {"an", "aus"}),
)


def trades_places(words: Sequence[str], pair: tuple[str, str]) -> bool:
    """Return whether two nouns that change places change what is said: "A pays B", but not "A or B pays"."""
    start, end = sorted(map(words.index, pair))
    between = words[start + 1 : end]
    return all(word.isalpha() and word not in EMPTY_WORDS for word in pair) and any(
        word not in EMPTY_WORDS and not word[0].isdigit() for word in between
    )


def is_other(one: str, other: str) -> bool:
    """Return whether two words that stand in one place may mean different things."""
    if {one, other} in _OPPOSITE_PREPOSITIONS:
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
        if _STILL.search(denied.sentence.text.lower()) and _TO_BE.search(plain.text):
            return None  # "still has to be done" and "has to be done"
        if _BEFORE.search(denied.text) and _EARLIEST.search(plain.text):
            return None  # "not before May" and "in May at the earliest"
        if _FREE.search(plain.text) and _PRICED.search(denied.text):
            return None  # "is free" and "pay nothing"
        return "opposite" if flips else "negation"
    if one.lacks != other.lacks and not (one.denies or other.denies):
        plain, lacking = (other, one) if one.lacks else (one, other)
        if lacking.lacked in plain.own and not any(_is_negative(plain, concept) for concept in plain.sides):
            return "opposite"
    return left_off(one, other)


def left_off(one: Segment, other: Segment) -> Why | None:
    """Return what limits a statement and is left off: an exception, a doubt or a condition."""
    if STRICT_EXCEPTION.search(other.text) and not (one.denies or one.lacks or EXCEPTION.search(one.sentence.small)):
        return "condition"
    if ONLY.search(other.text) and not RESTRICTS.search(one.sentence.small):
        return "condition"
    if DOUBT.search(other.text) and not POSSIBLY.search(one.sentence.small):
        return "certainty"
    condition = STRICT_CONDITION.search(other.text)
    if condition and not CONDITION.search(one.sentence.small):
        # "If it rises above 5" and "above 5"
        limits = [figure for figure in other.figures if figure.written.lower() in other.text[condition.end() :]]
        if not any(figure.bound and any(map(figure.same, limits)) for figure in one.figures):
            return "condition"
    return None


_UNTIL = word_set("comparison.until")
_CONVERSES = tuple(
    (frozenset(map(concept_of, one)), frozenset(map(concept_of, other)))
    for one, other in table("comparison.converses").values()
)
_COMPARATIVE = re.compile(r"\b(?:more|less|fewer|mehr|weniger|\w{2,}er)\b")


def ends_range(one: Segment, other: Segment) -> bool:
    """Return whether one says when something ends that the other says lasts until then: "closes at 6", "open to 6"."""
    return any(
        other.roles.get(token) in _UNTIL and one.roles.get(token) not in _UNTIL
        for figure in one.figures
        if figure.kind in "tdw"
        for token in figure.tokens
    )


def is_converse(one: Segment, other: Segment) -> bool:
    """Return whether two say the same from both ends: "A buys it", "it is sold to A"."""
    for sides in (*_CONVERSES, *((b, a) for a, b in _CONVERSES)):
        if sides[0] & one.own.keys() and sides[1] & other.own.keys():
            return bool(_first_noun(one) & _partners(other) or _first_noun(other) & _partners(one))
    return False


def _first_noun(segment: Segment) -> set[str]:
    return set(list(segment.own)[:2])


def _partners(segment: Segment) -> set[str]:
    """Return what stands after a preposition of the other party: "sold to the market"."""
    partners: set[str] = set()
    for place, word in enumerate(segment.words):
        if word in _PARTIES:
            partners.update(map(concept_of, segment.words[place + 1 : place + 4]))
    return partners


_PARTIES = word_set("comparison.parties")


def compared_otherwise(one: Segment, other: Segment) -> bool:
    """Return whether one says of A what the other says of B: "A is larger than B", "B is larger than A"."""
    return not count_opposites(one, other) and _changes_places(one, other)


def compared_from_both(one: Segment, other: Segment) -> bool:
    """Return whether two compare the same from both ends: "A is larger than B", "B is smaller than A"."""
    return count_opposites(one, other) == 1 and _changes_places(one, other)


def _changes_places(one: Segment, other: Segment) -> bool:
    here, there = _comparison(one), _comparison(other)
    if here is None or there is None:
        return False
    (left, right), (first, second) = here, there
    # What is measured may stand before "than" in both; what something is measured by stands after it.
    return bool(left & second or right & first) and right.isdisjoint(second)


def _comparison(segment: Segment) -> tuple[set[str], set[str]] | None:
    """Return what is compared: the concepts before and after "than", without the comparative."""
    words = segment.words
    at = next((place for place, word in enumerate(words) if place and word in {"than", "als"}), 0)
    if not at or not _COMPARATIVE.search(" ".join(words[:at])) or any(word[0].isdigit() for word in words[at + 1 :]):
        return None
    degrees = {
        concept_of(word)
        for last, word in pairwise(("", *words))
        if _COMPARATIVE.fullmatch(word) or _COMPARATIVE.fullmatch(last)
    }
    known = segment.own.keys() - (degrees & segment.sides.keys())
    before, after = ({concept_of(word) for word in part} & known for part in (words[:at], words[at + 1 :]))
    return before - after, after - before


_STILL = re.compile(r"\b(?:still|yet|remains?|noch)\b")
_TO_BE = re.compile(r"\b(?:ha(?:s|ve) to|must|needs? to|(?:is|are) to|muss|müssen)\b")
_BEFORE = re.compile(r"\b(?:before|until|till|vor)\b")
_EARLIEST = re.compile(r"\b(?:earliest|frühestens|erst|from|ab|starting)\b")
_FREE = re.compile(r"\b(?:free|gratis|kostenlos|kostenfrei|umsonst)\b")
_PRICED = re.compile(r"\b(?:pays?|paid|costs?|charged?|fees?|price|kostet|kosten|zahl\w*|bezahl\w*|gebühr\w*)\b")


# They stand on one side with "never" and "none", and say that there is something.
_SELDOM = frozenset(map(concept_of, word_set("comparison.seldom")))


def _is_negative(segment: Segment, concept: str) -> bool:
    return concept not in _SELDOM and any(sign < 0 for _, sign in segment.sides[concept])


def direction_of(segment: Segment, name: str) -> int:
    before = segment.roles.get(name, "")
    return -1 if before in _FROM else 1 if before in _TO else 0


# A token of more statements than this tells nothing apart.
_CROWD = 300
_MOST_INHERITED = 0.9
_DEEPEST = 8


class StatementIndex:
    """The statements of sources, by what they speak of."""

    def __init__(self, reader: SentenceReader, sources: Sequence[Component], also: str, disputed: str) -> None:
        self._reader = reader
        self.segments: list[Segment] = []
        self.sentences: list[ReadSentence] = []
        self.worded: dict[int, list[list[str]]] = defaultdict(list)
        """Sentences and segments word by word, by their length."""
        self.having: dict[str, list[int]] = defaultdict(list)
        self.known = set[str]()
        self.essential = 0
        for place, source in enumerate(sources):
            title = self.tokens(source.title)
            self._add_result(source.result, place, title)
            self.known.update(title)
        self.essential = len(self.segments)
        self.disputed: list[StatedFigure] = []
        for start, end in sentence_spans(disputed):
            sentence = self._add(reader.sentence(disputed[start:end]), -1, ())
            self.disputed += [figure for segment in sentence.segments for figure in segment.figures]
        before: ReadSentence | None = None
        for start, end in sentence_spans(also):
            before = self._add(reader.sentence(also[start:end]), -1, (), before)

    def tokens(self, text: str) -> list[str]:
        """Return what a text speaks of."""
        return [token for segment in self._reader.sentence(text).segments for token in segment.own]

    def _add_result(self, result: Json, place: int, context: Sequence[str]) -> None:
        if isinstance(result, str):
            before: ReadSentence | None = None
            for start, end in sentence_spans(result):
                before = self._add(self._reader.sentence(result[start:end]), place, context, before)
        else:
            self._add_fields(result, place, context, "", 0)

    def _add_fields(self, value: Json, place: int, context: Sequence[str], path: str, depth: int) -> None:
        match value:
            case dict() if depth < _DEEPEST:
                members = cast("dict[str, Json]", value)
                marks = [
                    token
                    for name, each in members.items()
                    if isinstance(each, str | int) and not isinstance(each, bool) and len(str(each)) < 40
                    for segment in self._reader.leaf(name, each, members).segments
                    for token in segment.own
                ]
                for name, each in members.items():
                    under = f"{path} {in_words(name)}".strip()
                    if isinstance(each, dict | list | tuple) and short_value(each) is None:
                        self._add_fields(each, place, (*context, *marks), under, depth + 1)
                    elif isinstance(each, str) and each.count(" ") > 3:
                        self._add_result(each, place, (*context, *marks, *self.tokens(under)))
                    elif each is not None and each != "":
                        leaf = self._reader.leaf(name, each, members)
                        for segment in leaf.segments:
                            segment.field = under
                        self._add(leaf, place, (*context, *marks, *self.tokens(path)))
            case list() | tuple() if depth < _DEEPEST:
                for each in cast("Sequence[Json]", value):
                    if isinstance(each, dict | list | tuple):
                        self._add_fields(each, place, context, path, depth + 1)
                    else:
                        self._add_result(laid_out(each), place, (*context, *self.tokens(path)))
            case dict() | list() | tuple() | None:
                pass
            case _:
                self._add(self._reader.leaf(path, value, {}), place, context)

    def _add(
        self, sentence: ReadSentence, place: int, context: Iterable[str], before: ReadSentence | None = None
    ) -> ReadSentence:
        sentence.follow(before, context, source=True)
        self.sentences.append(sentence)
        for statement in (sentence, *sentence.segments):
            self.worded[len(words_in(statement))].append(words_in(statement))
        for segment in sentence.segments:
            segment.source = place
            for token in (*segment.own, *segment.inherited):
                self.having[token].append(len(self.segments))
            self.known.update(segment.own)
            self.segments.append(segment)
        return sentence

    def near(self, token: str) -> Sequence[int]:
        """Return the statements that speak of something, unless most do."""
        places = self.having.get(token, ())
        return places if len(places) <= _CROWD else ()

    def scores(
        self, segment: Segment, without: Collection[str] = (), *, alone: bool = False, senses: bool = False
    ) -> dict[int, float]:
        """Return how much each statement of the sources has in common with a segment, or with its own words *alone*."""
        scores: dict[int, float] = defaultdict(float)
        if not alone:
            for token, weight in segment.inherited.items():
                for place in self.near(token) if token not in without else ():
                    # What a segment says itself counts more than all that it inherits.
                    scores[place] = min(_MOST_INHERITED, scores[place] + 0.9 * weight)
        for token, weight in segment.own.items():
            for place in self.near(token) if token not in without else ():
                there = self.segments[place]
                scores[place] += weight * (1.0 if token in there.own else there.inherited[token])
        if not senses:
            return scores
        for concept, sides in segment.sides.items():
            if concept in without:
                continue
            for place in list(scores):
                there = self.segments[place]
                if concept in there.sides and concept not in segment.own:
                    scores[place] += 0.7
                elif concept not in there.own and share_axis(sides, there):
                    scores[place] += 0.6
        return scores
