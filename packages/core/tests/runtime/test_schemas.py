"""Whether values fit schemas, and how much is said of those that do not."""

from typing import Any

import pytest

from remit.protocol.card import Schema
from remit.protocol.errors import Code, Problem
from remit.runtime.schemas import MAX_MISFITS, misfits, unfit_input

SHORT: Schema = {"type": "array", "items": {"type": "string", "maxLength": 3}}


def test_of_a_small_value_everything_wrong_is_said_up_to_a_bound():
    assert [each.path for each in misfits(SHORT, ["long!", "ok", "long!"])] == ["$[0]", "$[2]"]
    assert len(misfits(SHORT, ["long!"] * (MAX_MISFITS + 1))) == MAX_MISFITS


def test_of_a_large_value_the_first_error_is_said():
    """All errors of a hostile value would take a second, in which no other thread runs."""
    wrong = ["ok", *["long!"] * 40_000]
    assert [each.path for each in misfits(SHORT, wrong)] == ["$[1]"]
    why = unfit_input("TAG", SHORT, wrong)
    assert why is not None
    assert [each.path for each in why.problems] == ["$[1]"]


def test_a_large_value_that_fits_is_taken():
    assert misfits(SHORT, ["ok"] * 40_000) == ()
    assert unfit_input("TAG", SHORT, ["ok"] * 40_000) is None


# ── words ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


ORDER = {"type": "object", "required": ["item"], "properties": {"item": {"type": "string"}}}
MAYBE = {"anyOf": [ORDER, {"type": "null"}]}


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ({"itm": 1}, Problem("$.item", "is required but missing")),
        ({"item": 3}, Problem("$.item", '3 is not of type "string"')),
        ("red", Problem("$", "is not of type object or null")),
    ],
)
def test_of_a_value_that_may_be_null_the_wrong_field_is_named(value: Any, problem: Problem) -> None:
    assert misfits(MAYBE, value) == (problem,)


def test_within_a_value_it_is_named_by_its_whole_path() -> None:
    schema = {"type": "object", "properties": {"orders": {"type": "array", "items": MAYBE}}}
    assert misfits(schema, {"orders": [None, {"item": 7}]}) == (
        Problem("$.orders[1].item", '7 is not of type "string"'),
    )


def test_several_that_could_be_meant_are_told_as_alternatives() -> None:
    either = {"anyOf": [ORDER, {"type": "object", "required": ["weight"]}]}
    assert misfits(either, {}) == (Problem("$", "fits none of the alternatives in its schema"),)


def test_what_only_lacks_a_field_is_told_as_missing_also_where_it_may_be_null() -> None:
    why = unfit_input("QUOTE", MAYBE, {"itm": 1})
    assert why is not None
    assert (why.code, why.message) == (Code.DATA_MISSING_REQUIRED_INPUT, "the input of QUOTE lacks item")


def test_of_a_value_that_is_withheld_the_type_is_named_and_nothing_quoted() -> None:
    assert misfits(ORDER, {"item": 4155552671}, {"item": "[PHONE:abc]"}) == (
        Problem("$.item", "is not of type string"),
    )
