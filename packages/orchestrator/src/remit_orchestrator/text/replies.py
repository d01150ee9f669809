"""Reads a user's reply to a question: the chosen option, or values for fields of an input."""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import date
from typing import Any, NamedTuple, cast

from remit.protocol.card import Schema
from remit.protocol.envelope import Json
from remit.words.components import in_words
from remit.words.numbers import ORDINALS, SPELLED, any_of, spelled_number
from remit_orchestrator.text.field_replies import read_reply, whole_value
from remit_orchestrator.text.lexicon import word_set

Fits = Callable[[Schema, Json], bool]
"""Returns whether a value fits a JSON Schema."""

# ── options ───────────────────────────────────────────────────────────────────────────────────────────────────────────

# A reply that begins with one of these means yes, whatever follows.
_YES = word_set("reply.yes")
# These mean yes only alone; before other words they mean little: "ok, what about the weather".
_AGREED = _YES | word_set("reply.agreed")
_COURTESY = word_set("reply.courtesy")
_WORD = re.compile(r"[^\W_]+")
_NUMBER = re.compile(SPELLED)
# "The one" is a pronoun: words for numbers have no article.
_PLACE = re.compile(
    rf"\W*(?:(?:the |number |no\. ?|option |nummer |die |das |der )?(?P<place>\d{{1,3}}|(?ai:{any_of(*ORDINALS)}))"
    rf"|(?:number |option |nummer )?(?P<spelled>{SPELLED}))"
    r"(?: (?:one|option))?(?:,? (?:please|thanks|bitte))?\W*",
    re.IGNORECASE,
)


class ChosenOption(NamedTuple):
    """The index of an option, from 0, and whether the reply says more than the choice."""

    place: int
    more: bool = False


def chosen(reply: str, options: Sequence[str]) -> ChosenOption | None:
    """Return the option that a reply chooses, by its number or its words; None if it chooses none."""
    said = _WORD.findall(reply.casefold())
    if len(options) == 1 and said and said[0] in _AGREED:
        if all(word in _AGREED or word in _COURTESY for word in said):
            return ChosenOption(0)
        return ChosenOption(0, more=True) if said[0] in _YES else None
    named = [place for place, words in enumerate(options) if said and _WORD.findall(words.casefold()) == said]
    if len(named) == 1:
        return ChosenOption(named[0])
    place = place_named(reply)
    return ChosenOption(place - 1) if len(options) > 1 and 0 < place <= len(options) else None


def place_named(reply: str) -> int:
    """Return the number that the reply consists of; 0 if it is anything else."""
    found = _PLACE.fullmatch(reply)
    if found is None:
        return 0
    if found["spelled"]:
        return spelled_number(found["spelled"])
    return int(ORDINALS.get(found["place"].lower(), found["place"]))


# ── fields of an input ────────────────────────────────────────────────────────────────────────────────────────────────

# The words of a request stand for fields with these names; any other value has to be found in them.
_FREE_TEXT = ("query", "question", "request", "prompt", "objective", "task")
# Stands for them only if it is all that is wanted: "translate this text" does not say the text.
_TEXT = "text"


def inputs(
    schema: Schema | None, text: str, given: Json, known: Mapping[str, Json] | None = None
) -> tuple[Json, list[str]]:
    """Return the input of a capability, and its required fields that are still missing.

    *known* are the values that were found in the user's words, or given before; what came with the request goes first.
    """
    if schema is None:
        return given, []
    if schema.get("type") == "string":
        return given if isinstance(given, str) else text, []
    if not isinstance(given, dict) and given is not None and "properties" not in schema:
        return given, []
    properties = _properties(schema)
    fields = dict(cast("dict[str, Json]", given)) if isinstance(given, dict) else {}
    fields = {**{name: each for name, each in (known or {}).items() if name in properties}, **fields}
    if schema.get("additionalProperties") is False:
        fields = {name: value for name, value in fields.items() if name in properties}
    free = next((name for name in (*_FREE_TEXT, _TEXT) if _is_text(properties.get(name))), None)
    if free is not None and (free != _TEXT or len(properties) == 1):
        fields.setdefault(free, text)
    missing: list[str] = []
    for name in cast("list[str]", schema.get("required", [])):
        if name not in fields and "default" in properties.get(name, {}):
            fields[name] = properties[name]["default"]
        elif name not in fields:
            missing.append(name)
    return (fields if fields or isinstance(given, dict) or properties else given), missing


