"""From classification scores to a decision: route a request, or ask the user."""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Literal

from msgspec import Struct

from remit.protocol.card import Confirmation
from remit.protocol.envelope import Json
from remit.protocol.orchestration import THRESHOLDS, Thresholds
from remit_orchestrator.text.classification import Clarity, ClassifiedText, ScoredCapability
from remit_orchestrator.text.request_part import Condition

# The probability that a text is clear, needed to change something. With 0.5, one text of the labelled set used for
# development changed something that nobody had asked for.
CLEAR_TO_CHANGE = 0.6
# To read, a text only has to be more likely clear than foreign, and not almost certainly vague.
CLEAR_TO_READ = 0.4
VAGUE_TO_READ = 0.7
# Needed to say a request back to the user, who then only has to say yes.
CLEAR_TO_CONFIRM = 0.3
# How much more likely the best capability has to be than the next.
LEAD = 0.2
# The same, to say it back by a classifier that has everything confirmed.
LEAD_TO_CONFIRM = 0.1
# The user is told that nothing matches if a text is this many times more likely foreign than clear, and not vague.
FOREIGN = 2.3


class Label(Struct, frozen=True, kw_only=True):
    """The agent of a capability, and the words that describe it to users."""

    target: str
    description: str = ""
    ask: str = ""
    """The question that confirms it; built from the description if empty."""
    read_only: bool = False
    confirm: Confirmation = "unsure"
    """`never` also lets it be tried at the lower confidence of capabilities that only read."""


class DetectedIntent(Struct, frozen=True):
    """A requested capability and its agent."""

    code: str
    target: str
    confidence: float


class Option(Struct, frozen=True):
    """An intent, in words for the user."""

    intent: DetectedIntent
    words: str


class Routed(Struct, frozen=True, tag=True):
    """The request is clear."""

    primary: DetectedIntent


class Choose(Struct, frozen=True, tag=True):
    """The request is one of these; the user chooses."""

    options: tuple[Option, ...]
    question: str


class Unclear(Struct, frozen=True, tag=True):
    """The request may be this one; the user confirms."""

    question: str
    option: DetectedIntent


class Confirm(Struct, frozen=True, tag=True):
    """The intents are known, but one changes something: the user has to agree first."""

    intents: tuple[DetectedIntent, ...]
    question: str


class Vague(Struct, frozen=True, tag=True):
    """The text says too little; the user is asked what they want."""

    question: str


class Unknown(Struct, frozen=True, tag=True):
    """No capability matches; the user is told so, and what can be done."""

    reply: str


class PlannedPart(Struct, frozen=True, kw_only=True):
    """A part of a request, and what is to be done about it."""

    text: str
    how: Literal["act", "confirm", "ask", "cannot", "left"]
    """`left`: the user does not want it after all."""
    intent: DetectedIntent | None = None
    """What it asks for; None if that is not known, or nothing serves it."""
    options: tuple[Option, ...] = ()
    """What it may ask for, if the user has to choose."""
    after: tuple[int, ...] = ()
    """The places of the parts that come before it."""
    condition: Condition | None = None
    refers: bool = False
    """Whether it builds on the part before ("book it")."""
    checks: bool = False
    """Whether it finds out what a condition asks."""
    named: bool = False
    """Whether the text only names the capability, and the words for it are somewhere in the request."""
    values: dict[str, Json] = {}
    """Fields that a model found in the words, checked to stand there."""


class Planned(Struct, frozen=True, tag=True):
    """The request has several parts, or a condition."""

    parts: tuple[PlannedPart, ...]
    context: str = ""
    """What the user said besides, which holds for all parts."""
    by: Literal["rules", "model"] = "rules"
    """Who made the plan."""


Decision = Routed | Choose | Unclear | Confirm | Vague | Unknown | Planned


