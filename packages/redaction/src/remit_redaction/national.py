"""Numbers that states and banks issue: personal, tax and company numbers, bank codes and accounts.

A row describes a kind of number: the module of stdnum that checks it (or our own check), its format, and the words that
label it. A number is found after such a word. It is found by its format alone only if format, check digits and date
together leave hardly a chance that it is another number.
"""

import re
from collections.abc import Callable, Iterator
from functools import cache
from importlib import import_module
from typing import Any, NamedTuple

from remit.policy.verdict import Finding
from remit_redaction import context
from remit_redaction.linear import Linear
from remit_redaction.normal import spelled
from remit_redaction.tables import table, words

Check = Callable[[str], bool]


class NumberKind(NamedTuple):
    """A kind of number: what it identifies, its check, its format, and its labels."""

    kind: str
    check: str
    """A module of stdnum or, after a colon, a function of this module."""
    shape: str
    sure: str
    """The format in which it is found without a label; `-` if there is none."""
    labels: str


_DIGITS = re.compile(r"<(\d+)(?:-(\d+))?>")


@cache
def number_kinds() -> tuple[NumberKind, ...]:
    """Return the rows of `national.txt`, where their form is described."""
    return tuple(
        NumberKind(kind, check, _DIGITS.sub(_spaced_digits, shape), sure, labels)
        for kind, check, shape, sure, labels in table("national.txt")
    )


def _spaced_digits(count: re.Match[str]) -> str:
    return rf"\d(?:[ ./-]?\d){{{int(count[1]) - 1},{int(count[2] or count[1]) - 1}}}"


# How far after its label a number may be: a few words, and not beyond the next sentence.
_NEAR = 48
_LONGEST = 40
# Text that may follow a label besides its own endings: `PESEL-u`, `NIP:`, `DNI nº`.
_GAP = r"[^0-9\n]{0,%d}?"
_ENDS = rb"(?![0-9A-Za-z]|[./-]\d|,\d{3}\d)"
_STARTS = rb"(?<![0-9A-Za-z+])(?<!\d[./-])"
_DIGIT = re.compile(rb"\d")
_SEPARATORS = re.compile(rb"[ _-]")
_COMPACT = re.compile(r"[ ./-]")
_CAPITALS = frozenset(map(spelled, words("label in capitals")))
# How far after an unmistakable label.
_NEXT = 20


@cache
def _unmistakable() -> frozenset[bytes]:
    return frozenset(_SEPARATORS.sub(b"", spelled(word)) for word in words("unmistakable label"))


@cache
def _names() -> tuple[Linear, dict[bytes, tuple[int, ...]]]:
    """Return the pattern of all labels, and the rows that each label belongs to."""
    rows: dict[bytes, list[int]] = {}
    for place, row in enumerate(number_kinds()):
        for word in row.labels.split("|"):
            rows.setdefault(spelled(word), []).append(place)
    labels = sorted(rows, key=len, reverse=True)
    quoted = b"|".join(re.escape(word).replace(rb"\ ", b"[ _-]?") for word in labels)
    capital = b"|".join(re.escape(word.capitalize()) for word in labels if word.isalpha() and word.isascii())
    pattern = rb"(?:\A|[^A-Za-z])(?P<value>(?i:" + quoted + rb"))|[a-z](?:" + capital + rb")"
    return Linear(pattern), {word.replace(b" ", b""): tuple(places) for word, places in rows.items()}


@cache
def _shape(place: int) -> re.Pattern[bytes]:
    return re.compile((_GAP % _NEAR).encode() + _numbered(place) + _ENDS)


def _numbered(place: int) -> bytes:
    return _STARTS + rb"(?P<number>" + number_kinds()[place].shape.encode() + rb")"


@cache
def _may_begin_with_letter(place: int) -> bool:
    """Return whether the number may begin with a letter, so that it must be separated from the words before it."""
    return re.match(r"\(?\??:?\[?[A-Za-z]", number_kinds()[place].shape) is not None


