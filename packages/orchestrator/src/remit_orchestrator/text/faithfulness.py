"""Checks a rewritten text against its sources, statement by statement.

Each sentence must be carried by a statement of a source: the same subject, figure, unit, negation and direction. No
advice and no cause may be added, and no statement of a source may be missing. The rules read words and figures; they
do not understand a text, so they can be wrong in both directions. When in doubt they object.
"""

from collections.abc import Collection, Mapping, Sequence
from itertools import pairwise

from msgspec import Struct

from remit.words.components import Component, laid_out
from remit_orchestrator.text.sentence_segments import ReadSentence
from remit_orchestrator.text.sentences import sentence_spans
from remit_orchestrator.text.source_statements import SourceStatements
from remit_orchestrator.text.statement_comparison import (
    Why,
)
from remit_orchestrator.text.statements import SentenceReader


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
    told = [(reader.sentence(text[start:end]), start, end) for start, end in sentence_spans(text)]
    objections: dict[int, Objection] = {}
    before: ReadSentence | None = None
    for place, (sentence, *_) in enumerate(told):
        sentence.follow(before)
        before = sentence
        if why := grounds.objection(sentence):
            objections[place] = Objection(sentence.text, why)
    kept = [sentence for place, (sentence, *_) in enumerate(told) if place not in objections]
    missing = tuple(grounds.missing(kept, excused)) if complete else ()
    # A sentence that begins with "it" would speak of something else after the one before it is gone.
    hanging = any(
        one in objections and other not in objections and told[other][0].hangs
        for one, other in pairwise(range(len(told)))
    )
    rest = "" if missing or hanging or not any(each.segments for each in kept) else _without(text, told, objections)
    return Faithfulness(text=rest, objections=tuple(objections.values()), missing=missing)


def _without(text: str, told: Sequence[tuple["ReadSentence", int, int]], dropped: Mapping[int, Objection]) -> str:
    parts: list[str] = []
    end = 0
    for place, (_, start, stop) in enumerate(told):
        if place in dropped:
            parts.append(text[end:start])
            end = stop
    parts.append(text[end:])
    return "".join(parts).strip() if dropped else text.strip()
