"""Finds values for the fields of an input in a user's words; what does not stand there is left for a question.

A value counts only if its type, format, pattern, enumeration, label or preposition says which field it is for. Where
two values or two fields compete, none is filled.
"""

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from datetime import date
from typing import NamedTuple, TypeVar, cast

from remit.protocol.card import Schema
from remit.protocol.envelope import Json
from remit.words.units import Unit
from remit_orchestrator.text.fields import Field, Fits, field_of
from remit_orchestrator.text.figures import MONTHS, Amount, Figure, figures
from remit_orchestrator.text.lexicon import alternatives, word_set
from remit_orchestrator.text.spoken_times import SpokenDay, SpokenTime, spoken_days, spoken_times
from remit_orchestrator.text.vocabulary import COMMON_WORDS, GERMAN_SIGNS, LABELS, REQUEST_VERBS, stem

_MOST = re.compile(rf"\b(?:{alternatives('value.most')})\W{{0,3}}(?:[$€£¥]\s?)?$", re.IGNORECASE)
_LEAST = re.compile(rf"\b(?:{alternatives('value.least')})\W{{0,3}}(?:[$€£¥]\s?)?$", re.IGNORECASE)
_NEXT = re.compile(r"[\s-]+([^\W\d_]+)(?:[\s-]+([^\W\d_]+))?")
_WORD = re.compile(r"[^\W\d_]+")
_PEOPLE = word_set("number.people")
_FOR = re.compile(r"\b(?:for|für|party of|family of|group of|we are|wir sind)\s$", re.IGNORECASE)
# What may follow "for two": the end, another phrase, a day.
_PHRASE = re.compile(
    r"\s*(?:$|[,.;!?)\n]|(?:on|at|in|from|to|by|with|and|tomorrow|today|tonight|next|this|please|am|um|von|nach|mit|und"
    r"|morgen|heute|bitte|\w+day|\w+tag|mittwoch)\b)",
    re.IGNORECASE,
)
_TOGETHER = re.compile(r"\bzu\s(zweit|dritt|viert|fünft|sechst|siebt|acht|neunt|zehnt)\b", re.IGNORECASE)
_TOGETHER_WORDS = ("zweit", "dritt", "viert", "fünft", "sechst", "siebt", "acht", "neunt", "zehnt")
_LINK = r"(?:\s(?:number|no\.?|nr\.?|nummer|is|of|ist|von|at))?[\s:=#]{1,3}"

_YEARS = word_set("number.years")
_YEAR = re.compile(r"\b(?:19|20)\d{2}\b")

NumberFound = tuple[Field, Json, int, int]


# A clause of a person is seldom longer.
_AROUND = 120
# A text with more numbers is a document, in which none is meant for a field.
_MOST_NUMBERS = 20


class _Place:
    """A number in a text and the words around it."""

    def __init__(self, text: str, figure: Figure, amount: Amount) -> None:
        self.text = text
        self.start, self.end = figure.start, figure.end
        self.amount = amount
        self.before = text[max(0, figure.start - _AROUND) : figure.start]
        self.after = text[figure.end : figure.end + _AROUND]
        bounded = amount.form in {"limit", "loose"}
        self.bound = ""
        if _MOST.search(self.before) or (bounded and amount.low == float("-inf")):
            self.bound = "most"
        elif _LEAST.search(self.before) or (bounded and amount.high == float("inf")):
            self.bound = "least"
        ends = [end for end in (amount.low, amount.high) if abs(end) != float("inf")]
        self.size = ends[-1] if ends else 0.0
        following = _NEXT.match(self.after)
        self.capital = following is not None and following[1][0].isupper()
        self.nouns = [each.casefold() for each in following.groups() if each] if following else []


