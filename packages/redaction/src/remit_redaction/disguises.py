"""Disguised text: look-alike letters, invisible characters, escapes.

Rules and redaction both read text through this module, so that a disguise works on neither.
"""

import re
import unicodedata
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

# Each letter of ASCII, and the letters of other scripts that look like it.
_ROWS = Path(__file__).with_name("look_alikes.txt").read_text(encoding="utf-8").splitlines()
_LOOK_ALIKES = {char: row[0] for row in _ROWS for char in row[2:]}

# Letters that are invisible.
FILLERS = frozenset("\u115f\u1160\u3164\uffa0")
# Dots that NFKC does not change.
_DOTS = frozenset("\u00b7\u2022\u2027\u22c5\u2219\u3002\uff61\u30fb\u06d4\u0701\u0702\u2e31\u2e33")
SPACES = frozenset("\u2800\u2028\u2029\u0085")
_APOSTROPHES = frozenset("\u2018\u2019\u201a\u201b\u02b9\u02bb\u02bc\u02c8\u2032\u00b4\u055a\ua78c")
_QUOTES = frozenset("\u201c\u201d\u201e\u201f\u2033\u02ba\u00ab\u00bb\u300c\u300d\u300e\u300f")
DROPPED = frozenset({"Cf", "Mn", "Me"})
_LIKENESS = {"Zs": " ", "Zl": "\n", "Zp": "\n", "Pd": "-", "Sc": "$"}

_NAMED_LATIN = re.compile(r"LATIN (?:CAPITAL|SMALL) (?:LETTER |LIGATURE )?([A-Z]{1,2})(?: WITH .*| BAR)?")
_SMALL_CAPITAL = re.compile(r"LATIN LETTER SMALL CAPITAL ([A-Z])")
# Letters in squares and circles that NFKC does not change, each row from A to Z.
_ENCLOSED = (0x1F150, 0x1F170, 0x1F1E6)


def likeness(char: str) -> str:
    """Return what *char* looks like: an ASCII character, nothing if it is invisible, or itself."""
    if char.isascii():
        return char
    if char in _LOOK_ALIKES:
        return _LOOK_ALIKES[char]
    if char in FILLERS:
        return ""
    for signs, plain in ((_DOTS, "."), (SPACES, " "), (_APOSTROPHES, "'"), (_QUOTES, '"')):
        if char in signs:
            return plain
    category = unicodedata.category(char)
    if category in DROPPED:
        return ""
    if category == "Nd":
        return str(unicodedata.digit(char))
    if category in _LIKENESS:
        return _LIKENESS[category]
    return _letter(char)


def _letter(char: str) -> str:
    same = unicodedata.normalize("NFKC", char)
    if same.isascii():
        return same
    if "\N{FRACTION SLASH}" in same or "\N{MINUS SIGN}" in same:
        return same.replace("\N{FRACTION SLASH}", "/").replace("\N{MINUS SIGN}", "-").encode("ascii", "ignore").decode()
    base = "".join(_LOOK_ALIKES.get(part, part) for part in unicodedata.normalize("NFKD", char) if is_seen(part))
    if base.isascii():
        return base
    name = unicodedata.name(char, "")
    if named := _NAMED_LATIN.fullmatch(name):
        return named[1] if char.isupper() else named[1].lower()
    if named := _SMALL_CAPITAL.fullmatch(name):
        return named[1].lower()
    for first in _ENCLOSED:
        if first <= ord(char) < first + 26:
            return chr(ord("A") + ord(char) - first)
    # Other alphabets lose their accents; syllables and ideographs are not decomposed.
    return base if len(base) == 1 else same


def is_seen(part: str) -> bool:
    return unicodedata.category(part) not in DROPPED


class _Likenesses(dict[int, str]):
    """The look-alike of each character, computed on first use."""

    def __missing__(self, point: int) -> str:
        seen = self[point] = likeness(chr(point))
        return seen


LIKENESSES = _Likenesses()

# ── escapes ───────────────────────────────────────────────────────────────────────────────────────────────────────────

