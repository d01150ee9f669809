"""Reads a text that asks for nothing by itself with the conversation, and words what is said to it."""

import re
from collections.abc import Mapping, Sequence
from typing import cast

from remit.protocol.card import Capability
from remit.protocol.envelope import Json, Note
from remit_orchestrator.conversation import Conversation
from remit_orchestrator.text.classification import ClassifiedText
from remit_orchestrator.text.constraint_changes import stated_change
from remit_orchestrator.text.demands import demands_of
from remit_orchestrator.text.intent import Label, Unknown, decide
from remit_orchestrator.text.sentences import sentences
from remit_orchestrator.text.stated_constraints import Requirement, stated_constraints

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
    said: str, talk: Conversation, offered: Mapping[str, tuple[Label, Capability]]
) -> tuple[str, dict[str, Json]] | None:
    """Return the capability that was used last, and its input with what a follow-up changes; None if it is none.

    Only for what reads something, and only if the follow-up has a value for one of its fields.
    """
    found = _FOLLOW_UP.fullmatch(said)
    code = talk.last_code()
    if found is None or len(found["what"].split()) > _MOST_WORDS or code not in offered:
        return None
    label, capability = offered[code]
    if not label.read_only:
        return None
    changed = talk.sources(capability, found["what"], None).said
    return (code, {**talk.given_for(code), **changed}) if changed else None


def noted(said: str, known: Sequence[Note]) -> str:
    """Return what to say to a text that only states or changes constraints; empty if it says anything else.

    *known* are the notes of the conversation: without a constraint there is none to change.
    """
    lines = list(sentences(said)) if len(said) <= _LONGEST_TEXT else []
    standing = bool(demands_of(known).constraints)
    if not lines or not all(_is_constraint(each, standing) for each in lines):
        return ""
    quoted = " ".join(lines).rstrip(".!")
    return f"Noted: “{quoted}”. It holds for what you ask me from now on."


def _is_constraint(sentence: str, standing: bool) -> bool:
    if stated_change(sentence) is not None:
        return standing
    stated = stated_constraints(sentence)
    # "Insulin, please" may be a request: then it is asked about.
    return bool(stated) and not all(isinstance(each, Requirement) and not each.means for each in stated)


def as_input(given: Json, follow_up: dict[str, Json]) -> Json:
    """Return the input of a follow-up with what came beside its words."""
    return {**follow_up, **cast("dict[str, Json]", given)} if isinstance(given, dict) else follow_up


def purpose(confirm: str) -> str:
    """Return the first sentence of a question that confirms something, before another question about it."""
    asked, mark, _ = confirm.partition("?")
    return f"{asked}{mark} " if mark else ""


def nothing_offered(offered: Mapping[str, tuple[Label, Capability]]) -> str:
    """Return the answer for a capability that is no longer offered."""
    decision = decide(ClassifiedText(()), {code: label for code, (label, _) in offered.items()})
    assert isinstance(decision, Unknown)
    return decision.reply
