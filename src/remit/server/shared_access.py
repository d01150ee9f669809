"""Who may use the local API: programs with the token, and browsers with a session of the console."""

from functools import lru_cache
from hashlib import sha256
from hmac import compare_digest
from pathlib import Path
from typing import Literal

from remit.policy.reception import Permission
from remit.protocol.errors import Code, RemitError, fault
from remit.runtime.clock import LoopClock
from remit.server.bodies import Headers
from remit.server.console.console import Console
from remit.server.console.hosts import ConsoleHosts
from remit.server.console.sessions import ConsoleSessions
from remit.server.console.spent import SpentInFile
from remit.transports.credentials.bearer import bearer_of
from remit.transports.credentials.incoming import Authenticator, KnownSender

TOKEN_FILE = "shared.token"
SPENT_FILE = "console.json"
HOST = "127.0.0.1"
OWNER = "local"
"""The name of whoever has the token: the user of this machine, who may do everything here."""

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


@lru_cache(maxsize=8)
def hosts_at(port: int) -> ConsoleHosts:
    """Return the host names of a server for this machine alone."""
    return ConsoleHosts(port)


def owner_alone(token: str) -> Authenticator:
    """Return the authenticator of a server that knows one token."""
    wall_ms = LoopClock().wall_ms
    owner = KnownSender(name=OWNER, token=token, permissions=frozenset(Permission), may_approve=True)
    return Authenticator([owner], wall_ms=wall_ms)


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
