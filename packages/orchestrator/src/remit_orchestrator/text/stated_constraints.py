"""Reads the constraints that a user states: limits, choices ("by sea", "only organic") and prohibitions ("no nuts")."""

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

from remit.words.numbers import NUMBER_WORDS, ORDINALS
from remit_orchestrator.text.figures import Amount, Day, Quantity, TimeOfDay, Weekday, figures
from remit_orchestrator.text.lexicon import alternatives, pattern_within, table, word_set
from remit_orchestrator.text.sentences import is_question
from remit_orchestrator.text.spoken_times import spoken_times
from remit_orchestrator.text.vocabulary import ALL_NEGATIONS, COMMON_WORDS, REQUEST_VERBS, root_of

_LEAD = (
    r"\W*(?:(?:but|and|so|also|well|then|now|yes|no|oh|ok|okay|please|aber|und|also|dann|jetzt|ja|nein|bitte)\b"
    r"\W*){0,3}"
)


# Questions that ask for something to be found or done: "do you have anything below 800 euros?"
_REQUESTING = re.compile(
    _LEAD + r"(?:(?:can|could|would|will) you|(?:can|could|may) (?:i|we) (?:get|have|book|order|hire|rent|reserve|buy)"
    r"|do you (?:have|know|offer|sell)(?: of)? (?:a|an|any\w*|some\w*)|(?:is|are) there (?:a|an|any\w*|some\w*)"
    r"|have you got|kannst du|können sie|könnt(?:est du|en sie|e man)|würde(?:st du|n sie)"
    r"|(?:gibt es|haben sie|hast du) (?:ein\w*|etwas|was|irgend\w*))\b"
)
# What somebody else said, or what the user does not know for sure, is nobody's demand.
_REPORTED = pattern_within("demand.reported")
_PAST = pattern_within("english_was", "demand.past")
# A sentence with one of these says how something has to be, whoever its subject is.
_OBLIGING = pattern_within("demand.obliging")
_WISHING = pattern_within("demand.wishing")
# "My budget is 1,200 euros": it names its own kind.
_BOUNDED = re.compile(
    r"(?:(?:my|our|the|mein|unser|das|die|der|meine|unsere)\s+)?(?:[^\W\d_]+\s+){0,2}"
    r"(?:budget|limit|maximum|minimum|ceiling|cap|deadline|upper limit|obergrenze|grenze|höchstgrenze|frist)\b"
)
_SUBJECT = re.compile(rf"(?:{alternatives('constraint.subject')})\b")
_NOUN_PHRASE = re.compile(rf"(?:{alternatives('constraint.noun_phrase')})\s")
_FINITE = pattern_within("demand.finite")
_THIRD_VERB = re.compile(r"\S+\s+\S+\s+[a-z]{2,20}(?:s|ed)\b")
# "No problem", "only one question": they say something about the talk.
_OF_THE_TALK = re.compile(
    _LEAD
    + r"(?:(?:i|we|ich|wir|that is|that['’]s|there is|das ist)\s+(?:only\s+|just\s+)?(?:have\s+|habe\s+|haben\s+)?)?"
    r"(?:(?:no|not|only|just|nur|noch|kein\w{0,2}|nicht|one|a|an|another|eine?|more|so)\s+){1,3}"
    r"(?:problems?|idea|hurry|rush|worries|worry|doubts?|need|matter|way|wonder|clue|chance|luck|questions?|comment"
    r"|objections?|thanks?|thank you|trouble|reason|point|yet|now|really|necessary|important|bad|sure|quite|so"
    r"|ahnung|idee|probleme?|sorgen?|eile|fragen?|zweifel|wunder|grund|ursache|nötig|schlimm|wichtig|jetzt|mehr)\W*$"
)
_KNOWING = re.compile(
    r"\bthat i know\b|\bas far as\b|\bsoweit\b|\b(?:yet|so far|bisher|bislang)\W*$"
    # "It must be a mistake" guesses.
    r"|\b(?:there|here|da|hier) (?:must|muss|müssen)\b|\bi must (?:say|admit|confess)\b|\bich muss (?:sagen|zugeben)\b"
    r"|\b(?:must|muss)\b(?: be)?(?: an?| ein\w{0,2})?"
    r" (?:mistake|error|misunderstanding|joke|wrong|fehler|irrtum|falsch)\b"
    r"|\b(?:do not|don['’]t) (?:worry|forget|hesitate|bother|mind|understand|know)\b"
)


