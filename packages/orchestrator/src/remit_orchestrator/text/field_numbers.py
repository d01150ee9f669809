"""Finds numbers for the fields of an input: by their unit, what is counted, or the label before them."""

import re
from collections.abc import Iterator

from remit.protocol.envelope import Json
from remit.words.units import Unit
from remit_orchestrator.text.field_kinds import Field
from remit_orchestrator.text.figures import figures
from remit_orchestrator.text.lexicon import word_set
from remit_orchestrator.text.quantities import Amount, Figure
from remit_orchestrator.text.vocabulary import COMMON_WORDS, GERMAN_SIGNS, LABELS, REQUEST_VERBS, stem

_MOST = re.compile(
    r"\b(?:at most|no more than|not more than|up to|maximum(?: of)?|max\.?|below|under|less than|for under"
    r"|höchstens|maximal|nicht mehr als|bis zu|unter|weniger als)\W{0,3}(?:[$€£¥]\s?)?$",
    re.IGNORECASE,
)
_LEAST = re.compile(
    r"\b(?:at least|no less than|minimum(?: of)?|more than|over|above|mindestens|wenigstens|mehr als"
    r"|über)\W{0,3}(?:[$€£¥]\s?)?$",
    re.IGNORECASE,
)
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
    places = [place for place in places if not _is_told(place)]
    labelled = {field.name: [each for place in places if (each := _labelled(field, place))] for field in fields}
    named = {(start, end) for values in labelled.values() for _, _, start, end in values}
    free = [place for place in places if (place.start, place.end) not in named]
    for field in fields:
        found = labelled[field.name]
        if _YEARS & set(field.labels):
            found = [(field, int(each[0]), each.start(), each.end()) for each in _YEAR.finditer(text)]
        elif not found and field.people:
            found = _people(field, text, free)
        if not found:
            found = [each for place in free if (each := _measured(field, place) or _counted(field, place, free))]
        if len({repr(value) for _, value, _, _ in found}) == 1:
            yield found[0]


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
    found: list[NumberFound] = []
    for match in _TOGETHER.finditer(text):
        number = 2 + _TOGETHER_WORDS.index(match[1].casefold())
        found.append((field, number, match.start(1), match.end(1)))
    for place in places:
        if place.amount.kind != "number" or place.bound or _is_label(place):
            continue
        nouns = place.nouns[:1] if place.nouns[:1] != ["of"] else place.nouns[1:2]
        counted = [noun for noun in nouns if noun in _PEOPLE or stem(noun) in field.stems]
        alone = _FOR.search(place.before) and _PHRASE.match(place.after)
        if (counted or alone) and (made := _made(field, place, place.size)):
            found.append(made)
    return found


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


def _is_told(place: _Place) -> bool:
    """Tell whether a clause tells what there is, not what is wanted: "my account has 1,200 euros"."""
    clause = _CLAUSE.split(place.before)[-1]
    return bool(_HAS.search(clause)) and not _WANTS.search(clause) and not _HAS_DONE.match(clause)


_CLAUSE = re.compile(r"[,;.!?](?=\s)|\n")
_HAS = re.compile(r"\b(?:has|have|hat|habe|haben)\b", re.IGNORECASE)
# "Have 8 pages proofread": a request, for nobody stands before it.
_HAS_DONE = re.compile(r"\s*(?:(?:and|please|then|also|just)\s)*have\b", re.IGNORECASE)
_WANTS = re.compile(
    r"\b(?:can|could|may|shall|like|want|need|to have|kann|könnte\w?|möchte\w?|darf|will|gern)\b", re.IGNORECASE
)


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
