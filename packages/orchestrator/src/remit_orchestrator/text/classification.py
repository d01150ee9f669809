"""What a classifier says about a text and its parts."""

import re
from collections.abc import Sequence
from typing import NamedTuple, Protocol, runtime_checkable

from remit_orchestrator.text.mentions import content_words
from remit_orchestrator.text.request_part import RequestPart

# The placeholder of a redacted value: its kind, and twelve letters.
_REDACTED = re.compile(r"\[([A-Z][A-Z0-9_]{0,31}):[a-z]{12}\]")


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
    plan: Sequence[RequestPart] = ()
    """The words, order and condition of each part; empty if only the scores are known."""


def hear(text: str, scorer: Scorer) -> ClassifiedText:
    """Ask *scorer* about a text and its parts."""
    from remit_orchestrator.text.request_plan import parts  # most hubs classify nothing, and its patterns take memory

    found = parts(text)
    whole = _read(text, scorer)
    if len(found) < 2 and not any(each.condition for each in found):
        return ClassifiedText(whole.scores, [], clarity=whole.clarity)
    pieces: list[Reading] = []
    for each in found:
        pieces.append(_read_part(each, scorer, {_best(earlier) for earlier in pieces}))
    return ClassifiedText(
        whole.scores,
        [each.scores for each in pieces],
        clarity=whole.clarity,
        part_clarities=tuple(each.clarity for each in pieces),
        plan=found,
    )


def _read_part(part: RequestPart, scorer: Scorer, earlier: set[str]) -> Reading:
    """Read a part by itself, and with what it refers to in the place of the pronoun; the clearer reading counts.

    With the words of a part before it looks like that part, so a reading that says the same as one of the *earlier*
    counts less. "Take it" says nothing by itself.
    """
    alone = _read(part.text, scorer)
    if not part.full:
        return alone
    full = _read(part.full, scorer)
    enough = len(content_words(part.text)) >= _ENOUGH_WORDS
    if _best(full) in earlier and _best(alone) not in earlier and min(_clearness(alone)) >= _CLEAR:
        return alone
    if not enough and full.scores and _best(full) not in {*earlier, _best(alone)}:
        return full
    return max(alone, full, key=lambda each: min(_clearness(each)))


# As likely as a text has to be clear to change something.
_CLEAR = 0.6
_ENOUGH_WORDS = 2


def _best(reading: Reading) -> str:
    return max(reading.scores, key=lambda each: each.confidence).code if reading.scores else ""


def _clearness(reading: Reading) -> tuple[float, float]:
    best = max((each.confidence for each in reading.scores), default=0.0)
    return (best if reading.clarity is None else reading.clarity.clear, best)


def _read(text: str, scorer: Scorer) -> Reading:
    # The letters of a redacted value's token are random, and would change the scores from run to run.
    text = _REDACTED.sub(lambda found: found[1].lower(), text)
    return scorer.read(text) if isinstance(scorer, ReadingScorer) else Reading(scorer.scores(text))
