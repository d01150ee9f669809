"""Turns a clause into claims, and says whether two claims can both be true.

"Ward 3 has 12 free beds" claims a figure about a subject (the words `ward 3`, `bed`). "The lock is open" claims a side
of an axis, a pair of opposites with a name: `open` and `closed` are the two sides of the axis `open`. "The carrier is
Hansen Lines" claims a value. A *way* limits what a clause is about: "in Asia", "now". A sentence that denies something
claims the opposite of the whole sentence.

The word lists are English and German. Figures, and texts that differ in nothing else, are compared in any language.
"""

import re
from collections.abc import Collection, Iterator, Sequence
from math import prod

from msgspec import Struct
from msgspec.structs import replace

from remit_orchestrator.text.conflicts.clauses import (
    DIGIT,
    FIGURE,
    NO_LABELS,
    WEEKDAY,
    Clause,
    action_of,
    is_instruction,
    is_predicate,
    kind_of,
    labels,
    small,
    standard_words,
    state_of,
    tells_apart,
)
from remit_orchestrator.text.conflicts.named_values import NamedValue, may_name_value, named_values
from remit_orchestrator.text.figures import NAMES, Amount, Figure, Quantity, agree, distance, figures, figures_agree
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
    NOT_DENIED,
    ON_ITSELF,
    PHRASES,
    ROLES,
    stem,
)


def denied_word(token: str) -> str:
    """Return what a word denies by its prefix: `furnished` of `unfurnished`; an empty text if it denies nothing."""
    match = DENYING.fullmatch(token)
    return (match[1] or match[2]) if match else ""


OPPOSITES = {"from": "to", "to": "from"}
# What is true in Asia, or for adults, need not be true elsewhere.
SCOPES = ("in", "for", "among", "within", "across")
WAYS = frozenset((*OPPOSITES, *SCOPES))
LEADS = frozenset({"by", "to"})
# A period after one of these words limits a claim and is not the claim: 7 % over five years.
_SPANS = frozenset({"over", "for", "within", "after", "in", "during"})
_OF_A_TIME = frozenset({"for", "in", "of", "from", "on", "since", "during"})
NOW = ("now", "")
# "Was closed", "is open again since noon": each at its time.
PAST = ("past", "")
# "Was critical on Monday" says nothing about now; what was paid on Monday is paid.
WAS_SO = ("past", "state")
_PAST = frozenset({"was", "were", "had"})
_SINCE_THEN = frozenset({"again", "since", "meanwhile"})
# "Some rooms are free", "some rooms are occupied": of several things, each may be so of a part.
SOME_OF_THEM = ("some", "")
_PART_OF = frozenset({"some", "many", "several", "einige", "manche", "mehrere"})
_PERIODS = (["year"], ["month"], ["week"], ["quarter"], ["season"])


class ClauseFigure(Struct, frozen=True, gc=False):
    """A figure that a clause states."""

    figure: Figure
    nouns: tuple[str, ...]
    """The things that it counts: `bed` in "12 beds"."""
    lead: str
    """`by` or `to` before it, else empty."""
    text: str
    """As written."""


# "Unfurnished" denies "furnished"; "understand" denies nothing, and nobody says what would be left of it.
DENYING = re.compile(
    r"(?:in|im|ir|il|dis)(?=[a-zäöüß]{4})"
    r"([a-zäöüß]*(?:able|ible|ed|ent|ant|al|ive|ate|ect|ful|ar|ic|ig|lich|bar|iv|iert|end|own|en|ous))"
    r"|(?:un|non-?)([a-zäöüß]{4,})"
)


# They are no opposites of "covered" and "closed".
_NOT_DENYING = frozenset({"uncovered", "discovered", "disclosed"})


