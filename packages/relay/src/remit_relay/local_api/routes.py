"""Routes of the local API: how they are mounted, and how bodies and views pass."""

from collections.abc import Iterable
from typing import Any

from starlette.routing import Route

from remit.protocol.codec import decode
from remit_server.bodies import Receive, Scope, Send, headers_of, read_optional_json, send_value
from remit_server.operations import Operation
from remit_server.refusals import Guarded

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


async def read_body(scope: Scope, receive: Receive, kind: type[Any]) -> Any:
    """Return the decoded body of a request; a missing one is read as `{}`."""
    return decode(await read_optional_json(headers_of(scope), receive, MOST_BODY) or b"{}", kind)


async def send_view(send: Send, value: object, status: int = 200) -> None:
    """Send a view; nothing between may store it."""
    await send_value(send, value, status, NO_STORE)
