"""Signed statements that records were removed on purpose, and what they cover."""

import hashlib
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple

from msgspec.structs import replace

from remit.protocol.codec import encode
from remit.protocol.records import Removal
from remit.runtime.signing import CheckpointKey, is_signed

Removed = Literal["gone", "outlined"]


class RemovedRow(NamedTuple):
    """What is kept of a removed row for the chain."""

    seq: int
    leaf: bytes
    """The digest of its content; empty for a row of version 6, whose own digest was made without it."""
    digest: bytes | None
    """Its own digest, where that was kept."""
    outline: bytes | None = None
    """The digest of its outline; None if nothing of the content was kept."""


def signed_bytes(removal: Removal) -> bytes:
    """Return the bytes that the signature of a statement covers."""
    return b"remit audit removal\n" + encode(replace(removal, signature=""))


def sign_removal(key: CheckpointKey, removal: Removal) -> Removal:
    """Return the statement, signed with *key*."""
    draft = replace(removal, key=key.public.hex(), signature="")
    return replace(draft, signature=key.sign(signed_bytes(draft)).hex())


def is_genuine(removal: Removal) -> bool:
    """Return whether the owner of its key signed the statement."""
    return is_signed(signed_bytes(removal), removal.key, removal.signature)


class Outlines:
    """The digest of what is kept of a segment's outlined rows, in order."""

    def __init__(self) -> None:
        self._hash = hashlib.sha256()
        self._any = False

    def add(self, seq: int, outline: bytes) -> None:
        self._any = True
        self._hash.update(seq.to_bytes(8) + outline)

    def digest(self) -> str:
        return self._hash.hexdigest() if self._any else ""


def ranges(numbers: Iterable[int]) -> tuple[int, ...]:
    """Return ascending numbers as pairs of the first and the last of each range, one after another."""
    found: list[int] = []
    for number in numbers:
        if found and number == found[-1] + 1:
            found[-1] = number
        else:
            found += (number, number)
    return tuple(found)


def pairs(flat: Sequence[int]) -> list[tuple[int, int]]:
    """Return ranges as pairs."""
    return list(zip(flat[::2], flat[1::2], strict=False))


def newest(removals: Iterable[Removal]) -> list[Removal]:
    """Return the newest statement about each segment, in order; of those given, the later ones are newer."""
    return sorted({(each.first, each.last): each for each in removals}.values(), key=lambda each: each.first)


class Coverage:
    """Which rows genuine statements say to have been removed."""

    def __init__(self, removals: Iterable[Removal]) -> None:
        self.statements = newest(removals)
        found: list[tuple[int, int, Removed, int]] = []
        for place, each in enumerate(self.statements):
            found.extend((first, last, "gone", place) for first, last in pairs(each.gone))
            found.extend((first, last, "outlined", place) for first, last in pairs(each.outlined))
        self._ranges = sorted(found)
        self._firsts = [first for first, *_ in self._ranges]

    def of(self, seq: int) -> tuple[Removed, int] | None:
        """Return how a row was removed, and the place of the statement that says so."""
        place = bisect_right(self._firsts, seq) - 1
        if place < 0:
            return None
        _, last, how, statement = self._ranges[place]
        return (how, statement) if seq <= last else None
