"""Calls of an A2A agent: what they are in every binding, and how they go over HTTP, as JSON-RPC and HTTP+JSON."""

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from itertools import count
from typing import TYPE_CHECKING, NamedTuple, Never, Protocol
from urllib.parse import quote, urlsplit

import msgspec
from msgspec.structs import replace

from remit.ports import OutgoingRequest
from remit.protocol.errors import Code, Fault, RemitError, fault
from remit_server.dialects.a2a.translator import A2aEndpoint, A2aTranslator
from remit_server.dialects.a2a.types import METHODS
from remit_server.transports.addresses import OutboundClient
from remit_server.transports.remote_calls import ASK_FOR_LESS, RetryAllowed, is_away, read_body

if TYPE_CHECKING:
    from aiohttp import ClientResponse


class A2aRefusal(Exception):
    """The peer refused a request."""

    def __init__(self, why: Fault) -> None:
        super().__init__(why.message)
        self.fault = why


class A2aUnreached(Exception):
    """There is no connection to the peer: nothing was sent."""

    away = True
    """Whether it may be restarting."""


class A2aConnectionLost(Exception):
    """The connection was lost: the request may have arrived."""


class A2aReply(NamedTuple):
    """The answer to a call."""

    extensions: str | None
    """The extensions that the peer confirms; None: it refuses the call."""
    pieces: AsyncGenerator[bytes, None]
    """The result, or the events of a stream: each is JSON."""


class A2aCaller(Protocol):
    """Calls methods of one agent, in one binding."""

    async def prepare(
        self, method: str, params: bytes, *, is_stream: bool, named: str
    ) -> AbstractAsyncContextManager[A2aReply]:
        """Return a call that is sent when the block is entered, for a stream or not; *named* is its task, if any.

        The block raises `A2aUnreached`, `A2aConnectionLost`, `A2aRefusal` or `RetryAllowed`; a `RemitError` says that
        the peer sent something invalid.
        """
        ...


class A2aCallee(NamedTuple):
    """The agent that is called: its name here, where it is, and what every call to it needs."""

    name: str
    offer: A2aEndpoint
    tongue: A2aTranslator
    max_bytes: int
    headers: Callable[[OutgoingRequest], Awaitable[dict[str, str]]]
    """Returns the headers of a request, which prove who sends it."""
    time_left_ms: Callable[[], int]

    def garbage(self, what: str) -> Fault:
        """Return the fault of a peer that sent *what*."""
        return fault(Code.RESULT_VALIDATION_FAILED, f"{self.name} sent {what}", detail=self.offer.url)


def refuse(why: Fault, status: int) -> Never:
    """Raise the error of a call that the peer answered with an HTTP status, or what is the same in its binding."""
    if status in (429, 503) or why.code in (Code.OVERLOADED, Code.RATE_LIMITED):
        raise RetryAllowed(why, sent=False)
    raise A2aRefusal(why)


# ── over HTTP ─────────────────────────────────────────────────────────────────────────────────────────────────────────

STREAM = "text/event-stream"
_JSON = "application/json"

_numbers = count(1)


class A2aHttpRequest(NamedTuple):
    """One call as it is sent."""

    verb: str
    url: str
    body: bytes | None

    @property
    def outgoing(self) -> OutgoingRequest:
        """The request as a credential proves it."""
        parts = urlsplit(self.url)
        path = f"{parts.path or '/'}?{parts.query}" if parts.query else parts.path or "/"
        return OutgoingRequest(self.verb, path, self.body or b"")


def _http_request(offer: A2aEndpoint, method: str, params: bytes, named: str) -> A2aHttpRequest:
    if offer.binding == "JSONRPC":
        number = next(_numbers)
        body = b'{"jsonrpc":"2.0","id":%d,"method":"%b","params":%b}' % (number, method.encode(), params)
        return A2aHttpRequest("POST", offer.url, body)
    _, verb, path = METHODS[method]
    base = f"{offer.url.rstrip('/')}{'/' + quote(offer.tenant, safe='') if offer.tenant else ''}"
    url = f"{base}/{path.format(id=quote(named, safe=''))}"
    return A2aHttpRequest(verb, url, params if verb == "POST" else None)


class _RpcReply(msgspec.Struct, frozen=True):
    """The fields of a JSON-RPC reply that are needed to decode the rest."""

    result: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    error: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


class _RestError(msgspec.Struct, frozen=True):
    error: msgspec.Raw = msgspec.Raw(b"{}")


