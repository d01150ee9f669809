"""Searches for contradictions, and finds the conflicting value that a user's reply chooses."""

import re
from collections import defaultdict
from collections.abc import Sequence
from itertools import combinations
from typing import NamedTuple

from msgspec import Struct

from remit.protocol.envelope import Json
from remit.words.components import (
    Component,
    Conflict,
    Findings,
    ReportedValue,
    Severity,
    in_words,
    said_shortly,
)
from remit_orchestrator.text.conflicts.disputes import (
    Dispute,
    Search,
    disputed,
    everybody,
    members,
    sides_of,
    tally,
    union,
)
from remit_orchestrator.text.conflicts.fields import Meaning, agreed, difference
from remit_orchestrator.text.conflicts.result_fields import PlacedValue, Places, ResultFields
from remit_orchestrator.text.conflicts.same_fields import field_at
from remit_orchestrator.text.conflicts.statements import compare_claims
from remit_orchestrator.text.figures import figures
from remit_orchestrator.text.lexicon import word_set
from remit_orchestrator.text.quantities import Amount, figures_agree
from remit_orchestrator.text.replies import place_named

# More fields than this of one component are ignored: a result of 10 KB has some 500 fields.
_FIELDS = 5_000
# Nobody reads more.
_LISTED = 100

_ORDER: tuple[Severity, ...] = ("high", "medium", "low")
# In a field with a decision, any difference is grave.
_DECISIONS = word_set("result.decisions")


def find(components: Sequence[Component]) -> Findings:
    """Return the contradictions between components, the gravest first, and how far they agree.

    Components are compared if they answer the same question; of others, only the fields that hold the same thing. A
    value that only one of them gives is not a conflict, nor is one that is rounded, written differently, or in
    another unit. The order of the components changes only the order in which they are named.
    """
    search = Search()
    asked: dict[str, list[int]] = defaultdict(list)
    for owner, component in enumerate(components):
        asked[component.question].append(owner)
    for owners in asked.values():
        if len(owners) > 1:
            taken = ResultFields(_FIELDS)
            for owner in owners:
                taken.take(components[owner].result, owner)
            search.complete = search.complete and taken.complete
            _compare_fields(search, taken.places)
            compare_claims(search, taken.places)
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
        rated = [each for owner in members(owners) if (each := components[owner].confidence) is not None]
        return round(max(rated), 2) if rated else -1.0

    sides: list[tuple[float, tuple[int, ...], Json]] = []
    for said in dispute.sides:
        if len(said) == 1:
            value, owners = said[0]
        else:
            value = min(said, key=lambda each: (-trust(each[1]), str(each[0])))[0]
            owners = union([each for _, each in said])
        sides.append((trust(owners), members(owners), value))
    sides.sort(key=lambda side: (-side[0], side[1]))
    severity: Severity = "high" if dispute.distance > 0.1 else "medium" if dispute.distance > 0.01 else "low"
    preferred = sides[0][2] if sides[0][0] > sides[1][0] else None
    question = None
    if preferred is None and severity != "low":
        values = ", or ".join(said_shortly(value) or "…" for _, _, value in sides)
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


# ── fields ────────────────────────────────────────────────────────────────────────────────────────────────────────────


class _OwnedMeaning(Struct, frozen=True, gc=False):
    """A value of a field, its meaning and its owners."""

    held: PlacedValue
    owners: int
    meaning: Meaning


def _compare_fields(search: Search, places: Places) -> None:
    for values in places.values():
        if len(values) == 1:
            (held,) = values.values()
            tally(search, (held.owners,))
            continue
        meant = [_OwnedMeaning(held, held.owners, said) for held in values.values() if (said := search.meaning(held))]
        sides = sides_of(sorted(meant, key=_exactness), lambda one, other: agreed(one.meaning, other.meaning))
        tally(search, [everybody(side) for side in sides])
        sides = disputed(sides)
        if len(sides) > 1:
            path = min(held.path for held in values.values())
            decision = not _DECISIONS.isdisjoint(meant[0].held.name)
            far = max(difference(one[0].meaning, other[0].meaning) for one, other in combinations(sides, 2))
            said = [[(each.held.value, each.owners) for each in side] for side in sides]
            search.disputes.append(Dispute(path, in_words(path), 1.0 if decision else far, said))


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


def _exactness(meant: _OwnedMeaning) -> tuple[float, str]:
    """Return the sort key that puts the most exact value first: rounded values agree with it."""
    found = meant.meaning.figures
    slack = found[0].quantity.slack if found and isinstance(found[0].quantity, Amount) else 0.0
    return slack, repr(meant.held.value)


class Side(NamedTuple):
    """One of the conflicting values, and the names of its sources as users read them."""

    value: str
    sources: tuple[str, ...] = ()


_WORD = re.compile(r"[^\W\d_]+")
# Words that many sources have in their names.
_COMMON = frozenset({"the", "a", "an", "your", "my", "our", "of", "in", "on", "from", "what", "says", "say"})


def settled(reply: str, sides: Sequence[Side]) -> int | None:
    """Return the index of the side that a reply means: by its value, its source, or its position.

    None if it may mean several, or means none of them.
    """
    for means in (_by_value, _by_source):
        found = _longest([side for side in sides if means(reply, side)])
        if found:
            return sides.index(found[0]) if len(found) == 1 else None
    place = place_named(reply)
    return place - 1 if 0 < place <= len(sides) else None


def _longest(found: Sequence[Side]) -> list[Side]:
    """Return the sides whose values are not part of another's: "not approved" contains "approved"."""
    values = [side.value.casefold() for side in found]
    return [
        side
        for side, value in zip(found, values, strict=True)
        if not any(value in other for other in values if other != value)
    ]


def _by_value(reply: str, side: Side) -> bool:
    value = " ".join(side.value.split())
    if re.search(rf"(?<!\w){re.escape(value)}(?!\w)", " ".join(reply.split()), re.IGNORECASE):
        return True
    said = figures(side.value)
    return any(figures_agree(one, other) for one in figures(reply) for other in said)


def _by_source(reply: str, side: Side) -> bool:
    words = set(_WORD.findall(reply.casefold()))
    names = (set(_WORD.findall(source.casefold())) - _COMMON for source in side.sources)
    return any(name and name <= words for name in names)
