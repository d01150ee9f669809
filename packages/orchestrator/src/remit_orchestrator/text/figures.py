"""The figures of a text: amounts, times and dates as values, where they stand, and whether two of them agree.

Every pattern starts only at the start of a word and never backtracks, so a hostile text costs no more than any other.
"""

import re
from collections.abc import Iterator, Sequence
from datetime import date, timedelta
from functools import lru_cache
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from remit.protocol.envelope import Json
from remit.words.components import SHARES
from remit.words.numbers import (
    MONTH,
    NUMBER_WORDS,
    OTHER_MEANINGS,
    SCALE,
    SCALES,
    SPELLED,
    digit_readings,
    spelled_number,
)
from remit.words.units import CODES, MONEY, PLAIN, UNITS, Unit, named_unit, unit_of
from remit_orchestrator.text.lexicon import phrases, word_set

Form = Literal["point", "range", "limit", "loose"]
"""`limit` is a bound that may be reached ("at least 5"), `loose` one that the value only exceeds or stays below
("over 5").
"""


class Amount(Struct, frozen=True, gc=False):
    """A quantity from `low` to `high`, in the base unit of its kind."""

    kind: str
    """`number`, `money`, `percent`, or the dimension of its unit."""
    low: float
    high: float
    slack: float = 0.0
    """How far another amount may differ by rounding and still be the same."""
    form: Form = "point"
    currency: str = ""


class TimeOfDay(Struct, frozen=True, gc=False):
    """A time of day, in minutes."""

    at: float
    marked: bool = False
    """Whether a.m. or p.m. is given."""
    zone: int | None = None
    """Offset from UTC, in minutes east."""
    slack: float = 0.0
    form: Form = "point"
    before: bool = False
    """Whether the limit is an upper one; otherwise it is a lower one."""


class Day(Struct, frozen=True, gc=False):
    """A date or a part of one: year, month and day, 0 if not given; the second reading is for dates like 3/4/2025."""

    readings: tuple[tuple[int, int, int], ...]
    form: Form = "point"
    before: bool = False


class Weekday(Struct, frozen=True, gc=False):
    """A day of the week, 0 for Monday."""

    day: int


Quantity = Amount | TimeOfDay | Day | Weekday


class Figure(Struct, frozen=True, gc=False):
    """A quantity and its position in a text."""

    quantity: Quantity
    start: int
    end: int
    other: Quantity | None = None
    """Other possible readings: 1.500 is one and a half, or one thousand five hundred."""


_HALF_DAY, _DAY = 720.0, 1440.0
# The rates between these currencies have stayed between one half and two for twenty years, so an amount in one may be
# the other's, converted.
_NEAR_PAR = frozenset({"usd", "eur", "gbp", "chf", "cad", "aud"})
# Binary fractions are not exact: 0.1 + 0.2 must equal 0.3.
_NOISE = 1e-9
_INFINITE = float("inf")


def figures_agree(one: Figure, other: Figure) -> bool | None:
    """Return whether two figures of the same thing can both be right, in any of their readings."""
    verdict = agree(one.quantity, other.quantity)
    if verdict or (one.other is None and other.other is None):
        return verdict
    readings = [(a, b) for a in (one.quantity, one.other) if a for b in (other.quantity, other.other) if b]
    return any(agree(a, b) for a, b in readings) or verdict


def agree(one: Quantity, other: Quantity) -> bool | None:
    """Return whether two quantities of the same thing can both be right; None if they are of different kinds."""
    # The most common case first: a match statement costs as much as the comparison.
    if isinstance(one, Amount) and isinstance(other, Amount):
        return _amounts_agree(one, other)
    if isinstance(one, TimeOfDay) and isinstance(other, TimeOfDay):
        return _clocks_agree(one, other)
    match one, other:
        case Day(), Day():
            return any(_days_agree(one, a, other, b) for a in one.readings for b in other.readings)
        case Weekday(), Weekday():
            return one.day == other.day
        case (Day(readings=((year, _, _), *_)), Amount(kind="number") as number) | (
            Amount(kind="number") as number,
            Day(readings=((year, _, _), *_)),
        ) if 1900 <= number.low <= 2100:
            return number.low == year if year else None
        case _:
            return None


