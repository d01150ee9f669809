"""What a sentence says, segment by segment: words, figures, negations and what it speaks of."""

import re
from collections.abc import Iterable

from msgspec import Struct

from remit_orchestrator.text.lexicon import word_set
from remit_orchestrator.text.markers import ADVICE, CAUSE
from remit_orchestrator.text.stated_figures import StatedFigure
from remit_orchestrator.text.vocabulary import REQUEST_VERBS
from remit_orchestrator.text.word_relations import Sides

FIGURE_START, FIGURE_END = "\ue000", "\ue001"


_SO = re.compile(
    r",\s*so (?!far|that|das |der |die |herr |frau )\w"
    r"|\bsince (?:the|it|they|he|she|there|no|this|these|its|we|you)\b|,\s*da\s"
)


_IMPERATIVES = REQUEST_VERBS | word_set("segment.imperatives") - {"lies"}


_FINITE = word_set("segment.finite")


_SUBJECTS = word_set("segment.subjects")


_FADING, _BREAK = 0.6, 0.3


# How much a pronoun that is the subject says of what it stands for.
_MEANT = 0.9


class Segment(Struct):
    """A part of a sentence that can be true or false by itself."""

    sentence: "ReadSentence"
    words: list[str]
    """In small letters, in their order, with those that carry nothing."""
    own: dict[str, float]
    """What it speaks of, and how much each weighs."""
    figures: list[StatedFigure]
    sides: dict[str, Sides]
    """The words that have an opposite."""
    denies: bool
    names: dict[str, str]
    """Concepts of words with a capital, with the word before each."""
    roles: dict[str, str]
    """Names and figures, with the preposition before each."""
    runs: list[list[str]]
    """The same, those together that stand together."""
    inherited: dict[str, float]
    """What it speaks of without saying it again."""
    source: int = -1
    measured: set[str] = set()
    """Figures that are said of this segment alone, and are no part of a name: "ward 3" goes on, "12 beds" does not."""
    has_subject: bool = False
    """Whether it begins with a noun of its own, as far as an article or a capital shows."""
    denied: str = ""
    """What its negation stands before."""
    labels: set[str] = set()
    """Figures that are part of a name."""
    field: str = ""
    """The field of a result whose value it is."""
    anew: bool = False
    """Whether it follows a semicolon, or "whereas", and so has a subject of its own."""
    lacks: bool = False
    """Whether something is said to be without something."""
    lacked: str = ""
    """What that is."""
    order: int = 0
    """1 if it is said to come first, 2 if next, 3 if last."""
    relative: bool = False
    """Whether it follows "who" or "which", and so speaks of what was said last."""
    quantified: dict[str, str] = {}
    """Nouns of which it speaks, or goes on to speak, by the kind of their quantifier: "all", "some"."""

    @property
    def text(self) -> str:
        return " ".join(self.words)

    def covers(self, tokens: Iterable[str]) -> bool:
        """Return whether it speaks of all of them, with what it inherits if it has no subject of its own."""
        leans = not self.has_subject or len(self.own) < 2
        return all(token in self.own or (leans and token in self.inherited) for token in tokens)

    def note(self, figure: StatedFigure, *, label: bool = False) -> None:
        tokens = list(figure.tokens)
        self.figures.append(figure)
        self.own.update(dict.fromkeys(tokens, 2.0 / len(tokens)))
        (self.labels if label else self.measured).update(tokens)


class ReadSentence(Struct):
    text: str
    small: str
    segments: list[Segment]
    hangs: bool = False
    """Whether it begins with a pronoun."""
    refers: bool = False
    """Whether it has one."""

    @property
    def hangs_on(self) -> bool:
        """Whether a pronoun is its subject, first or after a verb: "it is", "on Mondays it is"."""
        return self.refers and bool(self.segments) and not _SUBJECTS.isdisjoint(self.segments[0].words)

    @property
    def subject(self) -> str:
        """What its first part begins with, if that is a noun."""
        first = self.segments[0] if self.segments else None
        return next((each for each in first.own if each[-1:].isalpha()), "") if first and first.has_subject else ""

    @property
    def tokens(self) -> set[str]:
        return {token for segment in self.segments for token in segment.own}

    def follow(self, before: "ReadSentence | None", context: Iterable[str] = (), *, source: bool = False) -> None:
        """Note what each segment inherits: from the segments before it, and a pronoun from the sentence before."""
        weight = 0.5 if source else 0.3
        context = tuple(context)
        kept: set[str] = set()
        known: dict[str, float] = {}
        of_how_many: dict[str, str] = {}
        last: Segment | None = None
        subjects: set[str] = set()
        if before is not None and self.refers:
            known = {token: weight for segment in before.segments for token in (*segment.inherited, *segment.own)}
            if source and self.hangs_on and (subject := before.subject):
                known[subject] = _MEANT
        for segment in self.segments:
            if not segment.quantified:
                segment.quantified = {noun: kind for noun, kind in of_how_many.items() if noun not in segment.own}
            of_how_many = segment.quantified
            if segment.anew and len(segment.own) > 1:
                known = {token: at * _BREAK for token, at in known.items()}
            subject = _leading_name(segment)
            if subject and source:
                # "Anna has 3, Ben 5": what has a name of its own does not speak of the one before.
                known = {token: at * (_BREAK if token in subjects else 1.0) for token, at in known.items()}
                subjects.add(subject)
            if segment.relative and (meant := _said_last(last)):
                known = {token: at * _BREAK for token, at in known.items()} | {meant: _MEANT}
            last = segment
            # "The dessert does not": what, was said before.
            share = 0.9 / weight if len(segment.own) < 2 and source else 1.0
            around = dict.fromkeys(context, 0.3) | {token: min(0.9, share * at) for token, at in known.items()}
            apart = _told_apart(segment, self.segments, before)
            segment.inherited = {
                token: at for token, at in around.items() if token not in segment.own and token not in apart
            }
            # What was said last is nearer; a name stays what the sentence is about until there is another.
            kept = set(segment.names) or kept
            known = {token: at if token in kept else at * _FADING for token, at in known.items()} | {
                token: weight * at for token, at in segment.own.items() if token not in segment.measured
            }

    @property
    def advises(self) -> bool:
        return ADVICE.search(self.small) is not None or any(map(_is_imperative, self.segments[:1]))

    @property
    def reasons(self) -> bool:
        return (CAUSE.search(self.small) or _SO.search(self.small)) is not None


def _leading_name(segment: Segment) -> str:
    """Return the name that a part of a sentence begins with."""
    first = next(iter(segment.own), "")
    return first if segment.has_subject and first in segment.names and segment.names[first] == "" else ""


def _said_last(segment: Segment | None) -> str:
    """Return the last noun or name of a part of a sentence."""
    found = [token for token in segment.own if token[-1:].isalpha()] if segment else []
    return found[-1] if found else ""


def _told_apart(segment: Segment, others: Iterable[Segment], before: ReadSentence | None) -> set[str]:
    """Return the labels of other segments: they cannot be meant in a segment with a label of its own."""
    if not segment.labels:
        return set()
    return {token for each in (*others, *(before.segments if before else ())) for token in each.labels}


def _is_imperative(segment: Segment) -> bool:
    words = [word for word in segment.words if word not in {"please", "also", "then", "just", "bitte"}]
    return (
        bool(words)
        and words[0] in _IMPERATIVES
        and len(words) > 1
        and not words[1][0].isdigit()
        and words[1] not in {"of", "for"}  # "repair of the gate"
        and _FINITE.isdisjoint(words[1:])
        and not words[0].startswith(FIGURE_START)
    )
