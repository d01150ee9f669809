"""Requests of several parts: no part is dropped, and the plan is right."""

import pytest

from labelled_parts import LabelledPlans, judged, teams
from remit_orchestrator.classifiers.words import WordClassifier

# Of the texts of each team: those with all parts accounted for, and those with the right plan.
FLOORS = {
    "clinic": (10, 10),
    "warehouse": (10, 10),
    "travel": (9, 9),
    "property management": (7, 7),
    "theatre": (10, 8),
    "lorry garage": (9, 9),
    "restaurant": (9, 7),
    "school": (7, 7),
    "bank": (8, 7),
    "car workshop": (8, 7),
    "garden nursery": (9, 7),
    "swimming pool": (9, 9),
}


@pytest.mark.parametrize("team", teams(), ids=lambda team: team.name)
def test_by_words_no_part_is_dropped_and_the_plan_is_right(team: LabelledPlans) -> None:
    rows = judged(team, WordClassifier)
    accounted, right = FLOORS[team.name]
    assert sum(row.accounted for row in rows) >= accounted, [row for row in rows if not row.accounted]
    assert sum(row.right for row in rows) >= right, [row for row in rows if not row.right]
