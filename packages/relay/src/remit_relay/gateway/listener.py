"""The listening socket of a gateway, and the function that serves it until it is told to stop."""

import asyncio
import logging
import signal
import socket
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from ssl import PROTOCOL_TLS_SERVER, SSLContext, SSLError, TLSVersion
from typing import Any

from remit.protocol.errors import Code, RemitError, fault
from remit.stores.connection import Durability
from remit_relay.gateway.limits import GatewayLimits, Network, counted, is_in
from remit_relay.gateway.ports import GatewayStore
from remit_relay.gateway.server import Gateway
from remit_server.server import Server
from remit_server.transports.addresses import listening
from remit_server.websockets import UpgradableConnection

_log = logging.getLogger("remit.relay")


class Certificate:
    """A certificate, its key and their TLS context; raises a `RemitError` if they cannot be used."""

    def __init__(self, certificate: Path, key: Path) -> None:
        self._certificate = certificate
        self._key = key
        self._written = self._times()
        self.context = self._load()

    def look(self) -> bool:
        """Reload the files if they changed, for new connections; return whether they were reloaded.

        Files that cannot be used now (half written, or not matching yet) are tried again the next time.
        """
        written = self._times()
        if written == self._written:
            return False
        try:
            self._load()
            self.context.load_cert_chain(self._certificate, self._key, password="")
        except (RemitError, SSLError, OSError, ValueError) as error:
            _log.warning("the new certificate cannot be used, so the previous one stays in use: %s", error)
            return False
        self._written = written
        _log.info("using the new certificate %s", self._certificate)
        return True

    def _load(self) -> SSLContext:
        context = SSLContext(PROTOCOL_TLS_SERVER)
        context.minimum_version = TLSVersion.TLSv1_2
        try:
            context.load_cert_chain(
                self._certificate, self._key, password=""
            )  # without it OpenSSL would prompt at the terminal
        except (SSLError, OSError, ValueError) as error:
            why = f"{self._certificate} with {self._key} cannot be used: {getattr(error, 'reason', None) or error}"
            suggestion = (
                "Pass the PEM file of the certificate with its chain, and the PEM file of its key, without a password."
            )
            raise RemitError(fault(Code.TEAM_INVALID, why, suggestion=suggestion)) from error
        return context

    def _times(self) -> tuple[int, ...]:
        try:
            return tuple(path.stat().st_mtime_ns for path in (self._certificate, self._key))
        except OSError:
            return ()


# An idle HTTP connection (health page) is kept open this long: less than `GatewayLimits.hello_s`.
KEEP_ALIVE_S = 5
# A renewed certificate is noticed within this time.
LOOK_S = 60.0
# Reject at most this many connections before other tasks of the event loop get their turn.
_AT_ONCE = 100


class _PendingSocket(socket.socket):
    """A socket that reports when it is closed: asyncio does not know it until the TLS handshake is done."""

    __slots__ = ("gone",)
    gone: Callable[[int], None]

    def close(self) -> None:
        if self.fileno() >= 0:
            self.gone(self.fileno())
        super().close()


