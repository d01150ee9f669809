"""Checks a rewritten text against its sources, statement by statement, and drops what they do not carry.

Each sentence must be carried by a statement of a source: the same subject, figure, unit, negation and direction. No
advice and no cause may be added, and no statement of a source may be missing. The rules read words and figures; they
do not understand a text, so they can be wrong in both directions. When in doubt they object.
"""

import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise

from msgspec import Struct
from msgspec.structs import replace

from remit.policy.aggregate import Blend, disagreement, restated
from remit.protocol.envelope import Answer, Json, Strategy
from remit.words.components import Component, laid_out
from remit_orchestrator.text.grounding import unfounded
from remit_orchestrator.text.lexicon import word_set
from remit_orchestrator.text.sentences import is_question, sentence_spans
from remit_orchestrator.text.statement_comparison import (
    StatementIndex,
    Why,
    bounds_differ,
    compared_from_both,
    compared_otherwise,
    count_opposites,
    direction_of,
    ends_range,
    is_among,
    is_converse,
    is_other,
    is_state,
    left_off,
    same_predicate,
    sense_differs,
    share_axis,
    trades_places,
    words_in,
)
from remit_orchestrator.text.statements import (
    EMPTY_WORDS,
    LONGEST_SENTENCE,
    ReadSentence,
    Segment,
    SentenceReader,
    StatedFigure,
)
from remit_orchestrator.text.vocabulary import ALL_NEGATIONS, OBLIGATION, SUPPOSES, concept_of, reason_given, sides_of

# So much more must speak for another statement before the one that holds a figure, or a name, is the wrong one.
_FIGURE_MARGIN, _NAME_MARGIN = 0.25, 1.4


# A name that shares so much with a statement that has it is rightly there, whatever else the sentence says.
_SUPPORTED = 1.5


