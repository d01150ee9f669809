"""The console over one hub, as its operator sees it."""

from remit.runtime.clock import LoopClock
from remit.runtime.engine import Engine
from remit_server.console.console import Console
from remit_server.console.hosts import ConsoleHosts
from remit_server.console.pages import is_built, not_built
from remit_server.console.sessions import ConsoleSessions
from remit_server.console.spent import SpentInStore
from remit_server.transports.credentials.incoming import Authenticator


def operator_console(hub: Engine, hosts: ConsoleHosts, clients: Authenticator, *, team: str, currency: str) -> Console:
    """Return the console of an open hub; raise a `RemitError` if this installation has none."""
    if not is_built():
        raise not_built()
    wall_ms = LoopClock().wall_ms
    sessions = ConsoleSessions(hub.store.secret(), clients, SpentInStore(hub.store, wall_ms), wall_ms)
    return Console(sessions, hosts, team=team, views=("operator",), currency=currency)
