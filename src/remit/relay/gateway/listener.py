"""Where a gateway listens, until it is told to end."""

import asyncio
import signal
import socket
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from aiohttp import web

from remit.relay.gateway.addresses import Network, counted, is_in
from remit.relay.gateway.certificate import Certificate
from remit.relay.gateway.limits import GatewayLimits
from remit.relay.gateway.server import Gateway
from remit.stores.connection import Durability
from remit.transports.listening import BACKLOG, listening

# Who asks for nothing but the health page may keep its connection for so long: less than `GatewayLimits.hello_s`.
KEEP_ALIVE_S = 5.0
# So soon a certificate that was renewed is used.
LOOK_S = 60.0
# So many are turned away before others of the event loop have their turn.
_AT_ONCE = 100


class _Guest(socket.socket):
    """A connection that tells when it is closed, however far it came: asyncio knows nothing of it before TLS is."""

    __slots__ = ("gone",)
    gone: Callable[[int], None]

    def close(self) -> None:
        if self.fileno() >= 0:
            self.gone(self.fileno())
        super().close()


class Doorway(socket.socket):
    """A listening socket that hands out no more connections than may be undecided at once.

    A connection is undecided until it is closed or `seat`ed, as that of somebody who is about to greet. Before, it may
    be silent, or speak TLS and HTTP as slowly as it likes; meanwhile it is a file and up to 300 kB. *is_unwanted* says
    from which addresses none is taken at all. What a proxy passes on counts for nobody here.
    """

    def __init__(
        self,
        bound: socket.socket,
        limits: GatewayLimits,
        *,
        proxies: Sequence[Network],
        is_unwanted: Callable[[str], bool],
        now: Callable[[], float],
    ) -> None:
        super().__init__(bound.family, bound.type, bound.proto, bound.detach())
        self._limits = limits
        self._proxies = proxies
        self._is_unwanted = is_unwanted
        self._now = now
        self._undecided: dict[int, tuple[_Guest, str, float]] = {}
        """By their file numbers, oldest first; a number is used again only after its connection is closed."""
        self._counts: Counter[str] = Counter()
        self._gone = self.seat  # one for all

    def accept(self) -> tuple[socket.socket, Any]:
        """Return the next connection that may come in."""
        for _ in range(_AT_ONCE):
            arrived, peer = super().accept()
            address = "" if is_in(peer[0], self._proxies) else counted(peer[0])
            if address and (
                self._counts[address] >= self._limits.address_unauthenticated or self._is_unwanted(address)
            ):
                arrived.close()
                continue
            guest = _Guest(arrived.family, arrived.type, arrived.proto, arrived.detach())
            guest.gone = self._gone
            self._undecided[guest.fileno()] = guest, address, self._now()
            self._counts[address] += 1
            if len(self._undecided) > self._limits.max_unauthenticated:
                # Whoever means it needs a moment, and is not the one that has taken longest.
                self._show_out(next(iter(self._undecided)))
            return guest, peer
        raise BlockingIOError

    def seat(self, number: int) -> None:
        """Count a connection no more: it is decided, or closed."""
        if found := self._undecided.pop(number, None):
            _, address, _ = found
            self._counts[address] -= 1
            if not self._counts[address]:
                del self._counts[address]

    def show_out(self, since: float) -> None:
        """Hang up on those who came before a time and are still undecided."""
        for number, (_, _, came) in list(self._undecided.items()):
            if came > since:
                return
            self._show_out(number)

    def _show_out(self, number: int) -> None:
        guest, _, _ = self._undecided[number]
        self.seat(number)
        with suppress(OSError):  # it may have left by itself
            guest.shutdown(socket.SHUT_RDWR)


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
            self.gateway.metrics.refuse("connection", "address_attempts")
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
