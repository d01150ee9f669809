"""Agents that can be asked over gRPC alone: also those that are not as they should be."""

import asyncio
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest
from a2a.types import a2a_pb2 as pb
from aiohttp import web

from a2a_grpc import GrpcAlone
from a2a_peers import asked_of, ended
from a2a_serving import speaking
from certificates import certificate
from meddling import Bank, Keys, back_hub
from remit import AgentCard, Brief, Code, Hub, RemitError, Status
from remit.installed import install_command
from remit_server import connect_a2a
from remit_server.a2a.agent import A2aAgent, A2aPeer
from remit_server.a2a.grpc_calls import GrpcChannels, grpc_url
from remit_server.a2a.grpc_messages import STATUS, grpc_methods, status_to_wire
from remit_server.a2a.grpc_server import GrpcListener
from remit_server.a2a.routes import Exposure
from remit_server.app import Api
from remit_server.dialects.a2a.translator import A2aEndpoint
from remit_server.server import Server
from remit_server.transports.addresses import PUBLIC, OutboundHosts
from remit_testing import MemoryStore

Act = Callable[["Peer", str, bytes, Any], Awaitable[Any]]


class Peer:
    """Something that has a card, and answers as a test says: it is given each method with its message."""

    def __init__(
        self, act: Act, *, streaming: bool = False, url: str = "", first: tuple[dict[str, str], ...] = ()
    ) -> None:
        self._act = act
        self._streaming = streaming
        self._url = url
        self._first = first
        """Interfaces that stand before that over gRPC."""
        self.asked: list[tuple[str, dict[str, str], Any]] = []
        """The methods that were called, each with its metadata and message."""
        self.times: list[float] = []
        self.target = ""

    async def _card(self, _: web.Request) -> web.Response:
        at = {"url": self._url or self.target, "protocolBinding": "GRPC", "protocolVersion": "1.0", "tenant": "t"}
        card = {
            "name": "helper",
            "supportedInterfaces": [*self._first, at],
            "capabilities": {"streaming": self._streaming},
        }
        return web.json_response(card)

    async def _called(self, name: str, raw: bytes, context: Any) -> Any:
        said = dict(context.invocation_metadata())
        self.asked.append((name, said, grpc_methods()[name].request.FromString(raw)))
        self.times.append(context.time_remaining())
        return await self._act(self, name, raw, context)

    @asynccontextmanager
    async def listening(self) -> AsyncGenerator[str]:
        app = web.Application()
        app.router.add_get("/.well-known/agent-card.json", self._card)
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        unary: Any = grpc.unary_unary_rpc_method_handler
        stream: Any = grpc.unary_stream_rpc_method_handler
        handlers = {
            name: (stream if method.streams else unary)(partial(self._called, name))
            for name, method in grpc_methods().items()
        }
        self.server = grpc.aio.server()
        self.server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("lf.a2a.v1.A2AService", handlers),))
        self.target = f"127.0.0.1:{self.server.add_insecure_port('127.0.0.1:0')}"
        await self.server.start()
        host, port = runner.addresses[0]
        try:
            yield f"http://{host}:{port}"
        finally:
            await self.server.stop(0)
            await runner.cleanup()

    @property
    def methods(self) -> list[str]:
        return [name for name, _, _ in self.asked]


def task(state: str, text: str = "") -> pb.Task:
    artifacts = [pb.Artifact(artifact_id="a", parts=[pb.Part(text=text)])] if text else []
    status = pb.TaskStatus(state=f"TASK_STATE_{state}")
    return pb.Task(id="t-1", context_id="c-1", status=status, artifacts=artifacts)


def sent(found: pb.Task) -> bytes:
    return pb.SendMessageResponse(task=found).SerializeToString()


async def completed(peer: Peer, method: str, raw: bytes, context: Any) -> bytes:
    return sent(task("COMPLETED", "done"))


# ── what is sent ──────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_call_has_the_token_the_version_the_trace_the_tenant_and_the_deadline() -> None:
    peer = Peer(completed)
    response = await asked_of(peer, deadline_ms=20_000)
    ((method, said, request),) = peer.asked
    assert (method, response.result) == ("SendMessage", "done")
    assert (said["authorization"], said["a2a-version"]) == ("Bearer t", "1.0")
    assert said["traceparent"].startswith("00-")
    assert "a2a-extensions" not in said, "the card does not name the extension"
    assert (request.tenant, request.message.parts[0].text) == ("t", "Help")
    assert request.configuration.return_immediately
    assert 0 < peer.times[0] <= 20


