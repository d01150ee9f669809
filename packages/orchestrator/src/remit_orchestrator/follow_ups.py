"""Reads a text that asks for nothing new with the conversation: a follow-up, a constraint, a question asked before."""

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple, cast

from remit.ports.brief import Brief
from remit.protocol.card import Capability
from remit.protocol.envelope import Answer, Json, Note
from remit_orchestrator.conversation import Conversation, KnownAnswer, question_key
from remit_orchestrator.text.classification import ClassifiedText
from remit_orchestrator.text.constraints import changes_demand
from remit_orchestrator.text.intent import DetectedIntent, Label, Unknown, decide
from remit_orchestrator.text.lexicon import alternatives
from remit_orchestrator.text.sentences import sentences
from remit_orchestrator.text.summaries import notes_of, only_demands

# "And a night lesson?", "what about Tuesday?": it names what is different from before, and has no verb of its own.
_FOLLOW_UP = re.compile(
    r"\W*(?:and|or|und|oder|(?:and |und )?(?:what about|how about|was ist mit|wie (?:ist|wäre|steht) es mit))\s+"
    r"(?:(?:for|on|in|into|to|by|with|at|from|für|am|in|im|nach|mit|per|um|von)\s+)?(?P<what>[^?.!,;]{1,60})\?+\s*",
    re.IGNORECASE,
)
_MOST_WORDS = 5
# A longer text says more than its constraints.
_LONGEST_TEXT = 400


def followed_up(
    text: str, talk: Conversation, offered: Mapping[str, tuple[Label, Capability]]
) -> tuple[str, dict[str, Json]] | None:
    """Return the capability that was used last, and its input with what a follow-up changes; None if it is none.

    Only for what reads something, and only if the follow-up has a value for one of its fields.
    """
    match = _FOLLOW_UP.fullmatch(text)
    code = talk.last_code()
    if match is None or len(match["what"].split()) > _MOST_WORDS or code not in offered:
        return None
    label, capability = offered[code]
    if not label.read_only:
        return None
    changed = talk.sources(capability, match["what"], None).stated
    return (code, {**talk.given_for(code), **changed}) if changed else None


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


def as_input(given: Json, follow_up: dict[str, Json]) -> Json:
    """Return the input of a follow-up with what came beside its words."""
    return {**follow_up, **cast("dict[str, Json]", given)} if isinstance(given, dict) else follow_up


def purpose(confirm: str) -> str:
    """Return the first sentence of a question that confirms something, before another question about it."""
    question, mark, _ = confirm.partition("?")
    return f"{question}{mark} " if mark else ""


def nothing_offered(offered: Mapping[str, tuple[Label, Capability]]) -> str:
    """Return the answer for a capability that is no longer offered."""
    decision = decide(ClassifiedText(()), {code: label for code, (label, _) in offered.items()})
    assert isinstance(decision, Unknown)
    return decision.reply


_LOOK_AGAIN = re.compile(rf"\b(?:{alternatives('follow_up.look_again')})\b", re.IGNORECASE)
_ONLY_LOOK_AGAIN = re.compile(
    r"\W*(?:please |bitte )?(?:(?:look|check|try|ask|do|see|prüfe?|schau|sieh|frag) )?(?:it |that |this |es |das )?"
    r"(?:nach )?(?:again|once more|anew|re-?check|refresh|update|nochmals?|noch ?mal|noch einmal|erneut)(?: nach)?"
    r"(?:,? (?:please|bitte))?\W*",
    re.IGNORECASE,
)


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


def asked_to_look_again(text: str, talk: Conversation) -> KnownAnswer | None:
    """Return the last question if the user wants nothing but a new look at it."""
    return talk.last_answer() if len(text) < 100 and _ONLY_LOOK_AGAIN.fullmatch(text) else None


def _ago(time_ms: int) -> str:
    minutes = time_ms // 60_000
    if minutes < 1:
        return "a moment ago"
    if minutes < 60:
        return "a minute ago" if minutes == 1 else f"{minutes} minutes ago"
    hours = minutes // 60
    return "an hour ago" if hours == 1 else f"{hours} hours ago"