@cache
def _before_word(place: int) -> re.Pattern[bytes]:
    return re.compile(_numbered(place) + rb"[ ,:(\x80-]{1,4}\Z")


@cache
def _formats_without_label() -> tuple[Linear, list[tuple[int, re.Pattern[bytes]]]]:
    """Return one pattern of all formats that need no label, and each format by itself."""
    shapes = [(place, row.sure) for place, row in enumerate(number_kinds()) if row.sure != "-"]
    # RE2 cannot express `the same character again`; the pattern of the row can.
    joined = "|".join(shape.replace(r"\1", "[ -]") for _, shape in shapes)
    return Linear(rf"\b(?:{joined})".encode()), [
        (place, re.compile(_STARTS + rb"(?:" + shape.encode() + rb")" + _ENDS)) for place, shape in shapes
    ]


@cache
def _check(place: int) -> Check:
    module, _, own = number_kinds()[place].check.partition(":")
    if own:
        return _OWN_CHECKS[own]
    checking: Any = import_module(f"stdnum.{module}")
    return checking.is_valid


def numbers(data: bytes) -> Iterator[Finding]:
    """Find numbers of people, companies and banks that have a label or an unmistakable format."""
    names, rows = _names()
    for start, end in names.spans(data):
        if data[start : start + 1].islower() and data[start + 1 : start + 2].isupper():
            start += 1
        word = _SEPARATORS.sub(b"", data[start:end].lower())
        places = rows.get(word) or rows.get(data[start:end].lower()) or _spaced(rows, data[start:end])
        if places and _is_word(data, start, end, word):
            yield from _find_labelled(data, start, end, places, mistyped=word in _unmistakable())
    sure, shapes = _formats_without_label()
    for start, _ in sure.spans(data):
        for place, shape in shapes:
            match = shape.match(data, start)
            if match is not None and _is_sure(data, place, match):
                yield Finding(*match.span(), number_kinds()[place].kind, 0.97)
                break


def _spaced(rows: dict[bytes, tuple[int, ...]], word: bytes) -> tuple[int, ...]:
    return rows.get(re.sub(rb"[ _]", b"", word.lower()), ())


def _is_word(data: bytes, start: int, end: int, word: bytes) -> bool:
    """Return whether the label ends where it was found; a long one may have an inflected ending."""
    written = data[start:end]
    if word in _CAPITALS and written.islower() and data[end : end + 1] not in b":=_\"'#":
        return False
    after = data[end : end + 4]
    if not after[:1].isalpha():
        return True
    if after[:1].isupper() and written[-1:].islower():
        return True
    return len(word) > 4 and (not after[2:3].isalpha() or not after[3:4].isalpha())


def _find_labelled(data: bytes, start: int, end: int, places: tuple[int, ...], *, mistyped: bool) -> Iterator[Finding]:
    window = data[end : end + _NEAR + _LONGEST]
    for place in places:
        match = _shape(place).match(window)
        if match is not None and _may_begin_with_letter(place):
            match = _first_valid(window, place, match)
        if match is not None and _is_valid(place, match["number"]):
            yield Finding(end + match.start("number"), end + match.end("number"), number_kinds()[place].kind, 0.98)
            return
    if mistyped:
        for place in places:
            match = _shape(place).match(window)
            if match is not None and match.start("number") <= _NEXT and _DIGIT.search(match["number"]):
                yield Finding(end + match.start("number"), end + match.end("number"), number_kinds()[place].kind, 0.96)
                return
    if data[start - 1 : start] not in b" (-\x80,:":
        return
    before = data[max(0, start - _LONGEST - 4) : start]
    for place in places:
        match = _before_word(place).search(before)
        if match is not None and _is_valid(place, match["number"]):
            shift = start - len(before)
            yield Finding(shift + match.start("number"), shift + match.end("number"), number_kinds()[place].kind, 0.98)
            return


