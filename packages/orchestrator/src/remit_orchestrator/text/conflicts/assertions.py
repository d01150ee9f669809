"""Reads sentences that rules can compare: those that differ in one figure, one status or one denial, and in no word.

Whatever else two sentences say, rules cannot tell surely whether both can be true; a second reader can be asked. That
holds for sentences that ask, doubt, suppose or speak of a part as well.
"""

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Literal, NamedTuple

from remit_orchestrator.text.figures import Amount, Figure, TimeOfDay, figures
from remit_orchestrator.text.lexicon import pattern, phrases, table, word_set
from remit_orchestrator.text.sentences import is_question, sentences
from remit_orchestrator.text.vocabulary import COMMON_WORDS, stem

WEAK = word_set("weak")
VERBS = word_set("clause_verbs")
_DETERMINERS = word_set("determiners")
_NEGATIONS = word_set("negations")
_NONE = word_set("assertion.none")
# After these a day is what is said, and not the day of which it is said.
_EVENTS = word_set("events")
_UNSURE = pattern("assertion.unsure")
_MONTH = re.compile(r"(?<=\s)May\b")
# A text about itself: "I am 80 % sure".
_ON_ITSELF = word_set("on_itself")
_BE = word_set("assertion.be")
_ADVERBS = word_set("assertion.adverbs")
# "Was critical on Monday" says nothing about now; what was paid is paid.
_PAST = word_set("assertion.past")
# "From Paris to Lyon" has the words of "from Lyon to Paris", and "by 5 %" those of "to 5 %".
_RELATIONS = word_set("assertion.relations")


def _sides(name: str) -> dict[str, tuple[str, int]]:
    return {
        word: (axis, sign)
        for axis, sides in table(name).items()
        for sign, side in zip((1, -1), sides, strict=True)
        for word in side
    }


# Adjectives and participles, which are said of a subject after "is", and verbs, which always are.
_STATUS = _sides("status")
_STATUS_VERBS = {stem(verb): side for verb, side in _sides("status.verbs").items()}
_PHRASES = {phrase: word for word, several in phrases("status.phrases").items() for phrase in several}
_PHRASE = re.compile(rf"(?<![\w-])(?:{'|'.join(sorted(_PHRASES, key=len, reverse=True))})(?![\w-])")
# "Unpaid" denies "paid"; what begins with "in" does so only with the ending of an adjective.
_DENYING = re.compile(
    r"(?:un|non-?)([^\W\d_]{4,})|(?:in|im|ir|il)([^\W\d_]+(?:able|ible|ent|ant|al|ate|ive|ect|abel|ibel|ell|iv))"
)

FIGURE = "\ue000"
_TOKEN = re.compile(rf"{FIGURE}|[^\W_]+(?:[-'.&/][^\W_]+)*|:")
_ANSWER = re.compile(r"\s*(?:yes|no|ja|nein)\s*[,.]\s*", re.IGNORECASE)
_HEADING = re.compile(r"\s{0,3}(?:#{1,6}\s|\*\*[^*]{1,80}\*\*:?\s{0,3}\Z)|[^.!?]{1,80}:\s{0,3}\Z")
# Longer texts are not sentences.
_LONGEST = 400


class SentenceFrame(NamedTuple):
    """All that a sentence says beside the value that is compared."""

    words: frozenset[str]
    kind: str = "figure"
    """`figure`, `denied`, or the two sides of a status."""
    others: frozenset[object] = frozenset()
    """The other figures, and the heading above it."""


class Assertion(NamedTuple):
    """One value of a sentence in its frame."""

    frame: SentenceFrame
    about: tuple[str, ...]
    """The words of the frame as written, in order."""
    text: str
    """The value as written: the figure, or the sentence."""
    value: Figure | bool
    source: Literal["sentence", "field", "shared field"] = "sentence"
    """Whether it is from a sentence, from a field that only one component has, or from one that several have."""


def assertions(text: str, most: int) -> tuple[list[Assertion], int]:
    """Return what the sentences of a text say, at most *most* of them, and how many it has (one more is enough)."""
    values: list[Assertion] = []
    count = 0
    heading: frozenset[object] = frozenset()
    for line in text.replace(FIGURE, " ").splitlines():
        if _HEADING.match(line) and not any(map(str.isdigit, line)):
            heading = roots_of(line)
            continue
        for sentence in sentences(line):
            count += 1
            if count > most:
                return values, count
            if len(sentence) <= _LONGEST and not is_question(sentence):
                values += _values(_ANSWER.sub("", sentence, count=1).rstrip(" .!"), heading)
    return values, count


def content(text: str) -> list[str]:
    """Return the words of a text that carry meaning, in small letters."""
    return [word for word in _TOKEN.findall(text.lower()) if word not in WEAK and word != ":"]


def roots_of(text: str) -> frozenset[str]:
    """Return the stems of the words that carry meaning."""
    return frozenset(map(stem, content(text)))


