"""Checks a rewritten text against its sources: names, figures, negations and quantities, and that nothing is missing.

What repeats the words of a source is carried by it. What has other words may say the same, but no rule can tell: a
second reader may quote the passages that say it, and what it quotes must have the same names, figures, negations and
quantities. What is not carried is not given.
"""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Literal, NamedTuple, cast

from msgspec import Struct
from msgspec.structs import replace

from remit.policy.aggregate import Blend, restated
from remit.protocol.envelope import Answer, Json, Strategy
from remit.words.components import Component, in_words, laid_out, short_value
from remit_orchestrator.text.conflicts.assertions import FIGURE, is_label, sides_of, tokens_of
from remit_orchestrator.text.figures import Amount, Day, Figure, TimeOfDay, Weekday, figures
from remit_orchestrator.text.grounding import is_german, unfounded
from remit_orchestrator.text.lexicon import table, word_set
from remit_orchestrator.text.sentences import is_question, sentence_spans, sentences, unmarked
from remit_orchestrator.text.vocabulary import stem

Why = Literal["figure", "name", "negation", "quantity", "words"]
"""What a sentence has that the passages with the same words, or those quoted for it, have not."""

_EMPTY = word_set("carried.empty")
_NEGATIONS = word_set("negations") | word_set("carried.negations")
# What says how much, how sure, or on which condition.
_MARKS = {word: kind for kind, (words,) in table("carried.marks").items() for word in words}
_PRONOUNS = word_set("carried.pronouns")
_CLAUSE = re.compile(r"[;,:](?!\d)\s*|\s[–—-]\s|\s(?:and|but|while|whereas|und|aber|während)\s|[()]", re.IGNORECASE)
_NAME = re.compile(r"(?<=[a-zäöüß0-9,;] )[A-ZÄÖÜ]\w+")
# What is longer is no sentence, and of a longer result no more is read.
_LONGEST, _MOST = 1_000, 2_000
_DEEPEST = 8


class _Reading(NamedTuple):
    """A sentence or a part of one."""

    words: tuple[str, ...]
    """The stems of the words that say something, with the figures among them, in order."""
    figures: frozenset[str]
    labels: frozenset[str]
    """Things that are named by a number: `ward 3`."""
    names: frozenset[str]
    """The stems of words with a capital within a sentence."""
    negations: int
    marks: frozenset[str]
    statuses: frozenset[tuple[str, int]]
    """The axes of its statuses, with their sides: open and closed are the sides of one."""

    @property
    def things(self) -> frozenset[str]:
        return self.figures | self.labels


def _read_sentence(text: str) -> _Reading:
    in_text = [each for each in figures(text) if each.end > each.start]
    tokens = tokens_of(text, in_text)
    numbers = iter(in_text)
    words: list[str] = []
    found: set[str] = set()
    labels: set[str] = set()
    negations = 0
    marks: set[str] = set()
    statuses: set[tuple[str, int]] = set()
    for place, token in enumerate(tokens):
        if token == FIGURE:
            figure = next(numbers)
            before, following = tokens[place - 1] if place else "", (*tokens[place + 1 : place + 2], "")[0]
            written = text[figure.start : figure.end]
            if is_label(written, figure, before, following):
                labels.add(key := f"{stem(before)} {written}")
            else:
                found.add(key := _key(figure))
            words.append(key)
            continue
        negations += token in _NEGATIONS
        if token in _MARKS:
            marks.add(_MARKS[token])
        if side := sides_of(token):
            statuses.add(side)
        if token not in _EMPTY and token != ":":
            words.append(stem(token))
    # In German every noun has a capital.
    names = frozenset(stem(each.lower()) for each in _NAME.findall(text) if not is_german(text))
    return _Reading(
        tuple(words), frozenset(found), frozenset(labels), names, negations, frozenset(marks), frozenset(statuses)
    )


def _key(figure: Figure) -> str:
    """Return a form of a figure in which equal ones are the same; its limit is a mark."""
    match figure.quantity:
        case Amount(kind=kind, low=low, high=high, currency=currency):
            ends = " ".join(f"{end:.6g}" for end in (low, high) if abs(end) != float("inf"))
            return f"{kind} {currency} {ends if low != high else ends.split()[0]}"
        case TimeOfDay(at=at):
            return f"at {at:g}"
        case Day(readings=readings):
            return f"on {readings}"
        case Weekday(day=day):
            return f"weekday {day}"


