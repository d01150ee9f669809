"""A hub whose agent asks an A2A peer once, whatever the peer is made of."""

import asyncio
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol

from remit import Brief, Code, Hub, Limits, Response, Status
from remit_server import connect_a2a
from remit_testing import MemoryStore
from waiting import PATIENCE_S


class ListeningPeer(Protocol):
    """An A2A agent that a test answers for."""

    def listening(self) -> AbstractAsyncContextManager[str]:
        """Answer until the block ends; it is given the address."""
        ...


async def delegated(url: str, *texts: str, token: str | None = None, **options: Any) -> list[Response]:
    """Return what an agent gets that asks the one at *url*, text by text, in one session."""
    hub = Hub(name="near", store=MemoryStore(), limits=Limits(max_result_bytes=100_000))
    connect_a2a(hub, "helper", url, token=token)
    responses: list[Response] = []

    async def boss(brief: Brief) -> str:
        for text in texts:
            given: Any = {"session": "s", "deadline_ms": 20_000} | options
            responses.append(await brief.delegate("helper", objective=text, **given))
        return "done"

    hub.add("boss", boss, may_call=["helper"])
    async with hub, asyncio.timeout(PATIENCE_S):
        (await hub.ask("boss", "Go", user="anna")).unwrap()
    return responses


async def asked_of(peer: ListeningPeer, *, text: str = "Help", **options: Any) -> Response:
    """Return what an agent gets that asks the peer once."""
    given = {"session": None, "deadline_ms": 3_000} | options
    async with peer.listening() as url:
        (response,) = await delegated(url, text, token="t", **given)
    return response


def ended(response: Response) -> tuple[Status, Code | None]:
    """Return how a response ended, and why."""
    return response.status, response.fault and response.fault.code