def distance(one: Quantity, other: Quantity) -> float:
    """Return how far apart two quantities are: 0 if equal, 1 or more if they have nothing in common."""
    if isinstance(one, Amount) and isinstance(other, Amount):
        here, there = _middle(one), _middle(other)
        larger = max(abs(here), abs(there))
        return abs(here - there) / larger if larger else 0.0
    if isinstance(one, TimeOfDay) and isinstance(other, TimeOfDay):
        # One hour late is too late for any train.
        return abs(one.at - other.at) / 60
    return 1.0


def _middle(amount: Amount) -> float:
    if amount.form == "point":
        return amount.low
    ends = [end for end in (amount.low, amount.high) if abs(end) != float("inf")]
    return sum(ends) / len(ends)


# ── amounts ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def _amounts_agree(one: Amount, other: Amount) -> bool | None:
    if one.kind != other.kind:
        if "number" not in (one.kind, other.kind):
            return None
        if "percent" in (one.kind, other.kind):
            # 15 %, 0.15 and 15 are equal.
            number, share = (one, other) if one.kind == "number" else (other, one)
            hundredth = replace(number, low=number.low / 100, high=number.high / 100, slack=number.slack / 100)
            return _same(number, share) or _same(hundredth, share)
    if one.currency != other.currency and one.currency and other.currency:
        return _currencies_agree(one, other)
    return _same(one, other)


def _currencies_agree(one: Amount, other: Amount) -> bool | None:
    if _same(one, other):
        return one.high == 0
    if not {one.currency, other.currency} <= _NEAR_PAR or not (one.low > 0 and other.low > 0):
        return None
    return None if 0.5 < one.low / other.low < 2 else False


def _same(one: Amount, other: Amount) -> bool:
    here, there = one.low, other.low
    if one.form == other.form == "point" and (off := abs(here - there)) < _INFINITE:
        return off <= max(one.slack, other.slack) + _NOISE * max(abs(here), abs(there))
    slack = max(one.slack, other.slack) + _NOISE * max(_size(one), _size(other))
    if one.form == other.form != "loose" and _open_ends(one) == _open_ends(other):
        return _near(one.low, other.low, slack) and _near(one.high, other.high, slack)
    return one.low <= other.high + slack and other.low <= one.high + slack


def _near(one: float, other: float, slack: float) -> bool:
    return one == other or abs(one - other) <= slack


def _open_ends(amount: Amount) -> tuple[bool, bool]:
    return amount.low == float("-inf"), amount.high == float("inf")


def _size(amount: Amount) -> float:
    return max((abs(end) for end in (amount.low, amount.high) if abs(end) != float("inf")), default=0.0)


# ── times and dates ───────────────────────────────────────────────────────────────────────────────────────────────────


def _clocks_agree(one: TimeOfDay, other: TimeOfDay) -> bool:
    here, there = one.at, other.at
    if one.zone is not None and other.zone is not None:
        here, there = here - one.zone, there - other.zone
    if one.form != other.form or (one.form != "point" and one.before != other.before):
        return _bounds_agree(one.form, one.before, here, other.form, other.before, there)
    # A time without a.m. or p.m. may be either, compared with one that says which.
    unmarked = other if one.marked else one
    around = _HALF_DAY if one.marked != other.marked and unmarked.at < _HALF_DAY + 60 else _DAY
    apart = abs(here - there) % around
    return min(apart, around - apart) <= max(one.slack, other.slack)


def _days_agree(one: Day, a: tuple[int, int, int], other: Day, b: tuple[int, int, int]) -> bool:
    if one.form != other.form or (one.form != "point" and one.before != other.before):
        # A missing year is assumed to be that of the other date.
        shared = [(x or y, y or x) for x, y in zip(a, b, strict=True)]
        here, there = ((part[side] for part in shared) for side in (0, 1))
        return _bounds_agree(one.form, one.before, _ordinal(*here), other.form, other.before, _ordinal(*there))
    (year, month, day), (other_year, other_month, other_day) = a, b
    return (
        (year == other_year or not (year and other_year))
        and (month == other_month or not (month and other_month))
        and (day == other_day or not (day and other_day))
    )


