"""The process that serves a hub: its sockets, its signals, and an end at which nothing is lost."""

import asyncio
import gc
import socket
from collections.abc import Callable, Generator
from contextlib import contextmanager
from types import FrameType
from typing import Any, Protocol

import uvicorn

from remit.server.app import Api
from remit.server.bodies import Receive, Scope, Send
from remit.server.connections import MOST_CONNECTIONS, Doorstep, HttpConnection
from remit.transports.listening import BACKLOG, listening

# Who wants nothing more for so long makes room for others.
IDLE_S = 75
DRAIN_S = 20.0
# What has ended, or has had its time, may be sent for so long.
CLOSING_S = 5.0


class Served(Protocol):
    """What a server serves, and what it has to be told before it ends."""

    hurried: asyncio.Event
    """Set once it is to end without waiting any longer."""

    async def app(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        ...

    async def drain(self, wait_s: float) -> int:
        """Take nothing more; once what is under way has ended, or has had its time, return how much has not."""
        ...


class Server(uvicorn.Server):
    """Serves an API until it is told to end; then it finishes what it has begun."""

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
    ) -> None:
        self._served = api
        self.drain_s = drain_s
        self._begun = asyncio.Event()
        self._told = asyncio.Event()
        if certificate is not None:
            bound = Doorstep(bound or listening("127.0.0.1", port), connections, lambda: self.server_state.connections)
        self._bound = bound
        self.when_started: Callable[[], None] = lambda: None
        self.when_told: Callable[[], None] = lambda: None
        self.unfinished = 0
        """How many requests had not ended when their time was over."""
        super().__init__(
            uvicorn.Config(
                api.app,
                host="127.0.0.1",
                port=port,
                http=HttpConnection,
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
                backlog=BACKLOG,
                ssl_certfile=certificate,
                ssl_keyfile=key,
            )
        )

    @property
    def api(self) -> Api:
        """The hub's, where that is what is served."""
        assert isinstance(self._served, Api), "only a server of a hub has an API"
        return self._served

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
        self._loop = asyncio.get_running_loop()
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

    async def main_loop(self) -> None:
        """Serve until told to end."""
        # uvicorn would look ten times a second whether it was told.
        self.server_state.default_headers = self.config.encoded_headers
        await self._told.wait()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Take a signal as the word to end; a second one, as the word to do so at once."""
        again = self.should_exit
        super().handle_exit(sig, frame)
        self._loop.call_soon_threadsafe((self._served.hurried if again else self._told).set)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:  # noqa: ARG002 - the shape of uvicorn
        """Take nothing more, let what is under way end, then close."""
        self.when_told()
        self.unfinished = await self._served.drain(self.drain_s)
        for server in self.servers:
            server.close()
        for connection in list(self.server_state.connections):
            connection.shutdown()
        await asyncio.sleep(0)  # those that want nothing are gone then
        try:
            async with asyncio.timeout(CLOSING_S):
                await self._wait_tasks_to_complete()
        except TimeoutError:
            for task in self.server_state.tasks:
                task.cancel()

    async def serve(self, sockets: list[socket.socket] | None = None) -> None:
        """Serve until this process is told to end."""
        freeze_loaded()
        await super().serve(sockets)

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
        self._told.set()
        await self._serving


def freeze_loaded() -> None:
    """Leave all that is loaded so far out of later garbage collections.

    Modules and their classes are some 100,000 objects. To look through them takes 100 ms, in which nobody is answered.
    """
    gc.collect()
    gc.freeze()
