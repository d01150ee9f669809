"""The process that serves a hub: its sockets, its signals, and an end at which nothing is lost."""

import asyncio
import logging
import re
import socket
from collections.abc import Callable, Coroutine, Generator
from contextlib import contextmanager
from typing import Any, cast

import uvicorn
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from remit.faces.api.app import Api
from remit.faces.api.bodies import Failure, Receive, Scope, Send, send_fault
from remit.protocol.codec import encode
from remit.protocol.errors import Code, Fault, RemitError, fault

log = logging.getLogger("remit")

# Who has not said what it wants after so long, or wants nothing more for so long, makes room for others.
HEADERS_S = 10.0
IDLE_S = 75
# Credentials have at most 16 kB, and traces 8; the rest is small.
MOST_HEADERS = 64 * 1024
# A process has 1,024 files unless its operator says otherwise; some are the store's.
MOST_CONNECTIONS = 900
# So many more are told that there is no room for them, and the rest is hung up on.
TOLD = 50
DRAIN_S = 20.0


class _Protocol(HttpToolsProtocol):
    """HTTP as uvicorn reads it, for peers that come to the point."""

    _late: asyncio.TimerHandle | None = None
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
        others = [each for each in cast("set[_Protocol]", self.connections) if each is not self and each.is_idle]
        if others:
            min(others, key=lambda each: each._idle_since).transport.close()
        elif len(self.connections) > self._most + TOLD:
            self.transport.abort()

    @property
    def is_idle(self) -> bool:
        """Whether nothing is being done for it."""
        cycle = cast("RequestResponseCycle | None", self.cycle)
        return (cycle is None or cycle.response_complete) and not self.transport.is_closing()

    def connection_lost(self, exc: Exception | None) -> None:
        self._in_time()
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
        if self._unread > MOST_HEADERS:
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


class Server(uvicorn.Server):
    """Serves an API until it is told to end; then it finishes what it has begun."""

    def __init__(
        self,
        api: Api,
        *,
        bound: socket.socket | None = None,
        port: int = 0,
        drain_s: float = DRAIN_S,
        connections: int = MOST_CONNECTIONS,
        certificate: str | None = None,
        key: str | None = None,
    ) -> None:
        self.api = api
        self._drain_s = drain_s
        self._begun = asyncio.Event()
        self._bound = bound
        self.when_started: Callable[[], None] = lambda: None
        super().__init__(
            uvicorn.Config(
                api.app,
                host="127.0.0.1",
                port=port,
                http=_Protocol,
                interface="asgi3",
                ws="none",
                lifespan="off",
                log_config=None,
                access_log=False,
                server_header=False,
                date_header=False,
                proxy_headers=False,
                timeout_keep_alive=IDLE_S,
                limit_concurrency=connections,
                backlog=1_024,
                ssl_certfile=certificate,
                ssl_keyfile=key,
                timeout_graceful_shutdown=5,
            )
        )

    @property
    def address(self) -> str:
        """Where it can be reached, once it has started."""
        bound = self._bound or self.servers[0].sockets[0]
        host, port = bound.getsockname()[:2]
        name = f"[{host}]" if ":" in host else host
        return f"{'https' if self.config.is_ssl else 'http'}://{name}:{port}"

    @contextmanager
    def capture_signals(self) -> Generator[None]:
        """Heed signals; one that was obeyed is not raised once more."""
        with super().capture_signals():
            try:
                yield
            finally:
                self._captured_signals.clear()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to listen."""
        await super().startup(sockets if self._bound is None else [self._bound])
        self._begun.set()
        self.when_started()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Take nothing more, let what is under way end, then close."""
        await self.api.drain(self._drain_s)
        await super().shutdown(sockets)

    async def __aenter__(self) -> "Server":
        """Serve in this event loop until the block ends: for programs that have a loop of their own, and for tests."""
        self._serving: asyncio.Task[Any] = asyncio.create_task(self._serve(None))
        begun = asyncio.create_task(self._begun.wait())
        await asyncio.wait({self._serving, begun}, return_when=asyncio.FIRST_COMPLETED)
        begun.cancel()
        if self._serving.done():
            await self._serving
        return self

    async def __aexit__(self, *_: object) -> None:
        self.should_exit = True
        await self._serving


def listening(host: str, port: int) -> socket.socket:
    """Return the socket that is listened at, or raise a `RemitError` that says why it cannot be."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        bound = socket.create_server((host, port), family=family, backlog=1_024)
        # Connections inherit it; asyncio sees to it only where it has made the socket. Without it, what follows the
        # headers waits for the client to acknowledge those, which takes 40 ms.
        bound.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return bound
    except (OSError, OverflowError) as error:
        why = f"{host} port {port} cannot be listened at: {getattr(error, 'strerror', None) or error}"
        raise RemitError(
            fault(Code.TEAM_INVALID, why, suggestion="Choose another with --port, or 0 for any that is free.")
        ) from error
