"""Trains a classifier from the similarities of examples, with calibrated probabilities."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from heapq import nlargest
from math import exp, sqrt
from typing import NamedTuple

from remit.protocol.card import Capability
from remit_orchestrator.text.classification import ScoredCapability

Row = Sequence[float]
"""Returns how similar an example is to each other one: 1 means the same, 0 means nothing in common."""

# Training takes memory and time for each pair of examples: 32 MB and about five seconds for this many.
MOST_EXAMPLES = 2_000
# People choose among three; two more show how much probability remains.
MOST_SCORED = 5
# The margin by which an example must win, and the number of passes. Of the values tried on CLINC150, with ten examples
# of each of 150 intents, they were the best in cross-validation, for words and for embeddings. More passes gained
# nothing.
MARGIN = 0.4
PASSES = 3
FOLDS = 5
# This many held-out texts determine three numbers well enough; more would only take time.
ENOUGH_HELD_OUT = 200
# Left-out capabilities stand for requests that match no capability. They are more similar to the others than what
# people really ask off topic, so they count as one text in ten; as one in five they made all confidences too low.
BESIDE_THE_POINT = 0.1
# With a sentence encoder they count more in a team with one subject; see `_beside_the_point`. The line goes through two
# values: 0.1, at which the calibration error of CLINC150 was lowest (0.02), and 0.9, at which that of 50 intents of
# BANKING77 fell to 0.06, and the share of texts of the others with a confidence of 0.6 from 0.39 to 0.15. Nothing is
# known about teams that are still more alike, so they get no more.
ONE_SUBJECT = 6.5
SEVERAL_SUBJECTS = 0.45
MOST_BESIDE = 0.9
ENOUGH_EXAMPLES = 10


class Examples(NamedTuple):
    """Training texts, each with the index of its capability in *codes*."""

    codes: tuple[str, ...]
    texts: tuple[str, ...]
    own: tuple[int, ...]
    spoken: tuple[bool, ...]
    """Whether the text is an utterance, and not a description."""


class Calibration(NamedTuple):
    """How scores become probabilities: the best score says whether any capability matches, all scores say which one."""

    bias: float
    slope: float
    sharpness: float


class TrainedWeights(NamedTuple):
    """The result of training: how much each example votes for or against each capability, and the calibration."""

    codes: tuple[str, ...]
    votes: tuple[tuple[tuple[int, float], ...], ...]
    sureness: Calibration

    def scored(
        self, scores: Sequence[float], nearest: Callable[[str], float] | None = None
    ) -> tuple[ScoredCapability, ...]:
        """Return the most likely capabilities for these scores, best first; none if no score is positive.

        *nearest* returns the similarity of the text to the nearest example of a capability, if it was trained with it.
        """
        best = max(scores, default=0.0)
        if best <= 0:
            return ()
        near = None if nearest is None else nearest(self.codes[scores.index(best)])
        likely = _logistic(self.sureness.bias + self.sureness.slope * _in_scope(best, near))
        shares = enumerate(_softmax(scores, self.sureness.sharpness))
        found = nlargest(MOST_SCORED, shares, key=lambda each: each[1])
        return tuple(ScoredCapability(self.codes[place], likely * share) for place, share in found)


def gather(capabilities: Iterable[Capability]) -> Examples:
    """Return the training texts; capabilities with the same code are merged, and those without any text are
    left out.
    """
    said: dict[str, dict[str, bool]] = {}
    for each in capabilities:
        texts = said.setdefault(each.code, {})
        texts.update((text, True) for text in each.examples if text.strip())
        if each.description.strip():
            texts.setdefault(each.description, False)
    said = {code: texts for code, texts in said.items() if texts}
    most = max(1, MOST_EXAMPLES // max(1, len(said)))
    chosen = [
        (text, place, spoken)
        for place, texts in enumerate(said.values())
        for text, spoken in list(texts.items())[:most]
    ]
    return Examples(
        tuple(said),
        tuple(text for text, _, _ in chosen),
        tuple(place for _, place, _ in chosen),
        tuple(spoken for _, _, spoken in chosen),
    )


def learn(
    examples: Examples, alike: Sequence[Row], usual: Calibration, meanings: Sequence[Row] | None = None
) -> TrainedWeights:
    """Train on the similarity of the examples; *usual* is the calibration to use where there is too little data.

    With *meanings*, how similar the examples are in meaning alone, the nearest example also says whether any capability
    matches. Of BANKING77, with 50 of its 77 intents as capabilities, that raised the AUROC of texts of the others from
    0.82 to 0.84; by words it gained nothing.
    """
    votes, _ = _train(examples, alike, range(len(examples.texts)))
    counts = BESIDE_THE_POINT if meanings is None else _beside_the_point(examples, meanings)
    sureness = _fit(usual, *_hold_out(examples, alike, meanings), counts)
    return TrainedWeights(examples.codes, tuple(tuple(each.items()) for each in votes), sureness)


def _beside_the_point(examples: Examples, meanings: Sequence[Row]) -> float:
    """Return how much texts of left-out capabilities count for a team.

    A team with one subject is also asked for what it does not do about that subject, and left-out capabilities are like
    such requests. So they count the more, the more alike the capabilities are in meaning: 0.1 for the 150 intents of
    CLINC150 (mean similarity 0.08), 0.9 for 50 of BANKING77 (0.21). With few examples, a held-out text loses much of
    its capability, and the comparison says little; it counts fully from ten examples each.
    """
    alike = [
        each
        for one, row in zip(examples.own, meanings, strict=True)
        for other, each in zip(examples.own, row, strict=True)
        if one != other
    ]
    if not alike:
        return BESIDE_THE_POINT
    share = min(1.0, len(examples.texts) / len(examples.codes) / ENOUGH_EXAMPLES)
    wanted = ONE_SUBJECT * (sum(alike) / len(alike)) - SEVERAL_SUBJECTS
    return max(BESIDE_THE_POINT, min(wanted, MOST_BESIDE) * share)


_Votes = list[dict[int, float]]
_Scores = dict[int, list[float]]
"""For each trained capability, the score of each example, trained on or not."""


def _in_scope(best: float, near: float | None) -> float:
    """Return the score that says whether any capability matches."""
    return best if near is None else (best + near) / 2


def _train(examples: Examples, alike: Sequence[Row], kept: Iterable[int]) -> tuple[_Votes, _Scores]:
    """Represent each capability by the mean of its examples; then correct for examples that do not win clearly.

    Such an example votes for its own capability and against its rival, just enough to win (passive-aggressive
    learning). That gained four points of accuracy over the means alone, as much as logistic regression.
    """
    votes: _Votes = [{} for _ in examples.texts]
    scores: _Scores = {}

    def vote(example: int, place: int, by: float) -> None:
        votes[example][place] = votes[example].get(place, 0.0) + by
        row = alike[example]
        before = scores.get(place)
        scores[place] = [by * each for each in row] if before is None else _added(before, by, row)

    members = _members(examples, kept)
    for place, those in members.items():
        length = sqrt(sum(alike[one][other] for one in those for other in those))
        for example in those:
            vote(example, place, 1 / length if length else 0.0)
    for example in _round_robin(members) * PASSES if len(members) > 1 else ():
        own = examples.own[example]
        score, rival = max((scores[place][example], place) for place in members if place != own)
        missing = MARGIN + score - scores[own][example]
        if missing > 0:
            vote(example, own, missing / 2)
            vote(example, rival, -missing / 2)
    return votes, scores


def _added(before: list[float], by: float, row: Row) -> list[float]:
    return [score + by * each for score, each in zip(before, row, strict=True)]


def _members(examples: Examples, kept: Iterable[int]) -> dict[int, list[int]]:
    members: dict[int, list[int]] = {}
    for example in kept:
        members.setdefault(examples.own[example], []).append(example)
    return members


def _round_robin(members: dict[int, list[int]]) -> list[int]:
    """Return one example of each capability, then the next of each, so that none is learnt long before another."""
    longest = max(map(len, members.values()))
    return [those[turn] for turn in range(longest) for those in members.values() if turn < len(those)]


class _Known(NamedTuple):
    """The scores of a held-out text, the index of its capability, and whether any capability seems to match."""

    scores: list[float]
    own: int
    in_scope: float


def _hold_out(
    examples: Examples, alike: Sequence[Row], meanings: Sequence[Row] | None
) -> tuple[list[_Known], list[float]]:
    """Return the scores of held-out utterances, and the best score of those whose capability was left out."""
    known: list[_Known] = []
    beside: list[float] = []
    for kept, held, others in _folds(examples):
        if len(known) >= ENOUGH_HELD_OUT:
            break
        _, scores = _train(examples, alike, kept)
        places = {place: rank for rank, place in enumerate(scores)}
        members = list(_members(examples, kept).values())

        def in_scope(row: Sequence[float], example: int, members: list[list[int]] = members) -> float:
            best = max(row)
            if meanings is None:
                return best
            return _in_scope(best, max(meanings[example][other] for other in members[row.index(best)]))

        for example in held:
            row = [each[example] for each in scores.values()]
            known.append(_Known(row, places[examples.own[example]], in_scope(row, example)))
        beside += (in_scope([each[example] for each in scores.values()], example) for example in others)
    return known, beside


def _folds(examples: Examples) -> Iterator[tuple[list[int], list[int], list[int]]]:
    """Yield new splits of the examples: training texts, texts held out of these, and texts of left-out capabilities."""
    members = _members(examples, range(len(examples.texts)))
    for fold in range(FOLDS):
        kept: list[int] = []
        held: list[int] = []
        others: list[int] = []
        for place, those in members.items():
            spoken = [example for example in those if examples.spoken[example]]
            if len(members) > 1 and place % FOLDS == fold:
                others += spoken
                continue
            step = min(FOLDS, len(those))
            out = spoken[fold % step :: step] if step > 1 else []
            held += out
            kept += (example for example in those if example not in out)
        yield kept, held, others


# How far each number may move from the usual one before it takes evidence: half the distance between the values for 3
# and for 150 capabilities. A handful of held-out texts, all unlike the rest, must not make every text seem to match a
# capability.
_SPREAD = Calibration(1.0, 6.0, 8.0)
# Newton's method doubles the correct digits in each step, once it is near.
_ROUNDS = 15


def _fit(usual: Calibration, known: Sequence[_Known], beside: Sequence[float], counts: float) -> Calibration:
    """Find the most likely numbers for the held-out texts; with few texts they stay near the *usual* ones."""
    scopes = [each.in_scope for each in known]
    bias, slope = _fit_scope(usual, scopes, beside, counts) if known and beside else usual[:2]
    # Even if a few held-out texts say otherwise, a better score never means a lower probability.
    return Calibration(bias, max(slope, 1.0), max(_fit_sharpness(usual.sharpness, known), 1.0))


def _fit_scope(
    usual: Calibration, known: Sequence[float], beside: Sequence[float], counts: float
) -> tuple[float, float]:
    """Fit a logistic function by Newton's method: best scores of texts that match a capability against those
    that do not.
    """
    weight = counts * len(known) / len(beside)
    points = [(score, 1.0, 1.0) for score in known] + [(score, 0.0, weight) for score in beside]
    bias, slope, _ = usual
    for _ in range(_ROUNDS):
        up, along = (usual.bias - bias) / _SPREAD.bias**2, (usual.slope - slope) / _SPREAD.slope**2
        upper, mixed, lower = 1 / _SPREAD.bias**2, 0.0, 1 / _SPREAD.slope**2
        for score, wanted, by in points:
            likely = _logistic(bias + slope * score)
            miss, bend = by * (wanted - likely), by * likely * (1 - likely)
            up, along = up + miss, along + miss * score
            upper, mixed, lower = upper + bend, mixed + bend * score, lower + bend * score * score
        area = upper * lower - mixed * mixed
        bias += _limited_step((lower * up - mixed * along) / area, _SPREAD.bias)
        slope += _limited_step((upper * along - mixed * up) / area, _SPREAD.slope)
    return bias, slope


def _fit_sharpness(usual: float, known: Sequence[_Known]) -> float:
    """Fit the sharpness by Newton's method, so that the probabilities are right as often as they say."""
    sharpness = usual
    for _ in range(_ROUNDS):
        along, bend = (usual - sharpness) / _SPREAD.sharpness**2, 1 / _SPREAD.sharpness**2
        for scores, own, _ in known:
            shares = _softmax(scores, sharpness)
            mean = sum(share * score for share, score in zip(shares, scores, strict=True))
            along += scores[own] - mean
            bend += sum(share * (score - mean) ** 2 for share, score in zip(shares, scores, strict=True))
        sharpness = max(sharpness + _limited_step(along / bend, _SPREAD.sharpness), 0.0)
    return sharpness


def _limited_step(wanted: float, most: float) -> float:
    """Limit the step: where the curve is flat, Newton's method overshoots."""
    return min(max(wanted, -most), most)


def _logistic(value: float) -> float:
    return 1 / (1 + exp(-max(value, -500.0)))


def _softmax(scores: Sequence[float], sharpness: float) -> list[float]:
    """Return the share of each score (softmax)."""
    best = max(scores)
    powers = [exp(max(sharpness * (score - best), -500.0)) for score in scores]
    total = sum(powers)
    return [power / total for power in powers]
