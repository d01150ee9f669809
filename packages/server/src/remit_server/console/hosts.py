"""Which host names a browser may use for the console, and that a request comes from the console's own page.

A page in a browser can reach every server that the browser reaches. A page whose host name resolves to this server
(DNS rebinding) is detected by its `Host`, a page of another site by its `Origin`.
"""

import re
from collections.abc import Collection
from functools import lru_cache

from remit.policy.reception import Permission
from remit.protocol.errors import Code, RemitError, fault
from remit.runtime.clock import LoopClock
from remit_server.bodies import Headers
from remit_server.console.sessions import SESSION_MS
from remit_server.transports.credentials.incoming import Authenticator, KnownSender

LOCAL = ("127.0.0.1", "localhost", "[::1]")
_ANY = ("0.0.0.0", "::", "[::]")
_READS = ("GET", "HEAD")
_COOKIES = re.compile(r"[;,]\s*")
_PORTS = {"http": 80, "https": 443}
_FROM_HERE = "Open the page that this server serves, in a window of its own."


class ConsoleHosts:
    """The host names of a server, and the cookie that browsers keep for it."""

    def __init__(
        self, port: int, *, host: str = "127.0.0.1", tls: bool = False, more: Collection[str] = (), advice: str = ""
    ) -> None:
        """Take the address that is listened on, and *more* hosts: `host[:port]` behind https, or `http://host`.

        *advice* says how another host name can be allowed.
        """
        self.port = port
        self._advice = advice
        self._origins: dict[str, str] = {}
        own = "https" if tls else "http"
        is_local = host in ("127.0.0.1", "localhost", "::1", *_ANY)
        for name in LOCAL if is_local else (f"[{host}]" if ":" in host else host,):
            self._allow(own, name.lower())
        for each in more:
            scheme, _, name = each.lower().rpartition("://")
            self._allow(scheme or "https", name)
        self.address = f"{own}://{next(iter(self._origins))}"

    def _allow(self, scheme: str, name: str) -> None:
        has_port = re.search(r":\d+$", name)
        names = (name,) if has_port else (f"{name}:{self.port}",)
        if not has_port and (name not in LOCAL or self.port == _PORTS[scheme]):
            names = (*names, name)
        for each in names:
            self._origins.setdefault(each, f"{scheme}://{each}")

    def origin(self, headers: Headers) -> str:
        """Return the origin of the pages for a request; raise a `RemitError` if its host is not one of this server."""
        host = headers.get("host", "").lower()
        if host not in self._origins:
            raise RemitError(
                fault(
                    Code.PERMISSION_DENIED,
                    "this host name is not one of this server",
                    suggestion=f"Use {self.address}. {self._advice}".strip(),
                )
            )
        return self._origins[host]

    def check(self, headers: Headers, method: str) -> str:
        """Return the origin of a request; raise a `RemitError` unless it comes from there.

        A request that changes something must name its `Origin`, as every browser does.
        """
        here = self.origin(headers)
        origin = headers.get("origin")
        if origin is None and method not in _READS:
            why = "a request of a browser that changes something must name its origin"
            raise RemitError(fault(Code.PERMISSION_DENIED, why, suggestion=_FROM_HERE))
        # Two host names are two origins, even if both lead here.
        elsewhere = origin is not None and origin.lower() != here
        if elsewhere or _is_from_another_site(headers):
            raise _cross_origin()
        return here

    def check_program(self, headers: Headers) -> None:
        """Raise a `RemitError` unless a request of a program names this server, and no page of another site sent it.

        Loopback names are accepted with every port: a forwarded port has another number here, and no page of another
        site can have such a name.
        """
        host = headers.get("host", "").lower()
        if host not in self._origins and re.sub(r":\d+$", "", host) in LOCAL:
            origin = headers.get("origin", "").lower()
            if origin not in ("", f"http://{host}", f"https://{host}") or _is_from_another_site(headers):
                raise _cross_origin()
            return
        self.check(headers, "GET")

    # ── the cookie ────────────────────────────────────────────────────────────────────────────────────────────────────

    def cookie_in(self, headers: Headers) -> str:
        """Return the session in the cookies of a request; empty if there is none."""
        secure = self._origins.get(headers.get("host", "").lower(), "").startswith("https:")
        wanted = self._name(secure=secure)
        for each in _COOKIES.split(headers.get("cookie", "")):
            name, _, value = each.strip().partition("=")
            if name == wanted:
                return value
        return ""

    def cookie(self, origin: str, session: str) -> tuple[bytes, bytes]:
        """Return the header that sets the cookie of a session; without a session it deletes the cookie."""
        secure = origin.startswith("https:")
        age = SESSION_MS // 1_000 if session else 0
        value = f"{self._name(secure=secure)}={session}; Path=/; Max-Age={age}; HttpOnly; SameSite=Strict"
        return b"set-cookie", f"{value}{'; Secure' * secure}".encode("ascii")

    def _name(self, *, secure: bool) -> str:
        # Browsers send a cookie to every port of a host: two servers of one machine must not overwrite each other's.
        return f"{'__Host-' * secure}remit_{self.port}"


def _is_from_another_site(headers: Headers) -> bool:
    """Return whether a browser says so."""
    return headers.get("sec-fetch-site", "none").lower() not in ("none", "same-origin")


def _cross_origin() -> RemitError:
    return RemitError(fault(Code.PERMISSION_DENIED, "cross-origin requests are not allowed", suggestion=_FROM_HERE))


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
