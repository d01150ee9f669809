"""The gateway server: authenticate devices, and forward encrypted messages between them."""

import asyncio
import logging
import secrets
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

from aiohttp import WSMsgType, web

from remit.relay.device.identity import device_id
from remit.relay.gateway.addresses import Addresses, Network, client_of, counted, is_in, networks
from remit.relay.gateway.connection import DeviceConnection
from remit.relay.gateway.exchange import Exchange
from remit.relay.gateway.limits import GatewayLimits
from remit.relay.gateway.metrics import TYPE, GatewayMetrics
from remit.relay.gateway.ports import AdmittedDevice, GatewayStore, RateAllowance, StoreSize
from remit.relay.gateway.rendezvous import Rendezvous
from remit.relay.gateway.sqlite_store import SqliteGatewayStore
from remit.relay.pairing import frames
from remit.relay.wire import (
    MAX_FRAME,
    NONCE_BYTES,
    PATH,
    VERSION,
    Bye,
    Challenge,
    DeviceStatus,
    Hello,
    Malformed,
    encode_text,
    read_from_device,
    read_put,
    signed_text,
)
from remit.runtime.clock import LoopClock
from remit.runtime.ports import Clock
from remit.stores.connection import Durability
from remit.transports.credentials.keys import is_signed, written

FILE = "gateway.db"
SWEEP_S = 5.0
TIDY_S = 3_600.0
TOO_MANY = {
    "address_attempts": "too many connection attempts from this network address",
    "address_failures": "too many failed authentications from this network address",
    "address_connections": "too many open connections from this network address",
    "address_unauthenticated": "too many unauthenticated connections from this network address",
}
_LOCAL = networks(("127.0.0.0/8", "::1"))

_log = logging.getLogger("remit.relay")
_CLOSED = frozenset({WSMsgType.CLOSE, WSMsgType.CLOSING, WSMsgType.CLOSED, WSMsgType.ERROR})


class DeviceRateLimit:
    """The rate limit of one device: two token buckets, one for frames and one for bytes.

    A frame is always accepted; the device may have to wait afterwards.
    """

    __slots__ = ("_at", "_bytes", "_frames", "_limits")

    def __init__(self, limits: GatewayLimits, now: float, left: RateAllowance | None = None) -> None:
        self._limits = limits
        self._at = now
        self._frames, self._bytes = left or (limits.frames_burst, limits.bytes_burst)

    def spend(self, size: int, now: float, frames: int = 1) -> float:
        """Count a frame of *size* bytes; return for how many seconds no other frame should be read."""
        self._fill(now)
        self._frames -= frames
        self._bytes -= size
        if self._frames >= 0 and self._bytes >= 0:
            return 0.0
        return max(0.0, -self._frames / self._limits.frames_per_s, -self._bytes / self._limits.bytes_per_s)

    def left(self, now: float) -> RateAllowance:
        """Return what is left in both buckets."""
        self._fill(now)
        return RateAllowance(self._frames, self._bytes)

    def full(self, now: float) -> bool:
        """Return whether both buckets are full, so that this need not be remembered."""
        self._fill(now)
        return self._frames >= self._limits.frames_burst and self._bytes >= self._limits.bytes_burst

    def _fill(self, now: float) -> None:
        passed, self._at = now - self._at, now
        limits = self._limits
        # Not `min`: this runs for each frame.
        if (frames := self._frames + passed * limits.frames_per_s) > limits.frames_burst:
            frames = limits.frames_burst
        if (size := self._bytes + passed * limits.bytes_per_s) > limits.bytes_burst:
            size = limits.bytes_burst
        self._frames, self._bytes = frames, size