class GatewaySocket(socket.socket):
    """A listening socket that limits the number of pending connections.

    A connection is pending until it is closed or `release`d, which happens when it becomes a WebSocket. Until then a
    client may be silent, or speak TLS and HTTP as slowly as it likes; meanwhile it takes a file descriptor and up to
    300 kB. *is_unwanted* says from which addresses no connection is accepted. Connections through a proxy count for no
    address here.
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
        self._pending: dict[int, tuple[_PendingSocket, str, float]] = {}
        """By file descriptor, oldest first; a descriptor is reused only after its connection is closed."""
        self._counts: Counter[str] = Counter()
        self._gone = self.release  # one for all

    def accept(self) -> tuple[socket.socket, Any]:
        """Return the next connection that is accepted."""
        for _ in range(_AT_ONCE):
            arrived, peer = super().accept()
            address = "" if is_in(peer[0], self._proxies) else counted(peer[0])
            if address and (
                self._counts[address] >= self._limits.address_unauthenticated or self._is_unwanted(address)
            ):
                arrived.close()
                continue
            pending = _PendingSocket(arrived.family, arrived.type, arrived.proto, arrived.detach())
            pending.gone = self._gone
            self._pending[pending.fileno()] = pending, address, self._now()
            self._counts[address] += 1
            if len(self._pending) > self._limits.max_unauthenticated:
                # A real client needs only a moment, so it is not the oldest pending one.
                self._hang_up(next(iter(self._pending)))
            return pending, peer
        raise BlockingIOError

    def release(self, number: int) -> None:
        """Stop counting a connection: it became a WebSocket, or was closed."""
        if pending := self._pending.pop(number, None):
            _, address, _ = pending
            self._counts[address] -= 1
            if not self._counts[address]:
                del self._counts[address]

    def close_stale(self, since: float) -> None:
        """Close the connections that were accepted before a time and are still pending."""
        for number, (_, _, came) in list(self._pending.items()):
            if came > since:
                return
            self._hang_up(number)

    def _hang_up(self, number: int) -> None:
        pending, _, _ = self._pending[number]
        self.release(number)
        with suppress(OSError):  # the client may have closed it
            pending.shutdown(socket.SHUT_RDWR)


class GatewayListener:
    """A gateway with its socket, open while the block lasts; at its end every device is told to disconnect."""

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
        bound = GatewaySocket(
            listening(self._host, self._port),
            gateway.limits,
            proxies=gateway.proxies,
            is_unwanted=self._is_unwanted,
            now=time.monotonic,
        )
        self._port = bound.getsockname()[1]
        gateway.upgraded = bound.release
        limits = gateway.limits
        self._server = Server(
            gateway,
            bound=bound,
            drain_s=limits.closing_s,
            # Web sockets do not count here.
            connections=limits.max_unauthenticated,
            context=None if self._certificate is None else self._certificate.context,
            idle_s=KEEP_ALIVE_S,
            protocol=UpgradableConnection,
        )
        try:
            await self._server.__aenter__()
        except BaseException:
            bound.close()
            raise
        works = [self._watch(bound)] + ([] if self._certificate is None else [self._renew(self._certificate)])
        self._tasks = [asyncio.create_task(work) for work in works]
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks:
            task.cancel()
        await self._server.__aexit__()

    def _is_unwanted(self, address: str) -> bool:
        unwanted = self.gateway.addresses.is_hammering(address, self.gateway.now())
        if unwanted:
            self.gateway.metrics.refuse("connection", "address_attempts")
        return unwanted

    async def _watch(self, bound: GatewaySocket) -> None:
        """Close connections that stay pending: asyncio waits a minute for a TLS handshake."""
        hello_s = self.gateway.limits.hello_s
        while True:
            await asyncio.sleep(hello_s / 2)
            bound.close_stale(time.monotonic() - hello_s)

    async def _renew(self, certificate: Certificate) -> None:
        while True:
            await asyncio.sleep(LOOK_S)
            await asyncio.to_thread(certificate.look)


async def serve_gateway(
    store: Path | GatewayStore,
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
    """Serve a gateway until *stop* is set (default: until SIGTERM or SIGINT); *started* is called with its address.

    *store* is its folder, or a store that gateways share. Raises a `RemitError` if the address is not available, and a
    `StoreError` if the store cannot be used.
    """
    stopping = stop or asyncio.Event()
    loop = asyncio.get_running_loop()
    signals = () if stop else (signal.SIGTERM, signal.SIGINT)
    gateway = Gateway(store, name=name, limits=limits, durability=durability, proxies=proxies, watchers=watchers)
    async with GatewayListener(gateway, host=host, port=port, certificate=certificate) as serving:
        for number in signals:
            with suppress(NotImplementedError):
                loop.add_signal_handler(number, stopping.set)
        try:
            started(serving.url)
            await stopping.wait()
        finally:
            for number in signals:
                with suppress(NotImplementedError):
                    loop.remove_signal_handler(number)
