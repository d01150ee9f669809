"""A refusal names the request that it refuses, however wrong the JSON is, and never fails over what it echoes."""

import json
from typing import Any

import pytest

from remit import Brief, Hub
from remit_testing.memory import MemoryStore
from serving import client_of, posted, serving

EMPLOYEE = (
    '{"request_id": ID, "origin_employee": "b", "target_employee": "desk", "user_id": "anna", "objective": "o",'
    ' "parent_session_id": "s", "input": "i", "constraints": {"max_tokens": VALUE}, "context_hints": [],'
    ' "handoff_data": {}, "current_depth": 1}'
)
CONTRACT = (
    '{"source_agent": "b", "target_agent": "desk", "capability_code": "LOOK", "request_id": ID, "inputs_json": {},'
    ' "context": {"user_id": "anna"}, "timeout_ms": VALUE}'
)


def office() -> Hub:
    hub = Hub(store=MemoryStore())

    @hub.agent("desk", capabilities=["LOOK"])
    async def desk(_: Brief) -> str:
        return "done"

    return hub


async def refused(dialect: str, body: str) -> tuple[int, Any]:
    async with serving(office()) as server, client_of(server, "north") as north:
        headers = {"content-type": "application/json"}
        async with north.post(f"/dialects/{dialect}", data=body.encode(), headers=headers) as reply:
            return reply.status, json.loads(await reply.text())


@pytest.mark.parametrize(("dialect", "body"), [("employee", EMPLOYEE), ("contract", CONTRACT)])
@pytest.mark.parametrize("value", ["NaN", "-Infinity", "1e400", "9" * 5_000, '1, "VALUE": 1, "VALUE": 2'])
async def test_the_id_is_echoed_also_out_of_json_that_is_not_strict(dialect: str, body: str, value: str) -> None:
    """X1, K1: JavaScript and Python write such JSON; whoever sent it has to know which request was refused."""
    status, told = await refused(dialect, body.replace("VALUE", value).replace("ID", '"r-7"'))
    assert (status, told["request_id"]) == (400, "r-7")


@pytest.mark.parametrize(("dialect", "body"), [("employee", EMPLOYEE), ("contract", CONTRACT)])
@pytest.mark.parametrize("id", [r'"\ud800"', r'"a\nb"', f'"{"i" * 201}"', "[]", "7", '""'])
async def test_what_is_no_id_is_not_echoed(dialect: str, body: str, id: str) -> None:
    status, told = await refused(dialect, body.replace("VALUE", "1").replace("ID", id))
    assert (status, told["request_id"]) == (400, "?")


async def test_the_name_of_a_peer_alone_is_a_session_like_any_other() -> None:
    """X16: what is returned can be sent back, and is never empty."""
    ask = {"user": "anna", "target": "desk", "objective": "Go", "origin": "boss"}
    async with serving(office()) as server, client_of(server, "north") as north:
        first = (await posted(north, ask | {"session": "@north"}))[1]["session"]
        assert first == (await posted(north, ask | {"session": first, "objective": "On"}))[1]["session"] == "@north"
