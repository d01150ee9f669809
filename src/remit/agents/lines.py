"""Splits a byte stream into lines of bounded length."""

from collections.abc import Iterator
from typing import NamedTuple


class OverlongLine(NamedTuple):
    """The beginning of a line that was too long; the rest is skipped."""

    head: bytes


class LineSplitter:
    """Splits chunks into lines; never holds more than *most* bytes of one line."""

    HEAD = 1_000

    def __init__(self, most: int) -> None:
        self._most = most
        self._line = bytearray()
        self._skipping = False

    def feed(self, chunk: bytes) -> Iterator[bytes | OverlongLine]:
        """Yield the lines that end in *chunk*, except empty ones."""
        first, *rest = chunk.split(b"\n")
        yield from self._grow(first)
        for piece in rest:
            if not self._skipping and self._line.strip():
                yield bytes(self._line)
            self._line.clear()
            self._skipping = False
            yield from self._grow(piece)

    def _grow(self, piece: bytes) -> Iterator[OverlongLine]:
        if self._skipping:
            return
        self._line += piece
        if len(self._line) > self._most:
            yield OverlongLine(bytes(self._line[: self.HEAD]))
            self._line.clear()
            self._skipping = True
