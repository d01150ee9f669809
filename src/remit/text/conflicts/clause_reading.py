"""What the words of one clause say: figures, subject, opposites and negations."""

import re
from collections.abc import Collection, Sequence

from msgspec import Struct

from remit.text.clauses import FIGURE
from remit.text.conflicts.reading import tells_apart
from remit.text.quantities import Amount, Figure, Quantity
from remit.text.vocabulary import (
    ADVICE,
    AXES,
    CLAUSE_VERBS,
    LABELS,
    NOT_DENIED,
    ROLES,
    stem,
)

OPPOSITES = {"from": "to", "to": "from"}
# What is true in Asia, or for adults, need not be true elsewhere.
SCOPES = ("in", "for", "among", "within", "across")
WAYS = frozenset((*OPPOSITES, *SCOPES))
LEADS = frozenset({"by", "to"})
# A period after one of these words limits a claim and is not the claim: 7 % over five years.
_SPANS = frozenset({"over", "for", "within", "after", "in", "during"})
NOW = ("now", "")
# "Some rooms are free", "some rooms are occupied": of several things, each may be so of a part.
SOME_OF_THEM = ("some", "")
_PART_OF = frozenset({"some", "many", "several", "einige", "manche", "mehrere"})
_PERIODS = (["year"], ["month"], ["week"], ["quarter"], ["season"])


class ClauseFigure(Struct, frozen=True, gc=False):
    """A figure of a clause."""

    figure: Figure
    nouns: tuple[str, ...]
    lead: str
    text: str


# "Unfurnished" denies "furnished"; "understand" denies nothing, and nobody says what would be left of it.
DENYING = re.compile(
    r"(?:un|in|im|ir|il|dis|non-?)(?=[a-zäöüß]{4})"
    r"([a-zäöüß]*(?:able|ible|ed|ent|ant|al|ive|ate|ect|ful|ar|ic|ig|lich|bar|iv|iert|end|own|en))"
)


class ClauseReading:
    """What the words of a clause say, read one after another."""

    def __init__(self, text: str, said: Sequence[str], found: Sequence[Figure], in_names: Collection[int]) -> None:
        self.text = text
        self.said = said
        self.words: dict[str, str] = {}
        """The stems of the subject, with their original words."""
        self.ways: list[tuple[str, str]] = []
        self.stated: list[ClauseFigure] = []
        self.asides: list[Quantity] = []
        """Days and periods that the clause is about."""
        self.senses: dict[str, int] = {}
        """What is affirmed (1) or denied (-1), by the axis of the opposites."""
        self.opposites: list[tuple[str, str]] = []
        """Words such as "unfurnished", with what they deny."""
        self.absent: list[tuple[Figure, frozenset[str]]] = []
        """Things of which there are none."""
        self.advice = 0
        self.universal = self.denied = self.negated = self.hedged = False
        self._in_names = in_names
        self._several = len(found) > 1
        self._numbers = iter(found)
        self._last = ""
        verb = next((place for place, token in enumerate(said) if token in CLAUSE_VERBS), len(said))
        for place, token in enumerate(said):
            role = ROLES.get(token)
            if role == "axis" and tells_apart(said, place, verb, bool(found)):
                role = None
            if token == FIGURE:
                self._read_figure(place)
            elif len(token) == 1 and self._last in LABELS and token.isalpha():
                self.words[f"{self._last} {token}"] = token
            elif role is None or (token == "this" and said[place + 1 : place + 2] in _PERIODS):
                self._read_word(token, DENYING.fullmatch(token) if role is None else None)
            else:
                self._read_role(role, place)
            if token in _PART_OF and place < verb:
                self.ways.append(SOME_OF_THEM)
            if token != "the":
                self._last = token

    def _read_figure(self, place: int) -> None:
        figure, last = next(self._numbers), self._last
        written = self.text[figure.start : figure.end]
        if last == "of" and self.said[max(0, place - 2) : place] == _AS_OF:
            self.asides.append(figure.quantity)
        elif self._several and last in _SPANS and (span := _span(figure.quantity)):
            self.asides.append(span)
        elif place in self._in_names:
            # Order 4411 is not order 4412.
            self.words[f"{last} {written}"] = written
        else:
            self.stated.append(
                ClauseFigure(figure, counted_nouns(self.said, place), last if last in LEADS else "", written)
            )

    def _read_word(self, token: str, denying: re.Match[str] | None) -> None:
        """Read a word about the subject; *denying* is the match of a prefix that denies the rest of it."""
        if denying and denying[1] in AXES:
            axis, sign = AXES[denying[1]]
            self.senses[axis] = sign if self.denied else -sign
            self.denied = False
            return
        root = stem(token)
        self.words.setdefault(root, token)
        if self._last in WAYS:
            self.ways.append((self._last, root))
        if denying:
            self.opposites.append((root, stem(denying[1])))

    def _read_role(self, role: str, place: int) -> None:
        """Read a word by its function in the sentence."""
        token = self.said[place]
        if role == "axis":
            axis, sign = AXES[token]
            sign = -sign if self.denied else sign
            # A clause that says both says neither.
            self.senses[axis] = sign if self.senses.get(axis, sign) == sign else 0
            self.denied = False
        elif role == "negation":
            self._read_negation(token, place)
        elif role == "advice":
            self.advice = self.advice or ADVICE[token]
        elif role == "hedge":
            self.hedged = self.hedged or token != "may" or "May" not in self.text  # a month
        elif role != "weak":
            self.ways.append(NOW)

    def _read_negation(self, token: str, place: int) -> None:
        following = self.said[place + 1 : place + 2]
        if not following:
            # "Die Versicherung zahlt nicht".
            self.denied, self.negated = not self.denied, self.negated or token == "not"
        # "No, it was not": the first word is an answer.
        elif following[0] not in NOT_DENIED and not (place == 0 and following[0] == ","):
            self.denied, self.negated = not self.denied, True
            self.universal = self.universal or token in _UNIVERSAL
            if token == "no" and following[0] not in ROLES and following[0] != FIGURE:
                none = Figure(Amount("number", 0.0, 0.0), 0, 0)
                self.absent.append((none, frozenset(counted_nouns(self.said, place))))


# Denials of everything: if nothing was found, then no crack was found.
_UNIVERSAL = frozenset({"no", "nothing", "none", "nobody"})


_AS_OF = ["as", "of"]


def _span(quantity: Quantity) -> Amount | None:
    """Return a period of time, with or without "over"."""
    if not isinstance(quantity, Amount) or quantity.kind != "duration":
        return None
    return Amount("duration", quantity.low, quantity.low, quantity.slack)


def counted_nouns(said: Sequence[str], place: int) -> tuple[str, ...]:
    """Return the counted things: up to two words right after the number at a place."""
    nouns: list[str] = []
    for token in said[place + 1 : place + 3]:
        if token == FIGURE or ROLES.get(token, "axis") != "axis":
            break
        nouns.append(stem(token))
    return tuple(nouns)