class ClauseReading:
    """What the words of a clause say, read one after another."""

    def __init__(self, text: str, tokens: Sequence[str], numbers: Sequence[Figure], in_names: Collection[int]) -> None:
        self.text = text
        self.tokens = tokens
        self.words: dict[str, str] = {}
        """The stems of the subject, with their original words."""
        self.ways: list[tuple[str, str]] = []
        """What limits the clause: `("in", "asia")`, `NOW`, `PAST`."""
        self.stated: list[ClauseFigure] = []
        self.asides: list[Quantity] = []
        """Days and periods that the clause is about."""
        self.senses: dict[str, int] = {}
        """The axes of its words, with their sides; a denial turns the side: "not open" is -1 on `open`."""
        self.also: list[tuple[str, int]] = []
        """Further axes of words that stand on several: what is blocked is neither open nor approved."""
        self.kinds: list[NamedValue] = []
        """Words of a kind of which a thing has one: "marked blue"."""
        self.opposites: list[tuple[str, str]] = []
        """Words such as "unfurnished", with what they deny."""
        self.absent: list[tuple[Figure, frozenset[str]]] = []
        """Things of which there are none."""
        self.conditions: list[Quantity] = []
        """Figures under which something is so: "solid at 10 degrees"."""
        self.advice = 0
        """1 if it advises for something, -1 if against it."""
        self.universal = self.denied = self.negated = self.hedged = False
        self._in_names = in_names
        self._several = len(numbers) > 1
        self._numbers = iter(numbers)
        self._last = ""
        self._reference = ""
        """`than` after this word: what follows is not spoken of, but compared with."""
        verb = next((place for place, token in enumerate(tokens) if token in CLAUSE_VERBS), len(tokens))
        self._verb = verb if verb < len(tokens) else 0
        if tokens[0] in IMPERATIVES and verb in (0, len(tokens)) and is_instruction(tokens):
            self.advice = 1
        for place, token in enumerate(tokens):
            role = ROLES.get(token)
            if role == "axis" and tells_apart(tokens, place, verb, bool(numbers)):
                role = None
            if token == FIGURE:
                self._read_figure(place)
                if "only" in tokens[max(0, place - 1) : place + 3]:
                    self.also.append(("all", -1))
            elif len(token) == 1 and self._last in LABELS and token.isalpha():
                self.words[f"{self._last} {token}"] = token
            elif token in _FEW and "only" in tokens[max(0, place - 2) : place + 3]:
                self.also.append(("all", -1))
            elif role is None or (token == "this" and tokens[place + 1 : place + 2] in _PERIODS):
                plain = role is None and tokens[0] != "there" and is_predicate(tokens, place, verb)
                state = action_of(token) if self.advice else state_of(token) if plain else None
                if state is not None:
                    self._read_state(*state)
                else:
                    self._read_word(token, denied_word(token) if role is None else "")
                    self._read_kind(token, place, verb)
            else:
                self._read_role(role, place)
            if token == "than":
                self._reference = "than "
            if token in ALL_OF:
                self.also.append(("all", -1 if self.denied else 1))
            if token in _PART_OF and place < verb:
                self.ways.append(SOME_OF_THEM)
            if token in _SINCE_THEN and verb < len(tokens) and tokens[verb] not in _PAST:
                self.ways.append(NOW)
            if token != "the":
                self._last = token
        if verb < len(tokens) and tokens[verb] in _PAST:
            self.ways.append(PAST)
            if not any(token.endswith(("ed", "en")) for token in tokens[verb + 1 :]):
                self.ways.append(WAS_SO)

    def _read_figure(self, place: int) -> None:
        figure, last = next(self._numbers), self._last
        written = self.text[figure.start : figure.end]
        if (before := self.tokens[max(0, place - 2) : place]) == _AS_OF or (self._reference and before[0] == "than"):
            self.asides.append(figure.quantity)
        elif place < self._verb and last in _OF_A_TIME and not isinstance(figure.quantity, Amount):
            self.asides.append(figure.quantity)  # "the return for 2023 was late"
        elif self._several and last in _SPANS and (span := _span(figure.quantity)):
            self.asides.append(span)
        elif place in self._in_names:
            # Order 4411 is not order 4412.
            self.words[f"{last} {written}"] = written
        else:
            if last == "at":
                self.conditions.append(figure.quantity)
            self.stated.append(
                ClauseFigure(figure, counted_nouns(self.tokens, place), last if last in LEADS else "", written)
            )

    def _read_word(self, token: str, denying: str) -> None:
        """Read a word about the subject; *denying* is what its prefix denies."""
        denied = AXES.get(denying)
        if denied is None and token.startswith("un"):
            denied = state_of(denying)  # "insured" is not the opposite of what is sure
        if denied is not None and token not in _NOT_DENYING:
            self._read_state(denied[0], -denied[1])
            return
        root = self._reference + stem(token)
        self.words.setdefault(root, token)
        if self._last in WAYS:
            self.ways.append((self._last, root))
        if denying:
            self.opposites.append((root, stem(denying)))

    def _read_state(self, axis: str, sign: int) -> None:
        """Read a word for a state that has an opposite."""
        # "We do not recommend buying": the advice is denied, and not what it is about.
        sign = -sign if self.denied and not self.advice else sign
        # A clause that says both says neither.
        self.senses[axis] = sign if self.senses.get(axis, sign) == sign else 0
        self.denied = False

    def _read_kind(self, token: str, place: int, verb: int) -> None:
        """Read a word of a kind of which a thing has only one, such as a colour."""
        kind = kind_of(token)
        on_a_day = kind == WEEKDAY and (place > verb or verb == len(self.tokens))
        if on_a_day or (kind and is_predicate(self.tokens, place, verb)):
            self.kinds.append(NamedValue(kind, frozenset([token]), token, (token,)))

    def _read_role(self, role: str, place: int) -> None:
        """Read a word by its function in the sentence."""
        token = self.tokens[place]
        if role == "axis":
            if (more := state_of(token)) is not None:
                self.also.append((more[0], -more[1] if self.denied else more[1]))
            self._read_state(*AXES[token])
        elif role == "negation":
            self._read_negation(token, place)
        elif role == "advice":
            self.advice = self.advice or ADVICE[token]
        elif role == "hedge":
            self.hedged = self.hedged or token != "may" or "May" not in self.text  # a month
        elif role != "weak":
            self.ways.append(NOW)

    def _read_negation(self, token: str, place: int) -> None:
        following = self.tokens[place + 1 : place + 2]
        if not following:
            # "Die Versicherung zahlt nicht".
            self.denied, self.negated = not self.denied, self.negated or token == "not"
        # "No, it was not": the first word is an answer.
        elif following[0] not in NOT_DENIED and not (place == 0 and following[0] == ","):
            self.denied, self.negated = not self.denied, True
            self.universal = self.universal or token in _UNIVERSAL
            if token == "no" and following[0] not in ROLES and following[0] != FIGURE:
                none = Figure(Amount("number", 0.0, 0.0), 0, 0)
                self.absent.append((none, frozenset(counted_nouns(self.tokens, place))))


