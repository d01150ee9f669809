"""Turns a clause into claims, and says whether two claims can both be true.

"Ward 3 has 12 free beds" claims a figure about a subject (the words `ward 3`, `bed`). "The lock is open" claims a side
of an axis: `open` and `closed` are the two sides of the axis `open`. "The carrier is Hansen Lines" claims a value. A
sentence that denies something claims the opposite of the whole sentence.

The word lists are English and German. Figures, and texts that differ in nothing else, are compared in any language.
"""

import re
from collections.abc import Iterator, Sequence
from math import prod

from msgspec import Struct
from msgspec.structs import replace

from remit_orchestrator.text.clauses import DIGIT, FIGURE, Clause, small
from remit_orchestrator.text.conflicts.clause_reading import (
    ALL_OF,
    LEADS,
    NOW,
    OPPOSITES,
    PAST,
    SCOPES,
    SOME_OF_THEM,
    WAS_SO,
    WAYS,
    ClauseFigure,
    ClauseReading,
    counted_nouns,
    denied_word,
)
from remit_orchestrator.text.conflicts.named_values import NamedValue, may_name_value, named_values
from remit_orchestrator.text.conflicts.opposites import kind_of, state_of
from remit_orchestrator.text.conflicts.reading import NO_LABELS, labels, words_said
from remit_orchestrator.text.figures import NAMES, figures
from remit_orchestrator.text.quantities import Amount, Figure, Quantity, agree, distance, figures_agree
from remit_orchestrator.text.vocabulary import (
    ADVICE,
    AXES,
    CLAUSE_VERBS,
    DETERMINERS,
    EVENTS,
    IMPERATIVES,
    LABELS,
    LIGHT_VERBS,
    NEGATIONS,
    ON_ITSELF,
    PHRASES,
    ROLES,
    stem,
)


class Subject(Struct, frozen=True, gc=False):
    """What a claim is about."""

    words: frozenset[str]
    """Stems of the words that say what it is about; `leaves` and `departure` have the same."""
    context: frozenset[str] = frozenset()
    """The words of the heading above it."""
    ways: frozenset[tuple[str, str]] = frozenset()
    """What limits it: a word after `from`, `to`, `in` or `for`, as `("in", "asia")`, and `NOW`, `PAST` and others."""
    at: tuple[Quantity, ...] = ()
    """The day, time or period that it is about, if that is not the claim itself."""
    head: str = ""
    """The noun that it is about, the last of several in a row: a museum café is not a museum."""


class Claim(Struct, frozen=True, gc=False):
    """A claim about a subject: a figure, or that something is or is not the case."""

    subject: Subject
    figure: Figure | None = None
    nouns: frozenset[str] = frozenset()
    """The things that a bare number counts."""
    lead: str = ""
    """`by` or `to`: falling by a tenth is not falling to it. For a value, the word before it; for a denial, `no`."""
    senses: frozenset[tuple[str, int]] = frozenset()
    """The other axes of its clause, with their sides: "rose by a tenth" and "fell by a fifth" are not compared."""
    axis: str = ""
    """The pair of opposites on which it takes a side: `approve` for "rejected"; empty if it is the whole sentence."""
    sign: int = 0
    """The side: 1 or -1. For a whole sentence, 1 affirms it and -1 denies it; 0 for figures and values."""
    text: str = ""
    """As written."""
    about: tuple[tuple[str, str], ...] = ()
    """The stems of the subject with their original words, in order."""
    value: frozenset[str] = frozenset()
    """The words of a name or place that the claim gives to the subject."""


# Why something is so is no part of what is so.
_CAUSE = re.compile(r"(?<=\w),?\s(?:because|due to|owing to|on account of|wegen|weil|aufgrund)\b", re.IGNORECASE)

# ── claims ────────────────────────────────────────────────────────────────────────────────────────────────────────────

# With more figures in one clause, it is unclear which figure belongs to what.
_FIGURES = 8
_WORD = re.compile(r"[a-zäöüß]++(?:['-][a-zäöüß]++)*+")


_TELLING = NAMES | AXES.keys() | NEGATIONS | ADVICE.keys() | ALL_OF | IMPERATIVES | {"only"}
_PHRASES_SAID = re.compile(rf"\b(?:{'|'.join(' '.join(words) for words in PHRASES)})\b", re.IGNORECASE)
_FREE = re.compile(r"[a-zäöüß]{4}-?fr(?:ee|ei)", re.IGNORECASE)


