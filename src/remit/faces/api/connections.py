"""Connections to whoever comes: what each may hold of a server before it is known, and for how long."""

import asyncio
import re
from collections.abc import Callable, Coroutine
from typing import Any, cast

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from remit.faces.api.bodies import Failure, Receive, Scope, Send, send_fault
from remit.protocol.codec import encode
from remit.protocol.errors import Code, Fault, fault

# Who has not said what it wants after so long makes room for others.
HEADERS_S = 10.0
# Who has read nothing of an answer for so long will not read the rest either, which is kept for it meanwhile.
STALLED_S = 60.0
# Credentials have at most 16 kB, and traces 8; the rest is small.
MOST_HEADERS = 64 * 1024
# A process has 1,024 files unless its operator says otherwise; some are the store's.
MOST_CONNECTIONS = 900
# So many more are told that there is no room for them, and the rest is hung up on.
TOLD = 50


class Connection(HttpToolsProtocol):
    """One connection, as uvicorn reads HTTP, to a peer that has to come to the point."""

    _late: asyncio.TimerHandle | None = None
    _stalled: asyncio.TimerHandle | None = None
    _idle_since = 0.0
    _unread = 0
    """How much came that is neither a body nor whole: headers, or what follows a body."""
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
        """Hang up on whoever has wanted nothing for the longest time; if there is nobody, at last on this one."""
        others = [each for each in cast("set[Connection]", self.connections) if each is not self and each.is_idle]
        if others:
            min(others, key=lambda each: each._idle_since).transport.close()
        elif len(self.connections) > self._most + TOLD:
            self.transport.abort()

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
        if self._between and b"pgrade:" in data:
            data = _without_offer(data)
        super().data_received(data)
        if self._unread > MOST_HEADERS and not self.transport.is_closing():
            self._cut_off()

    def _cut_off(self) -> None:
        if self.is_idle:
            body = encode(Failure(fault=_HEADERS_TOO_LARGE))
            head = f"content-type: application/json\r\ncontent-length: {len(body)}\r\nconnection: close\r\n\r\n"
            self.transport.write(STATUS_LINE[431] + head.encode() + body)
            self.transport.close()
        else:
            self.transport.abort()

    def on_message_begin(self) -> None:
        self._between, self._in_headers = False, True
        if self._late is None:
            self._late = self.loop.call_later(HEADERS_S, self.transport.close)
        super().on_message_begin()

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._in_headers:  # what follows a body looks like a header, and is none
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._in_time()
        self._in_headers = False
        self._unread = 0
        if len(self.url) + sum(len(name) + len(value) for name, value in self.headers) > MOST_HEADERS:
            self.app = _refusing(_HEADERS_TOO_LARGE, 431)
        elif len(self.connections) > self._most:
            self.app = _refusing(_FULL)
        else:
            self.app = self._serving
        super().on_headers_complete()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        self._running = cycle
        super()._start_asgi_task(cycle, app)

    def on_body(self, body: bytes) -> None:
        self._unread = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._between = True
        self._unread = 0
        super().on_message_complete()

    def on_response_complete(self) -> None:
        self._idle_since = self.loop.time()
        super().on_response_complete()


def _without_offer(data: bytes) -> bytes:
    """Return a request without the offer to go on in another protocol, behind which the parser reads no body."""
    head, end, rest = data.partition(b"\r\n\r\n")
    return _OFFER.sub(b"\r\nx-offer:", head, 1) + end + rest


_OFFER = re.compile(rb"\r\nupgrade:", re.IGNORECASE)


def _refusing(why: Fault, status: int | None = None) -> Callable[[Scope, Receive, Send], Coroutine[Any, Any, None]]:
    async def refuse(_: Scope, __: Receive, send: Send) -> None:
        await send_fault(send, why, status)

    return refuse


_FULL = fault(Code.OVERLOADED, "too many connections are open to this server", retry_after_ms=1_000)
_HEADERS_TOO_LARGE = fault(
    Code.TOO_LARGE,
    f"the headers and the address are larger than {MOST_HEADERS} bytes, which is the most that is taken",
)
