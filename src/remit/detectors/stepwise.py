"""Python's own patterns over long texts, a step at a time.

A search holds the interpreter until it finds something, and so it holds the event loop of a thread beside it.
"""

import re
from collections.abc import Iterator

# Some milliseconds for the slowest pattern.
STEP = 65_536
_WIDEST = 64
_LETTER = re.compile(rb"[A-Za-z]")


def find_narrow(
    pattern: re.Pattern[bytes], data: bytes, start: int = 0, end: int | None = None
) -> Iterator[re.Match[bytes]]:
    """Yield what *pattern* finds, of which nothing is wider than 64 bytes, what it looks ahead to included."""
    end = len(data) if end is None else end
    while start < end:
        stop = min(start + STEP, end)
        for found in pattern.finditer(data, start, min(stop + _WIDEST, end)):
            if found.start() >= stop:
                break
            yield found
            start = found.end()
        start = max(start, stop)


def find_without_letters(pattern: re.Pattern[bytes], data: bytes) -> Iterator[re.Match[bytes]]:
    """Yield what *pattern* finds, however wide, in which there is never an ASCII letter."""
    start, end = 0, len(data)
    while start < end:
        letter = _LETTER.search(data, min(start + STEP, end))
        stop = end if letter is None else letter.end()
        yield from pattern.finditer(data, start, stop)
        start = stop
