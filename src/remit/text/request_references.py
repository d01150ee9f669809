"""Tells clauses that only point at what was said before: "if so", "book it"."""

import re

from remit.text import request_clauses as opening

_DUMMY = re.compile(
    r"\b(?:is|was|will|does|did|has|can|would) it\b|\bit (?:is|was|will|takes|costs|rains)\b"
    r"|\b(?:gibt|ist|wird|geht|regnet|war|kostet) (?:es|sie)\b",
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
    r"|that is true|it is true)",
    re.IGNORECASE,
)
BARE_NO = frozenset({"not", "no", "nein", "nicht"})
_DENIED = re.compile(r"\b(?:not|no|none|nein|nicht)\b|n't\b", re.IGNORECASE)


def is_so(clause: str) -> bool:
    """Return whether a clause only says that what was asked before is so, or is not."""
    return _SO.fullmatch(clause.strip(" .,;!?").replace("’", "'")) is not None


def denies(clause: str) -> bool:
    """Return whether a clause has a negation."""
    return _DENIED.search(clause.replace("’", "'")) is not None


def refers(text: str) -> bool:
    return opening.REFERS.search(_DUMMY.sub("", text)) is not None


AND = re.compile(r"^(?:and|und)\s+", re.IGNORECASE)
_FIRST_WORD = re.compile(r"(?:(?:please|bitte|could you|can you|kindly|there)\s+)*\S+\s+", re.IGNORECASE)


def resolved(text: str, before: str) -> str:
    """Return a text with the object of the part before in the place of the pronoun."""
    if before.rstrip().endswith("?"):
        return ""
    verb = _FIRST_WORD.match(before)
    thing = before[verb.end() :].strip(" .?!") if verb else ""
    return opening.REFERS.sub(lambda _: thing, text, count=1) if thing else ""