class Gateway:
    """The connected devices, and the queues of all others; `app` serves it.

    *name* is part of what devices sign when they connect: two gateways must not share one, unless they share a store.
    *store* is one that gateways share, or the folder of one file, which is locked for other processes. When the block
    ends, every device is disconnected after all accepted messages are durable. *proxies* are trusted to set
    `X-Forwarded-For`. *watchers* may read the metrics (default: this machine).

    The gateway sees who sends how much to whom and when, and public keys; it cannot read messages.
    """

    def __init__(
        self,
        store: Path | GatewayStore,
        *,
        name: str,
        limits: GatewayLimits | None = None,
        durability: Durability = "power",
        proxies: Sequence[Network] = (),
        watchers: Sequence[Network] | None = None,
        clock: Clock | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        commit_hook: Callable[[], None] | None = None,
    ) -> None:
        self.name = name
        self.limits = limits or GatewayLimits()
        self._clock = clock or LoopClock()
        self.now = self._clock.now
        self._sleep = sleep
        if isinstance(store, Path):
            store = SqliteGatewayStore(store / FILE, durability=durability, commit_hook=commit_hook)
        self._store: GatewayStore = store
        self.proxies = proxies
        self._watchers = _LOCAL if watchers is None else watchers
        self.addresses = Addresses(self.limits)
        self.upgraded: Callable[[int], None] = lambda _: None
        """Called with the file descriptor of each connection that has become a WebSocket."""
        self._open = 0
        self._unauthenticated = 0
        self._is_warned = False
        self._paces: dict[str, DeviceRateLimit] = {}
        self._closing = False
        self.app = web.Application()
        self.app.router.add_get(PATH, self._serve)
        self.app.router.add_get(frames.PATH, self._pair)
        self.app.router.add_get("/healthz", self._health)
        self.app.router.add_get("/metrics", self._metrics)

    async def __aenter__(self) -> "Gateway":
        self._exchange = Exchange(self._store, self.limits, self._clock)
        await self._exchange.open()
        self._closing = False
        self._rendezvous = Rendezvous(
            self._store.mailboxes, self.addresses, name=self.name, limits=self.limits, now=self.now
        )
        works = (self._sweep_now_and_then, self._tidy_now_and_then, self._rendezvous.watch)
        self._tasks = [asyncio.create_task(work()) for work in works]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._closing = True
        for task in self._tasks:
            task.cancel()
        self._rendezvous.close()
        await self._exchange.close()

    # ── a connection ──────────────────────────────────────────────────────────────────────────────────────────────────

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        limits, address, now = self.limits, self._address_of(request), self._clock.now
        if (refusal := self._refusal(address)) is not None:
            return refusal
        socket: web.WebSocketResponse = web.WebSocketResponse(
            timeout=limits.closing_s, autoping=False, autoclose=False, compress=False, max_msg_size=MAX_FRAME
        )
        try:
            await socket.prepare(request)
        except OSError:
            # The client is gone; nobody gets this response.
            return web.Response(status=503)
        if request.transport is not None:
            self.upgraded(request.transport.get_extra_info("socket").fileno())
        self._open += 1
        self.addresses.enter(address, now())
        connection: DeviceConnection | None = None
        try:
            connection = await self._enter(request, socket, address)
            if connection is not None:
                self.addresses.greet(address, now())
                await self._read(socket, connection)
        except OSError as error:
            # The cause is in the gateway's log; a device can only reconnect.
            _log.debug("a connection ended: %s", error)
        finally:
            self._open -= 1
            self.addresses.leave(address, now(), greeted=connection is not None)
            if connection is not None:
                pace = self._paces.get(connection.device)
                self._exchange.leave(connection, None if pace is None else pace.left(now()))
        return socket

    async def _pair(self, request: web.Request) -> web.StreamResponse:
        """Serve a device that pairs; it need not prove who it is."""
        address = self._address_of(request)
        return self._refusal(address) or await self._rendezvous.serve(request, address, upgraded=self.upgraded)

    def _refusal(self, address: str) -> web.Response | None:
        """Count a connection attempt, and return why there is no connection for it."""
        limits = self.limits
        full = self._open >= limits.max_connections or self._unauthenticated >= limits.max_unauthenticated
        if not self._store.is_ready:
            # A proxy that gets this can try another gateway; a device comes back.
            self.metrics.refuse("connection", "store")
            return web.Response(status=503, headers={"Retry-After": "1"}, text="the gateway cannot reach its store\n")
        if self._closing or full:
            self.metrics.refuse("connection", "closing" if self._closing else "full")
            return web.Response(status=503, headers={"Retry-After": "5"}, text="too many connections\n")
        if why := self.addresses.objection(address, self._clock.now()):
            self.metrics.refuse("connection", why)
            return web.Response(status=429, headers={"Retry-After": "30"}, text=f"{TOO_MANY[why]}; try again later\n")
        return None

    def _address_of(self, request: web.Request) -> str:
        peer, forwarded = request.remote or "", request.headers.getall("X-Forwarded-For", ())
        if forwarded and not self._is_warned and not is_in(peer, self.proxies):
            self._is_warned = True
            _log.warning(
                "%s sends X-Forwarded-For but is not a trusted proxy, so all its clients count as one address; "
                "if it is your proxy, use --behind-proxy %s",
                peer,
                peer,
            )
        return counted(client_of(peer, forwarded, self.proxies))

    async def _enter(
        self, request: web.Request, socket: web.WebSocketResponse, address: str
    ) -> DeviceConnection | None:
        """Return the connection of an authenticated device; None if it failed, or only asks for its status."""
        self._unauthenticated += 1
        try:
            found = await self._authenticate(socket)
            if isinstance(found, Bye):
                self.metrics.refuse("greeting", found.code)
                self.addresses.fail(address, self._clock.now())
                await self._answer(socket, found, close=1008)
                return None
            device, looks = found
            if looks:
                await self._answer(socket, await self._exchange.look(device), close=1000)
                return None
            transport = request.transport
            if transport is None or self._closing:
                return None
            may_be_new = self.addresses.take_device(address, self._clock.now())
            connection, entered = await self._exchange.enter(transport, device, may_be_new=may_be_new)
            if isinstance(entered, AdmittedDevice) and entered.allowance is not None:
                self._paces[device] = DeviceRateLimit(self.limits, self._clock.now(), entered.allowance)
            if may_be_new and not (isinstance(entered, AdmittedDevice) and entered.is_new):
                self.addresses.give_back_device(address, self._clock.now())
            return connection
        finally:
            self._unauthenticated -= 1

    async def _answer(self, socket: web.WebSocketResponse, answer: Bye | DeviceStatus, *, close: int) -> None:
        await socket.send_str(encode_text(answer).decode())
        await socket.close(code=close)

    async def _authenticate(self, socket: web.WebSocketResponse) -> tuple[str, bool] | Bye:
        """Return the device id and whether it only asks for its status; or why it is refused."""
        nonce = secrets.token_bytes(NONCE_BYTES)
        try:
            async with asyncio.timeout(self.limits.hello_s):
                await socket.send_str(encode_text(Challenge(gateway=self.name, nonce=nonce)).decode())
                message = await socket.receive()
            hello = read_from_device(message.data) if message.type is WSMsgType.TEXT else None
        except TimeoutError:
            return Bye(code="idle", reason=f"no hello within {self.limits.hello_s:g} s")
        except Malformed as error:
            return Bye(code="malformed", reason=str(error))
        if not isinstance(hello, Hello):
            return Bye(code="malformed", reason="the first frame must be a hello, as text")
        if hello.version != VERSION:
            return Bye(
                code="version", reason=f"unsupported protocol version {hello.version} (the gateway supports {VERSION})"
            )
        public = written(hello.public)
        device = device_id(public)
        text = signed_text(gateway=self.name, nonce=nonce, device=device, looks=hello.looks)
        if not is_signed(public, hello.signature, text):
            return Bye(code="unauthenticated", reason="invalid signature for this key, gateway and connection")
        return device, hello.looks

    async def _read(self, socket: web.WebSocketResponse, connection: DeviceConnection) -> None:
        """Read frames of a device, within its rate and as fast as they can be written, until its connection ends."""
        exchange, limits, now = self._exchange, self.limits, self._clock.now
        pace = self._paces.setdefault(connection.device, DeviceRateLimit(limits, now()))
        while True:
            message = await socket.receive()
            kind = message.type
            if kind in _CLOSED:
                return
            # After a bye its frames are ignored, so that it can read the reason before the connection closes.
            if connection.closing or self._closing:
                continue
            connection.heard = at = now()
            frames, size = 1, 0
            try:
                if kind is WSMsgType.BINARY:
                    size = len(message.data)
                    exchange.put(connection, read_put(message.data))
                elif kind is WSMsgType.TEXT:
                    size = len(message.data)
                    frames = exchange.hear(connection, read_from_device(message.data))
                elif kind is WSMsgType.PING:
                    connection.pong(message.data)
                    connection.flush(at)
            except Malformed as error:
                exchange.cut(connection, Bye(code="malformed", reason=str(error)))
                continue
            if wait := pace.spend(size, at, frames):
                await self._sleep(wait)
            if not exchange.has_room(connection):
                await exchange.room(connection)

    # ── the whole ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def connected(self) -> list[str]:
        """The connected devices."""
        return list(self._exchange.devices)

    def sweep(self) -> None:
        """End connections that are silent or do not read; forget rate limits and addresses that are not needed."""
        self._exchange.sweep()
        self._exchange.presence.look_elsewhere()
        self.addresses.sweep(self._clock.now())
        now, devices = self._clock.now(), self._exchange.devices
        for device in [device for device, pace in self._paces.items() if device not in devices and pace.full(now)]:
            del self._paces[device]

    async def tidy(self) -> None:
        """Delete undelivered messages and forget devices that have been away for too long."""
        try:
            await self._exchange.tidy()
        except OSError as error:
            _log.debug("cleanup failed and is tried again later: %s", error)

    async def _sweep_now_and_then(self) -> None:
        while True:
            await asyncio.sleep(SWEEP_S)
            self.sweep()

    async def _tidy_now_and_then(self) -> None:
        while True:
            await self.tidy()
            await asyncio.sleep(TIDY_S)

    @property
    def held(self) -> StoreSize:
        """How much the store holds."""
        return self._store.size()

    @property
    def metrics(self) -> GatewayMetrics:
        """The metrics since the start."""
        return self._exchange.metrics

    @property
    def is_well(self) -> bool:
        """Whether it accepts messages."""
        return self._store.is_ready and not (self._closing or self._exchange.troubled)

    async def _health(self, _: web.Request) -> web.Response:
        body = {"status": "ok" if self.is_well else "unavailable", "connections": len(self._exchange.devices)}
        return web.Response(
            status=200 if self.is_well else 503,
            body=encode_text(body),
            content_type="application/json",
            headers={"X-Content-Type-Options": "nosniff"},
        )

    async def _metrics(self, request: web.Request) -> web.Response:
        # Clients of an untrusted proxy look as if the proxy itself had connected.
        forwarded, peer = request.headers.getall("X-Forwarded-For", ()), request.remote or ""
        is_behind = forwarded and not is_in(peer, self.proxies)
        if is_behind or not is_in(client_of(peer, forwarded, self.proxies), self._watchers):
            raise web.HTTPNotFound
        page = self.metrics.page(
            self.held,
            max_bytes=self.limits.total_bytes,
            connections=len(self._exchange.devices),
            is_well=self.is_well,
        )
        return web.Response(text=page, headers={"Content-Type": TYPE})
