"""What is light enough to be looked through in the event loop."""

from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Struct
from msgspec.structs import replace

from remit import Answer, Call, Handoff, Request, Response, Status
from remit.policy.weight import (
    LIGHT,
    LIGHT_TO_ENCODE,
    VALUE,
    is_light,
    is_light_answer,
    is_light_call,
    is_light_request,
    is_light_response,
    is_light_value,
    is_short_text,
    is_short_text_answer,
)
from remit.protocol.codec import checked
from remit.protocol.envelope import VERSION
from remit.protocol.remit import MAX_INTEGER, Remit

REQUEST = Request(
    version=VERSION,
    id="r",
    origin="user",
    target="a",
    run="r",
    remit=Remit(user="u", depth=0, max_depth=5, time_ms=1_000, tokens=1_000),
)
RESPONSE = Response(version=VERSION, id="r", target="a", status=Status.SUCCESS)


@pytest.mark.parametrize(
    ("value", "light"),
    [
        ("x" * (LIGHT - VALUE), True),
        ("x" * LIGHT, False),
        (["x" * 100] * 30, True),
        (["x" * 100] * 60, False),
        ([1] * (LIGHT // VALUE - 1), True),
        ([1] * (LIGHT // VALUE + 1), False),
        ({f"n{number}": None for number in range(50)}, True),
        ({f"n{number}": None for number in range(LIGHT // VALUE)}, False),
        ({"n" * LIGHT: 1}, False),
        ({1: "names need not be texts yet"}, True),
        ({"a": [{"b": ("c", 1, 2.5, True, None)}]}, True),
        ([[[["x" * LIGHT]]]], False),
        (frozenset({"a", "b"}), True),
        (object(), False),
        (Handoff(original_request="x"), True),
        (Handoff(original_request="x" * LIGHT), False),
    ],
)
def test_what_is_said_weighs_by_its_length_and_its_number_of_values(value: Any, *, light: bool) -> None:
    assert is_light(value) is light


@pytest.mark.parametrize(
    ("changes", "light"),
    [
        ({}, True),
        ({"objective": "x" * LIGHT}, True),
        ({"objective": "x" * LIGHT, "input": "y"}, False),
        ({"objective": "x", "input": {"a": "b"}}, True),
        ({"objective": "x", "input": ["b" * LIGHT]}, False),
        ({"objective": "x", "hints": ("h" * LIGHT,)}, False),
        ({"objective": "x", "reason": "r"}, True),
    ],
)
def test_a_request_weighs_what_it_says(changes: dict[str, Any], *, light: bool) -> None:
    assert is_light_request(replace(REQUEST, **changes)) is light
    assert is_light_request(replace(REQUEST, **changes), LIGHT_TO_ENCODE)


@pytest.mark.parametrize(
    ("changes", "light"),
    [
        ({}, True),
        ({"result": "x" * LIGHT}, True),
        ({"result": "x" * (LIGHT + 1)}, False),
        ({"result": {"a": 1}}, True),
        ({"result": "x", "new_facts": ("f" * LIGHT,)}, False),
        ({"result": "x", "warnings": ("w",)}, True),
    ],
)
def test_a_response_weighs_what_it_says(changes: dict[str, Any], *, light: bool) -> None:
    assert is_light_response(replace(RESPONSE, **changes)) is light


@pytest.mark.parametrize(
    ("call", "light"),
    [
        (Call(target="a", objective="x"), True),
        (Call(target="a", objective="x" * LIGHT), True),
        (Call(target="a", objective="x" * LIGHT, input="y"), False),
        (Call(target="a", objective="x", input={"a": 1}), True),
        (Call(target="a", objective="x", input=["y" * LIGHT]), False),
        (Call(target="a", objective="x", hints=("y" * LIGHT,)), False),
    ],
)
def test_a_call_weighs_what_it_says(call: Call, *, light: bool) -> None:
    assert is_light_call(call) is light


@pytest.mark.parametrize(
    ("answer", "light"),
    [
        (Answer(), True),
        (Answer("x" * LIGHT), True),
        (Answer("x" * (LIGHT + 1)), False),
        (Answer("x", warnings=("w",)), True),
        (Answer(["x" * LIGHT]), False),
        (Answer("x", new_facts=("f" * LIGHT,)), False),
    ],
)
def test_an_answer_weighs_what_it_says(answer: Answer, *, light: bool) -> None:
    assert is_light_answer(answer) is light


@pytest.mark.parametrize(
    ("call", "short"),
    [
        (Call(target="a", objective="x"), True),
        (Call(target="a" * 128, objective="x" * LIGHT, max_tokens=MAX_INTEGER), True),
        (Call(target="a" * 129, objective="x"), False),
        (Call(target="a", objective="x" * (LIGHT + 1)), False),
        (Call(target="a", objective="ü"), False),
        (Call(target="a\nb", objective="x"), False),
        (Call(target="", objective="x"), False),
        (Call(objective="x"), False),
        (Call(target="a", objective="x", input="y"), False),
        (Call(target="a", objective="x", step="one"), False),
        (Call(target="a", objective="x", max_tokens=-1), False),
        (Call(target="a", objective="x", max_tokens=MAX_INTEGER + 1), False),
        (Call(target="a", objective="x", max_tokens=True), False),
        (Call(target="a", objective=b"x"), False),  # pyright: ignore[reportArgumentType]
    ],
)
def test_a_short_text_is_recognised(call: Call, *, short: bool) -> None:
    assert is_short_text(call) is short


NAMES = st.text(max_size=3) | st.sampled_from([None, "a" * 128, "a" * 201, b"a"])
TOKENS = st.sampled_from([None, -1, 0, MAX_INTEGER, MAX_INTEGER + 1, 1.5, True])
SAID = st.text(max_size=5) | st.sampled_from(["x" * LIGHT, "x" * (LIGHT + 1), b"x", None])


@given(st.builds(Call, target=NAMES, objective=SAID, max_tokens=TOKENS, hints=st.sampled_from([(), ("h",)])))
def test_a_short_text_is_valid_and_light(call: Call) -> None:
    if is_short_text(call):
        assert checked(call) == call
        assert is_light_call(call)


@given(st.builds(Answer, result=SAID, summary=st.sampled_from(["", "s"])), st.sampled_from([1, 5, 1_000_000]))
def test_an_answer_that_is_a_short_text_is_valid_and_light(answer: Answer, most: int) -> None:
    if is_short_text_answer(answer, most):
        assert checked(answer) == answer
        assert is_light_answer(answer)
        assert len(str(answer.result)) < most


def test_a_short_answer_is_recognised() -> None:
    assert is_short_text_answer(Answer("x" * LIGHT), 1_000_000)
    assert not is_short_text_answer(Answer("x" * 5), 5)
    assert not is_short_text_answer(Answer("x", summary="y"), 1_000_000)


# ── values ────────────────────────────────────────────────────────────────────────────────────────────────────────────


class Colour(Enum):
    RED = "r" * LIGHT


class Point(Struct):
    name: str


@dataclass
class Place:
    name: str


@dataclass(slots=True)
class Slotted:
    name: str


class Above:
    __slots__ = "name"  # noqa: PLC0205 - others write it so

    def __init__(self, name: str) -> None:
        self.name = name


class Below(Above):
    __slots__ = ("__weakref__", "unset")


def made(text: str) -> list[Any]:
    """Return values of each kind that hold a text."""
    models = [Point(name=text), Place(text), Slotted(text), Below(text)]
    return [*models, [text], {text: 1}, {"a": text}, frozenset({text}), text.encode()]


def test_a_value_weighs_as_much_as_the_texts_that_it_holds() -> None:
    assert all(map(is_light_value, made("a")))
    assert not any(map(is_light_value, made("a" * (LIGHT + 1))))


@pytest.mark.parametrize("value", [None, 1, 1.5, datetime.now(UTC), Colour.RED, Point, {}, []])
def test_what_holds_no_text_is_light(value: Any) -> None:
    assert is_light_value(value)


def test_many_small_values_and_values_that_hold_themselves_are_heavy() -> None:
    assert not is_light_value([None] * LIGHT)
    assert not is_light_value([[[1]] for _ in range(100)])
    circle: list[Any] = []
    circle.append(circle)
    assert not is_light_value(circle)
