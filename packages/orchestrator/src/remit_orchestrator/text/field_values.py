"""Finds values for the fields of an input in a user's words; what does not stand there is left for a question.

A value counts only if its type, format, pattern, enumeration, label or preposition says which field it is for. Where
two values or two fields compete, none is filled.
"""

import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import date
from typing import NamedTuple, TypeVar

from remit.protocol.card import Schema
from remit.protocol.envelope import Json
from remit_orchestrator.text.field_kinds import Field, field_of
from remit_orchestrator.text.field_numbers import numbers_for
from remit_orchestrator.text.field_texts import texts_for
from remit_orchestrator.text.lexicon import alternatives, word_set
from remit_orchestrator.text.spoken_times import SpokenDay, SpokenTime, spoken_days, spoken_times
from remit_orchestrator.text.vocabulary import stem

Moment = TypeVar("Moment", SpokenDay, SpokenTime)
Fits = Callable[[Schema, Json], bool]
"""Returns whether a value fits a JSON Schema."""

# A request is stated in its first paragraphs; the rest is the material to work on.
_LONGEST_TEXT = 1_000
_MOST_FIELDS = 50
# The words before a value that say what it is for.
_BEFORE = 60
_CLAUSE_END = re.compile(r"[,;.!?](?=\s|$)|\n|\s(?=(?:that|because|dass|weil)\s)")
# A clause with one of these tells what was, or what might be: no value is meant in it.
_ASIDE = re.compile(
    rf"\b(?:had|{alternatives('english_was')}|were|paid|ago|yesterday|hatte|hatten|war|waren|gestern|letzte[nrsm]?|vorige[nrsm]?"
    r"|last (?:year|month|week|time))\b"
    r"|^\s*(?:and |but |und |aber )?(?:if|unless|whether|wenn|falls|ob)\b",
    re.IGNORECASE,
)
_NOT = re.compile(
    r"\b(?:not|no|never|without|except|but|nor|instead of|rather than|other than|nicht|kein\w{0,2}|ohne|außer"
    r"|statt|anstatt)"
    r"(?:\s[\w’']+){0,2}?\s$",
    re.IGNORECASE,
)
_WITH = re.compile(
    r"\b(?:with|including|include|plus|mit|inklusive|inkl\.?|samt)(?:\s(?:an?|the|eine?[nmr]?|de[nrm]|die))?\s$", re.I
)
_WITHOUT = re.compile(r"\b(?:without|no|excluding|ohne|keine?n?)(?:\s(?:an?|the|eine?[nmr]?|de[nrm]|die))?\s$", re.I)
_IS = re.compile(r"\b(?:it is|it's|it’s|this is|es ist|das ist)(?:\s(?:an?|ein\w{0,2}))?\s$", re.I)
_NOT_SO = re.compile(r"\b(?:not|nicht|kein\w{0,2})(?:\s(?:an?|so|very|ein\w{0,2}))?\s$", re.I)
_ENDING = r"(?:e?s|en?|er|n|es)?"
# These are chosen only by a label before them: "may", "no".
_SHORT_WORDS = word_set("value.short_words")


class FoundValue(NamedTuple):
    """A value for a field, and where in the text it stands."""

    value: Json
    start: int
    end: int


class Words(NamedTuple):
    """A user's words, with those blanked out in which no value is meant."""

    text: str
    today: date
    fits: Fits
    reply: bool
    """Whether they answer a question for the fields."""


def find_values(
    text: str, schemas: Mapping[str, Schema], required: frozenset[str], fits: Fits, today: date, *, reply: bool = False
) -> dict[str, FoundValue]:
    """Return the fields of an input that stand in a text. *today* is the day on which it was said."""
    words = Words(_meant(text[:_LONGEST_TEXT]), today, fits, reply)
    fields = [
        field_of(name, schema, required=name in required) for name, schema in list(schemas.items())[:_MOST_FIELDS]
    ]
    found = _times(words, fields)
    found |= _days(words, fields)
    taken = [(each.start, each.end) for each in found.values()]
    for finder in (_choices, _truths, _numbers, _texts):
        found |= {name: each for name, each in finder(words, fields, taken) if name not in found}
    return {name: each for name, each in _alone(found).items() if fits(schemas[name], each.value)}


def _meant(text: str) -> str:
    """Return a text with the clauses blanked out that tell what was or might be; positions stay."""
    parts: list[str] = []
    start = 0
    for end in [*(match.end() for match in _CLAUSE_END.finditer(text)), len(text)]:
        clause = text[start:end]
        parts.append(" " * len(clause) if _ASIDE.search(clause) else clause)
        start = end
    return "".join(parts)


