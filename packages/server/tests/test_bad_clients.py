"""Clients that are slow, greedy, rude or broken: they get a clear error, or are cut off, and others do not notice."""

import asyncio
import gzip
import json
import socket
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest

from remit import Brief, Hub, Limits
from remit_server import connections
from remit_server.server import Server
from serving import client_of, connected, replied, sent, serving
from waiting import PATIENCE_S, eventually

ASK = {"target": "echo", "user": "anna", "objective": "hello"}
HEAD = "POST /v1/delegations HTTP/1.1\r\nhost: x\r\nauthorization: Bearer web\r\n"


@asynccontextmanager
async def echoing(hub: Hub) -> AsyncGenerator[Server]:
    @hub.agent("echo")
    async def echo(brief: Brief) -> str:
        return brief.text

    assert echo
    async with serving(hub) as served, asyncio.timeout(PATIENCE_S):
        yield served
        # Whatever a test has done: whoever comes now is served.
        async with client_of(served) as session, session.post("/v1/delegations", json=ASK) as reply:
            assert (await reply.json())["result"] == "hello"


def posting(body: bytes, kind: str = "application/json", more: str = "") -> bytes:
    return f"{HEAD}content-type: {kind}\r\ncontent-length: {len(body)}\r\n{more}\r\n".encode() + body


@pytest.mark.parametrize(
    "kind", ["text/plain", "", "application/x-www-form-urlencoded", "multipart/form-data", "x" * 500]
)
async def test_another_content_type_is_refused_before_the_body_counts(hub: Hub, kind: str) -> None:
    async with echoing(hub) as served:
        reply = await sent(served, posting(json.dumps(ASK).encode(), kind))
    assert (reply.status, reply.fault["code"]) == (415, "UNSUPPORTED_MEDIA_TYPE")
    assert len(reply.fault["message"]) < 300


async def test_a_compressed_body_is_not_unpacked(hub: Hub) -> None:
    bomb = gzip.compress(b" " * 50_000_000)
    async with echoing(hub) as served:
        reply = await sent(served, posting(bomb, more="content-encoding: gzip\r\n"))
    assert (reply.status, reply.fault["code"]) == (415, "UNSUPPORTED_MEDIA_TYPE")


async def test_a_body_that_says_it_is_too_large_is_refused_before_it_comes(hub: Hub) -> None:
    async with echoing(hub) as served:
        raw = f"{HEAD}content-type: application/json\r\ncontent-length: 99999999999\r\n\r\n".encode()
        reply = await sent(served, raw)
    assert (reply.status, reply.fault["code"]) == (413, "TOO_LARGE")


async def test_a_body_that_turns_out_too_large_is_cut_off(hub: Hub) -> None:
    async with echoing(hub) as served:
        reader, writer = await connected(served)
        writer.write(f"{HEAD}content-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n".encode())
        chunk = b"10000\r\n" + b" " * 65_536 + b"\r\n"
        given = 0
        try:
            while given < 64 * 1024 * 1024:
                writer.write(chunk)
                await writer.drain()
                given += 65_536
            answer = await reader.read(64)
        except ConnectionError:
            answer = b""
        writer.close()
    assert given < 64 * 1024 * 1024, "it took all of it"
    assert answer == b"" or b" 413 " in answer


@pytest.mark.parametrize(
    "body",
    [
        b"[" * 100_000,
        b'{"a":' * 100_000,
        b'{"target": "echo", "input": ' + b"[" * 1_000 + b"]" * 1_000 + b"}",
        b"\xff\xfe\x00",
        b"",
        b"null",
        b'{"target": "echo", "target": "other", "user": "anna"}',
        b'{"target": "echo", "user": "anna", "max_tokens": 1e999}',
        b'{"target": "echo", "user": "anna", "input": 123456789012345678901234567890}',
        b'{"target": "echo", "user": "an\\u0000na"}',
        b'{"target": "echo", "user": "anna", "objective": "\\ud800"}',
    ],
    ids=["arrays", "objects", "nested", "bytes", "empty", "null", "twice", "huge", "long", "control", "half"],
)
async def test_json_that_is_none_or_could_be_read_in_two_ways_is_refused(hub: Hub, body: bytes) -> None:
    async with echoing(hub) as served:
        reply = await sent(served, posting(body))
    assert reply.status in (400, 413)
    assert reply.fault["code"] in ("MALFORMED_ENVELOPE", "TOO_LARGE")


