"""Values that a user gave for one capability, and whether they hold for a field of the next."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple, cast

from msgspec import Struct

from remit.protocol.card import Schema
from remit.protocol.envelope import Json
from remit.words.components import in_words, name_words, said_shortly
from remit_orchestrator.text.field_kinds import Field, field_of
from remit_orchestrator.text.field_replies import takes_whole_text
from remit_orchestrator.text.lexicon import word_set

Fits = Callable[[Schema, Json], bool]

_KEYWORD = "x-same-as"
# Under these names one capability means its own thing, and the next another.
_GENERIC = word_set("given.generic")
_SAME_AGAIN = re.compile(
    r"\b(?:(?:the )?same (?:again|as (?:before|last time|usual))|as before|as last time|like (?:before"
    r"|last time)|once more the same"
    r"|wie (?:vorher|zuvor|bisher|immer|beim letzten mal|letztes mal)|(?:das|die|den) ?gleichen?(?: noch ?mal)?"
    r"|dasselbe)\b",
    re.IGNORECASE,
)
_OTHER = r"\b(?:another|an?other|different|new|some other|andere[nrsm]?|neue[nrsm]?|weitere[nrsm]?)\s(?:\w+\s)?"
# A longer value is a document, and no fact about what the user wants.
_LONGEST_VALUE = 300


class GivenValue(Struct, frozen=True, omit_defaults=True):
    """A value that the user gave for a field of a capability."""

    code: str
    name: str
    value: Json
    type: str = ""
    same_as: str = ""
    about: str = ""


class EarlierValues(NamedTuple):
    """The values from before that hold for fields of an input: those that are certain, and those to ask about."""

    certain: dict[str, Json]
    offered: dict[str, Json]


def given_values(code: str, schema: Schema | None, values: Mapping[str, Json]) -> list[GivenValue]:
    """Return the values of an input that may hold for other capabilities too."""
    properties = cast("Mapping[str, Schema]", (schema or {}).get("properties") or {})
    made: list[GivenValue] = []
    for name, value in values.items():
        field = properties.get(name)
        said = said_shortly(value)
        if not isinstance(field, dict) or said is None or len(said) > _LONGEST_VALUE or takes_whole_text(name, field):
            continue
        about = str(field.get("description", ""))[:_LONGEST_VALUE]
        made.append(GivenValue(code, name, value, type=_type(field), same_as=str(field.get(_KEYWORD, "")), about=about))
    return made


def earlier_values(
    given: Sequence[GivenValue],
    code: str,
    fields: Mapping[str, Schema],
    text: str,
    fits: Fits,
    *,
    changes: bool,
) -> EarlierValues:
    """Return the values that were given before for what *fields* of a capability hold; the newest counts.

    *changes*: to do the same thing again with the same values may not be what is wanted, so they are asked about.
    """
    certain: dict[str, Json] = {}
    offered: dict[str, Json] = {}
    again = _SAME_AGAIN.search(text) is not None
    for name, schema in fields.items():
        field = field_of(name, schema, required=True)
        same = [each for each in given if _holds_for(each, code, name, schema) and fits(schema, each.value)]
        if not same or _is_other(text, field):
            continue
        last = same[-1]
        declared = any(_is_declared(each, code, name, schema) for each in same)
        several = len({repr(each.value) for each in same}) > 1
        repeated = changes and all(each.code == code for each in same)
        sure = (declared or _identifies(field, last)) and not several and not repeated
        (certain if sure or again else offered)[name] = last.value
    return EarlierValues(certain, offered)


def as_before(values: Mapping[str, Json]) -> str:
    """Return the sentence that says which values were taken from before; empty without any."""
    said = [_told(name, value) for name, value in values.items()]
    if not said:
        return ""
    listed = said[0] if len(said) == 1 else f"{', '.join(said[:-1])} and {said[-1]}"
    return f"For {listed}, as before."


def _told(name: str, value: Json) -> str:
    words = said_shortly(value) or "…"
    return words if isinstance(value, str) and not words.isdecimal() else f"{in_words(name)} {words}"


def _type(schema: Schema) -> str:
    return str(schema.get("format") or schema.get("type") or ("enum" if "enum" in schema else ""))


def _holds_for(each: GivenValue, code: str, name: str, schema: Schema) -> bool:
    if _is_declared(each, code, name, schema):
        return True
    return name_words(each.name) == name_words(name) and each.type == _type(schema)


def _is_declared(each: GivenValue, code: str, name: str, schema: Schema) -> bool:
    """Tell whether two fields are declared to hold the same thing: by a shared name, or one by that of the other."""
    thing = str(schema.get(_KEYWORD, ""))
    return bool(
        (thing and thing in {each.same_as, f"{each.code}.{each.name}"})
        or (each.same_as and each.same_as == f"{code}.{name}")
    )


def _identifies(field: Field, given: GivenValue) -> bool:
    """Tell whether a field of the same name surely means the same thing: it names something, and does not measure."""
    if _GENERIC.issuperset(name_words(field.name)):
        return False
    here, before = _described(str(field.schema.get("description", ""))), _described(given.about)
    if here and before and here.isdisjoint(before):
        return False
    match field.kind:
        case "text" | "choice":
            return True
        case "number":
            measures = field.counts or field.any_count or field.people or field.unit is not None or field.bound != ""
            return not measures and not field.name.endswith(("s", "en"))
        case "truth" | "day" | "time" | "moment":
            return False


def _described(about: str) -> frozenset[str]:
    return field_of("", {"description": about}, required=True).stems


def _is_other(text: str, field: Field) -> bool:
    """Tell whether a text says that another one is meant: "for another customer"."""
    labels = "|".join(re.escape(each) for each in field.labels)
    return bool(labels) and re.search(rf"{_OTHER}(?:{labels})\b", text, re.IGNORECASE) is not None


def newest(given: Iterable[GivenValue], most: int) -> tuple[GivenValue, ...]:
    """Return the newest values, each once."""
    kept: dict[tuple[str, str, str], GivenValue] = {}
    for each in given:
        key = each.code, each.name, repr(each.value)
        kept.pop(key, None)
        kept[key] = each
    return tuple(kept.values())[-most:]
