"""Sealed segments of the record: the rows of one day between two signed checkpoints."""

import time
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from remit.protocol.records import Removal
from remit.runtime.audit.removal import newest
from remit.runtime.signing import Checkpoint

# A segment is removed in one transaction, which takes some 20 µs a row: with this many rows hubs wait for 0.2 s. A hub
# writes a checkpoint at least as often.
MOST_ROWS = 10_000


class SealedSegment(NamedTuple):
    """A range of whole rows up to a signed checkpoint."""

    first: int
    last: int
    seal: Checkpoint
    """The checkpoint that signed its last row."""
    sealed_ms: int
    """All of its rows were committed before this time."""

    @property
    def day(self) -> str:
        """The day on which it was sealed, in UTC."""
        return day_of(self.sealed_ms)


def segments(checkpoints: Iterable[Checkpoint | None], removals: Sequence[Removal] = ()) -> list[SealedSegment]:
    """Return the segments that the checkpoints seal, oldest first.

    A segment from which something was removed stays as it is. The others end with their day, or after `MOST_ROWS`.
    """
    fixed = {each.first: each.last for each in newest(removals)}
    found: list[SealedSegment] = []
    begun: list[Checkpoint] = []
    first = 1

    def end() -> int:
        last = begun[-1]
        found.append(SealedSegment(first, last.seq, last, last.at_ms))
        begun.clear()
        return last.seq + 1

    for seal in checkpoints:
        if seal is None or seal.seq < first or (begun and seal.seq <= begun[-1].seq):
            continue
        if begun and first not in fixed:
            last = begun[-1]
            if seal.seq - first >= MOST_ROWS or day_of(seal.at_ms) != day_of(last.at_ms) or last.seq + 1 in fixed:
                first = end()
        begun.append(seal)
        if first in fixed and seal.seq >= fixed[first]:
            first = end()
    if begun:
        end()
    return found


def day_of(at_ms: int) -> str:
    """Return the day of a time, in UTC."""
    return time.strftime("%Y-%m-%d", time.gmtime(at_ms / 1_000))
