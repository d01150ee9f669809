"""Reads the limits that a user states: "at most 300 euros a day", "not before ten", "mindestens 20 Stühle"."""

import re
from collections.abc import Iterator
from typing import NamedTuple

from remit_orchestrator.text.figures import figures
from remit_orchestrator.text.lexicon import table, word_set
from remit_orchestrator.text.markers import NEGATIONS
from remit_orchestrator.text.quantities import Amount, Day, Quantity, TimeOfDay, Weekday
from remit_orchestrator.text.spoken_times import spoken_times
from remit_orchestrator.text.vocabulary import COMMON_WORDS
from remit_orchestrator.text.word_relations import root_of


class Limit(NamedTuple):
    """A bound that the user set: the words, the quantity, and what it is about."""

    text: str
    quantity: Quantity
    most: bool
    noun: str = ""
    """What is counted, for a number without a unit."""
    per: str = ""
    """The unit of a rate: 300 euros a day."""
    subject: frozenset[str] = frozenset()
    """The roots of other words that say what is limited."""


# Each line: the words, the direction, whether a negation turns it around, and whether only days and times follow it.
_COMPARISONS = (
    ("at (?:the )?(?:very )?most|up to|max(?:imum|imal)?(?: of)?|within", True, False, False),
    ("höchstens|bis zu|innerhalb von", True, False, False),
    ("at (?:the )?(?:very )?least|min(?:imum)?(?: of)?|mindestens|wenigstens", False, False, False),
    ("less than|fewer than|under|below|cheaper than|weniger als|unter|günstiger als", True, True, False),
    ("shorter than|kürzer als|smaller than|kleiner als|lighter than|leichter als", True, True, False),
    ("more than|over|above|exceed(?:s|ing)?|longer than|higher than|mehr als|über|länger als", False, True, False),
    ("bigger than|larger than|größer als|heavier than|schwerer als|teurer als", False, True, False),
    ("by|spätestens(?: um| am| bis)?|bis(?: zum| zur| spätestens)?", True, False, True),
    ("before|until|till|earlier than|vor(?: dem)?|früher als", True, True, True),
    ("after|later than|nach(?: dem)?|später als", False, True, True),
    ("frühestens(?: um| am)?|ab(?: dem)?", False, False, True),
)
_COMPARED = re.compile(
    r"(?<![\w-])(?:" + "|".join(f"(?P<c{place}>{words})" for place, (words, *_) in enumerate(_COMPARISONS)) + r")\.?\s+"
    r"(?:(?:about|the|a|an|dem|den|der|um|am)\s+)?(?=[\w$€£¥₹])",
    re.IGNORECASE,
)
_AFTERWARDS = re.compile(
    r"(?P<most>\W{0,2}(?:at (?:the )?(?:very )?most|max(?:imum|imal)?|or (?:less|fewer|under|below|earlier|cheaper)"
    r"|at the latest|tops|höchstens|oder (?:weniger|früher|günstiger)))\b"
    r"|(?P<least>\W{0,2}(?:at (?:the )?(?:very )?least|min(?:imum)?|or (?:more|above|over|later|longer)"
    r"|at the earliest|mindestens|oder (?:mehr|später|länger)))\b",
    re.IGNORECASE,
)
_NAMED_LIMIT = re.compile(
    r"\b(?:(?P<most>budget|limit|maximum|ceiling|cap|deadline|\w*grenze|frist)|minimum)\b[^\W\d_]{0,10}"
    r"(?:\s*(?:is|are|of|has to be|must be|should be|will be|:|=|liegt bei|beträgt|ist|von|sind))\s+"
    r"(?=[\w$€£¥₹])",
    re.IGNORECASE,
)
# Whoever can spend an amount cannot spend more.
_AFFORDED = re.compile(
    r"\b(?:can|could)(?: only)? (?:spend|pay|afford)\s+(?:about\s+)?(?=[\d$€£¥₹])"
    r"|\b(?:only have|have only|have just|just have|habe nur|haben nur|nur noch)\s+(?=[\d$€£¥₹])"
    r"|\bkann (?:nur |ich nur |ich )?(?=[\d$€£¥₹][^.!?]{0,30}\b(?:ausgeben|zahlen|bezahlen)\b)",
    re.IGNORECASE,
)
# "The day after tomorrow at a quarter past eleven in the evening", with room to spare.
_LONGEST_QUANTITY = 60
_BETWEEN = re.compile(
    r"\b(?:between|zwischen)\s+(?P<low>[\w.,:$€£¥₹]{1,20})(?:\s\S{1,12})?\s+(?:and|und)\s+(?P<high>[\w$€£¥₹])",
    re.IGNORECASE,
)
_SPLIT = re.compile(r"[,;:](?!\d)|\s(?:but|and|or|aber|und|oder)\s", re.IGNORECASE)
_WORD = re.compile(r"[^\W\d_]+(?:['’]t)?")
_NOUN = re.compile(r"\s+([^\W\d_]+)(?:\s+([^\W\d_]+))?")
_PER = re.compile(
    r"\s*(?:/|\b(?:an?|per|each|every|pro|je|am|im|in der|die|every single)\b)\s*([^\W\d_]+)", re.IGNORECASE
)
_RATES = {word: rate for rate, (names,) in table("limit.rates").items() for word in names}
_RATE_WORDS = word_set("limit.rate_words")
_UNSAID = word_set("limit.unsaid")


