"""HTTP connections: limits on what each may hold, and for how long, before it is authenticated."""

import asyncio
import math
import re
import socket
from collections.abc import Callable, Coroutine, Iterable, MutableMapping
from contextlib import suppress
from typing import Any, cast

from httptools import HttpParserError
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState

from remit.protocol.errors import Code, Fault, fault
from remit_server.bodies import Receive, Scope, Send, failure_body, send_fault

# A client whose headers have not arrived after this time is disconnected: it holds a connection that others need.
HEADERS_S = 10.0
# A client whose body has not arrived after this time is disconnected, for the same reason.
BODY_S = 10.0
# A client that has read nothing of a response for this long will not read the rest, which is buffered meanwhile.
STALLED_S = 60.0
# A browser must not take an answer for anything but its content type: an answer may hold what somebody else wrote.
NO_SNIFFING = ("x-content-type-options", "nosniff")
# Credentials have at most 16 kB, and traces 8; other headers are small.
MOST_HEADERS = 64 * 1024
# Requests that may be pipelined on one connection while another is answered; each takes a kilobyte.
MOST_AHEAD = 100
# A process may open 1,024 files by default; some are the store's.
MOST_CONNECTIONS = 900
# This many more clients are told to come back when they send a request; beyond that, at once.
MOST_DEFERRED = 50


class HttpServerState(ServerState):
    """What the connections of one server share."""

    def __init__(self) -> None:
        super().__init__()
        self.idle: dict[HttpConnection, None] = {}
        """Connections that were idle when they were added, the longest idle first."""


