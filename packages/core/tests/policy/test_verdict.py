"""Guards are asked in turn, and the first objection stands."""

from typing import Any

import pytest
from msgspec.structs import replace

from remit.policy.guards import judge
from remit.policy.limits import Limits
from remit.policy.verdict import (
    ALLOW,
    Allow,
    Ask,
    Facts,
    Guard,
    Refuse,
    Rewrite,
    Verdict,
    judges_answers,
    on_answer,
    refuse,
)
from remit.protocol.envelope import AnswerContent, Request
from remit.protocol.errors import Code, fault
from samples import a_card, a_remit, a_request, code_of

FACTS = Facts(target=a_card())
REFUSAL = refuse(Code.PERMISSION_DENIED, "no")


def allows(request: Request, facts: Facts) -> Verdict:
    return ALLOW


def allows_in_its_own_words(request: Request, facts: Facts) -> Verdict:
    return Allow()


def refuses(request: Request, facts: Facts) -> Verdict:
    return REFUSAL


def asks(request: Request, facts: Facts) -> Verdict:
    return Ask(f"May {request.origin} ask {request.target} to {request.objective}?")


def shortens(request: Request, facts: Facts) -> Verdict:
    return Rewrite(replace(request, objective=request.objective[:3]))


def marks(request: Request, facts: Facts) -> Verdict:
    return Rewrite(replace(request, objective=request.objective + "!"))


def test_a_request_that_nobody_objects_to_goes_on_as_it_is() -> None:
    assert judge(a_request(), FACTS, [allows, allows_in_its_own_words]) == Rewrite(a_request())


def test_without_guards_everything_goes_on() -> None:
    assert judge(a_request(), FACTS, []) == Rewrite(a_request())


def test_the_first_objection_stands() -> None:
    assert judge(a_request(), FACTS, [allows, refuses, asks]) == REFUSAL


def test_a_guard_may_want_a_person_to_agree() -> None:
    assert judge(a_request(), FACTS, [asks, refuses]) == Ask("May prime ask tag to Categorize?")


def test_each_guard_sees_what_the_ones_before_it_made_of_the_request() -> None:
    assert judge(a_request(), FACTS, [shortens, marks, asks]) == Ask("May prime ask tag to Cat!?")
    assert judge(a_request(), FACTS, [shortens, marks]) == Rewrite(a_request(objective="Cat!"))


def test_a_question_that_was_answered_with_yes_is_not_asked_again() -> None:
    approved = frozenset({"May prime ask tag to Categorize?"})
    assert judge(a_request(), Facts(target=a_card(), approved=approved), [asks]) == Rewrite(a_request())
    assert judge(a_request(), Facts(target=a_card(), approved=approved), [asks, refuses]) == REFUSAL
    other = a_request(objective="Extract")
    assert judge(other, Facts(target=a_card(), approved=approved), [asks]) == Ask("May prime ask tag to Extract?")


@pytest.mark.parametrize(
    "changes",
    [
        {"objective": "Redacted", "input": "Redacted", "hints": ("tax",)},
        {"remit": a_remit(tokens=1, time_ms=1, tools=frozenset({"read"}), may_delegate=False)},
    ],
)
def test_a_guard_may_rewrite_what_is_said_and_narrow_the_remit(changes: dict[str, Any]) -> None:
    rewritten = a_request(**changes)
    assert judge(a_request(), FACTS, [lambda request, facts: Rewrite(rewritten)]) == Rewrite(rewritten)


@pytest.mark.parametrize(
    "changes",
    [
        {"version": "1.1"},
        {"id": "r-2"},
        {"origin": "byte"},
        {"target": "byte"},
        {"capability": "TAG"},
        {"run": "run-2"},
        {"parent": "run-1"},
        {"session": "s-1"},
        {"parent_session": "s-0"},
        {"remit": a_remit(tokens=1_001)},
        {"remit": a_remit(user="u-2")},
        {"remit": a_remit(chain=())},
    ],
)
def test_no_guard_may_rewrite_the_route_or_widen_the_remit(changes: dict[str, Any]) -> None:
    """X10: not even a guard can make a request act for another user."""
    rewritten = a_request(**changes)
    assert code_of(judge(a_request(), FACTS, [lambda request, facts: Rewrite(rewritten)])) is Code.PERMISSION_DENIED


@pytest.mark.parametrize("nonsense", [None, True, "allow", Code.CANCELLED])
def test_what_is_no_verdict_is_no_yes(nonsense: Any) -> None:
    assert code_of(judge(a_request(), FACTS, [lambda request, facts: nonsense])) is Code.PERMISSION_DENIED


def test_a_refusal_carries_the_fault_of_its_code() -> None:
    assert refuse(Code.RATE_LIMITED, "too often", retry_after_ms=5, suggestion="Wait.") == Refuse(
        fault(Code.RATE_LIMITED, "too often", retry_after_ms=5, suggestion="Wait.")
    )


def test_the_defaults_of_a_team_are_those_of_the_design() -> None:
    """C6: depth 5, chain 10; X4: three at once; O10: 300 s for a run; K1: 30 s for a delegation."""
    limits = Limits()
    assert (limits.max_depth, limits.max_chain, limits.max_fan_out) == (5, 10, 3)
    assert (limits.root_time_ms, limits.delegation_time_ms) == (300_000, 30_000)
    assert (limits.root_tokens, limits.delegation_tokens, limits.context_tokens) == (1_000_000, None, 4_000)


# ── answers ───────────────────────────────────────────────────────────────────────────────────────────────────────────

ANSWER = AnswerContent("42", summary="It is 42")


def judged(*guards: Guard, approved: frozenset[str] = frozenset()) -> Rewrite | Refuse | Ask:
    request = a_request(act="answer", input=ANSWER.result)
    return judge(request, replace(FACTS, answer=ANSWER, approved=approved), guards)


def hides_result(request: Request, facts: Facts) -> Verdict:
    return Rewrite(replace(request, input="?"))


def hides_all(request: Request, facts: Facts) -> Verdict:
    return Rewrite(request, answer=AnswerContent("gone"))


def refuses_numbers(request: Request, facts: Facts) -> Verdict:
    return REFUSAL if facts.answer is None or "42" in f"{request.input}{facts.answer}" else ALLOW


def test_an_answer_passes_as_it_is_or_as_guards_change_it() -> None:
    assert judged(allows) == Rewrite(a_request(act="answer", input="42"), answer=ANSWER)
    assert judged(refuses_numbers, hides_all) == REFUSAL
    changed = judged(hides_result)
    assert isinstance(changed, Rewrite)
    assert (changed.request.input, changed.answer) == ("?", AnswerContent("?", summary="It is 42"))


def test_each_guard_sees_what_the_ones_before_it_made_of_an_answer_and_its_result() -> None:
    assert judged(hides_result, refuses_numbers) == REFUSAL, "the summary has it still"
    passed = judged(hides_all, refuses_numbers)
    assert isinstance(passed, Rewrite)
    assert (passed.request.input, passed.answer) == ("gone", AnswerContent("gone"))


def test_a_guard_judges_answers_if_it_says_so() -> None:
    def own(request: Request, facts: Facts) -> Verdict:
        return ALLOW

    assert not judges_answers(own)
    assert on_answer(own) is own
    assert judges_answers(own)