def stated_limits(sentence: str) -> Iterator[Limit]:
    """Yield the limits in a sentence that demands something."""
    seen: set[int] = set()
    for found in _BETWEEN.finditer(sentence):
        high = quantity_at(sentence, found.start("high"), of_time=None)
        of_time = high is not None and not isinstance(high[0], Amount)
        low = quantity_at(sentence, found.start("low"), of_time=of_time)
        if low is None or high is None:
            continue
        first, last = low[0], high[0]
        if isinstance(first, Amount) and isinstance(last, Amount) and first.kind == "number":
            # The unit stands behind the second number: "between 10 and 20 euros".
            factor = last.low / number.low if (number := _number_of(sentence, found.start("high"))) else 1.0
            first = Amount(last.kind, first.low * factor, first.low * factor, currency=last.currency)
        seen.update((found.start("low"), found.start("high")))
        yield _limit(sentence, found.start("low"), first, high[1], most=False)
        yield _limit(sentence, found.start("high"), last, high[1], most=True)
    for found in _COMPARED.finditer(sentence):
        place = next(place for place in range(len(_COMPARISONS)) if found[f"c{place}"])
        _, most, turns, of_time = _COMPARISONS[place]
        if turns and _is_denied(sentence, found.start(), found.end()):
            most = not most
        at = found.end()
        if at not in seen and (quantity := quantity_at(sentence, at, of_time=of_time)) is not None:
            seen.add(at)
            yield _limit(sentence, at, *quantity, most=most)
    for pattern in (_NAMED_LIMIT, _AFFORDED):
        for found in pattern.finditer(sentence):
            at = found.end()
            if at not in seen and (quantity := quantity_at(sentence, at, of_time=None)) is not None:
                seen.add(at)
                most = pattern is _AFFORDED or found["most"] is not None
                yield _limit(sentence, at, *quantity, most=most)
    for figure in figures(sentence):
        end = figure.end
        noun = _NOUN.match(sentence, end)
        after = _AFTERWARDS.match(sentence, end) or (noun and _AFTERWARDS.match(sentence, noun.end(1)))
        if after and figure.start not in seen and isinstance(figure.quantity, Amount | Day | TimeOfDay):
            seen.add(figure.start)
            yield _limit(sentence, figure.start, _point(figure.quantity, figure.other), end, most=bool(after["most"]))


