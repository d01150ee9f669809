"""Connections to whoever comes: what each may hold of a server before it is known, and for how long."""

import asyncio
import math
import re
import socket
from collections.abc import Callable, Coroutine, Iterable, MutableMapping
from contextlib import suppress
from typing import Any, cast

from httptools import HttpParserError
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from remit.protocol.codec import encode
from remit.protocol.errors import Code, Fault, fault
from remit.server.bodies import FailureBody, Receive, Scope, Send, send_fault

# Who has not said what it wants after so long makes room for others.
HEADERS_S = 10.0
# Whoever takes longer to say what it wants keeps a place from others.
BODY_S = 10.0
# Who has read nothing of an answer for so long will not read the rest either, which is kept for it meanwhile.
STALLED_S = 60.0
# Credentials have at most 16 kB, and traces 8; the rest is small.
MOST_HEADERS = 64 * 1024
# So many requests may be sent ahead on one connection while another is answered; each is a kilobyte here.
MOST_AHEAD = 100
# A process has 1,024 files unless its operator says otherwise; some are the store's.
MOST_CONNECTIONS = 900
# So many more are told that there is no room for them when they say what they want; the rest, at once.
TOLD = 50


class HttpConnection(HttpToolsProtocol):
    """One connection, as uvicorn reads HTTP, to a peer that has to come to the point."""

    _late: asyncio.TimerHandle | None = None
    _stalled: asyncio.TimerHandle | None = None
    _idle_since = 0.0
    _unread = 0
    """How much came that is neither a body nor whole: headers, or what follows a body."""
    _packet = 0
    """How much came last; the headers of several requests may be in it."""
    _between = True
    """Whether the next that comes is a request."""
    _in_headers = True
    _running: RequestResponseCycle | None = None

    # ── connections ───────────────────────────────────────────────────────────────────────────────────────────────────

    def connection_made(self, transport: asyncio.Transport) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        super().connection_made(transport)
        self._idle_since = self.loop.time()
        self._late = self.loop.call_later(HEADERS_S, transport.close)
        # Counted here, and not by uvicorn, which would turn everyone away for those who want nothing.
        self._most, self.limit_concurrency = self.limit_concurrency or MOST_CONNECTIONS, None
        self._serving: Any = self.app
        if len(self.connections) > self._most:
            self._make_room()

    def _make_room(self) -> None:
        """Hang up on whoever has wanted nothing for the longest time; if there is nobody, at last tell this one."""
        others = [each for each in cast("set[HttpConnection]", self.connections) if each is not self and each.is_idle]
        if others:
            min(others, key=lambda each: each._idle_since)._leave()
        elif len(self.connections) > self._most + TOLD:
            # What it wants does not matter: it is told before it has said so, and its place is free at once.
            self._say_last(_FULL, 503)

    def _leave(self) -> None:
        """Make room for others; whoever has just come, and is about to say what it wants, is told to come back."""
        if cast("RequestResponseCycle | None", self.cycle) is None:
            self._say_last(_FULL, 503)
        else:
            self.transport.close()

    @property
    def is_idle(self) -> bool:
        """Whether nothing is being done for it."""
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
            self._await_reader()  # slowly, but it does
        else:
            self.transport.abort()

    def _reads(self) -> None:
        if self._stalled is not None:
            self._stalled.cancel()
            self._stalled = None

    def connection_lost(self, exc: Exception | None) -> None:
        self._in_time()
        self._reads()
        super().connection_lost(exc)
        # If the next request came before this one was answered, uvicorn has told only that one.
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
        if self._between and b"pgrade:" in data:
            data = _without_offer(data)
        super().data_received(data)
        if self._unread > MOST_HEADERS and not self.transport.is_closing():
            self._cut_off()
        elif self._late is None and not self._between:
            self._await_rest()

    def _await_rest(self) -> None:
        # Nearly all come whole; only for what does not is there a timer.
        self._late = self.loop.call_later(HEADERS_S if self._in_headers else BODY_S, self._give_up)

    def _cut_off(self) -> None:
        if self.is_idle:
            self._say_last(_HEADERS_TOO_LARGE, 431)
        else:
            self.transport.abort()

    def _give_up(self) -> None:
        """Hang up on whoever is too slow to say what it wants; if it is clear what nothing comes of, say so."""
        self._late, running = None, self._running
        if self._in_headers:
            answered = running is None or running.response_complete
        else:
            answered = self.cycle is running
        if not answered:
            self._await_rest()  # it was sent ahead, and the one before it is still worked on
        elif self._in_headers:
            self.transport.close()
        elif not self.cycle.response_started:
            self._say_last(_BODY_TOO_SLOW, 408)
        else:
            self.transport.abort()

    def send_400_response(self, msg: str) -> None:  # noqa: ARG002 - the shape of uvicorn
        """Say that what came is no HTTP; not to whoever waits for an answer, which would take it for that."""
        cycle = self.cycle
        if self.is_idle or (cycle is self._running and cycle.more_body and not cycle.response_started):
            self._say_last(_NO_HTTP, 400)
        elif self._running is not None:
            self._running.keep_alive = False

    def _say_last(self, why: Fault, status: int) -> None:
        body = encode(FailureBody(fault=why))
        later = "" if why.retry_after_ms is None else f"retry-after: {math.ceil(why.retry_after_ms / 1_000)}\r\n"
        head = f"content-type: application/json\r\ncontent-length: {len(body)}\r\n{later}connection: close\r\n\r\n"
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
            self.url = b"/"  # an address as long as that cannot even be taken apart
        elif len(self.connections) > self._most:
            self.app = _refusing(_FULL)
        else:
            self.app = self._serving
        super().on_headers_complete()
        if len(self.pipeline) > MOST_AHEAD:
            self.transport.abort()
            raise HttpParserError  # else the parser reads on: a few bytes each, they come by the thousand
        self.headers = []  # what follows a body looks like a header, and is none

    def _size_of_headers(self) -> int:
        return len(self.url) + sum(len(name) + len(value) for name, value in self.headers)

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        self._running = cycle
        cycle.transport = cast("asyncio.Transport", _Together(self.transport, self.loop))
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
        self._idle_since = self.loop.time()
        super().on_response_complete()


