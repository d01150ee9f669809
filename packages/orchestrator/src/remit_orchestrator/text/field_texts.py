"""Finds texts for the fields of an input: by pattern, redaction token, label, example or preposition."""

import re
from collections.abc import Callable, Iterator
from typing import cast

from remit.protocol.card import Schema
from remit.protocol.envelope import Json
from remit_orchestrator.text.dates import MONTHS
from remit_orchestrator.text.field_kinds import Field
from remit_orchestrator.text.field_numbers import is_label
from remit_orchestrator.text.lexicon import word_set
from remit_orchestrator.text.vocabulary import COMMON_WORDS, GERMAN_SIGNS

TextFound = tuple[Field, str, int, int]
Fits = Callable[[Schema, Json], bool]

_TOKEN = re.compile(r"\[([A-Z_]{2,32}):[^\]\s]{4,32}\]")
_EMAIL = re.compile(r"[^\s@<>,;:]{1,64}@[^\s@<>,;:]{1,253}\.[a-z]{2,24}\b", re.IGNORECASE)
_URL = re.compile(r"https?://[^\s<>\"]{3,2000}")
_PIECE = re.compile(r"[^\s,;!?\"“”()]+")
# A pattern that takes these takes any word, and says nothing about which one is meant.
_ANY_WORDS = ("notify", "the", "Receiver", "order", "A", "Bitte", "und", "Hamburg")
_IS = r"(?:\s(?:is|are|lautet|ist|heißt|called|named)\s|\s(?:is|lautet|ist)?\s?[:=]\s?|[:=]\s?)"
_NUMBERED = r"(?:\s(?:number|no\.?|nr\.?|nummer|id|code|ref(?:erence)?))?"
# A longer code with letters is no accident.
_LONGEST_CODE = 5
_NO_CODE = re.compile(r"\s?(?:uhr|am|pm|%|€|euros?)\b", re.IGNORECASE)
_CAPITAL = "[A-ZÄÖÜ]"
_BETWEEN_NAMES = "(?:(?:am|an der|of|de|la|del|upon|von|van)\\s)?"
_NAME = rf"{_CAPITAL}[\w’'&-]*\.?(?:\s{_BETWEEN_NAMES}(?:{_CAPITAL}[\w’'&-]*|\d{{1,4}}[a-z]?\b)){{0,3}}"
_ADDRESSED = re.compile(r"^(?:Mr|Mrs|Ms|Dr|Herrn?|Frau|Prof)\b")
_NO_NAME = word_set("value_text.no_name").union(MONTHS)
_PREPOSITIONS = {"from": "from|von|ab|aus|vom", "to": "to|nach", "in": "in"}
_MEASURE = re.compile(
    r"(?:\d[\d.,]*|[a-zäöüß]+)\s(?P<measure>[^\W\d_]+)\sof\s(?P<thing>(?:[a-zäöüß-]+\s?){1,3}?)"
    r"(?=\s*(?:$|[,.;!?\n]|\b(?:from|to|by|in|on|at|for|with|and|please|via)\b))"
)
_GERMAN_MEASURE = re.compile(
    rf"\d[\d.,]*\s{_CAPITAL}?[a-zäöüß]+\s(?P<thing>{_CAPITAL}[a-zäöüß-]+)(?=\s[a-zäöüß]|[,.;!?]|$)"
)
# What follows these is a phrase, which only a colon or quotes mark off.
_TITLES = word_set("value_text.titles")


def texts_for(text: str, fields: list[Field], fits: Fits, *, reply: bool) -> Iterator[TextFound]:
    """Yield the texts that are for one of the fields."""
    for field in fields:
        found = [each for each in _candidates(text, field, fits) if each[1].strip()]
        if len({value for _, value, _, _ in found}) == 1:
            yield found[0]
        elif not found and reply and (said := _said_to_be(text, field)) is not None:
            yield said


def _candidates(text: str, field: Field, fits: Fits) -> list[TextFound]:
    """Return the values by the surest sign that the text has."""
    for signs in (_tokens, _formatted, _labelled, _examples, _in_role):
        if found := [each for each in signs(text, field) if fits(field.schema, each[1])]:
            return found
    return list(_patterned(text, field, fits))


def _tokens(text: str, field: Field) -> Iterator[TextFound]:
    """Yield the tokens of redacted values whose kind the field names: an address for `email`."""
    named = {*field.labels, *field.stems, str(field.schema.get("format", ""))}
    words = {word for each in named for word in each.split()}
    for match in _TOKEN.finditer(text):
        kinds = match[1].casefold().split("_")
        if kinds[0] in words or " ".join(kinds) in named or (kinds[0] == "email" and "mail" in words):
            yield field, match[0], match.start(), match.end()


def _formatted(text: str, field: Field) -> Iterator[TextFound]:
    pattern = {"email": _EMAIL, "uri": _URL, "url": _URL}.get(str(field.schema.get("format")))
    for match in pattern.finditer(text) if pattern else ():
        yield field, match[0].rstrip("."), match.start(), match.end()


