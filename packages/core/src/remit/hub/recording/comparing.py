"""Compares what is asked in a replay with what was asked in the recording, and says what differs."""

import json
import re
from collections.abc import Iterator
from typing import Literal, NamedTuple, cast

from remit.policy.redaction import TOKEN, kind_of
from remit.protocol.codec import text_of
from remit.protocol.envelope import Json

ExchangeKind = Literal["model", "tool", "agent", "person", "value"]

_WHAT: dict[str, str] = {
    "model": "call of its model",
    "tool": "use of a tool",
    "agent": "request to another hub",
    "person": "question to a person",
    "value": "value that it finds out once",
}

# What providers' clients and budgets add to a call: no part of what the model is asked.
_NOT_ASKED = frozenset(
    {
        "max_tokens",
        "max_completion_tokens",
        "max_output_tokens",
        "metadata",
        "prompt_cache_key",
        "safety_identifier",
        "service_tier",
        "store",
        "stream_options",
        "user",
    }
)
_LIMITS_OF_GEMINI = ("generationConfig", "maxOutputTokens")
# Ids of calls of tools, which some clients make anew each time.
_CALL_IDS = frozenset({"tool_call_id", "call_id", "tool_use_id"})
_CALLS = frozenset({"function", "function_call", "tool_call", "tool_use"})

# How long something took, also in JSON within a text.
_DURATION = re.compile(r'(\\*"(?:duration_ms|duration_seconds)\\*": ?)[0-9.]+')

# As much of a value as a line about a difference has room for.
_SHOWN = 60
_BEFORE = 24


class ComparableRequest(NamedTuple):
    """A request in the form in which it is compared: as a value, as a text, and the placeholders in that text."""

    value: Json
    text: str
    placeholders: tuple[str, ...]


def comparable(kind: str, request: Json) -> ComparableRequest:
    """Return a request without what differs from run to run; placeholders are numbered as they appear."""
    value = _without_call_ids(_asked(request) if kind == "model" else request, {})
    text = json.dumps(value, sort_keys=True, ensure_ascii=False)
    numbers: dict[str, str] = {}

    def numbered(match: re.Match[str]) -> str:
        return numbers.setdefault(match[0], f"[{kind_of(match[0])} {len(numbers) + 1}]")

    text = TOKEN.sub(numbered, _DURATION.sub(r"\g<1>0", text))
    return ComparableRequest(json.loads(text), text, tuple(numbers))


def _asked(request: Json) -> Json:
    """Return the call of a model without limits and labels."""
    match request:
        case {"body": dict(), **others}:
            given = cast("dict[str, dict[str, Json]]", request)["body"]
            body = {name: each for name, each in given.items() if name not in _NOT_ASKED}
            section, limit = _LIMITS_OF_GEMINI
            if isinstance(body.get(section), dict):
                inner = cast("dict[str, Json]", body[section])
                body[section] = {name: each for name, each in inner.items() if name != limit}
            return {**cast("dict[str, Json]", others), "body": body}
        case _:
            return request


def _without_call_ids(value: Json, numbers: dict[str, str]) -> Json:
    if isinstance(value, list | tuple):
        return [_without_call_ids(each, numbers) for each in cast("list[Json]", value)]
    if not isinstance(value, dict):
        return value
    fields = cast("dict[str, Json]", value)
    is_call = fields.get("type") in _CALLS
    made: dict[str, Json] = {}
    for name, each in fields.items():
        if isinstance(each, str) and (name in _CALL_IDS or (is_call and name == "id")):
            made[name] = numbers.setdefault(each, f"call {len(numbers) + 1}")
        else:
            made[name] = _without_call_ids(each, numbers)
    return made


class FieldChange(NamedTuple):
    """The first field in which two values differ."""

    field: str
    before: str | None
    """None: the field was added."""
    after: str | None
    """None: the field is missing."""


# Stands for a part that is not there; null is one that is.
_NONE: Json = object()


def first_change(before: Json, after: Json) -> FieldChange | None:
    """Return the first field in which two values differ; None if they are equal."""
    return next(_changes(before, after, ""), None)


def _changes(before: Json, after: Json, field: str) -> Iterator[FieldChange]:
    match before, after:
        case (dict(), dict()):
            old, new = cast("dict[str, Json]", before), cast("dict[str, Json]", after)
            for name in (*old, *(each for each in new if each not in old)):
                place = f"{field}.{name}" if field else name
                yield from _change_of_part(place, old.get(name, _NONE), new.get(name, _NONE))
        case (list(), list()):
            many, others = cast("list[Json]", before), cast("list[Json]", after)
            for place in range(max(len(many), len(others))):
                pair = [each[place] if place < len(each) else _NONE for each in (many, others)]
                yield from _change_of_part(f"{field}[{place}]", *pair)
        case _ if before != after or type(before) is not type(after):
            yield FieldChange(field, *_snippets(text_of(before), text_of(after)))
        case _:
            pass


def _change_of_part(field: str, old: Json, new: Json) -> Iterator[FieldChange]:
    if old is _NONE:
        yield FieldChange(field, None, _snippet(text_of(new), 0))
    elif new is _NONE:
        yield FieldChange(field, _snippet(text_of(old), 0), None)
    else:
        yield from _changes(old, new, field)


def _snippets(before: str, after: str) -> tuple[str, str]:
    """Return the parts of two texts around the first place in which they differ."""
    same = next((place for place, (one, other) in enumerate(zip(before, after, strict=False)) if one != other), None)
    place = min(len(before), len(after)) if same is None else same
    return _snippet(before, place), _snippet(after, place)


def _snippet(text: str, place: int) -> str:
    start = 0 if place <= _BEFORE else text.rfind(" ", 0, place - _BEFORE // 2) + 1
    start = max(start, place - _BEFORE, 0)
    end = start + _SHOWN
    return ("…" if start else "") + " ".join(text[start:end].split()) + ("…" if len(text) > end else "")


class RecordedDifference(NamedTuple):
    """A place in which a replay differs from its recording."""

    agent: str
    at: str
    """The path of its delegation in the run; empty for the first."""
    kind: str
    """`model`, `tool`, `agent`, `person` or `value`; `request` or `answer` of the run itself; or `connection`."""
    call: int
    """The number of the call among those of its kind in its delegation."""
    field: str
    """The field that differs; empty: the call as a whole."""
    before: str | None
    after: str | None
    run: int = 1
    """The number of the run in the recording."""

    def __str__(self) -> str:
        return f"{self._where()}{self._how()}"

    def _where(self) -> str:
        at = f" (call {self.at})" if self.at else ""
        if self.kind in ("request", "answer"):
            return f"the {self.kind} of {self.agent}{at}"
        if self.kind == "connection":
            return f"{self.agent}{at}"
        return f"{self.agent}'s {ordinal(self.call)} {_WHAT[self.kind]}{at}"

    def _how(self) -> str:
        if self.kind == "connection":
            instead = "send with httpx, or let a tool do it"
            return f" opens a connection to {self.after}, which a recording does not hold: {instead}"
        if not self.field:
            return " is not in the recording" if self.before is None else " is in the recording, and was not made"
        field = self.field.removeprefix("body.")
        if self.before is None:
            return f": `{field}` was added: {_quoted(self.after)}"
        if self.after is None:
            return f": `{field}` is missing: {_quoted(self.before)}"
        return f": `{field}`: {_quoted(self.before)} became {_quoted(self.after)}"


def _quoted(text: str | None) -> str:
    return f"'{text}'"


def ordinal(number: int) -> str:
    """Return a number as `1st`, `2nd`, `3rd`, `4th`."""
    end = "th" if number % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{end}"
