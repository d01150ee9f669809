"""Agents at another hub, asked over HTTP: as near as any other, and bounded whatever the other side does."""

import asyncio
import gzip
import random
import re
import socket
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import ExitStack, asynccontextmanager
from typing import Any

import pytest

import remit
from remit import Brief, Code, RemitError, Response, Status, fault
from remit.policy.reception import Sender
from remit.protocol.card import Capability
from remit.protocol.codec import decode_submission, encode
from remit.protocol.records import Progress
from remit_server import connect
from remit_server.app import Api
from remit_server.server import Server
from remit_server.transports.remote_calls import ATTEMPTS
from remit_testing import MemoryStore
from remit_testing.transports.conformance import TransportConformance
from serving import gate_of
from waiting import PATIENCE_S


class TestLocal(TransportConformance):
    def hubs(self, **options: Any) -> tuple[remit.Hub, remit.Hub]:
        hub = remit.Hub(store=MemoryStore(), **options)
        return hub, hub

    @asynccontextmanager
    async def joined(self, near: remit.Hub, far: remit.Hub) -> AsyncGenerator[None]:
        async with near:
            yield


class TestHttp(TransportConformance):
    @asynccontextmanager
    async def joined(self, near: remit.Hub, far: remit.Hub) -> AsyncGenerator[None]:
        gate = gate_of(Sender(name="near", is_hub=True), Sender(name="far", is_hub=True))
        async with _served(near, gate) as at_near, _served(far, gate) as at_far:
            for name, card in far.cards.items():
                connect(near, name, at_far.address, token="near", capabilities=card.capabilities)
            connect(far, "boss", at_near.address, token="far")
            yield


@asynccontextmanager
async def _served(hub: remit.Hub, gate: Any) -> AsyncGenerator[Server]:
    async with hub, Server(Api(hub, gate), port=0, drain_s=2) as server:
        yield server


# ── peers that are not as they should be ──────────────────────────────────────────────────────────────────────────────


class Peer:
    """Something that speaks HTTP as a test says: it is given each request, and writes what it likes."""

    def __init__(
        self,
        act: Callable[["Peer", bytes, asyncio.StreamWriter], Awaitable[None]],
        bound: socket.socket | None = None,
    ) -> None:
        self._act = act
        self._bound = bound
        self.requests: list[bytes] = []
        # Nothing else holds one whose client has left: it could be collected while it waits.
        self._serving: set[asyncio.Task[Any] | None] = set()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._serving.add(asyncio.current_task())
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = re.search(rb"content-length: (\d+)", head, re.IGNORECASE)
                body = await reader.readexactly(int(length[1]) if length else 0)
                self.requests.append(head + body)
                await self._act(self, head + body, writer)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    async def __aenter__(self) -> str:
        where: Any = {"host": "127.0.0.1", "port": 0} if self._bound is None else {"sock": self._bound}
        self._server = await asyncio.start_server(self._serve, **where)
        host, port = self._server.sockets[0].getsockname()
        return f"http://{host}:{port}"

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for task in filter(None, self._serving):
            task.cancel()


def reply(body: bytes, status: str = "200 OK", kind: str = "application/json", more: str = "") -> bytes:
    return f"HTTP/1.1 {status}\r\ncontent-type: {kind}\r\ncontent-length: {len(body)}\r\n{more}\r\n".encode() + body


def answer(request: bytes, result: str) -> bytes:
    sent = decode_submission(request.partition(b"\r\n\r\n")[2])
    return reply(
        encode(Response(version="1.0", id=str(sent.id), target="helper", status=Status.SUCCESS, result=result))
    )


async def asked_of(peer: Peer, *, deadline_ms: int = 3_000, max_tokens: int | None = None) -> Response:
    """Return what an agent gets that asks the peer once."""
    async with peer as url:
        hub = remit.Hub(name="near", store=MemoryStore(), limits=remit.Limits(max_result_bytes=100_000))
        connect(hub, "helper", url, token="t")
        got: list[Response] = []

        async def boss(brief: Brief) -> str:
            got.append(await brief.delegate("helper", objective="Help", deadline_ms=deadline_ms, max_tokens=max_tokens))
            return "done"

        hub.add("boss", boss, may_call=["helper"])
        async with hub, asyncio.timeout(PATIENCE_S):
            (await hub.ask("boss", "Go", user="anna")).unwrap()
    return got[0]


