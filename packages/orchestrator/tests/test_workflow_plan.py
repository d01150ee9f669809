"""Which steps of a workflow can begin (K8, X15): pure, from how the others ended."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from labelled_cases import cases
from remit.protocol.errors import Problem
from remit.protocol.orchestration import Step, Workflow
from remit.protocol.records import PlannedStep
from remit_orchestrator.workflow_plan import (
    NextSteps,
    StepOutcome,
    filled,
    holds,
    literal,
    needs,
    planned_steps,
    problems,
    questions,
    ready,
    references,
    waits_for,
)

DONE, FAILED, SKIPPED = StepOutcome(state="done"), StepOutcome(state="failed"), StepOutcome(state="skipped")
NOT_WANTED = StepOutcome(state="skipped", wanted=False)


def a_step(name: str, **fields: Any) -> Step:
    step_fields: dict[str, Any] = {"agent": "x"} | fields
    return Step(name=name, **step_fields)


def flow(*steps: Step, **fields: Any) -> Workflow:
    return Workflow(name="w", steps=steps, **fields)


def names(next_: NextSteps) -> tuple[list[str], list[str]]:
    return [step.name for step in next_.begin], [step.name for step, _ in next_.skip]


# ── ready ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_steps_that_wait_for_nothing_begin_at_once_and_side_by_side() -> None:
    """K8: parallel."""
    both = flow(a_step("a"), a_step("b"), a_step("c", after=("a", "b")))
    assert names(ready(both, {}, None)) == (["a", "b"], [])
    assert names(ready(both, {}, None, running=["a", "b"])) == ([], [])
    assert names(ready(both, {"a": DONE}, None, running=["b"])) == ([], [])
    assert names(ready(both, {"a": DONE, "b": DONE}, None)) == (["c"], [])


def test_steps_are_recorded_with_what_they_wait_for_in_the_order_of_the_workflow() -> None:
    steps = (a_step("a"), a_step("b"), a_step("c", after=("b", "a"), when="a.n > 1", optional=True, attempts=2))
    waits = {step.name: waits_for(step) for step in steps}
    planned = planned_steps(flow(*steps), waits, lambda step: f"Do {step.name}")
    assert planned[2] == PlannedStep(
        name="c", title="Do c", agent="x", after=("a", "b"), when="a.n > 1", optional=True, attempts=2
    )
    assert [each.after for each in planned] == [(), (), ("a", "b")]


def test_a_step_waits_for_what_it_refers_to() -> None:
    """K8: sequential, each step with what came before."""
    step = a_step("c", objective="use {a}", input={"v": ["{b.x}"], "{d}": 1, "n": 2}, when="e.n > 1 and not f.failed")
    assert waits_for(step) == {"a", "b", "d", "e", "f"}
    assert needs(step) == {"a", "b", "d", "e"}


def test_of_several_inputs_the_one_that_is_missing_is_named() -> None:
    """K10: partial failure."""
    plan = flow(a_step("a"), a_step("b"), a_step("c", input=["{a}", "{b}"]))
    next_steps = ready(plan, {"a": DONE, "b": FAILED}, None)
    assert [each.why for _, each in next_steps.skip] == ["it needs the result of `b`, which failed"]


def test_input_and_request_are_no_steps() -> None:
    step = a_step("a", objective="{request}", input="{input.x}", when="input.x == 1 or true")
    assert waits_for(step) == frozenset()


@pytest.mark.parametrize(("ended", "why"), [(FAILED, "which failed"), (SKIPPED, "which was skipped")])
def test_a_step_whose_input_is_missing_is_skipped_and_says_why(ended: StepOutcome, why: str) -> None:
    """K10: partial failure."""
    next_steps = ready(flow(a_step("a"), a_step("b", input="{a}")), {"a": ended}, None)
    assert [(step.name, each.why, each.wanted) for step, each in next_steps.skip] == [
        ("b", f"it needs the result of `a`, {why}", True)
    ]


def test_a_step_after_one_that_failed_is_skipped_unless_that_was_optional_or_it_asks_about_it() -> None:
    after = a_step("b", after=("a",))
    assert names(ready(flow(a_step("a"), after), {"a": FAILED}, None)) == ([], ["b"])
    assert names(ready(flow(a_step("a", optional=True), after), {"a": FAILED}, None)) == (["b"], [])
    asking = a_step("b", after=("a",), when="a.failed")
    assert names(ready(flow(a_step("a"), asking), {"a": FAILED}, None)) == (["b"], [])
    assert names(ready(flow(a_step("a"), after), {"a": NOT_WANTED}, None)) == (["b"], [])


def test_a_condition_decides_whether_a_step_is_done() -> None:
    """X15: conditional delegation."""
    both = flow(a_step("a"), a_step("b", when="a.n > 1"))
    assert names(ready(both, {"a": StepOutcome(state="done", result={"n": 2})}, None)) == (["b"], [])
    skipped = ready(both, {"a": StepOutcome(state="done", result={"n": 1})}, None).skip
    assert (skipped[0][1].why, skipped[0][1].wanted) == ("its condition does not hold: a.n > 1", False)


@given(st.integers(1, 8), st.randoms())
def test_whatever_ends_how_every_step_is_begun_or_skipped_once_and_none_before_its_needs(
    size: int, chance: Any
) -> None:
    steps = [
        a_step(
            f"s{place}", after=tuple(f"s{n}" for n in range(place) if chance.random() < 0.4), optional=place % 2 == 0
        )
        for place in range(size)
    ]
    chance.shuffle(steps)
    whole = flow(*steps)
    ended: dict[str, StepOutcome] = {}
    while len(ended) < size:
        next_steps = ready(whole, ended, None)
        assert next_steps.begin or next_steps.skip
        for step in next_steps.begin:
            assert waits_for(step) <= ended.keys()
            ended[step.name] = chance.choice([DONE, FAILED])
        ended |= {step.name: each for step, each in next_steps.skip}
    assert ready(whole, ended, None) == NextSteps()


# ── references ────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("{a}", {"n": [1, {"x": "y"}], "t": "text"}),
        ("{a.n}", [1, {"x": "y"}]),
        ("{a.n.1.x}", "y"),
        ("{a.n.7}", None),
        ("{a.t.u}", None),
        ("{a.missing}", None),
        ("n is {a.n.0}, not {a.missing}.", "n is 1, not ."),
        ({"k": ["{a.t}"], "{a.t}": 1}, {"k": ["text"], "text": 1}),
        (("{a.t}", 2), ["text", 2]),
        ("{other} and {", "{other} and {"),
        ("{other}", "{other}"),
        ("{{a}}", "{a}"),
        ("{{a.t}} is {a.t}, {{{a}}} is {{a}}", "{a.t} is text, {{a}} is {a}"),
        ('{"t": {a.t}}', '{"t": text}'),
        ("{{a.t}", "{text"),
        ({"{{a}}": "{{other}}"}, {"{a}": "{other}"}),
        (7, 7),
    ],
)
def test_references_become_what_they_stand_for(value: Any, expected: Any) -> None:
    assert filled(value, {"a": {"n": [1, {"x": "y"}], "t": "text"}}) == expected


def test_what_is_meant_as_it_stands_is_no_reference() -> None:
    assert list(references("{{a}} and {{{b.c}}} and {d} and {{e}")) == [("d", ""), ("e", "")]


TEXTS = st.text(st.sampled_from("{}ab.1 "))
VALUES = st.recursive(
    TEXTS | st.integers(), lambda some: st.lists(some, max_size=3) | st.dictionaries(TEXTS, some, max_size=3)
)


@given(VALUES)
def test_what_somebody_else_wrote_comes_back_as_it_was(value: Any) -> None:
    kept = literal(value)
    assert list(references(kept)) == []
    assert filled(kept, {"a": 1, "b": {"a": 2}}) == value


def test_a_text_of_braces_takes_no_longer_than_another() -> None:
    """Would take minutes, and so end by the time limit of tests, if each brace were tried against all that follow."""
    braces = "{" * 200_000 + "a" + "{a" * 50_000
    assert filled(braces, {"a": 1}) == literal(braces) == braces


# ── conditions ────────────────────────────────────────────────────────────────────────────────────────────────────────

ENDED = {
    "a": StepOutcome(state="done", result={"n": 2, "tags": ["x"], "word": "yes", "none": None}, confidence=0.9),
    "b": FAILED,
    "c": SKIPPED,
    "d": StepOutcome(state="partial", result=5),
}


@pytest.mark.parametrize(
    ("condition", "expected"),
    cases("workflow_plan", "a_condition_is_read_as_it_looks"),
)
def test_a_condition_is_read_as_it_looks(condition: str, expected: bool) -> None:
    assert holds(condition, ENDED, {"x": 1}) is expected


@pytest.mark.parametrize(
    "condition",
    [
        "",
        "a.n >",
        "a.f()",
        "a['x']",
        "lambda: 1",
        "a.n + 1 > 2",
        "__import__('os')",
        "(a := 1)",
        "-a.n > 0",
        "b'x'",
        "f'{a}'",
        "a.n if a.ok else 1",
        "~a.n",
        "'x'.y == 1",
        "a is b",
        "1 .real",
        "(" * 300,
        "\0",
    ],
)
def test_what_is_no_condition_is_refused_before_anything_runs(condition: str) -> None:
    (problem,) = problems(flow(a_step("a"), a_step("z", when=condition)))
    assert problem.path == "steps.z.when"


# ── what is wrong ─────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_sound_workflow_has_no_problems() -> None:
    sound = flow(
        a_step("a", fallback=("y",), share=0.5),
        a_step("b", agent=None, capability="C", input="{a}", share=0.5),
        a_step("c", after=("b",), when="b.ok", tokens=10),
        result="c",
    )
    assert problems(sound, agents={"x": ["C"], "y": []}, capabilities=["C"]) == ()


@pytest.mark.parametrize(
    ("workflow", "path", "message"),
    [
        (flow(), "steps", "at least one"),
        (flow(a_step("a"), a_step("a")), "steps.a", "two steps"),
        (flow(a_step("input")), "steps.input", "is reserved"),
        (flow(a_step("abcd"), result="abce"), "result", "did you mean"),
        (flow(a_step("abcd"), a_step("b"), compare=("b", "abce")), "compare", "did you mean"),
        (flow(a_step("a"), a_step("b"), compare=("a", "a")), "compare", "at least two"),
        (flow(a_step("a", share=0.6), a_step("b", share=0.6)), "steps", "add up to more than 1"),
        (flow(a_step("a", agent=None)), "steps.a", "set `agent` or `capability`"),
        (flow(a_step("a", agent="q")), "steps.a.agent", "there is no agent `q`"),
        (flow(a_step("a", fallback=("q",))), "steps.a.fallback", "there is no agent `q`"),
        (flow(a_step("a", capability="D")), "steps.a.capability", "there is no capability `D`"),
        (flow(a_step("a", capability="E")), "steps.a.capability", "no agent has the capability `E`"),
        (flow(a_step("a", agent="y", capability="C")), "steps.a.agent", "`y` does not have the capability `C`"),
        (flow(a_step("a", capability="C", fallback=("y",))), "steps.a.fallback", "`y` does not have"),
        (flow(a_step("a", share=0.5, tokens=5)), "steps.a.share", "either"),
        (flow(a_step("a", after=("b",))), "steps.a.after", "there is no step `b`"),
        (flow(a_step("a", after=("a",))), "steps.a.after", "a step cannot wait for itself"),
        (flow(a_step("a", objective="{b}")), "steps.a.objective", "there is no step `b`"),
        (flow(a_step("a", input=["{b.x}"])), "steps.a.input", "there is no step `b`"),
        (flow(a_step("a", when="b.ok")), "steps.a.when", "there is no step `b`"),
        (flow(a_step("a", after=("b",)), a_step("b", input="{a}"), a_step("c")), "steps", "wait for each other: a, b"),
    ],
)
def test_what_is_wrong_is_said_with_its_place(workflow: Workflow, path: str, message: str) -> None:
    (problem,) = problems(workflow, agents={"x": ["C"], "y": []}, capabilities=["C", "E"])
    assert problem.path == path
    assert message in problem.message


def test_an_agent_of_which_nothing_is_known_may_have_a_capability() -> None:
    step = a_step("a", capability="C", fallback=("y",))
    assert problems(flow(step), agents={"x": None, "y": ["C"]}, capabilities=["C"]) == ()
    assert problems(flow(step)) == ()


def test_everything_that_is_wrong_is_said_at_once() -> None:
    wrong = flow(a_step("a", agent="q", after=("n",)), a_step("b", when="("))
    defects = problems(wrong, agents={"x": None})
    assert [problem.path for problem in defects] == ["steps.a.agent", "steps.a.after", "steps.b.when"]
    assert all(isinstance(problem, Problem) for problem in defects)


# ── which results are compared ────────────────────────────────────────────────────────────────────────────────────────


def test_steps_that_ask_the_same_answer_one_question_and_others_do_not() -> None:
    """K9: what two capabilities say of one message is about two things."""
    questions_by_step = questions(
        flow(
            a_step("a", objective="When does it leave?"),
            a_step("b", objective="When does it leave?", agent="y"),
            a_step("c", objective="When does it leave?", capability="TIME"),
            a_step("d", capability="TIME", input={"train": 1}),
            a_step("e", capability="TIME", input={"train": 2}),
            a_step("f"),
            a_step("g"),
        )
    )
    assert questions_by_step["a"] == questions_by_step["b"]
    assert len(set(questions_by_step.values())) == 6


def test_steps_that_a_workflow_compares_answer_one_question_with_all_that_ask_the_same() -> None:
    questions_by_step = questions(
        flow(a_step("a"), a_step("b", objective="o"), a_step("c", objective="o"), a_step("d"), compare=("a", "b"))
    )
    assert questions_by_step["a"] == questions_by_step["b"] == questions_by_step["c"] != questions_by_step["d"]
