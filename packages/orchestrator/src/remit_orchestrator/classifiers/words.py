"""A classifier without dependencies: compares words, pairs of words and parts of words."""

import re
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from heapq import nlargest
from math import exp, log, sqrt
from typing import NamedTuple
from unicodedata import normalize

from remit.protocol.card import Capability
from remit_orchestrator.classifiers.clarity import (
    WordSignals,
    clarity_by_words,
    everyday_requests,
    known_share,
    log_odds,
    stems_of,
)
from remit_orchestrator.text.classification import Reading, ScoredCapability
from remit_orchestrator.text.vocabulary import COMMON_WORDS

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
        ranked = nlargest(MOST_SCORED, shares, key=lambda each: each[1])
        return tuple(ScoredCapability(self.codes[place], likely * share) for place, share in ranked)


def gather(capabilities: Iterable[Capability]) -> Examples:
    """Return the training texts; capabilities with the same code are merged, and those without any text are
    left out.
    """
    texts_by_code: dict[str, dict[str, bool]] = {}
    for each in capabilities:
        texts = texts_by_code.setdefault(each.code, {})
        texts.update((text, True) for text in each.examples if text.strip())
        if each.description.strip():
            texts.setdefault(each.description, False)
    texts_by_code = {code: texts for code, texts in texts_by_code.items() if texts}
    most = max(1, MOST_EXAMPLES // max(1, len(texts_by_code)))
    chosen = [
        (text, place, spoken)
        for place, texts in enumerate(texts_by_code.values())
        for text, spoken in list(texts.items())[:most]
    ]
    return Examples(
        tuple(texts_by_code),
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


# A request is usually stated in the first paragraphs; the rest is the material to work on.
LONGEST_TEXT = 2_000
# Longer words are keys, addresses and nonsense.
LONGEST_WORD = 40

# The usual calibration for three to ten capabilities with two or three examples each, drawn from CLINC150.
_USUAL = Calibration(-1.1, 25.0, 34.0)

# Scripts written without spaces: each character counts as a word, and pairs of them as pairs of words.
_UNSPACED = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
_LETTER = rf"[^\s\x00-/:-@\[-`{{-\xa9\xab-\xb4\xb6-\xb9\xbb-\xbf\u2000-\u206f\u3000-\u303f{_UNSPACED}]"
_WORD = re.compile(rf"[{_UNSPACED}]|{_LETTER}+(?:'{_LETTER}+)*")
_DIGIT = re.compile(r"\d")
_ACCENT = re.compile("[\u0300-\u036f]")

# Words that say nothing about the request. A few examples do not show which words those are. So texts are weighted as
# if there were a hundred more, in which each of these words occurred thirty times, its pieces fifteen times, and each
# pair of them ten times. With three capabilities of one example each that gained three points of accuracy; with 150 of
# ten, none.
_OTHER_TEXTS = 100
_COMMON_IN = 30
_PIECE_IN = 15
_PAIR_IN = 10


_NOTHING = WordSignals(log_odds=-9.0, near=0.0, middle=0.0, beyond_everyday=0.0, known=0.0)


class WordClassifier:
    """Classifies by the words of capabilities' examples and descriptions."""

    def __init__(self, capabilities: Iterable[Capability]) -> None:
        examples = gather(capabilities)
        vocabulary = Vocabulary(examples.texts)
        vectors = [vocabulary.vector(text) for text in examples.texts]
        self._learned = learn(examples, alike(vectors), _USUAL)
        self._vocabulary = vocabulary
        self._weights = weights(vectors, self._learned)
        self._examples: dict[str, list[Mapping[str, float]]] = {code: [] for code in examples.codes}
        for place, vector in zip(examples.own, vectors, strict=True):
            self._examples[examples.codes[place]].append(vector)
        self._everyday = [vocabulary.vector(text) for text in everyday_requests()]
        self._known = stems_of(examples.texts)

    def scores(self, text: str) -> Sequence[ScoredCapability]:
        """Return the likeliest capabilities, best first; none for a text that has nothing in common with any."""
        return self._scored(self._vocabulary.vector(text))

    def read(self, text: str) -> Reading:
        """Return the likeliest capabilities, and how clearly the best is asked for."""
        scores, signals = self.compared(text)
        return Reading(scores, clarity_by_words(text, signals or _NOTHING, self._known))

    def compared(self, text: str) -> tuple[Sequence[ScoredCapability], WordSignals | None]:
        """Return the likeliest capabilities, and what the clarity of the text is judged by; None if there are none."""
        vector = self._vocabulary.vector(text)
        scores = self._scored(vector)
        return scores, self._signals(text, vector, scores) if scores else None

    def _signals(self, text: str, vector: Mapping[str, float], scores: Sequence[ScoredCapability]) -> WordSignals:
        alike = [_common_weight(each, vector) for each in self._examples[scores[0].code]]
        return WordSignals(
            log_odds=log_odds(sum(each.confidence for each in scores)),
            near=max(alike),
            middle=sum(alike) / len(alike),
            beyond_everyday=max(alike) - max(_common_weight(each, vector) for each in self._everyday),
            known=known_share(text, self._known),
        )

    def _scored(self, vector: Mapping[str, float]) -> Sequence[ScoredCapability]:
        scores = [0.0] * len(self._learned.codes)
        for feature, weight in vector.items():
            for place, counts in self._weights[feature]:
                scores[place] += weight * counts
        return self._learned.scored(scores)


def _common_weight(one: Mapping[str, float], other: Mapping[str, float]) -> float:
    return sum(weight * one.get(feature, 0.0) for feature, weight in other.items())


class Vocabulary:
    """The features of some texts, each weighted by how rare it is."""

    def __init__(self, texts: Sequence[str]) -> None:
        self._texts = len(texts) + _OTHER_TEXTS
        seen = Counter(feature for text in texts for counted in _features(text) for feature in counted)
        self._seen = {feature: self._rarity(feature, count) for feature, count in seen.items()}

    def vector(self, text: str) -> dict[str, float]:
        """Return the known features of a text with their weights.

        Words and pieces have the same total weight. An unknown feature is left out but keeps its share of the weight: a
        text that is mostly new is less similar to anything.
        """
        weighed: dict[str, float] = {}
        for counted in _features(text):
            known: list[tuple[str, float]] = []
            total = 0.0
            for feature, count in counted.items():
                rarity = self._seen.get(feature)
                if rarity is None:
                    weight = count * self._rarity(feature, 0)
                else:
                    weight = count * rarity
                    known.append((feature, weight))
                total += weight * weight
            length = sqrt(2 * total)
            weighed.update((feature, weight / length) for feature, weight in known)
        return weighed

    def _rarity(self, feature: str, seen: int) -> float:
        return log((self._texts + 1) / (seen + _assumed_texts(feature) + 0.5))


def alike(vectors: Sequence[Mapping[str, float]]) -> list[Row]:
    """Return how similar each vector is to each other one, by their common features."""
    rows = [array("d", bytes(8 * len(vectors))) for _ in vectors]
    where: dict[str, list[tuple[int, float]]] = {}
    for one, vector in enumerate(vectors):
        row = [0.0] * (one + 1)
        for feature, weight in vector.items():
            others = where.setdefault(feature, [])
            others.append((one, weight))
            for other, counts in others:
                row[other] += weight * counts
        for other, common in enumerate(row):
            rows[one][other] = rows[other][one] = common
    return list(rows)


def weights(
    vectors: Sequence[Mapping[str, float]], learned: TrainedWeights
) -> dict[str, tuple[tuple[int, float], ...]]:
    """Return how much each feature counts for each capability, from the votes of the examples that have it."""
    rows: dict[str, dict[int, float]] = {}
    for vector, votes in zip(vectors, learned.votes, strict=True):
        for feature, weight in vector.items():
            places = rows.setdefault(feature, {})
            for place, vote in votes:
                places[place] = places.get(place, 0.0) + weight * vote
    return {feature: tuple(places.items()) for feature, places in rows.items()}


def _features(text: str) -> tuple[Mapping[str, int], Mapping[str, int]]:
    """Count words, pairs of adjacent words, and pieces of three letters (which begin with #)."""
    words = _words(text)
    pairs = [f"{one} {other}" for one, other in zip(["", *words], [*words, ""], strict=True)] if words else []
    return Counter(words + pairs), Counter(piece for word in words for piece in _pieces(word))


def _words(text: str) -> list[str]:
    """Return the words in lower case without accents, with every digit as 0: only the fact that it is a number
    matters.
    """
    plain = normalize("NFC", _ACCENT.sub("", normalize("NFKD", text[:LONGEST_TEXT].casefold())))
    return [word[:LONGEST_WORD] for word in _WORD.findall(_DIGIT.sub("0", plain.replace("’", "'")))]


@lru_cache(4_096)
def _pieces(word: str) -> tuple[str, ...]:
    whole = f"<{word}>"
    return tuple(f"#{whole[start : start + 3]}" for start in range(len(whole) - 2))


def _assumed_texts(feature: str) -> int:
    """Return in how many of the assumed further texts a feature occurs."""
    common = _common()
    one, pair, other = feature.partition(" ")
    if pair:
        return _PAIR_IN if (not one or one in common) and (not other or other in common) else 0
    return common.get(feature, 0)


@lru_cache(1)
def _common() -> Mapping[str, int]:
    words = {word for each in COMMON_WORDS for word in _words(each)}
    return {piece: _PIECE_IN for word in words for piece in _pieces(word)} | dict.fromkeys(words, _COMMON_IN)
