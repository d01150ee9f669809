"""The local API for runs with shared agents: HTTP and server-sent events, for the same user on the same machine.

A client reads the views in `public_runs` and `public_devices` and sends the commands in `run_commands`. `check_local`
decides which programs are let in, and the console which browsers. Each event of the stream is a whole view, so a client
shows the latest event of each thing and never has to merge events.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException

from remit.policy.reception import Sender
from remit.ports import StoreError
from remit.protocol.codec import encode
from remit.protocol.errors import Code, RemitError, fault
from remit.runtime.clock import LoopClock, sleep_to_tick
from remit_relay.client.connection import GatewayConnection
from remit_relay.local_api.access import (
    MOST_BODY,
    NO_STORE,
    OPEN,
    VIA,
    BrowserLinks,
    check_local,
    console_of,
    starlette_routes,
)
from remit_relay.local_api.changes import Changes, DeviceParts, DeviceViews, EventStream, PresenceOf
from remit_relay.local_api.endpoints import SharedEndpoints
from remit_relay.serve_shared import Shared
from remit_relay.session_service import SessionService
from remit_server.access import BROWSER, SenderGate, token_in
from remit_server.bodies import JSON, Headers, Receive, Scope, Send, headers_of, send_bytes, send_fault
from remit_server.console.console import Console, ConsoleEndpoints
from remit_server.console.hosts import DRAIN_S, HOST, MOST_CONNECTIONS, OWNER, owner_alone
from remit_server.console.pages import LOCAL_PAGES, ApiDocs
from remit_server.operations import Operation, bound_operations
from remit_server.refusals import no_such_thing
from remit_server.server import Served, Server
from remit_server.transports.addresses import listening

__all__ = ["MOST_BODY", "BrowserLinks", "Changes", "SharedApi", "check_local", "serve_shared"]

# How often changes by other processes are looked for while somebody reads the stream.
LOOK_S = 1.0

# The addresses of the operator API, and those of them that are this API's own.
_OPERATOR = ("/v1/", "/openapi.json")
_OWN = ("/v1/shared/", "/v1/console")

OperatorApi = Callable[[SenderGate], Served]
"""Makes the API of the hub in this process, for senders that a gate knows."""

_log = logging.getLogger("remit.relay")


@asynccontextmanager
async def serve_shared(
    host: SessionService,
    changes: Changes,
    *,
    token: Path,
    port: int = 0,
    link: GatewayConnection | None = None,
    shared: Mapping[str, Shared] | None = None,
    presence: PresenceOf = lambda _: None,
    links: BrowserLinks | None = None,
    routes: Sequence[Operation] = (),
    team: str = "",
    operator: OperatorApi | None = None,
    currency: str = "USD",
) -> AsyncGenerator[str, None]:
    """Serve the runs of an open *host* to clients on this machine while the block lasts; yield the address.

    *changes* is what the host calls as `changed`. Programs must know the token in the file *token*, which is created if
    it does not exist. Browsers get the console at `/`, and sign in by a link: `links.new()` makes one. Without a
    *port*, a free one is used. *link* is the connection to the gateway, *shared* has the agents that the device shares,
    *presence* tells which devices are present. *routes* are more operations. *operator* makes the API of the hub in
    this process, which is served beside the local one; *team* is its name, *currency* that of its prices. Raises a
    `RemitError` if it cannot listen there, or the file is invalid.
    """
    parts = DeviceParts(link=link, shared=shared or {}, presence=presence)
    with listening(HOST, port) as bound:
        secret, at = token_in(token), bound.getsockname()[1]
        state = DeviceViews(host, changes, parts, now_ms=LoopClock().wall_ms)
        clients = owner_alone(secret)
        console = console_of(
            clients, secret, token.parent, at, team=team, currency=currency, operator=operator is not None
        )
        if links is not None:
            links.console = console
        hub = None if operator is None else partial(operator, clients)
        service = SharedApi(state, token=secret, port=at, console=console, routes=routes, operator=hub)
        host.local.written = changes.writes
        watching = asyncio.create_task(_watch(state))
        try:
            async with Server(service, bound=bound, drain_s=DRAIN_S, connections=MOST_CONNECTIONS) as server:
                yield server.address
        finally:
            watching.cancel()
            await asyncio.wait([watching])


async def _watch(state: DeviceViews) -> None:
    """Look for changes by other processes while somebody reads."""
    while True:
        await state.changes.is_read.wait()
        await sleep_to_tick(LOOK_S)
        try:
            await state.refresh()
        except StoreError as error:  # the file may be readable again at the next look
            _log.info("changes of devices cannot be read now: %s", error.fault.message)


class SharedApi:
    """The ASGI application: every request is checked first, even for unknown paths."""

    def __init__(
        self,
        state: DeviceViews,
        *,
        token: str,
        port: int,
        console: Console,
        routes: Sequence[Operation] = (),
        operator: Callable[[], Served] | None = None,
    ) -> None:
        self._token = token
        self._port = port
        self._console = console
        self._make_operator = operator
        self._operator: Served | None = None
        self._stream = EventStream(state)
        self.hurried = asyncio.Event()
        endpoints = SharedEndpoints(state, self._stream)
        described = Operation(
            method="GET",
            path="/v1/shared/openapi.json",
            endpoint=self._openapi,
            name="openapi",
            summary="This document.",
            answer=dict[str, Any],
        )
        browser = bound_operations(ConsoleEndpoints(console, self._sender))
        self.routes = [*endpoints.operations(), *routes, *browser, described]
        self._document = b""
        self._docs = ApiDocs()
        self._app = Starlette(
            routes=[*starlette_routes(self.routes), endpoints.unknown_act()],
            exception_handlers={HTTPException: no_such_thing},
        )
        self._app.router.redirect_slashes = False

    async def app(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        path = scope["raw_path"].decode("ascii")
        try:
            headers = headers_of(scope)
            if path in LOCAL_PAGES and scope["method"] in ("GET", "HEAD"):
                self._console.hosts.origin(headers)
                await self._docs.docs(scope, receive, send)
                return
            if "authorization" in headers:
                check_local(headers, port=self._port, token=self._token)
                scope[VIA] = "api"
            elif await self._console.answers(scope, send):
                return
            elif BROWSER in scope:
                scope[VIA] = "console"
            elif (scope["method"], path) not in OPEN:
                check_local(headers, port=self._port, token=self._token)
        except RemitError as error:
            await send_fault(send, error.fault)
            return
        scope["path"] = path
        if self._make_operator is not None and path.startswith(_OPERATOR) and not path.startswith(_OWN):
            self._operator = self._operator or self._make_operator()
            await self._operator.app(scope, receive, send)
            return
        await self._app(scope, receive, send)

    async def _sender(self, scope: Scope, headers: Headers) -> Sender:  # noqa: ARG002 - the shape of all
        """Return who sends a request that was let in: there is one user."""
        if VIA not in scope:
            raise RemitError(fault(Code.UNAUTHENTICATED, "this browser is not signed in"))
        client = self._console.sessions.clients.client(OWNER)
        assert client is not None, "it is always there"
        return client[0]

    async def _openapi(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002 - the shape of all
        """`GET /v1/shared/openapi.json`."""
        if not self._document:
            from remit_relay.local_api.openapi import shared_document

            made = await asyncio.to_thread(shared_document, self.routes, beside_hub=self._make_operator is not None)
            self._document = encode(made)
        await send_bytes(send, 200, self._document, ((b"content-type", JSON), *NO_STORE))

    async def open(self) -> None:
        """Listen nowhere else: the HTTP server is all."""

    async def drain(self, wait_s: float) -> int:
        """Release all readers; they continue after their last event once the host is back."""
        self._stream.end()
        return 0 if self._operator is None else await self._operator.drain(wait_s)
