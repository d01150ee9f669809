"""Large typed inputs and results are converted beside the event loop; small ones in it."""

import threading
from dataclasses import dataclass
from typing import Any

import pytest

from remit import Brief, Hub
from remit_testing import MemoryStore


@dataclass
class Line:
    text: str


@pytest.mark.parametrize(("count", "aside"), [(3, False), (2_000, True)])
async def test_a_large_typed_result_is_converted_beside_the_event_loop(count: int, *, aside: bool) -> None:
    threads: set[str] = set()

    hub = Hub(store=MemoryStore())
    pydantic = pytest.importorskip("pydantic")

    class Model(pydantic.BaseModel):
        lines: list[Line]

        @pydantic.model_serializer(mode="wrap")
        def written(self, handler: Any) -> Any:
            threads.add(threading.current_thread().name)
            return handler(self)

    @hub.agent("writer")
    async def writer(brief: Brief) -> Model:
        return Model(lines=[Line(f"line {n}") for n in range(count)])

    assert writer
    async with hub:
        response = await hub.ask("writer", user="u-1")
    assert len(response.unwrap()["lines"]) == count
    assert any(name.startswith("remit-aside") for name in threads) is aside
    assert ("MainThread" in threads) is not aside


@pytest.mark.parametrize(("count", "aside"), [(3, False), (2_000, True)])
async def test_a_large_typed_input_is_read_beside_the_event_loop(count: int, *, aside: bool) -> None:
    threads: set[str] = set()
    hub = Hub(store=MemoryStore())
    pydantic = pytest.importorskip("pydantic")

    class Model(pydantic.BaseModel):
        lines: list[str]

        @pydantic.model_validator(mode="after")
        def read(self) -> Any:
            threads.add(threading.current_thread().name)
            return self

    @hub.agent("reader")
    async def reader(brief: Brief, report: Model) -> int:
        return len(report.lines)

    @hub.tool("count")
    async def count_lines(report: Model) -> int:
        return len(report.lines)

    @hub.agent("caller", tools=["count"])
    async def caller(brief: Brief) -> Any:
        return await brief.use("count", report=brief.input)

    assert reader
    assert count_lines
    assert caller
    given = {"lines": [f"line {n}" for n in range(count)]}
    async with hub:
        for agent in ("reader", "caller"):
            threads.clear()
            assert (await hub.ask(agent, input=given, user="u-1")).unwrap() == count
            assert any(name.startswith("remit-aside") for name in threads) is aside
            assert ("MainThread" in threads) is not aside
