"""What is wrong with a value, field by field, for whoever has to mend it."""

from enum import StrEnum
from typing import Annotated, Any, Literal

import pytest
from msgspec import Meta, Struct

from remit.protocol.codec import convert
from remit.protocol.errors import RemitError
from remit.protocol.problems import WrongPart, did_you_mean, wrong_fields

Length = Annotated[str, Meta(pattern="^[0-9]+m$", extra={"rule": "expected metres, such as 3m"})]


class Colour(StrEnum):
    RED = "red"
    GREEN = "green"


class Part(Struct, forbid_unknown_fields=True):
    length: Length | None = None
    colour: Colour = Colour.RED
    side: Literal["left", "right"] = "left"
    weight: int = 0
    word: Annotated[str, Meta(pattern="^[a-z]+$", description="a word")] = "w"


class Open(Struct, frozen=True):
    known: int = 0


class Whole(Struct, forbid_unknown_fields=True):
    parts: dict[Annotated[str, Meta(pattern="^[a-z]+$", extra={"rule": "small letters only"})], Part] = {}
    free: dict[str, Any] | None = None
    open: Open = Open()


@pytest.mark.parametrize(
    ("value", "wrong"),
    [
        ({"parts": {"a": {"weight": "x"}}}, [(("parts", "a", "weight"), "Expected `int`, got `str`")]),
        ({"parts": {"A": {}}}, [(("parts", "A"), "small letters only")]),
        ({"parts": {"a": 1}}, [(("parts", "a"), "Expected `object`, got `int`")]),
        ({"parts": {"a": {"length": "3"}}}, [(("parts", "a", "length"), "expected metres, such as 3m")]),
        ({"parts": {"a": {"length": 3}}}, [(("parts", "a", "length"), "expected metres, such as 3m")]),
        (
            {"parts": {"a": {"word": 3}, "b": {"word": "B"}}},
            [
                (("parts", "a", "word"), "Expected `str`, got `int`"),
                (("parts", "b", "word"), "control characters are not allowed in a name"),
            ],
        ),
        (
            {"parts": {"a": {"side": "lefd"}, "b": {"colour": "blue"}, "c": {"side": 1}}},
            [
                (("parts", "a", "side"), "'lefd' is not one of left, right; did you mean `left`?"),
                (("parts", "b", "colour"), "'blue' is not one of red, green"),
                (("parts", "c", "side"), "Expected `str`, got `int`"),
            ],
        ),
        ({"parts": [], "free": 3}, [(("parts",), "Expected `object`, got `array`"), (("free",), None)]),
        ({"free": {"anything": [1]}}, []),
        ({"open": {"anything": 1}}, []),
        ({"open": {"anything": 1, "known": "x"}}, [(("open", "known"), "Expected `int`, got `str`")]),
    ],
)  # fmt: skip
def test_each_wrong_field_is_named_with_what_was_expected(value: Any, wrong: list[tuple[Any, str | None]]) -> None:
    parts = list(wrong_fields(value, Whole))
    expected = [
        WrongPart(place, parts[at].message if message is None else message) for at, (place, message) in enumerate(wrong)
    ]
    assert parts == expected


def test_wrong_fields_of_a_part_are_named_from_where_it_stands() -> None:
    with pytest.raises(RemitError) as refused:
        convert({"parts": {"a": {"weight": "x"}}}, Whole, ("context", "remit"))
    assert [problem.path for problem in refused.value.fault.problems] == ["$.context.remit.parts.a.weight"]


def test_what_was_meant_is_guessed_only_if_it_is_near() -> None:
    assert did_you_mean("tag-a", ["tag-ai", "prime"]) == "; did you mean `tag-ai`?"
    assert did_you_mean("x", ["tag-ai", "prime"]) == ""
