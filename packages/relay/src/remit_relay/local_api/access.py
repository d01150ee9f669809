"""Who may use the local API (programs with the token, browsers with a session), and how bodies and views pass."""

from collections.abc import Awaitable, Callable, Iterable
from hashlib import sha256
from hmac import compare_digest
from pathlib import Path
from typing import Any, Literal

from msgspec.structs import asdict
from starlette.routing import Route

from remit.protocol.codec import decode
from remit.protocol.errors import Code, RemitError, fault
from remit.runtime.clock import LoopClock
from remit_server.bodies import Headers, Receive, Scope, Send, headers_of, read_optional_json, send_value
from remit_server.console.console import Console
from remit_server.console.hosts import OWNER, hosts_at
from remit_server.console.sessions import ConsoleSessions, SpentInFile
from remit_server.documents.api import ENTER, SIGN_IN, ApiOperation
from remit_server.operations import Operation, endpoints_of, refuse_unknown
from remit_server.refusals import Endpoint, Guarded
from remit_server.transports.credentials.incoming import Authenticator, bearer_of

OPEN = (("GET", ENTER.path), ("HEAD", ENTER.path), ("POST", SIGN_IN.path))
"""The operations that need neither a token nor a session: they open one."""


SPENT_FILE = "console.json"

Via = Literal["api", "console"]
"""By which client a request comes: a program with the token, or a browser with a session."""


def check_local(headers: Headers, *, port: int, token: str) -> None:
    """Raise a `RemitError` unless a request of a program is let in.

    It uses a local host name, comes from no other origin (see `ConsoleHosts`), and shows the token.
    """
    hosts_at(port).check(headers, "GET")
    shown = bearer_of(headers.get("authorization", ""))
    if shown is None or not compare_digest(shown.encode(), token.encode()):
        why = "invalid or missing token; its file is readable by the owner of this server"
        advice = "Send it as `Authorization: Bearer …`; for a browser, open a link: remit up --link"
        raise RemitError(fault(Code.UNAUTHENTICATED, why, suggestion=advice))


class BrowserLinks:
    """Makes links that sign in browsers, once the local API is served."""

    console: Console

    def new(self) -> str:
        """Return a link that signs in one browser, once."""
        return self.console.link(OWNER)


def console_of(
    clients: Authenticator, token: str, folder: Path, port: int, *, team: str, currency: str, operator: bool
) -> Console:
    """Return the console of a device. Its sessions end with the token, from which their key is made."""
    wall_ms = LoopClock().wall_ms
    secret, spent = sha256(token.encode()).digest(), SpentInFile(folder / SPENT_FILE, wall_ms)
    views = ("operator", "chat") if operator else ("chat",)
    sessions = ConsoleSessions(secret, clients, spent, wall_ms)
    return Console(sessions, hosts_at(port), team=team, views=views, currency=currency)


# ── bodies and views ──────────────────────────────────────────────────────────────────────────────────────────────────

# A hundred thousand characters in their longest JSON form, and the fields around them.
MOST_BODY = 1_000_000

VIA = "remit.via"
"""The key of the ASGI scope under which the client of a request is stored."""

NO_STORE = (
    (b"cache-control", b"no-store"),
    (b"referrer-policy", b"no-referrer"),
)


def starlette_routes(routes: Iterable[Operation]) -> list[Route]:
    """Return the routes for the router. Requests reach them only after `check_local`."""
    return [Route(each.path, Guarded(each.endpoint), methods=[each.method]) for each in routes]


class LocalRequest:
    """A request that was let in, with its body as the operation takes it."""

    __slots__ = ("body", "scope")

    def __init__(self, scope: Scope, body: Any) -> None:
        self.scope = scope
        self.body = body

    def named(self, name: str) -> str:
        """Return a variable part of the path."""
        return self.scope["path_params"][name]

    @property
    def via(self) -> Via:
        """By which client it comes."""
        return self.scope[VIA]


def local_operations(endpoints: object) -> list[Operation]:
    """Return the operations that the methods of an object declare with `answers` and `sends`."""
    return [
        Operation(endpoint=method if is_sending else answering(each, method), **asdict(each))
        for each, method, is_sending in endpoints_of(endpoints)
    ]


def answering(operation: ApiOperation, view: Callable[[LocalRequest], Awaitable[object]]) -> Endpoint:
    """Return the endpoint of an operation that answers with what *view* returns, which nothing between may store.

    A missing body is read as `{}`.
    """

    async def endpoint(scope: Scope, receive: Receive, send: Send) -> None:
        if operation.method == "GET":
            refuse_unknown(scope, *operation.query)
        body = None
        if operation.takes is not None:
            body = decode(await read_optional_json(headers_of(scope), receive, MOST_BODY) or b"{}", operation.takes)
        await send_value(send, await view(LocalRequest(scope, body)), operation.status, NO_STORE)

    return endpoint
