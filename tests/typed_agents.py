"""Agents with typed parameters, at the top of a module: what an agent in a process of its own must be."""

from collections.abc import AsyncIterator
from dataclasses import dataclass

import pydantic

from remit import Brief


class Order(pydantic.BaseModel):
    item: str
    count: pydantic.PositiveInt = 1


@dataclass
class Quote:
    total: float
    note: str = ""


async def quote(brief: Brief, order: Order) -> Quote:
    return Quote(2.5 * order.count, order.item)


async def unwritable(brief: Brief) -> object:
    return {"rate": float("nan")}


async def stream(brief: Brief) -> AsyncIterator[str | Quote]:
    yield "two "
    yield "fifty"
    yield Quote(2.5)
