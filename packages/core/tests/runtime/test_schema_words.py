"""What is said of a value that fits no alternative of its schema is said of the one that was meant."""

from typing import Any

import pytest

from remit.protocol.errors import Code, Problem
from remit.runtime.schemas import misfits, unfit_input

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
