"""Reads the constraints that a user states: limits, choices ("by sea", "only organic") and prohibitions ("no nuts")."""

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

from remit.words.numbers import NUMBER_WORDS, ORDINALS
from remit_orchestrator.text.demand_sentences import may_demand
from remit_orchestrator.text.figures import figures
from remit_orchestrator.text.lexicon import table, word_set
from remit_orchestrator.text.markers import NEGATIONS
from remit_orchestrator.text.quantities import Weekday
from remit_orchestrator.text.sentences import is_question
from remit_orchestrator.text.stated_limits import Limit, stated_limits
from remit_orchestrator.text.vocabulary import COMMON_WORDS, REQUEST_VERBS
from remit_orchestrator.text.word_relations import root_of


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
_SPLIT = re.compile(r"\s*(?:[,;:](?!\d)|[.!?]+$|\s(?:but|aber|sondern|however)\s|\s–\s|\s-\s)\s*", re.IGNORECASE)
_JOINED = re.compile(r"\s(?:and|und)\s(?=(?:not|no|nothing|without|only|nicht|kein\w{0,2}|nichts|ohne|nur|for|at)\b)")
_LEAD = re.compile(
    r"(?:(?:please|bitte|but|and|also|so|then|aber|und|dann|yes|ja|however|preferably|if possible|absolutely|definitely"
    r"|oh|ok|okay|now|jetzt)\b\s*,?\s*|(?:no|nein)\s*,\s*)(?=\S)",
    re.IGNORECASE,
)
_POLITE = re.compile(r"\W*\b(?:please|bitte|thanks|thank you|danke)\W*$", re.IGNORECASE)
_WORD = re.compile(r"[^\W_]+(?:[-'’][^\W_]+)*")
_LONGEST = 5
# "No problem", "not now" and "no more" forbid nothing.
_IDIOMS = word_set("constraint.idioms")
_STOPS = re.compile(
    r"\s(?:because|since|if|when|that|which|who|as|so|weil|wenn|da|dass|denn|falls|is|are|ist|sind|any more|anymore"
    r"|after all|at all|for (?:me|us|him|her|them|this|that)|für (?:mich|uns|ihn|sie))\b.*",
    re.IGNORECASE,
)
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
_DO_NOT = re.compile(
    r"(?:please |bitte )?(?:do not|don['’]t|never|avoid|verwende(?:n sie)? kein\w{0,2}|nimm kein\w{0,2})\s+(?P<x>.+)",
    re.IGNORECASE,
)
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
    found = False
    for clause in _clauses(sentence):
        if next(stated_limits(clause), None) is not None:
            # "Without paying more than 50 euros" is a limit alone.
            found = True
            continue
        forbidden = _forbidden(clause)
        chosen = _chosen(clause) if forbidden is None else None
        if forbidden is not None:
            said, how = forbidden
            yield Prohibition(sentence, said, roots_of(said), _kind_of_means(said) if how else "")
        elif chosen is not None:
            yield Requirement(sentence, chosen, roots_of(chosen), _kind_of_means(chosen))
        found = found or forbidden is not None or chosen is not None
    pleased = None if found else _PLEASED.fullmatch(sentence.strip())
    if pleased is not None and _asks_for_thing(pleased["x"] or pleased["y"] or ""):
        return
    if pleased is not None and (said := _kind(pleased["x"] or pleased["y"] or "", most=3)) and _is_plain(said):
        yield Requirement(sentence, said, roots_of(said), _kind_of_means(said))


def _asks_for_thing(said: str) -> bool:
    """Tell whether polite words ask for something to be brought or done: "a coffee, please", "Termin absagen bitte"."""
    first, *_, last = [*said.split(), ""] if len(said.split()) == 1 else said.split() or ["", ""]
    return first.casefold() in _DETERMINERS or (last.endswith(("en", "ern", "eln")) and last[:1].islower())


def _clauses(sentence: str) -> Iterator[str]:
    for part in _SPLIT.split(sentence):
        for clause in _JOINED.split(part):
            while lead := _LEAD.match(clause):
                clause = clause[lead.end() :]
            if clause := _POLITE.sub("", clause).strip(" .!"):
                yield clause


