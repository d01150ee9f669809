"""From classification scores to a decision: route a request, ask the user, or handle it locally."""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from enum import StrEnum
from itertools import zip_longest
from typing import Annotated, Literal, NamedTuple, Protocol, runtime_checkable

from msgspec import Meta, Struct

from remit.protocol.card import Confirmation

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


class Clarity(NamedTuple):
    """How likely a text clearly asks for its best capability, is too vague to act on, or asks for something else."""

    clear: float
    vague: float
    foreign: float
    certain: bool = True
    """Whether the classifier is reliable enough for capabilities that change something."""


class Reading(NamedTuple):
    """What a classifier makes of one text."""

    scores: Sequence[ScoredCapability]
    clarity: Clarity | None = None
    """None if the classifier does not measure it: then its confidence alone decides."""


@runtime_checkable
class ReadingScorer(Protocol):
    """A scorer that also says how clear a text is."""

    def read(self, text: str) -> Reading:
        """Return the likeliest capabilities, and how clearly the best is asked for."""
        ...


class ClassifiedText(NamedTuple):
    """A classifier's result for a text, and for each of its parts if it has several."""

    whole: Sequence[ScoredCapability]
    parts: Sequence[Sequence[ScoredCapability]] = ()
    notice: str = ""
    """Why a fallback classified the text."""
    clarity: Clarity | None = None
    """How clear the whole is."""
    part_clarities: Sequence[Clarity | None] = ()
    """How clear each part is; empty if the classifier does not measure it."""


def hear(text: str, scorer: Scorer) -> ClassifiedText:
    """Ask *scorer* about a text and its parts."""
    several = parts(text)
    whole = _read(text, scorer)
    pieces = [_read(part, scorer) for part in several if len(several) > 1]
    return ClassifiedText(
        whole.scores,
        [each.scores for each in pieces],
        clarity=whole.clarity,
        part_clarities=tuple(each.clarity for each in pieces),
    )


def _read(text: str, scorer: Scorer) -> Reading:
    return scorer.read(text) if isinstance(scorer, ReadingScorer) else Reading(scorer.scores(text))


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
    # A capability that only reads may be tried at a lower confidence, one that changes something needs a higher one;
    # both only if the text is clear. If the classifier does not say how clear a text is, `act` replaces both.
    read: Share = 0.45
    change: Share = 0.7
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

# The probability that a text is clear, needed to change something. With 0.5, one text of the labelled set used for
# development changed something that nobody had asked for.
CLEAR_TO_CHANGE = 0.6
# To read, a text only has to be more likely clear than foreign, and not almost certainly vague.
CLEAR_TO_READ = 0.4
VAGUE_TO_READ = 0.7
# Needed to say a request back to the user, who then only has to say yes.
CLEAR_TO_CONFIRM = 0.4
# How much more likely the best capability has to be than the next.
LEAD = 0.2
# The user is told that nothing matches if a text is this many times more likely foreign than clear.
FOREIGN = 3.0


# How long a decision is reused: for users who repeat a failed request, or talk in circles.
DECISION_MS = 10 * 60_000


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


Decision = Routed | Choose | Unclear | Confirm | Vague | Unknown


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
    both: str = " and "
    """The word before the last of several actions."""


PHRASES = Phrases()

MOST_OPTIONS = 3
# How much of a description a question includes; the rest is for readers of cards.
_LONGEST_WORDS = 120
_SENTENCE_END = re.compile(r"(?<=[.!?。！？])(?:\s|$)|[。！？]")
_NAME = re.compile(r"[\w.@/-]+")


def decide(
    heard: ClassifiedText, labels: Mapping[str, Label], thresholds: Thresholds = THRESHOLDS, phrases: Phrases = PHRASES
) -> Decision:
    """Return where to route a request, or what to ask its user; only capabilities in *labels* are considered."""
    several = _several(heard, labels, thresholds)
    if len(several) > 1:
        return _done(several, labels, phrases)
    intents = _intents(heard.whole, labels)
    how = _trust(intents, heard.clarity, labels, thresholds)
    if how == "act":
        return _done((_Trusted(intents[0], how),), labels, phrases)
    if several:
        return _done(several, labels, phrases)
    if how == "confirm":
        return _done((_Trusted(intents[0], how),), labels, phrases)
    if heard.clarity is not None:
        return _unsure(intents, heard.clarity, labels, thresholds, phrases)
    if not intents or intents[0].confidence < thresholds.nothing:
        return Unknown(_reply(intents, labels, phrases))
    options = _options(intents, labels, thresholds.close)
    if len(options) > 1 and sum(each.intent.confidence for each in options) >= thresholds.offer:
        return _choose(options, phrases)
    return Unclear(_question(intents[0], labels, phrases), intents[0])


_Trust = Literal["act", "confirm", "ask"]


