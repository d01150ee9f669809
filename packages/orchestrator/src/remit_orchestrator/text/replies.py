"""Reads a user's reply to a question: the chosen option, or values for fields of an input."""

import json
import re
from collections.abc import Mapping, Sequence
from datetime import date
from typing import Any, cast

from remit.protocol.card import Schema
from remit.protocol.envelope import Json
from remit.words.components import in_words
from remit.words.numbers import ORDINALS, SPELLED, any_of, spelled_number
from remit_orchestrator.text.field_values import FoundValue, find_values, only_number
from remit_orchestrator.text.fields import Fits, field_of, takes_whole_text
from remit_orchestrator.text.lexicon import alternatives, word_set
from remit_orchestrator.text.sentences import is_question
from remit_orchestrator.text.vocabulary import REQUEST_VERBS

_BETWEEN = re.compile(r"[,;\n]|\.(?=\s|$)|\s(?:and|und)\s")
_EDGES = re.compile(r"^[\s\"'“”:!?.-]+|[\s\"'“”:!?.-]+$")
_LEAD = re.compile(
    r"(?:(?:well|ok|okay|yes|ja|so)\W+)?(?:it(?:['’]s| is| would be| will be)|that(?:['’]s| is| would be)"
    r"|this is|make it"
    r"|i(?:['’]d| would) (?:like|say)|i want|let(?:['’]s| us) say|there will be|we are|please|es ist|das ist|das wäre"
    r"|ich möchte|ich hätte gern|bitte|wir sind)\s(?:please\s|bitte\s)?",
    re.IGNORECASE,
)
_TAIL = re.compile(r"[,\s]*(?:please|thanks|thank you|bitte|danke)\W*$", re.IGNORECASE)
# What may be left of a reply when its values are taken out.
_FILLING = word_set("value_reply.filling")
_REFUSAL = re.compile(rf"\W*(?:{alternatives('reply.refusal')})\W*", re.IGNORECASE)
_QUESTIONS = word_set("value_reply.questions")
_LONGEST_PIECE = 6


def read_reply(reply: str, expected: Mapping[str, Schema], fits: Fits, today: date) -> dict[str, Json]:
    """Return the fields that a reply gives, each by its type, its label, or its place among those that were asked."""
    found_values = find_values(reply, expected, frozenset(expected), fits, today, reply=True)
    left = [name for name in expected if name not in found_values]
    values: dict[str, Json] = {name: each.value for name, each in found_values.items()}
    rest = _cut_values(reply, found_values)
    numbers = [name for name in left if field_of(name, expected[name], required=True).kind == "number"]
    if len(numbers) == 1 and (number := only_number(rest, field_of(numbers[0], expected[numbers[0]], required=True))):
        value, start, end = number
        if fits(expected[numbers[0]], value):
            values[numbers[0]] = value
            left.remove(numbers[0])
            rest = f"{rest[:start]},{rest[end:]}"
    if left and not asks_for_something(reply):
        pieces = [each for piece in _BETWEEN.split(rest) if (each := bare(piece))]
        if len(pieces) == len(left) and all(len(piece.split()) <= _LONGEST_PIECE for piece in pieces):
            placed = {name: as_text(piece, expected[name], fits) for name, piece in zip(left, pieces, strict=True)}
            if all(placed.values()):
                values |= {name: each[0] for name, each in placed.items()}
    return values


def asks_for_something(reply: str) -> bool:
    """Tell whether a reply asks for something itself, in place of an answer."""
    words = re.findall(r"[^\W\d_]+", reply.casefold())
    return is_question(reply.strip()) or (len(words) > 2 and (words[0] in REQUEST_VERBS or words[0] in _QUESTIONS))


def whole_value(reply: str, name: str, schema: Schema) -> str:
    """Return the reply to a question for a single text, without the words around it; empty if it is no answer."""
    if takes_whole_text(name, schema):
        return reply.strip()
    if _REFUSAL.fullmatch(reply) or asks_for_something(reply):
        return ""
    return _EDGES.sub("", _TAIL.sub("", _LEAD.sub("", reply.strip(), count=1)))