def numbers_for(text: str, fields: list[Field], taken: list[tuple[int, int]]) -> Iterator[NumberFound]:
    """Yield the numbers that are for one of the fields; a field that two numbers may be for gets none."""
    places = [
        _Place(text, figure, figure.quantity)
        for figure in figures(text)
        if isinstance(figure.quantity, Amount)
        and figure.quantity.form != "range"
        and not any(start < figure.end and figure.start < end for start, end in taken)
    ]
    if len(places) > _MOST_NUMBERS:
        return
    places = [place for place in places if not _is_possession(place)]
    labelled = {field.name: [each for place in places if (each := _labelled(field, place))] for field in fields}
    named = {(start, end) for values in labelled.values() for _, _, start, end in values}
    free = [place for place in places if (place.start, place.end) not in named]
    for field in fields:
        matches = labelled[field.name]
        if _YEARS & set(field.labels):
            matches = [(field, int(each[0]), each.start(), each.end()) for each in _YEAR.finditer(text)]
        elif not matches and field.people:
            matches = _people(field, text, free)
        if not matches:
            matches = [each for place in free if (each := _measured(field, place) or _counted(field, place, free))]
        if len({repr(value) for _, value, _, _ in matches}) == 1:
            yield matches[0]


def _value(field: Field, size: float) -> Json:
    whole = round(size, 9)
    return int(whole) if whole == int(whole) else (None if field.schema.get("type") == "integer" else whole)


def _made(field: Field, place: _Place, size: float) -> NumberFound | None:
    value = _value(field, size)
    return None if value is None else (field, value, place.start, place.end)


def _labelled(field: Field, place: _Place) -> NumberFound | None:
    """Return a number right after what the field is called: ward 3, the reading is 812."""
    if field.bound != place.bound and not (field.bound and not place.bound):
        return None
    for label in field.labels:
        words = r"\s".join(map(re.escape, label.split()))
        if re.search(rf"\b{words}{_LINK}(?:[$€£]\s?)?$", place.before, re.IGNORECASE):
            size = _in_unit(place.amount, place.size, field.unit)
            return None if size is None else _made(field, place, size)
    return None


def _in_unit(amount: Amount, size: float, unit: Unit | None) -> float | None:
    """Return an amount in the unit of a field; a bare number is in that unit already."""
    if amount.kind == "number":
        return size
    if unit is None or unit.kind != amount.kind:
        return None
    if unit.currency and amount.currency and unit.currency != amount.currency:
        return None
    return size / unit.factor - unit.shift


def _measured(field: Field, place: _Place) -> NumberFound | None:
    """Return an amount in a unit of the field's kind: 2 tonnes for a weight in kilograms."""
    if field.unit is None or place.amount.kind != field.unit.kind or field.bound != place.bound:
        return None
    size = _in_unit(place.amount, place.size, field.unit)
    return None if size is None else _made(field, place, size)


def _counted(field: Field, place: _Place, places: list[_Place]) -> NumberFound | None:
    """Return a number before what the field counts: three parcels, 120 seats."""
    if place.amount.kind != "number" or place.bound != field.bound or _is_label(place) or not place.nouns:
        return None
    name = field.name.casefold()
    if name in place.nouns or (field.counts and any(stem(noun) in field.stems for noun in place.nouns)):
        return _made(field, place, place.size)
    plain = [each for each in places if each.amount.kind == "number" and not _is_label(each)]
    noun = place.nouns[0] not in COMMON_WORDS and (place.capital or not _may_be_german_name(place))
    if field.any_count and len(plain) == 1 and noun:
        return _made(field, place, place.size)
    return None


def _people(field: Field, text: str, places: list[_Place]) -> list[NumberFound]:
    """Return the numbers that count people: for two, four people, five of us."""
    matches: list[NumberFound] = []
    for match in _TOGETHER.finditer(text):
        number = 2 + _TOGETHER_WORDS.index(match[1].casefold())
        matches.append((field, number, match.start(1), match.end(1)))
    for place in places:
        if place.amount.kind != "number" or place.bound or _is_label(place):
            continue
        nouns = place.nouns[:1] if place.nouns[:1] != ["of"] else place.nouns[1:2]
        counted = [noun for noun in nouns if noun in _PEOPLE or stem(noun) in field.stems]
        alone = _FOR.search(place.before) and _PHRASE.match(place.after)
        if (counted or alone) and (made := _made(field, place, place.size)):
            matches.append(made)
    return matches


def _may_be_german_name(place: _Place) -> bool:
    """Tell whether a number may name what stands before it, as in "Rechnung 4711 schicken": no noun follows it."""
    words = _WORD.findall(place.before)
    if not GERMAN_SIGNS.isdisjoint(_WORD.findall(place.text.casefold())):
        return True
    return bool(words) and words[-1][0].isupper() and words[-1].casefold() not in REQUEST_VERBS | COMMON_WORDS