async def test_a_large_request_and_a_large_answer_arrive_whole() -> None:
    async def repeat(peer: Peer, method: str, raw: bytes, context: Any) -> bytes:
        return sent(task("COMPLETED", pb.SendMessageRequest.FromString(raw).message.parts[0].text))

    text = "ä" * 10_000
    assert (await asked_of(Peer(repeat), text=text)).result == text


async def test_json_is_preferred_wherever_it_stands() -> None:
    """Then gRPC is not needed: nobody is at the address in JSON here, and nothing else is tried."""
    rpc = {"url": "http://127.0.0.1:9/rpc", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}
    old = rpc | {"protocolVersion": "0.3"}
    peer = Peer(completed, first=(old, rpc))
    assert ended(await asked_of(peer)) == (Status.REFUSED, Code.DELEGATION_UNAVAILABLE)
    assert peer.asked == []
    peer = Peer(completed, first=(old,))
    assert (await asked_of(peer)).result == "done"


async def test_a_task_that_is_cancelled_here_is_cancelled_there() -> None:
    went, stopped = asyncio.Event(), asyncio.Event()

    async def work(peer: Peer, method: str, raw: bytes, context: Any) -> bytes:
        if method == "CancelTask":
            stopped.set()
            return task("CANCELED").SerializeToString()
        went.set()
        return sent(task("WORKING")) if method == "SendMessage" else task("WORKING").SerializeToString()

    response = await asked_of(Peer(work), deadline_ms=400)
    assert ended(response) == (Status.TIMEOUT, Code.TIMEOUT)
    assert stopped.is_set()


async def test_a_stream_that_breaks_is_followed_by_the_tasks_name() -> None:
    async def breaks(peer: Peer, method: str, raw: bytes, context: Any) -> Any:
        match method:
            case "SendStreamingMessage":
                await context.write(pb.StreamResponse(task=task("WORKING")).SerializeToString())
                await context.abort(grpc.StatusCode.UNAVAILABLE, "the server restarts")
            case "SubscribeToTask":
                await context.write(pb.StreamResponse(task=task("COMPLETED", "done")).SerializeToString())
            case _:
                raise AssertionError(method)

    peer = Peer(breaks, streaming=True)
    response = await asked_of(peer)
    assert (response.result, peer.methods) == ("done", ["SendStreamingMessage", "SubscribeToTask"])
    assert peer.asked[1][2].id == "t-1"


# ── what goes wrong ───────────────────────────────────────────────────────────────────────────────────────────────────

BARE = {
    "UNAUTHENTICATED": (Status.REFUSED, Code.UNAUTHENTICATED),
    "PERMISSION_DENIED": (Status.REFUSED, Code.PERMISSION_DENIED),
    "INVALID_ARGUMENT": (Status.REFUSED, Code.INPUT_VALIDATION_FAILED),
    "NOT_FOUND": (Status.REFUSED, Code.NOT_FOUND),
    "UNIMPLEMENTED": (Status.REFUSED, Code.STATE_CONFLICT),
    "INTERNAL": (Status.REFUSED, Code.DELEGATION_FAILED),
    "UNAVAILABLE": (Status.FAILED, Code.OUTCOME_UNKNOWN),
    "CANCELLED": (Status.FAILED, Code.OUTCOME_UNKNOWN),
}


@pytest.mark.parametrize(("code", "expected"), BARE.items(), ids=BARE.keys())
async def test_a_status_without_details_is_understood(code: str, expected: tuple[Status, Code]) -> None:
    async def refuse(peer: Peer, method: str, raw: bytes, context: Any) -> None:
        await context.abort(grpc.StatusCode[code], "no")

    peer = Peer(refuse)
    assert ended(await asked_of(peer)) == expected
    assert peer.methods == ["SendMessage"], "it may have begun, and is not sent again"


