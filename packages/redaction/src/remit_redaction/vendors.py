"""The formats of vendors' keys: prefix, characters and length."""

import re
from collections.abc import Mapping
from functools import cache
from typing import NamedTuple

from remit_redaction.tables import table

ALPHABETS: Mapping[str, str] = {
    "d": "0-9",
    "h": "0-9a-f",
    "H": "0-9a-fA-F",
    "l": "0-9a-z",
    "U": "0-9A-Z",
    "B": "2-7A-Z",
    "a": "0-9A-Za-z",
    "L": "A-Za-z",
    "w": "0-9A-Za-z_",
    "u": "0-9A-Za-z_-",
    "e": "0-9A-Za-z_=-",
    "x": "0-9A-Za-z._=-",
    "b": "0-9A-Za-z+/=",
    "c": "0-9A-Za-z+/=_-",
    "t": "0-9A-Za-z_~.-",
}


class VendorKeys(NamedTuple):
    """A row of the table: a vendor, the prefixes of its keys, the rest of the key, and the source of the fact."""

    vendor: str
    prefixes: str
    rest: str
    source: str


@cache
def vendors() -> tuple[VendorKeys, ...]:
    """Return the rows of `vendors.txt`, where their form is described."""
    return tuple(VendorKeys(*row) for row in table("vendors.txt"))


# Longer values are certificates and files.
_LONGEST = 1024
_UUID = "H8 '- H4 '- H4 '- H4 '- H12"
_PART = re.compile(r"([A-Za-z])(\d+)(?:(\+)|-(\d+))?")


class KeyFormat(NamedTuple):
    """A format of keys: the text before its fixed text, and the text after it."""

    vendor: str
    before: re.Pattern[bytes] | None
    longest_before: int
    after: re.Pattern[bytes]
    worded: bool
    """Whether it consists only of letters that words have as well, so that it must also look random."""


@cache
def forms() -> Mapping[bytes, tuple[KeyFormat, ...]]:
    """Return the formats by their fixed text."""
    by_text: dict[bytes, list[KeyFormat]] = {}
    for vendor, texts, rest, _ in vendors():
        rest = rest.replace("UUID", _UUID)
        before, marked, after = rest.partition(" @")
        form = KeyFormat(
            vendor,
            re.compile(rb"(?<![0-9A-Za-z])" + _pattern(before) + rb"\Z") if marked else None,
            _longest(before) if marked else 0,
            re.compile(_pattern(after if marked else before) + rb"(?![0-9A-Za-z])"),
            not set(rest) & set("hHdBU") or "+" in rest,
        )
        for text in texts.split():
            by_text.setdefault(text.encode(), []).append(form)
    return {text: tuple(rows) for text, rows in by_text.items()}


def _pattern(rest: str) -> bytes:
    return "".join(map(_part, rest.split())).encode()


def _part(part: str) -> str:
    if part[0] == "'":
        return re.escape(part[1:])
    code, fewest, more, most = _sizes(part)
    repeated = f"{{{fewest},{_LONGEST}}}" if more else f"{{{fewest},{most}}}" if most else f"{{{fewest}}}"
    return f"[{ALPHABETS[code]}]{repeated}"


def _longest(rest: str) -> int:
    total = 0
    for part in rest.split():
        _, fewest, more, most = _sizes(part)
        total += _LONGEST if more else int(most or fewest)
    return total


def _sizes(part: str) -> tuple[str, str, str | None, str | None]:
    match = _PART.fullmatch(part)
    assert match is not None, part
    return match[1], match[2], match[3], match[4]
