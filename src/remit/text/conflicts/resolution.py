"""Finds which of several conflicting values a user's reply chooses."""

import re
from collections.abc import Sequence
from typing import NamedTuple

from remit.text.figures import figures
from remit.text.quantities import figures_agree
from remit.text.replies import place_named


class Side(NamedTuple):
    """One of the values, and what those who say it are called where users read it."""

    value: str
    sources: tuple[str, ...] = ()


_WORD = re.compile(r"[^\W\d_]+")
# What a source is called by, and others are too.
_COMMON = frozenset({"the", "a", "an", "your", "my", "our", "of", "in", "on", "from", "what", "says", "say"})


def settled(reply: str, sides: Sequence[Side]) -> int | None:
    """Return the place of the side that a reply means: by its value, its source, or its place among them.

    None if it may mean several, or none of them.
    """
    for means in (_by_value, _by_source):
        found = _longest([side for side in sides if means(reply, side)])
        if found:
            return sides.index(found[0]) if len(found) == 1 else None
    place = place_named(reply)
    return place - 1 if 0 < place <= len(sides) else None


def _longest(found: Sequence[Side]) -> list[Side]:
    """Return the sides whose values are no part of another's: who says "not approved" says "approved" as well."""
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
