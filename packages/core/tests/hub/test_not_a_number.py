"""NaN and infinity are refused wherever an agent hands something to its hub: they would arrive as null."""

import asyncio
from typing import Any

import pytest

from nan_agents import not_a_number
from remit import Code, Hub
from remit_testing import MemoryStore
from waiting import PATIENCE_S


@pytest.mark.parametrize("isolation", ["task", pytest.param("process", marks=pytest.mark.processes)])
async def test_not_a_number_is_refused_and_never_becomes_null(isolation: Any) -> None:
    hub = Hub(store=MemoryStore())
    weighed: list[Any] = []

    @hub.tool("weigh")
    def weigh(grams: Any) -> str:
        weighed.append(grams)
        return "done"

    assert weigh
    hub.add("scales", not_a_number, tools=["weigh"], isolation=isolation)
    async with hub, asyncio.timeout(PATIENCE_S):
        response = await hub.ask("scales", user="u-1")
    why = "NaN and infinity cannot be written as JSON"
    assert response.unwrap() == [
        [Code.INPUT_VALIDATION_FAILED, f"$.grams: {why}"],
        [Code.INPUT_VALIDATION_FAILED, f"$.grams[1]: {why}"],
        [Code.INPUT_VALIDATION_FAILED, f"grams: {why}"],
        [Code.RESULT_VALIDATION_FAILED, f"$: {why}"],
        [Code.RESULT_VALIDATION_FAILED, f"$.x: {why}"],
        {},
    ]
    assert weighed == []