class SourceStatements:
    """What sources say, and what they object to a sentence."""

    def __init__(self, reader: SentenceReader, sources: Sequence[Component], also: str, disputed: str) -> None:
        self._index = StatementIndex(reader, sources, also, disputed)
        self._sources = sources

    # ── what a sentence adds ──────────────────────────────────────────────────────────────────────────────────────────

    def objection(self, sentence: ReadSentence) -> Why | None:
        """Return what a sentence says otherwise than the sources; None if they carry it."""
        if not sentence.segments or is_question(sentence.text) or sentence.text.endswith(":"):
            return None
        tokens = sentence.tokens
        if tokens <= _FRAMES:
            return None
        if len(sentence.text) > LONGEST_SENTENCE:
            return "not in the results"
        if sentence.advises and not self._shared(sentence, lambda each: each.advises or _obliges(each)):
            return "advice"
        if sentence.reasons and not self._shared(sentence, lambda each: each.reasons or "instead" in each.small):
            return "cause"
        if (about := reason_given(sentence.text)) and not self._speak_of(about):
            return "cause"
        if not self._covers(sentence) or (SUPPOSES.search(sentence.small) and not self._mostly_known(sentence)):
            return "not in the results"
        for segment in sentence.segments:
            if why := self._against(segment):
                return why
        return self._substituted(sentence)

    def _speak_of(self, text: str) -> bool:
        """Return whether the sources speak of anything of a text."""
        tokens = self._index.tokens(text)
        return not tokens or any(token in self._index.known for token in tokens)

    def _covers(self, sentence: ReadSentence) -> bool:
        known_tokens = 0
        for segment in sentence.segments:
            here = sum(1 for token in segment.own if token in self._index.known or token in _FRAMES)
            known_tokens += here
            words = sum(weight == 1.0 for weight in segment.own.values())  # not the parts of compounds
            if not segment.figures and words > 1 and here < words / 3:
                return False
        return known_tokens > 0

    def _mostly_known(self, sentence: ReadSentence) -> bool:
        """Return whether the sources speak of most that a sentence does: what "would" be is easily made up."""
        tokens = [token for segment in sentence.segments for token, weight in segment.own.items() if weight >= 1.0]
        return 3 * sum(token in self._index.known for token in tokens) >= 2 * len(tokens)

    def _shared(self, sentence: ReadSentence, which: Callable[[ReadSentence], bool]) -> bool:
        """Return whether a source has a sentence of that kind about the same."""
        tokens = sentence.tokens
        for each in self._index.sentences:
            if which(each):
                shared = len(tokens & each.tokens)
                if shared > 1 or 2 * shared >= min(len(tokens), len(each.tokens)):
                    return True
        return False

    def _against(self, segment: Segment) -> Why | None:
        # What the sources say in two ways may be said of either.
        disputed = any(figure.same(other) for figure in segment.figures for other in self._index.disputed)
        bound = (
            None
            if disputed
            else self._figures_against(segment) or self._names_against(segment) or self._values_against(segment)
        )
        if not bound and self._crosses(segment):
            return "subject"
        return (
            bound
            or self._number_against(segment)
            or self._sense_against(segment)
            or self._denied_against(segment)
            or self._direction_against(segment)
        )

    def _figures_against(self, segment: Segment) -> Why | None:
        for figure in segment.figures:
            near = {place for token in figure.tokens for place in self._index.near(token)}
            holders = [place for place in near if any(map(figure.same, self._index.segments[place].figures))]
            if not holders:
                # Names and figures that no source has are found by `grounding`; this may be one in words.
                continue
            scores = self._index.scores(segment, set(figure.tokens))
            best = max(scores.get(place, 0.0) for place in holders)
            for place, score in scores.items():
                if score <= best + _FIGURE_MARGIN or place in holders:
                    continue
                rivals = [other for other in self._index.segments[place].figures if figure.rivals(other)]
                if not all(any(other.same(own) for own in segment.figures) for other in rivals):
                    return "figure"
            if figure.then and self._other_unit(figure, holders):
                return "figure"
            at = [place for place in holders if scores.get(place, 0.0) >= best - 0.01]
            there = [other for place in at for other in self._index.segments[place].figures if figure.same(other)]
            if all(bounds_differ(figure, other) for other in there):
                return "bound"
            if figure.per and all(other.per and other.per != figure.per for other in there):
                return "figure"
        return None

    def _other_unit(self, figure: StatedFigure, holders: Iterable[int]) -> bool:
        """Return whether a figure has a word after it that no source has, and has a unit in all of them."""
        if figure.then in EMPTY_WORDS or concept_of(figure.then) in self._index.known:
            return False
        there = [other for place in holders for other in self._index.segments[place].figures if figure.same(other)]
        return all(other.unit is not None for other in there)

    def _names_against(self, segment: Segment) -> Why | None:
        first = next(
            (
                each
                for each in segment.own
                if each in self._index.known and each[-1:].isalpha() and each not in segment.sides
            ),
            None,
        )
        together = {name: run for run in segment.runs for name in run}
        for name in dict.fromkeys((*segment.names, *((first,) if first else ()))):
            holders = [place for place in self._index.having.get(name, ()) if name in self._index.segments[place].own]
            if not holders:
                continue
            scores = self._index.scores(segment, together.get(name, [name]), alone=True)
            reach = [*holders, *self._index.having[name]]
            best = max(scores.get(place, 0.0) for place in reach)
            # A statement whose own subject is there too is merged with this one.
            others = (
                score
                for place, score in scores.items()
                if place < self._index.essential and next(iter(self._index.segments[place].own)) not in segment.own
            )
            if best < _SUPPORTED and max(others, default=0.0) > best + _NAME_MARGIN:
                return "name" if name in segment.names else "subject"
        return None

    def _values_against(self, segment: Segment) -> Why | None:
        """Object to a value that stands in this field of another record."""
        for token in segment.own:
            holders = [place for place in self._index.having.get(token, ()) if token in self._index.segments[place].own]
            fields = {self._index.segments[place].field for place in holders}
            if not holders or "" in fields:
                continue
            scores = self._index.scores(segment, {token}, alone=len(segment.own) > 1 or token in segment.names)
            best = max(scores.get(place, 0.0) for place in holders)
            rivals = [
                score
                for place, score in scores.items()
                if self._index.segments[place].field in fields and token not in self._index.segments[place].own
            ]
            if max(rivals, default=0.0) > best + _FIGURE_MARGIN:
                return "subject"
        return None

    def _crosses(self, segment: Segment) -> bool:
        """Return whether a short statement has the subject of one statement and the predicate of another."""
        known = [token for token in segment.own if token in self._index.known]
        if segment.figures or not segment.has_subject or not 2 <= len(known) == len(segment.own) <= 4:
            return False
        first, last = known[0], known[-1]
        near = {place for token in known for place in self._index.near(token)}
        if any(self._index.segments[place].covers(known) for place in near):
            return False
        here = [self._index.segments[place] for place in near if self._index.segments[place].has_subject]
        subjects = [each for each in here if first in each.own]
        predicates = [each for each in here if last in each.own and set(each.own) - set(known)]
        return any(
            one.source == other.source
            and len(one.own) <= 4
            and len(other.own) <= 4
            and set(known) <= {*one.own, *other.own}
            for one in subjects
            for other in predicates
        )

    def _number_against(self, segment: Segment) -> Why | None:
        """Object to a statement about all where the sources speak of some, and to what comes first and not next."""
        for noun, kind in segment.quantified.items():
            scores = self._index.scores(segment, {noun}, alone=True) or self._index.scores(segment, alone=True)
            top = max(scores.values(), default=0.0)
            there = [self._index.segments[place] for place, score in scores.items() if score >= top - 0.01]
            kinds = {each.quantified[noun] for each in there if noun in each.quantified}
            if kinds and kind not in kinds and not any(each.denies for each in (segment, *there)):
                return "other word"
        if segment.order and (scores := self._index.scores(segment, alone=True)):
            top = max(scores.values())
            there = [self._index.segments[place] for place, score in scores.items() if score >= max(2.0, top - 0.01)]
            if there and all(each.order and (each.order > 1) != (segment.order > 1) for each in there):
                return "direction"
        return None

    def _denied_against(self, segment: Segment) -> Why | None:
        """Object to what the sources only deny, where a statement has it beside something that they say."""
        if segment.denies or segment.lacks or _APART.search(segment.sentence.small):
            return None
        scores = self._index.scores(segment, alone=True)
        if not scores:
            return None
        best = self._index.segments[max(scores, key=lambda place: scores[place])]
        if best.denies or not same_predicate(segment, best):
            return None
        for token in segment.own:
            holders = [
                self._index.segments[place]
                for place in self._index.near(token)
                if token in self._index.segments[place].own
            ]
            if token in best.own or token in segment.sides or not holders:
                continue
            if all(each.denies and next(iter(each.own)) == token for each in holders):
                return "negation"
        return None

    def _sense_against(self, segment: Segment) -> Why | None:
        scores = self._index.scores(segment, senses=True)
        if not scores:
            return None
        ranked = sorted(scores.items(), key=lambda each: -each[1])
        top = ranked[0][1]
        best = [self._index.segments[place] for place, score in ranked if score >= top - 0.01]
        alike = [each for each in best if same_predicate(segment, each)]
        if not alike or len(alike) < len(best):
            return None
        verdicts: list[Why | None] = [
            None if any(rule(segment, each) for rule in _SAME_OTHERWISE) else sense_differs(segment, each)
            for each in alike
        ]
        if verdicts[0] == "negation" and None not in verdicts and self._denied_elsewhere(segment, alike, scores):
            verdicts = [left_off(segment, each) for each in alike]
        return None if None in verdicts else verdicts[0]

    def _denied_elsewhere(self, segment: Segment, alike: Iterable[Segment], scores: Iterable[int]) -> bool:
        """Return whether what is denied is not what the nearest statements speak of, but what another one does."""
        if segment.denies:
            if any(segment.denied in each.own for each in alike):
                return False
            others = [self._index.segments[place] for place in scores if self._index.segments[place].denies]
            extra_tokens = {token for token in segment.own if not any(token in each.own for each in alike)}
            return any(segment.denied in each.own or not extra_tokens.isdisjoint(each.own) for each in others)
        beside = {each.denied for each in segment.sentence.segments if each.denies}
        return all(
            each.denied in beside or (each.denied not in segment.own and each.denied not in segment.inherited)
            for each in alike
        )

    def _direction_against(self, segment: Segment) -> Why | None:
        for place, score in self._index.scores(segment).items():
            there = self._index.segments[place]
            if score < 2:
                continue
            if compared_otherwise(segment, there):
                return "direction"
            if any(
                direction_of(segment, each) * direction_of(there, each) < 0
                for each in segment.roles
                if each in there.roles
            ):
                return "direction"
            shared = [name for name in segment.names if name in there.own]
            names = [name for name in there.names if name in shared]
            for one, other in pairwise(names):
                if shared.index(one) < shared.index(other):
                    continue
                if any(each.names.get(name, "") not in _BARE for each in (segment, there) for name in (one, other)):
                    continue
                verb = [token for token in segment.own if token in there.own and token not in (*names, *shared)]
                turned = _PASSIVE.isdisjoint(segment.words) != _PASSIVE.isdisjoint(there.words)
                if verb and not turned and not count_opposites(segment, there):
                    return "direction"
        return None

    def _substituted(self, sentence: ReadSentence) -> Why | None:
        """Object to a sentence that is one of a source but for one word."""
        for one in (sentence, *sentence.segments):
            words = words_in(one)
            if len(words) < 4:
                continue
            for there in self._index.worded[len(words)]:
                apart = [(a, b) for a, b in zip(words, there, strict=True) if a != b]
                if (
                    len(apart) == 1
                    and is_other(*apart[0])
                    and (one is sentence or is_state(words, apart[0][0]))
                    and not _links_figure(sentence, words, apart[0])
                ):
                    return "other word"
                if len(apart) == 2 and apart[0] == apart[1][::-1] and trades_places(words, apart[0]):
                    return "direction"
        return None

    # ── what is missing ───────────────────────────────────────────────────────────────────────────────────────────────

    def missing(self, sentences: Sequence[ReadSentence], excused: Collection[str]) -> Iterator[tuple[int, str]]:
        """Give the statements of the sources that the sentences do not have."""
        figures: dict[str, list[StatedFigure]] = defaultdict(list)
        for figure in (figure for sentence in sentences for segment in sentence.segments for figure in segment.figures):
            for token in figure.tokens:
                figures[token].append(figure)
        token_sets = [sentence.tokens for sentence in sentences]
        for segment in self._index.segments[: self._index.essential]:
            if self._sources[segment.source].name in excused:
                continue
            if segment.figures:
                if not all(is_among(figure, figures) for figure in segment.figures):
                    yield segment.source, segment.sentence.text
                continue
            tokens = set(segment.own)
            most = max((len(tokens & each) for each in token_sets), default=0)
            alone = [token for token in tokens if token[-1:].isalpha() and self._is_alone(token, segment)]
            if 3 * most < len(tokens) or (
                alone and not any(_is_mentioned(token, segment, sentences) for token in alone)
            ):
                yield segment.source, segment.sentence.text

    def _is_alone(self, token: str, segment: Segment) -> bool:
        """Return whether no other statement of the sources speaks of something."""
        return all(
            self._index.segments[place] is segment
            or place >= self._index.essential
            or token not in self._index.segments[place].own
            for place in self._index.having[token]
        )


