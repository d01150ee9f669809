"""From classification scores to a decision: route a request, plan its parts, or ask the user."""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import zip_longest
from typing import Literal

from msgspec import Struct

from remit.protocol.card import Confirmation
from remit.protocol.envelope import Json
from remit.protocol.orchestration import THRESHOLDS, Thresholds
from remit_orchestrator.text.classification import Clarity, ClassifiedText, ScoredCapability, content_words
from remit_orchestrator.text.request_clauses import refers, takes_back, withdraws
from remit_orchestrator.text.request_plan import Condition, RequestPart

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
    text: ClassifiedText, labels: Mapping[str, Label], thresholds: Thresholds = THRESHOLDS, phrases: Phrases = PHRASES
) -> Decision:
    """Return where to route a text as a whole, or what to ask its user; only capabilities in *labels* are considered.

    `plan` decides about the parts of a text.
    """
    intents = intents_of(text.whole, labels)
    how = trust(intents, text.clarity, labels, thresholds)
    if how == "act":
        return Routed(intents[0])
    if how == "confirm":
        words = words_for(intents[0].code, labels)
        question = phrases.confirm.replace("{options}", words) if words else _question(intents[0], labels, phrases)
        return Confirm((intents[0],), question)
    if text.clarity is not None:
        return _unsure(intents, text.clarity, labels, thresholds, phrases)
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
    by_description: dict[str, DetectedIntent] = {}
    for code, confidence in sorted(scored, key=lambda each: -each.confidence):
        label = labels.get(code)
        if label is None:
            continue
        key = " ".join(label.description.casefold().split()) or f"\0{code}"
        first = by_description.get(key)
        by_description[key] = (
            DetectedIntent(code, label.target, confidence)
            if first is None
            else DetectedIntent(first.code, first.target, min(1.0, first.confidence + confidence))
        )
    return tuple(sorted(by_description.values(), key=lambda each: -each.confidence))


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


def _listed(words: Sequence[str], before_last: str) -> str:
    *others, last = words
    return f"{', '.join(others)}{before_last}{last}" if others else last


class _Judged(Struct):
    """A part with its likeliest intents."""

    part: RequestPart
    intents: tuple[DetectedIntent, ...]
    clarity: Clarity | None
    how: Trust
    text: str
    into: "_Judged | None" = None
    """The part to which it belongs."""
    dropped: bool = False
    withdrawn: bool = False
    """The user takes it back, so it is not done."""

    @property
    def code(self) -> str:
        return self.intents[0].code if self.intents else ""

    @property
    def trusted(self) -> bool:
        return self.how != "ask"

    @property
    def builds_on(self) -> bool:
        """Whether it speaks of something that only the part before names."""
        return self.part.refers or bool(self.part.full)


def plan(
    text: ClassifiedText, labels: Mapping[str, Label], thresholds: Thresholds = THRESHOLDS, phrases: Phrases = PHRASES
) -> Decision:
    """Return the plan of a request with several parts or a condition; of any other request, the decision about it."""
    if not text.plan and text.parts:
        text = _without_words(text, labels)
    if not text.plan:
        return decide(text, labels, thresholds, phrases)
    judged = _judged(text, labels, thresholds)
    context = _join(judged, labels)
    kept = [each for each in judged if each.into is None and not each.dropped]
    requests = [each for each in kept if not each.part.checks]
    whole = text._replace(parts=(), part_clarities=(), plan=())
    single = len(requests) < 2 and not any(each.part.condition for each in kept)
    if single:
        return decide(whole, labels, thresholds, phrases)
    if not any(each.trusted for each in requests):
        best = intents_of(text.whole, labels)
        if trust(best, text.clarity, labels, thresholds) != "ask":
            return decide(whole, labels, thresholds, phrases)
        if all(_is_foreign(each, thresholds) for each in requests):
            return Unknown(reply_of(best, labels, phrases))
    places = {id(each): place for place, each in enumerate(kept)}
    return Planned(tuple(_planned(each, judged, places, labels, thresholds) for each in kept), context)


def _without_words(text: ClassifiedText, labels: Mapping[str, Label]) -> ClassifiedText:
    """Return parts for a classifier that gives scores without words: each once, named by what it seems to ask for."""
    first_places: dict[str, int] = {}
    for place, scored in enumerate(text.parts):
        if intents := intents_of(scored, labels):
            first_places.setdefault(intents[0].code, place)
    clarities = dict(enumerate(text.part_clarities))
    places = list(first_places.values())
    if len(places) == 1 and trust(intents_of(text.whole, labels), text.clarity, labels, THRESHOLDS) == "ask":
        return ClassifiedText(text.parts[places[0]], clarity=clarities.get(places[0]))
    return text._replace(
        parts=[text.parts[place] for place in places],
        part_clarities=tuple(clarities.get(place) for place in places),
        plan=tuple(RequestPart(text=words_for(code, labels), named=True) for code in first_places),
    )


