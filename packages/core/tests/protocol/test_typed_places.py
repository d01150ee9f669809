"""Where a value does not fit is told by its place in the value, whichever class reads it."""

from typing import Any, Literal, NamedTuple, NotRequired, TypedDict

import pytest
from pydantic import BaseModel

from remit.protocol.errors import Problem
from remit.protocol.typed import MISSING, Member, TypeMismatch, object_schema, read_as, schema_of


class Order(BaseModel):
    item: str
    sizes: list[int] = []


class Parcel(BaseModel):
    weight: float


class Line(TypedDict):
    item: str
    count: NotRequired[int]


class Point(NamedTuple):
    x: int


def problems(value: object, kind: Any) -> list[Problem]:
    with pytest.raises(TypeMismatch) as caught:
        read_as(value, kind)
    return list(caught.value.problems)


@pytest.mark.parametrize(
    ("value", "kind", "expected"),
    [
        ({}, Order, [Problem("$.item", MISSING)]),
        (
            {"item": "a", "sizes": [1, "x"]},
            Order,
            [Problem("$.sizes[1]", "Input should be a valid integer, unable to parse string as an integer")],
        ),
        (
            [{"item": 7}],
            list[Order | Parcel],
            [
                Problem("$[0].item", "as Order: Input should be a valid string"),
                Problem("$[0].weight", f"as Parcel: {MISSING}"),
            ],
        ),
        (
            3,
            Order | Parcel,
            [Problem("$", "as Order: Input should be an object"), Problem("$", "as Parcel: Input should be an object")],
        ),
        ({"item": "tea", "count": "two"}, Line, [Problem("$.count", "Expected `int`, got `str`")]),
        ({"x": 1}, Point, [Problem("$", "Expected `array`, got `object`")]),
        ({"first": "x"}, dict[int, str], [Problem("$", "key: Expected `int`, got `str`")]),
        ("dim", Literal["on", "off"], [Problem("$", "Invalid enum value 'dim'; expected one of 'on', 'off'")]),
    ],
)
def test_a_place_is_one_of_the_value(value: object, kind: Any, expected: list[Problem]) -> None:
    assert problems(value, kind) == expected


@pytest.mark.parametrize("kind", [object, dict[str, object], list[object]])
def test_object_is_any_value(kind: Any) -> None:
    value: Any = {object: 7, dict[str, object]: {"a": [None]}, list[object]: [1, "x"]}[kind]
    assert read_as(value, kind) == value
    assert schema_of(kind)
    assert object_schema("given", {"value": Member(kind, required=True)})["required"] == ["value"]


def test_a_type_without_a_form_in_json_is_named_plainly() -> None:
    with pytest.raises(TypeError, match=r"^`complex` cannot be written as JSON; use text, a model or a dataclass$"):
        schema_of(complex)
