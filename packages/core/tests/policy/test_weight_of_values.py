"""What models hold is weighed as they are, before they are converted."""

from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum
from typing import Any

import pytest
from msgspec import Struct

from remit.policy.weight import LIGHT, is_light_value


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