def _clauses(sentence: str) -> Iterator[_Reading]:
    readings = (_read_sentence(part) for each in _CLAUSE.split(sentence) if (part := each.strip(" .!")))
    return (each for each in readings if each.words)


class _Passage(NamedTuple):
    """A sentence or a record of a source."""

    source: int
    text: str
    whole: _Reading
    clauses: tuple[_Reading, ...]

    def carries(self, part: _Reading, *, begun: bool) -> bool:
        """Say whether it says a part of a text in these words; *begun*: whether the part before it is from here.

        Only the first clause has a subject for certain.
        """
        clauses = self.clauses if begun else self.clauses[:1]
        return any(part.words == each.words for each in (self.whole, *clauses))


def _passages(components: Sequence[Component]) -> list[_Passage]:
    passages: list[_Passage] = []
    for source, component in enumerate(components):
        for text, parts in _texts(component.result, (), 0):
            clauses = tuple(each for part in parts for each in _clauses(part))
            passages.append(_Passage(source, text, _read_sentence("; ".join(parts)), clauses))
            if len(passages) == _MOST:
                return passages
    return passages


def _texts(value: Json, above: tuple[str, ...], depth: int) -> Iterator[tuple[str, list[str]]]:
    """Yield the sentences and the records of a result, each with its parts."""
    if depth > _DEEPEST or value is None:
        return
    if isinstance(value, list):
        for each in cast("list[Json]", value):
            yield from _texts(each, above, depth + 1)
    elif isinstance(value, dict):
        members = cast("dict[str, Json]", value)
        simple = {name: each for name, each in members.items() if not isinstance(each, dict | list)}
        lines = [_line(name, each, above) for name, each in simple.items() if each is not None]
        if lines:
            yield laid_out(simple), lines
        for name, each in members.items():
            if name not in simple:
                yield from _texts(each, (*above, in_words(name)), depth + 1)
    elif isinstance(value, str) and not above:
        yield from ((each, [each]) for each in sentences(value))
    else:
        line = " ".join((*above, short_value(value) or ""))
        yield line, [line]


def _line(name: str, value: Json, above: Sequence[str]) -> str:
    written = next(iter(restated({name: value})), None) or short_value(value) or ""
    # With a verb the number is not read as part of a name: "rent 980".
    return f"{' '.join((*above, in_words(name)))} is {written}"


class Objection(Struct, frozen=True):
    """A sentence that no source carries, and the reason."""

    sentence: str
    why: Why


class Faithfulness(Struct, frozen=True, kw_only=True):
    """What a text says otherwise than its sources, and what of them it does not say."""

    text: str
    """The text without the sentences that no source carries; empty if it cannot do without them."""
    objections: tuple[Objection, ...] = ()
    missing: tuple[tuple[int, str], ...] = ()
    """Sentences and records that the remaining text lacks, each with the position of its source."""

    @property
    def faithful(self) -> bool:
        """Whether the whole text may be given as it is."""
        return not (self.objections or self.missing)


Quotes = Mapping[str, Sequence[str]]
"""By sentence, the passages of the sources that say the same, as a second reader quotes them."""


def check(
    text: str,
    sources: Sequence[Component],
    *,
    excused: Collection[str] = (),
    complete: bool = True,
    quotes: Quotes | None = None,
) -> Faithfulness:
    """Return how a text differs from its sources.

    Sources named in *excused* may be left out, and with *complete* false all may.
    """
    passages = _passages(sources)
    kept: list[tuple[int, int]] = []
    objections: list[Objection] = []
    covered: set[int] = set()
    covered_things: set[str] = set()
    last: set[int] = set()
    dropped = hanging = False
    for start, end in sentence_spans(text):
        sentence = unmarked(text[start:end])
        carried = _carrying(sentence, passages)
        hangs = sentence.split(maxsplit=1)[0].strip(",").lower() in _PRONOUNS
        begins = not (kept or dropped)
        if carried is None or (hangs and carried and not begins and last.isdisjoint(_beside(carried))):
            carried = _quoted(sentence, (quotes or {}).get(sentence, ()), passages)
        if isinstance(carried, str):
            objections.append(Objection(sentence, carried))
            dropped = True
            continue
        # A sentence that begins with "it" would speak of something else after the one before it is gone.
        hanging = hanging or (hangs and dropped)
        dropped = False
        last = carried or last
        covered |= carried
        covered_things |= _read_sentence(sentence).things
        kept.append((start, end))
    missing = tuple(
        (each.source, each.text)
        for place, each in enumerate(passages)
        if complete
        and not (place in covered and each.whole.things <= covered_things)
        and sources[each.source].name not in excused
        and not is_question(each.text)
    )
    rest = "" if missing or hanging or not kept else _joined(text, kept, whole=not objections)
    return Faithfulness(text=rest, objections=tuple(objections), missing=missing)