def is_label(word: str) -> bool:
    """Tell whether a number after a word is a name: room 12, invoice 4711."""
    return word.casefold() in LABELS or stem(word.casefold()) in _LABEL_STEMS


def _is_label(place: _Place) -> bool:
    """Tell whether the word before a number says that it is a name; "order 20 vials" does not."""
    last = re.search(r"([^\W\d_]+)(?:\s(?:number|no\.?|nr\.?|nummer))?[\s#:]{1,2}$", place.before)
    if last is None or not is_label(last[1]):
        return False
    asks = last[1].casefold() in REQUEST_VERBS and place.nouns and place.nouns[0] not in COMMON_WORDS
    return not asks


def _is_possession(place: _Place) -> bool:
    """Tell whether a clause tells what there is, not what is wanted: "my account has 1,200 euros"."""
    clause = _CLAUSE.split(place.before)[-1]
    return bool(_HAS.search(clause)) and not _WANTS.search(clause) and not _HAS_DONE.match(clause)


_CLAUSE = re.compile(r"[,;.!?](?=\s)|\n")
_HAS = re.compile(r"\b(?:has|have|hat|habe|haben)\b", re.IGNORECASE)
# "Have 8 pages proofread": a request, for nobody stands before it.
_HAS_DONE = re.compile(r"\s*(?:(?:and|please|then|also|just)\s)*have\b", re.IGNORECASE)
_WANTS = re.compile(rf"\b(?:{alternatives('value.wants')})\b", re.IGNORECASE)


_LABEL_STEMS = frozenset(stem(word) for word in word_set("number.label_stems"))


def only_number(text: str, field: Field) -> tuple[Json, int, int] | None:
    """Return the only number of a reply to a question for one, in the field's unit, and where it stands."""
    amounts = [each for each in figures(text) if isinstance(each.quantity, Amount)]
    if len(amounts) != 1 or not isinstance(amounts[0].quantity, Amount):
        return None
    place = _Place(text, amounts[0], amounts[0].quantity)
    size = _in_unit(place.amount, place.size, field.unit)
    made = None if size is None else _made(field, place, size)
    return None if made is None else made[1:]


TextFound = tuple[Field, str, int, int]
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
        matches = [each for each in _candidates(text, field, fits) if each[1].strip()]
        if len({value for _, value, _, _ in matches}) == 1:
            yield matches[0]
        elif not matches and reply and (stated := _stated_value(text, field)) is not None:
            yield stated


def _candidates(text: str, field: Field, fits: Fits) -> list[TextFound]:
    """Return the values by the surest sign that the text has."""
    for signs in (_tokens, _formatted, _labelled_texts, _examples, _in_role):
        if fitting := [each for each in signs(text, field) if fits(field.schema, each[1])]:
            return fitting
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
            written = text[piece.start() : last.end()].rstrip(".:")
            value = next((each for each in (written, written.upper()) if fits(field.schema, each)), None)
            if value is not None and not _is_named_otherwise(text, piece.start(), value, field):
                taken = place + (last is following)
                yield field, value, piece.start(), piece.start() + len(written)
                break


def _is_named_otherwise(text: str, start: int, value: str, field: Field) -> bool:
    """Tell whether a number or short code follows a noun for something else: invoice 47110 is no postcode."""
    before = re.search(r"([^\W\d_]+)\W{0,3}$", text[max(0, start - 60) : start])
    if before is None or before[1].casefold() in COMMON_WORDS or len(value) > _LONGEST_CODE:
        return False
    if any(before[1].casefold() in label.split() for label in field.labels):
        return False
    return value.isdecimal() or is_label(before[1]) or (before[1][0].isupper() and before.start() > 0)


def _labelled_texts(text: str, field: Field) -> Iterator[TextFound]:
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


def _stated_value(text: str, field: Field) -> TextFound | None:
    """Return what a reply says that the field is, in small letters as well: "the colour is dark blue"."""
    for label in field.labels:
        words = r"\s".join(map(re.escape, label.split()))
        match = re.search(rf"(?<![\w-])(?i:{words}){_IS}(?P<value>[^\n,;.!?]{{1,100}})", text)
        if match is not None:
            return _cut(field, text, match)
    return None