def _number_of(sentence: str, at: int) -> Amount | None:
    """Return the number at a position without its unit."""
    digits = re.match(r"[\w.,]+", sentence[at:])
    found = figures(digits[0]) if digits else []
    quantity = _point(found[0].quantity, found[0].other) if found else None
    return quantity if isinstance(quantity, Amount) and quantity.low else None


def quantity_at(sentence: str, at: int, *, of_time: bool | None) -> tuple[Quantity, int] | None:
    """Return the quantity that begins at a position, and where it ends; *of_time*: whether it has to be a time.

    After "before" and "after", ten is ten o'clock.
    """
    rest = sentence[at : at + _LONGEST_QUANTITY]
    if of_time is not False:
        for time in spoken_times(f"at {rest}"):
            if time.start <= 3:
                # Between one and five is in the afternoon, unless it is written with two digits.
                minutes = time.hour * 60 + time.minute
                said = rest[: time.end - 3]
                spoken = 1 <= time.hour <= 5 and not re.search(r"\b0\d|[aApP]\.?[mM]", said)
                return TimeOfDay(minutes + (720 if spoken else 0)), at + time.end - 3
    found = next((each for each in figures(rest) if each.start == 0), None)
    if found is None:
        # "Longer than a week"
        one = next((each for each in figures(f"1 {rest}") if each.start == 0 and each.end > 1), None)
        if of_time or one is None or not isinstance(one.quantity, Amount) or one.quantity.kind == "number":
            return None
        return _point(one.quantity, one.other), at + one.end - 2
    quantity = _point(found.quantity, found.other)
    if isinstance(quantity, Amount):
        return None if of_time else (quantity, at + found.end)
    return (quantity, at + found.end) if of_time is not False else None


def _point(quantity: Quantity, other: Quantity | None) -> Quantity:
    """Return a quantity without its bound; of two readings the larger, because 1.500 euros are not one and a half."""
    quantity = other if isinstance(other, Amount) else quantity
    match quantity:
        case Amount(kind=kind, low=low, high=high, currency=currency):
            value = high if low == float("-inf") else low
            return Amount(kind, value, value, currency=currency)
        case TimeOfDay(at=at):
            return TimeOfDay(at)
        case Day(readings=readings):
            return Day(readings)
        case Weekday():
            return quantity


def _limit(sentence: str, start: int, quantity: Quantity, end: int, *, most: bool) -> Limit:
    counted = counted_noun(sentence, end) if isinstance(quantity, Amount) and quantity.kind == "number" else ""
    subject = frozenset(
        root_of(word)
        for word in _WORD.findall(f"{sentence[:start]} {sentence[end:]}".casefold())
        if len(word) > 2 and word not in COMMON_WORDS and word not in _UNSAID and word not in NEGATIONS
    )
    per = rate_of(sentence, end)
    return Limit(sentence, quantity, most, counted, per, subject - {root_of(per), root_of(counted)})


def counted_noun(text: str, end: int) -> str:
    """Return the word after a number, if it says what is counted."""
    noun = _NOUN.match(text, end)
    if noun is None:
        return ""
    word = noun[1].casefold()
    return "" if word in COMMON_WORDS or word in _UNSAID or _AFTERWARDS.match(text, end) else word


def rate_of(text: str, end: int) -> str:
    """Return the unit of the rate after a figure: day in "300 euros a day"; empty without one."""
    found = _PER.match(text, end)
    if found is None:
        return ""
    word = found[1].casefold()
    word = _RATES.get(word, word)
    return word if word in _RATE_WORDS else ""


def _is_denied(sentence: str, start: int, end: int) -> bool:
    """Return whether a negation stands in the same clause: before a comparison, or behind what it compares."""
    breaks = [each.end() for each in _SPLIT.finditer(sentence, 0, start)]
    begin = breaks[-1] if breaks else 0
    following = _SPLIT.search(sentence, end)
    clause = f"{sentence[begin:start]} {sentence[end : following.start() if following else len(sentence)]}"
    return not NEGATIONS.isdisjoint(word.replace("’", "'") for word in _WORD.findall(clause.casefold()))