def _beside(places: set[int]) -> set[int]:
    """Return these passages and those before them."""
    return places | {place - 1 for place in places}


def _carrying(sentence: str, passages: Sequence[_Passage]) -> set[int] | None:
    """Return the passages whose words a sentence repeats, as a whole or part by part; None if it has other words."""
    if is_question(sentence) or sentence.endswith(":"):
        return set()
    if len(sentence) > _LONGEST:
        return None
    whole = _read_sentence(sentence)
    carried = {place for place, each in enumerate(passages) if each.carries(whole, begun=False)}
    if carried:
        return carried
    last: set[int] = set()
    for part in _clauses(sentence):
        last = {place for place, each in enumerate(passages) if each.carries(part, begun=place in last)}
        if not last:
            return None
        carried |= last
    return carried


def _quoted(sentence: str, quotes: Sequence[str], passages: Sequence[_Passage]) -> set[int] | Why:
    """Return the passages that are quoted for a sentence, or what the sentence has that they have not."""
    places = {place for place, each in enumerate(passages) if any(_overlap(each.text, quote) for quote in quotes)}
    if not places:
        return "words"
    whole, read = _read_sentence(sentence), [_read_sentence(each) for each in quotes]
    for clause in _clauses(sentence):
        things = clause.figures | clause.labels
        near = [passages[place] for place in places if things <= passages[place].whole.things]
        if not near:
            return "figure"
        if not any(_stand_together(clause, each) for each in near):
            return "name"
        there = {side for each in near for part in each.clauses if part.things & things for side in part.statuses}
        if _turned(clause.statuses, there):
            return "negation"
    statuses = {side for each in read for side in each.statuses}
    if _turned(whole.statuses, statuses) or bool(whole.negations) is not any(each.negations for each in read):
        return "negation"
    return "quantity" if _limits_otherwise(whole.marks, {mark for each in read for mark in each.marks}) else places


def _turned(statuses: Collection[tuple[str, int]], there: Collection[tuple[str, int]]) -> bool:
    """Say whether a status is the opposite of one there, and is not there itself."""
    return any((axis, -sign) in there and (axis, sign) not in there for axis, sign in statuses)


def _limits_otherwise(marks: Collection[str], quoted: Collection[str]) -> bool:
    """Say whether a sentence adds advice or a cause, has lost a doubt or a condition, or has another quantity."""
    added, lost = set(marks) - set(quoted), set(quoted) - set(marks)
    if added & {"must", "cause", "only"} or lost & {"sure", "if", "only"}:
        return True
    return any(added & pair and lost & pair for pair in ({"over", "under"}, {"all", "part"}))


def _stand_together(clause: _Reading, passage: _Passage) -> bool:
    """Say whether the names and figures of a clause stand together, and in their order, in a passage."""
    there = passage.whole
    for things in (clause.figures, clause.labels, clause.names | there.names):
        some = [word for word in clause.words if word in things and word in there.words]
        rest = iter(there.words)
        if not all(each in rest for each in some):
            return False
    if not clause.figures:
        return True
    holding = {word for each in passage.clauses if each.figures & clause.figures for word in each.words}
    others = {
        word for each in passage.clauses if each.figures and not each.figures & clause.figures for word in each.words
    }
    return others.isdisjoint(set(clause.words) - holding)


def nearest(text: str, sources: Sequence[Component]) -> Quotes:
    """Quote for each part of a sentence the passage with the most words in common, whether or not it says the same.

    With these, only names, figures, statuses, negations and quantities are compared.
    """
    passages = _passages(sources)
    quotes: dict[str, list[str]] = {}
    for sentence in sentences(text):
        for part in _clauses(sentence):
            words = set(part.words)
            best = max(passages, key=lambda each: len(words.intersection(each.whole.words)), default=None)
            if best is not None and not words.isdisjoint(best.whole.words):
                quotes.setdefault(sentence, []).append(best.text)
    return quotes