def is_telling(clause: Clause) -> bool:
    """Return whether a clause has a figure, names a value, or says something that has an opposite; many do not."""
    text = clause.text
    if DIGIT.search(text) or may_name_value(text) or _PHRASES_SAID.search(text) or _FREE.search(text):
        return True
    plain = text.isascii() and text.replace(" ", "").isalpha()
    words = text.lower().split() if plain else _WORD.findall(small(text))
    return not _TELLING.isdisjoint(words) or any(map(_has_opposite, words))


def _has_opposite(word: str) -> bool:
    return bool(state_of(word) or kind_of(word) or denied_word(word))


class Affirmed(Struct, frozen=True, gc=False):
    """A sentence that denies nothing.

    Most sentences are such, and nobody denies them. So it becomes a claim only if another sentence denies the same.
    """

    subject: Subject
    senses: dict[str, int]
    """The axes of its words, with their sides."""
    stated: Sequence[Figure]
    text: str
    about: tuple[tuple[str, str], ...]
    """The stems of the subject with their original words, in order."""

    @property
    def words(self) -> frozenset[str]:
        return self.subject.words.union(self.senses)

    def claim(self, sign: int = 1, lead: str = "") -> Claim:
        """Return the whole sentence as a claim that affirms it (1) or denies it (-1)."""
        subject = self.subject
        everything = subject.at + tuple(figure.quantity for figure in self.stated)
        whole = Subject(self.words, subject.context, subject.ways, everything, subject.head)
        return Claim(whole, lead=lead, sign=sign, text=self.text, about=self.about)


def claims(clause: Clause) -> tuple[list[Claim], Affirmed | None]:
    """Return the claims of a clause, and the whole clause if it denies nothing."""
    text = _CAUSE.split(clause.text, 1)[0]
    found = figures(text)[:_FIGURES]
    said = words_said(text, found)
    in_names = labels(text, said, found) if found else NO_LABELS
    values = [] if found and any(isinstance(each.quantity, Amount) for each in found) else named_values(text)
    telling_more = in_names or values or not _TELLING_MORE.isdisjoint(said) or any(map(_has_opposite, said))
    telling_more = telling_more or said[:1] == [] or said[0] in IMPERATIVES
    if len(found) < 2 and not telling_more and (plain := _plain_claims(clause, found, said)):
        return plain
    read = ClauseReading(text, said, found, in_names)
    words = read.words
    if not words or said[0] == "here" or not ON_ITSELF.isdisjoint(words):
        return [], None
    ways = frozenset(read.ways) if read.ways else _NO_WAYS
    subject = Subject(frozenset(words), clause.context, ways, tuple(read.asides), _head(said))
    return _claims_of(read, subject, values, found)


def _claims_of(
    read: ClauseReading, subject: Subject, values: Sequence[NamedValue], found: Sequence[Figure]
) -> tuple[list[Claim], Affirmed | None]:
    """Return the claims of a clause about its subject."""
    text, senses, about = read.text, read.senses, tuple(read.words.items())
    made: list[Claim] = []
    # What rose in 2023 may have risen in 2022: the year is not the claim.
    only_when = "rise" in senses and not any(isinstance(each.figure.quantity, Amount) for each in read.stated)
    if read.stated and not read.negated and not only_when:
        made += _figure_claims(subject, read.stated, senses, about)
    if read.hedged:
        return made, None
    if read.advice:
        return [*made, *_advice(subject, senses, -1 if read.negated else read.advice, text, about)], None
    if not read.negated:
        # "Available in Norway" may be available elsewhere; "won by Riverside" is won by nobody else.
        told = [value for value in (*values, *read.kinds) if not senses or value.lead in ("by", "by the")]
        made += _value_claims(subject, told, found, about)
    made += [Claim(subject, none, nouns, text=text, about=about) for none, nouns in read.absent]
    made += _axis_claims(subject, read, about)
    whole = Affirmed(subject, senses, [each.figure for each in read.stated], text, about)
    for root, opposite in () if read.negated else read.opposites:
        claim = whole.claim(-1)
        made.append(replace(claim, subject=replace(claim.subject, words=claim.subject.words - {root} | {opposite})))
    if not read.denied:
        return made, whole
    made.append(whole.claim(-1, "no" if read.universal else ""))
    if read.said[0] == "don't" or read.said[:2] == ["do", "not"]:
        made += _advice(subject, senses, -1, text, about)
    return made, None


