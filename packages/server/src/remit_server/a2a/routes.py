"""The A2A routes of a server, and the agent cards that they publish."""

import hashlib
import re
import time
from collections.abc import Callable, Collection
from email.utils import formatdate
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct
from starlette.routing import BaseRoute

from remit.protocol.card import AgentCard
from remit.protocol.errors import Code, RemitError, fault
from remit.runtime.clock import LoopClock
from remit_server.a2a.binding import Bindings
from remit_server.a2a.extension_schema import extension_schema
from remit_server.a2a.grpc_server import GrpcListener, GrpcServer, GrpcService
from remit_server.a2a.guests import Guests, OpenTasks, PublicAccess
from remit_server.a2a.push import Push
from remit_server.a2a.tasks import Tasks
from remit_server.all_operations import A2A_AGENT, A2A_CARD, A2A_KEYS, A2A_PATH, A2A_SCHEMA
from remit_server.bodies import Headers, Receive, Scope, Send, headers_of, send_bytes
from remit_server.delegations import Delegations
from remit_server.dialects.a2a.card import Signer, canonical, card_of, public_key, signed
from remit_server.dialects.a2a.types import CARD_PATH
from remit_server.operations import served
from remit_server.refusals import Refusals
from remit_server.transports.addresses import PUBLIC, OutboundHosts
from remit_server.transports.credentials.keys import HubKey, raw

# Cards change with the team file.
MAX_AGE_S = 300
MOST_SEEN = 1_000

# A host name or IP address, and a port.
_HOST = re.compile(r"(?:[A-Za-z0-9._-]{1,253}|\[[0-9A-Fa-f:.]{2,45}\])(?::[0-9]{1,5})?", re.ASCII)

_PUBLIC = (b"cache-control", f"public, max-age={MAX_AGE_S}".encode())
_JSON = (b"content-type", b"application/json")


class Exposure(Struct, frozen=True, kw_only=True):
    """How a hub's agents are served over A2A."""

    agents: Callable[[], Collection[str]] | None = None
    """The agents to serve, of all that are exposed; None: all of them."""
    default: str | None = None
    """The agent whose card is at `/.well-known/agent-card.json`."""
    url: str | None = None
    """The public URL of this server; None: as each client addresses it."""
    key: Callable[[], HubKey] | None = None
    """The key that signs cards."""
    required: bool = False
    """Whether clients must send a remit."""
    push: bool = True
    """Whether clients may request push notifications."""
    reach: OutboundHosts = PUBLIC
    """Where push notifications may be sent."""
    public: PublicAccess | None = None
    """What clients without a token may do; None: nothing."""
    open: int = 256
    """How many tasks of one client may be at work at once: a loop through agents of others holds one for each turn."""
    grpc: GrpcListener | None = None
    """Where A2A is served over gRPC as well; None: nowhere."""