def _values(sentence: str, heading: frozenset[object]) -> Iterator[Assertion]:
    in_sentence = [each for each in figures(sentence) if each.end > each.start]
    tokens = tokens_of(sentence, in_sentence)
    if not tokens or _UNSURE.search(_MONTH.sub("", sentence).lower()) or not _ON_ITSELF.isdisjoint(tokens):
        return
    numbers = iter(in_sentence)
    words: list[str] = []
    about: list[str] = []
    stated: list[tuple[Figure, str]] = []
    statuses: list[tuple[str, int]] = []
    denied = none = False
    relation = ""
    for place, token in enumerate(tokens):
        before = tokens[place - 1] if place else ""
        following = tokens[place + 1] if place + 1 < len(tokens) else ""
        if token == FIGURE:
            figure = next(numbers)
            written = sentence[figure.start : figure.end]
            if is_label(written, figure, before, following):
                words.append(f"{relation}{written}")
            else:
                stated.append((figure, relation))
        elif token in _NEGATIONS and following != FIGURE:
            denied, none = not denied, none or token in _NONE
        elif (status := _status(tokens, place)) is not None:
            statuses.append(status)
        elif (match := _DENYING.fullmatch(token)) is not None and _follows_be(tokens, place):
            denied = not denied
            bare = match[1] or match[2]
            if bare in _STATUS:
                statuses.append(_STATUS[bare])
            else:
                words.append(stem(bare))
                about.append(token)
        elif token not in WEAK and token != ":" and token not in _RELATIONS:
            words.append(f"{relation}{stem(token)}")
            about.append(token)
        if token in _RELATIONS:
            relation = f"{token} "
        elif token not in _DETERMINERS:
            relation = ""
    if len(statuses) > 1 or not words:
        return
    if _was_so(tokens):
        words.append("was")
    everything = frozenset(words)
    known = tuple(about)
    others = heading | {each.quantity for each, _ in stated}
    if statuses:
        [(axis, sign)] = statuses
        yield Assertion(SentenceFrame(everything, axis, others), known, sentence, (sign > 0) is not denied)
        everything |= {f"{axis} {sign}"}
    else:
        yield Assertion(SentenceFrame(everything, "denied", others), known, sentence, not denied)
    if none and denied and not stated:
        yield Assertion(SentenceFrame(everything, others=heading), known, sentence, _NOTHING)
    if denied:
        return
    for figure, relation in stated:
        if isinstance(figure.quantity, Amount | TimeOfDay) or not _EVENTS.isdisjoint(everything):
            apart = heading | {each.quantity for each, _ in stated if each is not figure}
            apart |= {relation} if relation else frozenset()
            yield Assertion(SentenceFrame(everything, others=apart), known, sentence[figure.start : figure.end], figure)


_NOTHING = Figure(Amount("number", 0.0, 0.0), 0, 0)


def tokens_of(sentence: str, in_sentence: Sequence[Figure]) -> list[str]:
    """Return the words of a sentence in small letters, with `FIGURE` for each figure and one word for a phrase."""
    parts: list[str] = []
    end = 0
    for figure in in_sentence:
        parts += (sentence[end : figure.start], f" {FIGURE} ")
        end = figure.end
    folded = "".join((*parts, sentence[end:])).lower().replace("’", "'")
    return _TOKEN.findall(_PHRASE.sub(lambda match: _PHRASES[match[0]], folded))


def is_label(written: str, figure: Figure, before: str, following: str) -> bool:
    """Say whether a figure tells a thing from others: "ward 3", "the 9:40 train". In doubt it does."""
    if before in _DETERMINERS and following.isalpha() and following not in WEAK and following not in VERBS:
        return True
    quantity = figure.quantity
    if not (
        isinstance(quantity, Amount) and (quantity.kind, quantity.form) == ("number", "point") and written.isdigit()
    ):
        return False
    return before not in {"", ":"} and before not in COMMON_WORDS and before not in WEAK and before not in VERBS


def sides_of(token: str) -> tuple[str, int] | None:
    """Return the axis of a status and the side of it on which a word stands, wherever it is said; None if on none."""
    return _STATUS.get(token) or _STATUS_VERBS.get(stem(token))


def _status(tokens: Sequence[str], place: int) -> tuple[str, int] | None:
    token = tokens[place]
    if token in _STATUS and _follows_be(tokens, place):
        return _STATUS[token]
    return None if token.endswith("ing") else _STATUS_VERBS.get(stem(token))


def _follows_be(tokens: Sequence[str], place: int) -> bool:
    """Say whether a word is said of the subject by itself: "is still open", and not "is an open door"."""
    following = tokens[place + 1] if place + 1 < len(tokens) else ""
    if following and following not in WEAK and following not in _RELATIONS:
        return False
    before = place - 1
    while before >= 0 and tokens[before] not in _BE and (tokens[before] in _ADVERBS or tokens[before] in _NEGATIONS):
        before -= 1
    return before >= 0 and (tokens[before] in _BE or (not following and not _BE.isdisjoint(tokens[:before])))


def _was_so(tokens: Sequence[str]) -> bool:
    bare = [token for token in tokens if token not in _ADVERBS and token not in _NEGATIONS - _PAST]
    return any(token in _PAST and not following.endswith("ed") for token, following in pairwise((*bare, "")))
