"""Whether a condition holds by a result: decided by a rule, or not at all."""

from typing import Any

import pytest

from labelled_cases import cases
from remit_orchestrator.text.conditions import is_about_success, rule


@pytest.mark.parametrize(
    ("clause", "result", "holds"),
    [
        *cases("conditions", "a_condition_is_decided_from_a_result_or_left_open"),
        *([*each, None] for each in cases("conditions", "a_condition_is_left_open")),
    ],
)
def test_a_condition_is_decided_from_a_result_or_left_open(clause: str, result: Any, holds: bool | None) -> None:
    assert rule(clause, result, clause).holds is holds


def test_a_ruling_quotes_what_decides_it() -> None:
    assert rule("it is positive", "Thank you. The test is negative.").because == "The test is negative."


@pytest.mark.parametrize(
    ("clause", "works"),
    [("that works", True), ("it fails", False), ("es nicht klappt", False), ("it is positive", None)],
)
def test_a_condition_may_ask_only_whether_something_worked(clause: str, works: bool | None) -> None:
    assert is_about_success(clause) is works
