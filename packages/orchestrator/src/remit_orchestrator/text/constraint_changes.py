"""Reads which constraints a user changes or lifts: "forget the limit", "nuts are fine after all", "make that 120"."""

import re
from functools import lru_cache
from typing import NamedTuple

from remit_orchestrator.text.lexicon import word_set
from remit_orchestrator.text.quantities import Quantity
from remit_orchestrator.text.sentences import is_question
from remit_orchestrator.text.stated_constraints import LONGEST_DEMAND, roots_of
from remit_orchestrator.text.stated_limits import quantity_at


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
_WORD = re.compile(r"[^\W\d_]+")
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
    if found := _DROPPED.search(sentence):
        return _named(found["x"], all_of_them=bool(found["all"]), soft=bool(found["soft"]))
    if _NO_LIMIT.search(sentence):
        return Lifting("limits")
    said = _named_before(sentence, _NO_MATTER) or _named_before(sentence, _FINE)
    if said is None and (found := _NOT_NEEDED.search(sentence) or _MAY.search(sentence)):
        said = next(each for each in found.groups() if each)
    words = [word.casefold() for word in _WORD.findall(said or "")]
    if said is None or not words or (len(words) == 1 and words[0] in _PRONOUNS):
        return None
    return _named(said, all_of_them=False, soft=True)


def _named_before(sentence: str, pattern: re.Pattern[str]) -> str | None:
    """Return the words of the clause before those that a pattern finds."""
    found = pattern.search(sentence)
    if found is None or _SUPPOSING.search(sentence, 0, found.start()):
        return None
    return _BREAK.split(sentence[: found.start()])[-1]


def _revision(sentence: str) -> Revision | None:
    places = [(found.end(), False) for found in _REVISED.finditer(sentence)]
    places += [(found.end(), True) for found in _MORE_IS_FINE.finditer(sentence)]
    if said := _named_before(sentence, _FINE):
        start = sentence.index(said)
        places += [(start + each.start(), True) for each in re.finditer(r"(?<!\S)\S", said)]
    for place, widens in places:
        quantity = quantity_at(sentence, place, of_time=False) or quantity_at(sentence, place, of_time=True)
        if quantity is not None:
            return Revision(sentence, quantity[0], widens)
    return None


def _named(said: str, *, all_of_them: bool, soft: bool) -> Lifting | None:
    """Return what is lifted by the words for it; *soft*: by any word, not only by one for limits and conditions."""
    words = [word.casefold() for word in _WORD.findall(said)]
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
    roots = roots_of(said)
    return Lifting("roots", roots) if soft and roots else None