def _alone(found: dict[str, FoundValue]) -> dict[str, FoundValue]:
    """Return the values whose words no other field claims."""
    claims: dict[tuple[int, int], list[str]] = defaultdict(list)
    for name, each in found.items():
        claims[each.start, each.end].append(name)
    return {
        name: each
        for name, each in found.items()
        if len(claims[each.start, each.end]) == 1
        and not any(
            # The unit within an amount may be a value of its own: 500 EUR.
            isinstance(found[names[0]].value, str)
            and start <= each.start
            and each.end <= end
            and (start, end) != (each.start, each.end)
            for (start, end), names in claims.items()
        )
    }


def is_denied(text: str, start: int) -> bool:
    """Tell whether what stands at a position is ruled out by the words before it."""
    return _NOT.search(text, max(0, start - _BEFORE), start) is not None


# ── days and times ────────────────────────────────────────────────────────────────────────────────────────────────────

_OR = re.compile(r"\s?(?:,|or|oder|/)\s(?:on |am |at |um )?", re.I)
_FROM = re.compile(r"\b(?:from|starting|starts|beginning|begins|von|ab|vom)\s(?:the\s|on\s)?$", re.I)
_UNTIL = re.compile(
    r"(?:\b(?:to|until|till|through|ends|ending|bis|bis zum|endet am)\s(?:the\s|on\s)?|\d\.?(?:st|nd|rd"
    r"|th)?\s?[-–]\s?)$",
    re.I,
)


def _days(words: Words, fields: list[Field]) -> dict[str, FoundValue]:
    wanted = [field for field in fields if field.kind in {"day", "moment"}]
    said = spoken_days(words.text, words.today)
    times = spoken_times(words.text)
    found: dict[str, FoundValue] = {}
    for field, day in _matched(words.text, wanted, said):
        value: str | None = words.text[day.start : day.end]
        if field.kind == "moment":
            value = f"{day.day.isoformat()}T{times[0].written}:00" if len(times) == 1 else None
        elif field.schema.get("format") == "date":
            value = day.day.isoformat()
        if value is not None:
            found[field.name] = FoundValue(value, day.start, day.end)
    return found


def _times(words: Words, fields: list[Field]) -> dict[str, FoundValue]:
    wanted = [field for field in fields if field.kind == "time"]
    found: dict[str, FoundValue] = {}
    for field, time in _matched(words.text, wanted, spoken_times(words.text)):
        value = time.written
        if field.schema.get("format") == "time" and not words.fits(field.schema, value):
            value = f"{value}:00Z" if words.fits(field.schema, f"{value}:00Z") else f"{value}:00"
        found[field.name] = FoundValue(value, time.start, time.end)
    return found


def _matched(text: str, wanted: list[Field], said: Sequence[Moment]) -> list[tuple[Field, Moment]]:
    """Return which field each day or time is for: the two ends of a span, or the only one that is wanted."""
    said = [each for each in said if not is_denied(text, each.start)]
    if not wanted or not said:
        return []
    ends = [_end_of_span(text, each.start) for each in said]
    if len(said) == 2 and ends[1] == "end" and ends[0] != "end":
        starts, stops = _pair(wanted)
        return [] if starts is None or stops is None else [(starts, said[0]), (stops, said[1])]
    if len({each[2:] for each in said}) > 1:
        return []
    if ends[0]:
        field = next((each for each in wanted if each.end == ends[0]), wanted[0] if len(wanted) == 1 else None)
        return [] if field is None else [(field, said[0])]
    needed = [each for each in wanted if each.required] or wanted
    return [(needed[0], said[0])] if len(needed) == 1 else []


def _end_of_span(text: str, start: int) -> str:
    return (
        "end"
        if _UNTIL.search(text, max(0, start - _BEFORE), start)
        else "start"
        if _FROM.search(text, max(0, start - _BEFORE), start)
        else ""
    )


def _pair(wanted: list[Field]) -> tuple[Field | None, Field | None]:
    """Return the two fields for the ends of a span of days; if one says which it is, the other is the other end."""
    if len(wanted) != 2:
        named = [[each for each in wanted if each.end == end] for end in ("start", "end")]
        return (named[0][0], named[1][0]) if len(named[0]) == len(named[1]) == 1 else (None, None)
    one, other = wanted
    if one.end == other.end:
        return None, None
    return (one, other) if one.end == "start" or other.end == "end" else (other, one)