_FEW = frozenset({"one", "some", "few", "part", "half", "einig", "wenig"})
ALL_OF = frozenset({"all", "every", "alle", "sämtliche"})
# Denials of everything: if nothing was found, then no crack was found.
_UNIVERSAL = frozenset({"no", "nothing", "none", "nobody"})


_AS_OF = ["as", "of"]


def _span(quantity: Quantity) -> Amount | None:
    """Return a period of time, with or without "over"."""
    if not isinstance(quantity, Amount) or quantity.kind != "duration":
        return None
    return Amount("duration", quantity.low, quantity.low, quantity.slack)


def counted_nouns(tokens: Sequence[str], place: int) -> tuple[str, ...]:
    """Return the counted things: up to two words right after the number at a place."""
    nouns: list[str] = []
    for token in tokens[place + 1 : place + 3]:
        if token == FIGURE or ROLES.get(token, "axis") != "axis":
            break
        nouns.append(stem(token))
    return tuple(nouns)


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
_PHRASE = re.compile(rf"\b(?:{'|'.join(' '.join(words) for words in PHRASES)})\b", re.IGNORECASE)
_FREE = re.compile(r"[a-zäöüß]{4}-?fr(?:ee|ei)", re.IGNORECASE)


def is_telling(clause: Clause) -> bool:
    """Return whether a clause has a figure, names a value, or says something that has an opposite; many do not."""
    text = clause.text
    if DIGIT.search(text) or may_name_value(text) or _PHRASE.search(text) or _FREE.search(text):
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
    numbers = figures(text)[:_FIGURES]
    tokens = standard_words(text, numbers)
    in_names = labels(text, tokens, numbers) if numbers else NO_LABELS
    values = [] if numbers and any(isinstance(each.quantity, Amount) for each in numbers) else named_values(text)
    if not tokens:
        return [], None
    read = ClauseReading(text, tokens, numbers, in_names)
    words = read.words
    if not words or tokens[0] == "here" or not ON_ITSELF.isdisjoint(words):
        return [], None
    ways = frozenset(read.ways) if read.ways else _NO_WAYS
    subject = Subject(frozenset(words), clause.context, ways, tuple(read.asides), _head(tokens))
    return _claims_of(read, subject, values, numbers)


