"""When a call repeats an earlier one, exactly or nearly."""

from collections import Counter
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given

from remit.policy.repeats import (
    ANSWER_SHARE,
    CALL_SHARE,
    CallWords,
    EarlierAnswer,
    beside_of,
    call_key,
    call_key_of,
    call_keys_of,
    is_near,
    is_outdated,
    repeated_without_progress,
    words_of,
)
from remit.protocol.envelope import Call, Handoff, Json, View
from samples import a_request, a_response

KEY = call_key("shop", "ORDER", "get order", {"id": ["#W1", 2]})


def test_a_call_by_capability_has_the_keys_of_the_requests_that_may_come_of_it() -> None:
    call = Call(capability="SUM", objective=" Add up", input=[1, 2])
    sent = [a_request(target=name, capability="SUM", objective="add  UP", input=[1, 2]) for name in ("one", "two")]
    assert call_keys_of(call, ("one", "two")) == {call_key_of(request) for request in sent}


@pytest.mark.parametrize(
    ("objective", "given"),
    [
        ("get order", {"id": ["#W1", 2]}),
        (" Get\n ORDER ", {"id": ["#w1", 2]}),
        ("get order", {"id": [" #W1", 2]}),
    ],
)
def test_white_space_and_case_alone_make_no_other_call(objective: str, given: Json) -> None:
    """X5: the call key is target, capability, objective and input."""
    assert call_key("shop", "ORDER", objective, given) == KEY


@pytest.mark.parametrize(
    "other",
    [
        call_key("bank", "ORDER", "get order", {"id": ["#W1", 2]}),
        call_key("shop", None, "get order", {"id": ["#W1", 2]}),
        call_key("shop", "ORDER", "get orders", {"id": ["#W1", 2]}),
        call_key("shop", "ORDER", "get order", {"id": ["#W2", 2]}),
        call_key("shop", "ORDER", "get order", {"id": ["#W1", 3]}),
        call_key("shop", "ORDER", "get order", None),
    ],
)
def test_target_capability_objective_and_input_each_make_another_call(other: object) -> None:
    assert other != KEY


def test_an_answer_is_outdated_once_something_was_changed() -> None:
    request = a_request()
    earlier = EarlierAnswer(a_response(), 2, beside_of(request))
    assert not is_outdated(earlier, request, 2)
    assert is_outdated(earlier, request, 3)


@pytest.mark.parametrize(
    ("changes", "other"),
    [
        ({"handoff": Handoff(data={"rows": 1})}, True),
        ({"hints": ("table",)}, True),
        ({"session": "another"}, True),
        ({"view": View(summary="said")}, True),
        ({"handoff": Handoff(data={"rows": 2}, position="Step 2")}, False),
        ({"view": View(tokens=9)}, False),
        ({"objective": "  get  ORDER"}, False),
    ],
)
def test_what_else_a_callee_is_given_makes_an_earlier_answer_none_to_this(changes: dict[str, Any], other: bool) -> None:
    given: dict[str, Any] = {"handoff": Handoff(data={"rows": 2}), "view": View(), "parent": "r"}
    first = a_request(**given)
    assert is_outdated(EarlierAnswer(a_response(), 0, beside_of(first)), a_request(**given | changes), 0) is other


@pytest.mark.parametrize(
    ("one", "other", "near"),
    [
        ("find the file", "find the file", True),
        ("find the file", "find a file", True),
        ("find the file", "open the door", False),
        ("find the file", "", False),
        ("a b c d e f g h i j", "a b c d e f g x y z", True),
        ("a b c d e f g h i j", "a b c d e f w x y z", False),
    ],
)
def test_texts_are_near_that_differ_in_a_word_or_a_small_share_of_them(one: str, other: str, near: bool) -> None:
    assert is_near(words_of(one), words_of(other), CALL_SHARE) is near


def test_words_are_read_from_texts_and_values_alike() -> None:
    assert words_of("Open it", {"file": "base.py"}, None) == words_of("open it file base py")


def said(call: str, answer: str | None) -> CallWords:
    return CallWords(words_of(call), None if answer is None else words_of(answer))


FIND = "find the separable function in modeling"


@pytest.mark.parametrize(
    ("answers", "repeated"),
    [
        (["it is not there"] * 3, True),
        ([None] * 3, True),
        (["it is not there"] * 2, False),
        (["one is here", "the second lies elsewhere altogether", "it is not there"], False),
    ],
)
def test_a_fourth_call_that_is_nearly_the_same_repeats_unless_the_answers_differ(
    answers: list[str | None], repeated: bool
) -> None:
    earlier = [said(FIND, answer) for answer in answers]
    assert repeated_without_progress(words_of(FIND + "s"), earlier) is repeated
    assert ANSWER_SHARE > CALL_SHARE


def test_other_calls_in_between_do_not_count() -> None:
    earlier = [said("run all of the tests", "they pass")] * 5
    assert not repeated_without_progress(words_of(FIND), earlier)


@given(st.lists(st.sampled_from("abc")), st.lists(st.sampled_from("abc")), st.sampled_from([0.0, 0.3, 0.5, 1.0]))
def test_texts_are_near_if_they_share_enough_words_counting_each_as_often_as_it_stands_there(
    one: list[str], other: list[str], share: float
) -> None:
    left, right = Counter(one), Counter(other)
    longest = max(len(one), len(other))
    differ = longest - (left & right).total()
    assert is_near(left, right, share) == (differ <= max(1.0, share * longest))
