"""What is light enough to be looked through in the event loop."""

from typing import Any

import pytest
from msgspec.structs import replace

from remit import Answer, Call, Handoff, Request, Response, Status
from remit.policy.weight import (
    LIGHT,
    VALUE,
    is_light,
    is_light_answer,
    is_light_call,
    is_light_request,
    is_light_response,
)
from remit.protocol.envelope import VERSION
from remit.protocol.remit import Remit

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