def _judged(text: ClassifiedText, labels: Mapping[str, Label], thresholds: Thresholds) -> list[_Judged]:
    judged: list[_Judged] = []
    for part, scored, clarity in zip_longest(text.plan, text.parts, text.part_clarities):
        intents = intents_of(scored or (), labels)
        # A part has few words, so it needs more certainty than a whole text; still more if it begins unlike a request.
        least = thresholds.act if part.sure else thresholds.also
        withdrawn = withdraws(part.text)
        if judged and takes_back(part.text):
            # "I wanted a refund, but never mind": what was said before is taken back.
            judged[-1].withdrawn, judged[-1].how = True, "ask"
            judged.append(_Judged(part, (), None, "ask", part.text, dropped=True, withdrawn=True))
            continue
        how = "ask" if withdrawn else trust(intents, clarity, labels, thresholds, least)
        judged.append(_Judged(part, intents, clarity, how, part.text, withdrawn=withdrawn))
    return judged


def _join(judged: Sequence[_Judged], labels: Mapping[str, Label]) -> str:
    """Join what is no request of its own to the part before it; return what is said before the first part."""
    context: list[str] = []
    before: _Judged | None = None
    known: set[str] = set()
    looked_up: set[str] = set()
    for at, (each, following) in enumerate(zip_longest(judged, judged[1:])):
        if each.builds_on and each.code in looked_up:
            # "Find a flight and book it": nobody looks the same up twice, so it means something else.
            each.how = "ask"
            each.intents = (*each.intents[1:], each.intents[0])
        if each.withdrawn:
            continue
        if each.part.checks:
            # It is only worth asking what can be found out without changing anything, and was not asked before.
            each.dropped = not (each.how == "act" and labels[each.code].read_only) or each.code in known
            looked_up |= set() if each.dropped else {each.code}
        elif following is not None and _is_reason(each, following):
            each.into = following
            following.text = f"{each.text} {following.text}"
        elif _belongs(each, before) or _leads_to(each, following, at):
            if before is None:
                each.dropped = True
                context.append(each.text)
            else:
                each.into = before
                before.text = f"{before.text} {each.text}"
        else:
            before = each
            known.add(each.code)
            looked_up = {each.code} if each.code and labels[each.code].read_only else set()
    return " ".join(context)


def _belongs(each: _Judged, before: _Judged | None) -> bool:
    """Return whether a part is more about the one before it, or nothing that can be done."""
    part, same = each.part, before is not None and each.code == before.code
    if part.condition is not None and part.sure:
        return False
    if same and before is not None and before.trusted and each.trusted and (part.refers or not part.sure):
        return True
    if each.trusted:
        return False
    return not part.sure or not content_words(part.text)


def _is_reason(each: _Judged, following: _Judged) -> bool:
    """Return whether a wish and the request after it are one: "we want to get married, reserve a date for us"."""
    if not each.part.leads or each.part.condition is not None or following.withdrawn:
        return False
    return each.code == following.code or not each.trusted


def _leads_to(each: _Judged, following: _Judged | None, at: int) -> bool:
    """Return whether a statement only says why the request after it is made: "I cannot come, please cancel"."""
    if each.part.sure or each.part.condition is not None or following is None:
        return False
    if each.trusted and any(place > at for place in each.part.after):
        return False  # "before you book it, check the weather"
    if each.trusted and following.trusted and each.code != following.code and not refers(following.part.text):
        return False  # "my card was stolen, what are the branch hours"; not "a table for two, please reserve it"
    return following.part.sure and not following.withdrawn


_MOST_UNCLEAR = 2


def _is_foreign(each: _Judged, thresholds: Thresholds) -> bool:
    if each.trusted:
        return False
    if each.builds_on and each.intents and len(content_words(each.part.text)) <= _MOST_UNCLEAR:
        return False  # "take two of them" says too little to be something that nobody does
    if not each.intents or each.intents[0].confidence < thresholds.nothing:
        return True
    return each.clarity is not None and each.clarity.foreign > FOREIGN * each.clarity.clear


def _planned(
    each: _Judged,
    judged: Sequence[_Judged],
    places: Mapping[int, int],
    labels: Mapping[str, Label],
    thresholds: Thresholds,
) -> PlannedPart:
    after = {places.get(id(judged[at].into or judged[at])) for at in each.part.after} - {None, places[id(each)]}
    options: tuple[Option, ...] = ()
    if not each.trusted and not each.withdrawn and not _is_foreign(each, thresholds):
        options = options_of(each.intents, labels, 0.0)
    how = each.how if each.trusted else "left" if each.withdrawn else "ask" if options else "cannot"
    return PlannedPart(
        text=each.text.strip(" ,;"),
        how=how,
        intent=each.intents[0] if each.trusted else None,
        options=options,
        after=tuple(sorted(place for place in after if place is not None)),
        condition=each.part.condition,
        refers=each.part.refers,
        checks=each.part.checks,
        named=each.part.named,
    )