def _axis_claims(subject: Subject, read: ClauseReading, about: tuple[tuple[str, str], ...]) -> Iterator[Claim]:
    """Return what a clause affirms or denies of its subject, one claim for each pair of opposites."""
    senses = read.senses
    others = frozenset(senses.items()) if len(senses) > 1 else _NO_SENSES
    moments = tuple(each.figure.quantity for each in read.stated if not isinstance(each.figure.quantity, Amount))
    for axis, side in (*senses.items(), *read.also):
        if side:
            on = replace(subject, at=subject.at + moments + tuple(read.conditions))
            lead = "no" if read.universal else ""
            yield Claim(on, senses=others, axis=axis, sign=side, lead=lead, text=read.text, about=about)


def _advice(
    subject: Subject, senses: dict[str, int], sign: int, text: str, about: tuple[tuple[str, str], ...]
) -> list[Claim]:
    """Return the claim of a clause that advises for something, or against it."""
    # "Raten zu", "raten von": the preposition belongs to the verb.
    ways = frozenset(way for way in subject.ways if way[0] not in OPPOSITES)
    on = replace(subject, words=subject.words.union(senses) - LIGHT_VERBS, ways=ways)
    # Who advises to sell advises against buying.
    whether = prod((sign, *filter(None, senses.values())))
    return [Claim(on, axis="recommend", sign=whether, text=text, about=about)] if on.words else []


def _value_claims(
    subject: Subject, values: Sequence[NamedValue], found: Sequence[Figure], about: tuple[tuple[str, str], ...]
) -> Iterator[Claim]:
    """Return a claim for each name or place; what it is about are the other words of the clause."""
    at = subject.at + tuple(each.quantity for each in found)
    for value in values:
        roots = value.roots()
        words = subject.words - roots
        if words:
            on = Subject(words, subject.context, subject.ways, at, subject.head)
            named = tuple(pair for pair in about if pair[0] not in roots)
            yield Claim(on, lead=value.lead, value=value.words, text=value.text, about=named)


# Signs that a clause is more than words and a figure.
_TELLING_MORE = frozenset(
    (
        *(word for word, role in ROLES.items() if role != "weak"),
        *WAYS,
        *LEADS,
        *ALL_OF,
        "only",
        "this",
        "as",
        "here",
        *ON_ITSELF,
    )
)


def _plain_claims(
    clause: Clause, found: Sequence[Figure], said: Sequence[str]
) -> tuple[list[Claim], Affirmed | None] | None:
    """Return the claims of a clause of words and at most one figure, as most are; None if it is more complex."""
    words: dict[str, str] = {}
    last = ""
    for token in said:
        if token not in ROLES and token != FIGURE:
            root = stem(token)
            if root not in words:
                words[root] = token
        if token != "the":
            if last in LABELS and (token == FIGURE or len(token) == 1):
                return None
            last = token
    if not words or not ON_ITSELF.isdisjoint(words):
        return [], None
    subject, about = Subject(frozenset(words), clause.context, head=_head(said)), tuple(words.items())
    made: list[Claim] = []
    for figure in found:
        nouns, written = counted_nouns(said, said.index(FIGURE)), clause.text[figure.start : figure.end]
        made.append(Claim(subject, figure, frozenset(nouns), "", _NO_SENSES, "", 0, written, about))
    return made, Affirmed(subject, {}, found, clause.text, about)


_NO_SENSES: frozenset[tuple[str, int]] = frozenset()
_NO_WAYS: frozenset[tuple[str, str]] = frozenset()


def _figure_claims(
    subject: Subject, stated: list[ClauseFigure], senses: dict[str, int], about: tuple[tuple[str, str], ...]
) -> Iterator[Claim]:
    words = subject.words.union(senses) if senses else subject.words
    senses_said = frozenset(senses.items())
    if len(stated) == 1:
        only = stated[0]
        said = subject if words is subject.words else replace(subject, words=words)
        yield Claim(said, only.figure, frozenset(only.nouns), only.lead, senses_said, "", 0, only.text, about)
        return
    moments = tuple(each.figure.quantity for each in stated if not isinstance(each.figure.quantity, Amount))
    # On 4 March sales were 500: the day is not the claim.
    aside = 0 < len(moments) < len(stated) and subject.words.isdisjoint(EVENTS)
    at = subject.at + moments if aside else subject.at
    said = Subject(words, subject.context, subject.ways, at, subject.head)
    counted = {noun for each in stated for noun in each.nouns}
    for each in stated:
        nouns = each.nouns
        if not (aside and not isinstance(each.figure.quantity, Amount)):
            named = tuple(pair for pair in about if pair[0] not in counted or pair[0] in nouns) if counted else about
            yield Claim(said, each.figure, frozenset(nouns), each.lead, senses_said, "", 0, each.text, named)


