"""Reads days and times of day as people say them: tomorrow, on Friday, half past seven."""

import re
from collections.abc import Iterator
from datetime import date, timedelta
from typing import NamedTuple

from remit.words.numbers import MONTH, SPELLED, spelled_number
from remit_orchestrator.text.figures import date_readings

_WEEKDAYS = {
    name: place
    for names in (
        ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"),
        ("montag", "dienstag", "mittwoch", "donnerstag", "freitag", "samstag", "sonntag"),
    )
    for place, name in enumerate(names)
} | {"sonnabend": 5}
_AWAY = {"today": 0, "tonight": 0, "heute": 0, "tomorrow": 1, "morgen": 1, "the day after tomorrow": 2, "übermorgen": 2}
_DIGITS = r"\d{1,2}"
_SPOKEN_DAY = re.compile(
    rf"""
  (?P<iso>(?<![\w-])\d{{4}}-\d{{2}}-\d{{2}}(?![\d-]))
| (?P<numeric>(?<![\w.,:/-]){_DIGITS}(?P<point>[./]){_DIGITS}(?P=point)(?:\d{{4}}|\d{{2}})?(?![\w/]))
| (?:(?P<first>(?<![\w.,:/-]){_DIGITS})(?:st|nd|rd|th|\.)?\ ?(?:to|until|till|bis|-|–|and|und)\ ?(?:the\ |zum\ )?)?
  (?P<named>(?<![\w,:/])(?:
      {_DIGITS}(?:st|nd|rd|th|\.)?\ (?:of\ )?{MONTH}\b\.?(?:,?\ \d{{4}}\b)?
    | {MONTH}\b\.?\ {_DIGITS}(?:st|nd|rd|th)?(?![\w:.]\w|\w)(?:,?\ \d{{4}}\b)?))
| (?P<away>\b(?ai:the\ day\ after\ tomorrow|tomorrow|today|tonight|heute|morgen)\b|\b[üÜ]bermorgen\b)
| \b(?:(?P<which>(?ai:next|this|coming|kommend\w{{0,2}}|n[äÄ]chst\w{{0,2}}|diese\w{{0,1}}))\ )?
  (?P<weekday>(?ai:{"|".join(_WEEKDAYS)}))s?\b
| \bin\ (?P<count>\d{{1,3}}|{SPELLED}|a|einer)\ (?P<span>(?ai:days?|weeks?|tage?n?|wochen?))\b
""",
    re.VERBOSE,
)
# A day after one of these has passed.
_PAST = re.compile(r"\b(?:last|since|past|seit|letzt\w{0,2}|vorig\w{0,2}|vergangen\w{0,2})\s$", re.IGNORECASE)
_NOUN_BEFORE = re.compile(r"\b(?:am|guten|jeden|good|heute)\s$", re.IGNORECASE)


# The longest word before a day that changes its meaning, with room to spare.
_BEFORE = 20


class SpokenDay(NamedTuple):
    """A day in a text: where it stands, and which day it is."""

    start: int
    end: int
    day: date


class SpokenTime(NamedTuple):
    """A time of day in a text: where it stands, and its hour and minute."""

    start: int
    end: int
    hour: int
    minute: int

    @property
    def written(self) -> str:
        return f"{self.hour:02}:{self.minute:02}"


def spoken_days(text: str, today: date) -> list[SpokenDay]:
    """Return the days that a text names, none that has passed already by its words; 3/4/2027 may be two days."""
    days: list[SpokenDay] = []
    for match in _SPOKEN_DAY.finditer(text):
        if _PAST.search(text, max(0, match.start() - _BEFORE), match.start()) is None:
            days += _days_of(match, text, today)
    return days


def _days_of(match: re.Match[str], text: str, today: date) -> Iterator[SpokenDay]:
    start, end = match.span()
    if match["away"]:
        if not _is_morning(match, text):
            yield SpokenDay(start, end, today + timedelta(days=_AWAY[match["away"].casefold()]))
    elif match["weekday"]:
        which = (match["which"] or "").casefold()
        yield SpokenDay(start, end, _weekday(_WEEKDAYS[match["weekday"].casefold()], which, today))
    elif match["count"]:
        spelled = match["count"].casefold()
        count = int(spelled) if spelled.isdecimal() else 1 if spelled in {"a", "einer"} else spelled_number(spelled)
        weeks = match["span"].casefold().startswith("w")
        yield SpokenDay(start, end, today + timedelta(days=count * (7 if weeks else 1)))
    else:
        yield from _dated(match, today)