class Doorstep(socket.socket):
    """Where connections arrive that are to be made private first, and only so many who do not go about it are kept.

    Until they have, they are no `HttpConnection`, which could be counted; yet each holds 300 kB and a file.
    """

    def __init__(self, bound: socket.socket, most: int, connections: Callable[[], Iterable[Any]]) -> None:
        super().__init__(bound.family, bound.type, bound.proto, bound.detach())
        self._most = most + TOLD
        self._connections = connections
        self._arrived: list[socket.socket] = []

    def accept(self) -> tuple[socket.socket, Any]:
        arrived, address = super().accept()
        self._arrived.append(arrived)
        if len(self._arrived) > self._most:
            self._make_room()
        return arrived, address

    def _make_room(self) -> None:
        """Hang up on whoever has taken longest, of those that are still there."""
        self._arrived = [each for each in self._arrived if each.fileno() >= 0]
        private = {each.transport.get_extra_info("socket").fileno() for each in self._connections()}
        late = next((each for each in self._arrived if each.fileno() not in private), None)
        if len(self._arrived) > self._most and late is not None:
            self._arrived.remove(late)
            with suppress(OSError):  # it may have left by itself
                late.shutdown(socket.SHUT_RDWR)


class _Together:
    """Where an answer is written to. Its head goes with what follows: apart, they are two packets."""

    __slots__ = ("_head", "_loop", "_to", "_written")

    def __init__(self, to: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._to = to
        self._loop = loop
        self._head = b""
        self._written = False

    def write(self, data: bytes) -> None:
        if not self._written:
            self._written, self._head = True, data
            self._loop.call_soon(self._flush)  # of a stream, nothing may follow for long
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
    """Return a request without the offer to go on in another protocol, behind which the parser reads no body."""
    head, end, rest = data.partition(b"\r\n\r\n")
    return _OFFER.sub(b"\r\nx-offer:", head, 1) + end + rest


_OFFER = re.compile(rb"\r\nupgrade:", re.IGNORECASE)


def _whole(cycle: RequestResponseCycle, app: Any) -> Callable[[Scope, Receive, Send], Coroutine[Any, Any, None]]:
    """Return an application for one who knows no chunks (HTTP/1.0): what has no length ends with the connection."""

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
