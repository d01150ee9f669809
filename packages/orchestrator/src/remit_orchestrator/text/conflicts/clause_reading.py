"""Reads the words of one clause, and collects what they say of its subject.

An *axis* is a pair of opposites with a name: `rise` has "rose" on its side 1 and "fell" on its side -1. A *way* limits
what a clause is about: "in Asia", "now".
"""

import re
from collections.abc import Collection, Sequence

from msgspec import Struct

from remit_orchestrator.text.clauses import FIGURE
from remit_orchestrator.text.conflicts.named_values import NamedValue
from remit_orchestrator.text.conflicts.opposites import WEEKDAY, action_of, kind_of, state_of
from remit_orchestrator.text.conflicts.reading import is_predicate, is_told, tells_apart
from remit_orchestrator.text.quantities import Amount, Figure, Quantity
from remit_orchestrator.text.vocabulary import (
    ADVICE,
    AXES,
    CLAUSE_VERBS,
    IMPERATIVES,
    LABELS,
    NOT_DENIED,
    ROLES,
    stem,
)


def denied_word(token: str) -> str:
    """Return what a word denies by its prefix: `furnished` of `unfurnished`; an empty text if it denies nothing."""
    found = DENYING.fullmatch(token)
    return (found[1] or found[2]) if found else ""


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

    def __init__(self, text: str, said: Sequence[str], found: Sequence[Figure], in_names: Collection[int]) -> None:
        self.text = text
        self.said = said
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
        self._several = len(found) > 1
        self._numbers = iter(found)
        self._last = ""
        self._reference = ""
        """`than` after this word: what follows is not spoken of, but compared with."""
        verb = next((place for place, token in enumerate(said) if token in CLAUSE_VERBS), len(said))
        self._verb = verb if verb < len(said) else 0
        if said[0] in IMPERATIVES and verb in (0, len(said)) and is_told(said):
            self.advice = 1
        for place, token in enumerate(said):
            role = ROLES.get(token)
            if role == "axis" and tells_apart(said, place, verb, bool(found)):
                role = None
            if token == FIGURE:
                self._read_figure(place)
                if "only" in said[max(0, place - 1) : place + 3]:
                    self.also.append(("all", -1))
            elif len(token) == 1 and self._last in LABELS and token.isalpha():
                self.words[f"{self._last} {token}"] = token
            elif token in _FEW and "only" in said[max(0, place - 2) : place + 3]:
                self.also.append(("all", -1))
            elif role is None or (token == "this" and said[place + 1 : place + 2] in _PERIODS):
                plain = role is None and said[0] != "there" and is_predicate(said, place, verb)
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
            if token in _SINCE_THEN and verb < len(said) and said[verb] not in _PAST:
                self.ways.append(NOW)
            if token != "the":
                self._last = token
        if verb < len(said) and said[verb] in _PAST:
            self.ways.append(PAST)
            if not any(token.endswith(("ed", "en")) for token in said[verb + 1 :]):
                self.ways.append(WAS_SO)

    def _read_figure(self, place: int) -> None:
        figure, last = next(self._numbers), self._last
        written = self.text[figure.start : figure.end]
        if (before := self.said[max(0, place - 2) : place]) == _AS_OF or (self._reference and before[0] == "than"):
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
                ClauseFigure(figure, counted_nouns(self.said, place), last if last in LEADS else "", written)
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
        on_a_day = kind == WEEKDAY and (place > verb or verb == len(self.said))
        if on_a_day or (kind and is_predicate(self.said, place, verb)):
            self.kinds.append(NamedValue(kind, frozenset([token]), token, (token,)))

    def _read_role(self, role: str, place: int) -> None:
        """Read a word by its function in the sentence."""
        token = self.said[place]
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


def counted_nouns(said: Sequence[str], place: int) -> tuple[str, ...]:
    """Return the counted things: up to two words right after the number at a place."""
    nouns: list[str] = []
    for token in said[place + 1 : place + 3]:
        if token == FIGURE or ROLES.get(token, "axis") != "axis":
            break
        nouns.append(stem(token))
    return tuple(nouns)