Moment = TypeVar("Moment", SpokenDay, SpokenTime)
"""Returns whether a value fits a JSON Schema."""

# A request is stated in its first paragraphs; the rest is the material to work on.
_LONGEST_TEXT = 1_000
_MOST_FIELDS = 50
# The words before a value that say what it is for.
_BEFORE = 60
_CLAUSE_END = re.compile(r"[,;.!?](?=\s|$)|\n|\s(?=(?:that|because|dass|weil)\s)")
# A clause with one of these tells what was, or what might be: no value is meant in it.
_ASIDE = re.compile(
    rf"\b(?:had|{alternatives('english_was')}|were|paid|ago|yesterday|hatte|hatten|war|waren|gestern|letzte[nrsm]?|vorige[nrsm]?"
    r"|last (?:year|month|week|time))\b"
    r"|^\s*(?:and |but |und |aber )?(?:if|unless|whether|wenn|falls|ob)\b",
    re.IGNORECASE,
)
_NOT = re.compile(rf"\b(?:{alternatives('value.not')})(?:\s[\w’']+){{0,2}}?\s$", re.IGNORECASE)
_WITH = re.compile(rf"\b(?:{alternatives('value.with')})(?:\s(?:an?|the|eine?[nmr]?|de[nrm]|die))?\s$", re.I)
_WITHOUT = re.compile(r"\b(?:without|no|excluding|ohne|keine?n?)(?:\s(?:an?|the|eine?[nmr]?|de[nrm]|die))?\s$", re.I)
_IS_SO = re.compile(r"\b(?:it is|it's|it’s|this is|es ist|das ist)(?:\s(?:an?|ein\w{0,2}))?\s$", re.I)
_NOT_SO = re.compile(r"\b(?:not|nicht|kein\w{0,2})(?:\s(?:an?|so|very|ein\w{0,2}))?\s$", re.I)
_ENDING = r"(?:e?s|en?|er|n|es)?"
# These are chosen only by a label before them: "may", "no".
_SHORT_WORDS = word_set("value.short_words")


class FoundValue(NamedTuple):
    """A value for a field, and where in the text it stands."""

    value: Json
    start: int
    end: int


class Words(NamedTuple):
    """A user's words, with those blanked out in which no value is meant."""

    text: str
    today: date
    fits: Fits
    reply: bool
    """Whether they answer a question for the fields."""


def find_values(
    text: str, schemas: Mapping[str, Schema], required: frozenset[str], fits: Fits, today: date, *, reply: bool = False
) -> dict[str, FoundValue]:
    """Return the fields of an input that stand in a text. *today* is the day on which it was said."""
    words = Words(_meant(text[:_LONGEST_TEXT]), today, fits, reply)
    fields = [
        field_of(name, schema, required=name in required) for name, schema in list(schemas.items())[:_MOST_FIELDS]
    ]
    values = _times(words, fields)
    values |= _days(words, fields)
    taken = [(each.start, each.end) for each in values.values()]
    for finder in (_choices, _truths, _numbers, _texts):
        values |= {name: each for name, each in finder(words, fields, taken) if name not in values}
    return {name: each for name, each in _alone(values).items() if fits(schemas[name], each.value)}


def _meant(text: str) -> str:
    """Return a text with the clauses blanked out that tell what was or might be; positions stay."""
    parts: list[str] = []
    start = 0
    for end in [*(match.end() for match in _CLAUSE_END.finditer(text)), len(text)]:
        clause = text[start:end]
        parts.append(" " * len(clause) if _ASIDE.search(clause) else clause)
        start = end
    return "".join(parts)


def _alone(values: dict[str, FoundValue]) -> dict[str, FoundValue]:
    """Return the values whose words no other field claims."""
    claims: dict[tuple[int, int], list[str]] = defaultdict(list)
    for name, each in values.items():
        claims[each.start, each.end].append(name)
    return {
        name: each
        for name, each in values.items()
        if len(claims[each.start, each.end]) == 1
        and not any(
            # The unit within an amount may be a value of its own: 500 EUR.
            isinstance(values[names[0]].value, str)
            and start <= each.start
            and each.end <= end
            and (start, end) != (each.start, each.end)
            for (start, end), names in claims.items()
        )
    }


