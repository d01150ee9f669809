"""From classification scores to a decision: route a request, ask the user, or handle it locally."""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Annotated, NamedTuple, Protocol

from msgspec import Meta, Struct

# ── classification ────────────────────────────────────────────────────────────────────────────────────────────────────


class ScoredCapability(NamedTuple):
    """A capability and the probability that a text asks for it."""

    code: str
    confidence: float


class Scorer(Protocol):
    """Scores the capabilities that a text may ask for, from the text alone."""

    def scores(self, text: str) -> Sequence[ScoredCapability]:
        """Return the most likely ones, best first.

        Of those with a score of 0.8, eight in ten are right; a text that matches no capability gets low scores or none.
        """
        ...


class ClassifiedText(NamedTuple):
    """A classifier's result for a text, and for each of its parts if it has several."""

    whole: Sequence[ScoredCapability]
    parts: Sequence[Sequence[ScoredCapability]] = ()
    notice: str = ""
    """Why a fallback classified the text."""


def hear(text: str, scorer: Scorer) -> ClassifiedText:
    """Ask *scorer* about a text and its parts."""
    several = parts(text)
    return ClassifiedText(scorer.scores(text), [scorer.scores(part) for part in several if len(several) > 1])


# Each part costs a classification, and nobody asks for more than this at once.
MOST_PARTS = 8
# A request is usually stated in the first paragraphs; the rest is the material to work on.
_LONGEST_TEXT = 2_000
# A shorter part is not a request by itself: `as a PDF`, `for me`, `Dr.`.
_FEWEST_WORDS = 3

_BULLET = re.compile(r"(?:[-*•–]|\(?\d{1,2}[.)]) ")
_BETWEEN = re.compile(
    r"(?<=[.!?]) |(?<=[.!?][\"')]) |(?<=[。！？；])|; "
    r"|,? (?:and|und|et|y|e|en) (?:then|also|after that|afterwards|finally|dann|danach|auch|außerdem|anschließend"
    r"|puis|ensuite|aussi|luego|después|también|poi|dopo|anche|depois|também|dan|daarna|ook)\b,? "
    r"|, (?:then|also|plus|dann|danach|puis|ensuite|luego|después|poi|depois|daarna) "
    r"|,? (?:and|und|et|y|e) ",
    re.IGNORECASE,
)
# A character of a script without spaces counts as a word.
_WORD = re.compile(r"[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff]|[^\W_]+")


def parts(text: str) -> tuple[str, ...]:
    """Split a text where a new request may begin: list items, sentences, `and then`.

    A part that is too short to be a request stays with its neighbour.
    """
    found: list[str] = []
    for line in text[:_LONGEST_TEXT].splitlines():
        # With runs of spaces collapsed, the pattern takes linear time.
        for piece in _BETWEEN.split(_BULLET.sub("", " ".join(line.split()), count=1)):
            if found and (_is_short(piece) or _is_short(found[-1])):
                found[-1] = f"{found[-1]} {piece}".strip()
            else:
                found.append(piece)
    return tuple(filter(None, found[:MOST_PARTS]))


def _is_short(text: str) -> bool:
    return len(_WORD.findall(text)) < _FEWEST_WORDS


# ── decision ──────────────────────────────────────────────────────────────────────────────────────────────────────────

Share = Annotated[float, Meta(ge=0, le=1)]