def _first_valid(window: bytes, place: int, match: re.Match[bytes]) -> re.Match[bytes] | None:
    """Return the first position at which a number that begins with letters is valid, because words may have its
    format too.
    """
    line = window.find(b"\n")
    stop = len(window) if line < 0 else line
    shape = re.compile(_numbered(place) + _ENDS)
    for each in shape.finditer(window, match.start("number"), stop):
        if _DIGIT.search(each["number"]) and _is_valid(place, each["number"]):
            return each
    return None


def _is_valid(place: int, number: bytes) -> bool:
    text = number.decode("latin-1").upper()
    check = _check(place)
    try:
        return check(_COMPACT.sub("", text) if number_kinds()[place].check.startswith(":") else text)
    except (ValueError, IndexError):
        return False


def _is_sure(data: bytes, place: int, match: re.Match[bytes]) -> bool:
    if not _is_valid(place, match[0]):
        return False
    words = context.before(data, match.start())
    if match[0].isdigit() and (context.PHONE.search(words) or len(set(match[0])) < 4):
        return False
    return not context.says_other(words) and not context.says_money(context.after(data, match.end()))


# ── checks that stdnum does not have ──────────────────────────────────────────────────────────────────────────────────


def _weighed(digits: str, weights: tuple[int, ...]) -> int:
    return sum(int(digit) * weight for digit, weight in zip(digits, weights, strict=False))


def clabe(number: str) -> bool:
    """Bank accounts in Mexico: the last of 18 digits is the check digit (Banco de México)."""
    total = sum(int(digit) * weight % 10 for digit, weight in zip(number[:17], (3, 7, 1) * 6, strict=False))
    return len(number) == 18 and (total + int(number[17])) % 10 == 0


def nrb(number: str) -> bool:
    """Bank accounts in Poland: an IBAN without its country code."""
    return len(number) == 26 and int(f"{number[2:]}2521{number[:2]}") % 97 == 1


def snils(number: str) -> bool:
    """Social insurance in Russia: nine digits and two check digits."""
    return _weighed(number, (9, 8, 7, 6, 5, 4, 3, 2, 1)) % 101 % 100 == int(number[9:])


def nric(number: str) -> bool:
    """Residents and foreigners in Singapore: seven digits and a check letter."""
    total = _weighed(number[1:8], (2, 7, 6, 5, 4, 3, 2)) + {"T": 4, "G": 4, "M": 3}.get(number[0], 0)
    letters = {"S": "JZIHGFEDCBA", "T": "JZIHGFEDCBA", "M": "XWUTRQPNJLK"}.get(number[0], "XWUTRQPNMLK")
    return letters[total % 11] == number[8]


def hkid(number: str) -> bool:
    """Identity cards in Hong Kong: one or two letters, six digits, and a check digit or A."""
    plain = number.replace("(", "").replace(")", "").rjust(9)
    values = [36 if char == " " else int(char, 36) for char in plain]
    return sum(value * weight for value, weight in zip(values, range(9, 0, -1), strict=True)) % 11 == 0


def tw_id(number: str) -> bool:
    """Identity cards in Taiwan: a letter for the county and nine digits, the last of which is the check digit."""
    county = "ABCDEFGHJKLMNPQRSTUVXYWZIO".index(number[0]) + 10
    return (county // 10 + county % 10 * 9 + _weighed(number[1:], (8, 7, 6, 5, 4, 3, 2, 1, 1))) % 10 == 0


def pl_card(number: str) -> bool:
    """Identity cards in Poland: the fourth of nine characters is the check digit."""
    values = [int(char, 36) for char in number]
    return (_sum(values[:3], (7, 3, 1)) + _sum(values[4:], (7, 3, 1, 7, 3))) % 10 == values[3]


def _sum(values: list[int], weights: tuple[int, ...]) -> int:
    return sum(value * weight for value, weight in zip(values, weights, strict=True))


def any_number(number: str) -> bool:
    """Accept any number: it has no check digit, so format and label must suffice."""
    return bool(number)


_OWN_CHECKS: dict[str, Check] = {
    check.__name__: check for check in (any_number, clabe, hkid, nrb, nric, pl_card, snils, tw_id)
}
