"""A text as detectors read it: one byte a character, disguises taken off, every byte traced back to the original."""

import re
import unicodedata
from collections.abc import Sequence
from typing import NamedTuple

# What becomes of characters that have no likeness in ASCII. Ideographs are told apart because they are written
# without spaces: in `请联系a@example.org谢谢` they are not part of the address.
LETTER = b"\xff"
IDEOGRAPH = b"\xfe"
BLANK = b"\x80"

# Letters that show nothing.
_FILLERS = frozenset("\u115f\u1160\u3164\uffa0")
# Dots that NFKC leaves as they are.
_DOTS = frozenset("\u00b7\u2022\u2027\u22c5\u2219\u3002\uff61\u30fb\u06d4\u0701\u0702\u2e31\u2e33")
_SPACES = frozenset("\u2800\u2028\u2029\u0085")
# Scripts without spaces between words: Thai to Myanmar, Khmer, kana and Han, and the ideographs beyond the first plane.
_UNSPACED = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]"
)
_DROPPED = frozenset({"Cf", "Mn", "Me"})
_LIKENESS = {"Zs": " ", "Zl": "\n", "Zp": "\n", "Pd": "-", "Sc": "$"}


class Shadow(NamedTuple):
    """The bytes to look at, and where each of them stands in the original; None if each in its own place."""

    data: bytes
    places: Sequence[int] | None

    def span(self, start: int, end: int) -> tuple[int, int]:
        """Return the span of the original that the bytes from *start* to *end* stand for."""
        if self.places is None:
            return start, end
        return self.places[start], self.places[end - 1] + 1


def plain(text: str) -> str:
    """Return *text* with digits, dots, dashes and spaces of all scripts as ASCII, and without what cannot be seen.

    The characters 0x80 to 0xff of the result stand for classes, not for themselves: letters, ideographs, the rest.
    """
    return text if text.isascii() else text.translate(_SEEN)


def shadow(text: str) -> Shadow:
    """Return the plain form of *text* as bytes, and the way back."""
    seen = plain(text)
    data = seen.encode("latin-1")
    if "\\" in seen:
        # In JSON inside a text, the end of a line would else be a letter that touches what comes next.
        data = data.replace(rb"\n", b" \n").replace(rb"\r", b" \n").replace(rb"\t", b"  ")
    if seen is text or (len(seen) == len(text) and all(len(_SEEN[ord(char)]) == 1 for char in set(text))):
        return Shadow(data, None)
    places: list[int] = []
    for place, char in enumerate(text):
        places.extend([place] * len(_SEEN[ord(char)]))
    return Shadow(data, places)


class _Seen(dict[int, str]):
    """How each character is seen, worked out when it is first met."""

    def __missing__(self, point: int) -> str:
        seen = self[point] = _likeness(chr(point))
        return seen


_SEEN = _Seen()


def _likeness(char: str) -> str:
    if char.isascii():
        return char
    if char in _FILLERS:
        return ""
    if char in _DOTS:
        return "."
    if char in _SPACES:
        return " "
    category = unicodedata.category(char)
    if category in _DROPPED:
        return ""
    if category == "Nd":
        return str(unicodedata.digit(char))
    if category in _LIKENESS:
        return _LIKENESS[category]
    if _UNSPACED.match(char):
        return IDEOGRAPH.decode("latin-1")
    same = unicodedata.normalize("NFKC", char)
    if same.isascii():
        return same
    if "\N{FRACTION SLASH}" in same or "\N{MINUS SIGN}" in same:
        return same.replace("\N{FRACTION SLASH}", "/").replace("\N{MINUS SIGN}", "-").encode("ascii", "ignore").decode()
    return (LETTER if category[0] == "L" else BLANK).decode("latin-1")