def _head(said: Sequence[str]) -> str:
    """Return the last of the words before the verb or a preposition; empty if that is not how a clause begins."""
    head = ""
    for token in said:
        if token in CLAUSE_VERBS or token == FIGURE or (head and token in ROLES):
            break
        if token not in ROLES:
            head = token
        elif token not in _BEFORE_HEADS:
            break
    return stem(head) if head else ""


_BEFORE_HEADS = (DETERMINERS - {"that"}) | {"all", "each"}


# ── comparison ────────────────────────────────────────────────────────────────────────────────────────────────────────


def likeness(part: Subject, whole: Subject, least: int = 2, *, everywhere: bool = False) -> float:
    """Return how certainly two subjects are the same, from 0 to 1, if all words of the first are among the second's.

    If each has words that the other lacks, they are two things: the morning train, the evening train.
    They are also two if one says more and the other has fewer words than *least*. What is said of the first holds
    *everywhere* if it limits nothing: "no cracks" are none in the north wall.
    """
    few, many = len(part.words), len(whole.words)
    if few != many and (few < least or 2 * few < many):
        return 0.0
    if few != many and whole.head and whole.head not in part.words:
        return 0.0
    if part.context and whole.context and not (part.context <= whole.context or whole.context <= part.context):
        return 0.0
    if part.ways and whole.ways and any((OPPOSITES.get(way), word) in whole.ways for way, word in part.ways):
        return 0.0
    limited = any(way in SCOPES and word not in part.words for way, word in whole.ways)
    if few != many and limited and not everywhere:
        return 0.0
    if (part.at and NOW in whole.ways) or (whole.at and NOW in part.ways):
        return 0.0
    if (PAST in part.ways and NOW in whole.ways) or (PAST in whole.ways and NOW in part.ways):
        return 0.0
    if (WAS_SO in part.ways and _is_dated(part) and not whole.at) or (
        WAS_SO in whole.ways and _is_dated(whole) and not part.at
    ):
        return 0.0
    if part.at and whole.at:
        verdicts = [verdict for one in part.at for other in whole.at if (verdict := agree(one, other)) is not None]
        if verdicts and not any(verdicts):
            return 0.0
    return few / many


def _is_dated(subject: Subject) -> bool:
    return any(not isinstance(each, Amount) for each in subject.at)


def compared(one: Claim, other: Claim) -> bool | None:
    """Return whether two claims about one thing can both be true; None if they are about different aspects of it."""
    if one.figure is None or other.figure is None:
        if one.figure or other.figure or one.axis != other.axis:
            return None
        if any((axis, -sign) in other.senses for axis, sign in one.senses if sign and axis != one.axis):
            return None  # possible before departure, and not possible after it
        if one.axis and SOME_OF_THEM in one.subject.ways & other.subject.ways:
            return None
        if one.value or other.value:
            if not (one.value and other.value) or one.lead != other.lead:
                return None
            return one.value <= other.value or other.value <= one.value
        # A whole sentence contradicts only its exact denial, or a denial of everything.
        if one.axis or one.subject.words == other.subject.words or _denies(one, other) or _denies(other, one):
            return one.sign == other.sign
        return None
    if one.senses and other.senses and any((axis, -sign) in other.senses for axis, sign in one.senses if sign):
        return None
    if (one.lead and other.lead and one.lead != other.lead) or not (_counts(one, other) and _counts(other, one)):
        return None
    return figures_agree(one.figure, other.figure)


def _denies(one: Claim, other: Claim) -> bool:
    """Return whether the first denies of everything what the second says of something."""
    return one.lead == "no" and other.sign > 0 and one.subject.words < other.subject.words


def _counts(one: Claim, other: Claim) -> bool:
    """Return whether the first claim counts nothing, or may count the same things as the other."""
    if not one.nouns or not _is_number(one):
        return True
    return _is_number(other) and bool(one.nouns & (other.nouns or other.subject.words))


def _is_number(claim: Claim) -> bool:
    quantity = claim.figure.quantity if claim.figure else None
    return isinstance(quantity, Amount) and quantity.kind == "number"


def apart(one: Claim, other: Claim) -> float:
    """Return how far apart two contradicting claims are: 1 or more if they have nothing in common."""
    return distance(one.figure.quantity, other.figure.quantity) if one.figure and other.figure else 1.0
