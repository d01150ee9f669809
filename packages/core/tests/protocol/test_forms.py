"""Forms that a person fills in."""

from enum import Enum
from typing import Annotated, Any, Literal

import pytest
from msgspec import Meta, Struct

from remit import RemitError
from remit.protocol.forms import default_fields, field_value, filled_fields, form_lines, form_schema


class Meal(Enum):
    FISH = "fish"
    RICE = "rice"


class Booking(Struct):
    name: Annotated[str, Meta(description="Who travels")]
    seat: Literal["aisle", "window"] = "aisle"
    meal: Meal = Meal.RICE
    extras: list[Literal["bag", "bike"]] = []
    age: int | None = None
    insured: bool = True


TITLED: dict[str, Any] = {"oneOf": [{"const": "a", "title": "First"}, {"const": "b", "title": "b"}]}


def test_a_type_is_a_form_of_texts_numbers_and_choices() -> None:
    form = form_schema(Booking)
    assert form == {
        "type": "object",
        "title": "Booking",
        "required": ["name"],
        "properties": {
            "name": {"type": "string", "description": "Who travels"},
            "seat": {"type": "string", "enum": ["aisle", "window"], "default": "aisle"},
            "meal": {"type": "string", "enum": ["fish", "rice"], "title": "Meal", "default": "rice"},
            "extras": {"type": "array", "items": {"type": "string", "enum": ["bag", "bike"]}, "default": []},
            "age": {"type": "integer"},
            "insured": {"type": "boolean", "default": True},
        },
    }
    assert list(form_lines(form)) == [
        "name (required): Who travels; string",
        "seat: one of aisle, window",
        "meal: Meal; one of fish, rice",
        "extras: any of bag, bike",
        "age: integer",
        "insured: boolean",
    ]
    assert default_fields(form)["name"] is None
    assert filled_fields(form, {"name": "Bo", "age": None, "other": 1}) == {"name": "Bo"}


def test_a_schema_keeps_what_it_says_of_its_choices() -> None:
    fields: dict[str, Any] = {
        "one": {"type": "string", **TITLED},
        "old": {"type": "string", "enum": ["x", "y"], "enumNames": ["Ex", "Why"]},
        "many": {"type": "array", "items": {"anyOf": TITLED["oneOf"]}, "minItems": 1},
    }
    form = form_schema({"type": "object", "properties": fields})
    assert form == {"type": "object", "properties": fields}
    assert list(form_lines(form)) == [
        "one: one of a (First), b",
        "old: one of x (Ex), y (Why)",
        "many: any of a (First), b",
    ]


@pytest.mark.parametrize("names", [1, ["Ex", 2], {"x": "Ex"}])
def test_names_of_choices_that_are_no_texts_are_left_out(names: object) -> None:
    form = form_schema({"type": "object", "properties": {"a": {"enum": ["x", "y"], "enumNames": names}}})
    assert list(form_lines(form)) == ["a: one of x, y"]


@pytest.mark.parametrize(
    ("kind", "typed", "value"),
    [
        ("string", " as it is", " as it is"),
        ("integer", "-3", -3),
        ("number", "2.5", 2.5),
        ("number", "many", "many"),
        ("boolean", "Yes", True),
        ("boolean", "n", False),
        ("boolean", "perhaps", "perhaps"),
        ("array", "bag, bike,", ["bag", "bike"]),
    ],
)
def test_what_is_typed_is_read_by_the_type_of_its_field(kind: str, typed: str, value: object) -> None:
    assert field_value({"type": kind}, typed) == value


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "array", "items": {"type": "string"}},
        {"type": "object", "properties": {}},
        {"type": "object", "properties": {f"f{at}": {"type": "string"} for at in range(21)}},
        {"type": "object", "properties": {"a": {"type": "object", "properties": {"b": {"type": "string"}}}}},
        {"type": "object", "properties": {"a": {"type": "array", "items": {"type": "string"}}}},
        {"type": "object", "properties": {"a": {"type": "integer", "enum": [1, 2]}}},
        {"type": "object", "properties": {"a": {"type": "string", "oneOf": [{"title": "x"}]}}},
        {"type": "object", "properties": {"a": {"$ref": "#/$defs/missing"}}},
        {"type": "object", "properties": {"a": {"$ref": "#/$defs/a"}}, "$defs": {"a": {"$ref": "#/$defs/a"}}},
        {"type": "object", "properties": {"a": True}},
        {"type": "object", "properties": {"a": {"anyOf": [{"type": "string"}, {"type": "integer"}]}}},
        {"type": "object", "properties": {"a": {"anyOf": [True, {"type": "null"}]}}},
        {"type": "object", "properties": {"a": {"type": "string", "enum": ["x"], "oneOf": [{"title": "X"}]}}},
        {"type": "object", "properties": {"a": {"type": "string", "oneOf": True}}},
        {"type": "object", "properties": {"a": {"type": "string", "oneOf": [True]}}},
    ],
)
def test_what_cannot_be_shown_is_refused(schema: dict[str, Any]) -> None:
    with pytest.raises(RemitError, match="the form cannot be shown to a person"):
        form_schema(schema)


def test_a_type_without_a_schema_cannot_be_shown() -> None:
    with pytest.raises(RemitError, match="the form cannot be shown to a person"):
        form_schema(complex)


def test_a_field_with_one_value_is_a_choice_of_one() -> None:
    form = form_schema({"type": "object", "properties": {"a": {"const": "x"}}})
    assert list(form_lines(form)) == ["a: one of x"]
