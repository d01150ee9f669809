"""A stream of `/mcp` that broke is resumed where it broke: by its own session, and by nobody else."""

import asyncio
import json
import tracemalloc
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any

import mcp_types as types
import pytest
from aiohttp import ClientResponse, ClientSession
from mcp.server.streamable_http import EventMessage

from remit import Brief, Hub
from remit.policy.reception import Sender
from remit_server.mcp import replay
from remit_server.mcp.replay import SessionMessages, SessionReplay
from serving import client_of, serving
from waiting import PATIENCE_S

ANNA = Sender(name="anna-desk", users=frozenset({"anna"}))
BOB = Sender(name="bob-desk", users=frozenset({"bob"}))
BOTH = "application/json, text/event-stream"


class Gate:
    """Lets the agent `slow` work, and finish."""

    def __init__(self) -> None:
        self.begun, self.go = asyncio.Event(), asyncio.Event()


@pytest.fixture
def gate() -> Gate:
    return Gate()


@pytest.fixture
def hub(make_hub: Callable[..., Hub], gate: Gate) -> Hub:
    hub = make_hub()

    @hub.agent("slow")
    async def slow(brief: Brief) -> str:
        gate.begun.set()
        brief.progress("begun")
        await gate.go.wait()
        return f"{brief.user}: {brief.objective}"

    assert slow
    return hub


async def opened(client: ClientSession) -> str:
    """Open a session of MCP, and return its id."""
    greeting = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
    body = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": greeting}
    async with client.post("/mcp", json=body, headers={"accept": BOTH}) as reply:
        await reply.read()
        session = reply.headers["mcp-session-id"]
    body = {"jsonrpc": "2.0", "method": "notifications/initialized"}
    async with client.post("/mcp", json=body, headers={"accept": BOTH, "mcp-session-id": session}) as reply:
        assert reply.status == 202
    return session


@asynccontextmanager
async def calling(client: ClientSession, session: str, task: str, **meta: Any) -> AsyncGenerator[ClientResponse]:
    """Call the agent, with the request number 1; leaving the block breaks the stream."""
    arguments = {"agent": "slow", "task": task}
    params = {"name": "delegate_task", "arguments": arguments, "_meta": meta}
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    async with client.post("/mcp", json=body, headers={"accept": BOTH, "mcp-session-id": session}) as reply:
        yield reply


def resuming(client: ClientSession, session: str, last: str) -> Any:
    headers = {"accept": "text/event-stream", "mcp-session-id": session, "last-event-id": last}
    return client.get("/mcp", headers=headers)


async def event(reply: ClientResponse) -> dict[str, str]:
    """Return the next event of a stream; an empty one at its end."""
    found: dict[str, str] = {}
    async with asyncio.timeout(PATIENCE_S):
        while line := (await reply.content.readline()).decode():
            name, _, value = line.rstrip("\r\n").partition(":")
            if name:
                found[name] = value.removeprefix(" ")
            elif found:  # no comment, which keeps a stream open
                break
    return found


async def to_the_end(reply: ClientResponse) -> list[dict[str, str]]:
    """Return the events of a stream that ends with the answer."""
    found: list[dict[str, str]] = []
    while each := await event(reply):
        found.append(each)
    return found


async def test_a_host_gets_what_it_missed_and_the_answer_as_it_comes(hub: Hub, gate: Gate) -> None:
    async with serving(hub, ANNA) as server, client_of(server, "anna-desk") as client:
        session = await opened(client)
        async with calling(client, session, "pay", progressToken=7) as reply:
            first = await event(reply)
        assert (first["data"], first["retry"]) == ("", "1000")
        await gate.begun.wait()
        async with resuming(client, session, first["id"]) as reply:
            missed = [json.loads((await event(reply))["data"]) for _ in range(2)]
            gate.go.set()
            rest = await to_the_end(reply)
        assert [each["params"]["progressToken"] for each in missed] == [7, 7]
        async with resuming(client, session, first["id"]) as reply:
            again = await to_the_end(reply)
    assert json.loads(rest[-1]["data"])["result"]["structuredContent"]["result"] == "anna: pay"
    assert again[2:] == rest, "what was sent can be fetched again"


async def test_sessions_have_streams_of_the_same_name_and_do_not_get_each_others_messages(hub: Hub, gate: Gate) -> None:
    gate.go.set()
    async with (
        serving(hub, ANNA, BOB) as server,
        client_of(server, "anna-desk") as anna,
        client_of(server, "bob-desk") as bob,
    ):
        one, two = await opened(anna), await opened(bob)
        async with calling(anna, one, "secret") as reply:
            first = await event(reply)
        async with calling(bob, two, "other") as reply:
            (same,) = {(await event(reply))["id"]} & {first["id"]}
            await reply.read()
        async with resuming(bob, two, same) as reply:
            mine = await reply.text()
        async with resuming(bob, one, same) as reply:
            assert reply.status == 404, "a session is its user's"
        async with resuming(bob, two, "999-1") as reply:
            assert await event(reply) == {}
    assert "bob: other" in mine
    assert "secret" not in mine