def _claims_of(
    read: ClauseReading, subject: Subject, values: Sequence[NamedValue], numbers: Sequence[Figure]
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
        kept_values = [value for value in (*values, *read.kinds) if not senses or value.lead in ("by", "by the")]
        made += _value_claims(subject, kept_values, numbers, about)
    made += [Claim(subject, none, nouns, text=text, about=about) for none, nouns in read.absent]
    made += _axis_claims(subject, read, about)
    whole = Affirmed(subject, senses, [each.figure for each in read.stated], text, about)
    for root, opposite in () if read.negated else read.opposites:
        claim = whole.claim(-1)
        made.append(replace(claim, subject=replace(claim.subject, words=claim.subject.words - {root} | {opposite})))
    if not read.denied:
        return made, whole
    made.append(whole.claim(-1, "no" if read.universal else ""))
    if read.tokens[0] == "don't" or read.tokens[:2] == ["do", "not"]:
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
    subject: Subject, values: Sequence[NamedValue], numbers: Sequence[Figure], about: tuple[tuple[str, str], ...]
) -> Iterator[Claim]:
    """Return a claim for each name or place; what it is about are the other words of the clause."""
    at = subject.at + tuple(each.quantity for each in numbers)
    for value in values:
        roots = value.roots()
        words = subject.words - roots
        if words:
            on = Subject(words, subject.context, subject.ways, at, subject.head)
            named = tuple(pair for pair in about if pair[0] not in roots)
            yield Claim(on, lead=value.lead, value=value.words, text=value.text, about=named)


_NO_SENSES: frozenset[tuple[str, int]] = frozenset()
_NO_WAYS: frozenset[tuple[str, str]] = frozenset()


def _figure_claims(
    subject: Subject, stated: list[ClauseFigure], senses: dict[str, int], about: tuple[tuple[str, str], ...]
) -> Iterator[Claim]:
    words = subject.words.union(senses) if senses else subject.words
    sense_items = frozenset(senses.items())
    if len(stated) == 1:
        only = stated[0]
        figure_subject = subject if words is subject.words else replace(subject, words=words)
        yield Claim(figure_subject, only.figure, frozenset(only.nouns), only.lead, sense_items, "", 0, only.text, about)
        return
    moments = tuple(each.figure.quantity for each in stated if not isinstance(each.figure.quantity, Amount))
    # On 4 March sales were 500: the day is not the claim.
    aside = 0 < len(moments) < len(stated) and subject.words.isdisjoint(EVENTS)
    at = subject.at + moments if aside else subject.at
    figure_subject = Subject(words, subject.context, subject.ways, at, subject.head)
    counted = {noun for each in stated for noun in each.nouns}
    for each in stated:
        nouns = each.nouns
        if not (aside and not isinstance(each.figure.quantity, Amount)):
            named = tuple(pair for pair in about if pair[0] not in counted or pair[0] in nouns) if counted else about
            yield Claim(figure_subject, each.figure, frozenset(nouns), each.lead, sense_items, "", 0, each.text, named)


def _head(tokens: Sequence[str]) -> str:
    """Return the last of the words before the verb or a preposition; empty if that is not how a clause begins."""
    head = ""
    for token in tokens:
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