def may_demand(sentence: str) -> bool:
    """Return whether a sentence may state what has to hold: a wish, a request, or words without a verb.

    "We were at most ten people", "The price is under 300" and "Is it under 300?" demand nothing.
    """
    folded = sentence.casefold()
    if is_question(folded):
        return _REQUESTING.match(folded) is not None
    if _OF_THE_TALK.match(folded) or _REPORTED.search(folded) or _PAST.search(folded) or _KNOWING.search(folded):
        return False
    rest = re.sub(rf"^{_LEAD}", "", folded)
    if _OBLIGING.search(folded) or _WISHING.search(folded) or _BOUNDED.match(rest):
        return True
    if _SUBJECT.match(rest):
        return False
    if _NOUN_PHRASE.match(rest):
        return not (_FINITE.search(rest) or _THIRD_VERB.match(rest))
    return not _VERB_FIRST.match(rest)


# "Nothing has arrived", "up to now it works"
_VERB_FIRST = re.compile(r"(?:[^\W\d_]+\s+){1,3}(?:is|are|has|have|works?|ist|sind|hat|haben)\b")


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
_PER = re.compile(rf"\s*(?:/|\b(?:{alternatives('constraint.per')})\b)\s*([^\W\d_]+)", re.IGNORECASE)
_RATES = {word: rate for rate, (names,) in table("limit.rates").items() for word in names}
_RATE_WORDS = word_set("limit.rate_words")
_UNSAID = word_set("limit.unsaid")


def stated_limits(sentence: str) -> Iterator[Limit]:
    """Yield the limits in a sentence that demands something."""
    seen: set[int] = set()
    for match in _BETWEEN.finditer(sentence):
        high = quantity_at(sentence, match.start("high"), of_time=None)
        of_time = high is not None and not isinstance(high[0], Amount)
        low = quantity_at(sentence, match.start("low"), of_time=of_time)
        if low is None or high is None:
            continue
        first, last = low[0], high[0]
        if isinstance(first, Amount) and isinstance(last, Amount) and first.kind == "number":
            # The unit stands behind the second number: "between 10 and 20 euros".
            factor = last.low / number.low if (number := _number_of(sentence, match.start("high"))) else 1.0
            first = Amount(last.kind, first.low * factor, first.low * factor, currency=last.currency)
        seen.update((match.start("low"), match.start("high")))
        yield _limit(sentence, match.start("low"), first, high[1], most=False)
        yield _limit(sentence, match.start("high"), last, high[1], most=True)
    for match in _COMPARED.finditer(sentence):
        place = next(place for place in range(len(_COMPARISONS)) if match[f"c{place}"])
        _, most, turns, of_time = _COMPARISONS[place]
        if turns and _is_denied(sentence, match.start(), match.end()):
            most = not most
        at = match.end()
        if at not in seen and (quantity := quantity_at(sentence, at, of_time=of_time)) is not None:
            seen.add(at)
            yield _limit(sentence, at, *quantity, most=most)
    for pattern in (_NAMED_LIMIT, _AFFORDED):
        for match in pattern.finditer(sentence):
            at = match.end()
            if at not in seen and (quantity := quantity_at(sentence, at, of_time=None)) is not None:
                seen.add(at)
                most = pattern is _AFFORDED or match["most"] is not None
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
    amounts = figures(digits[0]) if digits else []
    quantity = _point(amounts[0].quantity, amounts[0].other) if amounts else None
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
                written = rest[: time.end - 3]
                spoken = 1 <= time.hour <= 5 and not re.search(r"\b0\d|[aApP]\.?[mM]", written)
                return TimeOfDay(minutes + (720 if spoken else 0)), at + time.end - 3
    figure = next((each for each in figures(rest) if each.start == 0), None)
    if figure is None:
        # "Longer than a week"
        one = next((each for each in figures(f"1 {rest}") if each.start == 0 and each.end > 1), None)
        if of_time or one is None or not isinstance(one.quantity, Amount) or one.quantity.kind == "number":
            return None
        return _point(one.quantity, one.other), at + one.end - 2
    quantity = _point(figure.quantity, figure.other)
    if isinstance(quantity, Amount):
        return None if of_time else (quantity, at + figure.end)
    return (quantity, at + figure.end) if of_time is not False else None


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
        if len(word) > 2 and word not in COMMON_WORDS and word not in _UNSAID and word not in ALL_NEGATIONS
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
    match = _PER.match(text, end)
    if match is None:
        return ""
    word = match[1].casefold()
    word = _RATES.get(word, word)
    return word if word in _RATE_WORDS else ""


