"""What the field of an input is for, as its schema says: by type, format, name and description."""

import re
from collections.abc import Mapping
from typing import Any, Literal, cast

from msgspec import Struct

from remit.protocol.card import Schema
from remit.protocol.envelope import Json
from remit.words.components import name_words
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
    said = [word.casefold() for word in _WORD.findall(described)]
    words = {*own, *said}
    options = _options(schema, described)
    kind = _kind(schema, own, said, options)
    unit = _unit(schema, own, described) if kind == "number" else None
    return Field(
        name=name,
        schema=schema,
        kind=kind,
        labels=_labels(own, described) + (_head(described) if schema.get("pattern") else ()),
        stems=frozenset(stem(word) for word in words - COMMON_WORDS - _GENERIC if len(word) > 2),
        role=_role(own, said) if kind == "text" else "",
        options=options,
        unit=unit,
        counts=kind == "number" and bool(_COUNTED.search(described) or _COUNTS & set(own)),
        any_count=kind == "number" and bool(_QUANTITIES & set(own)),
        people=kind == "number" and bool(_PEOPLE & words) and not _IDENTIFIERS & (set(own) - {"number"}),
        bound="most" if _MOST & words else "least" if _LEAST & words else "",
        end=_end(own, said),
        required=required,
    )


def _kind(schema: Schema, own: tuple[str, ...], said: list[str], options: Mapping[str, Json]) -> Kind:
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
    for words in (set(own), set(said[:1]), set(said) if len(said) <= _LONGEST_NAME else set[str]()):
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
        told = _LISTED.fullmatch(described.strip())
        if told is not None:
            found = [each.strip() for each in _BETWEEN.split(told[1])]
            if all(len(each.split()) <= 2 for each in found):
                return {each.casefold(): each.casefold() for each in found}
    return {}


def _spoken(value: Json) -> str:
    return str(value).replace("_", " ").casefold()


def _labels(own: tuple[str, ...], described: str) -> tuple[str, ...]:
    phrases = [" ".join(own)]
    bare = [word for word in own if word not in _GENERIC]
    phrases += [" ".join(bare), " ".join(own[:-1]) if len(own) > 1 and own[-1] in UNITS else ""]
    phrases += [found[1] for word in own if (found := _TAIL.match(word))]
    said = [word.casefold() for word in _WORD.findall(described)]
    if (named := _OF.fullmatch(described)) is not None:
        phrases.append(named[1].casefold())
    elif said and len(said) <= _LONGEST_NAME and said[0] not in _ASKS:
        phrases += [" ".join(said), " ".join(word for word in said if word not in _GENERIC)]
    return tuple(dict.fromkeys(each for each in phrases if len(each) > 1 and each not in COMMON_WORDS))


_HEAD = re.compile(r"([^\W\d_]+)\s(?:of|for|der|des|von|vom|für)\s", re.IGNORECASE)


def _head(described: str) -> tuple[str, ...]:
    """Return the noun that a description begins with, of a value that its pattern marks as well."""
    found = _HEAD.match(described)
    word = found[1].casefold() if found else ""
    return (word,) if len(word) > 2 and word not in COMMON_WORDS | _GENERIC else ()


def _unit(schema: Schema, own: tuple[str, ...], described: str) -> Unit | None:
    """Return the unit of a number: that at the end of its name, or what its description says that it is in."""
    if len(own) > 1 and own[-1] in UNITS:
        return UNITS[own[-1]]
    if (said := _IN_UNIT.search(described)) is not None and (unit := unit_of(said[1])) is not None:
        return unit
    if len(own) == 1 and own[0] in UNITS and len(own[0]) > 3:
        return UNITS[own[0]]
    return Unit("money") if schema.get("type") == "number" and MONEY & set(own) else None


def _role(own: tuple[str, ...], said: list[str]) -> Role:
    for words in ({*own}, {*said} - _SMALL | ({*said[:1]} & _THINGS)):
        if _FROM & words or any(word.startswith(("start", "abfahrts", "abflug")) for word in words):
            return "from"
        if _TO & words or any(word.startswith(("ziel", "destination")) for word in words):
            return "to"
        if _PLACES & words:
            return "in"
        if _THINGS & words:
            return "of"
    return ""


def _end(own: tuple[str, ...], said: list[str]) -> Literal["start", "end", ""]:
    for words in (set(own), set(said) - _SMALL):
        if _ENDS & words:
            return "end"
        if _STARTS & words:
            return "start"
    return ""
