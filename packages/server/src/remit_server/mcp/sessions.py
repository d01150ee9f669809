"""MCP over HTTP, on the SDK: sessions for hosts that have them, and single calls for those that do not."""

import asyncio
from contextlib import suppress
from typing import Any

from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.auth.provider import AccessToken
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS

from remit.protocol.codec import MAX_BYTES
from remit.protocol.errors import RemitError
from remit_server.bodies import Receive, Scope, Send
from remit_server.delegations import Delegations, going_down
from remit_server.mcp.endpoint import MCP_CLIENT, McpClient
from remit_server.mcp.host_delegations import Caller, HostDelegations
from remit_server.mcp.offer import McpOffer
from remit_server.mcp.replay import RETRY_MS, SessionReplay
from remit_server.mcp.sdk_host import Context
from remit_server.mcp.server import McpToolServer

SESSION_HEADER, VERSION_HEADER = b"mcp-session-id", b"mcp-protocol-version"
# Each session is a task or two and some buffers; a host has one, and abandoned ones expire.
MOST_SESSIONS = 1_000
IDLE_S = 600.0
# Finished answers are sent within a moment, unless the host does not read.
LAST_WORDS_S = 2.0


class McpSessions:
    """Everything that is served at `/mcp`, from the first request until it is closed."""

    def __init__(self, delegations: Delegations, offer: McpOffer) -> None:
        self._face = McpToolServer("", HostDelegations(delegations), _caller_of, offer)
        self._replay = SessionReplay()
        self._manager = StreamableHTTPSessionManager(
            self._face.server,
            event_store=self._replay,
            retry_interval=RETRY_MS,
            max_sessions=MOST_SESSIONS,
            session_idle_timeout=IDLE_S,
            max_request_body_size=MAX_BYTES,
        )
        self._up, self._over, self._quiet = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self._answering = 0
        self._quiet.set()
        # The SDK must be entered and left by the same task.
        self._running = asyncio.get_running_loop().create_task(self._run())

    async def _run(self) -> None:
        try:
            async with self._manager.run():
                self._up.set()
                await self._over.wait()
        finally:
            self._up.set()

    async def serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request of an authenticated client."""
        await self._up.wait()
        if self._over.is_set():
            raise going_down()
        client: McpClient = scope[MCP_CLIENT]
        user = client.caller.user if isinstance(client.caller, Caller) else None
        # By this the SDK keeps clients and users out of each other's sessions.
        scope["user"] = AuthenticatedUser(AccessToken(token="", client_id=client.client, scopes=[], subject=user))
        if scope["method"] != "POST":  # a stream that stays open, or the end of a session
            await self._handle(scope, receive, send, client.client, user)
            return
        self._answering += 1
        self._quiet.clear()
        try:
            await self._handle(scope, receive, send, client.client, user)
        finally:
            self._answering -= 1
            if not self._answering:
                self._quiet.set()

    async def _handle(self, scope: Scope, receive: Receive, send: Send, client: str, user: str | None) -> None:
        """Let the SDK answer a request, in the session that it belongs to."""
        headers: list[tuple[bytes, bytes]] = scope["headers"]
        # The first one, as the SDK reads it: by another, a host could replay a session that is not its own.
        named = next((value for name, value in headers if name == SESSION_HEADER), None)
        key = None if named is None else (client, user, named.decode("latin-1"))
        with self._replay.serving(key) as session:

            async def noting(message: Any) -> None:
                if scope["method"] == "DELETE" and message["type"] == "http.response.start" and message["status"] < 400:
                    # Cancelled timers of the session may hold its context for ten minutes more.
                    session.close()
                if named is None and message["type"] == "http.response.start":
                    opened = dict(message["headers"]).get(SESSION_HEADER)
                    if opened is not None:
                        self._replay.opened((client, user, opened.decode("latin-1")), session)
                await send(message)

            if session.version is not None:
                scope["headers"] = agreed(headers, session.version)
            await self._manager.handle_request(scope, receive, noting)

    async def close(self) -> None:
        """Let running calls be answered, then end every session."""
        with suppress(TimeoutError):
            async with asyncio.timeout(LAST_WORDS_S):
                await self._quiet.wait()
        await self._face.close()
        self._replay.close()
        self._over.set()
        await asyncio.wait({self._running})


def agreed(headers: list[tuple[bytes, bytes]], version: str) -> list[tuple[bytes, bytes]]:
    """Return the headers of a request in a session with the version that the session agreed on.

    Some hosts leave the header out, or name an older version in it, and would then not be told how to resume a stream.
    """
    said = dict(headers).get(VERSION_HEADER)
    if said is not None and said.decode("latin-1") not in HANDSHAKE_PROTOCOL_VERSIONS:
        return headers
    return [*(each for each in headers if each[0] != VERSION_HEADER), (VERSION_HEADER, version.encode())]


def _caller_of(ctx: Context) -> Caller:
    assert ctx.request is not None, "over HTTP every message has its request"
    client: McpClient = ctx.request.scope[MCP_CLIENT]
    if isinstance(client.caller, RemitError):
        raise client.caller
    return client.caller
