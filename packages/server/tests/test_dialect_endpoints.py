"""Clients that were written against one of the documents, at the server of a hub."""

import json
from typing import Any

from aiohttp import ClientSession

from remit import Brief, Capability, Hub
from serving import client_of, serving

# The document's "Mode 1: Simple Delegation".
X_REQUEST = {
    "request_id": "550e8400-e29b-41d4-a716-446655440000",
    "origin_employee": "prime-boss",
    "target_employee": "byte-doc",
    "user_id": "user-456",
    "parent_session_id": "uuid-of-prime-session",
    "objective": "Extract receipt data",
    "input": "User uploaded receipt.jpg - extract all fields",
    "constraints": {"max_tokens": 1200, "max_depth": 2, "deadline_ms": 15000},
    "context_hints": ["receipt", "ocr"],
    "handoff_data": {},
}
X_HEADERS = {
    "X-Agent-Request-ID": X_REQUEST["request_id"],
    "X-Agent-Origin": "prime-boss",
    "X-Agent-Depth": "1",
    "X-Agent-Parent-Session": "uuid-of-prime-session",
}


def tagging(hub: Hub) -> Hub:
    @hub.agent("byte-doc", capabilities=[Capability(code="TAG")])
    async def tag(brief: Brief) -> str:
        return f"tagged at depth {brief.remit.depth}"

    assert tag
    return hub


async def said(session: ClientSession, path: str, body: Any, headers: Any = None) -> tuple[int, Any]:
    async with session.post(path, json=body, headers=headers) as reply:
        assert reply.content_type == "application/json"
        return reply.status, json.loads(await reply.text())


async def test_an_employee_asks_at_the_address_of_its_document(hub: Hub) -> None:
    """X9: HTTP between services, with the document's headers."""
    async with serving(tagging(hub)) as server, client_of(server, "north") as session:
        path = "/dialects/employee/.netlify/functions/chat-internal"
        status, body = await said(session, path, X_REQUEST, X_HEADERS)
        assert (status, body["status"], body["result"]) == (200, "success", "tagged at depth 1"), body
        status, body = await said(session, path, X_REQUEST | {"request_id": "other"}, X_HEADERS)
        assert status == 400
        assert "X-Agent-Request-ID".lower() in json.dumps(body).lower()


async def test_a_dialect_that_is_not_spoken_is_said_with_those_that_are(hub: Hub) -> None:
    async with serving(tagging(hub)) as server, client_of(server, "north") as session:
        status, body = await said(session, "/dialects/klingon", {})
    assert (status, body["fault"]["code"]) == (404, "NOT_FOUND")
    assert "employee, librarian, contract, subagent" in body["fault"]["suggestion"]


async def test_who_proves_nothing_is_refused_in_the_words_of_the_dialect(hub: Hub) -> None:
    async with serving(tagging(hub)) as server, ClientSession(server.address) as session:
        status, body = await said(session, "/dialects/employee", X_REQUEST, X_HEADERS)
    assert status == 401
    assert "fault" not in body
    assert body["status"] != "success"


async def test_a_dialect_that_does_not_say_for_whom_is_told_where_to_say_it(hub: Hub) -> None:
    """A peer that asks for many users has to; the place is one of its own envelope."""
    query: dict[str, Any] = {"query": "x", "version": "1.0", "requestId": "r-1", "timestamp": 1}
    context: dict[str, Any] = {
        "originalQuery": "x",
        "delegationChain": [],
        "delegationDepth": 0,
        "remainingTimeout": 5_000,
    }
    capability = {"source_agent": "A", "target_agent": "byte-doc", "capability_code": "TAG", "request_id": "r-1"}
    asked: dict[str, tuple[dict[str, Any], str]] = {
        "librarian/byte-doc": (
            query | {"context": context | {"startTime": 1, "parentSpanId": ""}},
            "context.user",
        ),
        "contract": (capability | {"inputs_json": {}, "context": {}}, "context.user_id"),
        "subagent": ({"agent_name": "byte-doc", "task": "x"}, "remit.user"),
    }
    async with serving(tagging(hub)) as server, client_of(server, "north") as session:
        for path, (body, place) in asked.items():
            status, told = await said(session, f"/dialects/{path}", body)
            assert status == 400
            assert f"$.{place}: name the user of the request" in json.dumps(told), told
            assert "$.user" not in json.dumps(told)
            assert "`problems`" not in json.dumps(told), "there are none in these envelopes"


async def test_each_dialect_answers_garbage_in_its_own_words(hub: Hub) -> None:
    async with serving(tagging(hub)) as server, client_of(server, "north") as session:
        for name in ("employee", "librarian/byte-doc", "contract", "subagent"):
            status, body = await said(session, f"/dialects/{name}", {"nonsense": 1})
            assert status == 400, (name, body)
            assert "fault" not in body
