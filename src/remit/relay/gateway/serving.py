"""Where a gateway listens, until it is told to end."""

import asyncio
import signal
import socket
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from ssl import SSLContext
from typing import cast

from aiohttp import web

from remit.protocol.errors import Code, RemitError, fault
from remit.relay.gateway.limits import Limits
from remit.relay.gateway.server import Gateway
from remit.stores.connection import Durability

# Who asks for nothing but the health page may keep its connection for so long.
KEEP_ALIVE_S = 15.0
BACKLOG = 1_024


class _TurnedAway(asyncio.Protocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        cast(asyncio.Transport, transport).abort()


class Serving:
    """A gateway with its socket, open while the block lasts; leaving it tells every device to go."""

    def __init__(
        self, gateway: Gateway, *, host: str = "127.0.0.1", port: int = 0, ssl: SSLContext | None = None
    ) -> None:
        self._gateway = gateway
        self._host = host
        self._port = port
        self._ssl = ssl
        self._silent: dict[asyncio.BaseProtocol, float] = {}

    @property
    def url(self) -> str:
        """The address for devices, without a path."""
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"{'wss' if self._ssl else 'ws'}://{host}:{self._port}"

    async def __aenter__(self) -> "Serving":
        bound = _bound(self._host, self._port)
        self._port = bound.getsockname()[1]
        self._runner = web.AppRunner(
            self._gateway.app,
            access_log=None,
            handle_signals=False,
            keepalive_timeout=KEEP_ALIVE_S,
            shutdown_timeout=self._gateway.limits.closing_s,
        )
        try:
            await self._gateway.__aenter__()
        except BaseException:
            bound.close()
            raise
        await self._runner.setup()
        self._listening = await asyncio.get_running_loop().create_server(
            self._protocol, sock=bound, ssl=self._ssl, backlog=BACKLOG
        )
        self._watching = asyncio.create_task(self._watch())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._listening.close()
        self._watching.cancel()
        # First the gateway: its devices are told to go while there is still something that carries it.
        await self._gateway.__aexit__()
        await self._runner.cleanup()

    def _protocol(self) -> asyncio.BaseProtocol:
        server, limits = self._runner.server, self._gateway.limits
        if server is None or len(server.connections) >= limits.max_connections + limits.max_unauthenticated:
            return _TurnedAway()
        return server()

    async def _watch(self) -> None:
        """Cut connections that do not even ask for something: aiohttp waits for a request without end."""
        hello_s = self._gateway.limits.hello_s
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(hello_s / 2)
            now = loop.time()
            connections = self._runner.server.connections if self._runner.server else []
            silent = [one for one in connections if not self._gateway.is_serving(one)]
            self._silent = {one: self._silent.get(one, now) for one in silent}
            for one in silent:
                if now - self._silent[one] >= hello_s and one.transport is not None:
                    one.transport.abort()


async def serve_gateway(
    folder: Path,
    *,
    name: str,
    host: str = "127.0.0.1",
    port: int = 0,
    limits: Limits | None = None,
    durability: Durability = "power",
    ssl: SSLContext | None = None,
    started: Callable[[str], None] = lambda _: None,
    stop: asyncio.Event | None = None,
) -> None:
    """Serve a gateway until *stop* is set, or without one until SIGTERM or SIGINT; *started* hears its address.

    Raises a `RemitError` if it cannot listen there, and a `StoreError` if its file cannot be used.
    """
    told = stop or asyncio.Event()
    loop = asyncio.get_running_loop()
    signals = () if stop else (signal.SIGTERM, signal.SIGINT)
    gateway = Gateway(folder, name=name, limits=limits, durability=durability)
    async with Serving(gateway, host=host, port=port, ssl=ssl) as serving:
        for number in signals:
            with suppress(NotImplementedError):
                loop.add_signal_handler(number, told.set)
        try:
            started(serving.url)
            await told.wait()
        finally:
            for number in signals:
                with suppress(NotImplementedError):
                    loop.remove_signal_handler(number)


def _bound(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        bound = socket.create_server((host, port), family=family, backlog=BACKLOG)
    except (OSError, OverflowError) as error:
        why = f"{host} port {port} cannot be listened at: {getattr(error, 'strerror', None) or error}"
        suggestion = "Choose another with --port, or 0 for any that is free."
        raise RemitError(fault(Code.TEAM_INVALID, why, suggestion=suggestion)) from error
    # Connections inherit it; asyncio sees to it only where it has made the socket.
    bound.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return bound