class _Trusted(NamedTuple):
    intent: DetectedIntent
    how: _Trust


def _trust(
    intents: Sequence[DetectedIntent],
    clarity: Clarity | None,
    labels: Mapping[str, Label],
    thresholds: Thresholds,
    least: float = 0.0,
) -> _Trust:
    """Return what to do about the most likely intent: the cost of a mistake decides how certain it has to be."""
    if not intents:
        return "ask"
    best = intents[0]
    confirm = labels[best.code].confirm
    at_once: _Trust = "confirm" if confirm == "always" else "act"
    if clarity is None:
        return at_once if best.confidence >= max(thresholds.act, least) else "ask"
    second = intents[1].confidence if len(intents) > 1 else 0.0
    if best.confidence - second < LEAD:
        return "ask"
    if confirm == "never":
        in_scope = clarity.clear >= CLEAR_TO_READ * (clarity.clear + clarity.foreign)
        enough = best.confidence >= max(thresholds.read, least) and in_scope and clarity.vague < VAGUE_TO_READ
    else:
        enough = (
            clarity.certain and best.confidence >= max(thresholds.change, least) and clarity.clear >= CLEAR_TO_CHANGE
        )
    if enough:
        return at_once
    likely = best.confidence >= max(thresholds.read, least) and clarity.clear >= CLEAR_TO_CONFIRM
    return "confirm" if likely and clarity.clear > clarity.vague else "ask"


def _done(trusted: Sequence[_Trusted], labels: Mapping[str, Label], phrases: Phrases) -> Decision:
    """Return the routing of trusted intents, or the question that confirms them if one of them needs it."""
    intents = tuple(each.intent for each in trusted)
    if all(each.how == "act" for each in trusted):
        return Routed(intents[0], intents[1:])
    words = [_words(each.code, labels) for each in intents]
    said = _listed(words, phrases.both) if all(words) else ""
    question = phrases.confirm.replace("{options}", said) if said else _question(intents[0], labels, phrases)
    return Confirm(intents, question)


def _unsure(
    intents: Sequence[DetectedIntent],
    clarity: Clarity,
    labels: Mapping[str, Label],
    thresholds: Thresholds,
    phrases: Phrases,
) -> Decision:
    """Return the question about an unclear text, or the reply that nothing matches a foreign one."""
    if clarity.foreign > FOREIGN * clarity.clear:
        return Unknown(_reply(intents, labels, phrases))
    # The confidence of an unclear text says little, so all of the most likely capabilities are offered.
    options = _options(intents, labels, 0.0) if intents and intents[0].confidence >= thresholds.nothing else ()
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
        case Routed(primary=primary, secondary=secondary):
            return {primary.code, *(each.code for each in secondary)}
        case Confirm(intents=intents):
            return {each.code for each in intents}
        case Choose() | Unclear() | Vague() | Unknown():
            return set()


def _several(heard: ClassifiedText, labels: Mapping[str, Label], thresholds: Thresholds) -> tuple[_Trusted, ...]:
    """Return the intents that the parts certainly have, in order and each once."""
    found: dict[str, _Trusted] = {}
    for scored, clarity in zip_longest(heard.parts, heard.part_clarities):
        intents = _intents(scored, labels)
        how = _trust(intents, clarity, labels, thresholds, thresholds.also)
        if how != "ask":
            found.setdefault(intents[0].code, _Trusted(intents[0], how))
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


def _options(intents: Sequence[DetectedIntent], labels: Mapping[str, Label], close: float) -> tuple[Option, ...]:
    """Return the most likely intents that are *close* to each other and have different descriptions."""
    least = close * intents[0].confidence
    spoken = [(each, _words(each.code, labels)) for each in intents[:MOST_OPTIONS] if each.confidence >= least]
    # Offering the others without the most likely one would hide it.
    return tuple(Option(each, words) for each, words in spoken if words) if spoken[0][1] else ()


def _question(intent: DetectedIntent, labels: Mapping[str, Label], phrases: Phrases) -> str:
    words = _words(intent.code, labels)
    return labels[intent.code].ask or (phrases.whether.replace("{option}", f"“{words}”") if words else phrases.again)


def _reply(nearest: Sequence[DetectedIntent], labels: Mapping[str, Label], phrases: Phrases) -> str:
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
        if words := _words(code, labels):
            groups[labels[code].read_only].setdefault(words)
    headed = all(groups.values())
    lines: list[str] = []
    for heading, words in zip((phrases.tells, phrases.does), groups.values(), strict=True):
        lines += [heading] if headed else []
        lines += (f"- {each}" for each in words)
    return lines


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


def _listed(words: Sequence[str], before_last: str) -> str:
    *others, last = words
    return f"{', '.join(others)}{before_last}{last}" if others else last


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