def _patterned(text: str, field: Field, fits: Fits) -> Iterator[TextFound]:
    """Yield the words that have the field's pattern, if it is one that few words have."""
    if not field.schema.get("pattern") or any(fits(field.schema, word) for word in _ANY_WORDS):
        return
    pieces = list(_PIECE.finditer(text))
    taken = -1
    for place, piece in enumerate(pieces):
        if place <= taken:
            continue
        following = pieces[place + 1] if place + 1 < len(pieces) else None
        for last in (following, piece):
            if last is None:
                continue
            said = text[piece.start() : last.end()].rstrip(".:")
            value = next((each for each in (said, said.upper()) if fits(field.schema, each)), None)
            if value is not None and not _is_named_otherwise(text, piece.start(), value, field):
                taken = place + (last is following)
                yield field, value, piece.start(), piece.start() + len(said)
                break


def _is_named_otherwise(text: str, start: int, value: str, field: Field) -> bool:
    """Tell whether a number or short code follows a noun for something else: invoice 47110 is no postcode."""
    before = re.search(r"([^\W\d_]+)\W{0,3}$", text[max(0, start - 60) : start])
    if before is None or before[1].casefold() in COMMON_WORDS or len(value) > _LONGEST_CODE:
        return False
    if any(before[1].casefold() in label.split() for label in field.labels):
        return False
    return value.isdecimal() or is_label(before[1]) or (before[1][0].isupper() and before.start() > 0)


def _labelled(text: str, field: Field) -> Iterator[TextFound]:
    """Yield what follows the field's name: `consignee: Acme`, `customer number K-20933`, `Patient Karl Berger`."""
    german = not GERMAN_SIGNS.isdisjoint(re.findall(r"[^\W\d_]+", text.casefold()))
    for label in sorted(field.labels, key=len, reverse=True):
        words = r"[\s_-]".join(map(re.escape, label.split()))
        start = rf"(?<![\w-])(?i:{words}){_NUMBERED}"
        for match in re.finditer(rf"{start}\s?[:=]\s?(?P<value>[^\n,;]{{1,200}})", text):
            yield _cut(field, text, match)
        named = _TITLES.isdisjoint(label.split())
        for match in re.finditer(rf"{start}{_IS}(?P<value>{_NAME}|[\w/-]*\d[\w/-]*)", text) if named else ():
            yield _cut(field, text, match)
        for match in re.finditer(rf"{start}\s#?(?P<value>[\w/-]*\d[\w/-]*)(?![\w:.]\w)", text):
            if not _NO_CODE.match(text, match.end()):
                yield _cut(field, text, match)
        if field.schema.get("pattern") is None and _TITLES.isdisjoint(label.split()):
            for match in re.finditer(rf"{start}\s(?P<value>{_NAME})", text):
                capital = match[0][0].isupper() and match.start() > 0 and not german
                if not capital and not _is_day(match["value"]):
                    yield _cut(field, text, match)


_DAY_AFTER = re.compile(rf"\s(?:(?:am|an|of|de|la|von|van)\s)?(?i:{'|'.join(_NO_NAME)})\b.*", re.DOTALL)


def _cut(field: Field, text: str, match: re.Match[str]) -> TextFound:
    value = _DAY_AFTER.sub("", match["value"]).rstrip(' .!?"”').lstrip(' "“')
    start = text.index(value, match.start("value")) if value else match.start("value")
    return field, value, start, start + len(value)


def _is_day(value: str) -> bool:
    return value.split(maxsplit=1)[0].casefold().rstrip(".") in _NO_NAME


def _examples(text: str, field: Field) -> Iterator[TextFound]:
    listed: object = field.schema.get("examples")
    for each in cast("list[object]", listed) if isinstance(listed, list) else ():
        if isinstance(each, str) and len(each) > 2:
            for match in re.finditer(rf"(?<!\w){re.escape(each)}(?!\w)", text, re.IGNORECASE):
                yield field, each, match.start(), match.end()


def _in_role(text: str, field: Field) -> Iterator[TextFound]:
    """Yield the name after the field's preposition, and what an amount is of."""
    if field.role == "of":
        for match in (*_MEASURE.finditer(text), *_GERMAN_MEASURE.finditer(text)):
            yield (
                field,
                match["thing"].strip(),
                match.start("thing"),
                match.start("thing") + len(match["thing"].strip()),
            )
    elif field.role and not field.schema.get("pattern"):
        for match in re.finditer(rf"\b(?i:{_PREPOSITIONS[field.role]})\s(?P<value>{_NAME})", text):
            if not _is_day(match["value"]) and not _ADDRESSED.match(match["value"]):
                yield _cut(field, text, match)


def _said_to_be(text: str, field: Field) -> TextFound | None:
    """Return what a reply says that the field is, in small letters as well: "the colour is dark blue"."""
    for label in field.labels:
        words = r"\s".join(map(re.escape, label.split()))
        match = re.search(rf"(?<![\w-])(?i:{words}){_IS}(?P<value>[^\n,;.!?]{{1,100}})", text)
        if match is not None:
            return _cut(field, text, match)
    return None
