"""Decides what is done about what a reader proposes: do it, say it back, offer some, or say what can be done.

Every reader stands before the same gate, a model too. What changes something is never done before the user agrees.
"""

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Literal

from msgspec import Struct

from remit.protocol.envelope import Json
from remit.protocol.orchestration import THRESHOLDS, Thresholds
from remit_orchestrator.dialogue.commands import Command, NothingFits, starts

# Three options held the right one for 100 of 100 clear requests with an encoder for the language. Without one, six did
# for 38 of 40; they are shown in two steps, because nobody reads a longer list with care.
OPTIONS = 3
# A model may read at once only what a reader without a model ranks among so many.
SUPPORTED = 3

# A part of a plan is said back with the whole plan from this confidence: the user agrees to all of it. Of the parts of
# labelled requests three in four reach it with the right capability, and one foreign part in six.
PLANNED_FROM = 0.25

Action = Literal["do", "say_back", "offer", "cannot"]


class Label(Struct, frozen=True, kw_only=True):
    """The agent of a capability, and the words that describe it to users."""

    target: str
    description: str = ""
    read_only: bool = False
    confirm: bool = False
    """Whether a user has to agree each time, also if it only reads."""
    undo: str = ""
    """The capability that undoes it."""


class DetectedIntent(Struct, frozen=True):
    """A requested capability and its agent."""

    code: str
    target: str
    confidence: float = 1.0


class GateDecision(Struct, frozen=True, kw_only=True):
    """What is done about a text, and the capabilities that it may ask for, best first."""

    action: Action
    codes: tuple[str, ...] = ()
    confidence: float = 0.0
    """Of the first of them."""
    values: dict[str, dict[str, Json]] = {}
    """Fields that the reader found in the words, by capability."""


def decide(
    proposed: Sequence[Command],
    labels: Mapping[str, Label],
    *,
    support: Sequence[Command] | None = None,
    options: int = OPTIONS,
    thresholds: Thresholds = THRESHOLDS,
) -> GateDecision:
    """Return what to do about the commands that a reader proposes for a text; only capabilities in *labels* count.

    *support* is what a reader without a model proposes, if a model proposed the commands: without its support nothing
    is read at once, and it gives the other options. *options* is how many are offered, in steps of three.
    """
    ranked = [each for each in starts(proposed) if each.capability in labels]
    supported = [each.capability for each in starts(support or ()) if each.capability in labels]
    codes = _shown_codes([*(each.capability for each in ranked), *supported], labels)
    values: dict[str, dict[str, Json]] = {each.capability: dict(each.values) for each in ranked if each.values}
    sure = ranked[0].confidence if ranked else 0.0
    if ranked:
        best, label = ranked[0], labels[ranked[0].capability]
        backed = support is None or best.capability in supported[:SUPPORTED]
        if best.confidence >= thresholds.do and label.read_only and not label.confirm and backed:
            return GateDecision(action="do", codes=codes[:1], values=values, confidence=sure)
        if best.confidence >= thresholds.say_back and best.capability in codes:
            return GateDecision(action="say_back", codes=codes[:OPTIONS], values=values, confidence=sure)
    far = max((each.confidence for each in proposed if isinstance(each, NothingFits)), default=0.0)
    if far >= thresholds.far or not codes:
        return GateDecision(action="cannot", codes=codes[:OPTIONS], values=values, confidence=sure)
    return GateDecision(action="offer", codes=codes[:options], values=values, confidence=sure)


def _shown_codes(codes: Sequence[str], labels: Mapping[str, Label]) -> tuple[str, ...]:
    """Return capabilities once each, without those of the same description and those that have none for users."""
    by_words: dict[str, str] = {}
    for code in codes:
        words = words_for(code, labels)
        by_words.setdefault(words.casefold() or f"\0{code}", code)
    shown = [code for words, code in by_words.items() if not words.startswith("\0")]
    return (*codes[:1], *(each for each in shown if each not in codes[:1]))


# ── words for users ───────────────────────────────────────────────────────────────────────────────────────────────────

# How much of a description a question includes; the rest is for readers of cards.
_LONGEST_WORDS = 120
_SENTENCE_END = re.compile(r"(?<=[.!?。！？])(?:\s|$)|[。！？]")
_NAME = re.compile(r"[\w.@/-]+")


def words_for(code: str, labels: Mapping[str, Label]) -> str:
    """Return the first sentence of a capability's description, or nothing if it names codes or agents."""
    words = _SENTENCE_END.split(" ".join(labels[code].description.split()), maxsplit=1)[0].rstrip(" .")
    names_shown = {each.strip(".-@/") for each in _NAME.findall(words)}
    if any(_shows(name, names_shown) for each, label in labels.items() for name in (each, label.target)):
        return ""
    short = words[:_LONGEST_WORDS]
    return words if short == words else f"{short.rpartition(' ')[0] or short} …"


def _shows(name: str, names_shown: Collection[str]) -> bool:
    """Return whether a text contains a name; one that is a plain word, such as `taxes`, reveals nothing."""
    if name.isalpha():
        return name.isupper() and name in names_shown
    return name.casefold() in (each.casefold() for each in names_shown)
