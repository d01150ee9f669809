"""Who may use the local API: programs with the token, and browsers with a session of the console."""

from hashlib import sha256
from hmac import compare_digest
from pathlib import Path
from typing import Literal

from remit.protocol.errors import Code, RemitError, fault
from remit.runtime.clock import LoopClock
from remit_server.bodies import Headers
from remit_server.console.console import Console, ConsoleEndpoints
from remit_server.console.hosts import OWNER, hosts_at
from remit_server.console.sessions import ConsoleSessions, SpentInFile
from remit_server.operations import Operation, sent_by
from remit_server.public_console import ENTER, SIGN_IN
from remit_server.transports.credentials.incoming import Authenticator
from remit_server.transports.credentials.proof import bearer_of

# ── sessions of browsers ──────────────────────────────────────────────────────────────────────────────────────────────

OPEN = (("GET", ENTER.path), ("HEAD", ENTER.path), ("POST", SIGN_IN.path))
"""The operations that need neither a token nor a session: they open one."""


def browser_routes(browser: ConsoleEndpoints) -> list[Operation]:
    """Return the operations with their endpoints."""
    return [sent_by(operation, endpoint) for operation, endpoint in browser.operations()]


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
