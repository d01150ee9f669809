"""`/mcp`: authenticates hosts and finds their user; the SDK is loaded on the first request."""

import asyncio
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Literal, Protocol
from urllib.parse import unquote

from msgspec import Struct
from msgspec.structs import replace

from remit.installed import install_command
from remit.policy.reception import Permission, Sender, not_for
from remit.protocol.codec import refuse_many_values
from remit.protocol.errors import Code, Problem, RemitError, fault
from remit.protocol.problems import wrong_fields
from remit.protocol.remit import Name
from remit_server.bodies import Headers, Receive, Scope, Send, headers_of, read_as, read_json, send_fault
from remit_server.console.hosts import ConsoleHosts
from remit_server.delegations import Delegations
from remit_server.documents.api import ApiOperation
from remit_server.mcp.host_delegations import Caller, McpOffer
from remit_server.operations import sends
from remit_server.refusals import note

USER_HEADER = "X-Remit-User"
MCP_CLIENT = "remit.mcp_client"
"""The key of the ASGI scope under which the client is stored."""


def _operation(method: Literal["GET", "POST", "DELETE"]) -> ApiOperation:
    meaning = "The agents as tools of an MCP host: [MCP](../how-to/mcp.md)."
    return ApiOperation(method=method, path="/mcp", name=f"mcp_{method.lower()}", summary=meaning)


MCP = tuple(map(_operation, ("GET", "POST", "DELETE")))


class McpClient(Struct, frozen=True):
    """The client of `/mcp` and its user, or the error why there is none."""

    client: str
    caller: Caller | RemitError


class _Sessions(Protocol):
    async def serve(self, scope: Scope, receive: Receive, send: Send) -> None: ...

    async def close(self) -> None: ...


class McpEndpoint:
    """Authenticates hosts like all other clients."""

    def __init__(self, delegations: Delegations, hosts: ConsoleHosts, offer: McpOffer) -> None:
        self._delegations = delegations
        self._offer = offer
        self._hosts = hosts
        self._loading = asyncio.Lock()
        self._sessions: _Sessions | None = None

    @sends(*MCP)
    async def serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = headers_of(scope)
        try:
            # Before anything else: the host name of a page in a browser may resolve to this server (DNS rebinding).
            self._hosts.check_program(headers)
        except RemitError as error:
            note(scope, headers, error.fault)
            await send_fault(send, error.fault, closes=True)
            return
        sender = await self._delegations.sender(scope, headers)
        if sender.is_hub:
            raise RemitError(
                fault(
                    Code.PERMISSION_DENIED,
                    f"{sender.name} is a hub: hubs send requests to /v1/delegations, with their credential",
                    suggestion="",
                )
            )
        sessions = self._sessions or await self._load()
        if scope["method"] == "POST":
            body = await read_json(headers, receive)
            await read_as(refuse_many_values, body)
            receive = _again(body, receive)
        caller = _caller(sender, headers)
        if isinstance(caller, RemitError):
            note(scope, headers, caller.fault)
        scope[MCP_CLIENT] = McpClient(sender.name, caller)
        await sessions.serve(scope, receive, send)

    async def _load(self) -> _Sessions:
        if find_spec("mcp") is None:
            raise RemitError(
                fault(
                    Code.NOT_FOUND,
                    "MCP is not available: the extra `mcp` is not installed",
                    suggestion=f"Install it where the server runs: {install_command('mcp')}",
                )
            )
        async with self._loading:
            if self._sessions is None:
                # Loading takes a second, and other requests are served meanwhile.
                module = await asyncio.to_thread(import_module, "remit_server.mcp.server")
                self._sessions = module.McpSessions(self._delegations, self._offer)
        assert self._sessions is not None
        return self._sessions

    async def close(self) -> None:
        """End every session, after running calls are answered."""
        if self._sessions is not None:
            await self._sessions.close()


def _caller(sender: Sender, headers: Headers) -> Caller | RemitError:
    """Return the caller, bound to one user: the sender's only user, or the one that a header names."""
    users, named = sender.users, headers.get(USER_HEADER.lower())
    if named is not None:
        named = unquote(named)
    elif users is not None and len(users) == 1:
        (named,) = users
    if named is None:
        problem = Problem(USER_HEADER, f"{sender.name} may act for several users: name the user in this header")
        return RemitError(fault(Code.MALFORMED_ENVELOPE, f"the header {USER_HEADER} is missing", problems=(problem,)))
    for wrong in wrong_fields(named, Name):
        return RemitError(fault(Code.MALFORMED_ENVELOPE, f"invalid header {USER_HEADER}: {wrong.message}"))
    if users is not None and named not in users:
        return RemitError(not_for(sender, named))
    # The models of a host see what its user may see and no more, whatever the permissions of its client.
    bound = replace(sender, users=frozenset({named}), permissions=sender.permissions & {Permission.PRIORITY})
    return Caller(sender=bound, user=named, headers=headers)


def _again(body: bytes, receive: Receive) -> Receive:
    """Return a `receive` that yields a body that was already read, then the following messages."""
    unread = [body]

    async def replay() -> Any:
        if unread:
            return {"type": "http.request", "body": unread.pop(), "more_body": False}
        return await receive()

    return replay
