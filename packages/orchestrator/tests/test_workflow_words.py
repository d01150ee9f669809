"""What is said of a workflow that cannot be carried out is said in words of workflows."""

from typing import Any

import pytest

from remit.protocol.errors import Problem
from remit.protocol.orchestration import Step, Workflow
from remit_orchestrator.workflow_plan import EXAMPLE, problems


def problems_in(**step: Any) -> tuple[Problem, ...]:
    step_fields: dict[str, Any] = {"name": "a", "agent": "tag", **step}
    return problems(Workflow(name="w", steps=(Step(**step_fields), Step(name="b", agent="tag"))))


@pytest.mark.parametrize(
    ("condition", "what"),
    [
        ("len(input) > 3", "a condition cannot contain calls"),
        ("b + 1 > 3", "a condition cannot contain arithmetic"),
        ("b[0] == 1", "a condition cannot contain brackets: `step.0` is the first of a list"),
        ("b is null", "a condition cannot contain `is`: `==` compares"),
        ("lambda: 1", "a condition cannot contain anything but comparisons"),
        ("b >", "invalid condition"),
    ],
)
def test_a_condition_that_cannot_be_read_is_answered_with_one_that_can(condition: str, what: str) -> None:
    assert problems_in(when=condition) == (Problem("steps.a.when", f"{what}; write it like {EXAMPLE}"),)


@pytest.mark.parametrize(("field", "value"), [("after", ("a",)), ("input", {"x": "{a}"}), ("when", "a.ok")])
def test_a_step_that_waits_for_itself_is_told_so(field: str, value: object) -> None:
    assert problems_in(**{field: value}) == (Problem(f"steps.a.{field}", "a step cannot wait for itself"),)


@pytest.mark.parametrize(
    ("wrong", "path"),
    [({"name": "a b"}, "steps[0].name"), ({"after": "b"}, "steps[0].after"), ({"share": 2}, "steps[0].share")],
)
def test_fields_that_a_program_wrote_wrong_are_named_before_anything_runs(wrong: dict[str, Any], path: str) -> None:
    assert [problem.path for problem in problems_in(**wrong)] == [path]