def ended(response: Response) -> tuple[Status, Code | None]:
    return response.status, response.fault and response.fault.code


@pytest.mark.parametrize(
    "garbage",
    [
        reply(b"<html>", kind="text/html"),
        reply(b"{"),
        reply(b'{"version": "1.0"}'),
        reply(b"\xff\xfe"),
        reply(b"[" * 100_000),
        reply(b"{}", "404 Not Found"),
        reply(b'{"run": 7}', "202 Accepted"),
        reply(b"data: x\n\nevent: result\ndata: {}\n\n", kind="text/event-stream"),
        b"HTTP/9.9 banana\r\n\r\n",
        reply(b"", "302 Found", more="location: http://127.0.0.1:1/\r\n"),
    ],
    ids=["html", "half", "envelope", "bytes", "deep", "404", "handle", "event", "status", "redirect"],
)
async def test_garbage_from_a_peer_is_a_fault_of_the_peer(garbage: bytes) -> None:
    async def act(_: Peer, __: bytes, writer: asyncio.StreamWriter) -> None:
        writer.write(garbage)

    response = await asked_of(Peer(act))
    assert not response.ok
    assert response.fault is not None
    assert response.fault.code in (Code.RESULT_VALIDATION_FAILED, Code.OUTCOME_UNKNOWN)


async def test_a_success_with_an_error_in_it_is_neither() -> None:
    why = fault(Code.TIMEOUT, "late")
    body = encode(Response(version="1.0", id="x", target="y", status=Status.SUCCESS, fault=why, result="?"))

    async def act(_: Peer, __: bytes, writer: asyncio.StreamWriter) -> None:
        writer.write(reply(body))

    assert ended(await asked_of(Peer(act))) == (Status.FAILED, Code.RESULT_VALIDATION_FAILED)


