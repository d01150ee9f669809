"""Converts the result of a framework's agent into an answer."""

import json
from collections.abc import Iterable
from contextlib import suppress
from typing import cast

import msgspec
from msgspec.structs import replace

from remit.agents.structured_answer import answer_of
from remit.protocol.card import Schema
from remit.protocol.envelope import Answer, Json, Source
from remit.protocol.plain import written

# So many letters without a space are no text, but a picture or a file, written as one.
OPAQUE = 4_000

# How the fields of an answer are called: as the models of `ModelAgent` call them, or as `Answer` does.
_FIELDS = {
    "answer": "answer",
    "result": "answer",
    "summary": "summary",
    "confidence": "confidence",
    "sources": "sources",
    "facts": "facts",
    "new_facts": "facts",
    "artifacts": "artifacts",
    "follow_up": "follow_up",
    "requires_followup": "follow_up",
}


def answer_from(output: object, schema: Schema | None, *, user: str, references: Iterable[Source] = ()) -> Answer:
    """Return what a run gave back as an answer: a text, JSON, or the fields of an answer (X2).

    *schema* is what the result must fit, None if it may be anything. A text is read as JSON if that is wanted.
    """
    if isinstance(output, Answer):
        return replace(output, result=plain(output.result))
    free = schema is None or schema.get("type") == "string"
    if isinstance(output, str):
        if not free:
            with suppress(ValueError):  # a result that does not fit is refused by the hub, in its words
                return Answer(json.loads(output.strip().removeprefix("```json").strip("`")))
        return Answer(str(output))
    result = plain(output)
    # A result that must fit a schema is that result, whatever its fields are called.
    if free and (fields := fields_of(result)) is not None:
        return answer_of(fields, text="", user=user, references=references)
    return Answer(result)


def fields_of(result: Json) -> dict[str, Json] | None:
    """Return a result as the fields of an answer, None if it is none: an answer, something more, and nothing else.

    A result with any other field is left whole, since there would be no place for that field.
    """
    if not isinstance(result, dict):
        return None
    given = cast("dict[str, Json]", result)
    if not given.keys() <= _FIELDS.keys():
        return None
    fields = {_FIELDS[name]: value for name, value in given.items()}
    return fields if "answer" in fields and 1 < len(fields) == len(given) else None


def plain(value: object, *, without_none: bool = False) -> Json:
    """Return a value as JSON; what has no form in JSON is told by its text."""
    from pydantic_core import to_jsonable_python  # every framework that is adapted here has it

    try:
        return to_jsonable_python(value, exclude_none=without_none, bytes_mode="base64", fallback=_other)
    except ValueError:  # bytes in a value that takes them for text, or a value that holds itself
        return str(value)[:OPAQUE]


def _other(value: object) -> object:
    """Return what pydantic does not know, an msgspec Struct for one, as JSON or as text."""
    try:
        return msgspec.to_builtins(value, enc_hook=written)
    except (TypeError, ValueError, RecursionError):
        return str(value)