async def test_details_say_more_than_the_status() -> None:
    info = {
        "@type": "type.googleapis.com/google.rpc.ErrorInfo",
        "reason": "CONTENT_TYPE_NOT_SUPPORTED",
        "domain": "a2a-protocol.org",
    }
    fields = {
        "@type": "type.googleapis.com/google.rpc.BadRequest",
        "fieldViolations": [{"field": "message.parts", "description": "is too long"}],
    }

    async def refuse(peer: Peer, method: str, raw: bytes, context: Any) -> None:
        status = status_to_wire(9, "not that", (info, fields), 4_000)
        await context.abort(grpc.StatusCode.FAILED_PRECONDITION, "not that", ((STATUS, status),))

    response = await asked_of(Peer(refuse))
    assert response.fault is not None
    assert response.fault.code is Code.INPUT_VALIDATION_FAILED
    assert (response.fault.foreign, response.fault.problems[0].path) == (
        "CONTENT_TYPE_NOT_SUPPORTED",
        "$.message.parts",
    )


async def test_a_peer_that_is_busy_is_asked_again_after_the_time_that_it_names() -> None:
    later = {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "0.010s"}

    async def busy(peer: Peer, method: str, raw: bytes, context: Any) -> bytes | None:
        if len(peer.asked) < 3:
            status = status_to_wire(14, "busy", (later,), 4_000)
            await context.abort(grpc.StatusCode.UNAVAILABLE, "busy", ((STATUS, status),))
        return sent(task("COMPLETED", "done"))

    peer = Peer(busy)
    assert (await asked_of(peer)).result == "done"
    assert len(peer.asked) == 3


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        (b"\xff\xff", Code.RESULT_VALIDATION_FAILED),
        (b"", Code.RESULT_VALIDATION_FAILED),
        (sent(task("COMPLETED", "x" * 6_000_000)), Code.TOO_LARGE),
    ],
    ids=["no message", "empty", "too large"],
)
async def test_an_answer_that_makes_no_sense_is_a_fault_of_the_peer(answer: bytes, code: Code) -> None:
    async def say(peer: Peer, method: str, raw: bytes, context: Any) -> bytes:
        return answer

    response = await asked_of(Peer(say))
    assert response.fault is not None
    assert response.fault.code is code


async def test_where_nobody_listens_nothing_was_sent() -> None:
    peer = Peer(completed, url="127.0.0.1:9")
    assert ended(await asked_of(peer)) == (Status.REFUSED, Code.DELEGATION_UNAVAILABLE)


async def test_a_card_that_points_to_another_host_or_to_no_host_is_refused() -> None:
    for url, code in (
        ("agents.example:443", Code.PERMISSION_DENIED),
        ("http://agents.example:80", Code.PERMISSION_DENIED),
        ("dns:///agents.example", Code.DELEGATION_UNAVAILABLE),
        ("127.0.0.1:nine", Code.DELEGATION_UNAVAILABLE),
        (":443", Code.DELEGATION_UNAVAILABLE),
    ):
        peer = Peer(completed, url=url)
        response = await asked_of(peer)
        assert response.fault is not None
        assert (url, response.fault.code) == (url, code)
        assert peer.asked == []


async def test_without_the_extra_it_is_said_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    peer = Peer(completed)
    async with peer.listening() as url:
        hub = Hub(name="near", store=MemoryStore())
        connect_a2a(hub, "helper", url)
        monkeypatch.setitem(sys.modules, "a2a", None)
        grpc_methods.cache_clear()
        async with hub:
            response = await hub.ask("helper", "Help", user="anna")
        monkeypatch.undo()
    assert response.fault is not None
    assert (response.fault.code, install_command("a2a") in response.fault.suggestion) == (Code.TEAM_INVALID, True)


# ── encryption ────────────────────────────────────────────────────────────────────────────────────────────────────────

NAMED = OutboundHosts(hosts=frozenset({"10.0.0.7", "agents.internal"}))


