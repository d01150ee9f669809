"""A reader that compares character n-grams, in any language and without dependencies.

It knows no language: texts are similar if they have the same runs of letters.
"""

import asyncio
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from math import exp, log, sqrt
from typing import NamedTuple, Protocol
from unicodedata import normalize

from remit.ports.brief import Brief
from remit.protocol.card import Capability
from remit_orchestrator.dialogue.commands import (
    Command,
    Commands,
    DialogueState,
    NothingFits,
    StartCapability,
    TextSpan,
)

# Runs of two letters tell little, runs of six hardly ever recur in a handful of examples.
_LENGTHS = (3, 4, 5)
# A request is usually stated in the first paragraphs; the rest is the material to work on.
LONGEST_TEXT = 2_000
# Beyond this many capabilities the others have no chance to be offered.
MOST_RANKED = 12


class RankedCapability(NamedTuple):
    """A capability, and how likely a text asks for it."""

    code: str
    confidence: float


class Scores(NamedTuple):
    """The capabilities that a text may ask for, best first, and how likely it is far from all of them."""

    ranked: Sequence[RankedCapability]
    far: float


class Scorer(Protocol):
    """Scores the capabilities that a text may ask for, from the text alone."""

    def score(self, text: str) -> Scores:
        """Return the most likely capabilities, best first."""
        ...


class Examples(NamedTuple):
    """The texts by which a capability is known: its examples, and its description."""

    codes: tuple[str, ...]
    texts: tuple[tuple[str, ...], ...]

    @classmethod
    def of(cls, capabilities: Iterable[Capability]) -> "Examples":
        """Return those of capabilities; what has no text is left out."""
        by_code: dict[str, dict[str, None]] = {}
        for each in capabilities:
            known = by_code.setdefault(each.code, {})
            known.update(dict.fromkeys(text for text in (*each.examples, each.description) if text.strip()))
        by_code = {code: texts for code, texts in by_code.items() if texts}
        return cls(tuple(by_code), tuple(tuple(each) for each in by_code.values()))


class Evidence(NamedTuple):
    """How a text compares with the capability that it is nearest to."""

    near: float
    """The similarity to the most similar text of that capability."""
    middle: float
    """The similarity to the mean of its texts."""
    lead: float
    """How much more similar that is than the next capability."""
    known: float
    """The share of its letters in runs that the team's texts have."""
    length: float
    """How long it is, up to a few words: a single one says little."""


class LogisticHead(NamedTuple):
    """A logistic head: the bias and the weights of the evidence for "it asks for this", and for "it is far away"."""

    clear: tuple[float, ...]
    far: tuple[float, ...]
    sharpness: float
    """How much a difference of similarity says about which capability is meant."""

    def confidence(self, evidence: Sequence[float]) -> float:
        """Return how likely the nearest capability is meant."""
        return _logistic(self.clear, evidence)

    def distance(self, evidence: Sequence[float]) -> float:
        """Return how likely none is meant."""
        return _logistic(self.far, evidence)


def _logistic(weights: Sequence[float], evidence: Sequence[float]) -> float:
    bias, *rest = weights
    total = bias + sum(weight * each for weight, each in zip(rest, evidence, strict=True))
    return 1 / (1 + exp(-max(-30.0, min(30.0, total))))


# Two texts that are as similar differ in case, punctuation or an ending.
SAME = 0.97
SAME_CONFIDENCE = 0.95


def scored(
    codes: Sequence[str], similarities: Sequence[float], evidence: Sequence[float], head: LogisticHead, *, same: bool
) -> Scores:
    """Return capabilities with their likelihoods, from their similarities and the evidence for the best.

    *same*: the text is an example, in hardly other letters.
    """
    order = sorted(range(len(codes)), key=lambda place: -similarities[place])
    first = SAME_CONFIDENCE if same else head.confidence(evidence)
    others = order[1:MOST_RANKED]
    shares = [exp(head.sharpness * (similarities[place] - similarities[order[0]])) for place in others]
    total = sum(shares)
    # The others share what the first leaves, and none gets more than it.
    ranked = [RankedCapability(codes[order[0]], first)]
    ranked += [
        RankedCapability(codes[place], min(first, (1 - first) * share / (total + 1)))
        for place, share in zip(others, shares, strict=True)
    ]
    return Scores(tuple(ranked), 0.0 if same else head.distance(evidence))


class NgramIndex:
    """Vectors of texts: how often each run of letters stands in them, weighted by how telling it is."""

    def __init__(self, texts: Sequence[str]) -> None:
        counted = [_runs(each) for each in texts]
        within = Counter(run for each in counted for run in each)
        self._weights = {run: 1 + log((1 + len(texts)) / (1 + count)) for run, count in within.items()}
        self._unknown = 1 + log(1 + len(texts))
        self.vectors = [self._vector(each) for each in counted]

    def vector(self, text: str) -> tuple[dict[str, float], float]:
        """Return the vector of a text, and the share of it that the index knows."""
        counted = _runs(text)
        whole = sum(counted.values())
        known = sum(count for run, count in counted.items() if run in self._weights)
        return self._vector(counted), known / whole if whole else 0.0

    def _vector(self, counted: Mapping[str, int]) -> dict[str, float]:
        weighted = {run: (1 + log(count)) * self._weights.get(run, self._unknown) for run, count in counted.items()}
        length = sqrt(sum(each * each for each in weighted.values())) or 1.0
        return {run: each / length for run, each in weighted.items()}


