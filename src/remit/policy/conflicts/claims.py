"""What the sentences of a text claim: of which thing, which figure, and whether it is so or not.

The words are English; figures, and texts that differ in nothing else, are compared in any language.
"""

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from remit.policy.conflicts.english import (
    AXES,
    EVENTS,
    LABELS,
    NEGATIONS,
    NOT_DENIED,
    ON_ITSELF,
    PUNCTUATION,
    ROLES,
    VERBS,
    WEAK,
    stem,
)
from remit.policy.conflicts.figures import NAMES, figures
from remit.policy.conflicts.quantities import Amount, Figure, Quantity, agree, distance, figures_agree


class Subject(NamedTuple):
    """What a claim is about."""

    words: frozenset[str]
    """Stems, so that `leaves` and `departure` are one."""
    context: frozenset[str] = frozenset()
    """The words of the heading above it."""
    ways: frozenset[tuple[str, str]] = frozenset()
    """What is gone `from` and `to`, what it is said of `in` and `for`, and whether it is said of now."""
    at: tuple[Quantity, ...] = ()
    """The day, time or stretch of time of which it speaks, where that is not what it claims."""


class Claim(NamedTuple):
    """One thing that is said of a subject: a figure, or a sense (that it is so, or not)."""

    subject: Subject
    figure: Figure | None = None
    nouns: frozenset[str] = frozenset()
    """What a bare number counts."""
    lead: str = ""
    """`by` or `to`: falling by a tenth is not falling to it."""
    senses: frozenset[tuple[str, int]] = frozenset()
    """What the clause of a figure affirms and denies: rising by a tenth is not falling by a fifth."""
    axis: str = ""
    """What is affirmed or denied: `approve`; empty for the sentence itself."""
    sign: int = 0
    text: str = ""
    """As it is written."""
    about: tuple[tuple[str, str], ...] = ()
    """The stems of the subject with the words that they were, in their order."""


# ── clauses ───────────────────────────────────────────────────────────────────────────────────────────────────────────


class Clause(NamedTuple):
    """A part of a text that can be true or false by itself, and the words of the heading above it."""

    text: str
    context: frozenset[str] = frozenset()


_END = re.compile(r"""[.!?;](?:(?<=;)|["')\]*_]{0,3}(?=\s+["'(\[*_]{0,3}[A-Z0-9•-]|\s*\Z))""")
_ABBREVIATIONS = ("dr", "mr", "mrs", "ms", "st", "no", "ca", "vs", "approx", "e.g", "i.e")
_TURNS = (" but ", " while ", " whereas ", " although ", " though ", " however ")
_TURN = re.compile(f",?(?:{'|'.join(_TURNS)})")
_JOINT = re.compile(r",?\sand\s|,\s")
_HEADING = re.compile(r"\s{0,3}(?:#{1,6}\s|\*\*[^*]{1,80}\*\*:?\s{0,3}\Z)|.{1,80}:\s{0,3}\Z")
_MARKS = " \t-*•>|#"
_DIGIT = re.compile(r"\d")
# Longer ones are no sentences, and of more figures in one nobody says which is which.
_SHORTEST, _LONGEST = 4, 400
_FIGURES = 8


def clauses(text: str) -> Iterator[Clause]:
    """Give what of a text can be true or false, in order: no question, no heading, nothing too long for a sentence."""
    context: frozenset[str] = frozenset()
    for line in text.replace(_FIGURE, " ").splitlines():
        if _HEADING.match(line) and not _DIGIT.search(line):
            context = frozenset(root for root, _ in content(line))
            continue
        for sentence in _sentences(line):
            if _SHORTEST <= len(sentence) <= _LONGEST:
                for part in _parts(sentence):
                    yield Clause(part.strip(_MARKS), context)


def _sentences(line: str) -> Iterator[str]:
    """Give what a line states; not what it asks."""
    start = 0
    for end in _END.finditer(line):
        dot = end.start()
        if line[max(0, dot - 7) : dot].lower().endswith(_ABBREVIATIONS) and _is_abbreviated(line, dot, end.end()):
            continue
        if line[dot] != "?":
            yield line[start:dot]
        start = end.end()
    if start < len(line):
        yield line[start:]


def _is_abbreviated(line: str, dot: int, end: int) -> bool:
    word = line[max(0, dot - 7) : dot].lower().split()[-1]
    # "No. 5" is a number, "no. It was" an answer.
    return word in _ABBREVIATIONS and (word != "no" or line[end:].lstrip()[:1].isdigit())


