"""Refusals in a dialect name its own fields, and take no wrong field for a wrong token."""

from typing import Any

import pytest

from remit import Brief, Hub
from remit_testing.memory import MemoryStore
from serving import client_of, serving

EMPLOYEE: dict[str, Any] = {
    "request_id": "r-1",
    "origin_employee": "boss",
    "target_employee": "desk",
    "user_id": "anna",
    "parent_session_id": "s",
    "objective": "Go",
    "input": "x",
    "constraints": {},
    "context_hints": [],
    "handoff_data": {},
    "current_depth": 1,
}
LONG = "n" * 195


async def refused(body: dict[str, Any], sender: str = "north") -> tuple[int, str]:
    hub = Hub(store=MemoryStore())

    @hub.agent("desk")
    async def desk(_: Brief) -> str:
        return "done"

    async with (
        serving(hub) as server,
        client_of(server, sender) as client,
        client.post("/dialects/employee", json=body) as reply,
    ):
        return reply.status, (await reply.json())["error"]


@pytest.mark.parametrize("field", ["origin_employee", "parent_session_id", "child_session_id"])
async def test_a_name_that_is_too_long_is_told_by_the_field_of_the_document(field: str) -> None:
    """X11, X16."""
    status, error = await refused(EMPLOYEE | {field: LONG})
    assert status == 400
    assert f"$.{field}: use at most 194 characters" in error


async def test_an_unknown_field_that_is_called_origin_is_no_wrong_token() -> None:
    status, error = await refused(EMPLOYEE | {"origin": "boss"})
    assert status == 400
    assert "$.origin" in error


async def test_the_token_of_a_client_is_still_told_from_that_of_a_service() -> None:
    """X9: 401."""
    status, error = await refused(EMPLOYEE, sender="web")
    assert (status, "this token belongs to a client; only a peer may act for agents" in error) == (401, True)
