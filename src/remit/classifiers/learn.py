"""Trains a classifier from the similarities of examples, with calibrated probabilities."""

from collections.abc import Iterable, Iterator, Sequence
from heapq import nlargest
from math import exp, sqrt
from typing import NamedTuple

from remit.protocol.card import Capability
from remit.text.intent import ScoredCapability

Row = Sequence[float]
"""How alike an example is to each: 1 says the same, 0 has nothing in common with it."""

# Learning takes memory and time for each pair of examples: here 32 MB and about five seconds.
MOST_EXAMPLES = 2_000
# People choose among three; two more show how much is left over.
MOST_SCORED = 5
# By how much an example must win, and how often all are gone through: of what was tried on CLINC150, with ten examples
# of each of 150 intents, the best by cross-validation for words as for embeddings. More passes gained nothing.
MARGIN = 0.4
PASSES = 3
FOLDS = 5
# So many held out tell three numbers well enough; more would only take time.
ENOUGH_HELD_OUT = 200
# Capabilities that are left out stand for what is none. They are nearer to the others than what people really say
# beside the point, so that they count as one text in ten; as one in five they made all confidences too low.
BESIDE_THE_POINT = 0.1


class Examples(NamedTuple):
    """Texts to learn from, each with the place of its capability among *codes*."""

    codes: tuple[str, ...]
    texts: tuple[str, ...]
    own: tuple[int, ...]
    spoken: tuple[bool, ...]
    """Whether the text is an utterance, and not a description."""


class Sureness(NamedTuple):
    """How scores become probabilities: the best says whether the text is for anyone, all of them say for whom."""

    bias: float
    slope: float
    sharpness: float


class Learned(NamedTuple):
    """What was learnt: how much each example votes for or against each capability, and how sure scores are."""

    codes: tuple[str, ...]
    votes: tuple[tuple[tuple[int, float], ...], ...]
    sureness: Sureness

    def scored(self, scores: Sequence[float]) -> tuple[ScoredCapability, ...]:
        """Return the likeliest of the capabilities with these scores, best first; none if nothing speaks for any."""
        best = max(scores, default=0.0)
        if best <= 0:
            return ()
        likely = _logistic(self.sureness.bias + self.sureness.slope * best)
        shares = enumerate(_shares(scores, self.sureness.sharpness))
        found = nlargest(MOST_SCORED, shares, key=lambda each: each[1])
        return tuple(ScoredCapability(self.codes[place], likely * share) for place, share in found)


def gather(capabilities: Iterable[Capability]) -> Examples:
    """Return what there is to learn from; capabilities of one code are one, and those that say nothing are left out."""
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


def learn(examples: Examples, alike: Sequence[Row], usual: Sureness) -> Learned:
    """Learn from how alike the examples are; *usual* is how sure scores are where there is little to tell it from."""
    votes, _ = _train(examples, alike, range(len(examples.texts)))
    sureness = _fit(usual, *_hold_out(examples, alike))
    return Learned(examples.codes, tuple(tuple(each.items()) for each in votes), sureness)


_Votes = list[dict[int, float]]
_Scores = dict[int, list[float]]
"""For each capability that was trained, the score of each example, be it trained or not."""