class A2a:
    """The A2A part of a server."""

    def __init__(self, delegations: Delegations, exposure: Exposure, refusals: Refusals) -> None:
        wall_ms = LoopClock().wall_ms
        self._delegations = delegations
        self._exposure = exposure
        self._push = Push(delegations.hub, wall_ms, exposure.reach) if exposure.push else None
        self._cards = Cards(
            url=exposure.url and exposure.url.rstrip("/"),
            key=exposure.key,
            wall_ms=wall_ms,
            push=exposure.push,
            required=exposure.required,
            public=() if exposure.public is None else exposure.public.agents,
            grpc=self._grpc_at,
        )
        public = exposure.public
        guests = None if public is None else Guests(public, delegations.hub.store.secret, time.monotonic)
        tasks = Tasks(delegations, wall_ms, self._push, OpenTasks(exposure.open), guests)
        self._bindings = Bindings(delegations, tasks, serves=self._serves, required=exposure.required, guests=guests)
        self._grpc: GrpcServer | None = None
        if exposure.grpc is not None:
            service = GrpcService(self._bindings, delegations, refusals, self._default_agent)
            self._grpc = GrpcServer(exposure.grpc, service)

    def routes(self) -> list[BaseRoute]:
        """Return the routes for an application."""
        return [
            served(A2A_CARD, self._default_card),
            served(A2A_KEYS, self._keys),
            served(A2A_SCHEMA, _send_schema),
            served(A2A_AGENT, self._serve),
            served(A2A_PATH, self._serve),
        ]

    async def open(self) -> None:
        """Listen for gRPC, if that is wanted."""
        if self._grpc is not None:
            await self._grpc.start()

    async def close(self) -> None:
        """Stop sending notifications, and serving over gRPC."""
        if self._push is not None:
            await self._push.close()
        if self._grpc is not None:
            await self._grpc.stop()

    @property
    def grpc_address(self) -> str | None:
        """Where A2A is served over gRPC, as `host:port`; None: nowhere."""
        listener = self._exposure.grpc
        return None if self._grpc is None or listener is None else _host_and_port(listener.host, self._grpc.port)

    def _grpc_at(self, base: str) -> str | None:
        """Return the address over gRPC of a server that clients reach at *base*."""
        if self._grpc is None or self._exposure.grpc is None:
            return None
        return self._exposure.grpc.address or _host_and_port(urlsplit(base).hostname or "", self._grpc.port)

    def _default_agent(self) -> str:
        """Return the agent that is meant where none is named; empty if there is none."""
        if self._exposure.default is not None:
            return self._exposure.default
        served = [name for name in self._delegations.exposed() if self._serves(name)]
        return served[0] if len(served) == 1 else ""

    def _serves(self, name: str) -> bool:
        agents = self._exposure.agents
        return name in self._delegations.exposed() and (agents is None or name in agents())

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        agent: str = scope["path_params"]["agent"]
        path: str = scope["path_params"].get("path", "")
        if f"/{path}" == CARD_PATH and scope["method"] == "GET":
            await self._cards.send(self._card(agent), scope, headers_of(scope), send)
        elif not path and scope["method"] == "POST":
            await self._bindings.rpc(agent, scope, receive, send)
        else:
            await self._bindings.rest(agent, path, scope, receive, send)

    async def _default_card(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002 - the shape of all
        name = self._exposure.default
        if name is None:
            where = f"Cards are at /a2a/AGENT{CARD_PATH}."
            raise RemitError(fault(Code.NOT_FOUND, "this server has no default agent", suggestion=where))
        await self._cards.send(self._card(name), scope, headers_of(scope), send)

    async def _keys(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002 - the shape of all
        await self._cards.send_keys(send)

    def _card(self, name: str) -> AgentCard:
        if not self._serves(name):
            raise RemitError(fault(Code.AGENT_NOT_FOUND, f"no agent `{name[:100]}` on this server"))
        return self._delegations.hub.cards[name]


async def _send_schema(scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG001 - the shape of all
    await send_bytes(send, 200, canonical(extension_schema()), (_JSON, _PUBLIC))


def _host_and_port(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


# ── cards ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


class Cards(Struct, frozen=True, kw_only=True):
    """Builds agent cards: below which URL, signed with which key, and with which features."""

    url: str | None
    """The public URL of this server; None: as each client addresses it."""
    key: Callable[[], HubKey] | None
    wall_ms: Callable[[], int]
    push: bool
    required: bool
    public: Collection[str] = ()
    """The agents that need no token."""
    seen: dict[tuple[str, str], tuple[str, str]] = msgspec.field(default_factory=dict[tuple[str, str], tuple[str, str]])
    """By agent and address: the tag of its card, and since when it is that."""
    grpc: Callable[[str], str | None] = lambda _: None
    """Returns the `host:port` over gRPC of a server with this URL; None: it has none."""

    async def send(self, card: AgentCard, scope: Scope, headers: Headers, send: Send) -> None:
        """Send an agent's card, unless the client has it already."""
        base = self.url or _addressed(scope, headers)
        value = card_of(
            card,
            base,
            push=self.push,
            required=self.required,
            public=card.name in self.public,
            grpc=self.grpc(base),
        )
        if self.key is not None:
            pair = self.key().signing(self.wall_ms())
            value = signed(value, Signer(pair.public, pair.sign), f"{base}{A2A_KEYS.path}")
        body = canonical(value)
        etag = f'"{hashlib.sha256(body).hexdigest()[:32]}"'
        changed = self._changed(card.name, base, etag)
        tags = (
            (b"etag", etag.encode()),
            (b"last-modified", changed.encode()),
            _PUBLIC,
            *(() if self.url else ((b"vary", b"host"),)),
        )
        known = headers.get("if-none-match")
        # A client that names a tag does not mean the time, which has no fractions of a second (RFC 9110).
        fresh = headers.get("if-modified-since") == changed if known is None else etag in known or known.strip() == "*"
        if fresh:
            await send_bytes(send, 304, b"", tags)
            return
        await send_bytes(send, 200, body, (_JSON, *tags))

    def _changed(self, agent: str, base: str, etag: str) -> str:
        """Return when a card was first served as it is now, by this process."""
        before = self.seen.get((agent, base))
        if before is not None and before[0] == etag:
            return before[1]
        if len(self.seen) >= MOST_SEEN:  # clients choose under which names they address this server
            self.seen.clear()
        at = formatdate(self.wall_ms() / 1_000, usegmt=True)
        self.seen[agent, base] = (etag, at)
        return at

    async def send_keys(self, send: Send) -> None:
        """Send the public keys that verify cards."""
        stages = self.key().accepted(self.wall_ms()) if self.key is not None else ()
        keys = [public_key(raw(stage.pair.public), stage.pair.public) for stage in stages]
        await send_bytes(send, 200, canonical({"keys": keys}), (_JSON, _PUBLIC))


def _addressed(scope: Scope, headers: Headers) -> str:
    """Return the URL by which a client addresses this server."""
    host = headers.get("host", "")
    if _HOST.fullmatch(host) is None:
        raise RemitError(fault(Code.MALFORMED_ENVELOPE, "invalid Host header"))
    return f"{scope.get('scheme', 'http')}://{host}"
