"""From the parts of a request to a plan: what each asks for, and what is done, asked about or left undone."""

from collections.abc import Mapping, Sequence
from itertools import zip_longest

from msgspec import Struct

from remit.protocol.orchestration import THRESHOLDS, Thresholds
from remit_orchestrator.text.classification import Clarity, ClassifiedText
from remit_orchestrator.text.intent import (
    FOREIGN,
    PHRASES,
    Decision,
    DetectedIntent,
    Label,
    Option,
    Phrases,
    Planned,
    PlannedPart,
    Trust,
    Unknown,
    decide,
    intents_of,
    options_of,
    reply_of,
    trust,
    words_for,
)
from remit_orchestrator.text.mentions import content_words
from remit_orchestrator.text.request_clauses import takes_back, withdraws
from remit_orchestrator.text.request_part import RequestPart
from remit_orchestrator.text.request_references import refers


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
    heard: ClassifiedText, labels: Mapping[str, Label], thresholds: Thresholds = THRESHOLDS, phrases: Phrases = PHRASES
) -> Decision:
    """Return the plan of a request with several parts or a condition; of any other request, the decision about it."""
    if not heard.plan and heard.parts:
        heard = _without_words(heard, labels)
    if not heard.plan:
        return decide(heard, labels, thresholds, phrases)
    judged = _judged(heard, labels, thresholds)
    context = _join(judged, labels)
    kept = [each for each in judged if each.into is None and not each.dropped]
    requests = [each for each in kept if not each.part.checks]
    whole = heard._replace(parts=(), part_clarities=(), plan=())
    single = len(requests) < 2 and not any(each.part.condition for each in kept)
    if single:
        return decide(whole, labels, thresholds, phrases)
    if not any(each.trusted for each in requests):
        best = intents_of(heard.whole, labels)
        if trust(best, heard.clarity, labels, thresholds) != "ask":
            return decide(whole, labels, thresholds, phrases)
        if all(_is_foreign(each, thresholds) for each in requests):
            return Unknown(reply_of(best, labels, phrases))
    places = {id(each): place for place, each in enumerate(kept)}
    return Planned(tuple(_planned(each, judged, places, labels, thresholds) for each in kept), context)


def _without_words(heard: ClassifiedText, labels: Mapping[str, Label]) -> ClassifiedText:
    """Return parts for a classifier that gives scores without words: each once, named by what it seems to ask for."""
    found: dict[str, int] = {}
    for place, scored in enumerate(heard.parts):
        if intents := intents_of(scored, labels):
            found.setdefault(intents[0].code, place)
    clarities = dict(enumerate(heard.part_clarities))
    places = list(found.values())
    if len(places) == 1 and trust(intents_of(heard.whole, labels), heard.clarity, labels, THRESHOLDS) == "ask":
        return ClassifiedText(heard.parts[places[0]], clarity=clarities.get(places[0]))
    return heard._replace(
        parts=[heard.parts[place] for place in places],
        part_clarities=tuple(clarities.get(place) for place in places),
        plan=tuple(RequestPart(text=words_for(code, labels), named=True) for code in found),
    )


def _judged(heard: ClassifiedText, labels: Mapping[str, Label], thresholds: Thresholds) -> list[_Judged]:
    found: list[_Judged] = []
    for part, scored, clarity in zip_longest(heard.plan, heard.parts, heard.part_clarities):
        intents = intents_of(scored or (), labels)
        # A part has few words, so it needs more certainty than a whole text; still more if it begins unlike a request.
        least = thresholds.act if part.sure else thresholds.also
        withdrawn = withdraws(part.text)
        if found and takes_back(part.text):
            # "I wanted a refund, but never mind": what was said before is taken back.
            found[-1].withdrawn, found[-1].how = True, "ask"
            found.append(_Judged(part, (), None, "ask", part.text, dropped=True, withdrawn=True))
            continue
        how = "ask" if withdrawn else trust(intents, clarity, labels, thresholds, least)
        found.append(_Judged(part, intents, clarity, how, part.text, withdrawn=withdrawn))
    return found


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
