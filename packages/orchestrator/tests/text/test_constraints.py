"""What in a result breaks what the user demanded, and what does not."""

from time import perf_counter

import pytest

from labelled_cases import cases
from remit.protocol.envelope import Json, Note
from remit_orchestrator.text.constraints import breaches, demands_of
from remit_orchestrator.text.summaries import notes_of


@pytest.mark.parametrize(
    ("demand", "result", "broken"),
    cases("constraints", "what_breaks_a_demand_is_told_once"),
)
def test_what_breaks_a_demand_is_told_once(demand: str, result: Json, broken: int) -> None:
    assert len(breaches(demands_of([Note("constraint", demand)]), [result, result])) == broken


def test_a_later_bound_takes_the_place_of_an_earlier_one_and_only_the_user_demands() -> None:
    notes = [
        Note("constraint", "At most 5,000 euros."),
        Note("constraint", "At most 7,000 euros."),
        Note("constraint", "At most 10 euros.", "some-agent"),
    ]
    assert breaches(demands_of(notes), [{"price": "6,200 EUR"}]) == []


@pytest.mark.parametrize(
    ("text", "result", "broken"),
    cases("constraints", "a_constraint_is_compared_with_what_it_is_about"),
)
def test_a_constraint_is_compared_with_what_it_is_about(text: str, result: Json, broken: int) -> None:
    assert len(breaches(demands_of(notes_of(text)), [result])) == broken


@pytest.mark.parametrize(
    ("texts", "price", "broken"),
    cases("constraints", "a_later_word_changes_or_lifts_a_limit"),
)
def test_a_later_word_changes_or_lifts_a_limit(texts: list[str], price: str, broken: int) -> None:
    notes = [note for text in texts for note in notes_of(text)]
    assert len(breaches(demands_of(notes), [{"price": price}])) == broken


def test_the_reply_to_a_question_is_a_constraint_and_the_question_is_none() -> None:
    notes = [Note("answer", "Is at most 100 euros enough? → at most 300 euros")]
    assert len(breaches(demands_of(notes), [{"price": "200 EUR"}])) == 0
    assert len(breaches(demands_of(notes), [{"price": "350 EUR"}])) == 1


@pytest.mark.parametrize(
    ("text", "read"),
    cases("constraints", "what_demands_something_is_read_and_nothing_else"),
)
def test_what_demands_something_is_read_and_nothing_else(text: str, read: int) -> None:
    assert len(demands_of(notes_of(text)).constraints) == read


@pytest.mark.parametrize(
    "piece", ["by ", "more than ", "is fine ", "no ", "between 1 and ", "not by ", "at most 5 ", "x"]
)
def test_a_hostile_text_costs_no_more_than_any_other(piece: str) -> None:
    """Ten thousand characters; a pattern that backtracks would take minutes."""
    began = perf_counter()
    text = piece * (10_000 // len(piece))
    breaches(demands_of([*notes_of(text), Note("constraint", text[:300])]), [text])
    assert perf_counter() - began < 10