_ANY_WORD = re.compile(r"\w+")


def _overlap(passage: str, quote: str) -> bool:
    one, other = (f" {' '.join(_ANY_WORD.findall(text.casefold()))} " for text in (passage, quote))
    return one in other or other in one


def _joined(text: str, kept: Sequence[tuple[int, int]], *, whole: bool) -> str:
    return text.strip() if whole else "".join(text[start:end] for start, end in kept).strip()


# This many invented facts are reported; one would be enough to reject a text.
_KEPT = 10


def accept(text: str, blend: Blend) -> tuple[str, ...]:
    """Return the names and numbers of a model's text that its material does not contain; it is accepted if none."""
    return unfounded(text, blend.material)


def left_out(text: str, blend: Blend) -> tuple[str, ...]:
    """Return the titles of results of which a model's text has no name or number; or no word, if they have neither.

    Readers would not know that these results exist. Conflicting results are left out: the conflict is reported beside
    the text. A text that only repeats the request covers no result.
    """
    echo = _squeezed(text) in _squeezed(f"{blend.instructions} {blend.request}")
    disputed = _disputed(blend)
    return tuple(
        component.title or f"Result {place}"
        for place, component in enumerate(blend.components, 1)
        if echo or (component.name not in disputed and not _is_covered(text, component))
    )


def _disputed(blend: Blend) -> set[str]:
    return {name for conflict in blend.conflicts for reported in conflict.values for name in reported.names}


def _is_covered(text: str, component: Component) -> bool:
    source = "\n".join((laid_out(component.result), *restated(component.result)))
    if things := unfounded(source, ""):
        return len(unfounded(source, text)) < len(things)
    words = _WORD.findall(source.casefold())
    return not words or not set(words).isdisjoint(_WORD.findall(text.casefold()))


# Shorter words stand in every text.
_WORD = re.compile(r"[^\W\d_]{4,}")


def _squeezed(text: str) -> str:
    return " ".join(text.casefold().split())


class Held(Struct, frozen=True, kw_only=True):
    """What of a model's text may be given, and what speaks against the rest."""

    text: str = ""
    """The text without the sentences that no result carries; empty if all of it is rejected."""
    rejected: tuple[str, ...] = ()
    """Names and numbers that are in none of the results."""
    unsupported: tuple[tuple[str, str], ...] = ()
    """Sentences that no result carries, each with the reason."""
    left_out: tuple[str, ...] = ()
    """Titles of the results of which the text leaves something out."""

    @property
    def whole(self) -> bool:
        """Whether the text may be given as it is."""
        return bool(self.text) and not self.unsupported

    @property
    def metadata(self) -> dict[str, Json]:
        """What was dropped, or why the whole text was rejected, for programs."""
        unsupported: list[Json] = [{"sentence": sentence, "why": why} for sentence, why in self.unsupported[:_KEPT]]
        if self.text:
            return {"dropped": unsupported} if unsupported else {}
        return {"rejected": list(self.rejected[:_KEPT]), "unsupported": unsupported, "left_out": list(self.left_out)}


def hold(text: str, blend: Blend, quotes: Quotes | None = None) -> Held:
    """Return what of a model's text its material carries, sentence by sentence."""
    text = text.strip()
    made_up, missing = accept(text, blend), left_out(text, blend)
    checked = check(text, blend.components, excused=_disputed(blend), quotes=quotes)
    titles = [component.title or f"Result {place}" for place, component in enumerate(blend.components, 1)]
    missing = tuple(dict.fromkeys((*missing, *(titles[place] for place, _ in checked.missing))))
    unsupported = tuple((each.sentence, each.why) for each in checked.objections)
    kept = "" if made_up or missing else checked.text
    return Held(text=kept, rejected=made_up, unsupported=unsupported, left_out=missing)


def blended(merged: Answer, text: str, blend: Blend) -> Answer:
    """Return what the results carry of a model's text as the answer, or *merged* if that is not enough."""
    held = hold(text, blend)
    if not held.text:
        return replace(merged, metadata=merged.metadata | held.metadata)
    strategy: dict[str, Json] = {"strategy": Strategy.AI_BLEND.value}
    return replace(merged, result=held.text, metadata=merged.metadata | strategy | held.metadata)
