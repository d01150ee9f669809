"""The state of a search for conflicts, and how components are divided into sides.

Owners are components, as the bits of a number: 0b101 is the first and the third.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import Protocol, TypeVar

from msgspec import Struct

from remit.protocol.envelope import Json
from remit.words.components import in_words
from remit_orchestrator.text.clauses import content
from remit_orchestrator.text.conflicts.fields import Meaning, meaning
from remit_orchestrator.text.conflicts.result_fields import PlacedValue
from remit_orchestrator.text.lexicon import word_set

# Names of fields that only wrap the content.
_WRAPPING = word_set("dispute.wrapping")


class OwnedStatement(Protocol):
    """A statement and its owners, one bit for each."""

    @property
    def owners(self) -> int: ...


S = TypeVar("S", bound=OwnedStatement)


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


class Search:
    """What a search has found so far, with what it has read once and needs again."""

    def __init__(self) -> None:
        self.disputes: list[Dispute] = []
        self.agreeing = 0
        """How many comparisons of two components agreed."""
        self.comparisons = 0
        self.complete = True
        """False if there was more to compare than the limits allow."""
        self._meanings: dict[PlacedValue, Meaning | None] = {}
        self._words: dict[str, tuple[tuple[str, str], ...]] = {}

    def meaning(self, held: PlacedValue) -> Meaning | None:
        """Return the meaning of a value, computed once."""
        if held not in self._meanings:
            self._meanings[held] = meaning(held.value, held.name)
        return self._meanings[held]

    def about(self, path: str) -> tuple[tuple[str, str], ...]:
        """Return the stems of the meaningful words of a path; the common part of many paths is read once."""
        above, _, last = path.rpartition(".")
        if not above or "]" in last:
            return tuple(dict(content(in_words(path), _WRAPPING)).items())
        for part in (above, last):
            if part not in self._words:
                self._words[part] = tuple(content(in_words(part), _WRAPPING))
        return tuple(dict((*self._words[above], *self._words[last])).items())


def everybody(side: Iterable[OwnedStatement]) -> int:
    """Return all owners of the statements of a side."""
    return union([each.owners for each in side])


def union(several: Iterable[int]) -> int:
    """Return the union of these sets of owners."""
    owners = 0
    for each in several:
        owners |= each
    return owners


@lru_cache(maxsize=4096)
def members(owners: int) -> tuple[int, ...]:
    """Return the numbers of the owners in a set, in order."""
    return tuple(place for place in range(owners.bit_length()) if owners >> place & 1)


def sides_of(said: Iterable[S], verdict: Callable[[S, S], bool | None]) -> list[list[S]]:
    """Divide statements into sides: each joins the first side with whose first statement it agrees.

    One that agrees with none opens a side of its own if it contradicts another side, and is left out if it cannot be
    compared with any.
    """
    sides: list[list[S]] = []
    for each in said:
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


def disputed(sides: list[list[S]]) -> list[list[S]]:
    """Return the sides that contradict another one: each has a component that is not on the other."""
    owners = [everybody(side) for side in sides]
    if len(sides) == 2:
        return sides if owners[0] & ~owners[1] and owners[1] & ~owners[0] else []
    return [
        side
        for side, here in zip(sides, owners, strict=True)
        if any(here & ~other and other & ~here for other in owners)
    ]


def tally(search: Search, sides: Sequence[int]) -> None:
    """Count the comparisons of two components, and how many agreed."""
    everybody = places = agreeing = 0
    for side in sides:
        everybody |= side
        number = side.bit_count()
        places += number
        agreeing += number * (number - 1)
    number = everybody.bit_count()
    search.comparisons += number * (number - 1)
    if places > number:
        # An owner on two sides agrees with both.
        agreeing = sum(union([side for side in sides if side >> one & 1]).bit_count() - 1 for one in members(everybody))
    search.agreeing += agreeing