def _parts(sentence: str) -> Iterator[str]:
    """Give the parts of a sentence that have a verb each: "the hotel costs 100 and has a pool" says two things."""
    if any(turn in sentence for turn in _TURNS):
        for part in _TURN.split(sentence):
            yield from _parts(part)
        return
    start, subject, given = 0, "", ""
    if " and " in sentence or ", " in sentence:
        joints = [(0, 0), *(joint.span() for joint in _JOINT.finditer(sentence)), (len(sentence), len(sentence))]
        for (end, begin), (stop, _) in pairwise(joints):
            words = sentence[begin:stop].split()
            verb = next((place for place, word in enumerate(words) if word.lower() in VERBS), None)
            if verb is None or not (verb or subject):
                continue
            if subject:
                yield given + sentence[start:end]
                # What has no subject of its own has that of the part before.
                start, given = begin, "" if verb else f"{subject} "
            subject = " ".join(words[:verb]) or subject
    yield given + sentence[start:]


# Stands where a figure was.
_FIGURE = "\ue000"
_TOKEN = re.compile(rf"[^\W\d_]\w*+(?:[-']\w++)*+|{_FIGURE}|\d\w*+|[,:;()]")


def content(text: str, weak: frozenset[str] = WEAK) -> Iterator[tuple[str, str]]:
    """Give the words that say something, each after its stem."""
    return ((stem(word), word) for word in _TOKEN.findall(text.lower()) if word not in weak and word not in PUNCTUATION)


# ── claims ────────────────────────────────────────────────────────────────────────────────────────────────────────────

_OPPOSITES = {"from": "to", "to": "from"}
# What is so in Asia, or for adults, need not be so.
_SCOPES = ("in", "for", "among", "within", "across")
_WAYS = frozenset((*_OPPOSITES, *_SCOPES))
_LEADS = frozenset({"by", "to"})
# A stretch of time after one of these says of when something is said: 7 % over five years.
_SPANS = frozenset({"over", "for", "within", "after", "in", "during"})
_NOW = ("now", "")
_WORD = re.compile(r"[a-z]++(?:['-][a-z]++)*+")
_PERIODS = (["year"], ["month"], ["week"], ["quarter"], ["season"])


class _Stated(NamedTuple):
    """A figure of a clause."""

    figure: Figure
    nouns: tuple[str, ...]
    lead: str
    text: str


_TELLING = NAMES | AXES.keys() | NEGATIONS


def is_telling(clause: Clause) -> bool:
    """Say whether a clause has a figure, or affirms or denies something that can be the opposite; most have none."""
    return bool(_DIGIT.search(clause.text)) or not _TELLING.isdisjoint(_WORD.findall(_small(clause.text)))


def claims(clause: Clause) -> list[Claim]:
    """Return each figure of a clause, and what it affirms or denies, with what they are said of."""
    text = clause.text
    found = figures(text)[:_FIGURES]
    tokens = _tokens(text, found)
    words: dict[str, str] = {}
    ways: list[tuple[str, str]] = []
    stated: list[_Stated] = []
    asides: list[Quantity] = []
    senses: dict[str, int] = {}
    denied = negated = hedged = False
    last, numbers = "", iter(found)
    for place, token in enumerate(tokens):
        if token == _FIGURE:
            figure = next(numbers)
            written = text[figure.start : figure.end]
            if tokens[max(0, place - 2) : place] == ["as", "of"]:
                asides.append(figure.quantity)
            elif len(found) > 1 and last in _SPANS and (span := _span(figure.quantity)):
                asides.append(span)
            elif last in LABELS and isinstance(figure.quantity, Amount) and figure.quantity.kind == "number":
                # Order 4411 is not order 4412.
                words[f"{last} {written}"] = written
            else:
                nouns = tuple(_nouns(tokens[place + 1 : place + 3]))
                stated.append(_Stated(figure, nouns, last if last in _LEADS else "", written))
        elif last in LABELS and len(token) == 1 and token.isalpha():
            words[f"{last} {token}"] = token
        elif (role := ROLES.get(token)) is None or (token == "this" and tokens[place + 1 : place + 2] in _PERIODS):
            root = stem(token)
            if root not in words:
                words[root] = token
            if last in _WAYS:
                ways.append((last, root))
        elif role == "axis":
            axis, sign = AXES[token]
            sign = -sign if denied else sign
            # Who says both says neither.
            senses[axis] = sign if senses.get(axis, sign) == sign else 0
            denied = False
        elif role == "negation":
            # "No, it was not": the first is an answer.
            following = tokens[place + 1 : place + 2]
            if following and following[0] not in NOT_DENIED and not (place == 0 and following[0] == ","):
                denied, negated = not denied, True
        elif role == "hedge":
            hedged = True
        elif role == "now":
            ways.append(_NOW)
        if token != "the":
            last = token
    if not words or tokens[0] == "here" or not ON_ITSELF.isdisjoint(words):
        return []
    subject = Subject(frozenset(words), clause.context, frozenset(ways), tuple(asides))
    about = tuple(words.items())
    made: list[Claim] = []
    if stated and not negated:
        made += _figure_claims(subject, stated, senses, about)
    if not hedged:
        made += _sense_claims(subject, stated, senses, -1 if denied else 1, text, about)
    return made


def _span(quantity: Quantity) -> Amount | None:
    """Return a stretch of time, be it "over" so long or just so long."""
    if not isinstance(quantity, Amount) or quantity.kind != "duration":
        return None
    return Amount("duration", quantity.low, quantity.low, quantity.slack)


