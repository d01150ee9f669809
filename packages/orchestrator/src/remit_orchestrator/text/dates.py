"""Reads dates and times of day."""

import re
from collections.abc import Iterator, Sequence
from datetime import date, timedelta

from remit.words.numbers import MONTH
from remit_orchestrator.text.lexicon import word_set
from remit_orchestrator.text.quantities import Day, Figure, Form, TimeOfDay, Weekday

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
