"""A hub behind a real server in the test's own event loop, and a client for it."""

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

from aiohttp import ClientSession

from remit import Hub
from remit.policy.reception import Permission, Sender
from remit.runtime.clock import LoopClock
from remit_server.app import Api
from remit_server.console.console import Console
from remit_server.console.hosts import ConsoleHosts
from remit_server.console.pages import ConsolePages
from remit_server.console.sessions import ConsoleSessions, SpentInStore
from remit_server.documents.spend import Pricing
from remit_server.mcp.host_delegations import McpOffer
from remit_server.server import Server
from remit_server.transports.addresses import listening
from remit_server.transports.credentials.incoming import Authenticator, KnownSender

WEB = Sender(name="web")
NORTH = Sender(name="north", is_hub=True)
OPERATOR = Sender(name="ops", permissions=frozenset(Permission))
ANNA = Sender(name="anna-app", users=frozenset({"anna"}))


def gate_of(*senders: Sender) -> Authenticator:
    """Return a door that knows each sender by a token that is its name."""
    known = [
        KnownSender(
            name=sender.name,
            is_hub=sender.is_hub,
            token=sender.name,
            users=sender.users,
            agents=sender.targets,
            permissions=sender.permissions,
            may_approve=sender.may_approve,
        )
        for sender in senders
    ]
    return Authenticator(known, wall_ms=LoopClock().wall_ms)


@asynccontextmanager
async def serving(
    hub: Hub,
    *senders: Sender,
    console: bool = False,
    pricing: Pricing | None = None,
    port: int = 0,
    mcp: McpOffer | None = None,
) -> AsyncGenerator[Server, None]:
    """Open the hub, if it is not open yet, and serve it."""
    gate = gate_of(*(senders or (WEB, NORTH, OPERATOR, ANNA)))
    with listening("127.0.0.1", port) as bound:
        async with hub:
            shown = console_of(hub, gate, bound.getsockname()[1]) if console else None
            api = Api(hub, gate, console=shown, pricing=pricing, mcp=mcp)
            async with Server(api, bound=bound, drain_s=2) as server:
                yield server


def console_of(hub: Hub, gate: Authenticator, port: int = 1, pages: Path | None = None) -> Console:
    """Return the console of a hub, as `remit serve --console` makes it."""
    wall_ms = LoopClock().wall_ms
    sessions = ConsoleSessions(hub.store.secret(), gate, SpentInStore(hub.store, wall_ms), wall_ms)
    shown = ConsolePages() if pages is None else ConsolePages(pages)
    return Console(sessions, ConsoleHosts(port), team="office", views=("operator",), pages=shown)


def client_of(server: Server, name: str = "web") -> ClientSession:
    """Return a session that proves to be the sender of that name."""
    return ClientSession(server.address, headers={"authorization": f"Bearer {name}"})


# ── what is said there ────────────────────────────────────────────────────────────────────────────────────────────────


async def posted(session: ClientSession, body: Any, **headers: str) -> tuple[int, Any]:
    """Ask for a delegation, and return the status and what is in the body."""
    async with session.post("/v1/delegations", json=body, headers=headers) as reply:
        return reply.status, await reply.json()


async def got(session: ClientSession, path: str, **headers: str) -> tuple[int, Any]:
    """Look at something, and return the status and what is in the body."""
    async with session.get(path, headers=headers) as reply:
        return reply.status, await reply.json()


class Event(NamedTuple):
    """One event of a stream."""

    number: str | None
    kind: str
    record: Any


async def events(session: ClientSession, path: str, **headers: str) -> list[Event]:
    """Return the events of a stream, read to its end."""
    async with session.get(path, headers=headers) as reply:
        assert reply.status == 200, await reply.text()
        return parsed(await reply.text())


def parsed(text: str) -> list[Event]:
    """Return the events in a text, read as the HTML standard says."""
    events: list[Event] = []
    for frame in text.split("\n\n"):
        fields = dict(line.split(": ", 1) for line in frame.split("\n") if line and not line.startswith(":"))
        if fields:
            events.append(Event(fields.get("id"), fields["event"], json.loads(fields["data"])))
    return events


async def connected(server: Server) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Return a bare connection to the server."""
    host, port = server.servers[0].sockets[0].getsockname()
    return await asyncio.open_connection(host, port)


class Reply(NamedTuple):
    """What came back over a bare connection."""

    status: int
    head: str
    body: bytes

    @property
    def fault(self) -> Any:
        return json.loads(self.body)["fault"]


async def sent(server: Server, raw: bytes) -> Reply:
    """Send bytes over a connection of their own, and return the first reply."""
    reader, writer = await connected(server)
    writer.write(raw)
    try:
        return await replied(reader)
    finally:
        writer.close()


async def replied(reader: asyncio.StreamReader) -> Reply:
    """Return the reply that comes next over a connection."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
    length = int(head.split("content-length: ")[1].split("\r\n")[0])
    return Reply(int(head.split()[1]), head, await reader.readexactly(length))
