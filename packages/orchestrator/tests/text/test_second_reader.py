"""A model as second reader may only point at two statements that stand in results of the same question."""

from typing import Any

import pytest

from remit.words.components import Component, Conflict, ReportedValue
from remit_orchestrator.text.conflicts import find
from remit_orchestrator.text.conflicts.second_reader import compared, material, pointed_out

PAID, OPEN = "The invoice has been paid.", "The invoice is\nstill open, says the clerk."
BOOKS, BANK, OTHER = (
    Component("books", {"note": PAID}, 0.9, question="1"),
    Component("bank", OPEN, 0.4, question="1"),
    Component("weather", "The shop is closed.", question="2"),
)
ALL = (BOOKS, BANK, OTHER)


def reply(*pairs: tuple[int, str, int, str]) -> Any:
    return {
        "contradictions": [
            {"first": {"result": one, "quote": quote}, "second": {"result": other, "quote": also}}
            for one, quote, other, also in pairs
        ]
    }


def test_two_statements_that_stand_there_are_a_conflict() -> None:
    """K9: the surer source is preferred, as for what rules find."""
    pairs = reply((1, PAID, 2, "The invoice is still open"))
    assert pointed_out(pairs, ALL, ()) == [
        Conflict(
            path="invoice",
            severity="medium",
            values=(ReportedValue(PAID, ("books",)), ReportedValue("The invoice is still open", ("bank",))),
            preferred=PAID,
        )
    ]


def test_where_no_source_is_surer_the_user_is_asked() -> None:
    several = [Component("a", "It is red."), Component("b", "Colour: blue")]
    (conflict,) = pointed_out(reply((1, "red", 2, "blue")), several, ())
    assert conflict.question == "The sources disagree on the answer: red, or blue. Which one should count?"


@pytest.mark.parametrize(
    "pair",
    [
        (1, "The invoice was paid.", 2, "The invoice is still open"),  # made up
        (1, PAID, 3, "The shop is closed."),  # another question
        (1, PAID, 1, "The invoice"),  # one result
        (1, PAID, 2, "The invoice is stil"),  # a part of a word
        (0, PAID, 2, "The invoice is still open"),
        (1, PAID, 9, "The invoice is still open"),
        (1, "The invoice", 2, "The  invoice"),  # the same
        (1, "   ", 2, "still open"),
    ],
)
def test_what_does_not_stand_there_or_answers_something_else_is_left_out(pair: tuple[int, str, int, str]) -> None:
    assert pointed_out(reply(pair), ALL, ()) == []


def test_what_is_known_is_not_told_twice() -> None:
    several = [Component("a", "The fee is $50."), Component("b", "The fee is $60.")]
    known = find(several).conflicts
    assert len(known) == 1
    assert pointed_out(reply((1, "The fee is $50", 2, "The fee is $60")), several, known) == []
    pair = (1, PAID, 2, "The invoice is still open")
    assert len(pointed_out(reply(pair, pair), ALL, ())) == 1


@pytest.mark.parametrize(
    "invalid",
    [
        None,
        "none",
        {},
        {"contradictions": [{"first": {"result": 1}}]},
        reply((1, "x" * 400, 2, "y")),
        reply(*[(1, PAID, 2, "still open")] * 21),
    ],
)
def test_a_reply_in_another_form_is_refused(invalid: Any) -> None:
    with pytest.raises(ValueError, match=r"."):
        pointed_out(invalid, ALL, ())


def test_a_model_is_given_only_what_answers_the_same_question() -> None:
    assert compared(ALL) == [BOOKS, BANK]
    assert compared([BOOKS, OTHER]) == []
    assert material([BOOKS, BANK]) == (
        f"Result 1 (question 1):\n- Note: {PAID}\n\nResult 2 (question 1):\nThe invoice is\nstill open, says the clerk."
    )