def _train(examples: Examples, alike: Sequence[Row], kept: Iterable[int]) -> tuple[_Votes, _Scores]:
    """Let the middle of each capability's examples stand for it; then help those that do not win clearly.

    Such an example votes for its own capability and against its rival, just enough to win (passive-aggressive
    learning). That was worth four points of accuracy over the middles alone, as much as logistic regression.
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
    for example in _in_turns(members) * PASSES if len(members) > 1 else ():
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


def _in_turns(members: dict[int, list[int]]) -> list[int]:
    """One of each capability, then the next of each, so that none is learnt long before another."""
    longest = max(map(len, members.values()))
    return [those[turn] for turn in range(longest) for those in members.values() if turn < len(those)]


class _Known(NamedTuple):
    """What a text scores that was not learnt from, and the place of the capability that it is for."""

    scores: list[float]
    own: int


def _hold_out(examples: Examples, alike: Sequence[Row]) -> tuple[list[_Known], list[float]]:
    """Return what utterances score that were held out, and the best score of those whose capability was left out."""
    known: list[_Known] = []
    beside: list[float] = []
    for kept, held, others in _folds(examples):
        if len(known) >= ENOUGH_HELD_OUT:
            break
        _, scores = _train(examples, alike, kept)
        places = {place: rank for rank, place in enumerate(scores)}
        for example in held:
            row = [each[example] for each in scores.values()]
            known.append(_Known(row, places[examples.own[example]]))
        beside += (max(each[example] for each in scores.values()) for example in others)
    return known, beside


def _folds(examples: Examples) -> Iterator[tuple[list[int], list[int], list[int]]]:
    """Split the examples anew each time: to learn from, held out of these, and of capabilities that are left out."""
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


# How far from the usual each may stray before it takes evidence; half as far as they lay apart for 3 and 150
# capabilities. A handful of texts held out, all unlike the rest, must not make anything at all seem to be for someone.
_SPREAD = Sureness(1.0, 6.0, 8.0)
# Newton's method doubles the right digits each time, once it is near.
_ROUNDS = 15


def _fit(usual: Sureness, known: Sequence[_Known], beside: Sequence[float]) -> Sureness:
    """Find the numbers under which what was held out is likeliest, and near the *usual* ones while it is little."""
    bias, slope = _fit_scope(usual, [max(each.scores) for each in known], beside) if known and beside else usual[:2]
    # Whatever the little that was held out may say, a better score never means less.
    return Sureness(bias, max(slope, 1.0), max(_fit_sharpness(usual.sharpness, known), 1.0))


def _fit_scope(usual: Sureness, known: Sequence[float], beside: Sequence[float]) -> tuple[float, float]:
    """Fit a logistic by Newton's method: best scores of texts that are for someone against those that are not."""
    weight = BESIDE_THE_POINT * len(known) / len(beside)
    points = [(score, 1.0, 1.0) for score in known] + [(score, 0.0, weight) for score in beside]
    bias, slope, _ = usual
    for _ in range(_ROUNDS):
        up, along = (usual.bias - bias) / _SPREAD.bias**2, (usual.slope - slope) / _SPREAD.slope**2
        upper, mixed, lower = 1 / _SPREAD.bias**2, 0.0, 1 / _SPREAD.slope**2
        for score, wanted, counts in points:
            likely = _logistic(bias + slope * score)
            miss, bend = counts * (wanted - likely), counts * likely * (1 - likely)
            up, along = up + miss, along + miss * score
            upper, mixed, lower = upper + bend, mixed + bend * score, lower + bend * score * score
        area = upper * lower - mixed * mixed
        bias += _step((lower * up - mixed * along) / area, _SPREAD.bias)
        slope += _step((upper * along - mixed * up) / area, _SPREAD.slope)
    return bias, slope


def _fit_sharpness(usual: float, known: Sequence[_Known]) -> float:
    """Fit the sharpness by Newton's method, so that the shares are as often right as they say."""
    sharpness = usual
    for _ in range(_ROUNDS):
        along, bend = (usual - sharpness) / _SPREAD.sharpness**2, 1 / _SPREAD.sharpness**2
        for scores, own in known:
            shares = _shares(scores, sharpness)
            mean = sum(share * score for share, score in zip(shares, scores, strict=True))
            along += scores[own] - mean
            bend += sum(share * (score - mean) ** 2 for share, score in zip(shares, scores, strict=True))
        sharpness = max(sharpness + _step(along / bend, _SPREAD.sharpness), 0.0)
    return sharpness


def _step(wanted: float, most: float) -> float:
    """Go no further at once: where the curve is flat, Newton's method leaps out of reach."""
    return min(max(wanted, -most), most)


def _logistic(value: float) -> float:
    return 1 / (1 + exp(-max(value, -500.0)))


def _shares(scores: Sequence[float], sharpness: float) -> list[float]:
    """What falls to each if one is shared out among all by their scores."""
    best = max(scores)
    powers = [exp(max(sharpness * (score - best), -500.0)) for score in scores]
    total = sum(powers)
    return [power / total for power in powers]