def _properties(schema: Schema) -> dict[str, dict[str, Any]]:
    found: object = schema.get("properties")
    named = cast("dict[str, object]", found) if isinstance(found, dict) else {}
    return {name: cast("dict[str, Any]", each) if isinstance(each, dict) else {} for name, each in named.items()}


def _is_text(schema: Schema | None) -> bool:
    return schema is not None and schema.get("type") == "string"


def wanted(schema: Schema | None, names: Sequence[str]) -> dict[str, Schema]:
    """Return the fields of an input that are in *names*, each with its schema."""
    schema = schema or {}
    properties = _properties(schema)
    # The definitions that a field's schema refers to are stored beside it.
    beside = {key: schema[key] for key in ("$defs", "definitions") if key in schema}
    return {name: {**properties.get(name, {}), **beside} for name in names}


_TRUTHS = {"yes": True, "no": False, "ja": True, "nein": False, "true": True, "false": False}


def fields(reply: str, expected: Mapping[str, Schema], fits: Fits, today: date) -> dict[str, Json] | None:
    """Read a reply that gives fields: as JSON, as lines of name and value, or in the user's own words.

    Invalid values are left out, so that they are asked for again. Returns None if the reply gives no field. *today* is
    the day on which it was said.
    """
    read = _json(reply)
    if isinstance(read, dict):
        said: dict[str, Json] = {name: each for name, each in cast("dict[str, Json]", read).items() if name in expected}
        return {name: each for name, each in said.items() if fits(expected[name], each)} if said else None
    pairs = (line.partition(":") for line in reply.splitlines())
    names = {each: name for name in expected for each in (name.casefold(), in_words(name).casefold())}
    lines = {names.get(name.strip(" -*`").casefold(), ""): value.strip() for name, colon, value in pairs if colon}
    lines.pop("", None)
    # Several fields in one line are read as a sentence.
    if lines and not any(
        re.search(rf"\b{re.escape(name)}\s?:", each, re.I) for each in lines.values() for name in names
    ):
        values = {name: _value(text, expected[name], fits) for name, text in lines.items()}
        return {name: found[0] for name, found in values.items() if found}
    if not reply.strip():
        return None
    if len(expected) == 1:
        [(name, schema)] = expected.items()
        found = _value(reply.strip(), schema, fits) if not _is_text(schema) else ()
        if found:
            return {name: found[0]}
    natural = read_reply(reply, expected, fits, today)
    if natural or len(expected) > 1:
        return natural or None
    [(name, schema)] = expected.items()
    found = _value(whole_value(reply, name, schema), schema, fits)
    return {name: found[0]} if found else None


def _value(text: str, schema: Schema, fits: Fits) -> tuple[Json, ...]:
    """Return a text as a value that fits the schema, in a tuple; empty if it does not fit."""
    # 2040 is a number, unless the schema wants a text, such as a postal code.
    read: list[Json] = [text] if _is_text(schema) else [*_parsed(text), text]
    options: object = schema.get("enum")
    if isinstance(options, list):
        read += [each for each in cast("list[Json]", options) if str(each).casefold() == text.casefold()]
    if schema.get("type") == "boolean":
        read += [_TRUTHS[text.casefold()]] if text.casefold() in _TRUTHS else []
    # "null" is JSON, but not a number.
    if schema.get("type") in {"integer", "number"} and not _parsed(text) and _NUMBER.fullmatch(text):
        read.append(spelled_number(text))
    return next(((each,) for each in read if fits(schema, each)), ())


def _parsed(text: str) -> list[Json]:
    value = _json(text)
    return [] if value is None and text != "null" else [value]


def _json(text: str) -> Json:
    try:
        return json.loads(text, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        return None


def _no_constant(name: str) -> Json:
    # JSON has no NaN, but Python reads one.
    raise ValueError(name)