def bare(piece: str) -> str:
    """Return a piece of a reply without the words that carry no value at its ends."""
    words = _EDGES.sub("", _LEAD.sub("", piece.strip(), count=1)).split()
    while words and words[0].casefold() in _FILLING:
        words.pop(0)
    while words and words[-1].casefold() in _FILLING:
        words.pop()
    return _EDGES.sub("", " ".join(words))


def as_text(piece: str, schema: Schema, fits: Fits) -> tuple[Json, ...]:
    """Return a piece as the value of a text field, in a tuple; empty if it does not fit."""
    return (piece,) if schema.get("type", "string") == "string" and fits(schema, piece) else ()


def _cut_values(reply: str, found_values: Mapping[str, FoundValue]) -> str:
    """Return a reply with a comma in place of each value that was found."""
    for each in sorted(found_values.values(), key=lambda value: -value.start):
        reply = f"{reply[: each.start]},{reply[each.end :]}"
    return reply


# ── numbers ───────────────────────────────────────────────────────────────────────────────────────────────────────────

_NUMBER = re.compile(SPELLED)
# "The one" is a pronoun: words for numbers have no article.
_PLACE = re.compile(
    rf"\W*(?:(?:the |number |no\. ?|option |nummer |die |das |der )?(?P<place>\d{{1,3}}|(?ai:{any_of(*ORDINALS)}))"
    rf"|(?:number |option |nummer )?(?P<spelled>{SPELLED}))"
    r"(?: (?:one|option))?(?:,? (?:please|thanks|bitte))?\W*",
    re.IGNORECASE,
)


def place_named(reply: str) -> int:
    """Return the number that the reply consists of; 0 if it is anything else."""
    match = _PLACE.fullmatch(reply)
    if match is None:
        return 0
    if match["spelled"]:
        return spelled_number(match["spelled"])
    return int(ORDINALS.get(match["place"].lower(), match["place"]))


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
    properties: object = schema.get("properties")
    named = cast("dict[str, object]", properties) if isinstance(properties, dict) else {}
    return {name: cast("dict[str, Any]", each) if isinstance(each, dict) else {} for name, each in named.items()}


def _is_text(schema: Schema | None) -> bool:
    return schema is not None and schema.get("type") == "string"


def takes_yes(expected: Mapping[str, Schema]) -> bool:
    """Return whether "yes" may be a value of one of these fields, and not just an answer to something else."""
    return any(each.get("type") == "boolean" or "enum" in each for each in expected.values())


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
        given = {name: each for name, each in cast("dict[str, Json]", read).items() if name in expected}
        return {name: each for name, each in given.items() if fits(expected[name], each)} if given else None
    pairs = (line.partition(":") for line in reply.splitlines())
    names = {each: name for name in expected for each in (name.casefold(), in_words(name).casefold())}
    lines = {names.get(name.strip(" -*`").casefold(), ""): value.strip() for name, colon, value in pairs if colon}
    lines.pop("", None)
    # Several fields in one line are read as a sentence.
    if lines and not any(
        re.search(rf"\b{re.escape(name)}\s?:", each, re.I) for each in lines.values() for name in names
    ):
        values = {name: _value(text, expected[name], fits) for name, text in lines.items()}
        return {name: readings[0] for name, readings in values.items() if readings}
    if not reply.strip():
        return None
    if len(expected) == 1:
        [(name, schema)] = expected.items()
        readings = _value(reply.strip(), schema, fits) if not _is_text(schema) else ()
        if readings:
            return {name: readings[0]}
    natural = read_reply(reply, expected, fits, today)
    if natural or len(expected) > 1:
        return natural or None
    [(name, schema)] = expected.items()
    value = whole_value(reply, name, schema)
    # A reply that asks for something gives no value, and nothing is no value of a text.
    readings = _value(value, schema, fits) if value else ()
    return {name: readings[0]} if readings else None


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
