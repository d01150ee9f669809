"""A classifier without dependencies: compares words, pairs of words and parts of words."""

import re
from array import array
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from math import log, sqrt
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
from remit_orchestrator.classifiers.learn import Calibration, Row, TrainedWeights, gather, learn
from remit_orchestrator.text.classification import Reading, ScoredCapability
from remit_orchestrator.text.vocabulary import COMMON_WORDS

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
    found: dict[str, dict[int, float]] = {}
    for vector, votes in zip(vectors, learned.votes, strict=True):
        for feature, weight in vector.items():
            places = found.setdefault(feature, {})
            for place, vote in votes:
                places[place] = places.get(place, 0.0) + weight * vote
    return {feature: tuple(places.items()) for feature, places in found.items()}


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
