"""Accounts and identity documents: IBAN, Bitcoin addresses, passports, driving licences, national insurance."""

import re
from collections.abc import Iterator
from functools import cache

from remit.policy.verdict import Finding
from remit_redaction.linear import Linear, find_narrow
from remit_redaction.normal import spelled
from remit_redaction.tables import words

_BETWEEN = rb"[\x00-\x20\-./_]{0,3}"
_IBAN = re.compile(rb"(?<![0-9A-Za-z])[A-Za-z]" + _BETWEEN + rb"[A-Za-z]" + _BETWEEN + rb"\d" + _BETWEEN + rb"\d")
_ALNUM = re.compile(rb"[0-9A-Za-z]+")

_BITCOIN = re.compile(rb"(?<![0-9A-Za-z])(?:bc1[02-9ac-hj-np-z]{11,71}|[13][1-9A-HJ-NP-Za-km-z]{25,34})(?![0-9A-Za-z])")


def _longest_first(section: str) -> bytes:
    """Return the words of a section as alternatives, longest first, because RE2 takes the first one that matches."""
    return b"|".join(sorted(map(spelled, words(section)), key=len, reverse=True))


_PAPERS: dict[str, bytes] = {
    "DRIVER_LICENSE": rb"driv(?:er|ing)(?:'?s'?)?[ _-]?licen[cs]e|dl(?: no| number|#)|"
    + _longest_first("driving licence"),
    "PASSPORT": rb"passport|" + _longest_first("identity document"),
    "NINO": rb"national[ _-]?insurance|nino|ni (?:no|number)",
}
_NUMBER_OF_PAPER = re.compile(
    rb"(?:[ _-]?(?:number|numer|nummer|numero|num|no|nr|n|id|seria)(?![a-z])|%b){0,2}[\"']?[ .]{0,2}"
    rb"(?:(?:is|was|ist|es|est|to|jest|e)(?= )|:|=|#)?[ :=#\"'\x80]{0,3}"
    rb"(?P<value>[0-9a-z](?:[ /-]?[0-9a-z]){4,18})(?![0-9a-z])" % spelled("号码|號碼|号|番号|번호")
)
# Words this short also occur inside other words.
_SHORT_WORD = 8
_NINO = re.compile(rb"[a-ceghj-prstw-z][a-ceghj-npr-tw-z] ?\d\d ?\d\d ?\d\d ?[a-d]")
_WORD = re.compile(rb"[ -][a-z]{2,}")
_FEWEST_DIGITS = 5
# The words between the label and the number, and the number itself.
_LONGEST_PAPER = 80


def ibans(data: bytes) -> Iterator[Finding]:
    """Find IBANs: the length must be that of the country, and the check digits must be correct."""
    for match in find_narrow(_IBAN, data):
        country = bytes(char for char in match[0] if chr(char).isalpha()).upper()
        length = _lengths().get(country)
        if length is None:
            continue
        whole = _whole(length).match(data, match.start())
        if whole is not None and _is_iban(b"".join(_ALNUM.findall(whole[0]))):
            yield Finding(*whole.span(), "IBAN")


@cache
def _whole(length: int) -> re.Pattern[bytes]:
    return re.compile(rb"[0-9A-Za-z](?:" + _BETWEEN + rb"[0-9A-Za-z]){%d}(?![0-9A-Za-z])" % (length - 1))


@cache
def _lengths() -> dict[bytes, int]:
    """Return the length of each country's IBANs, from the registry in stdnum."""
    from stdnum import numdb

    lengths: dict[bytes, int] = {}
    for _, country, _, properties, _ in numdb.get("iban").prefixes:
        parts = re.findall(r"(\d+)!", properties["bban"])
        lengths[country.encode()] = 4 + sum(map(int, parts))
    return lengths


def _is_iban(value: bytes) -> bool:
    from stdnum import iban

    return iban.is_valid(value.decode().upper(), check_country=False)


def bitcoin(data: bytes) -> Iterator[Finding]:
    """Find Bitcoin addresses with a correct checksum."""
    for match in _BITCOIN.finditer(data):
        from stdnum import bitcoin

        if bitcoin.is_valid(match[0].decode()):
            yield Finding(*match.span(), "BTC_ADDRESS")


def identity_documents(data: bytes) -> Iterator[Finding]:
    """Find numbers of identity documents that follow a word for such a document."""
    words, kinds = _document_words()
    for start, end in words.spans(data):
        word = data[start:end].lower()
        if len(word) < _SHORT_WORD and word.isascii() and data[max(0, start - 1) : start].isalpha():
            continue
        kind = next(kind for kind, pattern in kinds if pattern.fullmatch(word))
        match = _NUMBER_OF_PAPER.match(data[end : end + _LONGEST_PAPER].lower())
        if match is None:
            continue
        value = _WORD.split(match["value"])[0]
        digits = sum(48 <= char <= 57 for char in value)
        if _NINO.fullmatch(value) if kind == "NINO" else digits >= _FEWEST_DIGITS:
            start = end + match.start("value")
            yield Finding(start, start + len(value), kind, 0.9)


@cache
def _document_words() -> tuple[Linear, list[tuple[str, re.Pattern[bytes]]]]:
    return Linear(rb"(?i)(?:" + b"|".join(_PAPERS.values()) + rb")"), [
        (kind, re.compile(words)) for kind, words in _PAPERS.items()
    ]
