"""The server process: its sockets, its signals, and a shutdown that loses nothing."""

import asyncio
import gc
import socket
from collections.abc import Callable, Generator
from contextlib import contextmanager
from importlib import import_module
from ssl import SSLContext
from types import FrameType
from typing import TYPE_CHECKING, Any, Protocol

import uvicorn

from remit.runtime.engine import AFTER_ANSWERS_S, ClosingTime
from remit_server.bodies import Receive, Scope, Send
from remit_server.connections import MOST_CONNECTIONS, NO_SNIFFING, HandshakeLimiter, HttpConnection, HttpServerState
from remit_server.transports.addresses import ACCEPTED_AT_ONCE, BACKLOG, listening

if TYPE_CHECKING:  # a device serves another API
    from remit_server.app import Api

# How long an idle connection is kept open.
IDLE_S = 75
DRAIN_S = 20.0
# How long finished answers may take to be sent at shutdown.
CLOSING_S = 5.0


class Served(Protocol):
    """What a server serves, and what it must be told before it stops."""

    hurried: asyncio.Event
    """Set to stop without waiting any longer."""

    async def app(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        ...

    async def open(self) -> None:
        """Listen for other protocols, before the first request is answered."""
        ...

    async def drain(self, wait_s: float) -> int:
        """Accept nothing more, wait for running requests, and return how many have not ended after *wait_s*."""
        ...


class Server(uvicorn.Server):
    """Serves an API until it is told to stop; then it finishes what it started."""

    def __init__(
        self,
        api: Served,
        *,
        bound: socket.socket | None = None,
        port: int = 0,
        drain_s: float = DRAIN_S,
        connections: int = MOST_CONNECTIONS,
        certificate: str | None = None,
        key: str | None = None,
        context: SSLContext | None = None,
        idle_s: int = IDLE_S,
        protocol: type[HttpConnection] = HttpConnection,
    ) -> None:
        """*context* is that of a *bound* socket which limits the handshakes itself."""
        self._served = api
        self.drain_s = drain_s
        self._begun = asyncio.Event()
        self._stop_requested = asyncio.Event()
        if certificate is not None:
            bound = HandshakeLimiter(
                bound or listening("127.0.0.1", port), connections, lambda: self.server_state.connections
            )
        self._bound = bound
        self.closing = ClosingTime()
        """By when this server and its hub have closed, once it is told to stop."""
        self.when_started: Callable[[], None] = lambda: None
        self.when_stopping: Callable[[], None] = lambda: None
        self.unfinished = 0
        """How many requests had not ended when the drain time was over."""

        def made_already(_: uvicorn.Config, __: Callable[[], SSLContext]) -> SSLContext:
            assert context is not None, "it was given"
            return context

        super().__init__(
            uvicorn.Config(
                api.app,
                host="127.0.0.1",
                port=port,
                http=protocol,
                interface="asgi3",
                ws="none",
                lifespan="off",
                log_config=None,
                access_log=False,
                server_header=False,
                date_header=False,
                proxy_headers=False,
                headers=[NO_SNIFFING],  # of every answer, whoever makes it
                timeout_keep_alive=idle_s,
                limit_concurrency=connections,
                backlog=ACCEPTED_AT_ONCE,
                ssl_certfile=certificate,
                ssl_keyfile=key,
                ssl_context_factory=None if context is None else made_already,
            )
        )
        self.server_state = HttpServerState()

    @property
    def api(self) -> "Api":
        """The API of the hub, if this server serves one."""
        from remit_server.app import Api

        assert isinstance(self._served, Api), "only a server of a hub has an API"
        return self._served

    @property
    def address(self) -> str:
        """The address of the server, once it has started."""
        assert self._bound is not None, "it has started"
        host, port = self._bound.getsockname()[:2]
        name = f"[{host}]" if ":" in host else host
        return f"{'https' if self.config.is_ssl else 'http'}://{name}:{port}"

    @contextmanager
    def capture_signals(self) -> Generator[None]:
        """Handle signals; a handled signal is not raised again."""
        self._loop = asyncio.get_running_loop()
        with super().capture_signals():
            try:
                yield
            finally:
                self._captured_signals.clear()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:  # noqa: ARG002 - the shape of uvicorn
        """Start listening."""
        await self._served.open()
        self._bound = bound = self._bound or listening("127.0.0.1", self.config.port)
        await super().startup([bound])
        bound.listen(BACKLOG)
        self._begun.set()
        self.when_started()

    async def main_loop(self) -> None:
        """Serve until told to stop."""
        # uvicorn would poll ten times a second for the stop flag.
        self.server_state.default_headers = self.config.encoded_headers
        await self._stop_requested.wait()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Treat a signal as a request to stop; a second one, as a request to stop at once."""
        again = self.should_exit
        super().handle_exit(sig, frame)
        self._loop.call_soon_threadsafe((self._served.hurried if again else self._stop_requested).set)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:  # noqa: ARG002 - the shape of uvicorn
        """Accept nothing more, let running requests end, then close."""
        self.when_stopping()
        self.closing.begin(self.drain_s)
        self.unfinished = await self._served.drain(self.drain_s)
        for server in self.servers:
            server.close()
        for connection in list(self.server_state.connections):
            connection.shutdown()
        await asyncio.sleep(0)  # idle connections are closed by then
        try:
            async with asyncio.timeout(self.closing.left_s(AFTER_ANSWERS_S, CLOSING_S)):
                await self._wait_tasks_to_complete()
        except TimeoutError:
            for task in self.server_state.tasks:
                task.cancel()

    async def serve(self, sockets: list[socket.socket] | None = None) -> None:
        """Serve until this process is told to stop."""
        freeze_loaded()
        await super().serve(sockets)

    async def __aenter__(self) -> "Server":
        """Serve in this event loop until the block ends: for programs with a loop of their own, and for tests."""
        self._serving: asyncio.Task[Any] = asyncio.create_task(self._serve(None))
        begun = asyncio.create_task(self._begun.wait())
        await asyncio.wait({self._serving, begun}, return_when=asyncio.FIRST_COMPLETED)
        begun.cancel()
        if self._serving.done():
            await self._serving
        return self

    async def __aexit__(self, *_: object) -> None:
        self.should_exit = True
        self._stop_requested.set()
        await self._serving


def fast_loop(*, tls: bool) -> Callable[[], asyncio.AbstractEventLoop] | None:
    """Return what makes the event loop of uvloop; None, for that of asyncio, if it is not installed, or with *tls*.

    With TLS, connections are counted where asyncio accepts them (`HandshakeLimiter`); uvloop accepts them without
    Python.
    """
    if tls:
        return None
    try:
        uvloop = import_module("uvloop")
    except ImportError:
        return None
    return uvloop.new_event_loop


def freeze_loaded() -> None:
    """Exclude everything that is loaded so far from later garbage collections.

    Modules and their classes are some 100,000 objects. Scanning them takes 100 ms, in which no request is answered.
    """
    gc.collect()
    gc.freeze()
