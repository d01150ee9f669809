"""What a user demands is kept in the user's words, and what goes against it is pointed out by whoever can tell."""

from time import perf_counter

import pytest

from remit.protocol.envelope import Answer, Json, Note
from remit_orchestrator.text.constraints import broken, demands_of, pointed_out, with_breaches
from remit_orchestrator.text.summaries import notes_of
from samples import a_response

DECIDED = Note("decision", "Departure: 9:40 counts, not 10:40.")


def shown(text: str) -> str:
    return text


def test_demands_are_the_users_words_in_their_order() -> None:
    notes = [
        Note("constraint", "At most 5,000 euros."),
        Note("answer", "Is at most 100 euros enough? → at most 300 euros"),
        Note("constraint", "At most 10 euros.", "some-agent"),
        Note("fact", "The price is 7 euros."),
        Note("decision", "Forget the limit."),
        Note("constraint", "At most 5,000 euros."),
    ]
    assert demands_of(notes) == ("At most 5,000 euros.", "at most 300 euros", "Forget the limit.")


@pytest.mark.parametrize(
    ("result", "warned"),
    [
        ({"departure": "10:40"}, True),
        ([{"departure": "10:40"}], True),
        ({"departure": "9:40"}, False),
        ({"departure": "11:40"}, False),
        ({"arrival": "10:40"}, False),
    ],
)
def test_a_result_against_a_decision_is_pointed_out(result: Json, warned: bool) -> None:
    """K5: what was decided between results holds for later ones."""
    answer = with_breaches(Answer("A"), [DECIDED], "when?", [a_response(result=result)], shown)
    message = "You decided that departure is 9:40, but this says 10:40."
    assert answer.metadata.get("broken") == ([message] if warned else None)
    assert answer.result == (f"A\n\n## Not as you asked\n\n- {message}" if warned else "A")


def test_what_an_agent_decided_is_no_decision_of_the_user() -> None:
    by_agent = Note("decision", DECIDED.text, "some-agent")
    response = a_response(result={"departure": "10:40"})
    assert with_breaches(Answer("A"), [by_agent], "when?", [response], shown) == Answer("A")


def test_what_a_reader_quotes_against_a_demand_is_told_once_and_data_stay_as_they_are() -> None:
    messages = broken({"at most 5 euros": ["6 EUR", "6 EUR"]})
    told = "You said “at most 5 euros”, but this may not keep to it: “6 EUR”."
    assert pointed_out(Answer("A"), messages, shown).metadata == {"broken": [told]}
    assert pointed_out(Answer({"a": 1}), messages, shown) == Answer({"a": 1})


@pytest.mark.parametrize(
    "piece", ["by ", "more than ", "is fine ", "no ", "between 1 and ", "not by ", "at most 5 ", "x", "forget the "]
)
def test_a_hostile_text_costs_no_more_than_any_other(piece: str) -> None:
    """Ten thousand characters; a pattern that backtracks would take minutes."""
    began = perf_counter()
    notes_of(piece * (10_000 // len(piece)))
    assert perf_counter() - began < 10