def _is_denied(sentence: str, start: int, end: int) -> bool:
    """Return whether a negation stands in the same clause: before a comparison, or behind what it compares."""
    breaks = [each.end() for each in _SPLIT.finditer(sentence, 0, start)]
    begin = breaks[-1] if breaks else 0
    following = _SPLIT.search(sentence, end)
    clause = f"{sentence[begin:start]} {sentence[end : following.start() if following else len(sentence)]}"
    return not ALL_NEGATIONS.isdisjoint(word.replace("’", "'") for word in _WORD.findall(clause.casefold()))


class Requirement(NamedTuple):
    """What something has to be, in the user's words: the sentence, and the words that say it."""

    text: str
    about: str
    roots: frozenset[str]
    means: str = ""
    """The kind of means ("transport"), if it says by which."""


class Prohibition(NamedTuple):
    """What something must not be or have: the sentence, and the words that say it."""

    text: str
    about: str
    roots: frozenset[str]
    means: str = ""


Constraint = Limit | Requirement | Prohibition

LONGEST_DEMAND = 400
"""A longer sentence is a document; a note is shorter."""

# By which means something is sent, said or paid: of each kind a user takes one. Words with a slash mean the same.
MEANS = {
    word: (kind, group.split("/")[0])
    for kind, (several,) in table("constraint.means").items()
    for group in several
    for word in group.split("/")
}
"""The kind of each means, and the first word of its group."""

