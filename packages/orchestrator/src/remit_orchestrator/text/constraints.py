"""Keeps what a user demands in the user's own words, and points out what in a result goes against it.

Rules only tell which sentences demand something, or change what was demanded; what a sentence means is read by whoever
is given it: the agents, and the second reader of results, which has to quote what goes against it.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import cast

from msgspec.structs import replace

from remit.protocol.envelope import Answer, Json, Note, Response
from remit.words.components import in_words, name_words, short_value
from remit_orchestrator.text.conflicts.decided import DecidedConflict, decided_conflicts
from remit_orchestrator.text.lexicon import alternatives, pattern_within
from remit_orchestrator.text.sentences import is_question

_ANSWERED = " → "
# A longer sentence is a document; a note is shorter.
_LONGEST = 400
_DEEPEST = 8

_CUE = re.compile(
    rf"\b(?:{alternatives('summary.constraint')}|(?:by|before|until|bis) (?:{alternatives('summary.day')}))(?!\w)"
    rf"|{alternatives('constraint.alone')}"
)
_CHANGE = pattern_within("constraint.change")
# "No problem", "only one question": they say something about the talk.
_OF_THE_TALK = re.compile(alternatives("constraint.of_the_talk"))
# Questions that ask for something to be found or done: "do you have anything below 800 euros?"
_REQUESTING = re.compile(rf"\W*(?:{alternatives('constraint.requesting')})\b")
# What somebody else said, what the user does not know for sure, and what was so, is nobody's demand.
_REPORTED = pattern_within("demand.reported", "demand.past", "english_was")


def demand_in(sentence: str) -> int | None:
    """Return the position of the words by which a sentence demands something; None if it reports or asks."""
    folded = sentence.casefold()
    if _OF_THE_TALK.search(folded) or _REPORTED.search(folded):
        return None
    if is_question(folded) and not _REQUESTING.match(folded):
        return None
    cue = _CUE.search(folded)
    return None if cue is None else cue.start()


def changes_demand(sentence: str) -> bool:
    """Say whether a sentence may change or lift what was demanded: "forget the limit", "nuts are fine after all"."""
    return len(sentence) <= _LONGEST and not is_question(sentence) and _CHANGE.search(sentence.casefold()) is not None


def demands_of(notes: Iterable[Note]) -> tuple[str, ...]:
    """Return what the user demanded and decided, in the user's words and order; what an agent says is not among it."""
    texts = (
        each.text.rpartition(_ANSWERED)[2] if each.kind == "answer" else each.text
        for each in notes
        if not each.by and each.kind != "fact"
    )
    return tuple(dict.fromkeys(texts))


def with_breaches(
    answer: Answer, known: Iterable[Note], request: str, responses: Iterable[Response], clean: Callable[[str], str]
) -> Answer:
    """Return an answer that points out what in the results goes against what the user decided between them before."""
    decisions = [each.text for each in known if each.kind == "decision" and not each.by]
    decided = decided_conflicts((*decisions, request))
    found = [
        message
        for each in responses
        if each.ok
        for one in decided.values()
        for message in _decided_against(one, each.result, (), 0)
    ]
    return pointed_out(answer, found, clean)


def broken(quotes: Mapping[str, Sequence[str]]) -> list[str]:
    """Return a sentence for each passage that a second reader quotes as going against a demand."""
    return [
        f"You said “{demand}”, but this may not keep to it: “{quote}”."
        for demand, several in quotes.items()
        for quote in several
    ]


def pointed_out(answer: Answer, messages: Sequence[str], clean: Callable[[str], str]) -> Answer:
    """Return an answer with what goes against the user's words, each once."""
    if not messages or not isinstance(answer.result, str):
        return answer
    listed = "\n".join(f"- {clean(each)}" for each in dict.fromkeys(messages))
    text = f"{answer.result}\n\n## Not as you asked\n\n{listed}"
    known: list[Json] = answer.metadata.get("broken", [])
    return replace(answer, result=text, metadata=answer.metadata | {"broken": [*known, *dict.fromkeys(messages)]})


def _decided_against(decided: DecidedConflict, value: Json, name: tuple[str, ...], depth: int) -> Iterator[str]:
    """Yield what to say of each field with a value that the user decided against."""
    match value:
        case dict() if depth < _DEEPEST:
            for key, each in cast("dict[str, Json]", value).items():
                yield from _decided_against(decided, each, (*name, *name_words(key)), depth + 1)
        case list() if depth < _DEEPEST:
            for each in cast("list[Json]", value):
                yield from _decided_against(decided, each, name, depth + 1)
        case _:
            about = in_words("_".join(name)).casefold()
            if about == decided.about.casefold() and short_value(value) in decided.others:
                yield f"You decided that {about} is {decided.counts}, but this says {short_value(value)}."
