"""`remit serve` with gRPC: what connections without a valid token can hold."""

import asyncio
import socket
from collections.abc import AsyncIterator, Generator
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from typing import Any, NamedTuple, cast

import grpc
import grpc.aio
import pytest
from a2a.types import a2a_pb2 as pb
from a2a.types import a2a_pb2_grpc

from remit_server.a2a.grpc_server import DESCRIPTORS
from serve_command import CLIENT_TOKEN, ServedTeam, serving
from waiting import PATIENCE_S, wait_until

CONNECTIONS = 32
TEAM = f"""
[agents.echo]
run = "echoes:echo"

[serve]
connections = {CONNECTIONS}

[a2a]
grpc_port = 0

[clients.web]
token = "$WEB"
agents = ["*"]
users = ["ada"]
"""
ECHOES = '''
from remit import Brief

async def echo(brief: Brief) -> str:
    """Says it again."""
    return brief.text
'''
SEND = "/lf.a2a.v1.A2AService/SendMessage"
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(3) + b"\x04" + bytes(5)


class Door(NamedTuple):
    """A served team, and where it listens for gRPC."""

    team: ServedTeam
    host: str
    port: int

    @property
    def target(self) -> str:
        return f"{self.host}:{self.port}"


@pytest.fixture(scope="module")
def door(tmp_path_factory: pytest.TempPathFactory) -> Generator[Door]:
    with pytest.MonkeyPatch.context() as patch, ExitStack() as stack:
        patch.chdir(tmp_path_factory.mktemp("team"))
        Path("remit.toml").write_text(TEAM)
        Path("echoes.py").write_text(ECHOES)
        team = stack.enter_context(serving(WEB=CLIENT_TOKEN))
        _, card = team.get("/a2a/echo/.well-known/agent-card.json")
        (url,) = [each["url"] for each in card["supportedInterfaces"] if each["protocolBinding"] == "GRPC"]
        host, _, port = url.rpartition(":")
        yield Door(team, host, int(port))


def metadata(token: str = CLIENT_TOKEN) -> tuple[tuple[str, str], ...]:
    return (("authorization", f"Bearer {token}"), ("a2a-version", "1.0"))


def message(text: str, number: int) -> pb.SendMessageRequest:
    said = pb.Message(message_id=f"{text[:9]}-{number}", role=pb.ROLE_USER, parts=[pb.Part(text=text)])
    return pb.SendMessageRequest(tenant="echo", message=said)


async def answers(door: Door, *texts: str) -> list[str]:
    """Send messages at once over one channel, and return the answers."""
    async with grpc.aio.insecure_channel(door.target) as channel, asyncio.timeout(PATIENCE_S):
        stub: Any = a2a_pb2_grpc.A2AServiceStub(channel)
        calls = [stub.SendMessage(message(text, n), metadata=metadata()) for n, text in enumerate(texts)]
        return [(await call).task.artifacts[0].parts[0].text for call in calls]


def open_files(door: Door) -> int:
    return len(list(Path(f"/proc/{door.team.process.pid}/fd").iterdir()))


@pytest.mark.parametrize("first", [b"", PREFACE], ids=["silent", "greeting"])
async def test_connections_that_prove_nothing_make_room_for_others(door: Door, first: bytes) -> None:
    most = (DESCRIPTORS if first else 1) * CONNECTIONS + 64  # what is being closed
    assert door.team.send("/healthz") == (200, "alive\n")
    before = open_files(door)
    with ExitStack() as stack:
        for _ in range(8 * CONNECTIONS):
            each = stack.enter_context(closing(socket.create_connection((door.host, door.port))))
            with suppress(ConnectionError):  # it had to make room already
                each.send(first)
        assert door.team.send("/healthz") == (200, "alive\n")
        if first:  # gRPC closes its end of each in its own time
            wait_until(lambda: open_files(door) - before <= most, "the end of the oldest connections")
        assert open_files(door) - before <= most
        assert await answers(door, "hello") == ["hello"]


async def test_a_message_is_not_waited_for_before_its_sender_is_known(door: Door) -> None:
    async def never() -> AsyncIterator[bytes]:
        await asyncio.Event().wait()
        yield b""

    async with grpc.aio.insecure_channel(door.target) as channel, asyncio.timeout(PATIENCE_S):
        send: Any = cast("Any", channel).stream_unary(SEND)
        call = send(never(), metadata=metadata("a-token-that-nobody-knows"))
        assert await call.code() is grpc.StatusCode.UNAUTHENTICATED


async def test_many_calls_over_one_channel_are_all_served(door: Door) -> None:
    texts = [f"text {number}" for number in range(200)]
    assert await answers(door, *texts) == texts


async def test_a_large_message_of_a_known_client_is_served(door: Door) -> None:
    large = "word " * 20_000
    assert await answers(door, large) == [large]
