"""A server for the same user on the same machine: its token, its host names, its limits."""

from functools import lru_cache

from remit.policy.reception import Permission
from remit.runtime.clock import LoopClock
from remit_server.console.hosts import ConsoleHosts
from remit_server.transports.credentials.incoming import Authenticator, KnownSender

TOKEN_FILE = "shared.token"
HOST = "127.0.0.1"
OWNER = "local"
"""The name of whoever has the token: the user of this machine, who may do everything here."""

# The clients of one user: some windows, some terminals, each with a stream and a request.
MOST_CONNECTIONS = 64
DRAIN_S = 2.0


@lru_cache(maxsize=8)
def hosts_at(port: int) -> ConsoleHosts:
    """Return the host names of a server for this machine alone."""
    return ConsoleHosts(port)


def owner_alone(token: str) -> Authenticator:
    """Return the authenticator of a server that knows one token."""
    owner = KnownSender(name=OWNER, token=token, permissions=frozenset(Permission), may_approve=True)
    return Authenticator([owner], wall_ms=LoopClock().wall_ms)
