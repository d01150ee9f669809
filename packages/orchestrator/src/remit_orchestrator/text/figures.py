"""Finds the figures of a text: their positions and quantities.

Every pattern starts only at the start of a word and never backtracks, so a hostile text costs no more than any other.
"""

import re
from collections.abc import Sequence
from functools import lru_cache

from msgspec import Struct
from msgspec.structs import replace

from remit.protocol.envelope import Json
from remit.words.components import SHARES
from remit.words.numbers import NUMBER_WORDS, OTHER_MEANINGS, SCALE, SCALES, SPELLED, digit_readings, spelled_number
from remit.words.units import CODES, MONEY, PLAIN, UNITS, Unit, named_unit, unit_of
from remit_orchestrator.text.dates import MONTHS, NAMED, moments_at
from remit_orchestrator.text.lexicon import phrases, word_set
from remit_orchestrator.text.quantities import Amount, Day, Figure, Form

_BEFORE_YEARS = word_set("figure.before_years")
_COUNTED = word_set("figure.counted")

_NUMBER = re.compile(
    rf"""(?<![\w.])(?<![A-Za-z_][-/])
    (?P<sign>(?<![\w)\]])[-−](?=[\d$€£¥₹]))?
    (?:(?P<before>US\$|[$€£¥₹]|(?ai:{"|".join(CODES)})(?=\ ?\d))\ ?)?
    (?:(?P<digits>\d{{1,3}}(?:[\ \u00a0\u202f]\d{{3}}){{1,5}}(?![.,]?\d)|\d++(?:[.,'’]\d++){{0,9}}+)
      |(?P<spelled>{SPELLED}\b))
    (?P<scale>[\ -]?{SCALE}\b|\ ?[KMB]\b|k\b|(?<=\d)[mb]\b)?
    (?P<unit>[\ \u00a0-]?(?:%|°\ ?[CFcf]\b|[$€£¥₹]|[A-Za-z]{{1,12}}(?!\w)))?(?!\w)
""",
    re.VERBOSE,
)
# No date and no time begins with one of these.
_SIGNS = "$€£¥₹-−"
# Where a figure may begin. Most texts have no figure in words, and are not searched for them.
_START = re.compile(r"[\d$€£¥₹]")
_NAMED_START = re.compile(rf"[\d$€£¥₹]|\b(?:(?ai:{'|'.join(NAMED)})|{SPELLED})\b")
NAMES = frozenset((*NAMED, *NUMBER_WORDS))
_BLANKED = bytes(sign if chr(sign).islower() and sign < 128 else ord(" ") for sign in range(256))
# The longest ASCII part of each name; other characters are blanked out. German joins its hundreds.
_RAW_NAMES = frozenset(max(name.encode().translate(_BLANKED).split(), key=len) for name in NAMES)
_JOINED_NAMES = (b"hundert", b"tausend")
_REST_OF_WORD = re.compile(r"[\w.,:/’'-]*+|.", re.DOTALL)
# Characters that may stand before the first digit of a figure.
_PREFIXES = MONTHS.union(CODES)
_LONGEST_PREFIX = 12
_BOUNDS = {phrase: bound for bound, several in phrases("figure.bounds").items() for phrase in several}
_LAST_OF_BOUNDS = frozenset(phrase.split()[-1] for phrase in _BOUNDS)
_LONGEST_BOUND = 20
# The form that each kind of limit gives a figure, and whether it is an upper limit.
_FORMS: dict[str | None, tuple[Form, bool]] = {
    **{"least": ("limit", False), "most": ("limit", True), "due": ("limit", True)},
    **{"above": ("loose", False), "below": ("loose", True), "about": ("point", False), None: ("point", False)},
}
# Quantities in parts: "1 h 57 min", "5 ft and 3 cm".
_COMPOUND = frozenset({"duration", "length", "mass"})
_LINKS = frozenset({" ", ", ", " and "})
_JOINED = frozenset({"-", "–", "—", " - ", " – ", " — ", " to "})
_NEXT_WORD = re.compile(r"[\s-]{0,2}([A-Za-z]{2,20})")

# A number with more digits is an identifier, not an amount.
_LONGEST = 24


