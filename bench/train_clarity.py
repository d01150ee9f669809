"""Trains the weights by which `remit_orchestrator.classifiers.clarity` tells clear texts from vague and foreign ones.

It takes data_full.json of CLINC150 from github.com/clinc/oos-eval, with domains.json beside it. Teams are drawn by lot:
5 to 12 intents of one to three domains, with 3 to 7 examples each, and some with the name of the intent as description.
In every second team the examples of an intent have few words in common, as when one person writes them down.

Clear texts are those of the team's intents for which the classifier finds the right one. Foreign texts are those of
other intents, of the same domains as well, and those of the set that are for none. Vague texts name subjects of the
team in sentences that say nothing of what is to be done. Texts that are known as bare mentions by their form are left
out, because a rule decides about these.

The weights are printed as `clarity.py` has them: the bias first, then one for each signal. With 40 teams, words take
half a minute and embeddings about ten. Embeddings need the extra `intent`.
"""

import argparse
import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Literal, NamedTuple

import msgspec

from intent import classifiers
from remit.protocol.card import Capability
from remit_orchestrator.classifiers.embeddings import Embeddings
from remit_orchestrator.classifiers.words import WordClassifier
from remit_orchestrator.text.classification import content_words, only_mentions

Sample = tuple[str, str]
# Foreign is the last: its weights are 0, and those of the others are relative to it.
Kind = Literal["clear", "vague", "foreign"]
MEANING: tuple[Kind, ...] = ("clear", "vague", "foreign")
WORDS: tuple[Kind, ...] = ("clear", "foreign")
# How much a foreign text of the same domain counts: people seldom ask for what is so near.
NEAR = 0.5
ROUNDS = 15
RIDGE = 1.0
# Of so many texts the next example of a varied intent is the one that has the fewest words in common with the others.
CANDIDATES = 8
# Other sentences than those of `clarity.bare_mentions`, with which texts are compared.
VAGUE = (
    "{}",
    "the {}",
    "something about my {}",
    "it is about the {}",
    "I need help with the {}",
    "a question concerning {}",
    "{} please",
    "regarding {}",
    "there is a problem with my {}",
    "hello, about that {}",
    "one thing about the {}",
    "help with {}",
    "{} again",
    "so, the {}",
    "what about my {}",
    "can you help me with my {}",
    "there is something wrong with the {}",
    "my {} from yesterday",
)


class Clinc(msgspec.Struct):
    """The texts of CLINC150 with their intents."""

    train: list[Sample]
    val: list[Sample]
    test: list[Sample]
    oos_val: list[Sample]
    oos_test: list[Sample]


class Labelled(NamedTuple):
    """A text with its kind, the intent that it asks for, and how much it counts."""

    text: str
    kind: Kind
    intent: str = ""
    counts: float = 1.0


class Row(NamedTuple):
    """The signals of a text, its kind, and how much it counts."""

    signals: Sequence[float]
    kind: Kind
    counts: float


def drawn(
    data: Clinc, domains: dict[str, list[str]], teams: int, lot: Random
) -> Iterator[tuple[list[Capability], list[Labelled]]]:
    """Yield teams with the texts that are said to them."""
    train, test = defaultdict[str, list[str]](list), defaultdict[str, list[str]](list)
    for kept, samples in ((train, data.train), (test, data.test + data.val)):
        for text, intent in samples:
            kept[intent].append(text)
    others = [text for text, _ in data.oos_test + data.oos_val]
    for team in range(teams):
        size, shots = lot.randint(5, 12), lot.randint(3, 7)
        named = lot.sample(sorted(domains), lot.choice((1, 1, 2, 3)))
        pool = [intent for domain in named for intent in domains[domain]]
        intents = lot.sample(pool, min(size, len(pool) - 2))
        near = [intent for intent in pool if intent not in intents]
        far = [intent for domain in domains if domain not in named for intent in domains[domain]]
        described, varied = lot.random() < 0.6, team % 2 == 1
        capabilities = [
            Capability(
                code=intent,
                description=intent.replace("_", " ") if described else "",
                examples=tuple(various(train[intent], shots, lot) if varied else lot.sample(train[intent], shots)),
            )
            for intent in intents
        ]
        texts = [Labelled(text, "clear", intent) for intent in intents for text in lot.sample(test[intent], 8)]
        texts += [Labelled(lot.choice(test[lot.choice(near)]), "foreign", counts=NEAR) for _ in range(35)]
        texts += [Labelled(lot.choice(test[lot.choice(far)]), "foreign") for _ in range(35)]
        texts += [Labelled(text, "foreign") for text in lot.sample(others, 25)]
        texts += [Labelled(text, "vague") for text in vague(capabilities, 50, lot)]
        yield capabilities, texts