# In English a noun with a capital letter is a name; in German it is any noun.
BY = re.compile(
    r"(?<!\w)(?:(?:[Bb]y|[Vv]ia|[Pp]er|[Ii]n|[Ww]ith)\s+([a-zäöü-]{2,20})"
    r"|(?:[Pp]er|[Mm]it de[rm])\s+([A-ZÄÖÜ][\w-]{1,20}))"
    r"(?![\w-])(?!\s+\d)"
)
"""By which means something is done: the word is in one of the two groups."""
_BY_ALONE = re.compile(r"(?:only |just |nur )?(?:by|via|per)\s+([^\W\d_]{3,20})", re.IGNORECASE)
_NO_MEANS = word_set("constraint.no_means")
_CLAUSE_BREAK = re.compile(r"\s*(?:[,;:](?!\d)|[.!?]+$|\s(?:but|aber|sondern|however)\s|\s–\s|\s-\s)\s*", re.IGNORECASE)
_JOINED = re.compile(r"\s(?:and|und)\s(?=(?:not|no|nothing|without|only|nicht|kein\w{0,2}|nichts|ohne|nur|for|at)\b)")
_OPENING_WORDS = re.compile(
    r"(?:(?:please|bitte|but|and|also|so|then|aber|und|dann|yes|ja|however|preferably|if possible|absolutely|definitely"
    r"|oh|ok|okay|now|jetzt)\b\s*,?\s*|(?:no|nein)\s*,\s*)(?=\S)",
    re.IGNORECASE,
)
_POLITE = re.compile(r"\W*\b(?:please|bitte|thanks|thank you|danke)\W*$", re.IGNORECASE)
_JOINED_WORD = re.compile(r"[^\W_]+(?:[-'’][^\W_]+)*")
_LONGEST = 5
# "No problem", "not now" and "no more" forbid nothing.
_IDIOMS = word_set("constraint.idioms")
_STOPS = re.compile(rf"\s(?:{alternatives('constraint.stops')})\b.*", re.IGNORECASE)
_DETERMINERS = word_set("constraint.determiners")
_PREPOSITIONS = r"by|via|on|in|with|from|during|at|of|per|am|an|im|mit|aus|von|bei|auf|zu|zum|zur|vom"
_NO = re.compile(r"(?:no|kein(?:e|en|er|em|es)?|zero)\s+(?P<x>.+)", re.IGNORECASE)
_WITHOUT = re.compile(r"(?<!\w)(?:without|with no|ohne)\s+(?P<x>.+)", re.IGNORECASE)
_NOTHING = re.compile(
    rf"(?:nothing|none|nichts|keine[rs]?)\s+(?:{_PREPOSITIONS}|containing|made of)\s+(?P<x>.+)", re.IGNORECASE
)
_NOT_BY = re.compile(
    rf"(?<!\w)(?:not|never|nicht|niemals|auf (?:gar )?keinen fall|keinesfalls|under no circumstances"
    rf"|in no case|by no means|nur nicht)"
    rf"\s+(?P<how>{_PREPOSITIONS})\s+(?P<x>.+)",
    re.IGNORECASE,
)
_DO_NOT = re.compile(rf"(?:please |bitte )?(?:{alternatives('constraint.do_not')})\s+(?P<x>.+)", re.IGNORECASE)
_AVOID = re.compile(r"(?:please |bitte )?(?:avoid|verwende(?:n sie)? kein|nimm kein)", re.IGNORECASE)
_NO_PROHIBITION = word_set("constraint.no_prohibition")
_NOT_WANTED = re.compile(
    r"\b(?:i|we)\s+(?:do not|don['’]t|never)\s+(?:want|like|need|eat|drink|accept|take)\s+(?P<x>(?!to\b).+)"
    r"|\b(?:ich|wir)\s+(?:möchten?|will|wollen|brauchen?|essen?|trinken?|vertragen?|nehmen?)\s+kein\w{0,2}\s+(?P<y>.+)"
    r"|\b(?:cannot|can['’]t)\s+(?:eat|drink|tolerate|have|accept)\s+(?P<z>.+)",
    re.IGNORECASE,
)
_MUST_NOT = re.compile(
    r"\b(?:must not|mustn['’]t|may not|should not|shouldn['’]t|must never|may never|(?:is|are) not (?:allowed )?to)\s+"
    r"[^\W\d_]+\s+(?P<x>.+)"
    r"|\b(?:darf|dürfen|soll|sollen)\s+(?:[^\W\d_]+\s+)?kein\w{0,2}\s+(?P<y>[^\W\d_]+)",
    re.IGNORECASE,
)
_EXCEPT = re.compile(
    r"(?:.{0,60}\b)?(?:any\w*|every\w*|all\w*|jede\w?|alle\w?)\s(?:[^\W\d_]+\s){0,2}?"
    r"(?:except(?: for)?|außer|ausser|bis auf)(?:\s(?:on|am))?\s+(?P<x>.+)",
    re.IGNORECASE,
)
_ALLERGIC = re.compile(r"\ballerg\w+\s+(?:to|gegen|auf)\s+(?P<x>.+)", re.IGNORECASE)
_UNABLE = re.compile(
    r"\b(?:cannot|can['’]t|can not|not able to)\s+[^\W\d_]+\s+(?:on\s+)?(?P<x>[^\W\d_]+days?)\b"
    r"|\bkann\s+(?:ich\s+)?(?:am\s+)?(?P<y>[^\W\d_]+(?:tags?|woch))\s+nicht\b",
    re.IGNORECASE,
)
_ONLY = re.compile(r"(?:only|just|exclusively|nur|ausschließlich)\s+(?P<x>.+)", re.IGNORECASE)
_ONLY_BEHIND = re.compile(r"(?P<x>.+?)\s+only", re.IGNORECASE)
_ONLY_WANTED = re.compile(
    r"\b(?:i|we)\s+only\s+(?:want|need|take|accept|eat|drink|use|buy|like)\s+(?P<x>.+)"
    r"|\b(?:i|we)\s+(?:want|need|accept|eat|use)\s+only\s+(?P<y>.+)"
    r"|\bnur\s+(?P<z>[^\W\d_]+(?:\s+[^\W\d_]+)?)\s+(?:verwenden|nehmen|benutzen|essen|einsetzen|kaufen|nutzen)",
    re.IGNORECASE,
)
_MUST_BE = re.compile(
    r"\b(?:must|ha(?:s|ve) to|needs? to|should)\s+be\s+(?P<x>.+)"
    r"|\b(?:muss|müssen|soll|sollen|sollte|sollten)\s+(?P<y>.+?)\s+sein",
    re.IGNORECASE,
)
# What is said to be done, not what it is to be like.
_NO_KIND = word_set("constraint.no_kind")
_PLEASED = re.compile(r"(?P<x>.+?)\s*,?\s+(?:please|bitte)\W*|(?:bitte)\s+(?P<y>.+?)\W*", re.IGNORECASE)
_REPLIES = word_set("constraint.replies")


