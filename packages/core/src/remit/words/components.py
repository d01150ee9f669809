"""Results of several agents as components of one answer: values to compare, merge and narrate."""

import re
from functools import lru_cache
from typing import Literal, NamedTuple, cast

from msgspec import Struct

from remit.protocol.envelope import Json

Severity = Literal["low", "medium", "high"]


class Component(Struct, frozen=True):
    """The contribution of one agent."""

    name: str
    """The agent that gave it; never shown to a user."""
    result: Json = None
    """What it contributed."""
    confidence: float | None = None
    """How sure it is, from 0 to 1."""
    title: str = ""
    """Its topic in plain language: the heading under which a user reads it."""
    question: str = ""
    """The question that it answers. Only components with the same question are compared."""
    same_as: tuple[tuple[str, str], ...] = ()
    """Fields that other results also have: the path of each, and the shared name of its content."""


class ReportedValue(NamedTuple):
    """A value, and the components that give it."""

    value: Json
    """The value."""
    names: tuple[str, ...]
    """The components that give it."""


class Conflict(Struct, frozen=True, kw_only=True):
    """A point on which components contradict each other."""

    path: str
    """A place in the results (`flights[AF12].departure`), or the words that both texts use for it (`train leaves`)."""
    severity: Severity
    """How serious it is."""
    values: tuple[ReportedValue, ...]
    """Each value, with who gives it."""
    preferred: Json = None
    """The value of the most confident source; None if none is."""
    question: str | None = None
    """The question for the user, where it matters and no source is more confident."""
    settled: bool = False
    """Whether the preferred value is the one that the user decided for."""


class Findings(Struct, frozen=True, kw_only=True):
    """How far components agree: the share of comparisons that agree; 1 if nothing can be compared."""

    conflicts: tuple[Conflict, ...] = ()
    agreement: float = 1.0
    complete: bool = True
    """False if there was more to compare or to list than the limit allows."""


# ── words ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


# A number under a name with one of these words is a share: 0.15 is 15 %.
SHARES = frozenset(
    ["growth", "margin", "pct", "percent", "percentage", "probability", "rate", "ratio", "share", "yield"]
)

_PARTS_OF_A_NAME = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[^\W\d_A-Z]+|\d+")
_STEPS = re.compile(r"\[([^\]]{0,100})\]|[^.\[\]]+")


@lru_cache(maxsize=4096)
def name_words(name: str) -> tuple[str, ...]:
    """Return the words of a field's name in lower case: `growthRate`, `growth_rate` and `Growth Rate` are equal."""
    # No real field has a longer name; a longer one was made to cost time.
    return tuple(part.lower() for part in _PARTS_OF_A_NAME.findall(name[:200]))


def in_words(path: str) -> str:
    """Return a place in a result in words: `flights[A1].departureTime` becomes "flights A1 departure time"."""
    words: list[str] = []
    for step in _STEPS.finditer(path):
        words += [step[1]] if step[1] is not None else [word_as_written(word) for word in step[0].split("_") if word]
    return " ".join(filter(None, words)) or "the answer"


def words_of(text: str) -> frozenset[str]:
    """Return the words of a list as a set."""
    return frozenset(text.split())


def squeezed(text: str) -> str:
    """Return a text as one line with single spaces."""
    return " ".join(text.split())


def cut(text: str, length: int, around: int = 0) -> str:
    """Return at most *length* characters of a line, cut between words, including the text at *around*."""
    if len(text) <= length:
        return text
    lead = ""
    if around > length // 2:
        # A quarter of the length is for the text before.
        start = around - length // 4
        lead, text = "… ", text[1 + text.find(" ", start, around) or start :]
    room = length - len(lead)
    if len(text) <= room:
        return lead + text
    space = text.rfind(" ", room // 2, room)
    head = text[: space if space > 0 else room - 1]
    if head.rfind("[") > head.rfind("]"):
        # A placeholder for a redacted value is kept whole or left out.
        head = head[: head.rfind("[")]
    return f"{lead}{head.rstrip(' ,;:')}…"


def capital(text: str) -> str:
    """Return a text with its first letter in upper case."""
    return text[:1].upper() + text[1:]


@lru_cache(maxsize=4096)
def word_as_written(word: str) -> str:
    """Return one word of a name, split where its case changes, and in lower case unless it is an abbreviation."""
    return " ".join(part if part.isupper() and len(part) > 1 else part.lower() for part in _SPACED.split(word))


_SPACED = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|\s+")

# Nobody reads deeper, and a result that was made deep on purpose does no harm.
_DEEPEST = 8
_WIDEST = 1_000


def laid_out(result: Json) -> str:
    """Return a result as readable text: texts as they are, structures as lists of names and values."""
    if isinstance(result, str):
        return result.strip()
    lines: list[str] = []
    _lay_out(result, 0, lines)
    return "\n".join(lines)


def _lay_out(value: Json, depth: int, lines: list[str]) -> None:
    indent = "  " * depth
    match value:
        case dict() | list() | tuple() if depth >= _DEEPEST:
            lines.append(f"{indent}- …")
        case dict():
            for name, each in list(cast("dict[str, Json]", value).items())[:_WIDEST]:
                label = capital(in_words(name))
                if (short := short_value(each)) is not None:
                    lines.append(f"{indent}- {label}: {short}")
                else:
                    lines.append(f"{indent}- {label}:")
                    _lay_out(each, depth + 1, lines)
        case list() | tuple():
            for place, each in enumerate(list(cast("list[Json]", value))[:_WIDEST], 1):
                if (short := short_value(each)) is not None:
                    lines.append(f"{indent}- {short}")
                else:
                    lines.append(f"{indent}- {place}:")
                    _lay_out(each, depth + 1, lines)
        case _:
            lines.append(short_value(value) or "")


def short_value(value: Json) -> str | None:
    """Return a value as words on one line; None if it is a structure that needs several."""
    match value:
        case list() | tuple():
            several = [_simple(each) for each in list(cast("list[Json]", value))[:_WIDEST]]
            simple = [each for each in several if each is not None]
            # Nested structures and long values get a line each.
            return ", ".join(simple) or "none" if len(simple) == len(several) and sum(map(len, simple)) <= 100 else None
        case dict():
            return None if value else "none"
        case _:
            return _simple(value)


def _simple(value: Json) -> str | None:
    match value:
        case None:
            return "not known"
        case bool():
            return "yes" if value else "no"
        case str():
            return " ".join(value.split()) or "not known"
        case dict() | list() | tuple():
            return None
        case _:
            return str(value)