def is_denied(text: str, start: int) -> bool:
    """Tell whether what stands at a position is ruled out by the words before it."""
    return _NOT.search(text, max(0, start - _BEFORE), start) is not None


# ── days and times ────────────────────────────────────────────────────────────────────────────────────────────────────

_FROM = re.compile(r"\b(?:from|starting|starts|beginning|begins|von|ab|vom)\s(?:the\s|on\s)?$", re.I)
_UNTIL = re.compile(rf"(?:\b(?:{alternatives('value.until')})\s(?:the\s|on\s)?|\d\.?(?:st|nd|rd|th)?\s?[-–]\s?)$", re.I)


def _days(words: Words, fields: list[Field]) -> dict[str, FoundValue]:
    wanted = [field for field in fields if field.kind in {"day", "moment"}]
    days = spoken_days(words.text, words.today)
    times = spoken_times(words.text)
    values: dict[str, FoundValue] = {}
    for field, day in _matched(words.text, wanted, days):
        value: str | None = words.text[day.start : day.end]
        if field.kind == "moment":
            value = f"{day.day.isoformat()}T{times[0].written}:00" if len(times) == 1 else None
        elif field.schema.get("format") == "date":
            value = day.day.isoformat()
        if value is not None:
            values[field.name] = FoundValue(value, day.start, day.end)
    return values


def _times(words: Words, fields: list[Field]) -> dict[str, FoundValue]:
    wanted = [field for field in fields if field.kind == "time"]
    values: dict[str, FoundValue] = {}
    for field, time in _matched(words.text, wanted, spoken_times(words.text)):
        value = time.written
        if field.schema.get("format") == "time" and not words.fits(field.schema, value):
            value = f"{value}:00Z" if words.fits(field.schema, f"{value}:00Z") else f"{value}:00"
        values[field.name] = FoundValue(value, time.start, time.end)
    return values


def _matched(text: str, wanted: list[Field], moments: Sequence[Moment]) -> list[tuple[Field, Moment]]:
    """Return which field each day or time is for: the two ends of a span, or the only one that is wanted."""
    moments = [each for each in moments if not is_denied(text, each.start)]
    if not wanted or not moments:
        return []
    ends = [_end_of_span(text, each.start) for each in moments]
    if len(moments) == 2 and ends[1] == "end" and ends[0] != "end":
        starts, stops = _pair(wanted)
        return [] if starts is None or stops is None else [(starts, moments[0]), (stops, moments[1])]
    if len({each[2:] for each in moments}) > 1:
        return []
    if ends[0]:
        field = next((each for each in wanted if each.end == ends[0]), wanted[0] if len(wanted) == 1 else None)
        return [] if field is None else [(field, moments[0])]
    needed = [each for each in wanted if each.required] or wanted
    return [(needed[0], moments[0])] if len(needed) == 1 else []


def _end_of_span(text: str, start: int) -> str:
    return (
        "end"
        if _UNTIL.search(text, max(0, start - _BEFORE), start)
        else "start"
        if _FROM.search(text, max(0, start - _BEFORE), start)
        else ""
    )


def _pair(wanted: list[Field]) -> tuple[Field | None, Field | None]:
    """Return the two fields for the ends of a span of days; if one says which it is, the other is the other end."""
    if len(wanted) != 2:
        named = [[each for each in wanted if each.end == end] for end in ("start", "end")]
        return (named[0][0], named[1][0]) if len(named[0]) == len(named[1]) == 1 else (None, None)
    one, other = wanted
    if one.end == other.end:
        return None, None
    return (one, other) if one.end == "start" or other.end == "end" else (other, one)


# ── choices, yes and no ───────────────────────────────────────────────────────────────────────────────────────────────

Taken = list[tuple[int, int]]
Finder = Iterator[tuple[str, FoundValue]]


def _choices(words: Words, fields: list[Field], taken: Taken) -> Finder:
    for field in fields:
        if field.kind == "choice" and field.schema.get("type") != "array":
            named = [each for each in _named_options(words.text, field) if not _overlaps(each, taken)]
            if len({repr(each.value) for each in named}) == 1:
                yield field.name, named[0]