def various(texts: Sequence[str], count: int, lot: Random) -> list[str]:
    """Return some of the texts, which have few words in common."""
    chosen = [lot.choice(texts)]
    while len(chosen) < count:
        words = {word for text in chosen for word in text.split()}
        others = [text for text in lot.sample(texts, CANDIDATES) if text not in chosen]
        chosen.append(min(others, key=lambda text: len(words.intersection(text.split())) / len(text.split())))
    return chosen


def vague(capabilities: Iterable[Capability], count: int, lot: Random) -> Iterator[str]:
    """Yield texts that name subjects of a team's examples."""
    examples = [example for each in capabilities for example in each.examples]
    words = sorted({word for example in examples for word in content_words(example)})
    pairs = sorted(
        f"{one} {other}" for text in examples for one, other in pairwise(text.split()) if {one, other} <= set(words)
    )
    for _ in range(count):
        yield lot.choice(VAGUE).format(lot.choice(pairs if pairs and lot.random() < 0.35 else words))


def rows(classifier: WordClassifier | Embeddings, texts: Iterable[Labelled]) -> Iterator[Row]:
    """Yield the signals of the texts that the weights decide about."""
    for text, kind, intent, counts in texts:
        scores, signals = classifier.compared(text)
        if signals is None or only_mentions(text) or (kind == "clear" and scores[0].code != intent):
            continue
        yield Row(signals, kind, counts)


def fitted(training: Sequence[Row], kinds: Sequence[Kind]) -> list[list[float]]:
    """Return the weights of each kind but the last by a multinomial logistic regression, with Newton's method."""
    size = 1 + len(training[0].signals)
    count = size * (len(kinds) - 1)
    weights = [0.0] * count
    for _ in range(ROUNDS):
        gradient = [0.0 if place % size == 0 else -RIDGE * each for place, each in enumerate(weights)]
        bend = [[RIDGE if one == other and one % size else 0.0 for other in range(count)] for one in range(count)]
        for signals, kind, counts in training:
            row = (1.0, *signals)
            powers = [
                math.exp(sum(weights[start + place] * each for place, each in enumerate(row)))
                for start in range(0, count, size)
            ]
            likely = [power / (1 + sum(powers)) for power in powers]
            for one, share in enumerate(likely):
                miss = counts * ((kinds[one] == kind) - share)
                for place, each in enumerate(row):
                    gradient[one * size + place] += miss * each
                for other, another in enumerate(likely):
                    by = counts * share * ((one == other) - another)
                    for place, each in enumerate(row):
                        line, start, scaled = bend[one * size + place], other * size, by * each
                        for beside, value in enumerate(row):
                            line[start + beside] += scaled * value
        weights = [weight + step for weight, step in zip(weights, solved(bend, gradient), strict=True)]
    return [weights[start : start + size] for start in range(0, count, size)]


def solved(matrix: list[list[float]], wanted: list[float]) -> list[float]:
    """Solve a small system of equations with a positive definite matrix by elimination."""
    rows = [[*row, value] for row, value in zip(matrix, wanted, strict=True)]
    for place, pivot in enumerate(rows):
        pivot[:] = [each / pivot[place] for each in pivot]
        for row in rows:
            if row is not pivot:
                row[:] = [each - row[place] * by for each, by in zip(row, pivot, strict=True)]
    return [row[-1] for row in rows]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, help="data_full.json of CLINC150; never committed")
    parser.add_argument("--teams", type=int, default=40)
    arguments = parser.parse_args()
    data = msgspec.json.decode(arguments.data.read_bytes(), type=Clinc)
    domains = msgspec.json.decode(arguments.data.with_name("domains.json").read_bytes(), type=dict[str, list[str]])
    teams = list(drawn(data, domains, arguments.teams, Random(1)))
    makes: list[tuple[type[WordClassifier | Embeddings], tuple[Kind, ...], tuple[str, ...]]] = [
        (WordClassifier, WORDS, ("WORD_WEIGHTS",))
    ]
    if "embeddings" in classifiers():
        makes.append((Embeddings, MEANING, ("CLEAR_WEIGHTS", "VAGUE_WEIGHTS")))
    for make, kinds, names in makes:
        training = [row for team, texts in teams for row in rows(make(team), texts) if row.kind in kinds]
        for name, weights in zip(names, fitted(training, kinds), strict=True):
            print(f"{name} = ({', '.join(f'{weight:.2f}' for weight in weights)})", flush=True)


if __name__ == "__main__":
    main()