@lru_cache(maxsize=512)
def stated_constraints(sentence: str) -> tuple[Constraint, ...]:
    """Return the constraints that a sentence of the user states; none if it reports or asks, or is a document."""
    if len(sentence) > LONGEST_DEMAND or not may_demand(sentence):
        return ()
    limits = tuple(stated_limits(sentence))
    if is_question(sentence):
        return limits
    return (*limits, *_others(sentence))


def _others(sentence: str) -> Iterator[Requirement | Prohibition]:
    """Yield the choices and prohibitions of a sentence, clause by clause."""
    constrained = False
    for clause in _clauses(sentence):
        if next(stated_limits(clause), None) is not None:
            # "Without paying more than 50 euros" is a limit alone.
            constrained = True
            continue
        forbidden = _forbidden(clause)
        chosen = _chosen(clause) if forbidden is None else None
        if forbidden is not None:
            kind, how = forbidden
            yield Prohibition(sentence, kind, roots_of(kind), _kind_of_means(kind) if how else "")
        elif chosen is not None:
            yield Requirement(sentence, chosen, roots_of(chosen), _kind_of_means(chosen))
        constrained = constrained or forbidden is not None or chosen is not None
    pleased = None if constrained else _PLEASED.fullmatch(sentence.strip())
    if pleased is not None and _asks_for_thing(pleased["x"] or pleased["y"] or ""):
        return
    if pleased is not None and (kind := _kind(pleased["x"] or pleased["y"] or "", most=3)) and _is_plain(kind):
        yield Requirement(sentence, kind, roots_of(kind), _kind_of_means(kind))


def _asks_for_thing(phrase: str) -> bool:
    """Tell whether polite words ask for something to be brought or done: "a coffee, please", "Termin absagen bitte"."""
    first, *_, last = [*phrase.split(), ""] if len(phrase.split()) == 1 else phrase.split() or ["", ""]
    return first.casefold() in _DETERMINERS or (last.endswith(("en", "ern", "eln")) and last[:1].islower())


def _clauses(sentence: str) -> Iterator[str]:
    for part in _CLAUSE_BREAK.split(sentence):
        for clause in _JOINED.split(part):
            while lead := _OPENING_WORDS.match(clause):
                clause = clause[lead.end() :]
            if clause := _POLITE.sub("", clause).strip(" .!"):
                yield clause