def _named_options(text: str, field: Field) -> list[FoundValue]:
    """Return the options that a text names, without those within a longer one, and those that it rules out."""
    values: list[FoundValue] = []
    for spoken, value in field.options.items():
        plain = r"[\s_-]".join(map(re.escape, spoken.split()))
        labelled = "|".join(map(re.escape, field.labels))
        short = spoken in _SHORT_WORDS or spoken in {"a", "i"} or not any(sign.isalpha() for sign in spoken)
        pattern = rf"\b(?:{labelled})\W{{1,3}}(?P<value>{plain})(?!\w)" if short and labelled else ""
        if not short:
            pattern = rf"(?<![\w-])(?P<value>{plain}{_ENDING})(?![\w])"
        if not pattern:
            continue
        for match in re.finditer(pattern, text, re.IGNORECASE):
            # A single letter is a size or a class only as it is written.
            letter = (
                spoken.isalpha() and len(spoken) == 1 and match["value"] != value and match["value"] != text.strip()
            )
            if not letter and not is_denied(text, match.start("value")) and not _is_of_other(match, text, field):
                values.append(FoundValue(value, *match.span("value")))
    return [
        each
        for each in values
        if not any(other.start <= each.start and each.end <= other.end and other[1:] != each[1:] for other in values)
    ]


def _is_of_other(match: re.Match[str], text: str, field: Field) -> bool:
    """Tell whether an option is said of something else than the field: "the water is high" is no priority."""
    subject = _SUBJECT.search(text, max(0, match.start("value") - _BEFORE), match.start("value"))
    return subject is not None and subject[1].casefold() not in {*field.labels, "it", "that", "this", "es", "das"}


_SUBJECT = re.compile(
    r"\b(\w+)\s(?:is|are|looks|seems|becomes|ist|sind|wird)\s(?:too |very |zu |sehr )?$", re.IGNORECASE
)


def _truths(words: Words, fields: list[Field], _: Taken) -> Finder:
    for field in fields:
        if field.kind != "truth":
            continue
        for match in re.finditer(r"[^\W\d_]+(?:-[^\W\d_]+)*", words.text):
            if match[0].casefold() not in field.labels and not _is_one_of(match[0], field):
                continue
            before = words.text[max(0, match.start() - _BEFORE) : match.start()]
            edges = not before.strip() or before.rstrip()[-1] in ",;.", words.text[match.end() : match.end() + 1]
            alone = edges[0] and edges[1] in {"", ",", ";", ".", "!"}
            if _WITHOUT.search(before) or _NOT_SO.search(before):
                yield field.name, FoundValue(False, *match.span())
            elif _WITH.search(before) or _IS_SO.search(before) or alone:
                yield field.name, FoundValue(True, *match.span())


def _is_one_of(word: str, field: Field) -> bool:
    return any(stem(word.casefold()) == stem(label.split()[-1]) for label in field.labels)


# ── numbers and texts ─────────────────────────────────────────────────────────────────────────────────────────────────


def _numbers(words: Words, fields: list[Field], taken: Taken) -> Finder:
    wanted = [field for field in fields if field.kind == "number"]
    moments = [
        *((each.start, each.end) for each in spoken_days(words.text, words.today)),
        *((each.start, each.end) for each in spoken_times(words.text)),
    ]
    for field, value, start, end in numbers_for(words.text, wanted, [*moments, *taken]) if wanted else ():
        yield field.name, FoundValue(value, start, end)


def _texts(words: Words, fields: list[Field], taken: Taken) -> Finder:
    wanted = [field for field in fields if field.kind == "text"]
    moments = [(each.start, each.end) for each in spoken_days(words.text, words.today)]
    blocked = [*moments, *taken]
    for field, value, start, end in texts_for(words.text, wanted, words.fits, reply=words.reply) if wanted else ():
        if not _overlaps(FoundValue(value, start, end), blocked):
            yield field.name, FoundValue(value, start, end)


def _overlaps(value: FoundValue, spans: Taken) -> bool:
    return any(start < value.end and value.start < end for start, end in spans)
