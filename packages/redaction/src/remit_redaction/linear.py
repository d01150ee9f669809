"""Patterns that run in linear time: those of RE2, and those of Python in steps.

A search holds the interpreter until it finds something, and so blocks the event loop of another thread.
"""

import re
import threading
import time
from collections.abc import Iterator
from functools import cache
from itertools import count
from typing import Any

# RE2 releases the interpreter for each search and takes it back before a waiting thread has woken up. In a row of
# thousands of short searches, each one makes that thread wait anew. So a pause after some of them gives other threads a
# real chance.
_IN_A_ROW = 64
_PAUSE_S = 0.0001
_searches = count(1)


def _let_others() -> None:
    if next(_searches) % _IN_A_ROW == 0 and threading.current_thread() is not threading.main_thread():
        time.sleep(_PAUSE_S)


class Linear:
    """A pattern of RE2; raises ValueError with RE2's own message if the pattern is invalid."""

    def __init__(self, pattern: bytes | str) -> None:
        import re2  # pyright: ignore[reportMissingTypeStubs]

        engine: Any = re2
        options = engine.Options()
        options.log_errors = False
        if isinstance(pattern, bytes):
            # Detectors read one byte per character.
            options.encoding = engine.Options.Encoding.LATIN1
        try:
            self._pattern: Any = engine.compile(pattern, options)
        except engine.error as error:
            reason: bytes | str = error.args[0]
            raise ValueError(reason.decode() if isinstance(reason, bytes) else reason) from error
        # A group of this name narrows the finding to its own span.
        names: Any = self._pattern.groupindex
        self._group: int = names.get(b"value" if isinstance(pattern, bytes) else "value", 0)

    def spans(self, text: bytes | str) -> Iterator[tuple[int, int]]:
        """Yield the spans of all matches in *text*."""
        _let_others()
        for match in self._pattern.finditer(text):
            _let_others()
            start, end = match.span(self._group)
            if start < end:
                yield start, end

    def matches(self, text: bytes | str) -> bool:
        """Return whether the pattern matches all of *text*."""
        _let_others()
        return self._pattern.fullmatch(text) is not None


# The slowest pattern takes some milliseconds for this.
STEP = 65_536
_WIDEST = 64
_LETTER = re.compile(rb"[A-Za-z]")


@cache
def linear_pattern(pattern: bytes) -> Linear:
    """Return a pattern of RE2, compiled once."""
    return Linear(pattern)


def find_narrow(
    pattern: re.Pattern[bytes], data: bytes, start: int = 0, end: int | None = None
) -> Iterator[re.Match[bytes]]:
    """Yield the matches of *pattern*, none of which is wider than 64 bytes, including its lookahead."""
    end = len(data) if end is None else end
    while start < end:
        stop = min(start + STEP, end)
        for match in pattern.finditer(data, start, min(stop + _WIDEST, end)):
            if match.start() >= stop:
                break
            yield match
            start = match.end()
        start = max(start, stop)


def find_without_letters(pattern: re.Pattern[bytes], data: bytes) -> Iterator[re.Match[bytes]]:
    """Yield the matches of *pattern*, of any width, which never contain an ASCII letter."""
    start, end = 0, len(data)
    while start < end:
        letter = _LETTER.search(data, min(start + STEP, end))
        stop = end if letter is None else letter.end()
        yield from pattern.finditer(data, start, stop)
        start = stop
