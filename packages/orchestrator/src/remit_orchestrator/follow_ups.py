"""Reads a text with the conversation: a constraint that it states, a question that was asked before."""

import re
from collections.abc import Sequence
from typing import NamedTuple

from remit.ports.brief import Brief
from remit.protocol.card import Capability
from remit.protocol.envelope import Answer, Json, Note
from remit_orchestrator.conversation import Conversation, KnownAnswer, question_key
from remit_orchestrator.dialogue.gate import DetectedIntent, Label
from remit_orchestrator.text.constraints import changes_demand
from remit_orchestrator.text.lexicon import alternatives
from remit_orchestrator.text.sentences import sentences
from remit_orchestrator.text.summaries import notes_of, only_demands

# A longer text says more than its constraints.
_LONGEST_TEXT = 400


def noted(text: str, known: Sequence[Note]) -> str:
    """Return what to say to a text that only states or changes constraints; empty if it says anything else.

    *known* are the notes of the conversation: without a constraint there is none to change.
    """
    lines = list(sentences(text)) if len(text) <= _LONGEST_TEXT else []
    standing = any(each.kind == "constraint" and not each.by for each in known)
    if not lines or not all(_is_constraint(each, standing) for each in lines):
        return ""
    quoted = " ".join(lines).rstrip(".!")
    return f"Noted: “{quoted}”. It holds for what you ask me from now on."


def _is_constraint(sentence: str, standing: bool) -> bool:
    return standing if changes_demand(sentence) else only_demands(sentence)


_LOOK_AGAIN = re.compile(rf"\b(?:{alternatives('follow_up.look_again')})\b", re.IGNORECASE)


class RepeatableQuestion(NamedTuple):
    """A question that only reads something, and for how long its answer holds."""

    key: str
    within_ms: int
    codes: tuple[str, ...]
    text: str
    given: Json


def repeatable(
    brief: Brief,
    intents: Sequence[DetectedIntent],
    offered: Sequence[tuple[Label, Capability]],
    text: str,
    inputs: Sequence[Json],
    given: Json,
    cache_ms: int,
) -> RepeatableQuestion | None:
    """Return the question if its answer may be given again: nothing is changed by it, and it may be kept.

    A capability's own `cache_ms` goes before that of the orchestrator.
    """
    within = min(cache_ms if each.cache_ms is None else each.cache_ms for _, each in offered)
    if within <= 0 or brief.files or not all(label.read_only for label, _ in offered):
        return None
    codes = tuple(each.code for each in intents)
    # What the request itself demands is known when it is asked again.
    known = (*brief.known, *notes_of(text))
    notes = list(dict.fromkeys(note.text for note in known if note.kind in {"decision", "constraint"}))
    return RepeatableQuestion(question_key(codes, text, inputs, notes), within, codes, text, given)


def known_answer(question: RepeatableQuestion | None, talk: Conversation) -> Answer | None:
    """Return the answer to the same question of before; None if there is none, or the user wants a new look."""
    if question is None or talk.anew or _LOOK_AGAIN.search(question.text):
        return None
    known = talk.answered(question.key, question.within_ms)
    if known is None:
        return None
    since = f"As I found {_ago(talk.now_ms - known.at_ms)} (say “look again” to have it looked up anew):"
    metadata: dict[str, Json] = {"answered_from": "conversation", "known_since_ms": talk.now_ms - known.at_ms}
    return Answer(f"{since}\n\n{known.text}", confidence=known.confidence, metadata=metadata)


def remember_answer(question: RepeatableQuestion | None, answer: Answer, talk: Conversation) -> None:
    """Remember a whole answer without an open question to the user."""
    if question is None or answer.unfinished or answer.requires_followup or not isinstance(answer.result, str):
        return
    steps: dict[str, dict[str, Json]] = answer.metadata.get("steps", {})
    if any(each["state"] != "done" for each in steps.values()):
        return
    talk.learn_answer(
        KnownAnswer(
            question.key, answer.result, talk.now_ms, answer.confidence, question.codes, question.text, question.given
        )
    )


def _ago(time_ms: int) -> str:
    minutes = time_ms // 60_000
    if minutes < 1:
        return "a moment ago"
    if minutes < 60:
        return "a minute ago" if minutes == 1 else f"{minutes} minutes ago"
    hours = minutes // 60
    return "an hour ago" if hours == 1 else f"{hours} hours ago"
