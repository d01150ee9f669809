"""Searches for contradictions between components: in fields of one place, and in sentences with the same words.

Owners are components, as the bits of a number: 0b101 is the first and the third. What components say of one thing is
divided into sides; a component that agrees with any value of another does not contradict it.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from itertools import combinations
from typing import NamedTuple

from msgspec import Struct

from remit.protocol.envelope import Json
from remit.words.components import Component, Conflict, Findings, ReportedValue, Severity, in_words, short_value
from remit_orchestrator.text.conflicts.assertions import Assertion, SentenceFrame, assertions
from remit_orchestrator.text.conflicts.fields import (
    Meaning,
    PlacedValue,
    Places,
    ResultFields,
    agreed,
    difference,
    field_at,
    is_prose,
    meaning,
)
from remit_orchestrator.text.figures import Amount, Figure
from remit_orchestrator.text.lexicon import word_set
from remit_orchestrator.text.vocabulary import stem

# Names of fields that only wrap the content.
_WRAPPING = word_set("dispute.wrapping")
# More fields than this of one component are ignored: a result of 10 KB has some 500 fields.
_FIELDS = 5_000
# More sentences than this of one component are ignored: a text of 10 KB has some 150.
_SENTENCES = 1_000
_CHARACTERS = 100_000
# What is said in more ways than this is not one thing.
_CROWD = 200
# Nobody reads more.
_LISTED, _QUOTED = 100, 160
_ORDER: tuple[Severity, ...] = ("high", "medium", "low")
# In a field with a decision, any difference is grave.
_DECISIONS = word_set("result.decisions")


class Dispute(Struct, frozen=True, gc=False):
    """A point on which components contradict each other."""

    path: str
    """The place in the results, or the words that the texts share."""
    about: str
    """The same for people to read."""
    distance: float
    """How far apart the sides are: 0 is nearly the same, 1 or more has nothing in common."""
    sides: list[list[tuple[Json, int]]]
    """For each side, its values, each with its owners."""


class _Owned(NamedTuple):
    """A value with its meaning and its owners."""

    value: Json
    owners: int
    meaning: Meaning


class Search:
    """What a search has found so far."""

    def __init__(self) -> None:
        self.disputes: list[Dispute] = []
        self.agreeing = 0
        """How many comparisons of two components agreed."""
        self.comparisons = 0
        self.complete = True
        """False if there was more to compare than the limits allow."""

    def compare(self, values: Iterable[_Owned], path: str, about: str, *, grave: bool = False) -> None:
        """Compare what components say of one thing, and count the comparisons of two components."""
        # The most exact value comes first: rounded values agree with it.
        sides = _sides_of(sorted(values, key=_exactness), lambda one, other: agreed(one.meaning, other.meaning))
        self._count([_everybody(side) for side in sides])
        sides = _disputed(sides)
        if len(sides) > 1:
            far = max(difference(one[0].meaning, other[0].meaning) for one, other in combinations(sides, 2))
            pairs = [[(each.value, each.owners) for each in side] for side in sides]
            self.disputes.append(Dispute(path, about, 1.0 if grave else far, pairs))

    def _count(self, sides: Sequence[int]) -> None:
        everybody = _union(sides)
        number = everybody.bit_count()
        self.comparisons += number * (number - 1)
        # An owner on two sides agrees with both.
        for one in _members(everybody):
            self.agreeing += _union([side for side in sides if side >> one & 1]).bit_count() - 1


def _everybody(side: Iterable[_Owned]) -> int:
    return _union([each.owners for each in side])


def _union(several: Iterable[int]) -> int:
    owners = 0
    for each in several:
        owners |= each
    return owners


@lru_cache(maxsize=4096)
def _members(owners: int) -> tuple[int, ...]:
    """Return the numbers of the owners in a set, in order."""
    return tuple(place for place in range(owners.bit_length()) if owners >> place & 1)


def _sides_of(values: Iterable[_Owned], verdict: Callable[[_Owned, _Owned], bool | None]) -> list[list[_Owned]]:
    """Divide values into sides: each joins the first side with whose first value it agrees.

    One that agrees with none opens a side of its own if it contradicts another side, and is left out if it cannot be
    compared with any.
    """
    sides: list[list[_Owned]] = []
    for each in values:
        opposed = not sides
        for side in sides:
            agrees = verdict(each, side[0])
            if agrees:
                side.append(each)
                break
            opposed = opposed or agrees is False
        else:
            if opposed:
                sides.append([each])
    return sides


def _disputed(sides: list[list[_Owned]]) -> list[list[_Owned]]:
    """Return the sides that contradict another one: each has a component that is not on the other."""
    owners = [_everybody(side) for side in sides]
    return [
        side
        for side, here in zip(sides, owners, strict=True)
        if any(here & ~other and other & ~here for other in owners)
    ]


def _exactness(owned: _Owned) -> tuple[float, str]:
    numbers = owned.meaning.figures
    slack = numbers[0].quantity.slack if numbers and isinstance(numbers[0].quantity, Amount) else 0.0
    return slack, repr(owned.value)


def find(components: Sequence[Component]) -> Findings:
    """Return the contradictions between components, the gravest first, and how far they agree.

    Components are compared if they answer the same question; of others, only the fields that hold the same thing. A
    value that only one of them gives is not a conflict, nor is one that is rounded, written differently, or in
    another unit. The order of the components changes only the order in which they are named.
    """
    search = Search()
    by_question: dict[str, list[int]] = defaultdict(list)
    for owner, component in enumerate(components):
        by_question[component.question].append(owner)
    for owners in by_question.values():
        if len(owners) > 1:
            taken = ResultFields(_FIELDS)
            for owner in owners:
                taken.take(components[owner].result, owner)
            search.complete = search.complete and taken.complete
            _compare_fields(search, taken.places)
            _compare_sentences(search, taken.places)
    _compare_same_fields(search, components)
    conflicts = [conflict_of(dispute, components) for dispute in search.disputes]
    conflicts.sort(key=lambda each: (_ORDER.index(each.severity), each.path))
    return Findings(
        conflicts=tuple(conflicts[:_LISTED]),
        agreement=search.agreeing / search.comparisons if search.comparisons else 1.0,
        complete=search.complete and len(conflicts) <= _LISTED,
    )


def conflict_of(dispute: Dispute, components: Sequence[Component]) -> Conflict:
    """Return a dispute as users and programs are told of it."""

    def trust(owners: int) -> float:
        # A source that does not state its confidence cannot be preferred to one that does.
        rated = [each for owner in _members(owners) if (each := components[owner].confidence) is not None]
        return round(max(rated), 2) if rated else -1.0

    sides: list[tuple[float, tuple[int, ...], Json]] = []
    for one_side in dispute.sides:
        if len(one_side) == 1:
            value, owners = one_side[0]
        else:
            value = min(one_side, key=lambda each: (-trust(each[1]), str(each[0])))[0]
            owners = _union([each for _, each in one_side])
        sides.append((trust(owners), _members(owners), value))
    sides.sort(key=lambda side: (-side[0], side[1]))
    severity: Severity = "high" if dispute.distance > 0.1 else "medium" if dispute.distance > 0.01 else "low"
    preferred = sides[0][2] if sides[0][0] > sides[1][0] else None
    question = None
    if preferred is None and severity != "low":
        values = ", or ".join(short_value(value) or "…" for _, _, value in sides)
        question = f"The sources disagree on {dispute.about}: {values}. Which one should count?"
    return Conflict(
        path=dispute.path,
        severity=severity,
        values=tuple(
            [ReportedValue(value, tuple([components[each].name for each in owners])) for _, owners, value in sides]
        ),
        preferred=preferred,
        question=question,
    )


# ── fields and sentences ──────────────────────────────────────────────────────────────────────────────────────────────


def _compare_fields(search: Search, places: Places) -> None:
    for values in places.values():
        several = list(values.values())
        owned = [_Owned(each.value, each.owners, own) for each in several if (own := meaning(each.value, each.name))]
        path = min(each.path for each in several)
        search.compare(owned, path, in_words(path), grave=not _DECISIONS.isdisjoint(several[0].name))


def _compare_same_fields(search: Search, components: Sequence[Component]) -> None:
    """Compare the fields that hold the same thing, unless they have been compared because they have the same place."""
    places: dict[str, set[tuple[str, str]]] = defaultdict(set)
    for component in components:
        for path, thing in component.same_as:
            places[thing].add((component.question, path))
    taken = ResultFields(_FIELDS)
    for owner, component in enumerate(components):
        for path, thing in component.same_as:
            if len(places[thing]) > 1:
                taken.take_field(thing, path, field_at(component.result, path), owner)
    search.complete = search.complete and taken.complete
    _compare_fields(search, taken.places)


def _compare_sentences(search: Search, places: Places) -> None:
    """Compare sentences with each other and with fields of the same words."""
    framed: dict[SentenceFrame, dict[tuple[str, str], tuple[Assertion, int]]] = defaultdict(dict)
    count: dict[int, int] = defaultdict(int)
    fields: list[tuple[PlacedValue, bool]] = []
    for values in places.values():
        for held in values.values():
            text = "\n".join(_sentences_in(held))
            if not text:
                fields.append((held, len(values) == held.owners.bit_count() == 1))
                continue
            room = _SENTENCES - max(count[owner] for owner in _members(held.owners))
            several, number = assertions(text[:_CHARACTERS], max(0, room))
            search.complete = search.complete and number <= room and len(text) <= _CHARACTERS
            for owner in _members(held.owners):
                count[owner] += number
            for each in several:
                same = each.text, repr(each.value)
                known = framed[each.frame].get(same, (each, 0))
                framed[each.frame][same] = min(known[0], each, key=lambda one: one.about), known[1] | held.owners
    for held, alone in fields:
        if (alone or framed) and (each := _field_assertion(held, alone=alone)) is not None:
            framed[each.frame][held.path, repr(held.value)] = each, held.owners
    for frame, several in framed.items():
        sources = {each.source for each, _ in several.values()}
        # What nobody denies is agreed on, and fields of one place have been compared.
        if frame.kind == "denied" and all(each.value for each, _ in several.values()):
            continue
        if "sentence" not in sources and (len(several) < 2 or sources != {"field"}):
            continue
        if len(several) > _CROWD:
            search.complete = False
            continue
        path = " ".join(min(each.about for each, _ in several.values()))
        owned = [_Owned(each.text[:_QUOTED], owners, _meaning_of(each.value)) for each, owners in several.values()]
        search.compare(owned, path, f"“{path}”")


def _sentences_in(held: PlacedValue) -> list[str]:
    """Return the texts of a field that are read sentence by sentence."""
    several = held.value if isinstance(held.value, tuple) else (held.value,)
    return [each for each in several if isinstance(each, str) and is_prose(each, held.name)]


def _field_assertion(held: PlacedValue, *, alone: bool) -> Assertion | None:
    """Return a figure of a field as a sentence says it: `price` with 100, "the price is 100"."""
    meant = None if isinstance(held.value, tuple | bool) else meaning(held.value, held.name)
    about = tuple(word for word in in_words(held.path).lower().split() if word not in _WRAPPING)
    if meant is None or len(meant.figures) != 1 or not about:
        return None
    source = "field" if alone else "shared field"
    return Assertion(
        SentenceFrame(frozenset(map(stem, about))), about, short_value(held.value) or "", meant.figures[0], source
    )


def _meaning_of(value: Figure | bool) -> Meaning:
    return Meaning(truth=value) if isinstance(value, bool) else Meaning(figures=(value,))