# Escapes of URLs, of HTML, and of JSON and program text. A double or triple escape is read as one. Each branch begins
# with its own character, outside its group, so that the search skips all other characters at once.
_ESCAPE = re.compile(
    r"%(?P<url>(?:25){0,2}[0-9A-Fa-f]{2}(?:%(?:25){0,2}[0-9A-Fa-f]{2})*)"
    r"|&(?:amp;){0,2}(?:#[xX](?P<hex>[0-9A-Fa-f]{1,6});?|#(?P<number>[0-9]{1,7});?|(?P<name>[A-Za-z]{2,24});)"
    r"|\\\\{0,7}(?:u(?P<u>[0-9A-Fa-f]{4})|u\{(?P<braced>[0-9A-Fa-f]{1,6})\}|x(?P<x>[0-9A-Fa-f]{2}))"
)
# A search holds the interpreter until it finds something: of a long text so many characters are searched at a time.
_STEP = 50_000
# No escape is longer, except for a row of escaped bytes of a URL.
_LONGEST = 64
_URL_BYTE = re.compile(r"%(?:25){0,2}([0-9A-Fa-f]{2})")
# Characters that escapes are used to hide; other characters are escaped because they must be.
_HIDING = re.compile(r"[0-9A-Za-z@.:=_+\-]|[^\x00-\xff]")


class Unescaped(NamedTuple):
    """A text with its escapes decoded; the character at i stands for the original from starts[i] to ends[i]."""

    text: str
    starts: Sequence[int]
    ends: Sequence[int]
    hides: bool
    """Whether an escape stands for a character that needs no escape, or is in a number."""


def unescaped(text: str) -> Unescaped | None:
    """Return *text* with the escapes of URLs, HTML and JSON decoded, or None if there are none."""
    # Nearly every text ends here; a loop over the three would cost five times as much.
    if "%" not in text and "&" not in text and "\\" not in text:
        return None
    pieces: list[str] = []
    starts: list[int] = []
    ends: list[int] = []
    done = 0
    hiding = False
    for match in _escapes(text):
        decoded = _decoded(match)
        if decoded is None:
            continue
        start = match.start()
        # An escaped space may separate the groups of a number.
        hiding = hiding or text[start - 1 : start].isdigit()
        pieces.append(text[done:start])
        starts.extend(range(done, start))
        ends.extend(range(done + 1, start + 1))
        done = match.end()
        for char, size in decoded:
            hiding = hiding or _HIDING.match(char) is not None
            pieces.append(char)
            starts.extend([start] * len(char))
            start += size
            ends.extend([start] * len(char))
    if not done:
        return None
    pieces.append(text[done:])
    starts.extend(range(done, len(text)))
    ends.extend(range(done + 1, len(text) + 1))
    return Unescaped("".join(pieces), starts, ends, hiding)


def _escapes(text: str) -> Iterator[re.Match[str]]:
    """Yield all escapes of a text, searched a step at a time."""
    place = 0
    while place < len(text):
        match = _ESCAPE.search(text, place, place + _STEP + _LONGEST)
        if match is None or match.start() >= place + _STEP:
            place += _STEP
            continue
        # The end of the step may have cut it off.
        whole = _ESCAPE.match(text, match.start()) or match
        yield whole
        place = whole.end()


def _decoded(escape: re.Match[str]) -> list[tuple[str, int]] | None:
    """Return each character of an escape and its length in the source; None if the escape is invalid."""
    if escape["url"]:
        return _url_decoded(escape[0])
    if escape["name"]:
        from html.entities import html5  # few texts have named escapes

        char = html5.get(f"{escape['name']};")
    else:
        number = escape["number"]
        point = int(number) if number else int(escape["hex"] or escape["u"] or escape["braced"] or escape["x"], 16)
        char = chr(point) if point <= 0x10FFFF else None
    return None if char is None else [(char, len(escape[0]))]


def _url_decoded(escape: str) -> list[tuple[str, int]]:
    octets = [(int(match[1], 16), len(match[0])) for match in _URL_BYTE.finditer(escape)]
    raw = bytes(octet for octet, _ in octets)
    try:
        decoded = raw.decode()
    except UnicodeDecodeError:
        return [(chr(octet), size) for octet, size in octets]
    chars: list[tuple[str, int]] = []
    place = 0
    for char in decoded:
        after = place + len(char.encode())
        chars.append((char, sum(size for _, size in octets[place:after])))
        place = after
    return chars