class Thresholds(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How likely a classification must be for each action.

    The figures in the comments are for 950 texts of CLINC150, with ten examples for each of its 150 intents and one
    text in five that matches none: first by words, then by embeddings.
    """

    # Routed without a question: two thirds and three quarters of the texts that match a capability; 85 and 93 % of
    # these were right.
    act: Share = 0.6
    # A further intent of the same request: doing something that nobody asked for is worse than missing it. One text in
    # a thousand with a single intent was given a second one.
    also: Share = 0.7
    # Offered as options if together they are at least this likely: in four of five offers the right one was among them.
    offer: Share = 0.5
    # An option has at least this share of the best one's probability; less likely ones only make the choice harder.
    close: Share = 0.34
    # Below this the user is told that nothing matches: four of five texts that match none, and 16 and 5 % of the
    # others.
    nothing: Share = 0.25


THRESHOLDS = Thresholds()

# How long a decision is reused: for users who repeat a failed request, or talk in circles.
DECISION_MS = 10 * 60_000


class Label(Struct, frozen=True, kw_only=True):
    """The agent of a capability, and the words that describe it to users."""

    target: str
    description: str = ""
    ask: str = ""
    """The question that confirms it; built from the description if empty."""


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
    """The request is clear: one intent first, and perhaps others."""

    primary: DetectedIntent
    secondary: tuple[DetectedIntent, ...] = ()


class Choose(Struct, frozen=True, tag=True):
    """The request is one of these; the user chooses."""

    options: tuple[Option, ...]
    question: str


class Unclear(Struct, frozen=True, tag=True):
    """The request may be this one; the user confirms."""

    question: str
    option: DetectedIntent


class Unknown(Struct, frozen=True, tag=True):
    """No capability matches; the user is told so, and what can be done."""

    reply: str


Decision = Routed | Choose | Unclear | Unknown


class Phrases(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Questions and messages to users; the placeholders in braces are replaced by descriptions."""

    which: str = "Which of these do you want: {options}?"
    pick: str = "Which of these do you want?"
    """Used if the options are listed below it."""
    whether: str = "Do you want this: {option}? If not, please say in other words what you want."
    again: str = "Please say in other words what you want."
    none: str = "I cannot do that. What I can do: {options}."
    nothing: str = "I cannot do that."
    offer: str = "What I can do:"
    """Used if the available capabilities are listed below it."""
    last: str = " or "
    """The word before the last of several options."""


PHRASES = Phrases()

MOST_OPTIONS = 3
# As many as a user can take in at a glance.
MOST_NAMED = 5
# How much of a description a question includes; the rest is for readers of cards.
_LONGEST_WORDS = 120
_SENTENCE_END = re.compile(r"(?<=[.!?。！？])(?:\s|$)|[。！？]")
_NAME = re.compile(r"[\w.@/-]+")


def decide(
    heard: ClassifiedText, labels: Mapping[str, Label], thresholds: Thresholds = THRESHOLDS, phrases: Phrases = PHRASES
) -> Decision:
    """Return where to route a request, or what to ask its user; only capabilities in *labels* are considered."""
    several = _several(heard.parts, labels, thresholds)
    if len(several) > 1:
        return Routed(several[0], several[1:])
    intents = _intents(heard.whole, labels)
    if intents and intents[0].confidence >= thresholds.act:
        return Routed(intents[0])
    if several:
        return Routed(several[0])
    if not intents or intents[0].confidence < thresholds.nothing:
        return Unknown(_reply(intents, labels, phrases))
    options = _options(intents, labels, thresholds)
    if len(options) > 1 and sum(each.intent.confidence for each in options) >= thresholds.offer:
        return Choose(options, phrases.which.replace("{options}", _listed([each.words for each in options], phrases)))
    return Unclear(_question(intents[0], labels, phrases), intents[0])


def _several(
    heard: Sequence[Sequence[ScoredCapability]], labels: Mapping[str, Label], thresholds: Thresholds
) -> tuple[DetectedIntent, ...]:
    """Return the intents that the parts certainly have, in order and each once."""
    found: dict[str, DetectedIntent] = {}
    for scored in heard:
        for intent in _intents(scored, labels)[:1]:
            if intent.confidence >= thresholds.also:
                found.setdefault(intent.code, intent)
    return tuple(found.values())


def _intents(scored: Iterable[ScoredCapability], labels: Mapping[str, Label]) -> tuple[DetectedIntent, ...]:
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


def _options(
    intents: Sequence[DetectedIntent], labels: Mapping[str, Label], thresholds: Thresholds
) -> tuple[Option, ...]:
    """Return the most likely intents that are close to each other and have different descriptions."""
    least = thresholds.close * intents[0].confidence
    spoken = [(each, _words(each.code, labels)) for each in intents[:MOST_OPTIONS] if each.confidence >= least]
    # Offering the others without the most likely one would hide it.
    return tuple(Option(each, words) for each, words in spoken if words) if spoken[0][1] else ()


def _question(intent: DetectedIntent, labels: Mapping[str, Label], phrases: Phrases) -> str:
    words = _words(intent.code, labels)
    return labels[intent.code].ask or (phrases.whether.replace("{option}", f"“{words}”") if words else phrases.again)


def _reply(nearest: Sequence[DetectedIntent], labels: Mapping[str, Label], phrases: Phrases) -> str:
    """Return a reply that says that nothing matches and names what can be done, the most similar first."""
    codes = dict.fromkeys([*(each.code for each in nearest), *labels])
    words = list(dict.fromkeys(filter(None, (_words(code, labels) for code in codes))))[:MOST_NAMED]
    return phrases.none.replace("{options}", _listed(words, phrases)) if words else phrases.nothing


def offer(labels: Mapping[str, Label], phrases: Phrases = PHRASES) -> str:
    """Return a list of what can be done, for users who ask for it; capabilities without a description are left out."""
    words = dict.fromkeys(filter(None, (_words(code, labels) for code in labels)))
    return "\n".join((phrases.offer, *(f"- {each}" for each in words))) if words else phrases.nothing


def _words(code: str, labels: Mapping[str, Label]) -> str:
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


def _listed(words: Sequence[str], phrases: Phrases) -> str:
    *others, last = (f"“{each}”" for each in words)
    return f"{', '.join(others)}{phrases.last}{last}" if others else last


# ── route it, or handle it here ───────────────────────────────────────────────────────────────────────────────────────


class RouteReason(StrEnum):
    """Why another agent should handle the request."""

    CAPABILITY = "capability"
    INTENT = "intent"
    EXPERTISE = "expertise"
    DATA = "data"


class LocalReason(StrEnum):
    """Why the agent should handle the request itself."""

    SCOPE = "scope"
    LATENCY = "latency"
    SIMPLICITY = "simplicity"
    EQUIVALENCE = "equivalence"


WHY: Mapping[RouteReason | LocalReason, str] = {
    RouteReason.CAPABILITY: "it needs a capability that only another agent has",
    RouteReason.INTENT: "what is asked for is clearly another agent's domain",
    RouteReason.EXPERTISE: "another agent's expertise gives a better result",
    RouteReason.DATA: "another agent has data or context that is missing here",
    LocalReason.SCOPE: "it is within the agent's own scope",
    LocalReason.LATENCY: "routing would take longer than there is time",
    LocalReason.SIMPLICITY: "it is simple enough without a specialist",
    LocalReason.EQUIVALENCE: "nobody else would give a better result",
}


class Route(Struct, frozen=True):
    """Another agent should handle the request."""

    reason: RouteReason


class Local(Struct, frozen=True):
    """The agent should handle the request itself."""

    reason: LocalReason


class Case(Struct, frozen=True, kw_only=True):
    """The facts about a request that an agent has received."""

    own: Collection[str]
    """The codes of the agent's own capabilities."""
    elsewhere: Collection[str]
    """Those of the agents that it may call."""
    needs: str | None = None
    """The capability that the request names."""
    intent: ScoredCapability | None = None
    """The capability that it seems to ask for, if it names none."""
    lacks_data: bool = False
    """Whether another agent has data or context for it that is missing here."""
    simple: bool = False
    quality: float | None = None
    quality_elsewhere: float | None = None
    """The share of good results so far, from 0 to 1."""
    time_left_ms: int | None = None
    time_elsewhere_ms: int | None = None
    """How long another agent is expected to take."""


# A smaller difference between two shares of good results is chance, unless there are hundreds of results.
BETTER = 0.1


def place(case: Case, thresholds: Thresholds = THRESHOLDS) -> Route | Local:
    """Return whether to route a request or to handle it here, with the reason."""
    code = case.needs
    if code is None and case.intent is not None and case.intent.confidence >= thresholds.act:
        code = case.intent.code
    if code is None or code not in case.elsewhere:
        if code in case.own:
            return Local(LocalReason.SCOPE)
        return Local(LocalReason.SIMPLICITY if case.simple else LocalReason.EQUIVALENCE)
    if code not in case.own:
        return Route(RouteReason.CAPABILITY if case.needs else RouteReason.INTENT)
    # Both can handle it.
    if case.lacks_data:
        return Route(RouteReason.DATA)
    if case.simple:
        return Local(LocalReason.SIMPLICITY)
    left, elsewhere = case.time_left_ms, case.time_elsewhere_ms
    if left is not None and elsewhere is not None and elsewhere > left:
        return Local(LocalReason.LATENCY)
    if case.quality is None or case.quality_elsewhere is None:
        return Local(LocalReason.SCOPE)
    if case.quality_elsewhere - case.quality >= BETTER:
        return Route(RouteReason.EXPERTISE)
    return Local(LocalReason.EQUIVALENCE)