def _forbidden(clause: str) -> tuple[str, bool] | None:
    """Return the words for what a clause forbids, and whether it is a way to do something."""
    means = next((each for match in BY.finditer(clause) if (each := match[1] or match[2]).casefold() in MEANS), "")
    if means and not ALL_NEGATIONS.isdisjoint(
        word.casefold().replace("’", "'") for word in _JOINED_WORD.findall(clause)
    ):
        return means, True
    if match := _EXCEPT.fullmatch(clause):
        return _as_thing(match["x"])
    if match := _NOT_BY.search(clause):
        phrase = _kind(match["x"])
        return (phrase, match["how"].casefold() in {"by", "via", "per", "mit"}) if phrase else None
    for pattern in (_NO, _NOTHING):
        if match := pattern.fullmatch(clause):
            return _as_thing(match["x"])
    if (match := _DO_NOT.match(clause)) and match.end() == len(clause):
        verb, _, rest = match["x"].partition(" ")
        if _AVOID.match(clause):
            return _as_thing(match["x"])
        return None if verb.casefold() in _NO_PROHIBITION else _as_thing(rest)
    for pattern in (_ALLERGIC, _NOT_WANTED, _MUST_NOT, _UNABLE, _WITHOUT):
        if match := pattern.search(clause):
            phrase = next(each for each in match.groups() if each)
            return None if phrase.split()[0].casefold().endswith("ing") else _as_thing(phrase)
    return None


def _as_thing(phrase: str) -> tuple[str, bool] | None:
    kind = _kind(phrase)
    return (kind, False) if kind else None


def _chosen(clause: str) -> str | None:
    """Return the words for what something has to be by a clause."""
    if (match := _BY_ALONE.fullmatch(clause)) and match[1].casefold() not in _NO_MEANS:
        return match[1]
    for match in BY.finditer(clause):
        if (means := match[1] or match[2]).casefold() in MEANS:
            return means
    for pattern in (_ONLY, _ONLY_BEHIND):
        if match := pattern.fullmatch(clause):
            kind = _kind(match["x"])
            return kind if kind and _is_plain(kind) else None
    for pattern in (_ONLY_WANTED, _MUST_BE):
        if match := pattern.search(clause):
            kind = _kind(next(each for each in match.groups() if each))
            first = kind.split()[0].casefold() if kind else ""
            return None if not kind or first in _NO_KIND or first.endswith("ed") or first == "not" else kind
    return None


def _kind(phrase: str, most: int = _LONGEST) -> str:
    """Return what is chosen or forbidden, without article and ending; empty if the words name no such thing."""
    phrase = _POLITE.sub("", _STOPS.sub("", phrase)).strip(" .!?\"'“”")
    words = phrase.split()
    while words and words[0].casefold() in _DETERMINERS:
        words = words[1:]
    plain = [word.strip(",.").casefold() for word in words]
    if not 0 < len(words) <= most or plain[0] in _IDIOMS or not roots_of(" ".join(plain)):
        return ""
    amounts = any(not isinstance(each.quantity, Weekday) for each in figures(" ".join(words)))
    return "" if amounts else " ".join(words)


def _is_plain(phrase: str) -> bool:
    """Tell whether short words name a kind: no number, no reply, no request, and no name of several words."""
    words = phrase.split()
    small = [word.casefold() for word in words]
    if any(word in NUMBER_WORDS or word in ORDINALS or word in _REPLIES for word in small):
        return False
    if small[0] in REQUEST_VERBS or small[0] in {"if", "when", "to", "for", "wenn", "how", "what", "i", "it"}:
        return False
    named = [word for word in words if word[:1].isupper()]
    days = any(isinstance(each.quantity, Weekday) for each in figures(phrase))
    return not days and len(named) < 2 and not any(letter.isdecimal() for letter in phrase)


def _kind_of_means(phrase: str) -> str:
    kinds = {MEANS[word][0] for word in map(str.casefold, phrase.split()) if word in MEANS}
    return kinds.pop() if len(kinds) == 1 else ""


def roots_of(phrase: str) -> frozenset[str]:
    """Return the roots of the words that say something."""
    words = (word.casefold() for word in _JOINED_WORD.findall(phrase))
    return frozenset(root_of(word) for word in words if word not in COMMON_WORDS and word not in _DETERMINERS)