def _ordinal(year: int, month: int, day: int) -> float:
    return (year * 12 + month) * 31 + day


def _bounds_agree(form: Form, before: bool, at: float, other_form: Form, other_before: bool, other_at: float) -> bool:
    """Return whether two bounds in time overlap."""
    low, high = _span(form, before, at)
    other_low, other_high = _span(other_form, other_before, other_at)
    return low <= other_high and other_low <= high


def _span(form: Form, before: bool, at: float) -> tuple[float, float]:
    if form == "point":
        return at, at
    return (float("-inf"), at) if before else (at, float("inf"))


_MONTH_STARTS = {
    start: number
    for number, starts in enumerate(
        ("jan", "feb", "mar mär", "apr", "may mai", "jun", "jul", "aug", "sep", "oct okt", "nov", "dec dez"), 1
    )
    for start in starts.split()
}
MONTHS = word_set("months").union(_MONTH_STARTS)
_WEEKDAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
NAMED = (*_WEEKDAYS, "noon", "midnight")
_ZONES = {
    **{"UTC": 0, "GMT": 0, "BST": 60, "CET": 60, "CEST": 120},
    **{"EST": -300, "EDT": -240, "CST": -360, "CDT": -300, "PST": -480, "PDT": -420},
}
_MOMENT = re.compile(
    rf"""
  (?P<iso>(?<![\w.-])\d{{4}}-\d{{2}}-\d{{2}}(?!\d)
     (?:[T\ ](?P<iso_time>\d{{2}}:\d{{2}}(?::\d{{2}})?)(?:\.\d{{1,9}})?(?P<iso_zone>Z|[+-]\d{{2}}:?\d{{2}})?)?)
| (?P<date>(?<![\w.,:/-])(?:
      \d{{1,2}}(?P<point>[./])\d{{1,2}}(?P=point)(?:\d{{4}}|\d{{2}})(?![\d./])
    | \d{{1,2}}(?:st|nd|rd|th|\.)?\ (?:of\ )?{MONTH}\b(?:\.?,?\ \d{{4}}\b)?
    | {MONTH}\b\.?\ \d{{1,2}}(?:st|nd|rd|th)?(?![\w:.]\w|\w)(?:,?\ \d{{4}}\b)?
    | {MONTH}\b\.?,?\ \d{{4}}\b
  ))
| (?P<time>(?<![\w.,:])(?:
      (?P<hour>\d{{1,2}}):(?P<minute>[0-5]\d)(?::(?P<second>[0-5]\d))?(?![\d:])(?:\ ?(?P<half>[AaPp])\.?[Mm]\b\.?)?
    | (?P<bare_hour>\d{{1,2}})\ ?(?P<bare_half>[AaPp])\.?[Mm]\b\.?
    | (?P<named>(?ai:noon|midnight)\b)
  )(?:\ ?(?P<zone>{"|".join(_ZONES)})\b)?)
| (?P<weekday>(?ai:{"|".join(_WEEKDAYS)})\b)
""",
    re.VERBOSE,
)
_DIGITS = re.compile(r"\d+")
_LETTERS = re.compile(r"[^\W\d_]{3,}")
# "Around 9:30" means up to a quarter of an hour before or after it.
_ABOUT = 15.0


_NONE: tuple[Figure, ...] = ()


def moments_at(text: str, start: int, form: tuple[Form, bool], about: bool) -> Sequence[Figure]:
    """Return the date or the time of day at a position, or both."""
    match = _MOMENT.match(text, start)
    return list(_moments(match, *form, about)) if match else _NONE


def _moments(match: re.Match[str], form: Form, before: bool, about: bool) -> Iterator[Figure]:
    start, end = match.span()
    if match["iso"]:
        yield from _iso(match, form, before)
    elif match["date"]:
        if readings := _days(match["date"]):
            yield Figure(Day(readings, form, before), start, end)
    elif match["weekday"]:
        yield Figure(Weekday(_WEEKDAYS.index(match["weekday"].lower())), start, end)
    elif (at := _minutes(match)) is not None:
        marked = bool(match["half"] or match["bare_half"] or match["named"])
        zone = _ZONES[match["zone"]] if match["zone"] else None
        yield Figure(TimeOfDay(at, marked, zone, _ABOUT if about else 0.0, form, before), start, end)


