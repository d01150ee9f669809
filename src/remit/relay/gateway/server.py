"""A gateway: devices connect to it, and it carries sealed messages between them."""

import asyncio
import logging
import secrets
from collections.abc import Awaitable, Callable
from pathlib import Path

from aiohttp import WSMsgType, web

from remit.relay.gateway.connection import Connection
from remit.relay.gateway.exchange import Exchange
from remit.relay.gateway.limits import Limits
from remit.relay.gateway.pace import Pace
from remit.relay.gateway.queue import open_queue
from remit.relay.identity import device_id
from remit.relay.wire import (
    MAX_FRAME,
    NONCE_BYTES,
    PATH,
    VERSION,
    Bye,
    Challenge,
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
from remit.stores.faults import TROUBLE, translate
from remit.transports.credentials.keys import is_signed, written

FILE = "gateway.db"
SWEEP_S = 5.0
FORGET_S = 3_600.0

_log = logging.getLogger("remit.relay")
_CLOSED = frozenset({WSMsgType.CLOSE, WSMsgType.CLOSING, WSMsgType.CLOSED, WSMsgType.ERROR})


class Gateway:
    """The devices that are connected, and the queue for those that are not; `app` serves it.

    *name* is what devices know it by and sign: two gateways must not share one. Its *folder* holds one file, which it
    has for itself. Leaving the block tells every device, once all that was taken from it is durable.

    It sees who sends how much to whom and when, and public keys; what is sent it cannot read.
    """

    def __init__(
        self,
        folder: Path,
        *,
        name: str,
        limits: Limits | None = None,
        durability: Durability = "power",
        clock: Clock | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        commit_hook: Callable[[], None] | None = None,
    ) -> None:
        self.name = name
        self.path = folder / FILE
        self.limits = limits or Limits()
        self._durability: Durability = durability
        self._clock = clock or LoopClock()
        self._sleep = sleep
        self._commit_hook = commit_hook
        self._open: set[asyncio.BaseProtocol] = set()
        self._unauthenticated = 0
        self._paces: dict[str, Pace] = {}
        self._closing = False
        self.app = web.Application()
        self.app.router.add_get(PATH, self._serve)
        self.app.router.add_get("/healthz", self._health)

    async def __aenter__(self) -> "Gateway":
        try:
            queue = await asyncio.to_thread(open_queue, self.path, self._durability, self.limits, self._clock.wall_ms)
        except TROUBLE as error:
            raise translate(error, self.path) from error
        self._closing = False
        self._exchange = Exchange(self.path, queue, self.limits, self._clock, self._commit_hook)
        self._sweeping = asyncio.create_task(self._sweep_now_and_then())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._closing = True
        self._sweeping.cancel()
        await self._exchange.close()

    # ── a connection ──────────────────────────────────────────────────────────────────────────────────────────────────

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        limits = self.limits
        full = len(self._open) >= limits.max_connections or self._unauthenticated >= limits.max_unauthenticated
        if self._closing or full:
            return web.Response(status=503, headers={"Retry-After": "5"}, text="no room for another connection\n")
        socket: web.WebSocketResponse = web.WebSocketResponse(
            timeout=limits.closing_s, autoping=False, autoclose=False, compress=False, max_msg_size=MAX_FRAME
        )
        try:
            await socket.prepare(request)
        except OSError:
            # It has gone already; what is returned reaches nobody.
            return web.Response(status=503)
        self._open.add(request.protocol)
        connection: Connection | None = None
        try:
            connection = await self._enter(request, socket)
            if connection is not None:
                await self._read(socket, connection)
        except OSError as error:
            # What it is about stands in the gateway's log; a device can only come back.
            _log.debug("a connection ended: %s", error)
        finally:
            self._open.discard(request.protocol)
            if connection is not None:
                self._exchange.leave(connection)
        return socket

    async def _enter(self, request: web.Request, socket: web.WebSocketResponse) -> Connection | None:
        """Return the connection of a device that has shown who it is; None if it could not."""
        self._unauthenticated += 1
        try:
            found = await self._authenticate(socket)
            if isinstance(found, Bye):
                await socket.send_str(encode_text(found).decode())
                await socket.close(code=1008)
                return None
            transport = request.transport
            if transport is None or self._closing:
                return None
            return await self._exchange.enter(transport, found)
        finally:
            self._unauthenticated -= 1

    async def _authenticate(self, socket: web.WebSocketResponse) -> str | Bye:
        """Return which device this is, or why it is turned away."""
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
            return Bye(code="malformed", reason="the first frame is a hello, as text")
        if hello.version != VERSION:
            return Bye(code="version", reason=f"this gateway speaks version {VERSION}, not {hello.version}")
        public = written(hello.public)
        device = device_id(public)
        text = signed_text(gateway=self.name, nonce=nonce, device=device)
        if not is_signed(public, hello.signature, text):
            return Bye(code="unauthenticated", reason="the signature is not that of this key, gateway and connection")
        return device

    async def _read(self, socket: web.WebSocketResponse, connection: Connection) -> None:
        """Take what a device sends, as fast as it may be and as can be written, until its connection ends."""
        exchange, limits, now = self._exchange, self.limits, self._clock.now
        pace = self._paces.setdefault(connection.device, Pace(limits, now()))
        while True:
            message = await socket.receive()
            kind = message.type
            if kind in _CLOSED:
                return
            # After a bye its frames are only waited out, so that it reads why before the connection is gone.
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

    def is_serving(self, protocol: asyncio.BaseProtocol) -> bool:
        """Whether a connection is that of a device, or has still to show it within its time."""
        return protocol in self._open

    def connected(self) -> list[str]:
        """The devices that are connected now."""
        return list(self._exchange.devices)

    def sweep(self) -> None:
        """Cut those who are silent or take nothing, and forget paces that no longer matter."""
        self._exchange.sweep()
        now, devices = self._clock.now(), self._exchange.devices
        for device in [device for device, pace in self._paces.items() if device not in devices and pace.full(now)]:
            del self._paces[device]

    async def _sweep_now_and_then(self) -> None:
        forget_at = 0.0
        while True:
            if self._clock.now() >= forget_at:
                forget_at = self._clock.now() + FORGET_S
                self._exchange.forget()
            await asyncio.sleep(SWEEP_S)
            self.sweep()

    async def _health(self, _: web.Request) -> web.Response:
        fine = not (self._closing or self._exchange.troubled)
        body = {"status": "ok" if fine else "unavailable", "connections": len(self._exchange.devices)}
        return web.Response(status=200 if fine else 503, body=encode_text(body), content_type="application/json")