# ── changes ───────────────────────────────────────────────────────────────────────────────────────────────────────────


class Lifting(NamedTuple):
    """What no longer has to hold."""

    scope: str
    """`limits`, `money`, `time`, `last` (the last constraint), `all`, or `roots` (what the words name)."""
    roots: frozenset[str] = frozenset()


class Revision(NamedTuple):
    """Another value for a limit that was set before."""

    text: str
    quantity: Quantity
    widens: bool
    """Whether it allows more than before: "400 euros would be fine too"."""


_DROPPED = re.compile(
    r"(?:^|[,.]\s*|\b(?:please|just|then|bitte|can|you|we)\s+)"
    r"(?:(?P<soft>forget|never mind|ignore|disregard|vergiss|vergessen sie|ignorier\w{0,3}(?: sie)?)"
    r"|drop|lift|remove|scrap|waive|cancel|skip|streich\w{0,2}(?: sie)?|lass(?:en)?(?: sie)?|hebe?n?(?: sie)?)"
    r"\s+(?:about\s+)?(?P<all>all\s+|alle\s+)?(?:(?:the|that|this|my|our|any|those|these|about|die|das|den|diese[ns]?|mein\w{0,2})\s+)?"
    r"(?P<x>[^.,!?]{2,60})",
    re.IGNORECASE,
)
_NO_LIMIT = re.compile(
    r"\b(?:no|without (?:a|any)|kein\w{0,2}|ohne)\s+(?:[^\W\d_]+\s+)?"
    r"(?:limits?|maximum|minimum|restrictions?|budget|grenze|obergrenze|einschränkung(?:en)?)\b",
    re.IGNORECASE,
)
_NO_MATTER = re.compile(
    r"\s(?:(?:do|does)(?: not|n['’]t)(?: really)? matter|no longer matters?"
    r"|(?:is|are) (?:now )?(?:irrelevant|unimportant|not important|no object|no issue)"
    r"|(?:ist|sind)(?: \w+){0,2} (?:egal|unwichtig|gleichgültig)|spiel(?:t|en)(?: \w+)? keine rolle)\b",
    re.IGNORECASE,
)
_NOT_NEEDED = re.compile(
    r"\b(?:need not|needn['’]t|(?:do|does)(?: not|n['’]t) (?:have|need) to|no longer (?:has|have|needs?) to"
    r"|(?:muss|müssen|soll|sollen|braucht|brauchen)(?: \w+)? (?:nicht|kein\w{0,2}))(?: mehr| unbedingt)?\s+(?:be\s+)?"
    r"(?P<x>[^.,!?]{2,60})",
    re.IGNORECASE,
)
_FINE = re.compile(
    r"(?:\s(?:is|are|would be|will be)|['’]s)(?: \w+){0,2}?"
    r" (?:fine|ok|okay|all right|alright|acceptable|allowed|possible|welcome)\b"
    r"|\s(?:ist|sind|wäre|wären)(?: \w+){0,2}? (?:in ordnung|okay|ok|erlaubt|möglich)\b"
    r"|\s(?:geht|gehen|passt|passen) (?:doch|jetzt|auch|nun)\b",
    re.IGNORECASE,
)
_SUPPOSING = re.compile(r"\b(?:if|whether|when|unless|wenn|falls|ob)\b", re.IGNORECASE)
_BREAK = re.compile(r"[.,!?;:](?!\d)")
_MAY = re.compile(
    r"\b(?:may|can)\s+(?:now\s+)?[^\W\d_]+\s+(?P<x>[^.,!?]{2,60}?)\s+(?:after all|now|again|too|as well)\b"
    r"|\b(?:darf|dürfen)\s+(?:doch|jetzt|auch|nun)\s+(?P<y>[^.,!?]{2,60})",
    re.IGNORECASE,
)
_REVISED = re.compile(
    r"\b(?:make (?:that|it)"
    r"|(?:raise|increase|lower|reduce|change|set|extend|erhöh\w{0,3}|senk\w{0,3}|änder\w{0,3}|setz\w{0,3})\b[^.,!?]{0,20}"
    r"\b(?:limit|budget|maximum|minimum|deadline|cap|ceiling|\w*grenze|frist)\b[^.,!?]{0,10}\b(?:to|auf))"
    r"\s+(?=[\w$€£¥₹])",
    re.IGNORECASE,
)
_MORE_IS_FINE = re.compile(
    r"\b(?:darf|dürfen|kann|können)\s+(?:auch|jetzt|doch|nun)\s+(?=[\d$€£¥₹]|[a-zäöü]+\s)", re.IGNORECASE
)
_LIMITS = word_set("change.limits")
_CONDITIONS = word_set("change.conditions")
_MONEY = word_set("change.money")
_TIME = word_set("change.time")
_PLAIN_WORD = re.compile(r"[^\W\d_]+")
# "That is fine" and "everything is fine" agree to what was said; they lift nothing.
_PRONOUNS = word_set("change.pronouns")