# ── choices, yes and no ───────────────────────────────────────────────────────────────────────────────────────────────

Taken = list[tuple[int, int]]
Finder = Iterator[tuple[str, FoundValue]]


def _choices(words: Words, fields: list[Field], taken: Taken) -> Finder:
    for field in fields:
        if field.kind == "choice" and field.schema.get("type") != "array":
            named = [each for each in _named_options(words.text, field) if not _overlaps(each, taken)]
            if len({repr(each.value) for each in named}) == 1:
                yield field.name, named[0]


def _named_options(text: str, field: Field) -> list[FoundValue]:
    """Return the options that a text names, without those within a longer one, and those that it rules out."""
    found: list[FoundValue] = []
    for spoken, value in field.options.items():
        plain = r"[\s_-]".join(map(re.escape, spoken.split()))
        labelled = "|".join(map(re.escape, field.labels))
        short = spoken in _SHORT_WORDS or spoken in {"a", "i"} or not any(sign.isalpha() for sign in spoken)
        pattern = rf"\b(?:{labelled})\W{{1,3}}(?P<value>{plain})(?!\w)" if short and labelled else ""
        if not short:
            pattern = rf"(?<![\w-])(?P<value>{plain}{_ENDING})(?![\w])"
        if not pattern:
            continue
        for match in re.finditer(pattern, text, re.IGNORECASE):
            # A single letter is a size or a class only as it is written.
            letter = (
                spoken.isalpha() and len(spoken) == 1 and match["value"] != value and match["value"] != text.strip()
            )
            if not letter and not is_denied(text, match.start("value")) and not _is_of_other(match, text, field):
                found.append(FoundValue(value, *match.span("value")))
    return [
        each
        for each in found
        if not any(other.start <= each.start and each.end <= other.end and other[1:] != each[1:] for other in found)
    ]


def _is_of_other(match: re.Match[str], text: str, field: Field) -> bool:
    """Tell whether an option is said of something else than the field: "the water is high" is no priority."""
    said = _SAID_OF.search(text, max(0, match.start("value") - _BEFORE), match.start("value"))
    return said is not None and said[1].casefold() not in {*field.labels, "it", "that", "this", "es", "das"}


_SAID_OF = re.compile(
    r"\b(\w+)\s(?:is|are|looks|seems|becomes|ist|sind|wird)\s(?:too |very |zu |sehr )?$", re.IGNORECASE
)


def _truths(words: Words, fields: list[Field], _: Taken) -> Finder:
    for field in fields:
        if field.kind != "truth":
            continue
        for match in re.finditer(r"[^\W\d_]+(?:-[^\W\d_]+)*", words.text):
            if match[0].casefold() not in field.labels and not _is_one_of(match[0], field):
                continue
            before = words.text[max(0, match.start() - _BEFORE) : match.start()]
            edges = not before.strip() or before.rstrip()[-1] in ",;.", words.text[match.end() : match.end() + 1]
            alone = edges[0] and edges[1] in {"", ",", ";", ".", "!"}
            if _WITHOUT.search(before) or _NOT_SO.search(before):
                yield field.name, FoundValue(False, *match.span())
            elif _WITH.search(before) or _IS.search(before) or alone:
                yield field.name, FoundValue(True, *match.span())


def _is_one_of(word: str, field: Field) -> bool:
    return any(stem(word.casefold()) == stem(label.split()[-1]) for label in field.labels)


# ── numbers and texts ─────────────────────────────────────────────────────────────────────────────────────────────────


def _numbers(words: Words, fields: list[Field], taken: Taken) -> Finder:
    wanted = [field for field in fields if field.kind == "number"]
    moments = [
        *((each.start, each.end) for each in spoken_days(words.text, words.today)),
        *((each.start, each.end) for each in spoken_times(words.text)),
    ]
    for field, value, start, end in numbers_for(words.text, wanted, [*moments, *taken]) if wanted else ():
        yield field.name, FoundValue(value, start, end)


def _texts(words: Words, fields: list[Field], taken: Taken) -> Finder:
    wanted = [field for field in fields if field.kind == "text"]
    moments = [(each.start, each.end) for each in spoken_days(words.text, words.today)]
    blocked = [*moments, *taken]
    for field, value, start, end in texts_for(words.text, wanted, words.fits, reply=words.reply) if wanted else ():
        if not _overlaps(FoundValue(value, start, end), blocked):
            yield field.name, FoundValue(value, start, end)


def _overlaps(found: FoundValue, spans: Taken) -> bool:
    return any(start < found.end and found.start < end for start, end in spans)