def _is_mentioned(token: str, segment: Segment, sentences: Sequence[ReadSentence]) -> bool:
    """Return whether sentences speak of something, or of something with the same or the opposite meaning."""
    sides = segment.sides.get(token, frozenset())
    return any(
        token in each.own or (sides and share_axis(sides, each)) for sentence in sentences for each in sentence.segments
    )


_FRAME = word_set("source.frame")


_FRAMES = frozenset(map(concept_of, _FRAME))


# The same with an opposite word.
_SAME_OTHERWISE = (ends_range, is_converse, compared_from_both)


_BARE = word_set("source.bare") | {""}


_APART = re.compile(r"\b(?:rather|instead|only|statt|anstatt|nur|not|no|cannot|nicht|kein\w*)\b")


_PASSIVE = word_set("source.passive")


def _links_figure(sentence: ReadSentence, words: Sequence[str], verbs: tuple[str, str]) -> bool:
    """Return whether a word only links a figure to its subject: "it lasts 2 years", "it is valid 2 years"."""
    after = words[words.index(verbs[0]) + 1 :][:1]
    figures = {figure.written.lower() for segment in sentence.segments for figure in segment.figures}
    return bool(after) and after[0] in figures and not any(map(sides_of, verbs)) and ALL_NEGATIONS.isdisjoint(verbs)


