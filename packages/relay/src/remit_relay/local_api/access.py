"""Who may use the local API (programs with the token, browsers with a session), and how bodies and views pass."""

from collections.abc import Awaitable, Callable, Iterable
from hashlib import sha256
from hmac import compare_digest
from pathlib import Path
from typing import Any, Literal, cast

from starlette.routing import Route

from remit.protocol.codec import decode
from remit.protocol.errors import Code, RemitError, fault
from remit.runtime.clock import LoopClock
from remit_server.bodies import Headers, Receive, Scope, Send, headers_of, read_optional_json, send_value
from remit_server.console.console import Console
from remit_server.console.hosts import OWNER, hosts_at
from remit_server.console.sessions import ConsoleSessions, SpentInFile
from remit_server.documents.api import ENTER, SIGN_IN, Parameter
from remit_server.operations import Operation
from remit_server.refusals import Guarded
from remit_server.transports.credentials.incoming import Authenticator, bearer_of

# ── sessions of browsers ──────────────────────────────────────────────────────────────────────────────────────────────

OPEN = (("GET", ENTER.path), ("HEAD", ENTER.path), ("POST", SIGN_IN.path))
"""The operations that need neither a token nor a session: they open one."""


# ── access ────────────────────────────────────────────────────────────────────────────────────────────────────────────


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


def operation(
    address: str,
    name: str,
    summary: str,
    view: Callable[[LocalRequest], Awaitable[object]],
    answer: Any,
    *,
    takes: type[Any] | None = None,
    status: int = 200,
    parameters: tuple[Parameter, ...] = (),
) -> Operation:
    """Return the operation at an *address* such as `GET /v1/shared/runs`, which answers with what *view* returns.

    A missing body is read as `{}`. Nothing between may store an answer.
    """

    async def endpoint(scope: Scope, receive: Receive, send: Send) -> None:
        body = None
        if takes is not None:
            body = decode(await read_optional_json(headers_of(scope), receive, MOST_BODY) or b"{}", takes)
        await send_value(send, await view(LocalRequest(scope, body)), status, NO_STORE)

    method, path = address.split()
    return Operation(
        method=cast("Any", method),
        path=path,
        endpoint=endpoint,
        name=name,
        summary=summary,
        takes=takes,
        answer=answer,
        status=status,
        parameters=parameters,
    )
