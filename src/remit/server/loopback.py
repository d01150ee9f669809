"""Who may speak to a server that is for the user of this machine alone: who knows its token, and is no web page."""

from hmac import compare_digest

from remit.protocol.errors import Code, RemitError, fault
from remit.server.bodies import Headers
from remit.transports.credentials.bearer import bearer_of

_FROM_HERE = "Open the page that this server itself gives."
NAMES = ("127.0.0.1", "localhost", "[::1]")


def check(headers: Headers, *, port: int, token: str) -> None:
    """Raise a `RemitError` unless a request came to this server by its own name, from no other origin, with *token*.

    A page in the user's browser can reach every port of this machine. One that had its own name resolve to it (DNS
    rebinding) is known by the `Host` that it asks for, one from elsewhere by its `Origin`; neither knows the token.
    """
    names = [f"{name}:{port}" for name in NAMES]
    host = headers.get("host", "").lower()
    if host not in names:
        why = "this server answers to the names of this machine alone"
        raise RemitError(fault(Code.PERMISSION_DENIED, why, suggestion=f"Ask for http://{names[0]}."))
    # Two of the names are two origins, also where both lead here.
    if headers.get("origin", f"http://{host}").lower() != f"http://{host}":
        raise RemitError(fault(Code.PERMISSION_DENIED, "pages from elsewhere are not let in", suggestion=_FROM_HERE))
    if headers.get("sec-fetch-site", "none").lower() not in ("none", "same-origin"):
        raise RemitError(fault(Code.PERMISSION_DENIED, "pages from elsewhere are not let in", suggestion=_FROM_HERE))
    shown = bearer_of(headers.get("authorization", ""))
    if shown is None or not compare_digest(shown.encode(), token.encode()):
        why = "this server lets in who knows its token, which is in a file that its owner can read"
        raise RemitError(fault(Code.UNAUTHENTICATED, why, suggestion="Send it as `Authorization: Bearer …`."))
