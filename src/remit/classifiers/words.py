"""A classifier without dependencies: compares words, pairs of words and parts of words."""

import re
from array import array
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from math import log, sqrt
from unicodedata import normalize

from remit.classifiers.learn import Learned, Row, Sureness, gather, learn
from remit.protocol.card import Capability
from remit.text.intent import ScoredCapability

# A request is usually stated in the first paragraphs; the rest is the material to work on.
LONGEST_TEXT = 2_000
# Longer words are keys, addresses and nonsense.
LONGEST_WORD = 40

# The usual calibration for three to ten capabilities with two or three examples each, drawn from CLINC150.
_USUAL = Sureness(-1.1, 25.0, 34.0)

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
_COMMON = """
    the a an and or of to in on at for from with by is are was be been do does did have has had can could will would
    should may i you he she it we they me my your our this that these those what when where which who how why if not no
    so as about into up out please tell know want need like get give show help there let us am i'm i'd what's
    der die das den dem des ein eine einen einem einer und oder von zu zum zur in im auf an für mit bei aus ist sind war
    sein hat habe haben kann kannst können möchte will soll ich du er sie es wir ihr mich mir mein meine meinen dein
    bitte wie was wann wo wer warum welche nicht kein so dass wenn auch noch mal
    le la les un une des du de et ou à au aux en dans sur pour avec par est sont je tu il elle nous vous ils me moi mon
    ma mes ce cette ces que qui quoi quand où comment pourquoi quel quelle ne pas plus s'il plaît peux veux voudrais
    el los las unos unas y o del al en con por para es son está yo tú él ella nosotros mi mis su se lo que qué cuándo
    dónde cómo quién cuál no sí por favor puedo puedes quiero necesito
    il lo gli uno una e di da nel sul per con è sono ho io tu lui lei noi mi mio mia che chi quando dove come perché
    quale non vorrei posso puoi
    o os as um uma e ou do da dos das no na em para com por é são eu você ele ela meu minha que quando onde como quem
    não quero preciso posso pode
    de het een en of van naar op voor met is zijn heb heeft ik jij hij zij wij mijn jouw dit dat wat wanneer waar wie
    hoe waarom niet kan wil graag
"""


class WordClassifier:
    """Classifies by the words of capabilities' examples and descriptions."""

    def __init__(self, capabilities: Iterable[Capability]) -> None:
        examples = gather(capabilities)
        vocabulary = Vocabulary(examples.texts)
        vectors = [vocabulary.vector(text) for text in examples.texts]
        self._learned = learn(examples, alike(vectors), _USUAL)
        self._vocabulary = vocabulary
        self._weights = weights(vectors, self._learned)

    def scores(self, text: str) -> Sequence[ScoredCapability]:
        """Return the likeliest capabilities, best first; none for a text that has nothing in common with any."""
        scores = [0.0] * len(self._learned.codes)
        for feature, weight in self._vocabulary.vector(text).items():
            for place, counts in self._weights[feature]:
                scores[place] += weight * counts
        return self._learned.scored(scores)


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


def weights(vectors: Sequence[Mapping[str, float]], learned: Learned) -> dict[str, tuple[tuple[int, float], ...]]:
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
    words = {word for each in _COMMON.split() for word in _words(each)}
    return {piece: _PIECE_IN for word in words for piece in _pieces(word)} | dict.fromkeys(words, _COMMON_IN)
