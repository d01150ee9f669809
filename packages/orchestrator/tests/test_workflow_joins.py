"""Steps that join after a condition (K8, X15): what stands for a step that was skipped, and what a failure stops."""

from typing import Any

import msgspec
import pytest

from remit.protocol.errors import Problem
from remit.protocol.orchestration import Step, Workflow
from remit_orchestrator.workflow_plan import NextSteps, StepOutcome, awaited, problems, ready, waits_for

DONE = StepOutcome(state="done", result=1)
FAILED = StepOutcome(state="failed")
NOT_WANTED = StepOutcome(state="skipped", wanted=False)
BLOCKED = StepOutcome(state="skipped")


def a_step(name: str, **fields: Any) -> Step:
    step_fields: dict[str, Any] = {"agent": "x"} | fields
    return Step(name=name, **step_fields)


def begun(next_: NextSteps) -> list[str]:
    return [step.name for step in next_.begin]


def after(a: Step, b: Step, ended: StepOutcome) -> NextSteps:
    return ready(Workflow(name="w", steps=(a, b)), {"a": ended}, None)


@pytest.mark.parametrize("fields", [{"input": "{a}"}, {"objective": "Use {a.n}"}, {"after": ("a",)}])
def test_a_step_whose_predecessor_was_not_wanted_begins(fields: dict[str, Any]) -> None:
    assert begun(after(a_step("a", when="false"), a_step("b", **fields), NOT_WANTED)) == ["b"]


@pytest.mark.parametrize("ended", [FAILED, BLOCKED])
@pytest.mark.parametrize("fields", [{"input": "{a}"}, {"after": ("a",)}])
def test_what_a_failure_stopped_stops_what_comes_after_it(fields: dict[str, Any], ended: StepOutcome) -> None:
    """A step two places behind one that failed is not begun either."""
    assert begun(after(a_step("a"), a_step("b", **fields), ended)) == []


@pytest.mark.parametrize("ended", [FAILED, BLOCKED])
@pytest.mark.parametrize("fields", [{"input": "{a}"}, {"after": ("a",)}])
def test_a_step_begins_without_what_is_optional(fields: dict[str, Any], ended: StepOutcome) -> None:
    assert begun(after(a_step("a", optional=True), a_step("b", **fields), ended)) == ["b"]


@pytest.mark.parametrize("ended", [DONE, FAILED, BLOCKED, NOT_WANTED])
@pytest.mark.parametrize("fields", [{}, {"input": "{a}"}])
def test_a_question_mark_means_however_it_ended(fields: dict[str, Any], ended: StepOutcome) -> None:
    step = a_step("b", after=("a?",), **fields)
    assert (awaited(step), waits_for(step)) == (("a",), {"a"})
    assert begun(ready(Workflow(name="w", steps=(a_step("a"), step)), {}, None, ["a"])) == []
    assert begun(after(a_step("a"), step, ended)) == ["b"]


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("a.n > 1", []),
        ("a.n == null", ["b"]),
        ("not a.n", ["b"]),
        ("a.ok", []),
        ("a.skipped", ["b"]),
    ],
)
def test_in_a_condition_a_part_of_a_step_that_was_skipped_is_null(condition: str, expected: list[str]) -> None:
    next_steps = after(a_step("a", when="false"), a_step("b", when=condition), NOT_WANTED)
    assert begun(next_steps) == expected
    assert all(not ended.wanted for _, ended in next_steps.skip)


def test_the_default_of_a_step_stands_for_it_in_conditions_too() -> None:
    steps = (a_step("a", when="false", default={"n": 5}), a_step("b", when="a.n > 1"))
    workflow = Workflow(name="w", steps=steps)
    [(_, skipped)] = ready(workflow, {}, None).skip
    assert skipped.result == {"n": 5}
    assert begun(ready(workflow, {"a": skipped}, None)) == ["b"]


def test_an_unknown_step_is_named_without_its_question_mark() -> None:
    wrong = Workflow(name="w", steps=(a_step("audit"), a_step("b", after=("audti?",))))
    assert problems(wrong) == (Problem("steps.b.after", "there is no step `audti`; did you mean `audit`?"),)


def test_only_one_question_mark_belongs_to_a_name() -> None:
    with pytest.raises(msgspec.ValidationError, match=r"\$\.after\[0\]"):
        msgspec.convert({"name": "b", "after": ["a??"]}, Step)