async def test_a_flood_is_cut_off() -> None:
    async def act(_: Peer, __: bytes, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 99999999999\r\n\r\n")
        while True:
            writer.write(b" " * 65_536)
            await writer.drain()

    assert ended(await asked_of(Peer(act))) == (Status.FAILED, Code.TOO_LARGE)


async def test_a_compressed_answer_is_not_unpacked() -> None:
    async def act(_: Peer, __: bytes, writer: asyncio.StreamWriter) -> None:
        writer.write(reply(gzip.compress(b" " * 10_000_000), more="content-encoding: gzip\r\n"))

    assert ended(await asked_of(Peer(act))) == (Status.FAILED, Code.RESULT_VALIDATION_FAILED)


async def test_a_peer_that_says_nothing_is_given_up_in_time() -> None:
    async def act(_: Peer, __: bytes, ___: asyncio.StreamWriter) -> None:
        await asyncio.Event().wait()

    # Whether it did anything, or still does, nobody knows: it was not cancelled there.
    response = await asked_of(Peer(act), deadline_ms=300)
    assert ended(response) == (Status.FAILED, Code.OUTCOME_UNKNOWN)
    assert response.fault is not None
    assert "Delegation timeout after" in response.fault.message


async def test_a_peer_that_dies_in_the_middle_is_asked_again_under_the_same_id() -> None:
    """C2: retries only where it is safe: same request id, at most one execution."""

    async def act(peer: Peer, request: bytes, writer: asyncio.StreamWriter) -> None:
        if len(peer.requests) == 1:
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 100\r\n\r\n{")
            writer.close()
            return
        writer.write(answer(request, "at last"))

    peer = Peer(act)
    response = await asked_of(peer)
    assert (response.result, len(peer.requests)) == ("at last", 2)
    ids = {decode_submission(raw.partition(b"\r\n\r\n")[2]).id for raw in peer.requests}
    assert ids == {response.id}


async def test_a_peer_that_is_lost_for_good_may_have_done_it_and_all_it_was_granted_counts_as_spent() -> None:
    async def act(_: Peer, __: bytes, writer: asyncio.StreamWriter) -> None:
        writer.close()

    response = await asked_of(Peer(act), max_tokens=700)
    assert ended(response) == (Status.FAILED, Code.OUTCOME_UNKNOWN)
    assert (response.usage.total, response.usage.estimated) == (700, True)


async def test_nobody_at_an_address_is_unreachable_and_nothing_is_spent() -> None:
    async def act(_: Peer, __: bytes, ___: asyncio.StreamWriter) -> None: ...

    async with Peer(act) as url:
        pass
    hub = remit.Hub(name="near", store=MemoryStore())
    connect(hub, "helper", url, token="t")
    async with hub:
        response = await hub.ask("helper", "Help", user="anna", deadline_ms=500)
    assert ended(response) == (Status.REFUSED, Code.DELEGATION_UNAVAILABLE)
    assert response.usage.total == 0


async def test_a_peer_that_is_away_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """C2: nothing was sent, so nothing can run twice; only its deadline ends the wait."""
    refusals, waited = 0, asyncio.Event()

    def in_words(_: object) -> str:
        nonlocal refusals
        refusals += 1
        if refusals > ATTEMPTS + 1:
            waited.set()
        return "refused"

    async def act(_: Peer, request: bytes, writer: asyncio.StreamWriter) -> None:
        writer.write(answer(request, "here again"))

    monkeypatch.setattr("remit_server.transports.http.in_words", in_words)
    hub = remit.Hub(name="near", store=MemoryStore())
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))  # nobody listens there yet, and no other test gets the port
        connect(hub, "helper", "http://{}:{}".format(*bound.getsockname()), token="t")
        async with hub, asyncio.timeout(PATIENCE_S):
            pending = asyncio.create_task(hub.ask("helper", "Help", user="anna", deadline_ms=25_000))
            await waited.wait()
            async with Peer(act, bound):
                response = await pending
            records = await hub.store.records(run=response.run)
    assert response.unwrap() == "here again"
    reports = [record.body.text for record in records if isinstance(record.body, Progress)]
    assert reports == ["cannot be reached; trying again"]


async def test_a_peer_that_is_away_is_not_waited_for_where_another_agent_can_be_asked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    refusals = list[object]()
    monkeypatch.setattr("remit_server.transports.http.in_words", lambda error: str(refusals.append(error)))
    monkeypatch.setattr(random, "betavariate", lambda a, b: a / (a + b))  # who came first is asked first
    hub = remit.Hub(name="near", store=MemoryStore())
    answers = list[Response]()

    async def local(_: Brief) -> str:
        return "instead"

    async def boss(brief: Brief) -> str:
        answers.append(await brief.delegate(capability="HELP", objective="Help", deadline_ms=10_000))
        return "done"

    hub.add("boss", boss, may_call=["*"])
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        url = "http://{}:{}".format(*bound.getsockname())
        connect(hub, "helper", url, token="t", capabilities=[Capability(code="HELP")])
        hub.add("other", local, capabilities=[Capability(code="HELP")])
        async with hub, asyncio.timeout(PATIENCE_S):
            await hub.ask("boss", "Go", user="anna")
    (given,) = answers
    assert (given.result, given.target, len(refusals)) == ("instead", "other", ATTEMPTS)


async def told_by(url: str) -> str:
    """Return what is said to whoever asks an agent at an address, where nothing can have begun."""
    hub = remit.Hub(name="near", store=MemoryStore())
    connect(hub, "helper", url, token="t")
    async with hub, asyncio.timeout(PATIENCE_S):
        response = await hub.ask("helper", "Help", user="anna", deadline_ms=1_000)
    assert ended(response) == (Status.REFUSED, Code.DELEGATION_UNAVAILABLE)
    assert response.usage.total == 0
    assert response.fault is not None
    assert response.fault.message == "helper cannot be reached"
    return response.fault.detail