def _runs(text: str) -> Counter[str]:
    runs: Counter[str] = Counter()
    for word in normalize("NFKC", text[:LONGEST_TEXT]).casefold().split():
        bare = "".join(each for each in word if each.isalnum())
        if not bare:
            continue
        padded = f" {bare} "
        for length in _LENGTHS:
            runs.update(padded[at : at + length] for at in range(len(padded) - length + 1))
        if len(padded) < min(_LENGTHS):
            runs[padded] += 1
    return runs


def alike(one: Mapping[str, float], other: Mapping[str, float]) -> float:
    """Return the cosine of two vectors of length one."""
    if len(one) > len(other):
        one, other = other, one
    return sum(weight * other[run] for run, weight in one.items() if run in other)


# Fitted by bench/fit_readers.py.
HEAD = LogisticHead(
    clear=(-7.89, 1.37, 4.21, 2.79, -0.05, 6.04),
    far=(-0.11, -2.78, -3.43, -0.5, -1.1, 1.11),
    sharpness=12.0,
)


# Texts of more letters than this say what they ask for no better; a head that counts more of them takes any long text
# for a clear one, and the short parts of a request for none.
_SAYS_ENOUGH = 25


def length_of(text: str) -> float:
    """Return how long a text is, from 0 to 1."""
    return min(len(text), _SAYS_ENOUGH) / _SAYS_ENOUGH


class NgramScorer:
    """Scores capabilities by the runs of letters that a text shares with their examples and descriptions."""

    def __init__(self, capabilities: Iterable[Capability], head: LogisticHead = HEAD) -> None:
        self._examples = Examples.of(capabilities)
        self._head = head
        texts = [text for several in self._examples.texts for text in several]
        self._index = NgramIndex(texts)
        vectors = iter(self._index.vectors)
        self._vectors = [[next(vectors) for _ in several] for several in self._examples.texts]
        self._means = [_mean(each) for each in self._vectors]

    def similarities(self, text: str) -> tuple[list[float], list[float], float]:
        """Return the similarity to the nearest text and to the mean of each capability, and the share that is known."""
        vector, known = self._index.vector(text)
        near = [max(alike(vector, each) for each in several) for several in self._vectors]
        return near, [alike(vector, each) for each in self._means], known

    def evidence(self, text: str) -> tuple[list[float], Evidence] | None:
        """Return the similarity of each capability, and the evidence for the best; None without any text."""
        if not self._examples.codes or not text.strip():
            return None
        near, middle, known = self.similarities(text)
        mixed = [(one + other) / 2 for one, other in zip(near, middle, strict=True)]
        best = max(range(len(mixed)), key=mixed.__getitem__)
        second = max((each for place, each in enumerate(mixed) if place != best), default=0.0)
        return mixed, Evidence(near[best], middle[best], mixed[best] - second, known, length_of(text))

    def score(self, text: str) -> Scores:
        """Return the most likely capabilities, best first."""
        compared = self.evidence(text)
        if compared is None:
            return Scores((), 1.0)
        similarities, evidence = compared
        return scored(self._examples.codes, similarities, evidence, self._head, same=evidence.near >= SAME)


def _mean(vectors: Sequence[Mapping[str, float]]) -> dict[str, float]:
    total: Counter[str] = Counter()
    for each in vectors:
        for run, weight in each.items():
            total[run] += weight  # pyright: ignore[reportArgumentType]
    length = sqrt(sum(each * each for each in total.values())) or 1.0
    return {run: each / length for run, each in total.items()}


class ScoringReader:
    """A reader that scores the text alone; it learns the capabilities in a thread when they change."""

    def __init__(self, make: "type[NgramScorer] | Make") -> None:
        self._make = make
        self._learned: tuple[tuple[Capability, ...], Scorer] | None = None

    async def read(self, text: str, pieces: Sequence[TextSpan], state: DialogueState, brief: Brief) -> Commands:  # noqa: ARG002 - nothing is spent
        """Return the capabilities that each piece may ask for."""
        scorer = await self.scorer(state.capabilities)
        return Commands(await asyncio.to_thread(_score_pieces, scorer, text, pieces))

    async def scorer(self, capabilities: tuple[Capability, ...]) -> Scorer:
        """Return the scorer for some capabilities."""
        if self._learned is None or self._learned[0] != capabilities:
            self._learned = capabilities, await asyncio.to_thread(self._make, capabilities)
        return self._learned[1]


class Make(Protocol):
    """Makes a scorer for capabilities."""

    def __call__(self, capabilities: Iterable[Capability]) -> Scorer: ...


def _score_pieces(scorer: Scorer, text: str, pieces: Sequence[TextSpan]) -> tuple[tuple[Command, ...], ...]:
    return tuple(proposed(scorer.score(without_tokens(each.of(text))), each) for each in pieces)


def proposed(scores: Scores, span: TextSpan) -> tuple[Command, ...]:
    """Return scores as commands."""
    commands: list[Command] = [
        StartCapability(capability=each.code, confidence=min(1.0, max(0.0, each.confidence)), span=span)
        for each in scores.ranked
    ]
    return (*commands, NothingFits(confidence=scores.far, span=span))


# The token of a redacted value: its kind, and twelve letters.
_TOKEN = re.compile(r"\[([A-Z][A-Z0-9_]{0,31}):[a-z]{12}\]")


def without_tokens(text: str) -> str:
    """Return a text with the kind of each redacted value in place of its token, whose letters are random."""
    return _TOKEN.sub(lambda match: match[1].lower(), text)
