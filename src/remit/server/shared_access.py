"""Who may use the local API: programs with the token, and browsers with a session.

A browser gets its session by a one-time link: the code in it is spent at its first use, and expires. Sessions and codes
are kept in memory only, as digests.
"""

import re
import secrets
from collections.abc import Callable
from hashlib import sha256
from hmac import compare_digest
from time import monotonic
from typing import Literal

from remit.protocol.errors import Code, RemitError, fault
from remit.server.bodies import Headers
from remit.transports.credentials.bearer import bearer_of

TOKEN_FILE = "shared.token"
HOST = "127.0.0.1"
ENTER = "/v1/shared/enter"

# A person opens the link at once; a link that stays in a terminal's history must not open anything later.
LINK_S = 300.0
# A browser that is used at least once a week stays signed in, until the process ends.
SESSION_S = 7 * 24 * 3_600.0
# One user has a few browsers; more would be an error in a script.
MOST_LINKS = 16
MOST_SESSIONS = 64

_NAMES = ("127.0.0.1", "localhost", "[::1]")
_FROM_HERE = "Open the page that this server serves."
_READS = ("GET", "HEAD")
_COOKIES = re.compile(r"[;,]\s*")

Via = Literal["api", "console"]
"""By which client a request comes: a program with the token, or a browser with a session."""


class BrowserSessions:
    """The open one-time links and the sessions of browsers."""

    def __init__(self, now: Callable[[], float] = monotonic) -> None:
        self._now = now
        self._codes: dict[bytes, float] = {}
        self._sessions: dict[bytes, float] = {}

    def link(self, address: str) -> str:
        """Return a link to the server at *address* that signs in one browser, once, within `LINK_S`."""
        code = secrets.token_urlsafe(32)
        self._codes[_digest(code)] = self._now() + LINK_S
        while len(self._codes) > MOST_LINKS:
            del self._codes[next(iter(self._codes))]
        return f"{address}{ENTER}?code={code}"

    def enter(self, code: str) -> str:
        """Spend a code and return the secret of a new session; raise a `RemitError` if the code is not valid."""
        until = self._codes.pop(_digest(code), None)
        if until is None or until < self._now():
            raise RemitError(
                fault(
                    Code.UNAUTHENTICATED,
                    "the link was used before, or has expired",
                    suggestion="Ask for a new one: remit up --link",
                )
            )
        session = secrets.token_urlsafe(32)
        self._sessions[_digest(session)] = self._now() + SESSION_S
        while len(self._sessions) > MOST_SESSIONS:
            del self._sessions[next(iter(self._sessions))]
        return session

    def is_open(self, session: str) -> bool:
        """Return whether a session is valid; using it prolongs it."""
        key = _digest(session)
        until = self._sessions.pop(key, None)
        if until is None or until < self._now():
            return False
        self._sessions[key] = self._now() + SESSION_S
        return True

    def leave(self, session: str) -> None:
        """End a session."""
        self._sessions.pop(_digest(session), None)


def _digest(secret: str) -> bytes:
    return sha256(secret.encode(errors="replace")).digest()


def check_origin(headers: Headers, *, port: int) -> None:
    """Raise a `RemitError` unless a request uses a local host name and comes from no other origin.

    A page in the user's browser can reach every port of this machine. A page whose host name resolves to this machine
    (DNS rebinding) is detected by its `Host`, a page of another site by its `Origin`.
    """
    names = [f"{name}:{port}" for name in _NAMES]
    host = headers.get("host", "").lower()
    if host not in names:
        why = "this server accepts requests to local host names only"
        raise RemitError(fault(Code.PERMISSION_DENIED, why, suggestion=f"Use http://{names[0]}."))
    # Two host names are two origins, even if both lead here.
    if headers.get("origin", f"http://{host}").lower() != f"http://{host}":
        raise RemitError(fault(Code.PERMISSION_DENIED, "cross-origin requests are not allowed", suggestion=_FROM_HERE))
    if headers.get("sec-fetch-site", "none").lower() not in ("none", "same-origin"):
        raise RemitError(fault(Code.PERMISSION_DENIED, "cross-origin requests are not allowed", suggestion=_FROM_HERE))


def check_local(
    headers: Headers, *, port: int, token: str, sessions: BrowserSessions | None = None, method: str = "GET"
) -> Via:
    """Return by which client a request comes; raise a `RemitError` if it is not let in.

    Besides `check_origin`, it needs *token*, or the cookie of an open session. With a cookie alone, a request that
    changes something must name its `Origin`, as every browser does: a cookie is sent by the browser, whoever asks.
    """
    check_origin(headers, port=port)
    shown = bearer_of(headers.get("authorization", ""))
    if shown is not None and compare_digest(shown.encode(), token.encode()):
        return "api"
    session = session_in(headers, port)
    if shown is None and session and sessions is not None and sessions.is_open(session):
        if method not in _READS and "origin" not in headers:
            why = "a request with a cookie that changes something must name its origin"
            raise RemitError(fault(Code.PERMISSION_DENIED, why, suggestion=_FROM_HERE))
        return "console"
    why = "invalid or missing token; its file is readable by the owner of this server"
    advice = "Send it as `Authorization: Bearer …`; for a browser, open a link: remit up --link"
    raise RemitError(fault(Code.UNAUTHENTICATED, why, suggestion=advice))


# ── cookies ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def session_in(headers: Headers, port: int) -> str:
    """Return the secret of the session in the cookies of a request; empty if there is none."""
    for cookie in _COOKIES.split(headers.get("cookie", "")):
        name, _, value = cookie.strip().partition("=")
        if name == _cookie_name(port):
            return value
    return ""


def cookie(port: int, session: str) -> tuple[bytes, bytes]:
    """Return the header that sets the cookie of a session; without a session it deletes the cookie."""
    age = round(SESSION_S) if session else 0
    value = f"{_cookie_name(port)}={session}; Path=/; Max-Age={age}; HttpOnly; SameSite=Strict"
    return b"set-cookie", value.encode("ascii")


def _cookie_name(port: int) -> str:
    # Browsers send a cookie to every port of a host: two devices of one machine must not overwrite each other's.
    return f"remit_{port}"
