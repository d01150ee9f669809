"""The gateway server: authenticate devices, and forward encrypted messages between them."""

import asyncio
import logging
import secrets
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from pathlib import Path

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from remit.ports import Clock
from remit.runtime.clock import LoopClock
from remit.stores.connection import Durability
from remit_relay.device.identity import device_id
from remit_relay.gateway.connection import DeviceConnection
from remit_relay.gateway.exchange import METRICS_TYPE, Exchange, GatewayMetrics
from remit_relay.gateway.limits import Addresses, GatewayLimits, Network, client_of, counted, is_in, networks
from remit_relay.gateway.ports import AdmittedDevice, GatewayStore, RateAllowance, StoreSize
from remit_relay.gateway.rendezvous import Rendezvous
from remit_relay.gateway.sqlite_store import SqliteGatewayStore
from remit_relay.pairing import exchange as pairing
from remit_relay.wire import (
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
from remit_server.transports.credentials.keys import is_signed, written
from remit_server.websockets import BINARY, GOING_AWAY, NORMAL, PING, TEXT, UpgradeResponse, WebSocket

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
_POLICY_VIOLATION = 1008


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
    """The connected devices, and the queues of all others, as an application that a `Server` serves.

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
        self._sockets: dict[asyncio.Task[None], WebSocket] = {}
        self.hurried = asyncio.Event()
        self.app = Starlette(
            routes=[
                Route(PATH, self._connect),
                Route(pairing.PATH, self._pair),
                Route("/healthz", self._health),
                Route("/metrics", self._metrics),
            ]
        )

    async def open(self) -> None:
        """Open the store, or raise `StoreError`."""
        self._exchange = Exchange(self._store, self.limits, self._clock)
        await self._exchange.open()
        self._closing = False
        self._rendezvous = Rendezvous(
            self._store.mailboxes, self.addresses, name=self.name, limits=self.limits, now=self.now
        )
        works = (self._sweep_now_and_then, self._tidy_now_and_then, self._rendezvous.watch)
        self._tasks = [asyncio.create_task(work()) for work in works]

    async def drain(self, wait_s: float) -> int:
        """Write all accepted messages, tell every device to disconnect, and return how many have not after *wait_s*."""
        self._closing = True
        for task in self._tasks:
            task.cancel()
        self._rendezvous.close()
        await self._exchange.close()
        if self._sockets:
            await asyncio.wait(self._sockets, timeout=wait_s)
        left = dict(self._sockets)
        for task, socket in left.items():
            task.cancel()
            socket.transport.abort()
        return len(left)

    # ── a connection ──────────────────────────────────────────────────────────────────────────────────────────────────

    async def _connect(self, request: Request) -> Response:
        address = self._address_of(request)
        return self._refusal(address) or self._upgrade(self._serve, address, MAX_FRAME)

    async def _pair(self, request: Request) -> Response:
        """Let a device pair; it need not prove who it is."""
        address = self._address_of(request)
        return self._refusal(address) or self._upgrade(self._rendezvous.serve, address, pairing.MAX_FRAME)

    def _upgrade(
        self, serve: Callable[[WebSocket, str], Coroutine[None, None, None]], address: str, max_message: int
    ) -> UpgradeResponse:
        def begin(socket: WebSocket) -> None:
            self.upgraded(socket.transport.get_extra_info("socket").fileno())
            task = asyncio.create_task(serve(socket, address))
            self._sockets[task] = socket
            task.add_done_callback(self._sockets.pop)

        return UpgradeResponse(begin, max_message=max_message, closing_s=self.limits.closing_s)

    async def _serve(self, socket: WebSocket, address: str) -> None:
        now = self._clock.now
        self._open += 1
        self.addresses.enter(address, now())
        connection: DeviceConnection | None = None
        try:
            connection = await self._enter(socket, address)
            if connection is not None:
                self.addresses.greet(address, now())
                await self._read_frames(socket, connection)
        except OSError as error:
            # The cause is in the gateway's log; a device can only reconnect.
            _log.debug("a connection ended: %s", error)
        finally:
            self._open -= 1
            self.addresses.leave(address, now(), greeted=connection is not None)
            if connection is not None:
                pace = self._paces.get(connection.device)
                self._exchange.leave(connection, None if pace is None else pace.left(now()))
            socket.say_closing(GOING_AWAY)

    def _refusal(self, address: str) -> Response | None:
        """Count a connection attempt, and return why there is no connection for it."""
        limits = self.limits
        full = self._open >= limits.max_connections or self._unauthenticated >= limits.max_unauthenticated
        if not self._store.is_ready:
            # A proxy that gets this can try another gateway; a device comes back.
            self.metrics.refuse("connection", "store")
            return PlainTextResponse("the gateway cannot reach its store\n", 503, {"Retry-After": "1"})
        if self._closing or full:
            self.metrics.refuse("connection", "closing" if self._closing else "full")
            return PlainTextResponse("too many connections\n", 503, {"Retry-After": "5"})
        if why := self.addresses.objection(address, self._clock.now()):
            self.metrics.refuse("connection", why)
            return PlainTextResponse(f"{TOO_MANY[why]}; try again later\n", 429, {"Retry-After": "30"})
        return None

    def _address_of(self, request: Request) -> str:
        peer, forwarded = _way_of(request)
        if forwarded and not self._is_warned and not is_in(peer, self.proxies):
            self._is_warned = True
            _log.warning(
                "%s sends X-Forwarded-For but is not a trusted proxy, so all its clients count as one address; "
                "if it is your proxy, use --behind-proxy %s",
                peer,
                peer,
            )
        return counted(client_of(peer, forwarded, self.proxies))

    async def _enter(self, socket: WebSocket, address: str) -> DeviceConnection | None:
        """Return the connection of an authenticated device; None if it failed, or only asks for its status."""
        self._unauthenticated += 1
        try:
            identity = await self._authenticate(socket)
            if isinstance(identity, Bye):
                self.metrics.refuse("greeting", identity.code)
                self.addresses.fail(address, self._clock.now())
                await self._answer(socket, identity, _POLICY_VIOLATION)
                return None
            device, looks = identity
            if looks:
                await self._answer(socket, await self._exchange.look(device), NORMAL)
                return None
            if socket.is_lost or self._closing:
                return None
            may_be_new = self.addresses.take_device(address, self._clock.now())
            connection, entered = await self._exchange.enter(socket, device, may_be_new=may_be_new)
            if isinstance(entered, AdmittedDevice) and entered.allowance is not None:
                self._paces[device] = DeviceRateLimit(self.limits, self._clock.now(), entered.allowance)
            if may_be_new and not (isinstance(entered, AdmittedDevice) and entered.is_new):
                self.addresses.give_back_device(address, self._clock.now())
            return connection
        finally:
            self._unauthenticated -= 1

    async def _answer(self, socket: WebSocket, answer: Bye | DeviceStatus, status: int) -> None:
        await socket.send(TEXT, encode_text(answer))
        await socket.close(status)

    async def _authenticate(self, socket: WebSocket) -> tuple[str, bool] | Bye:
        """Return the device id and whether it only asks for its status; or why it is refused."""
        nonce = secrets.token_bytes(NONCE_BYTES)
        try:
            async with asyncio.timeout(self.limits.hello_s):
                await socket.send(TEXT, encode_text(Challenge(gateway=self.name, nonce=nonce)))
                message = await socket.receive()
            hello = read_from_device(message.data) if message is not None and message.kind == TEXT else None
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

    async def _read_frames(self, socket: WebSocket, connection: DeviceConnection) -> None:
        """Read frames of a device, within its rate and as fast as they can be written, until its connection ends."""
        exchange, limits, now = self._exchange, self.limits, self._clock.now
        pace = self._paces.setdefault(connection.device, DeviceRateLimit(limits, now()))
        while (message := await socket.receive()) is not None:
            # After a bye its frames are ignored, so that it can read the reason before the connection closes.
            if connection.closing or self._closing:
                continue
            kind, data = message
            connection.last_frame_s = at = now()
            frames = 1
            try:
                if kind == BINARY:
                    exchange.put(connection, read_put(data))
                elif kind == TEXT:
                    frames = exchange.hear(connection, read_from_device(data))
                else:
                    connection.pong(data)
                    connection.flush(at)
            except Malformed as error:
                exchange.cut(connection, Bye(code="malformed", reason=str(error)))
                continue
            if wait := pace.spend(0 if kind == PING else len(data), at, frames):
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

    async def _health(self, _: Request) -> Response:
        body = {"status": "ok" if self.is_well else "unavailable", "connections": len(self._exchange.devices)}
        return Response(encode_text(body), 200 if self.is_well else 503, media_type="application/json")

    async def _metrics(self, request: Request) -> Response:
        # Clients of an untrusted proxy look as if the proxy itself had connected.
        peer, forwarded = _way_of(request)
        is_behind = forwarded and not is_in(peer, self.proxies)
        if is_behind or not is_in(client_of(peer, forwarded, self.proxies), self._watchers):
            raise HTTPException(404)
        page = self.metrics.page(
            self.held,
            max_bytes=self.limits.total_bytes,
            connections=len(self._exchange.devices),
            is_well=self.is_well,
        )
        return PlainTextResponse(page, headers={"Content-Type": METRICS_TYPE})


def _way_of(request: Request) -> tuple[str, list[str]]:
    """Return the address of the peer, and what it says whom it forwards."""
    return request.client.host if request.client else "", request.headers.getlist("X-Forwarded-For")
