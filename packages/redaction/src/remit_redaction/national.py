"""Numbers that states and banks issue: personal, tax and company numbers, bank codes and accounts.

A row describes a kind of number: the module of stdnum that checks it (or our own check), its format, and the words that
label it. A number is found after such a word. It is found by its format alone only if format, check digits and date
together leave hardly a chance that it is another number.
"""

import re
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from typing import Any

from remit.policy.verdict import Finding
from remit_redaction import context
from remit_redaction.linear import Linear
from remit_redaction.national_numbers import ROWS, Check
from remit_redaction.normal import spelled

# ── the numbers ───────────────────────────────────────────────────────────────────────────────────────────────────────


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
# Words that usually mean other things: `pan`, `run`. They must be in capitals, or be the name of a field.
_CAPITALS = frozenset(
    b"pan nit run bn cc cf kt ic fin nie rut ach cui cif kp epic vid said bic vat uid sofi inn ein aba nic acn".split()
)


# Words that mean this number and nothing else. A number right after one is found even if a check digit is wrong,
# because a number with a mistake still identifies the person.
_UNMISTAKABLE = (
    "pesel|peselu|peselem|nip|nipu|nipem|regon|regonu|regonem|aadhaar|aadhar|cpf|cnpj|dni|codice fiscale|"
    "partita iva|bsn|burgerservicenummer|steuer-id|steueridentifikationsnummer|curp|cuit|cuil|personnummer|"
    "henkilötunnus|fødselsnummer|rodné číslo|cnp|oib|снилс|tckn|tc kimlik|numéro de sécurité sociale|"
    "rijksregisternummer|身份证|身份证号|주민등록번호"
)
_NEXT = 20


@cache
def _unmistakable() -> frozenset[bytes]:
    return frozenset(_SEPARATORS.sub(b"", spelled(word)) for word in _UNMISTAKABLE.split("|"))


@cache
def _names() -> tuple[Linear, dict[bytes, tuple[int, ...]]]:
    """Return the pattern of all labels, and the rows that each label belongs to."""
    rows: dict[bytes, list[int]] = {}
    for place, row in enumerate(ROWS):
        for word in row.words.split("|"):
            if word:
                rows.setdefault(spelled(word), []).append(place)
    words = sorted(rows, key=len, reverse=True)
    quoted = b"|".join(re.escape(word).replace(rb"\ ", b"[ _-]?") for word in words)
    capital = b"|".join(re.escape(word.capitalize()) for word in words if word.isalpha() and word.isascii())
    pattern = rb"(?:\A|[^A-Za-z])(?P<value>(?i:" + quoted + rb"))|[a-z](?:" + capital + rb")"
    return Linear(pattern), {word.replace(b" ", b""): tuple(places) for word, places in rows.items()}


@cache
def _shape(place: int) -> re.Pattern[bytes]:
    return re.compile((_GAP % _NEAR).encode() + _STARTS + rb"(?P<number>" + ROWS[place].shape.encode() + rb")" + _ENDS)


@cache
def _may_begin_with_letter(place: int) -> bool:
    """Return whether the number may begin with a letter, so that it must be separated from the words before it."""
    return re.match(r"\(?\??:?\[?[A-Za-z]", ROWS[place].shape) is not None


@cache
def _before_word(place: int) -> re.Pattern[bytes]:
    return re.compile(_STARTS + rb"(?P<number>" + ROWS[place].shape.encode() + rb")[ ,:(\x80-]{1,4}\Z")


@cache
def _formats_without_label() -> tuple[Linear, list[tuple[int, re.Pattern[bytes]]]]:
    """Return one pattern of all formats that need no label, and each format by itself."""
    shapes = [(place, row.sure) for place, row in enumerate(ROWS) if row.sure]
    # RE2 cannot express `the same character again`; the pattern of the row can.
    joined = "|".join(shape.replace(r"\1", "[ -]") for _, shape in shapes)
    return Linear(rf"\b(?:{joined})".encode()), [
        (place, re.compile(_STARTS + rb"(?:" + shape.encode() + rb")" + _ENDS)) for place, shape in shapes
    ]


@cache
def _check(place: int) -> Check:
    check = ROWS[place].check
    if not isinstance(check, str):
        return check
    module: Any = import_module(f"stdnum.{check}")
    return module.is_valid


def numbers(data: bytes) -> Iterator[Finding]:
    """Find numbers of people, companies and banks that have a label or an unmistakable format."""
    names, rows = _names()
    for start, end in names.spans(data):
        if data[start : start + 1].islower() and data[start + 1 : start + 2].isupper():
            start += 1
        word = _SEPARATORS.sub(b"", data[start:end].lower())
        places = rows.get(word) or rows.get(data[start:end].lower()) or _spaced(rows, data[start:end])
        if places and _is_word(data, start, end, word):
            yield from _named(data, start, end, places, mistyped=word in _unmistakable())
    sure, shapes = _formats_without_label()
    for start, _ in sure.spans(data):
        for place, shape in shapes:
            found = shape.match(data, start)
            if found is not None and _is_sure(data, place, found):
                yield Finding(*found.span(), ROWS[place].kind, 0.97)
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


def _named(data: bytes, start: int, end: int, places: tuple[int, ...], *, mistyped: bool) -> Iterator[Finding]:
    window = data[end : end + _NEAR + _LONGEST]
    for place in places:
        found = _shape(place).match(window)
        if found is not None and _may_begin_with_letter(place):
            found = _first_valid(window, place, found)
        if found is not None and _is_valid(place, found["number"]):
            yield Finding(end + found.start("number"), end + found.end("number"), ROWS[place].kind, 0.98)
            return
    if mistyped:
        for place in places:
            found = _shape(place).match(window)
            if found is not None and found.start("number") <= _NEXT and _DIGIT.search(found["number"]):
                yield Finding(end + found.start("number"), end + found.end("number"), ROWS[place].kind, 0.96)
                return
    if data[start - 1 : start] not in b" (-\x80,:":
        return
    before = data[max(0, start - _LONGEST - 4) : start]
    for place in places:
        found = _before_word(place).search(before)
        if found is not None and _is_valid(place, found["number"]):
            shift = start - len(before)
            yield Finding(shift + found.start("number"), shift + found.end("number"), ROWS[place].kind, 0.98)
            return


def _first_valid(window: bytes, place: int, found: re.Match[bytes]) -> re.Match[bytes] | None:
    """Return the first position at which a number that begins with letters is valid, because words may have its
    format too.
    """
    line = window.find(b"\n")
    stop = len(window) if line < 0 else line
    shape = re.compile(_STARTS + rb"(?P<number>" + ROWS[place].shape.encode() + rb")" + _ENDS)
    for each in shape.finditer(window, found.start("number"), stop):
        if _DIGIT.search(each["number"]) and _is_valid(place, each["number"]):
            return each
    return None


def _is_valid(place: int, number: bytes) -> bool:
    text = number.decode("latin-1").upper()
    check = _check(place)
    try:
        return check(_COMPACT.sub("", text) if callable(ROWS[place].check) else text)
    except (ValueError, IndexError):
        return False


def _is_sure(data: bytes, place: int, found: re.Match[bytes]) -> bool:
    if not _is_valid(place, found[0]):
        return False
    words = context.before(data, found.start())
    if found[0].isdigit() and (context.PHONE.search(words) or len(set(found[0])) < 4):
        return False
    return not context.says_other(words) and not context.says_money(context.after(data, found.end()))
