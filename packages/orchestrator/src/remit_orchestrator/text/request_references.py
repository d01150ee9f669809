"""Tells clauses that only point at what was said before: "if so", "book it"."""

import re

from remit.words.numbers import NUMBER_WORDS
from remit_orchestrator.text import request_clauses as opening

_DUMMY = re.compile(
    r"\b(?:is|was|will|does|did|has|can|would) it\b|\bit (?:is|was|will|takes|costs|rains)\b"
    r"|\b(?:gibt|ist|wird|geht|regnet|war|kostet) (?:es|sie)\b"
    # "Habt ihr", and "Sie" as a form of address.
    r"|\b(?:\w+t|ob|wann|wo|wie|dass|wenn) ihr\b|(?<=\s)(?-i:Sie|Ihnen)\b",
    re.IGNORECASE,
)
HAVE_DONE = re.compile(r" (?:hast|haben|habt|worden ist|ist)$", re.IGNORECASE)
WHETHER_CLAUSE = re.compile(r"\b(?:if|whether|ob)\b (.+)", re.IGNORECASE)
SPEAKS_OF_EARLIER = re.compile(
    r"(?:it|they|that|this|there|he|she|not|none|nothing|nobody|no|any|we|you|one|so|yes|es|das|er|sie|dies|ja"
    r"|nein|nicht|kein\w*"
    r"|niemand|nichts|man|welche)\b|\S+$|(?:more|less|fewer|above|below|over|under|at|mehr|weniger|über|unter)\b",
    re.IGNORECASE,
)
_SO = re.compile(
    r"(?:so|yes|not|no|it is|it's|it is not|it isn't|it is so|it does|it doesn't|it does not|they are"
    r"|they are not|they aren't|there is"
    r"|there are|there is one|there is any|there are any|there isn't|there aren't|there is none|there are none"
    r"|there is not|he is|she is"
    r"|that is the case|that's the case|that is so|that is not the case|that's not the case|this is the case|ja"
    r"|nein|nicht"
    r"|das so ist|dem so ist|das nicht so ist|das der fall ist|das nicht der fall ist|es so ist|es stimmt"
    r"|that is true|it is true|doch)",
    re.IGNORECASE,
)
_BARE_SO = re.compile(r"(?:so|not|yes|no|ja|nein|nicht|doch)\b,? +", re.IGNORECASE)
BARE_NO = frozenset({"not", "no", "nein", "nicht"})
_DENIED = re.compile(r"\b(?:not|no|none|nein|nicht)\b|n't\b", re.IGNORECASE)


def is_so(clause: str) -> bool:
    """Return whether a clause only says that what was asked before is so, or is not."""
    return _SO.fullmatch(clause.strip(" .,;!?").replace("’", "'")) is not None


def bare_so(clause: str) -> int:
    """Return where the request begins in "not put me on the list": after the word that is the whole condition."""
    found = _BARE_SO.match(clause)
    return found.end() if found and opening.opens_request(clause[found.end() :], first=False) else 0


def denies(clause: str) -> bool:
    """Return whether a clause has a negation."""
    return _DENIED.search(clause.replace("’", "'")) is not None


def refers(text: str) -> bool:
    return opening.REFERS.search(_DUMMY.sub("", text)) is not None


# Something is left out after a number: "take two", "welche bestellen", "buy three of them".
_COUNTS = re.compile(
    rf"\b(?:\d+|{'|'.join(NUMBER_WORDS)}|some|any|another|more|welche|einige|mehr)"
    r"(?=[.,;!?]*$| of them\b| davon\b| dazu\b| [a-zäöü]+en[.,;!?]*$)",
    re.IGNORECASE,
)


def leaves_out(text: str) -> bool:
    """Return whether a request counts something that only the part before names."""
    return _COUNTS.search(text) is not None


AND = re.compile(r"^(?:and|und)\s+", re.IGNORECASE)
_FIRST_WORD = re.compile(r"(?:(?:please|bitte|could you|can you|kindly|there)\s+)*\S+\s+", re.IGNORECASE)


def resolved(text: str, before: str, *, statement: bool = False) -> str:
    """Return a text with the object of the part before in the place of the pronoun; of a *statement*, its subject."""
    whether = WHETHER_CLAUSE.search(before)
    if whether or statement or before.rstrip().endswith("?"):
        clause = whether[1] if whether else before
        thing = _PREDICATE.split(_ASKED_WORDS.sub("", clause), maxsplit=1)[0].strip(" .?!")
    else:
        verb = _FIRST_WORD.match(before)
        thing = before[verb.end() :].strip(" .?!") if verb else ""
    if not thing or opening.REFERS.fullmatch(thing) or thing.casefold() == "one":
        return ""
    if leaves_out(text):
        return _COUNTS.sub(lambda found: f"{found[0]} {thing}", _OF_THEM.sub("", text).strip(), count=1)
    return opening.REFERS.sub(lambda _: thing, text, count=1) if opening.REFERS.search(text) else ""


# What comes before the subject of a question: "are there any", "do you have", "gibt es noch".
_ASKED_WORDS = re.compile(
    r"^(?:(?:is|are|was|were|do|does|did|has|have|can|could|will|would|ist|sind|hat|habt|haben|gibt|kann|können|könnt"
    r"|there|you|we|i|es|sie|ihr|wir|got|have|get|any|noch|please|bitte)\s+)+",
    re.IGNORECASE,
)
# What is asked about the subject of a clause begins here.
_PREDICATE = re.compile(
    r"\s(?:is|are|was|were|has|have|had|will|can|costs?|ist|sind|war|hat|haben|wird|kann|not|nicht|noch|schon|on|in|at"
    r"|for|from|to|by|am|im|an|auf|für|bei|von|zu|left|free|frei|da)\b",
    re.IGNORECASE,
)
_OF_THEM = re.compile(r"(?:\bof them|\bdavon|\bdazu)\b", re.IGNORECASE)
