"""Agents over gRPC: a hub's, asked with bare stubs, and peers that can be asked in no other way."""

import json
from collections.abc import AsyncGenerator, Collection
from contextlib import asynccontextmanager
from typing import Any

import grpc
import grpc.aio
from a2a.types import a2a_pb2 as pb
from a2a.types import a2a_pb2_grpc
from aiohttp import ClientSession
from google.protobuf.json_format import MessageToDict
from google.rpc import status_pb2  # pyright: ignore[reportMissingTypeStubs]

from remit_server.dialects.a2a.errors import EXTENSION
from remit_server.dialects.a2a.translator import A2aEndpoint, A2aTranslator
from remit_server.server import Server


class GrpcAlone(A2aTranslator):
    """What a client speaks that sees only the gRPC interface of a card."""

    def offer(self, card: bytes, url: str, keys: Collection[str]) -> A2aEndpoint:
        value = json.loads(card)
        interfaces = value["supportedInterfaces"]
        value["supportedInterfaces"] = [each for each in interfaces if each["protocolBinding"] == "GRPC"]
        return super().offer(json.dumps(value).encode(), url, keys)


async def interface_of(server: Server, agent: str) -> dict[str, str]:
    """Return the gRPC interface in the card of an agent."""
    async with (
        ClientSession() as session,
        session.get(f"{server.address}/a2a/{agent}/.well-known/agent-card.json") as r,
    ):
        (interface,) = [each for each in (await r.json())["supportedInterfaces"] if each["protocolBinding"] == "GRPC"]
    return interface


@asynccontextmanager
async def stub_of(server: Server, agent: str) -> AsyncGenerator[Any]:
    """Yield the generated stub of the service that has an agent."""
    async with grpc.aio.insecure_channel((await interface_of(server, agent))["url"]) as channel:
        yield a2a_pb2_grpc.A2AServiceStub(channel)


def metadata(name: str | None = "anna-app", *, extended: bool = False, **more: str) -> tuple[tuple[str, str], ...]:
    """Return the metadata of the sender of that name."""
    headers = {"a2a-version": "1.0", **({"authorization": f"Bearer {name}"} if name else {}), **more}
    if extended:
        headers["a2a-extensions"] = EXTENSION
    return tuple((key.replace("_", "-"), value) for key, value in headers.items() if value)


def message(text: str, id: str = "", *, agent: str = "", **more: Any) -> pb.SendMessageRequest:
    """Return a request that holds a text."""
    sent = pb.Message(message_id=id or f"m-{len(_said)}", role=pb.ROLE_USER, parts=[pb.Part(text=text)])
    _said.append(sent)
    return pb.SendMessageRequest(message=sent, tenant=agent, configuration=pb.SendMessageConfiguration(**more))


_said: list[pb.Message] = []


def details_of(error: grpc.aio.AioRpcError) -> list[dict[str, Any]]:
    """Return the details of an error."""
    (raw,) = [value for key, value in error.trailing_metadata() if key == "grpc-status-details-bin"]
    assert isinstance(raw, bytes)
    status = status_pb2.Status.FromString(raw)
    assert (status.code, status.message) == (error.code().value[0], error.details())
    return [MessageToDict(each) for each in status.details]
