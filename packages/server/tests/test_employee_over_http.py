"""Employees over HTTP to the letter: who may ask, under which id a refusal comes, and answers as streams."""

import json
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientSession

from remit import Brief, Hub
from serving import client_of, serving

REQUEST: dict[str, Any] = {
    "request_id": "550e8400-e29b-41d4-a716-446655440000",
    "origin_employee": "prime-boss",
    "target_employee": "byte-doc",
    "user_id": "anna",
    "parent_session_id": "uuid-of-prime-session",
    "objective": "Extract receipt data",
    "input": "receipt.jpg",
    "constraints": {},
    "context_hints": [],
    "handoff_data": {},
    "current_depth": 1,
}
STREAM = {"accept": "text/event-stream"}


@pytest.fixture
def office(tmp_path: Path) -> Hub:
    hub = Hub(store=str(tmp_path / "remit.db"))

    @hub.agent("byte-doc", may_call=["tag-ai"])
    async def byte(brief: Brief) -> str:
        if brief.objective == "Fail":
            raise ValueError("no")
        brief.progress("reading")
        for piece in ("All ", "of it"):
            brief.say(piece)
        await brief.delegate("tag-ai", objective="Tag it")
        return "All of it"

    @hub.agent("tag-ai")
    async def tag(brief: Brief) -> str:
        brief.progress("not for the employee")
        brief.say("nor this")
        return "tagged"

    assert byte
    assert tag
    return hub


async def asked(session: ClientSession, body: Any, headers: dict[str, str] | None = None) -> tuple[int, Any]:
    async with session.post("/dialects/employee", json=body, headers=headers) as reply:
        return reply.status, await reply.json()


async def streamed(session: ClientSession, body: Any) -> list[tuple[str, Any]]:
    async with session.post("/dialects/employee", json=body, headers=STREAM) as reply:
        assert (reply.status, reply.content_type) == (200, "text/event-stream"), await reply.text()
        frames = (await reply.text()).strip().split("\n\n")
    parts = [dict(line.split(": ", 1) for line in frame.split("\n")) for frame in frames if not frame.startswith(":")]
    return [(part["event"], json.loads(part["data"])) for part in parts]


async def test_a_clients_token_is_no_service_credential(office: Hub) -> None:
    """X9: 401 for a token that nobody has, for none, and for a user's; the header says which request it was."""
    said = {"x-agent-request-id": REQUEST["request_id"]}
    async with serving(office) as server:
        for token in ("Bearer nobody", "Bearer web", ""):
            async with ClientSession(server.address, headers={"authorization": token}) as session:
                status, body = await asked(session, REQUEST, said)
            assert (status, body["status"], body["request_id"]) == (401, "failed", REQUEST["request_id"]), token


async def test_a_refused_envelope_is_answered_under_its_id(office: Hub) -> None:
    """X2: also a large one."""
    async with serving(office) as server, client_of(server, "north") as north:
        for text in ("short", "long " * 5_000):
            status, body = await asked(north, REQUEST | {"surprise": text})
            assert (status, body["request_id"]) == (400, REQUEST["request_id"])
            assert body["target_employee"] == "byte-doc"


async def test_an_employee_that_wants_a_stream_gets_the_words_as_they_come_and_then_the_response(office: Hub) -> None:
    """X15: of the employee that was asked, and of nobody below it."""
    async with serving(office) as server, client_of(server, "north") as north:
        events = await streamed(north, REQUEST)
        again = await streamed(north, REQUEST)
        _, plain = await asked(north, REQUEST)
    assert ("progress", {"text": "reading"}) in events
    assert "".join(data["text"] for kind, data in events if kind == "delta") == "All of it"
    assert not any("nor this" in json.dumps(data) or "not for" in json.dumps(data) for _, data in events)
    kind, response = events[-1]
    assert (kind, response["status"], response["result"]) == ("response", "success", "All of it")
    assert response["request_id"] == REQUEST["request_id"]
    assert again[-1][1] == response == plain, "the same request is answered as it was"
    assert [kind for kind, _ in events].count("response") == 1


async def test_what_fails_ends_its_stream_with_why_and_what_is_refused_begins_none(office: Hub) -> None:
    """X15: a failed response is the last event; a refusal has its HTTP status."""
    async with serving(office) as server, client_of(server, "north") as north:
        (*_, (kind, response)) = await streamed(north, REQUEST | {"request_id": "1", "objective": "Fail"})
        status, refused = await asked(north, REQUEST | {"request_id": "2", "current_depth": 2}, STREAM)
    assert (kind, response["status"]) == ("response", "failed")
    assert (status, refused["request_id"]) == (422, "2")