async def test_a_slow_body_is_given_up(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "BODY_S", 0.3)
    async with echoing(hub) as served:
        reader, writer = await connected(served)
        writer.write(f"{HEAD}content-type: application/json\r\ncontent-length: 1000\r\n\r\n{{".encode())
        head = await reader.readuntil(b"\r\n\r\n")
        assert b" 504 " in head or b" 408 " in head
        assert await reader.read() is not None, "it hangs up"
        writer.close()


async def test_slow_headers_are_given_up(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "HEADERS_S", 0.3)
    async with echoing(hub) as served:
        reader, writer = await connected(served)
        writer.write(b"POST /v1/dele")
        assert await reader.read() == b""
        writer.close()


async def test_only_so_many_requests_may_be_sent_ahead_on_a_connection(hub: Hub) -> None:
    """Each is a few bytes on the wire, and a thousand times as much once it has been read."""
    look = b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n"
    async with echoing(hub) as served:
        reader, writer = await connected(served)
        for _ in range(connections.MOST_AHEAD):
            writer.write(look)
        for _ in range(connections.MOST_AHEAD):
            assert (await replied(reader)).body == b"alive\n"
        writer.write(look * 5_000)
        with suppress(ConnectionError):
            while await reader.read(1_000_000):
                pass
        writer.close()
        assert served.server_state.total_requests < 5_000


async def test_a_thousand_idle_connections_keep_nobody_out(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "HEADERS_S", 1.0)
    async with echoing(hub) as served:
        idle = [await connected(served) for _ in range(400)]
        async with client_of(served) as session, session.post("/v1/delegations", json=ASK) as reply:
            assert reply.status == 200
        for reader, writer in idle:
            assert await reader.read() == b"", "all are hung up on"
            writer.close()


async def test_whoever_hangs_up_in_the_middle_of_a_stream_leaves_nothing_behind(hub: Hub) -> None:
    go_on = asyncio.Event()

    @hub.agent("slow")
    async def slow(brief: Brief) -> str:
        brief.progress("begun")
        await go_on.wait()
        return "done"

    assert slow
    async with echoing(hub) as served:
        async with client_of(served) as session:
            body = {"target": "slow", "user": "anna", "objective": "x", "id": "s-1"}
            for _ in range(20):
                headers = {"accept": "text/event-stream"}
                async with session.post("/v1/delegations", json=body, headers=headers) as reply:
                    await reply.content.readany()
        streams: set[Any] = served.api.delegations.streams
        async with asyncio.timeout(PATIENCE_S):
            go_on.set()
            await eventually(lambda: not streams)
        assert (await hub.store.runs(limit=10))[0].response is not None


@pytest.mark.parametrize("streams", [False, True])
async def test_whoever_never_reads_its_answer_is_hung_up_on(
    make_hub: Callable[..., Hub], monkeypatch: pytest.MonkeyPatch, *, streams: bool
) -> None:
    """More than the system keeps for it, the server would, for ever."""
    monkeypatch.setattr(connections, "STALLED_S", 0.2)
    hub = make_hub(limits=Limits(max_result_bytes=40_000_000))

    @hub.agent("large")
    async def large(_: Brief) -> str:
        return "x" * 30_000_000

    async def answered() -> bool:
        return any(run.response for run in await hub.store.runs(limit=1))

    assert large
    body = json.dumps(ASK | {"target": "large"}).encode()
    async with echoing(hub) as served:
        # A bare socket, which takes no more than the system keeps for it.
        with socket.create_connection(served.servers[0].sockets[0].getsockname()) as deaf:
            deaf.sendall(posting(body, more="accept: text/event-stream\r\n" if streams else ""))
            await eventually(answered)
            await eventually(lambda: not served.server_state.connections)
            await eventually(lambda: not served.api.delegations.streams)


@pytest.mark.parametrize(
    "garbage", [b"\x16\x03\x01\x02\x00\x01\x00", b"HELO x\r\n\r\n", b"GET / HTTP/1.1\r\n" + b"a" * 100_000]
)
async def test_what_is_no_http_is_hung_up_on(hub: Hub, garbage: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "HEADERS_S", 0.5)
    async with echoing(hub) as served:
        reader, writer = await connected(served)
        writer.write(garbage)
        try:
            answer = await reader.read()
        except ConnectionError:
            answer = b""
        assert answer == b"" or b" 400 " in answer or b" 431 " in answer
        writer.close()