@pytest.mark.parametrize(
    ("url", "reach", "is_https", "expected"),
    [
        ("agents.example:8443", PUBLIC, True, "https://agents.example:8443"),
        ("agents.example", PUBLIC, True, "https://agents.example:443"),
        ("agents.example:8080", PUBLIC, False, "https://agents.example:8080"),
        ("127.0.0.1:50051", PUBLIC, False, "http://127.0.0.1:50051"),
        ("localhost:50051", PUBLIC, False, "http://localhost:50051"),
        ("[::1]:50051", PUBLIC, False, "http://[::1]:50051"),
        ("127.0.0.1:50051", PUBLIC, True, "https://127.0.0.1:50051"),
        ("agents.internal:50051", NAMED, False, "http://agents.internal:50051"),
        ("agents.internal:50051", NAMED, True, "https://agents.internal:50051"),
        ("10.0.0.8:50051", NAMED, False, "https://10.0.0.8:50051"),
        ("https://127.0.0.1:50051/a2a/grpc", PUBLIC, False, "https://127.0.0.1:50051"),
        ("grpcs://agents.example", PUBLIC, False, "https://agents.example:443"),
        ("grpc://10.0.0.7:50051", NAMED, False, "http://10.0.0.7:50051"),
        ("http://agents.example:80", PUBLIC, False, None),
        ("grpc://agents.example:80", PUBLIC, False, None),
    ],
)
def test_only_this_machine_and_hosts_that_are_named_are_asked_without_encryption(
    url: str, reach: OutboundHosts, is_https: bool, expected: str | None
) -> None:
    if expected is None:
        with pytest.raises(RemitError, match="without encryption"):
            grpc_url(url, reach, is_https=is_https)
    else:
        assert grpc_url(url, reach, is_https=is_https) == expected


async def test_a_name_that_leads_into_a_private_network_is_not_connected_to() -> None:
    looked: list[str] = []

    async def lookup(host: str, port: int) -> list[str]:
        looked.append(host)
        return ["10.0.0.8"]

    channels = GrpcChannels(PUBLIC, 1_000, lookup)
    with pytest.raises(Exception, match="not on the public network"):
        async with channels.channel("https://agents.example:443"):
            pass
    assert looked == ["agents.example"]


class Encrypted(GrpcAlone):
    """What a client reads whose peer says that its address is encrypted."""

    def offer(self, card: bytes, url: str, keys: Collection[str]) -> A2aEndpoint:
        offer = super().offer(card, url, keys)
        return offer._replace(url=f"https://{offer.url}")


@pytest.mark.parametrize("trusted", [True, False], ids=["trusted", "not trusted"])
async def test_hubs_ask_each_other_over_tls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, trusted: bool) -> None:
    made = certificate(tmp_path)
    if trusted:
        monkeypatch.setenv("SSL_CERT_FILE", str(made.file))
    far, near = Hub(name="far", store=MemoryStore()), Hub(name="near", store=MemoryStore())

    async def echo(brief: Brief) -> str:
        return f"{brief.user}: {brief.text}"

    far.add("echo", echo)
    listener = GrpcListener(certificate=str(made.file), key=str(made.key))
    async with speaking(far, grpc=listener) as server:
        peer = A2aPeer(f"{server.address}/a2a/echo", Encrypted(), token="north")
        near.register(AgentCard(name="echo"), A2aAgent(peer, "echo"), peer.close)
        async with near:
            response = await near.ask("echo", "hi", user="anna", deadline_ms=60_000)
    if trusted:
        assert response.result == "anna: hi"
    else:
        assert ended(response) == (Status.REFUSED, Code.DELEGATION_UNAVAILABLE)


async def test_a_hub_proves_itself_by_its_key(tmp_path: Path) -> None:
    keys, bank = Keys.made(), Bank(tmp_path / "payments")
    back, front = back_hub(tmp_path, bank), Hub(name="front", store=MemoryStore())
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(back)
        api = Api(back, keys.door(back), a2a=Exposure(grpc=GrpcListener()))
        server = await stack.enter_async_context(Server(api, port=0, drain_s=2))
        peer = A2aPeer(f"{server.address}/a2a/bank", GrpcAlone(), credential=keys.papers())
        front.register(AgentCard(name="bank"), A2aAgent(peer, "bank"), peer.close)
        stranger = A2aPeer(f"{server.address}/a2a/bank", GrpcAlone(), credential=Keys.made().papers())
        front.register(AgentCard(name="stranger"), A2aAgent(stranger, "bank"), stranger.close)
        await stack.enter_async_context(front)
        order = {"amount": 5, "account": "a"}
        paid = await front.ask("bank", "Pay", input=order, user="anna")
        refused = await front.ask("stranger", "Pay", input=order, user="anna")
    assert (paid.result, bank.payments) == ("bank paid 5 to a", [["bank", order]])
    assert refused.fault is not None
    assert refused.fault.code is Code.UNAUTHENTICATED
