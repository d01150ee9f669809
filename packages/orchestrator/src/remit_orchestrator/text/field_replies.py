"""Reads a reply in a person's own words into the fields that were asked for: "tomorrow at ten, for two"."""

import re
from collections.abc import Mapping
from datetime import date

from remit.protocol.card import Schema
from remit.protocol.envelope import Json
from remit_orchestrator.text.field_kinds import field_of
from remit_orchestrator.text.field_numbers import only_number
from remit_orchestrator.text.field_values import Fits, FoundValue, find_values
from remit_orchestrator.text.lexicon import word_set
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
_REFUSAL = re.compile(
    r"\W*(?:no|nope|nein|never ?mind|forget it|cancel(?: that| it)?|stop|nothing|i don['’]t know|no idea|abbrechen"
    r"|vergiss es|egal|weiß (?:ich )?nicht|keine ahnung)\W*",
    re.IGNORECASE,
)
# A field for a whole text: whatever is replied is meant for it.
_WHOLE_TEXTS = word_set("value_reply.whole_texts")
_QUESTIONS = word_set("value_reply.questions")
_LONGEST_PIECE = 6


def read_reply(reply: str, expected: Mapping[str, Schema], fits: Fits, today: date) -> dict[str, Json]:
    """Return the fields that a reply gives, each by its type, its label, or its place among those that were asked."""
    found = find_values(reply, expected, frozenset(expected), fits, today, reply=True)
    left = [name for name in expected if name not in found]
    values: dict[str, Json] = {name: each.value for name, each in found.items()}
    rest = _without(reply, found)
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


_AGREES = re.compile(
    r"\W*(?:yes|yeah|yep|ja|ok|okay|sure|right|correct|exactly|genau|the same|same|as before|again|wie vorher"
    r"|gleich\w{0,2})\b",
    re.IGNORECASE,
)


def agrees(reply: str) -> bool:
    """Tell whether a reply takes what was offered, whatever it adds."""
    return _AGREES.match(reply) is not None


def whole_value(reply: str, name: str, schema: Schema) -> str:
    """Return the reply to a question for a single text, without the words around it; empty if it is no answer."""
    if takes_whole_text(name, schema):
        return reply.strip()
    if _REFUSAL.fullmatch(reply) or asks_for_something(reply):
        return ""
    return _EDGES.sub("", _TAIL.sub("", _LEAD.sub("", reply.strip(), count=1)))


def takes_whole_text(name: str, schema: Schema) -> bool:
    """Tell whether a field is for a whole text, such as a message."""
    words = {*re.findall(r"[^\W\d_]+", name.casefold().replace("_", " "))}
    return schema.get("type") == "string" and not _WHOLE_TEXTS.isdisjoint(words)


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


def _without(reply: str, found: Mapping[str, FoundValue]) -> str:
    """Return a reply with a comma in place of each value that was found."""
    for each in sorted(found.values(), key=lambda value: -value.start):
        reply = f"{reply[: each.start]},{reply[each.end :]}"
    return reply