def _figure_claims(
    subject: Subject, stated: list[_Stated], senses: dict[str, int], about: tuple[tuple[str, str], ...]
) -> Iterator[Claim]:
    moments = tuple(each.figure.quantity for each in stated if not isinstance(each.figure.quantity, Amount))
    # On 4 March sales were 500: the day is not what is claimed.
    aside = 0 < len(moments) < len(stated) and subject.words.isdisjoint(EVENTS)
    words = subject.words.union(senses) if senses else subject.words
    said = Subject(words, subject.context, subject.ways, subject.at + moments if aside else subject.at)
    senses_said = frozenset(senses.items())
    counted = {noun for each in stated for noun in each.nouns} if len(stated) > 1 else set[str]()
    for figure, nouns, lead, text in stated:
        if not (aside and not isinstance(figure.quantity, Amount)):
            named = tuple(pair for pair in about if pair[0] not in counted or pair[0] in nouns) if counted else about
            yield Claim(said, figure, frozenset(nouns), lead, senses_said, text=text, about=named)


def _sense_claims(
    subject: Subject,
    stated: list[_Stated],
    senses: dict[str, int],
    sign: int,
    text: str,
    about: tuple[tuple[str, str], ...],
) -> Iterator[Claim]:
    for axis, side in senses.items():
        if side:
            moments = tuple(each.figure.quantity for each in stated if not isinstance(each.figure.quantity, Amount))
            yield Claim(subject._replace(at=subject.at + moments), axis=axis, sign=side, text=text, about=about)
    everything = subject.at + tuple(each.figure.quantity for each in stated)
    whole = Subject(subject.words.union(senses), subject.context, subject.ways, everything)
    yield Claim(whole, sign=sign, text=text, about=about)


def _tokens(text: str, found: Sequence[Figure]) -> list[str]:
    """Return the words of a clause in small letters, with a sign for each figure."""
    if not found:
        return _TOKEN.findall(_small(text))
    parts: list[str] = []
    end = 0
    for figure in found:
        parts += (text[end : figure.start], f" {_FIGURE} ")
        end = figure.end
    return _TOKEN.findall(_small("".join((*parts, text[end:]))))


def _small(text: str) -> str:
    return text.lower().replace("’", "'")


def _nouns(tokens: Sequence[str]) -> Iterator[str]:
    """Give what is counted: the words right after a number."""
    for token in tokens:
        if token in ROLES or token == _FIGURE:
            return
        yield stem(token)


# ── comparison ────────────────────────────────────────────────────────────────────────────────────────────────────────


def likeness(part: Subject, whole: Subject) -> float:
    """Return how surely two subjects are one, from 0 to 1, where all words of the first are among the second's.

    Where each has words that the other has not, they are taken to be two things: the morning train, the evening train.
    """
    few, many = len(part.words), len(whole.words)
    if few != many and (few < 2 or 2 * few < many):
        return 0.0
    if part.context and whole.context and not (part.context <= whole.context or whole.context <= part.context):
        return 0.0
    if part.ways and any((_OPPOSITES.get(way), word) in whole.ways for way, word in part.ways):
        return 0.0
    if few != many and any(way in _SCOPES and word not in part.words for way, word in whole.ways):
        return 0.0
    if (part.at and _NOW in whole.ways) or (whole.at and _NOW in part.ways):
        return 0.0
    if part.at and whole.at:
        verdicts = [verdict for one in part.at for other in whole.at if (verdict := agree(one, other)) is not None]
        if verdicts and not any(verdicts):
            return 0.0
    return few / many


def compared(one: Claim, other: Claim) -> bool | None:
    """Say whether two claims about one thing can both be true; None if they do not speak of the same side of it."""
    if one.figure is None or other.figure is None:
        if one.figure or other.figure or one.axis != other.axis:
            return None
        # Of a sentence as a whole, only the very same one is the opposite of its denial.
        return one.sign == other.sign if one.axis or one.subject.words == other.subject.words else None
    if any((axis, -sign) in other.senses for axis, sign in one.senses if sign):
        return None
    if (one.lead and other.lead and one.lead != other.lead) or not (_counts(one, other) and _counts(other, one)):
        return None
    return figures_agree(one.figure, other.figure)


def _counts(one: Claim, other: Claim) -> bool:
    """Say whether what the first counts, if it counts something, may be what the other does."""
    if not one.nouns or not _is_number(one):
        return True
    return _is_number(other) and bool(one.nouns & (other.nouns or other.subject.words))


def _is_number(claim: Claim) -> bool:
    quantity = claim.figure.quantity if claim.figure else None
    return isinstance(quantity, Amount) and quantity.kind == "number"


def apart(one: Claim, other: Claim) -> float:
    """Return how far two claims that cannot both be true are apart: 1 and more for nothing alike."""
    return distance(one.figure.quantity, other.figure.quantity) if one.figure and other.figure else 1.0