async def test_why_nobody_is_met_at_an_address_is_said_in_words() -> None:
    async def in_the_clear(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()

    async with await asyncio.start_server(in_the_clear, "127.0.0.1", 0) as server:
        url = "https://{}:{}".format(*server.sockets[0].getsockname())
        assert await told_by(url) == f"helper at {url}: the server does not support https"
    url = url.replace("https", "http")
    assert await told_by(url) == f"helper at {url}: Connection refused"
    url = "http://nobody.invalid:80"
    assert await told_by(url) == f"helper at {url}: unknown host"


async def test_a_host_that_does_not_answer_at_all_has_begun_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A firewall that drops what comes is no peer that was lost: the same is not counted as spent."""
    monkeypatch.setattr("remit_server.transports.http.CONNECT_S", 0.05)
    monkeypatch.setattr("remit_server.transports.remote_calls.CONNECT_S", 0.05)
    with socket.create_server(("127.0.0.1", 0), backlog=0) as full, ExitStack() as waiting:
        for _ in range(2):  # nobody accepts them, and there is no room for more
            client = waiting.enter_context(socket.socket())
            client.setblocking(False)
            client.connect_ex(full.getsockname())
        url = "http://{}:{}".format(*full.getsockname())
        assert await told_by(url) == f"helper at {url}: no answer within 0.05 s"


async def test_what_another_hub_says_of_itself_is_told_as_its_words() -> None:
    async def act(_: Peer, __: bytes, writer: asyncio.StreamWriter) -> None:
        writer.write(
            reply(encode({"fault": fault(Code.AGENT_NOT_FOUND, "there is no `helper` here")}), "404 Not Found")
        )

    peer = Peer(act)
    response = await asked_of(peer)
    assert response.fault is not None
    assert response.fault.message == "the hub of helper says: there is no `helper` here"
    assert re.fullmatch(r"helper at http://127\.0\.0\.1:\d+", response.fault.detail)


async def test_a_busy_peer_is_asked_again_when_it_says() -> None:
    body = encode({"fault": fault(Code.OVERLOADED, "busy", retry_after_ms=50)})
    busy = reply(body, "503 Unavailable", more="retry-after: 1\r\n")

    async def act(peer: Peer, request: bytes, writer: asyncio.StreamWriter) -> None:
        if len(peer.requests) < 3:
            writer.write(busy)
            return
        writer.write(answer(request, "now"))

    peer = Peer(act)
    assert (await asked_of(peer)).result == "now"
    assert len(peer.requests) == 3


async def test_what_is_sent_says_who_asks_twice_and_carries_no_token_of_a_user() -> None:
    """X9: the headers, and a service credential."""

    async def act(_: Peer, request: bytes, writer: asyncio.StreamWriter) -> None:
        writer.write(answer(request, "ok"))

    peer = Peer(act)
    response = await asked_of(peer)
    head, _, body = peer.requests[0].partition(b"\r\n\r\n")
    headers = dict(line.split(": ", 1) for line in head.decode().lower().splitlines()[1:])
    sent = decode_submission(body)
    assert headers["x-agent-request-id"] == sent.id == response.id
    assert (headers["x-agent-origin"], headers["x-agent-depth"]) == ("boss", "1")
    assert headers["x-agent-parent-session"] == response.run
    assert headers["authorization"] == "bearer t"
    assert headers["traceparent"].split("-")[1] == response.run
    assert (sent.context, sent.session) == (None, response.id), "by that it can be gone on with there"


@pytest.mark.parametrize("url", ["ftp://x", "https://", "nonsense", "http://u:p@host", "http://host/?q=1"])
def test_an_address_that_is_none_is_refused_and_its_password_not_shown(url: str) -> None:
    with pytest.raises(RemitError) as refused:
        connect(remit.Hub(name="near", store=MemoryStore()), "helper", url)
    assert refused.value.fault.code is Code.TEAM_INVALID
    assert "u:p" not in str(refused.value)
