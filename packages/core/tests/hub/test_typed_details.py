"""Typed agents in the cases that people meet on the first day: a result alone, null, unions, TypedDicts, wrong keys."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, NotRequired, TypedDict

import pytest
from pydantic import BaseModel

from remit import Brief, Code, Hub, RemitError, Response
from samples import code_of


class Order(BaseModel):
    item: str
    count: int = 1


class Parcel(BaseModel):
    weight: float


@dataclass
class Quote:
    total: float
    note: str = ""


@dataclass
class Refusal:
    total: float


class Line(TypedDict):
    item: str
    count: NotRequired[int]


class Point(NamedTuple):
    x: int


def problems(response: Response) -> list[tuple[str, str]]:
    assert response.fault is not None
    return [(each.path, each.message) for each in response.fault.problems]


@pytest.mark.parametrize("given", [None, 3, "text", {"any": "thing"}, [1]])
async def test_an_agent_that_declares_only_its_result_takes_any_input(hub: Hub, given: object) -> None:
    @hub.agent("pricing")
    async def pricing(brief: Brief) -> Quote:
        return Quote(1.5, str(brief.request.input))

    assert pricing
    async with hub:
        response = await hub.ask("pricing", user="u-1", input=given)
    assert response.result == {"total": 1.5, "note": str(given)}


async def test_a_result_that_is_of_one_class_of_a_union_stays_as_it_is(hub: Hub) -> None:
    @hub.agent("pricing")
    async def pricing(brief: Brief) -> Quote | Refusal:
        return Refusal(0.5)

    assert pricing
    async with hub:
        response = await hub.ask("pricing", user="u-1")
    assert response.result == {"total": 0.5}
    assert response.result_as(Quote | Refusal) == Refusal(0.5)  # pyright: ignore[reportArgumentType]


async def test_a_parameter_that_may_be_null_is_null_if_there_is_no_input(hub: Hub) -> None:
    @hub.agent("shop")
    async def shop(brief: Brief, order: Order | None) -> str:
        return repr(order)

    assert shop
    async with hub:
        assert (await hub.ask("shop", "How much?", user="u-1")).result == "None"


async def test_fields_that_only_are_missing_are_told_as_missing_of_every_kind_of_class(hub: Hub) -> None:
    @hub.agent("model")
    async def model(brief: Brief, order: Order) -> str:
        return order.item

    @hub.agent("dict")
    async def plain(brief: Brief, order: Line) -> str:
        return order["item"]

    assert model
    assert plain
    async with hub:
        for name in ("model", "dict"):
            response = await hub.ask(name, user="u-1", input={"count": 2})
            assert code_of(response) is Code.DATA_MISSING_REQUIRED_INPUT
            assert problems(response) == [("$.item", "is required but missing")]


async def test_a_field_of_a_typed_dict_that_may_be_left_out_is_checked_if_it_is_there(hub: Hub) -> None:
    @hub.agent("shop")
    async def shop(brief: Brief, order: Line) -> str:
        return order["item"]

    assert shop
    async with hub:
        response = await hub.ask("shop", user="u-1", input={"item": "tea", "count": "two"})
    assert problems(response) == [("$.count", "Expected `int`, got `str`")]


async def test_paths_name_fields_of_the_input_and_not_classes(hub: Hub) -> None:
    @hub.agent("shop")
    async def shop(brief: Brief, goods: list[Order | Parcel]) -> str:
        return str(goods)

    @hub.agent("table")
    async def table(brief: Brief, rows: dict[int, str]) -> str:
        return str(rows)

    @hub.agent("map")
    async def where(brief: Brief, point: Point) -> str:
        return str(point)

    @hub.agent("switch")
    async def switch(brief: Brief, state: Literal["on", "off"]) -> str:
        return state

    assert shop
    assert table
    assert where
    assert switch
    async with hub:
        goods = await hub.ask("shop", user="u-1", input=[{"item": 7}])
        rows = await hub.ask("table", user="u-1", input={"first": "x"})
        point = await hub.ask("map", user="u-1", input={"x": 1})
        state = await hub.ask("switch", user="u-1", input="dim")
    assert problems(goods) == [
        ("$[0].item", "as Order: Input should be a valid string"),
        ("$[0].weight", "as Parcel: is required but missing"),
    ]
    assert problems(rows) == [("$", "key: Expected `int`, got `str`")]
    assert problems(point) == [("$", "Expected `array`, got `object`")]
    assert problems(state) == [("$", "Invalid enum value 'dim'; expected one of 'on', 'off'")]


async def test_object_is_anything_for_an_agent_and_for_a_tool(hub: Hub) -> None:
    @hub.tool()
    def same(value: object) -> object:
        return value

    @hub.agent("echo", tools=["same"])
    async def echo(brief: Brief, value: object) -> object:
        return await brief.use("same", value=value)

    @hub.agent("second")
    async def second(brief: Brief, values: dict[str, object]) -> object:
        return values["b"]

    assert same
    assert echo
    assert second
    async with hub:
        assert (await hub.ask("echo", user="u-1", input=[1, {"a": None}])).result == [1, {"a": None}]
        assert (await hub.ask("second", user="u-1", input={"a": 1, "b": [2]})).result == [2]


async def briefless() -> str:
    return ""


async def with_a_number_of_its_own(brief: Brief, number: complex) -> str:
    return str(number)


@pytest.mark.parametrize(
    ("agent", "message"),
    [
        (
            briefless,
            "`briefless` takes no parameter, and has to take the brief: write `def briefless(brief: Brief)`",
        ),
        (
            with_a_number_of_its_own,
            "`with_a_number_of_its_own`: its parameters cannot be described as JSON: "
            "`complex` cannot be written as JSON; use text, a model or a dataclass",
        ),
    ],
)
def test_a_function_that_cannot_be_asked_is_refused_when_it_is_added(
    hub: Hub, agent: Callable[..., Any], message: str
) -> None:
    with pytest.raises(RemitError) as caught:
        hub.add("clerk", agent)
    assert caught.value.fault.message == message
