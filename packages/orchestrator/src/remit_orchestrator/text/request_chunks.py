"""Splits a sentence into clauses, and takes off the words that say when and under which condition."""

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from remit_orchestrator.text import request_clauses as opening


class Chunk(NamedTuple):
    """A piece of a sentence, and what stands before it: a comma, `and`, a semicolon, the start, or nothing."""

    joint: str
    text: str
    mark: str = " "
    """The joint as it was written: ", ", " oder "."""


_QUOTED = re.compile(r"“[^”]{1,500}”|„[^“”]{1,500}[“”]|\"[^\"]{1,500}\"|«[^»]{1,500}»|`[^`]{1,500}`")
_WORD = re.compile(r"[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff]|[^\W_]+")
_JOINT = re.compile(
    r"(?P<comma>,)?\s+(?P<and>(?:and|und|but|aber|or|oder|plus|sowie|et|y),?\s+)"
    r"|(?P<only>,)\s+|\s+[–—]\s+|(?<=\w)(?P<colon>:)\s+"
    # Before these a new clause begins, with or without a comma.
    r"|\s+(?=(?:(?:but\s+)?only\s+)?(?:if|unless|in case|provided|providing|assuming|as long as"
    r"|once(?! (?:more|again|a|an|per|every|or)\b)|as soon as|when|falls|wenn|sofern|sobald"
    r"|except if)\b)|\s+(?=(?:then|before|after|otherwise)\s)",
    re.IGNORECASE,
)


def chunks(sentence: str) -> Iterator[Chunk]:
    """Split a sentence where a clause may begin; words that only open one stay with it."""
    lead: Chunk | None = None
    for chunk in _pieces(sentence):
        joined = chunk if lead is None else lead._replace(text=f"{lead.text.strip()} {chunk.text}")
        marks = marks_of(joined.text, first=True)
        # "Es sei denn, er kommt": the comma stands before the clause.
        opens = marks.opener in {"", "if", "unless"} and marks.text.strip(" ,").casefold() in _ONLY_OPENS
        lead = joined if opens else None
        if lead is None:
            yield joined
    if lead is not None:
        yield lead


_ONLY_OPENS = frozenset({"", "only", "but only", "nur", "erst"})


def _pieces(sentence: str) -> Iterator[Chunk]:
    """Split a sentence at each joint; what is quoted stays whole."""
    masked = _QUOTED.sub(lambda found: "\ue001" * len(found[0]), sentence)
    start, joint, mark = 0, "start", " "
    for found in _JOINT.finditer(masked):
        before = sentence[start : found.start()]
        # A colon after a request opens what it is about, "tell them: call back"; after a statement, a request.
        if found["colon"] and (opening.opens_request(before) or not _asks(sentence[found.end() :])):
            continue
        if before:
            yield Chunk(joint, before, mark)
            joint = ""
        comma = found["comma"] or found["only"] or found["colon"]
        joint = "and" if found["and"] else "comma" if comma else joint
        start, mark = found.end(), found[0]
    if sentence[start:].strip():
        yield Chunk(joint, sentence[start:], mark)


def _asks(text: str) -> bool:
    """Return whether the first clause of a text is a request."""
    return opening.opens_request(marks_of(text.split(",", 1)[0], first=False).text)


def count_words(text: str) -> int:
    return len(_WORD.findall(text))


class Marks(NamedTuple):
    """What the opening words of a clause say about it."""

    text: str
    order: str = ""
    """`then`, `last`, `before`, or nothing."""
    opener: str = ""
    """`if`, `unless`, `once`, `after`, `before`, `otherwise`, `so`, or nothing."""
    said: str = ""
    """The opening words of a condition."""
    anyway: bool = False
    also: bool = False


_ORDERS = (("then", opening.THEN), ("last", opening.LAST), ("before", opening.BEFORE), ("first", opening.FIRST))
_OPENERS = (
    ("after", opening.AFTER_DOING),
    ("before", opening.BEFORE_DOING),
    ("unless", opening.UNLESS),
    ("if", opening.IF),
    ("if", opening.SHOULD),
    ("once", opening.ONCE),
    ("otherwise", opening.OTHERWISE),
    ("so", opening.IN_THAT_CASE),
    ("if", opening.GIVEN),
)


def _first(patterns: Sequence[tuple[str, re.Pattern[str]]], text: str) -> tuple[str, re.Match[str]] | None:
    """Return the name and match of the first pattern with which a text begins."""
    for name, pattern in patterns:
        if found := pattern.match(text):
            return name, found
    return None


def marks_of(text: str, *, first: bool) -> Marks:
    """Take the words that say when, in which order and under which condition off the front of a clause."""
    read = Marks(text.strip())
    while True:
        said = read.text
        anyway = opening.ANYWAY.match(said)
        if anyway:
            read = read._replace(text=said[anyway.end() :], anyway=True)
            continue
        order = _first(_ORDERS, said)
        if order is not None and not read.order:
            name, found = order
            # "The first one": an order only if something to do follows.
            read = read._replace(text=said[found.end() :], order="before" if name == "first" and not first else name)
            continue
        if (hence := opening.HENCE.match(said)) and opening.opens_request(said[hence.end() :], first=False):
            read = read._replace(text=said[hence.end() :])
            continue
        if (also := opening.ALSO.match(said)) and not read.also:
            read = read._replace(text=said[also.end() :], also=True)
            continue
        opener = _first(_OPENERS, said)
        if opener is not None:
            name, found = opener
            read = read._replace(text=said[found.end() :], opener=name, said=found[0].strip(" ,"))
        return read
