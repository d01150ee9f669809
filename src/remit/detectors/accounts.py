"""Accounts and papers: IBAN, Bitcoin addresses, passports, driving licences, national insurance."""

import re
from collections.abc import Iterator
from functools import cache
from typing import cast

from remit.policy.verdict import Finding

_BETWEEN = rb"[\x00-\x20\-./_]{0,3}"
_IBAN = re.compile(rb"(?<![0-9A-Za-z])[A-Za-z]" + _BETWEEN + rb"[A-Za-z]" + _BETWEEN + rb"\d" + _BETWEEN + rb"\d")
_ALNUM = re.compile(rb"[0-9A-Za-z]+")

_BITCOIN = re.compile(rb"(?<![0-9A-Za-z])(?:bc1[02-9ac-hj-np-z]{11,71}|[13][1-9A-HJ-NP-Za-km-z]{25,34})(?![0-9A-Za-z])")

_PAPER = re.compile(
    rb"(?:(?P<licence>driv(?:er|ing)(?:'?s'?)?[ _-]?licen[cs]e|driverlicen[cs]e|(?<![a-z])dl(?: no| number|#))"
    rb"|(?P<passport>passport)|(?P<nino>national[ _-]?insurance|(?<![a-z])nino(?![a-z])|(?<![a-z])ni (?:no|number)))"
    rb"(?:[ _-]?(?:number|num|no|nr|id)(?![a-z]))?[\"']?[ .]{0,2}(?:is|was|:|=|#)?[ :=#\"']{0,3}"
    rb"(?P<value>[0-9a-z](?:[ -]?[0-9a-z]){4,18})(?![0-9a-z])"
)
_KINDS = {"licence": "DRIVER_LICENSE", "passport": "PASSPORT", "nino": "NINO"}
_NINO = re.compile(rb"[a-ceghj-prstw-z][a-ceghj-npr-tw-z] ?\d\d ?\d\d ?\d\d ?[a-d]")
_WORD = re.compile(rb"[ -][a-z]{2,}")
_FEWEST_DIGITS = 5


def ibans(data: bytes) -> Iterator[Finding]:
    """Find IBANs: a country's length, and the right check digits."""
    for found in _IBAN.finditer(data):
        country = bytes(char for char in found[0] if chr(char).isalpha()).upper()
        length = _lengths().get(country)
        if length is None:
            continue
        whole = _whole(length).match(data, found.start())
        if whole is not None and _is_iban(b"".join(_ALNUM.findall(whole[0]))):
            yield Finding(*whole.span(), "IBAN")


@cache
def _whole(length: int) -> re.Pattern[bytes]:
    return re.compile(rb"[0-9A-Za-z](?:" + _BETWEEN + rb"[0-9A-Za-z]){%d}(?![0-9A-Za-z])" % (length - 1))


@cache
def _lengths() -> dict[bytes, int]:
    """How long each country's IBANs are, as the registry in stdnum has it."""
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
    """Find Bitcoin addresses whose checksum is right."""
    for found in _BITCOIN.finditer(data):
        from stdnum import bitcoin

        if bitcoin.is_valid(found[0].decode()):
            yield Finding(*found.span(), "BTC_ADDRESS")


def papers(data: bytes) -> Iterator[Finding]:
    """Find the numbers of papers, each by the words right before it."""
    for found in _PAPER.finditer(data.lower()):
        kind = _KINDS[cast("str", found.lastgroup if found.lastgroup != "value" else _named(found))]
        value = _WORD.split(found["value"])[0]
        digits = sum(48 <= char <= 57 for char in value)
        if _NINO.fullmatch(value) if kind == "NINO" else digits >= _FEWEST_DIGITS:
            yield Finding(found.start("value"), found.start("value") + len(value), kind, 0.9)


def _named(found: re.Match[bytes]) -> str:
    return next(name for name in _KINDS if found[name])