@lru_cache(maxsize=512)
def stated_change(sentence: str) -> Lifting | Revision | None:
    """Return what a sentence of the user changes about earlier constraints; None if nothing.

    Whether there was such a constraint is not known here.
    """
    if len(sentence) > LONGEST_DEMAND or is_question(sentence):
        return None
    if revised := _revision(sentence):
        return revised
    if match := _DROPPED.search(sentence):
        return _parse_lifting(match["x"], all_of_them=bool(match["all"]), soft=bool(match["soft"]))
    if _NO_LIMIT.search(sentence):
        return Lifting("limits")
    phrase = _named_before(sentence, _NO_MATTER) or _named_before(sentence, _FINE)
    if phrase is None and (match := _NOT_NEEDED.search(sentence) or _MAY.search(sentence)):
        phrase = next(each for each in match.groups() if each)
    words = [word.casefold() for word in _PLAIN_WORD.findall(phrase or "")]
    if phrase is None or not words or (len(words) == 1 and words[0] in _PRONOUNS):
        return None
    return _parse_lifting(phrase, all_of_them=False, soft=True)


def _named_before(sentence: str, pattern: re.Pattern[str]) -> str | None:
    """Return the words of the clause before those that a pattern finds."""
    match = pattern.search(sentence)
    if match is None or _SUPPOSING.search(sentence, 0, match.start()):
        return None
    return _BREAK.split(sentence[: match.start()])[-1]


def _revision(sentence: str) -> Revision | None:
    places = [(match.end(), False) for match in _REVISED.finditer(sentence)]
    places += [(match.end(), True) for match in _MORE_IS_FINE.finditer(sentence)]
    if phrase := _named_before(sentence, _FINE):
        start = sentence.index(phrase)
        places += [(start + each.start(), True) for each in re.finditer(r"(?<!\S)\S", phrase)]
    for place, widens in places:
        quantity = quantity_at(sentence, place, of_time=False) or quantity_at(sentence, place, of_time=True)
        if quantity is not None:
            return Revision(sentence, quantity[0], widens)
    return None


def _parse_lifting(phrase: str, *, all_of_them: bool, soft: bool) -> Lifting | None:
    """Return what is lifted by the words for it; *soft*: by any word, not only by one for limits and conditions."""
    words = [word.casefold() for word in _PLAIN_WORD.findall(phrase)]
    plural = any(word.removesuffix("s") in _CONDITIONS and word.endswith("s") for word in words)
    if all_of_them or plural:
        return Lifting("all") if plural or not _LIMITS.isdisjoint(words) else None
    if not _MONEY.isdisjoint(words):
        return Lifting("money")
    if not _LIMITS.isdisjoint(words):
        return Lifting("limits")
    if not _TIME.isdisjoint(words) and (soft or "deadline" in words or "frist" in words):
        return Lifting("time")
    if not _CONDITIONS.isdisjoint(words):
        return Lifting("last")
    roots = roots_of(phrase)
    return Lifting("roots", roots) if soft and roots else None