def _obliges(sentence: ReadSentence) -> bool:
    return OBLIGATION.search(sentence.small) is not None


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
    """Statements that the remaining text lacks, each with the position of its source."""

    @property
    def faithful(self) -> bool:
        """Whether the whole text may be given as it is."""
        return not (self.objections or self.missing)


def check(
    text: str,
    sources: Sequence[Component],
    *,
    also: str = "",
    disputed: str = "",
    excused: Collection[str] = (),
    complete: bool = True,
) -> Faithfulness:
    """Return how a text differs from its sources.

    *also* is what the text may repeat and need not: the request. A figure in *disputed* is one of several that the
    sources say of one thing. Sources named in *excused* may be left out, and with *complete* false all may.
    """
    reader = SentenceReader((text, also, disputed, *(f"{each.title}\n{laid_out(each.result)}" for each in sources)))
    grounds = SourceStatements(reader, sources, also, disputed)
    spans = [(reader.sentence(text[start:end]), start, end) for start, end in sentence_spans(text)]
    objections: dict[int, Objection] = {}
    before: ReadSentence | None = None
    for place, (sentence, *_) in enumerate(spans):
        sentence.follow(before)
        before = sentence
        if why := grounds.objection(sentence):
            objections[place] = Objection(sentence.text, why)
    kept = [sentence for place, (sentence, *_) in enumerate(spans) if place not in objections]
    missing = tuple(grounds.missing(kept, excused)) if complete else ()
    # A sentence that begins with "it" would speak of something else after the one before it is gone.
    hanging = any(
        one in objections and other not in objections and spans[other][0].hangs
        for one, other in pairwise(range(len(spans)))
    )
    rest = "" if missing or hanging or not any(each.segments for each in kept) else _cut_out(text, spans, objections)
    return Faithfulness(text=rest, objections=tuple(objections.values()), missing=missing)


def _cut_out(text: str, spans: Sequence[tuple["ReadSentence", int, int]], dropped: Mapping[int, Objection]) -> str:
    parts: list[str] = []
    end = 0
    for place, (_, start, stop) in enumerate(spans):
        if place in dropped:
            parts.append(text[end:start])
            end = stop
    parts.append(text[end:])
    return "".join(parts).strip() if dropped else text.strip()


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


def hold(text: str, blend: Blend) -> Held:
    """Return what of a model's text its material carries, statement by statement."""
    text = text.strip()
    made_up, missing = accept(text, blend), left_out(text, blend)
    disputes = "\n".join(map(disagreement, blend.conflicts))
    checked = check(text, blend.components, also=blend.request, disputed=disputes, excused=_disputed(blend))
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
