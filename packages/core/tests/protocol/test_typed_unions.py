"""Unions of several classes are read as the one that fits, whichever kind of class they are."""

from dataclasses import dataclass
from typing import Any, TypedDict

import attrs
import pytest
from jsonschema_rs import is_valid

from remit.protocol.codec import plain
from remit.protocol.errors import Problem
from remit.protocol.typed import TypeMismatch, read_as, schema_of


@dataclass
class Quote:
    total: float


@dataclass
class LongQuote:
    total: float
    until: str


@attrs.define
class Refusal:
    reason: str


class Note(TypedDict):
    text: str


UNION: Any = Quote | LongQuote | Refusal | Note | None


@pytest.mark.parametrize(
    "value", [Quote(1.5), LongQuote(2.5, "Monday"), Refusal("sold out"), Note(text="later"), None], ids=repr
)
def test_a_union_of_classes_is_read_as_the_one_that_was_written(value: Any) -> None:
    written = plain(value)
    assert read_as(written, UNION) == value
    assert is_valid(schema_of(UNION), written)


def test_what_fits_no_class_of_a_union_names_what_the_nearest_lacks() -> None:
    with pytest.raises(TypeMismatch) as caught:
        read_as({"total": 1.5, "until": 7}, UNION, "$.result")
    assert caught.value.problems == (Problem("$.result.until", "as LongQuote: Expected `str`, got `int`"),)
    assert not is_valid(schema_of(UNION), {"until": 7})
