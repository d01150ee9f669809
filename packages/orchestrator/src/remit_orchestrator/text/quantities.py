"""Amounts, times and dates as values, and whether two of them agree."""

from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

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