def _dated(match: re.Match[str], today: date) -> Iterator[SpokenDay]:
    end = match.end()
    written = match["named"] or match["iso"] or match["numeric"]
    start = end - len(written)
    if match["numeric"] and not written[-1].isdecimal():
        written = f"{written}{today.year}"
        readings = {_coming(0, month, day, today) for _, month, day in date_readings(written)}
    else:
        readings = {_coming(year, month, day, today) for year, month, day in date_readings(written)}
    readings.discard(None)
    if len(readings) != 1:
        return  # no such day, or one of two
    (day,) = readings
    assert day is not None
    if match["first"]:
        earlier = _coming(day.year, day.month, int(match["first"]), today)
        if earlier is not None and earlier < day:
            yield SpokenDay(match.start("first"), match.end("first"), earlier)
    yield SpokenDay(start, end, day)


def _is_morning(match: re.Match[str], text: str) -> bool:
    """Tell whether the German word is the morning, not the day after this one: a noun after an article or a day."""
    return (
        match["away"].casefold() == "morgen"
        and _NOUN_BEFORE.search(text, max(0, match.start() - _BEFORE), match.start()) is not None
    )


def _weekday(day: int, which: str, today: date) -> date:
    """Return the next such day after today; after "next", that of the week after this one."""
    if which.startswith(("next", "n")):
        return today + timedelta(days=7 - today.weekday() + day)
    return today + timedelta(days=(day - today.weekday() - 1) % 7 + 1)


def _coming(year: int, month: int, day: int, today: date) -> date | None:
    """Return a date; without a year, the next that is not past."""
    try:
        if year:
            return date(year, month, day)
        this_year = date(today.year, month, day)
        return this_year if this_year >= today else date(today.year + 1, month, day)
    except ValueError:
        return None


# ── times of day ──────────────────────────────────────────────────────────────────────────────────────────────────────

_HOUR = rf"(?:\d{{1,2}}|{SPELLED})"
_SPOKEN_TIME = re.compile(
    rf"""
  (?<![\w.,:])(?P<hour>\d{{1,2}}):(?P<minute>[0-5]\d)(?![\d:])(?:\ ?(?P<half>[AaPp])\.?[Mm]\b\.?)?(?:\ (?ai:uhr)\b)?
| (?<![\w.,:])(?P<bare>{_HOUR})\ ?(?P<bare_half>[AaPp])\.?[Mm]\b\.?
| \b(?P<uhr>{_HOUR})\ (?ai:uhr|o['’]clock)\b(?:\ (?P<after_uhr>[0-5]?\d)\b(?!\.))?
| \b(?P<part>(?ai:half\ past|quarter\ past|a\ quarter\ past|quarter\ to|a\ quarter\ to|halb|viertel\ nach|viertel\ vor))
  \ (?P<parted>{_HOUR})\b(?:\ (?ai:uhr|o['’]clock)\b)?
| \b(?P<noon>(?ai:noon|midnight|mittags|mitternacht))\b
| \b(?ai:at|um|gegen)\ (?:about\ |around\ )?(?P<plain>{_HOUR})\b
  (?=\s*(?:$|[,.;!?\n](?!\d)|(?ai:on|in|for|with|and|tomorrow|today|tonight|please|am|für|mit|und|bitte|morgen|heute)\b
      |(?ai:{"|".join(_WEEKDAYS)})\b))
""",
    re.VERBOSE,
)
_LATER = re.compile(r",?\s(?:in the (?:evening|afternoon)|tonight|abends|nachmittags|am (?:abend|nachmittag))\b", re.I)
_PARTS = {
    **{"half past": 30, "quarter past": 15, "a quarter past": 15, "viertel nach": 15},
    **{"quarter to": -15, "a quarter to": -15, "viertel vor": -15, "halb": -30},
}


def spoken_times(text: str) -> list[SpokenTime]:
    """Return the times of day that a text names; "at ten" is ten o'clock, and 22:00 if it says in the evening."""
    times: list[SpokenTime] = []
    for match in _SPOKEN_TIME.finditer(text):
        at = _minutes(match)
        if at is None or _PAST.search(text, max(0, match.start() - _BEFORE), match.start()):
            continue
        if at < 720 and not (match["half"] or match["bare_half"]) and _LATER.match(text, match.end()):
            at += 720
        start = match.start("plain") if match["plain"] else match.start()
        times.append(SpokenTime(start, match.end(), at // 60, at % 60))
    return times


def _minutes(match: re.Match[str]) -> int | None:
    if match["noon"]:
        return 720 if match["noon"].casefold() in {"noon", "mittags"} else 0
    spelled = next(match[name] for name in ("hour", "bare", "uhr", "parted", "plain") if match[name])
    hour = int(spelled) if spelled.isdecimal() else spelled_number(spelled)
    minute = int(match["minute"] or match["after_uhr"] or 0)
    half = (match["half"] or match["bare_half"] or "").casefold()
    if hour > (12 if half else 24):
        return None
    if half:
        hour = hour % 12 + (12 if half == "p" else 0)
    moved = _PARTS[match["part"].casefold()] if match["part"] else 0
    return (hour * 60 + minute + moved) % 1440
