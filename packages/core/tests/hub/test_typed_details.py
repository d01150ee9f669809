"""Typed agents in the cases that people meet on the first day: a result alone, null, unions, TypedDicts, wrong keys."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, NotRequired, TypedDict

import pytest
from pydantic import BaseModel

from remit import Brief, Code, Hub, RemitError, Response
from samples import code_of


class Order(BaseModel):
    item: str
    count: int = 1


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