def _forbidden(clause: str) -> tuple[str, bool] | None:
    """Return the words for what a clause forbids, and whether it is a way to do something."""
    means = next((each for found in BY.finditer(clause) if (each := found[1] or found[2]).casefold() in MEANS), "")
    if means and not NEGATIONS.isdisjoint(word.casefold().replace("’", "'") for word in _WORD.findall(clause)):
        return means, True
    if found := _EXCEPT.fullmatch(clause):
        return _as_thing(found["x"])
    if found := _NOT_BY.search(clause):
        said = _kind(found["x"])
        return (said, found["how"].casefold() in {"by", "via", "per", "mit"}) if said else None
    for pattern in (_NO, _NOTHING):
        if found := pattern.fullmatch(clause):
            return _as_thing(found["x"])
    if (found := _DO_NOT.match(clause)) and found.end() == len(clause):
        verb, _, rest = found["x"].partition(" ")
        if _AVOID.match(clause):
            return _as_thing(found["x"])
        return None if verb.casefold() in _NO_PROHIBITION else _as_thing(rest)
    for pattern in (_ALLERGIC, _NOT_WANTED, _MUST_NOT, _UNABLE, _WITHOUT):
        if found := pattern.search(clause):
            said = next(each for each in found.groups() if each)
            return None if said.split()[0].casefold().endswith("ing") else _as_thing(said)
    return None


def _as_thing(said: str) -> tuple[str, bool] | None:
    kind = _kind(said)
    return (kind, False) if kind else None


def _chosen(clause: str) -> str | None:
    """Return the words for what something has to be by a clause."""
    if (found := _BY_ALONE.fullmatch(clause)) and found[1].casefold() not in _NO_MEANS:
        return found[1]
    for found in BY.finditer(clause):
        if (means := found[1] or found[2]).casefold() in MEANS:
            return means
    for pattern in (_ONLY, _ONLY_BEHIND):
        if found := pattern.fullmatch(clause):
            said = _kind(found["x"])
            return said if said and _is_plain(said) else None
    for pattern in (_ONLY_WANTED, _MUST_BE):
        if found := pattern.search(clause):
            said = _kind(next(each for each in found.groups() if each))
            first = said.split()[0].casefold() if said else ""
            return None if not said or first in _NO_KIND or first.endswith("ed") or first == "not" else said
    return None


def _kind(said: str, most: int = _LONGEST) -> str:
    """Return what is chosen or forbidden, without article and ending; empty if the words name no such thing."""
    said = _POLITE.sub("", _STOPS.sub("", said)).strip(" .!?\"'“”")
    words = said.split()
    while words and words[0].casefold() in _DETERMINERS:
        words = words[1:]
    plain = [word.strip(",.").casefold() for word in words]
    if not 0 < len(words) <= most or plain[0] in _IDIOMS or not roots_of(" ".join(plain)):
        return ""
    amounts = any(not isinstance(each.quantity, Weekday) for each in figures(" ".join(words)))
    return "" if amounts else " ".join(words)


def _is_plain(said: str) -> bool:
    """Tell whether short words name a kind: no number, no reply, no request, and no name of several words."""
    words = said.split()
    small = [word.casefold() for word in words]
    if any(word in NUMBER_WORDS or word in ORDINALS or word in _REPLIES for word in small):
        return False
    if small[0] in REQUEST_VERBS or small[0] in {"if", "when", "to", "for", "wenn", "how", "what", "i", "it"}:
        return False
    named = [word for word in words if word[:1].isupper()]
    days = any(isinstance(each.quantity, Weekday) for each in figures(said))
    return not days and len(named) < 2 and not any(letter.isdecimal() for letter in said)


def _kind_of_means(said: str) -> str:
    kinds = {MEANS[word][0] for word in map(str.casefold, said.split()) if word in MEANS}
    return kinds.pop() if len(kinds) == 1 else ""


def roots_of(said: str) -> frozenset[str]:
    """Return the roots of the words that say something."""
    words = (word.casefold() for word in _WORD.findall(said))
    return frozenset(root_of(word) for word in words if word not in COMMON_WORDS and word not in _DETERMINERS)
