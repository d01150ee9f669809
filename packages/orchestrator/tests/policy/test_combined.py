"""What whoever asks several for one answer is given."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remit.policy.aggregate import Combined, comparable, components_of, start, strategy_named
from remit.protocol.codec import decode, encode
from remit.protocol.envelope import Answer, Call, Response, Strategy
from remit.protocol.errors import Code, RemitError, fault
from remit.protocol.lifecycle import Status
from remit.words.components import Component, Conflict, ReportedValue
from remit_orchestrator.text.conflicts import find
from samples import a_response
from strategies import responses

FAILED = a_response(target="ledger", status=Status.FAILED, result=None, fault=fault(Code.DELEGATION_FAILED, "broke"))
SURE = a_response(target="crystal", result="A", confidence=0.9)
UNSURE = a_response(target="tag", result="B", confidence=0.2)
HALF = a_response(target="byte", result="C", status=Status.PARTIAL, confidence=0.9)


@pytest.mark.parametrize(
    ("strategy", "came", "places"),
    [
        ("first-success", [(2, UNSURE), (0, FAILED), (1, SURE)], (2,)),
        ("first-success", [(1, HALF), (0, FAILED)], (1,)),
        ("first-success", [(2, HALF), (1, HALF)], (1,)),
        ("best-confidence", [(0, UNSURE), (1, SURE), (2, FAILED)], (1,)),
        ("best-confidence", [(0, HALF), (1, SURE)], (1,)),
        ("best-confidence", [(1, SURE), (0, SURE)], (0,)),
        ("merge-all", [(2, SURE), (0, FAILED), (1, HALF)], (1, 2)),
        ("ai-blend", [(1, SURE), (0, UNSURE)], (0, 1)),
        ("default", [(0, SURE)], (0,)),
        ("default", [(0, FAILED)], ()),
    ],
)
def test_an_aggregation_knows_on_whose_responses_the_answer_rests(
    strategy: str, came: list[tuple[int, Response]], places: tuple[int, ...]
) -> None:
    """C5: the one that was chosen, or all that were merged."""
    aggregation = start(strategy, 3)
    for place, response in came:
        aggregation = aggregation.add(response, place)
    assert aggregation.places == places


@given(st.sampled_from(Strategy), st.lists(responses, max_size=3), st.randoms())
def test_there_is_an_answer_if_and_only_if_it_rests_on_something(
    strategy: Strategy, several: list[Response], chance: Random
) -> None:
    aggregation = start(strategy, len(several))
    for place in chance.sample(range(len(several)), len(several)):
        aggregation = aggregation.add(several[place], place)
    assert isinstance(aggregation.finish(), Answer) == bool(aggregation.places)
    assert all(several[place].ok for place in aggregation.places)


def test_a_strategy_that_does_not_exist_is_refused_with_those_that_do() -> None:
    assert strategy_named("default") is Strategy.DEFAULT
    with pytest.raises(
        RemitError, match="expected one of first-success, best-confidence, merge-all, ai-blend, default"
    ):
        strategy_named("majority")
    with pytest.raises(RemitError, match="there is no strategy None"):
        start(None, 1)  # pyright: ignore[reportArgumentType]


def test_the_fault_is_the_first_in_the_order_asked_if_nothing_succeeded() -> None:
    """C5: all-failed gives the first error."""
    late = a_response(target="late", status=Status.TIMEOUT, result=None, fault=fault(Code.TIMEOUT, "after 30 ms"))
    silent = a_response(target="mute", status=Status.FAILED, result=None)
    assert Combined(responses=(late, FAILED)).fault == late.fault
    assert Combined(answer=Answer("A"), responses=(FAILED, SURE), places=(1,)).fault is None
    assert Combined().fault is None
    unexplained = Combined(responses=(silent, FAILED)).fault
    assert unexplained is not None
    assert (unexplained.code, unexplained.message) == (Code.DELEGATION_FAILED, "mute gave no reason")


def test_what_was_combined_names_whom_it_used_and_survives_a_journey() -> None:
    """K12: an agent in a process of its own is told all of it."""
    conflict = Conflict(
        path="a", severity="high", values=(ReportedValue(1, ("tag",)), ReportedValue([2], ("byte",))), preferred=1
    )
    combined = Combined(answer=Answer("A"), responses=(FAILED, SURE, HALF), conflicts=(conflict,), places=(1, 2))
    assert combined.used == (SURE, HALF)
    assert decode(encode(combined), Combined) == combined


def test_components_are_what_succeeded_and_one_agent_that_was_asked_twice_is_told_apart() -> None:
    again = a_response(target="tag", result="D")
    assert components_of([UNSURE, FAILED, SURE, again]) == [
        Component("tag 1", "B", 0.2),
        Component("crystal", "A", 0.9),
        Component("tag 2", "D", None),
    ]
    titled = components_of([FAILED, SURE], ["what failed", "what is known"])
    assert titled == [Component("crystal", "A", 0.9, "what is known")]


# ── what can contradict each other ────────────────────────────────────────────────────────────────────────────────────


def conflicts(*answered: tuple[Call, object]) -> list[str]:
    """Return the paths of the conflicts between the results of calls."""
    components = [Component(f"agent{place}", result) for place, (_, result) in enumerate(answered)]
    return [each.path for each in find(comparable(components, [call for call, _ in answered])).conflicts]


def test_answers_to_one_question_are_compared_as_they_are() -> None:
    """K9: conflicts are shown."""
    capital, again = Call(target="a", objective="Which city?"), Call(target="b", objective="Which city?", input=1)
    assert conflicts((capital, "Paris"), (again, "Lyon")) == [""]
    assert conflicts((Call(target="a"), "Paris"), (Call(target="b"), "Lyon")) == [""]


def test_a_bare_value_answers_its_own_question_and_no_other() -> None:
    city, colour = Call(target="a", objective="Which city?"), Call(target="b", objective="Which colour?")
    assert conflicts((city, "Paris"), (colour, "blue")) == []
    assert conflicts((city, "Paris"), (colour, "blue"), (city, "Lyon")) == ["Which city?"]
    assert conflicts((Call(target="a"), 5), (colour, 7), (Call(target="c"), 6)) == ["answer"]


def test_answers_to_different_questions_are_not_compared() -> None:
    """K9: a freight price and a laboratory price are two prices."""
    cost, time = Call(target="a", objective="What does it cost?"), Call(target="b", objective="When does it leave?")
    assert conflicts((cost, {"departure": "9:40"}), (time, {"departure": "10:40"})) == []
    assert conflicts((cost, "The train leaves at 9:40."), (time, "The train leaves at 10:40.")) == []
    freight, laboratory = Call(capability="FREIGHT", objective="it"), Call(capability="LABORATORY", objective="it")
    assert conflicts((freight, {"price": 1200}), (laboratory, {"price": 45})) == []
    market, law = Call(capability="RESEARCH", objective="market"), Call(capability="RESEARCH", objective="law")
    assert conflicts((market, {"risk": "low"}), (law, {"risk": "high"})) == []


def test_what_one_capability_says_of_two_inputs_it_says_of_two_things() -> None:
    def price(hotel: str) -> Call:
        return Call(capability="PRICE", objective="price", input={"hotel": hotel})

    assert conflicts((price("A"), {"price": 100}), (price("B"), {"price": 120})) == []
    assert conflicts((price("A"), {"price": 100}), (price("B"), {"price": 120}), (price("A"), {"price": 130})) == [
        "PRICE 1.price"
    ]
    other = Call(capability="RATING", input={"hotel": "A"})
    assert conflicts((price("A"), {"price": 100}), (other, {"price": 120})) == []