def figures(text: str) -> list[Figure]:
    """Return the figures of a text, in order."""
    start_of = _NAMED_START.search if has_name(text) else _START.search
    found: list[Figure] = []
    last: _Number | None = None
    end = 0
    while end < len(text) and (start := start_of(text, end)):
        begin = start.start()
        words = text[max(0, begin - _LONGEST_BOUND) : begin].lower().split()
        # A figure seldom begins before its first digit.
        if begin and (text[begin - 1] != " " or (words and words[-1].strip("([\"'.,") in _PREFIXES)):
            begin = max(_begin(text, begin), end)
            words = text[max(0, begin - _LONGEST_BOUND) : begin].lower().split()
        bound = _bound(words)
        moments = () if text[begin] in _SIGNS else moments_at(text, begin, _FORMS[bound], bound == "about")
        number = None if moments else _number(text, begin, bound)
        if number is None:
            found += moments
        elif last is None:
            found.append(_figure(number))
        elif _are_ends(last, number, text):
            found[-1] = _range(last, number)
        elif _are_one_quantity(last, number, text):
            number = _sum(last, number)
            found[-1] = _figure(number)
        else:
            found.append(_figure(number))
        last = number
        if number or moments:
            end = found[-1].end
        else:
            # A name that begins with a digit or contains one.
            end = max(_REST_OF_WORD.match(text, start.start()).end(), start.end())  # pyright: ignore
    return found


def has_name(text: str) -> bool:
    """Return whether a text may contain a figure written as a word."""
    # As bytes, because there all characters except lower-case letters can be blanked out at once.
    letters = text.lower().encode(errors="replace").translate(_BLANKED)
    return not _RAW_NAMES.isdisjoint(letters.split()) or any(name in letters for name in _JOINED_NAMES)


def _begin(text: str, start: int) -> int:
    """Return the start of the figure whose first digit or sign is at *start*."""
    sign = text[start - 1 : start]
    if sign == " ":
        space = text.rfind(" ", max(0, start - _LONGEST_PREFIX), start - 1)
        word = text[space + 1 : start - 1].lstrip("([\"'")
        return start - 1 - len(word) if word.rstrip(".,").lower() in _PREFIXES else start
    if sign and sign in "-−":
        return start - 1
    if sign.isalpha():
        length = 2 if text[start] == "$" else 3
        if text[max(0, start - length) : start].lower() in (*CODES, "us"):
            return start - length
    return start


def _bound(words: Sequence[str]) -> str | None:
    """Return the kind of limit that the words before a figure express; None if they express none."""
    if not words or words[-1] not in _LAST_OF_BOUNDS:
        return None
    for count in (3, 2, 1):
        if bound := _BOUNDS.get(" ".join(words[-count:])):
            return bound
    return None


def figure_in(value: Json, name: tuple[str, ...] = ()) -> Figure | None:
    """Return a JSON number as a figure; the name of its field may give the unit."""
    try:
        real = float(value)
    except OverflowError:
        return None
    # Neither NaN nor infinity is an amount.
    if not abs(real) < 1e300:
        return None
    unit, is_share = _named(name)
    half = 0.5 if real == int(real) else _half_of_last_place(repr(real))
    number = _Number(((real, half),), unit, 1.0, None, 0, 0)
    figure = _figure(number)
    if is_share and abs(real) > 1:
        # Under such a name, 15 is 15 %, and so is 0.15.
        return replace(figure, other=_quantity(replace(number, unit=UNITS["%"]), number.readings[0]))
    return figure


@lru_cache(maxsize=4096)
def _named(name: tuple[str, ...]) -> tuple[Unit, bool]:
    """Return the unit of a number under a field of that name, and whether it may be a percentage."""
    unit = named_unit(name)
    if unit is None and MONEY.intersection(name):
        unit = Unit("money")
    return unit or PLAIN, not unit and not SHARES.isdisjoint(name)


# ── amounts ───────────────────────────────────────────────────────────────────────────────────────────────────────────


class _Number(Struct, frozen=True, gc=False):
    """A number as written, before units are applied."""

    readings: tuple[tuple[float, float], ...]
    """The value, and half of its last place; at least one of them."""
    unit: Unit
    scale: float
    bound: str | None
    start: int
    end: int
    year: bool = False


def _number(text: str, begin: int, bound: str | None) -> _Number | None:
    """Return the number at a position; None if it is a name (3D) or a version (1.2.3)."""
    match = _NUMBER.match(text, begin)
    if match is None:
        return None
    sign, prefix, digits, spelled, scale, behind = match.groups("")
    unit = unit_of(behind.strip(" \u00a0-")) if behind else None
    end = match.end()
    if scale in {"m", "b"} and not prefix:
        # Without a currency, "5m" is five metres, not five million.
        scale, unit, end = "", UNITS["m"] if scale == "m" else None, match.end("scale")
        if unit is None:
            return None
    elif not (unit or scale) and spelled.lower() in OTHER_MEANINGS:
        return None
    elif behind and unit is None:
        if behind[0].isalpha() and digits and not scale:
            return None
        end = match.start("unit")
    readings = _readings(digits or str(spelled_number(spelled))) if len(digits) <= _LONGEST else ()
    if not readings:
        return None
    if prefix:
        unit = UNITS[prefix.lower()]
    factor = 10.0 ** SCALES[scale.strip(" -").lower()] if scale else 1.0
    year = not (unit or scale or spelled) and _is_year(digits, text, begin, end)
    if factor != 1 or sign:
        readings = tuple((value * factor * (-1 if sign else 1), half * factor) for value, half in readings)
    return _Number(readings, unit or PLAIN, factor, bound, begin, end, year)