async def test_a_second_session_header_does_not_replay_the_session_of_somebody_else(hub: Hub, gate: Gate) -> None:
    gate.go.set()
    async with (
        serving(hub, ANNA, BOB) as server,
        client_of(server, "anna-desk") as anna,
        client_of(server, "bob-desk") as bob,
    ):
        one, two = await opened(anna), await opened(bob)
        async with calling(anna, one, "secret") as reply:
            first = await event(reply)
            await reply.read()
        for sessions in ((two, one), (one, two)):
            headers = [("accept", "text/event-stream"), ("last-event-id", first["id"])]
            headers += [("mcp-session-id", each) for each in sessions]
            async with bob.get("/mcp", headers=headers) as reply:
                assert "secret" not in await reply.text()


async def test_the_messages_of_a_session_are_forgotten_when_it_is_ended(
    hub: Hub, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate.go.set()
    made: list[SessionMessages] = []
    monkeypatch.setattr(SessionMessages, "__init__", _noting(SessionMessages.__init__, made))
    async with serving(hub, ANNA) as server, client_of(server, "anna-desk") as client:
        session = await opened(client)
        async with calling(client, session, "pay") as reply:
            await reply.read()
        assert any(each.size for each in made)
        async with client.delete("/mcp", headers={"mcp-session-id": session}) as reply:
            assert reply.status == 200
        assert not any(each.size for each in made)


def _noting(make: Callable[[SessionMessages], None], made: list[SessionMessages]) -> Callable[[SessionMessages], None]:
    def noting(session: SessionMessages) -> None:
        made.append(session)
        make(session)

    return noting


def answer(number: int, text: str) -> types.JSONRPCResponse:
    return types.JSONRPCResponse(jsonrpc="2.0", id=number, result={"text": text})


async def replayed(session: SessionMessages, last: str) -> list[Any]:
    found: list[Any] = []

    async def send(message: EventMessage) -> None:
        found.append(message.message)

    assert await session.replay(last, send) is None
    return found


async def test_a_session_keeps_the_newest_messages_and_all_together_a_bounded_number(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(replay, "SESSION_BYTES", 5_000)
    monkeypatch.setattr(replay, "TOTAL_BYTES", 7_000)
    kept = SessionReplay()
    with kept.serving(None) as greedy:
        first = [await kept.store_event(str(number), None) for number in range(5)]
        for number in range(5):
            await kept.store_event(str(number), answer(number, "x" * 1_000))
    assert greedy.size <= 5_000
    assert await replayed(greedy, first[0]) == []
    assert await replayed(greedy, first[4]) == [answer(4, "x" * 1_000)]
    before = greedy.size
    with kept.serving(None) as modest:
        begun = await kept.store_event("1", None)
        for number in range(2):
            await kept.store_event("1", answer(number, "y" * 1_000))
    assert greedy.size + modest.size <= 7_000
    assert greedy.size < before, "the session that keeps most loses first"
    assert await replayed(modest, begun) == [answer(0, "y" * 1_000)]


async def test_the_number_of_a_request_may_be_used_again() -> None:
    session = SessionMessages()
    before = session.add("1", None)
    session.add("1", answer(1, "first"))
    after = session.add("1", None)
    session.add("1", answer(1, "second"))
    assert await replayed(session, before) == [answer(1, "first")]
    assert await replayed(session, after) == [answer(1, "second")]
    assert await replayed(session, "nothing") == []


def test_what_a_session_keeps_takes_about_the_memory_that_is_counted() -> None:
    session = SessionMessages()

    def add(number: int) -> None:
        rows: list[Any] = [{"a": row, "b": [1.5 * row]} for row in range(1_000)]
        session.add(str(number), types.JSONRPCResponse(jsonrpc="2.0", id=number, result={"rows": rows}))

    tracemalloc.start()
    try:
        for number in range(20):
            add(number)
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert session.size > 400_000
    assert taken < 1.5 * session.size


async def test_a_call_that_goes_on_is_not_forgotten_for_newer_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replay, "MOST_STREAMS", 3)
    session = SessionMessages()
    begun = session.add("1", None)
    for number in range(2, 10):
        session.add(str(number), None)
        session.add(str(number), answer(number, "short"))
    session.add("1", answer(1, "long"))
    assert await replayed(session, begun) == [answer(1, "long")]
