"""Trains the weights by which `remit.classifiers.clarity` tells clear texts from foreign ones by words.

It takes data_full.json of CLINC150 from github.com/clinc/oos-eval, with domains.json beside it. Teams are drawn by lot:
5 to 12 intents of one to three domains, with 3 to 7 examples each. Foreign texts are those of other intents, of the
same domains as well, and those of the set that are for none. The weights are printed: the bias first, then one for
each signal.
"""

import argparse
import math
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from random import Random

import msgspec

from remit.classifiers.clarity import WordSignals
from remit.classifiers.words import WordClassifier
from remit.protocol.card import Capability

Sample = tuple[str, str]
# How much a foreign text of the same domain counts: people seldom ask for what is so near.
NEAR = 0.5
ROUNDS = 25
RIDGE = 1.0


class Clinc(msgspec.Struct):
    """The texts of CLINC150 with their intents."""

    train: list[Sample]
    val: list[Sample]
    test: list[Sample]
    oos_val: list[Sample]
    oos_test: list[Sample]


def drawn(data: Clinc, domains: dict[str, list[str]], teams: int) -> Iterator[tuple[WordSignals, bool, float]]:
    """Yield the signals of texts for many teams, whether each is clear, and its weight."""
    lot = Random(1)
    train, test = defaultdict[str, list[str]](list), defaultdict[str, list[str]](list)
    for kept, samples in ((train, data.train), (test, data.test + data.val)):
        for text, intent in samples:
            kept[intent].append(text)
    others = [text for text, _ in data.oos_test + data.oos_val]
    for _ in range(teams):
        size, shots = lot.randint(5, 12), lot.randint(3, 7)
        named = lot.sample(sorted(domains), lot.choice((1, 1, 2, 3)))
        pool = [intent for domain in named for intent in domains[domain]]
        intents = lot.sample(pool, min(size, len(pool) - 2))
        near = [intent for intent in pool if intent not in intents]
        far = [intent for domain in domains if domain not in named for intent in domains[domain]]
        classifier = WordClassifier(
            Capability(code=intent, examples=tuple(lot.sample(train[intent], shots))) for intent in intents
        )
        texts = [(text, True, 1.0) for intent in intents for text in lot.sample(test[intent], 8)]
        texts += [(lot.choice(test[lot.choice(near)]), False, NEAR) for _ in range(35)]
        texts += [(lot.choice(test[lot.choice(far)]), False, 1.0) for _ in range(35)]
        texts += [(text, False, 1.0) for text in lot.sample(others, 25)]
        for text, clear, counts in texts:
            if (signals := classifier.signals(text)) is not None:
                yield signals, clear, counts


def fitted(rows: list[tuple[WordSignals, bool, float]]) -> list[float]:
    """Return the weights of a logistic regression, found by Newton's method."""
    size = 1 + len(WordSignals._fields)
    weights = [0.0] * size
    for _ in range(ROUNDS):
        gradient = [0.0, *(-RIDGE * each for each in weights[1:])]
        bend = [[RIDGE if one == other > 0 else 0.0 for other in range(size)] for one in range(size)]
        for signals, clear, counts in rows:
            row = (1.0, *signals)
            likely = 1 / (1 + math.exp(-sum(weight * each for weight, each in zip(weights, row, strict=True))))
            for one in range(size):
                gradient[one] += counts * (clear - likely) * row[one]
                for other in range(size):
                    bend[one][other] += counts * likely * (1 - likely) * row[one] * row[other]
        weights = [weight + step for weight, step in zip(weights, solved(bend, gradient), strict=True)]
    return weights


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
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path, help="data_full.json of CLINC150; never committed")
    parser.add_argument("--teams", type=int, default=40)
    arguments = parser.parse_args()
    data = msgspec.json.decode(arguments.data.read_bytes(), type=Clinc)
    domains = msgspec.json.decode(arguments.data.with_name("domains.json").read_bytes(), type=dict[str, list[str]])
    weights = fitted(list(drawn(data, domains, arguments.teams)))
    print(f"_BY_WORDS = ({', '.join(f'{weight:.2f}' for weight in weights)})")


if __name__ == "__main__":
    main()