class Phrases(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Questions and messages to users; the placeholders in braces are replaced by descriptions."""

    which: str = "Which of these do you want: {options}?"
    pick: str = "Which of these do you want?"
    """Used if the options are listed below it."""
    whether: str = "Do you want this: {option}? If not, please say in other words what you want."
    confirm: str = "{options}? Please say yes or no."
    """Says back what is about to be done."""
    open: str = "What can I do for you?"
    """Asked if a text says too little; the available capabilities are listed below it."""
    again: str = "Please say in other words what you want."
    nothing: str = "I cannot do that."
    offer: str = "What I can do:"
    """Used if the available capabilities are listed below it."""
    tells: str = "I can tell you:"
    does: str = "I can do for you:"
    """The headings of capabilities that only read and of those that change something, if there are both."""
    last: str = " or "
    """The word before the last of several options."""


PHRASES = Phrases()

MOST_OPTIONS = 3
# How much of a description a question includes; the rest is for readers of cards.
_LONGEST_WORDS = 120
_SENTENCE_END = re.compile(r"(?<=[.!?。！？])(?:\s|$)|[。！？]")
_NAME = re.compile(r"[\w.@/-]+")


def decide(
    heard: ClassifiedText, labels: Mapping[str, Label], thresholds: Thresholds = THRESHOLDS, phrases: Phrases = PHRASES
) -> Decision:
    """Return where to route a text as a whole, or what to ask its user; only capabilities in *labels* are considered.

    `remit_orchestrator.text.planning.plan` decides about the parts of a text.
    """
    intents = intents_of(heard.whole, labels)
    how = trust(intents, heard.clarity, labels, thresholds)
    if how == "act":
        return Routed(intents[0])
    if how == "confirm":
        words = words_for(intents[0].code, labels)
        question = phrases.confirm.replace("{options}", words) if words else _question(intents[0], labels, phrases)
        return Confirm((intents[0],), question)
    if heard.clarity is not None:
        return _unsure(intents, heard.clarity, labels, thresholds, phrases)
    if not intents or intents[0].confidence < thresholds.nothing:
        return Unknown(reply_of(intents, labels, phrases))
    options = options_of(intents, labels, thresholds.close)
    if len(options) > 1 and sum(each.intent.confidence for each in options) >= thresholds.offer:
        return _choose(options, phrases)
    return Unclear(_question(intents[0], labels, phrases), intents[0])


Trust = Literal["act", "confirm", "ask"]


def trust(
    intents: Sequence[DetectedIntent],
    clarity: Clarity | None,
    labels: Mapping[str, Label],
    thresholds: Thresholds,
    least: float = 0.0,
) -> Trust:
    """Return what to do about the most likely intent: the cost of a mistake decides how certain it has to be."""
    if not intents:
        return "ask"
    best = intents[0]
    confirm = labels[best.code].confirm
    at_once: Trust = "confirm" if confirm == "always" else "act"
    if clarity is None:
        return at_once if best.confidence >= max(thresholds.act, least) else "ask"
    second = intents[1].confidence if len(intents) > 1 else 0.0
    if best.confidence - second < (LEAD if clarity.certain else LEAD_TO_CONFIRM):
        return "ask"
    if confirm == "never":
        in_scope = clarity.clear >= CLEAR_TO_READ * (clarity.clear + clarity.foreign)
        enough = best.confidence >= max(thresholds.read, least) and in_scope and clarity.vague < VAGUE_TO_READ
        enough = enough and best.confidence - second >= LEAD
    else:
        enough = (
            clarity.certain and best.confidence >= max(thresholds.change, least) and clarity.clear >= CLEAR_TO_CHANGE
        )
    if enough:
        return at_once
    # A classifier that has everything confirmed does no harm by saying back what it is less sure of.
    sure = thresholds.read if clarity.certain else thresholds.nothing
    likely = best.confidence >= max(sure, least) and clarity.clear >= CLEAR_TO_CONFIRM
    return "confirm" if likely and clarity.clear > clarity.vague else "ask"


def _unsure(
    intents: Sequence[DetectedIntent],
    clarity: Clarity,
    labels: Mapping[str, Label],
    thresholds: Thresholds,
    phrases: Phrases,
) -> Decision:
    """Return the question about an unclear text, or the reply that nothing matches a foreign one."""
    if clarity.foreign > FOREIGN * clarity.clear and clarity.foreign >= clarity.vague:
        return Unknown(reply_of(intents, labels, phrases))
    # The confidence of an unclear text says little, so all of the most likely capabilities are offered.
    options = options_of(intents, labels, 0.0) if intents and intents[0].confidence >= thresholds.nothing else ()
    return _choose(options, phrases) if len(options) > 1 else Vague(_open(intents, labels, phrases))


def _choose(options: tuple[Option, ...], phrases: Phrases) -> Choose:
    listed = _listed([f"“{each.words}”" for each in options], phrases.last)
    return Choose(options, phrases.which.replace("{options}", listed))


def continued(
    alone: Decision, together: Decision, offered: Collection[str], *, refused: bool = False
) -> Decision | None:
    """Choose between a reply to a question by itself and the reply with the words that led to the question.

    *offered* is what the question was about; *refused*: it was said back before, and the user said no. None: the reply
    asks for something else, or for nothing that is known.
    """
    by_itself = _codes(alone)
    if by_itself and (refused or (offered and not by_itself <= set(offered))):
        return None
    if _codes(together) and (offered or not by_itself):
        return together
    return alone if by_itself else None


def _codes(decision: Decision) -> set[str]:
    """Return what would be done, perhaps after a yes."""
    match decision:
        case Routed(primary=primary):
            return {primary.code}
        case Confirm(intents=intents):
            return {each.code for each in intents}
        case Planned(parts=parts):
            return {each.intent.code for each in parts if each.intent is not None}
        case Choose() | Unclear() | Vague() | Unknown():
            return set()


def intents_of(scored: Iterable[ScoredCapability], labels: Mapping[str, Label]) -> tuple[DetectedIntent, ...]:
    """Return the possible intents, best first; equal descriptions are one intent, routed to the most likely agent."""
    found: dict[str, DetectedIntent] = {}
    for code, confidence in sorted(scored, key=lambda each: -each.confidence):
        label = labels.get(code)
        if label is None:
            continue
        key = " ".join(label.description.casefold().split()) or f"\0{code}"
        first = found.get(key)
        found[key] = (
            DetectedIntent(code, label.target, confidence)
            if first is None
            else DetectedIntent(first.code, first.target, min(1.0, first.confidence + confidence))
        )
    return tuple(sorted(found.values(), key=lambda each: -each.confidence))


def options_of(intents: Sequence[DetectedIntent], labels: Mapping[str, Label], close: float) -> tuple[Option, ...]:
    """Return the most likely intents that are *close* to each other and have different descriptions."""
    least = close * intents[0].confidence
    spoken = [(each, words_for(each.code, labels)) for each in intents[:MOST_OPTIONS] if each.confidence >= least]
    # Offering the others without the most likely one would hide it.
    return tuple(Option(each, words) for each, words in spoken if words) if spoken[0][1] else ()


def _question(intent: DetectedIntent, labels: Mapping[str, Label], phrases: Phrases) -> str:
    words = words_for(intent.code, labels)
    return labels[intent.code].ask or (phrases.whether.replace("{option}", f"“{words}”") if words else phrases.again)


def reply_of(nearest: Sequence[DetectedIntent], labels: Mapping[str, Label], phrases: Phrases) -> str:
    """Return a reply that says that nothing matches and names what can be done, the most similar first."""
    menu = _menu(nearest, labels, phrases)
    return "\n".join((f"{phrases.nothing} {phrases.offer}", *menu)) if menu else phrases.nothing


def _open(nearest: Sequence[DetectedIntent], labels: Mapping[str, Label], phrases: Phrases) -> str:
    """Return a question that asks what the user wants and names what can be done, the most similar first."""
    menu = _menu(nearest, labels, phrases)
    return "\n".join((phrases.open, *menu)) if menu else phrases.again


def offer(labels: Mapping[str, Label], phrases: Phrases = PHRASES) -> str:
    """Return a list of what can be done, for users who ask for it; capabilities without a description are left out."""
    menu = _menu((), labels, phrases)
    return "\n".join((phrases.offer, *menu)) if menu else phrases.nothing


def _menu(nearest: Sequence[DetectedIntent], labels: Mapping[str, Label], phrases: Phrases) -> list[str]:
    """Return a line for each capability, with those that only read apart from those that change something."""
    codes = dict.fromkeys([*(each.code for each in nearest), *labels])
    groups: dict[bool, dict[str, None]] = {True: {}, False: {}}
    for code in codes:
        if words := words_for(code, labels):
            groups[labels[code].read_only].setdefault(words)
    headed = all(groups.values())
    lines: list[str] = []
    for heading, words in zip((phrases.tells, phrases.does), groups.values(), strict=True):
        lines += [heading] if headed else []
        lines += (f"- {each}" for each in words)
    return lines


def words_for(code: str, labels: Mapping[str, Label]) -> str:
    """Return the first sentence of a capability's description, or nothing if it names codes or agents."""
    words = _SENTENCE_END.split(" ".join(labels[code].description.split()), maxsplit=1)[0].rstrip(" .")
    said = {each.strip(".-@/") for each in _NAME.findall(words)}
    if any(_shows(name, said) for each, label in labels.items() for name in (each, label.target)):
        return ""
    short = words[:_LONGEST_WORDS]
    return words if short == words else f"{short.rpartition(' ')[0] or short} …"


def _shows(name: str, said: Collection[str]) -> bool:
    """Return whether a text contains a name; one that is a plain word, such as `taxes`, reveals nothing."""
    if name.isalpha():
        return name.isupper() and name in said
    return name.casefold() in (each.casefold() for each in said)


def _listed(words: Sequence[str], before_last: str) -> str:
    *others, last = words
    return f"{', '.join(others)}{before_last}{last}" if others else last