def _iso(match: re.Match[str], form: Form, before: bool) -> Iterator[Figure]:
    start, end = match.span()
    year, month, day = (int(digits) for digits in match["iso"][:10].split("-"))
    readings = ((year, month, day),)
    if not match["iso_time"]:
        yield Figure(Day(readings, form, before), start, end)
        return
    hour, minute, second = (*map(int, match["iso_time"].split(":")), 0)[:3]
    offset = None
    if zone := match["iso_zone"]:
        digits = zone[1:].replace(":", "")
        offset = 0 if zone == "Z" else (int(digits[:2]) * 60 + int(digits[2:])) * (-1 if zone[0] == "-" else 1)
        # In UTC it may be the day before or after.
        if shift := (hour * 60 + minute - offset) // 1440:
            readings += (_shifted(year, month, day, shift),)
    yield Figure(Day(readings, form, before), start, start + 10)
    yield Figure(TimeOfDay(hour * 60 + minute + second / 60, zone=offset, form=form, before=before), start + 10, end)


def _shifted(year: int, month: int, day: int, days: int) -> tuple[int, int, int]:
    """Return the date that many days later, or the date itself if the calendar does not reach that far."""
    try:
        moved = date(year, month, day) + timedelta(days=days)
    except (ValueError, OverflowError):
        return year, month, day
    return moved.year, moved.month, moved.day


def date_readings(text: str) -> tuple[tuple[int, int, int], ...]:
    """Return the readings of a date as year, month and day, 0 if not given: 3/4/2025 is in March or in April."""
    numbers = [int(digits) for digits in _DIGITS.findall(text)]
    for word in _LETTERS.findall(text.lower()):
        if month := _MONTH_STARTS.get(word[:3]):
            year = next((number for number in numbers if number > 31), 0)
            return ((year, month, next((number for number in numbers if number <= 31), 0)),)
    if "-" in text:
        year, month, day = numbers
        return ((year, month, day),)
    first, second, year = numbers
    year += 2000 if year < 100 else 0
    return ((year, second, first), (year, first, second)) if "/" in text else ((year, second, first),)


def _days(text: str) -> tuple[tuple[int, int, int], ...]:
    """Return the readings of a date that exist in a calendar."""
    named = _LETTERS.search(text) is not None
    return tuple(each for each in date_readings(text) if named or (1 <= each[1] <= 12 and 1 <= each[2] <= 31))


def _minutes(match: re.Match[str]) -> float | None:
    if named := match["named"]:
        return 720.0 if named.lower() == "noon" else 0.0
    hour = int(match["hour"] or match["bare_hour"])
    minute, second = int(match["minute"] or 0), int(match["second"] or 0)
    half = (match["half"] or match["bare_half"] or "").lower()
    if hour > (12 if half else 24):
        return None
    if half:
        hour = hour % 12 + (12 if half == "p" else 0)
    return hour * 60 + minute + second / 60


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
    all_figures: list[Figure] = []
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
            all_figures += moments
        elif last is None:
            all_figures.append(_figure(number))
        elif _are_ends(last, number, text):
            all_figures[-1] = _range(last, number)
        elif _are_one_quantity(last, number, text):
            number = _sum(last, number)
            all_figures[-1] = _figure(number)
        else:
            all_figures.append(_figure(number))
        last = number
        if number or moments:
            end = all_figures[-1].end
        else:
            # A name that begins with a digit or contains one.
            end = max(_REST_OF_WORD.match(text, start.start()).end(), start.end())  # pyright: ignore
    return all_figures


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
    unit, is_share = _unit_of_name(name)
    half = 0.5 if real == int(real) else _half_of_last_place(repr(real))
    number = _Number(((real, half),), unit, 1.0, None, 0, 0)
    figure = _figure(number)
    if is_share and abs(real) > 1:
        # Under such a name, 15 is 15 %, and so is 0.15.
        return replace(figure, other=_quantity(replace(number, unit=UNITS["%"]), number.readings[0]))
    return figure


@lru_cache(maxsize=4096)
def _unit_of_name(name: tuple[str, ...]) -> tuple[Unit, bool]:
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
