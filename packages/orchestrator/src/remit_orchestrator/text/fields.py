"""The fields of an input: what each is for, the question that asks for it, and values given before that hold for it."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple, cast

from msgspec import Struct

from remit.protocol.card import Schema
from remit.protocol.envelope import Json
from remit.words.components import name_words, short_value
from remit.words.units import MONEY, UNITS, Unit, unit_of
from remit_orchestrator.text.lexicon import word_set
from remit_orchestrator.text.vocabulary import COMMON_WORDS, stem

Kind = Literal["choice", "truth", "day", "time", "moment", "number", "text"]
Role = Literal["from", "to", "in", "of", ""]
"""The preposition before the value: from Santos, to Oslo, in Bergen, twenty tonnes of coffee."""

_FORMATS: Mapping[str, Kind] = {"date": "day", "time": "time", "date-time": "moment"}
_WORD = re.compile(r"[^\W_]+")
# Words that say that a field identifies something, or counts it, but not what.
_IDENTIFIERS = word_set("field.identifiers")
_GENERIC = _IDENTIFIERS | word_set("field.generic")
_TAIL = re.compile(r"^(.{3,}?)s?(?:nummer|nr|kennung|code|name|id)$")
_DAYS = word_set("field.days")
_TIMES = word_set("field.times")
_COUNTS = word_set("field.counts")
_COUNTED = re.compile(r"\b(?:how many|number of|count of|quantity|wie viele|anzahl|menge)\b", re.IGNORECASE)
_QUANTITIES = word_set("field.quantities")
_PEOPLE = word_set("field.people")
_MOST = word_set("field.most")
_LEAST = word_set("field.least")
_FROM = word_set("field.from")
_TO = word_set("field.to")
# In a description these mean little: "what to say", "where it comes from".
_SMALL = word_set("field.small")
_PLACES = word_set("field.places")
_THINGS = word_set("field.things")
_STARTS = word_set("field.starts")
_ENDS = word_set("field.ends")
_IN_UNIT = re.compile(r"\b(?:in|as|als)\s(°\s?[CF]|[^\W\d_]{1,12}|[%€$£])(?!\w)", re.IGNORECASE)
# "Passport, identity card or driving licence".
_LISTED = re.compile(
    r"(?:(?:either|one of|entweder)\s|[^:]{1,40}:\s)?([\w -]{2,30}(?:,\s[\w -]{2,30}){0,8},?\s(?:or"
    r"|oder)\s[\w -]{2,30})\.?"
)
_BETWEEN = re.compile(r",?\s(?:or|oder)\s|,\s")
_OF = re.compile(
    r"(?:the |der |die |das )?\w+ (?:of|der|des|vom|von|for) (?:the |an? |dem )?([\w-]+)\W*", re.IGNORECASE
)
# A phrase that is longer, or opens like a question, describes more than it names.
_LONGEST_NAME = 3
_ASKS = word_set("field.asks")


class Field(Struct, frozen=True, kw_only=True):
    """A field of an input: what kind of value it takes, and in which words people give one."""

    name: str
    schema: Schema
    kind: Kind
    labels: tuple[str, ...]
    """What the value is called, in small letters: `customer number`, `customer`."""
    stems: frozenset[str]
    """Stems of the words of its name and description."""
    role: Role = ""
    options: Mapping[str, Json] = {}
    """The values to choose from, each by the words for it."""
    unit: Unit | None = None
    counts: bool = False
    """Whether the number says how many there are; otherwise it is one that names something: ward 3."""
    any_count: bool = False
    """Whether it does not matter of what: a quantity."""
    people: bool = False
    bound: Literal["most", "least", ""] = ""
    end: Literal["start", "end", ""] = ""
    """Which end of a span of days."""
    required: bool = False


def field_of(name: str, schema: Schema, *, required: bool) -> Field:
    """Return what the field of an input is for."""
    own = name_words(name)
    about: object = schema.get("description") or schema.get("title")
    described = about if isinstance(about, str) else ""
    terms = [word.casefold() for word in _WORD.findall(described)]
    words = {*own, *terms}
    options = _options(schema, described)
    kind = _kind(schema, own, terms, options)
    unit = _unit(schema, own, described) if kind == "number" else None
    return Field(
        name=name,
        schema=schema,
        kind=kind,
        labels=_labels(own, described) + (_head(described) if schema.get("pattern") else ()),
        stems=frozenset(stem(word) for word in words - COMMON_WORDS - _GENERIC if len(word) > 2),
        role=_role(own, terms) if kind == "text" else "",
        options=options,
        unit=unit,
        counts=kind == "number" and bool(_COUNTED.search(described) or _COUNTS & set(own)),
        any_count=kind == "number" and bool(_QUANTITIES & set(own)),
        people=kind == "number" and bool(_PEOPLE & words) and not _IDENTIFIERS & (set(own) - {"number"}),
        bound="most" if _MOST & words else "least" if _LEAST & words else "",
        end=_end(own, terms),
        required=required,
    )


def _kind(schema: Schema, own: tuple[str, ...], terms: list[str], options: Mapping[str, Json]) -> Kind:
    declared = schema.get("type")
    if options:
        return "choice"
    if declared == "boolean":
        return "truth"
    if declared in {"integer", "number"}:
        return "number"
    if (form := _FORMATS.get(str(schema.get("format")))) is not None:
        return form
    if schema.get("pattern") or schema.get("format"):
        return "text"
    for words in (set(own), set(terms[:1]), set(terms) if len(terms) <= _LONGEST_NAME else set[str]()):
        if _TIMES & words:
            return "moment" if _DAYS & words else "time"
        if _DAYS & words:
            return "day"
    return "text"


def _options(schema: Schema, described: str) -> dict[str, Json]:
    """Return what can be chosen: the values of an enumeration, or what a description lists with an "or"."""
    listed: object = schema.get("enum")
    if isinstance(listed, list):
        return {_spoken(each): each for each in cast("list[Json]", listed)}
    for keyword in ("oneOf", "anyOf"):
        branches: Any = schema.get(keyword)
        if isinstance(branches, list) and all(
            isinstance(each, dict) and "const" in each for each in cast("list[object]", branches)
        ):
            named = cast("list[dict[str, Any]]", branches)
            return {_spoken(each[key]): each["const"] for each in named for key in ("const", "title") if key in each}
    if schema.get("type") == "string" and not schema.get("format") and not schema.get("pattern"):
        match = _LISTED.fullmatch(described.strip())
        if match is not None:
            alternatives = [each.strip() for each in _BETWEEN.split(match[1])]
            if all(len(each.split()) <= 2 for each in alternatives):
                return {each.casefold(): each.casefold() for each in alternatives}
    return {}


def _spoken(value: Json) -> str:
    return str(value).replace("_", " ").casefold()


def _labels(own: tuple[str, ...], described: str) -> tuple[str, ...]:
    phrases = [" ".join(own)]
    bare = [word for word in own if word not in _GENERIC]
    phrases += [" ".join(bare), " ".join(own[:-1]) if len(own) > 1 and own[-1] in UNITS else ""]
    phrases += [match[1] for word in own if (match := _TAIL.match(word))]
    terms = [word.casefold() for word in _WORD.findall(described)]
    if (named := _OF.fullmatch(described)) is not None:
        phrases.append(named[1].casefold())
    elif terms and len(terms) <= _LONGEST_NAME and terms[0] not in _ASKS:
        phrases += [" ".join(terms), " ".join(word for word in terms if word not in _GENERIC)]
    return tuple(dict.fromkeys(each for each in phrases if len(each) > 1 and each not in COMMON_WORDS))


_HEAD = re.compile(r"([^\W\d_]+)\s(?:of|for|der|des|von|vom|für)\s", re.IGNORECASE)


def _head(described: str) -> tuple[str, ...]:
    """Return the noun that a description begins with, of a value that its pattern marks as well."""
    match = _HEAD.match(described)
    word = match[1].casefold() if match else ""
    return (word,) if len(word) > 2 and word not in COMMON_WORDS | _GENERIC else ()


def _unit(schema: Schema, own: tuple[str, ...], described: str) -> Unit | None:
    """Return the unit of a number: that at the end of its name, or what its description says that it is in."""
    if len(own) > 1 and own[-1] in UNITS:
        return UNITS[own[-1]]
    if (match := _IN_UNIT.search(described)) is not None and (unit := unit_of(match[1])) is not None:
        return unit
    if len(own) == 1 and own[0] in UNITS and len(own[0]) > 3:
        return UNITS[own[0]]
    return Unit("money") if schema.get("type") == "number" and MONEY & set(own) else None


def _role(own: tuple[str, ...], terms: list[str]) -> Role:
    for words in ({*own}, {*terms} - _SMALL | ({*terms[:1]} & _THINGS)):
        if _FROM & words or any(word.startswith(("start", "abfahrts", "abflug")) for word in words):
            return "from"
        if _TO & words or any(word.startswith(("ziel", "destination")) for word in words):
            return "to"
        if _PLACES & words:
            return "in"
        if _THINGS & words:
            return "of"
    return ""


def _end(own: tuple[str, ...], terms: list[str]) -> Literal["start", "end", ""]:
    for words in (set(own), set(terms) - _SMALL):
        if _ENDS & words:
            return "end"
        if _STARTS & words:
            return "start"
    return ""


Fits = Callable[[Schema, Json], bool]
"""Returns whether a value fits a JSON Schema."""

_KEYWORD = "x-same-as"
# Under these names one capability means its own thing, and the next another.
_NOT_SHARED = word_set("given.generic")
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


# A field for a whole text: whatever is replied is meant for it.
_WHOLE_TEXTS = word_set("value_reply.whole_texts")


def takes_whole_text(name: str, schema: Schema) -> bool:
    """Tell whether a field is for a whole text, such as a message."""
    words = {*re.findall(r"[^\W\d_]+", name.casefold().replace("_", " "))}
    return schema.get("type") == "string" and not _WHOLE_TEXTS.isdisjoint(words)


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
        text = short_value(value)
        if not isinstance(field, dict) or text is None or len(text) > _LONGEST_VALUE or takes_whole_text(name, field):
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
    if _NOT_SHARED.issuperset(name_words(field.name)):
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