def _readings(written: str) -> tuple[tuple[float, float], ...]:
    return tuple(
        (float(f"{whole}.{fraction}"), 0.5 * 10.0 ** -len(fraction)) if fraction else (float(whole), 0.5)
        for whole, fraction in digit_readings(written)
    )


def _half_of_last_place(written: str) -> float:
    """Return half of the last place of a fraction as Python prints it."""
    mantissa, _, exponent = written.partition("e")
    return 0.5 * 10.0 ** (int(exponent or 0) - len(mantissa.partition(".")[2]))


def _figure(number: _Number) -> Figure:
    if number.year:
        form, before = _FORMS[number.bound]
        return Figure(Day(((int(number.readings[0][0]), 0, 0),), form, before), number.start, number.end)
    quantity = _quantity(number, number.readings[0])
    other = _quantity(number, number.readings[1]) if len(number.readings) > 1 else None
    return Figure(quantity, number.start, number.end, other)


def _quantity(number: _Number, reading: tuple[float, float]) -> Amount:
    unit, (value, half) = number.unit, reading
    at = (value + unit.shift) * unit.factor
    exact = unit.kind == "money" and number.scale == 1
    slack = unit.factor * _slack(abs(value), half, exact, number.bound == "about")
    # "By" limits a date; with an amount it is only a measure.
    form, before = _FORMS[number.bound if number.bound != "due" else None]
    if form == "point":
        return Amount(unit.kind, at, at, slack, form, unit.currency)
    low, high = (float("-inf"), at) if before else (at, float("inf"))
    return Amount(unit.kind, low, high, slack, form, unit.currency)


def _slack(size: float, half: float, exact: bool, about: bool) -> float:
    """Return how far another amount may differ: as far as rounding to the last written place explains.

    At most a twentieth, because 2 is not 1.5. Money in full is exact to the cent or to the whole unit: at most a
    hundredth. An approximate amount may differ by a twentieth.
    """
    if about:
        return max(half, size / 20)
    if exact:
        return min(half, 0.005 if half < 0.5 else size / 100)
    return min(half, size / 20)


def _is_year(digits: str, text: str, start: int, end: int) -> bool:
    if not (len(digits) == 4 and digits.isdecimal() and "1900" <= digits < "2100"):
        return False
    last = text[max(0, start - _LONGEST_BOUND) : start].lower().split()[-1:]
    if last and last[0] in _BEFORE_YEARS:
        return True
    following = _NEXT_WORD.match(text, end)
    return following is not None and not (following[1].endswith("s") or following[1].lower() in _COUNTED)


def _are_ends(one: _Number, other: _Number, text: str) -> bool:
    """Return whether two numbers are the ends of a range: "5-10 days", "between $3 and $4"."""
    link = text[one.end : other.start]
    if link not in _JOINED and not (
        link == " and " and text[max(0, one.start - 8) : one.start].lower().endswith("between ")
    ):
        return False
    if one.bound or other.bound or one.year or other.year or one.readings[0][0] > other.readings[0][0]:
        return False
    return one.unit.kind in {"number", other.unit.kind} or other.unit.kind == "number"


def _are_one_quantity(one: _Number, other: _Number, text: str) -> bool:
    """Return whether two numbers are parts of one quantity: "1 h 57 min"."""
    return (
        one.unit.kind == other.unit.kind in _COMPOUND
        and one.unit.factor > other.unit.factor
        and text[one.end : other.start] in _LINKS
    )


def _sum(one: _Number, other: _Number) -> _Number:
    in_smaller = one.readings[0][0] * one.unit.factor / other.unit.factor
    value, half = other.readings[0]
    return replace(other, readings=((in_smaller + value, half),), start=one.start, bound=one.bound)


def _range(one: _Number, other: _Number) -> Figure:
    # The unit, and the scale, are given once: before the first number or after the second.
    unit = other.unit if other.unit.kind != "number" else one.unit
    factor = other.scale if one.scale == 1 else 1.0
    value, half = one.readings[0]
    low = _quantity(replace(one, unit=unit, scale=other.scale), (value * factor, half * factor))
    high = _quantity(replace(other, unit=unit), other.readings[0])
    bottom, top = sorted((low.low, high.high))
    made = Amount(unit.kind, bottom, top, max(low.slack, high.slack), "range", unit.currency)
    return Figure(made, one.start, other.end)