class HttpCaller:
    """Calls an agent over HTTP."""

    def __init__(self, callee: A2aCallee, outbound: OutboundClient) -> None:
        self._callee = callee
        self._offer = callee.offer
        self._outbound = outbound

    async def prepare(
        self, method: str, params: bytes, *, is_stream: bool, named: str
    ) -> AbstractAsyncContextManager[A2aReply]:
        """Return a call that is ready to be sent."""
        call = _http_request(self._offer, method, params, named)
        headers = await self._callee.headers(call.outgoing)
        kinds = {"content-type": _JSON, "accept": STREAM if is_stream else _JSON}
        return self._reply(call, headers | kinds)

    @asynccontextmanager
    async def _reply(self, call: A2aHttpRequest, headers: dict[str, str]) -> AsyncGenerator[A2aReply]:
        from aiohttp import ClientConnectorError, ClientError

        try:
            async with self._outbound.request(call.verb, call.url, headers=headers, data=call.body) as reply:
                extensions = reply.headers.get("a2a-extensions", "") if reply.status == 200 else None
                yield A2aReply(extensions, self._pieces(reply))
        except ClientConnectorError as error:
            unreached = A2aUnreached(type(error).__name__)
            unreached.away = is_away(error)
            raise unreached from error
        except (ClientError, ConnectionError, TimeoutError) as error:
            raise A2aConnectionLost(type(error).__name__) from error

    async def _pieces(self, reply: "ClientResponse") -> AsyncGenerator[bytes, None]:
        callee = self._callee
        if reply.status == 200 and reply.content_type == STREAM:
            async for data in events(reply, callee.max_bytes):
                yield self._opened(data, reply.status)
            return
        is_json = reply.content_type == _JSON or reply.content_type.endswith("+json")
        if not is_json and reply.status >= 300:
            what = f"status {reply.status} with a body of type {reply.content_type[:100]}"
            if reply.status in (429, 503):
                raise RetryAllowed(callee.tongue.fault(reply.status, b"{}", callee.name), sent=False)
            raise RemitError(callee.garbage(what))
        raw = await read_body(reply, callee.max_bytes)
        if reply.status >= 300:
            self._fail(reply.status, raw, reply.headers.get("retry-after", ""))
        yield self._opened(raw, reply.status)

    def _opened(self, raw: bytes, status: int) -> bytes:
        """Return the content of a reply; raise if it is an error."""
        if self._offer.binding != "JSONRPC":
            return raw
        try:
            reply = msgspec.json.decode(raw, type=_RpcReply)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return raw  # whoever reads it says what is wrong
        if isinstance(reply.error, msgspec.Raw) and bytes(reply.error) != b"null":
            self._fail(status, raw, "")
        return bytes(reply.result) if isinstance(reply.result, msgspec.Raw) else raw

    def _fail(self, status: int, raw: bytes, wait: str) -> Never:
        try:
            error = bytes(msgspec.json.decode(raw, type=_RestError).error)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as broken:
            raise RemitError(self._callee.garbage(f"status {status} with an invalid body: {broken}")) from broken
        why = self._callee.tongue.fault(status, error, self._callee.name)
        if why.retry_after_ms is None and wait.isascii() and wait.isdecimal() and len(wait) <= 6:
            why = replace(why, retry_after_ms=int(wait) * 1_000)
        refuse(why, status)


async def events(reply: "ClientResponse", most: int) -> AsyncGenerator[bytes, None]:
    """Yield the data of a stream's events, each within a size limit."""
    rest, data, size = bytearray(), list[bytes](), 0
    async for part in reply.content.iter_any():
        # Only the new bytes are searched: a peer that sends byte by byte must not cost more than others.
        start, begin = len(rest), 0
        rest += part
        while (end := rest.find(b"\n", max(start, begin))) >= 0:
            line = bytes(rest[begin:end]).removesuffix(b"\r")
            begin = end + 1
            if line.startswith(b"data:"):
                data.append(line[5:].removeprefix(b" "))
                size += len(line)
            elif not line and data:
                yield b"\n".join(data)
                data, size = [], 0
        del rest[:begin]
        if len(rest) + size > most:
            raise RemitError(fault(Code.TOO_LARGE, f"an event is larger than {most} bytes", suggestion=ASK_FOR_LESS))
    # Some end their last event with no line break.
    if rest.startswith(b"data:"):
        data.append(bytes(rest[5:]).removeprefix(b" "))
    if data:
        yield b"\n".join(data)