class HttpConnection(HttpToolsProtocol):
    """One HTTP connection, as uvicorn reads it, with limits on slow and idle clients."""

    takes_upgrades = False
    """Whether a request may ask for another protocol."""
    _late: asyncio.TimerHandle | None = None
    _stalled: asyncio.TimerHandle | None = None
    _unread = 0
    """The number of bytes received that are not a body: headers, or what follows a body."""
    _packet = 0
    """The size of the last read; it may hold the headers of several requests."""
    _between = True
    """Whether the next bytes begin a request."""
    _in_headers = True
    _running: RequestResponseCycle | None = None

    # ── connections ───────────────────────────────────────────────────────────────────────────────────────────────────

    def connection_made(self, transport: asyncio.Transport) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        super().connection_made(transport)
        self._late = self.loop.call_later(HEADERS_S, transport.close)
        # Counted here and not by uvicorn, which would refuse everyone because of idle connections.
        self._most, self.limit_concurrency = self.limit_concurrency or MOST_CONNECTIONS, None
        self._serving: Any = self.app
        if len(self.connections) > self._most:
            self._make_room()
        self._note_idle()

    def _note_idle(self) -> None:
        idle = cast("HttpServerState", self.server_state).idle
        idle.pop(self, None)
        idle[self] = None

    def _make_room(self) -> None:
        """Disconnect the client that has been idle the longest; if none is idle, refuse the new one."""
        idle = cast("HttpServerState", self.server_state).idle
        while idle:
            other = next(iter(idle))
            del idle[other]  # if it is not idle, it comes back when it is
            if other.is_idle:
                other._leave()
                return
        if len(self.connections) > self._most + MOST_DEFERRED:
            # The request does not matter: it is refused before it is sent, and its place is free at once.
            self._say_last(_FULL, 503)

    def _leave(self) -> None:
        """Make room for others; a client that may be about to send a request is told to come back."""
        if cast("RequestResponseCycle | None", self.cycle) is None:
            self._say_last(_FULL, 503)
        else:
            self.transport.close()

    @property
    def is_idle(self) -> bool:
        """Whether no request is being answered on this connection."""
        cycle = cast("RequestResponseCycle | None", self.cycle)
        return (cycle is None or cycle.response_complete) and not self.transport.is_closing()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._await_reader()

    def resume_writing(self) -> None:
        self._reads()
        super().resume_writing()

    def _await_reader(self) -> None:
        unread = self.transport.get_write_buffer_size()
        self._stalled = self.loop.call_later(STALLED_S, self._look_at_reader, unread)

    def _look_at_reader(self, unread: int) -> None:
        if self.transport.get_write_buffer_size() < unread:
            self._await_reader()  # it is slow, but it reads
        else:
            self.transport.abort()

    def _reads(self) -> None:
        if self._stalled is not None:
            self._stalled.cancel()
            self._stalled = None

    def connection_lost(self, exc: Exception | None) -> None:
        self._in_time()
        self._reads()
        cast("HttpServerState", self.server_state).idle.pop(self, None)
        super().connection_lost(exc)
        # If the next request arrived before this one was answered, uvicorn notified only that one.
        if self._running is not None and not self._running.response_complete:
            self._running.disconnected = True
            self._running.message_event.set()

    def _in_time(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None

    # ── requests ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def data_received(self, data: bytes) -> None:
        self._unread += len(data)
        self._packet = len(data)
        if self._between and not self.takes_upgrades and b"pgrade:" in data:
            data = _without_offer(data)
        super().data_received(data)
        if self._unread > MOST_HEADERS and not self.transport.is_closing():
            self._cut_off()
        elif self._late is None and not self._between:
            self._await_rest()

    def _await_rest(self) -> None:
        # Nearly all requests arrive whole; only the others need a timer.
        self._late = self.loop.call_later(HEADERS_S if self._in_headers else BODY_S, self._give_up)

    def _cut_off(self) -> None:
        if self.is_idle:
            self._say_last(_HEADERS_TOO_LARGE, 431)
        else:
            self.transport.abort()

    def _give_up(self) -> None:
        """Disconnect a client that is too slow to send its request; send the reason if that is possible."""
        self._late, running = None, self._running
        if self._in_headers:
            answered = running is None or running.response_complete
        else:
            answered = self.cycle is running
        if not answered:
            self._await_rest()  # it was pipelined, and the request before it is still running
        elif self._in_headers:
            self.transport.close()
        elif not self.cycle.response_started:
            self._say_last(_BODY_TOO_SLOW, 408)
        else:
            self.transport.abort()

    def send_400_response(self, msg: str) -> None:  # noqa: ARG002 - the shape of uvicorn
        """Answer bytes that are not HTTP, unless another answer is due: the client would mistake it for that."""
        cycle = self.cycle
        if self.is_idle or (cycle is self._running and cycle.more_body and not cycle.response_started):
            self._say_last(_NO_HTTP, 400)
        elif self._running is not None:
            self._running.keep_alive = False

    def _say_last(self, why: Fault, status: int) -> None:
        body = failure_body(why)
        later = "" if why.retry_after_ms is None else f"retry-after: {math.ceil(why.retry_after_ms / 1_000)}\r\n"
        head = (
            f"content-type: application/json\r\n{': '.join(NO_SNIFFING)}\r\n"
            f"content-length: {len(body)}\r\n{later}connection: close\r\n\r\n"
        )
        self.transport.write(STATUS_LINE[status] + head.encode() + body)
        self.transport.close()

    def on_message_begin(self) -> None:
        self._between, self._in_headers = False, True
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        self._in_time()
        self._in_headers = False
        came, self._unread = self._unread, 0
        if came + self._packet > MOST_HEADERS and self._size_of_headers() > MOST_HEADERS:
            self.app = _refusing(_HEADERS_TOO_LARGE, 431)
            self.url = b"/"  # a URL of this length cannot even be parsed
        elif len(self.connections) > self._most:
            self.app = _refusing(_FULL)
        else:
            self.app = self._serving
        super().on_headers_complete()
        if len(self.pipeline) > MOST_AHEAD:
            self.transport.abort()
            raise HttpParserError  # else the parser reads on, a few bytes at a time, thousands of times
        self.headers = []  # what follows a body looks like a header, but is not one

    def _size_of_headers(self) -> int:
        return len(self.url) + sum(len(name) + len(value) for name, value in self.headers)

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        self._running = cycle
        cycle.transport = cast("asyncio.Transport", _CoalescedTransport(self.transport, self.loop))
        if cycle.scope["http_version"] < "1.1":
            cycle.waiting_for_100_continue = False
            app = _whole(cycle, app)
        super()._start_asgi_task(cycle, app)

    def on_body(self, body: bytes) -> None:
        self._unread = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._in_time()
        self._between = True
        self._unread = 0
        super().on_message_complete()

    def on_response_complete(self) -> None:
        self._note_idle()
        super().on_response_complete()


class HandshakeLimiter(socket.socket):
    """Accepts connections that must complete a TLS handshake first, and limits those that do not.

    Until the handshake is complete there is no `HttpConnection` to count; yet each holds 300 kB and a file.
    """

    def __init__(self, bound: socket.socket, most: int, connections: Callable[[], Iterable[Any]]) -> None:
        super().__init__(bound.family, bound.type, bound.proto, bound.detach())
        self._most = most + MOST_DEFERRED
        self._connections = connections
        self._arrived: list[socket.socket] = []

    def accept(self) -> tuple[socket.socket, Any]:
        arrived, address = super().accept()
        self._arrived.append(arrived)
        if len(self._arrived) > self._most:
            self._make_room()
        return arrived, address

    def _make_room(self) -> None:
        """Disconnect the client that has taken longest, if it is still connected."""
        self._arrived = [each for each in self._arrived if each.fileno() >= 0]
        private = {each.transport.get_extra_info("socket").fileno() for each in self._connections()}
        late = next((each for each in self._arrived if each.fileno() not in private), None)
        if len(self._arrived) > self._most and late is not None:
            self._arrived.remove(late)
            with suppress(OSError):  # it may have left by itself
                late.shutdown(socket.SHUT_RDWR)


class _CoalescedTransport:
    """Where a response is written. Its head is sent with the first part of the body: apart, they are two packets."""

    __slots__ = ("_head", "_loop", "_to", "_written")

    def __init__(self, to: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._to = to
        self._loop = loop
        self._head = b""
        self._written = False

    def write(self, data: bytes) -> None:
        if not self._written:
            self._written, self._head = True, data
            self._loop.call_soon(self._flush)  # in a stream, nothing may follow for a long time
            return
        head, self._head = self._head, b""
        self._to.write(head + data)

    def _flush(self) -> None:
        if self._head:
            self.write(b"")

    def is_closing(self) -> bool:
        return self._to.is_closing()

    def close(self) -> None:
        self._flush()
        self._to.close()


def _without_offer(data: bytes) -> bytes:
    """Return a request without its `Upgrade` header, after which the parser would read no body."""
    head, end, rest = data.partition(b"\r\n\r\n")
    return _OFFER.sub(b"\r\nx-offer:", head, 1) + end + rest


_OFFER = re.compile(rb"\r\nupgrade:", re.IGNORECASE)


def _whole(cycle: RequestResponseCycle, app: Any) -> Callable[[Scope, Receive, Send], Coroutine[Any, Any, None]]:
    """Return an application for HTTP/1.0, which has no chunks: without a length, the connection ends the response."""

    async def serve(scope: Scope, receive: Receive, send: Send) -> None:
        endless = False

        async def sending(message: MutableMapping[str, Any]) -> None:
            nonlocal endless
            if message["type"] == "http.response.start":
                endless = all(name != b"content-length" for name, _ in message["headers"])
                cycle.chunked_encoding = False if endless else None
            elif endless:
                cycle.expected_content_length = len(message.get("body", b""))
            await send(message)

        await app(scope, receive, sending)

    return serve


def _refusing(why: Fault, status: int | None = None) -> Callable[[Scope, Receive, Send], Coroutine[Any, Any, None]]:
    async def refuse(_: Scope, __: Receive, send: Send) -> None:
        await send_fault(send, why, status)

    return refuse


_FULL = fault(Code.OVERLOADED, "too many connections are open to this server", retry_after_ms=1_000)
_HEADERS_TOO_LARGE = fault(
    Code.TOO_LARGE,
    f"the headers and the URL exceed the limit of {MOST_HEADERS} bytes",
)
_NO_HTTP = fault(Code.MALFORMED_ENVELOPE, "invalid HTTP request")
_BODY_TOO_SLOW = fault(
    Code.TIMEOUT,
    f"the body did not arrive within {BODY_S:.0f} s; nothing was started",
    suggestion="Send the request again, with the whole body within that time.",
)
