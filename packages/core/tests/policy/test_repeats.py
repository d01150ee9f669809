"""When a call repeats an earlier one, exactly or nearly."""

from collections import Counter
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given

from remit.policy.repeats import (
    ANSWER_SHARE,
    CALL_SHARE,
    SHORT,
    ComparedContent,
    EarlierAnswer,
    PastCall,
    beside_of,
    call_key,
    call_key_of,
    call_keys_of,
    content_of_answer,
    content_of_call,
    is_alarming,
    is_outdated,
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


def test_a_call_that_may_change_something_is_outdated_by_other_changes_alone() -> None:
    earlier = EarlierAnswer(None, 2)
    assert not is_outdated(earlier, a_request(hints=("table",)), 2)
    assert is_outdated(earlier, a_request(), 3)


@pytest.mark.parametrize(
    ("one", "other", "near"),
    [
        ("find the file", " Find the\nfile", True),
        ("find the file", "find a file", False),
        ("find the file", "", False),
        ("a b c d e f g h i j", "a b c d e f g x y z", True),
        ("a b c d e f g h i j", "a b c d e f w x y z", False),
        ("show me page 1 of the list", "show me page 2 of the list", False),
        ("where does it call get_order in the shop", "where does it call put_order in the shop", False),
    ],
)
def test_texts_are_near_that_differ_in_few_words_and_in_no_number_or_identifier(
    one: str, other: str, near: bool
) -> None:
    assert ComparedContent(one).is_near(ComparedContent(other), CALL_SHARE) is near


@pytest.mark.parametrize(
    ("one", "other", "near"),
    [
        ({"page": 1}, {"page": 1}, True),
        ({"page": 1}, {"page": 2}, False),
        ({"note": "a b c d e f g h i j k"}, {"note": "a b c d e f g h i j l"}, False),
        (None, {}, False),
    ],
)
def test_inputs_are_near_only_if_they_are_equal(one: Json, other: Json, near: bool) -> None:
    assert content_of_call("find", one).is_near(content_of_call("find", other), 1.0) is near


LONG = "there are many words here of which none is a value so that it takes a while to read them all again"


@pytest.mark.parametrize(
    ("one", "other", "near"),
    [
        ("it is on its way", "it is at the door", False),
        (LONG, LONG.replace("many", "several"), True),
        (LONG, LONG.replace("many", "7"), False),
        (LONG, LONG.upper(), True),
        (f'{{"state": "{LONG}"}}', f'{{"state": "{LONG}"}}'.replace("many", "several"), False),
        ({"state": "on its way", "of": 9}, {"state": "at the door", "of": 9}, False),
        ([1, 2], [1, 2], True),
    ],
)
def test_a_short_answer_and_one_of_data_must_be_the_same_and_a_long_text_nearly(
    one: Json, other: Json, near: bool
) -> None:
    left, right = content_of_answer(one), content_of_answer(other)
    assert left is not None
    assert right is not None
    assert left.is_near(right, ANSWER_SHARE, SHORT) is near


def test_what_a_tool_returns_is_data() -> None:
    returned = content_of_answer(LONG, is_of_tool=True)
    assert returned is not None
    assert returned.is_near(ComparedContent(data=LONG), ANSWER_SHARE, SHORT)
    assert not returned.is_near(ComparedContent(data=LONG.upper()), ANSWER_SHARE, SHORT)


@pytest.mark.parametrize("nothing", [None, ""])
def test_an_empty_answer_says_nothing(nothing: Json) -> None:
    assert content_of_answer(nothing) is None


FIND = "find the separable function in modeling"


class Caller:
    """The calls of one agent to one callee that are answered one after another."""

    def __init__(self) -> None:
        self.past: list[PastCall] = []
        self.news = self.wasted = 0

    def ask(self, call: str, answer: Json, *, changes: bool = False) -> bool:
        """Return whether a call was wasted."""
        call_made = PastCall(ComparedContent(call), self.past, self.news)
        self.past.append(call_made)
        self.wasted += call_made.note_answer(content_of_answer(answer), self.news, changes=changes)
        self.news = call_made.after
        return call_made.wasted


@pytest.mark.parametrize(
    ("calls", "wasted"),
    [
        ([(FIND, "it is not there"), (FIND, "it is not there")], True),
        ([(FIND, "it is not there"), (f"please {FIND}", "it is not there")], True),
        ([(FIND, "it is not there"), (FIND, "it is here")], False),
        ([(FIND, None), (FIND, None)], False),
        ([(FIND, None), (FIND, "it is not there")], False),
        ([("run all of the tests", "none"), (FIND, "none")], False),
        ([(FIND, "one"), (FIND, "two"), (FIND, "one")], True),
    ],
)
@pytest.mark.parametrize("changes", [False, True])
def test_a_call_is_wasted_that_is_nearly_the_same_as_one_before_with_nearly_the_same_answer(
    calls: list[tuple[str, str | None]], wasted: bool, changes: bool
) -> None:
    caller = Caller()
    # Whatever may change something and is answered anew is itself something new.
    wasted = wasted and not (changes and len(calls) == 3)
    assert [caller.ask(call, answer, changes=changes) for call, answer in calls][-1] is wasted


def test_nothing_is_wasted_after_something_new_was_done() -> None:
    caller = Caller()
    caller.ask(FIND, "it is not there")
    caller.ask("write the separable function into modeling", "done", changes=True)
    assert not caller.ask(FIND, "it is not there")
    assert caller.ask(FIND, "it is not there")


def test_two_calls_in_turns_are_wasted_though_each_may_change_something() -> None:
    caller = Caller()
    both = ("mend what the tests complain of", "done"), ("run all of the tests", "one of them fails")
    assert [[caller.ask(*each, changes=True) for each in both] for _ in range(3)] == [
        [False, False],
        [False, True],
        [True, True],
    ]


def test_who_waits_for_an_answer_that_changes_has_wasted_nothing() -> None:
    caller, counts = Caller(), list[int]()
    for state in ("queued", "queued", "queued", "running", None, "running", "done"):
        caller.ask("How far is the job?", state)
        counts.append(caller.wasted)
    assert counts == [0, 1, 2, 0, 0, 1, 0]


def test_calls_under_way_at_the_same_time_are_no_repetitions_of_each_other() -> None:
    calls = list[PastCall]()
    for _ in range(4):
        calls.append(PastCall(ComparedContent(FIND), calls, 0))
    assert not any(each.note_answer(ComparedContent("it is not there"), 0, changes=False) for each in calls)


def test_a_run_is_warned_at_the_third_wasted_call_and_whenever_they_have_doubled() -> None:
    assert [count for count in range(1, 50) if is_alarming(count)] == [3, 6, 12, 24, 48]


@given(st.lists(st.sampled_from("abc")), st.lists(st.sampled_from("abc")), st.sampled_from([0.0, 0.3, 0.5, 1.0]))
def test_texts_are_near_if_they_share_enough_words_counting_each_as_often_as_it_stands_there(
    one: list[str], other: list[str], share: float
) -> None:
    longest = max(len(one), len(other))
    differ = longest - (Counter(one) & Counter(other)).total()
    assert ComparedContent(" ".join(one)).is_near(ComparedContent(" ".join(other)), share) == (
        differ <= share * longest
    )
