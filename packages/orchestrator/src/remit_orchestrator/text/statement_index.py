"""The statements of sources, and the way to those that speak of something."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from typing import cast

from remit.protocol.envelope import Json
from remit.words.components import Component, in_words, laid_out, said_shortly
from remit_orchestrator.text.sentence_segments import ReadSentence, Segment
from remit_orchestrator.text.sentences import sentence_spans
from remit_orchestrator.text.stated_figures import StatedFigure
from remit_orchestrator.text.statement_comparison import share_axis, words_in
from remit_orchestrator.text.statements import SentenceReader

# A token of more statements than this tells nothing apart.
_CROWD = 300
_MOST_INHERITED = 0.9
_DEEPEST = 8


class StatementIndex:
    """The statements of sources, by what they speak of."""

    def __init__(self, reader: SentenceReader, sources: Sequence[Component], also: str, disputed: str) -> None:
        self._reader = reader
        self.segments: list[Segment] = []
        self.sentences: list[ReadSentence] = []
        self.worded: dict[int, list[list[str]]] = defaultdict(list)
        """Sentences and segments word by word, by their length."""
        self.having: dict[str, list[int]] = defaultdict(list)
        self.known = set[str]()
        self.essential = 0
        for place, source in enumerate(sources):
            title = self.tokens(source.title)
            self._add_result(source.result, place, title)
            self.known.update(title)
        self.essential = len(self.segments)
        self.disputed: list[StatedFigure] = []
        for start, end in sentence_spans(disputed):
            sentence = self._add(reader.sentence(disputed[start:end]), -1, ())
            self.disputed += [figure for segment in sentence.segments for figure in segment.figures]
        before: ReadSentence | None = None
        for start, end in sentence_spans(also):
            before = self._add(reader.sentence(also[start:end]), -1, (), before)

    def tokens(self, text: str) -> list[str]:
        """Return what a text speaks of."""
        return [token for segment in self._reader.sentence(text).segments for token in segment.own]

    def _add_result(self, result: Json, place: int, context: Sequence[str]) -> None:
        if isinstance(result, str):
            before: ReadSentence | None = None
            for start, end in sentence_spans(result):
                before = self._add(self._reader.sentence(result[start:end]), place, context, before)
        else:
            self._add_fields(result, place, context, "", 0)

    def _add_fields(self, value: Json, place: int, context: Sequence[str], path: str, depth: int) -> None:
        match value:
            case dict() if depth < _DEEPEST:
                members = cast("dict[str, Json]", value)
                marks = [
                    token
                    for name, each in members.items()
                    if isinstance(each, str | int) and not isinstance(each, bool) and len(str(each)) < 40
                    for segment in self._reader.leaf(name, each, members).segments
                    for token in segment.own
                ]
                for name, each in members.items():
                    under = f"{path} {in_words(name)}".strip()
                    if isinstance(each, dict | list | tuple) and said_shortly(each) is None:
                        self._add_fields(each, place, (*context, *marks), under, depth + 1)
                    elif isinstance(each, str) and each.count(" ") > 3:
                        self._add_result(each, place, (*context, *marks, *self.tokens(under)))
                    elif each is not None and each != "":
                        leaf = self._reader.leaf(name, each, members)
                        for segment in leaf.segments:
                            segment.field = under
                        self._add(leaf, place, (*context, *marks, *self.tokens(path)))
            case list() | tuple() if depth < _DEEPEST:
                for each in cast("Sequence[Json]", value):
                    if isinstance(each, dict | list | tuple):
                        self._add_fields(each, place, context, path, depth + 1)
                    else:
                        self._add_result(laid_out(each), place, (*context, *self.tokens(path)))
            case dict() | list() | tuple() | None:
                pass
            case _:
                self._add(self._reader.leaf(path, value, {}), place, context)

    def _add(
        self, sentence: ReadSentence, place: int, context: Iterable[str], before: ReadSentence | None = None
    ) -> ReadSentence:
        sentence.follow(before, context, source=True)
        self.sentences.append(sentence)
        for said in (sentence, *sentence.segments):
            self.worded[len(words_in(said))].append(words_in(said))
        for segment in sentence.segments:
            segment.source = place
            for token in (*segment.own, *segment.inherited):
                self.having[token].append(len(self.segments))
            self.known.update(segment.own)
            self.segments.append(segment)
        return sentence

    def near(self, token: str) -> Sequence[int]:
        """Return the statements that speak of something, unless most do."""
        places = self.having.get(token, ())
        return places if len(places) <= _CROWD else ()

    def scores(
        self, segment: Segment, without: Collection[str] = (), *, alone: bool = False, senses: bool = False
    ) -> dict[int, float]:
        """Return how much each statement of the sources has in common with a segment, or with its own words *alone*."""
        scores: dict[int, float] = defaultdict(float)
        if not alone:
            for token, weight in segment.inherited.items():
                for place in self.near(token) if token not in without else ():
                    # What a segment says itself counts more than all that it inherits.
                    scores[place] = min(_MOST_INHERITED, scores[place] + 0.9 * weight)
        for token, weight in segment.own.items():
            for place in self.near(token) if token not in without else ():
                there = self.segments[place]
                scores[place] += weight * (1.0 if token in there.own else there.inherited[token])
        if not senses:
            return scores
        for concept, sides in segment.sides.items():
            if concept in without:
                continue
            for place in list(scores):
                there = self.segments[place]
                if concept in there.sides and concept not in segment.own:
                    scores[place] += 0.7
                elif concept not in there.own and share_axis(sides, there):
                    scores[place] += 0.6
        return scores
