"""Where a gateway listens, until it is told to end."""

import asyncio
import signal
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from aiohttp import web

from remit.relay.gateway.addresses import Network
from remit.relay.gateway.certificate import Certificate
from remit.relay.gateway.doorway import Doorway
from remit.relay.gateway.limits import GatewayLimits
from remit.relay.gateway.server import Gateway
from remit.stores.connection import Durability
from remit.transports.listening import BACKLOG, listening

# Who asks for nothing but the health page may keep its connection for so long: less than `GatewayLimits.hello_s`.
KEEP_ALIVE_S = 5.0
# So soon a certificate that was renewed is used.
LOOK_S = 60.0


class GatewayListener:
    """A gateway with its socket, open while the block lasts; leaving it tells every device to go."""

    def __init__(
        self, gateway: Gateway, *, host: str = "127.0.0.1", port: int = 0, certificate: Certificate | None = None
    ) -> None:
        self.gateway = gateway
        self._host = host
        self._port = port
        self._certificate = certificate

    @property
    def url(self) -> str:
        """The address for devices, without a path."""
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"{'wss' if self._certificate else 'ws'}://{host}:{self._port}"

    async def __aenter__(self) -> "GatewayListener":
        gateway = self.gateway
        bound = Doorway(
            listening(self._host, self._port),
            gateway.limits,
            proxies=gateway.proxies,
            is_unwanted=self._is_unwanted,
            now=time.monotonic,
        )
        self._port = bound.getsockname()[1]
        gateway.seated = bound.seat
        self._runner = web.AppRunner(
            self.gateway.app,
            access_log=None,
            handle_signals=False,
            keepalive_timeout=KEEP_ALIVE_S,
            shutdown_timeout=self.gateway.limits.closing_s,
        )
        try:
            await self.gateway.__aenter__()
        except BaseException:
            bound.close()
            raise
        await self._runner.setup()
        server = self._runner.server
        assert server is not None, "it was set up"
        self._listening = await asyncio.get_running_loop().create_server(
            server, sock=bound, ssl=None if self._certificate is None else self._certificate.context, backlog=BACKLOG
        )
        works = [self._watch(bound)] + ([] if self._certificate is None else [self._renew(self._certificate)])
        self._tasks = [asyncio.create_task(work) for work in works]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._listening.close()
        for task in self._tasks:
            task.cancel()
        # First the gateway: its devices are told to go while there is still something that carries it.
        await self.gateway.__aexit__()
        await self._runner.cleanup()

    def _is_unwanted(self, address: str) -> bool:
        unwanted = self.gateway.addresses.is_hammering(address, self.gateway.now())
        if unwanted:
            self.gateway.figures.refuse("connection", "address_attempts")
        return unwanted

    async def _watch(self, bound: Doorway) -> None:
        """Cut connections that do not come to the point: aiohttp waits for a request without end, asyncio for TLS."""
        hello_s = self.gateway.limits.hello_s
        while True:
            await asyncio.sleep(hello_s / 2)
            bound.show_out(time.monotonic() - hello_s)

    async def _renew(self, certificate: Certificate) -> None:
        while True:
            await asyncio.sleep(LOOK_S)
            await asyncio.to_thread(certificate.look)


async def serve_gateway(
    folder: Path,
    *,
    name: str,
    host: str = "127.0.0.1",
    port: int = 0,
    limits: GatewayLimits | None = None,
    durability: Durability = "power",
    proxies: Sequence[Network] = (),
    watchers: Sequence[Network] | None = None,
    certificate: Certificate | None = None,
    started: Callable[[str], None] = lambda _: None,
    stop: asyncio.Event | None = None,
) -> None:
    """Serve a gateway until *stop* is set, or without one until SIGTERM or SIGINT; *started* hears its address.

    Raises a `RemitError` if it cannot listen there, and a `StoreError` if its file cannot be used.
    """
    told = stop or asyncio.Event()
    loop = asyncio.get_running_loop()
    signals = () if stop else (signal.SIGTERM, signal.SIGINT)
    gateway = Gateway(folder, name=name, limits=limits, durability=durability, proxies=proxies, watchers=watchers)
    async with GatewayListener(gateway, host=host, port=port, certificate=certificate) as serving:
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
