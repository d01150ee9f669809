"""How well contradictions between answers are found: precision and recall on labelled pairs, without a model."""

import tomllib
from pathlib import Path
from typing import Any, NamedTuple

from harness import Figure, at_least, at_most, main
from remit.protocol.orchestration import Step, Workflow
from remit.words.components import Component
from remit_orchestrator.text.conflicts import find
from remit_orchestrator.workflow_plan import questions

PARTS = (
    "develop",
    "held",
    "second",
    "third",
    "fourth",
    "fifth",
    "sixth",
    "seventh",
    "eighth",
    "ninth",
    "tenth",
    "eleventh",
    "twelfth",
)
PAIRS = Path(__file__).resolve().parents[1] / "packages/orchestrator/tests/judgement" / "conflicts.toml"


class Counts(NamedTuple):
    """How many pairs are said to contradict each other, and how many of each kind there are."""

    detected: int
    conflicting: int
    false_alarms: int
    harmless: int

    @property
    def precision(self) -> float:
        reported = self.detected + self.false_alarms
        return self.detected / reported if reported else 1.0

    @property
    def recall(self) -> float:
        return self.detected / self.conflicting


def labelled() -> dict[str, Any]:
    return tomllib.loads(PAIRS.read_text(encoding="utf-8"))


def contradict(one: Any, other: Any) -> bool:
    """Return whether two answers to one question are said to contradict each other."""
    return bool(find([Component("one", one), Component("other", other)]).conflicts)


def counts(part: dict[str, Any]) -> Counts:
    conflicting, harmless = part["conflicting"]["pairs"], part["harmless"]["pairs"]
    detected, alarms = (sum(contradict(*pair) for pair in pairs) for pairs in (conflicting, harmless))
    return Counts(detected, len(conflicting), alarms, len(harmless))


def alarms_between_capabilities(pairs: list[list[Any]]) -> int:
    """Return how many pairs of answers of two capabilities, asked for in one message, are said to contradict."""
    steps = (
        Step(name="one", capability="ONE", objective="both"),
        Step(name="other", capability="OTHER", objective="both"),
    )
    questions_by_step = questions(Workflow(name="message", steps=steps))
    components = [
        [
            Component(name, each, question=questions_by_step[name])
            for name, each in zip(questions_by_step, pair, strict=True)
        ]
        for pair in pairs
    ]
    return sum(bool(find(each).conflicts) for each in components)


def measure() -> list[Figure]:
    pairs = labelled()
    figures: list[Figure] = []
    for part in PARTS:
        counted = counts(pairs[part])
        figures += [
            Figure(name=f"conflicts, {part}: precision", value=counted.precision, unit="", bound=at_least(0.95)),
            Figure(name=f"conflicts, {part}: recall", value=counted.recall, unit="", bound=at_least(0.80)),
        ]
    alarms = alarms_between_capabilities(pairs["unrelated"]["pairs"])
    return [*figures, Figure(name="conflicts between two capabilities", value=alarms, unit="", bound=at_most(0))]


if __name__ == "__main__":
    main(measure)
