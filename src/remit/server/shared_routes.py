"""A route of the local API: the endpoint, and what the OpenAPI document says about it."""

from collections.abc import Iterable
from typing import Any, Literal

from msgspec import Struct
from starlette.routing import Route

from remit.protocol.codec import decode
from remit.server.bodies import Receive, Scope, Send, headers_of, read_optional_json, send_value
from remit.server.refusals import Endpoint, guarded

# A hundred thousand characters in their longest JSON form, and the fields around them.
MOST_BODY = 1_000_000

VIA = "remit.via"
"""The key of the ASGI scope under which the client of a request is stored."""

NO_STORE = (
    (b"cache-control", b"no-store"),
    (b"referrer-policy", b"no-referrer"),
)


class QueryParameter(Struct, frozen=True, kw_only=True):
    """A parameter in the query string."""

    name: str
    meaning: str
    kind: Literal["string", "integer"] = "string"
    required: bool = False


class SharedRoute(Struct, frozen=True, kw_only=True):
    """One operation of the local API. A request reaches the endpoint only after `check_local`."""

    method: Literal["GET", "POST", "PUT", "PATCH", "DELETE"]
    path: str
    endpoint: Endpoint
    name: str
    """The operation id, unique in the document."""
    summary: str
    answer: Any = None
    """The type of the response; None: it has no JSON body."""
    takes: Any = None
    """The type of the request body; None: it has none."""
    status: int = 200
    parameters: tuple[QueryParameter, ...] = ()
    stream: bool = False
    """Whether the response is a stream of events, of which `answer` is the data."""


def starlette_routes(routes: Iterable[SharedRoute]) -> list[Route]:
    """Return the routes for the router."""
    return [Route(each.path, guarded(each.endpoint), methods=[each.method]) for each in routes]


async def read_body(scope: Scope, receive: Receive, kind: type[Any]) -> Any:
    """Return the decoded body of a request; a missing one is read as `{}`."""
    return decode(await read_optional_json(headers_of(scope), receive, MOST_BODY) or b"{}", kind)


async def send_view(send: Send, value: object, status: int = 200) -> None:
    """Send a view; nothing between may store it."""
    await send_value(send, value, status, NO_STORE)
