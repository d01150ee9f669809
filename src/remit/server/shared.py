"""The local API for runs with shared agents: HTTP and server-sent events, for the same user on the same machine.

A client reads the views in `public_runs` and `public_devices` and sends the commands in `run_commands`. `check_local`
decides who is let in. Each event of the stream is a whole view, so a client shows the latest event of each thing and
never has to merge events.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.routing import BaseRoute, Mount
from starlette.types import ASGIApp

from remit.protocol.codec import encode
from remit.protocol.errors import RemitError
from remit.relay.client.connection import GatewayConnection
from remit.relay.serve_shared import Shared
from remit.relay.session_service import SessionService
from remit.runtime.clock import LoopClock
from remit.runtime.ports import StoreError
from remit.server.access import token_in
from remit.server.app import no_such_thing
from remit.server.bodies import JSON, Receive, Scope, Send, headers_of, send_bytes, send_fault
from remit.server.server import Server
from remit.server.shared_access import ENTER, HOST, TOKEN_FILE, BrowserSessions, check_local, check_origin
from remit.server.shared_endpoints import VIA, SharedEndpoints
from remit.server.shared_events import Changes
from remit.server.shared_files import file_routes
from remit.server.shared_openapi import shared_document
from remit.server.shared_routes import MOST_BODY, NO_STORE, SharedRoute, starlette_routes
from remit.server.shared_state import DeviceParts, DeviceViews, PresenceOf
from remit.server.shared_stream import EventStream
from remit.transports.listening import listening

__all__ = ["MOST_BODY", "TOKEN_FILE", "BrowserSessions", "Changes", "SharedApi", "check_local", "serve_shared"]

# The clients of one user: some windows, some terminals, each with a stream and a request.
MOST_CONNECTIONS = 64
DRAIN_S = 2.0
# How often changes by other processes are looked for while somebody reads the stream.
LOOK_S = 1.0

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
    sessions: BrowserSessions | None = None,
    routes: Sequence[SharedRoute] = (),
    console: ASGIApp | None = None,
) -> AsyncGenerator[str, None]:
    """Serve the runs of an open *host* to clients on this machine while the block lasts; yield the address.

    *changes* is what the host calls as `changed`. Clients must know the token in the file *token*, which is created if
    it does not exist, or have one of *sessions*: `sessions.link(address)` makes a link that opens one. Without a
    *port*, a free one is used. *link* is the connection to the gateway, *shared* has the agents that the device shares,
    *presence* tells which devices are present. *routes* are more operations; *console* serves the pages of a console,
    at every path outside of `/v1/`. Raises a `RemitError` if it cannot listen there, or the file is invalid.
    """
    parts = DeviceParts(link=link, shared=shared or {}, presence=presence)
    with listening(HOST, port) as bound:
        secret, at = token_in(token), bound.getsockname()[1]
        state = DeviceViews(host, changes, parts, now_ms=LoopClock().wall_ms)
        service = SharedApi(
            state, token=secret, port=at, sessions=sessions or BrowserSessions(), routes=routes, console=console
        )
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
        await asyncio.sleep(LOOK_S)
        if state.changes.readers:
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
        sessions: BrowserSessions,
        routes: Sequence[SharedRoute] = (),
        console: ASGIApp | None = None,
    ) -> None:
        self._token = token
        self._port = port
        self._sessions = sessions
        self._stream = EventStream(state)
        self.hurried = asyncio.Event()
        home = "/v1/shared/status" if console is None else "/"
        endpoints = SharedEndpoints(state, self._stream, sessions, port=port, home=home)
        described = SharedRoute(
            method="GET",
            path="/v1/shared/openapi.json",
            endpoint=self._openapi,
            name="openapi",
            summary="This document.",
            answer=dict[str, Any],
        )
        self.routes = [*endpoints.routes(), *file_routes(state.host), *routes, described]
        self._document = b""
        others: list[BaseRoute] = [endpoints.unknown_act()]
        if console is not None:
            others.append(Mount("/", app=console))
        self._app = Starlette(
            routes=[*starlette_routes(self.routes), *others], exception_handlers={HTTPException: no_such_thing}
        )
        self._app.router.redirect_slashes = False

    async def app(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        path = scope["raw_path"].decode("ascii")
        try:
            headers = headers_of(scope)
            if path == ENTER:
                check_origin(headers, port=self._port)
            else:
                scope[VIA] = check_local(
                    headers, port=self._port, token=self._token, sessions=self._sessions, method=scope["method"]
                )
        except RemitError as error:
            await send_fault(send, error.fault)
            return
        scope["path"] = path
        await self._app(scope, receive, send)

    async def _openapi(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002 - the shape of all
        """`GET /v1/shared/openapi.json`."""
        self._document = self._document or encode(shared_document(self.routes))
        await send_bytes(send, 200, self._document, ((b"content-type", JSON), *NO_STORE))

    async def drain(self, wait_s: float) -> int:  # noqa: ARG002 - nothing here takes long
        """Release all readers; they continue after their last event once the host is back."""
        self._stream.end()
        return 0
