"""WebSockets (RFC 6455): HTTP connections that become one, and their frames."""

import asyncio
import base64
import binascii
import struct
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from hashlib import sha1
from typing import NamedTuple, cast

from starlette.responses import PlainTextResponse, Response
from starlette.types import Receive, Scope, Send

from remit_server.connections import HttpConnection

try:
    # aiohttp is there as a client. Its function is written in C and takes a hundredth of the time; it is private, so
    # another version may not have it.
    from aiohttp._websocket.helpers import websocket_mask as unmask
except ImportError:

    def unmask(mask: bytes, data: bytearray) -> None:
        """Exclusive-or *data* with the mask, again and again."""
        stream = (mask * (len(data) // 4 + 1))[: len(data)]
        unmasked = int.from_bytes(data, "little") ^ int.from_bytes(stream, "little")
        data[:] = unmasked.to_bytes(len(data), "little")


CONTINUATION, TEXT, BINARY, CLOSE, PING, PONG = 0x0, 0x1, 0x2, 0x8, 0x9, 0xA
_KINDS = frozenset((CONTINUATION, TEXT, BINARY, CLOSE, PING, PONG))
# Status codes of a close frame (RFC 6455, 7.4.1).
NORMAL, GOING_AWAY, PROTOCOL_ERROR, TOO_BIG = 1000, 1001, 1002, 1009
_LAST, _MASKED, _CONTROL = 0x80, 0x80, 0x08
_MOST_CONTROL = 125
# How many bytes of frames may wait for their reader before the socket is not read any more.
MOST_UNREAD = 64 * 1024
# A frame counts as this many bytes more than its payload, or a million empty ones could wait.
_FRAME_COST = 64
_MEDIUM, _LARGE = struct.Struct("!BBH").pack, struct.Struct("!BBQ").pack
_MEDIUM_SIZE, _LARGE_SIZE = struct.Struct("!H").unpack_from, struct.Struct("!Q").unpack_from
# In the extensions of a request that asks for an upgrade: its connection.
_UPGRADE = "remit.upgrade"
_ACCEPT_KEY = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"


class SocketMessage(NamedTuple):
    """What a client sent: a whole text or binary message, or a ping."""

    kind: int
    data: bytes | bytearray


class WebSocket(asyncio.Protocol):
    """The server's side of a WebSocket: frames are collected by `add` and written together by `flush`.

    Nothing is compressed. A client that violates the protocol, or sends a message of more than *max_message* bytes, is
    disconnected. It has *closing_s* to close the connection after it was told to.
    """

    __slots__ = (
        "_buffer",
        "_closing_s",
        "_ended",
        "_is_alive",
        "_is_paused",
        "_kind",
        "_max_message",
        "_messages",
        "_needed",
        "_out",
        "_partial",
        "_unread",
        "_waiting",
        "_writable",
        "is_closing",
        "is_lost",
        "transport",
    )

    def __init__(self, transport: asyncio.Transport, *, max_message: int, closing_s: float) -> None:
        self.transport = transport
        self._max_message = max_message
        self._closing_s = closing_s
        self._buffer: bytearray | None = None
        """The beginning of a frame."""
        self._needed = 0
        """How long it must be before reading on makes sense."""
        self._kind = CONTINUATION
        """The kind of the fragmented message, of which a part has arrived."""
        self._partial: bytearray | None = None
        self._messages: deque[SocketMessage] | None = None
        self._unread = 0
        self._is_paused = False
        self._waiting: asyncio.Future[None] | None = None
        self._ended: asyncio.Future[None] | None = None
        self._is_alive = True
        self._writable: asyncio.Future[None] | None = None
        self._out: list[bytes | bytearray] = []
        self.is_closing = False
        """Whether a close frame was sent, after which nothing else may be."""
        self.is_lost = False
        """Whether the connection has ended, or the client has said that it ends."""

    # ── sending ───────────────────────────────────────────────────────────────────────────────────────────────────────

    def add(self, kind: int, payload: bytes | bytearray) -> None:
        """Add a frame to the next flush."""
        # Frames of a server are not masked (RFC 6455, 5.1), and these are neither fragmented nor compressed.
        size = len(payload)
        if size < 126:
            self._out.append(bytes((_LAST | kind, size)))
        elif size < 65_536:
            self._out.append(_MEDIUM(_LAST | kind, 126, size))
        else:
            self._out.append(_LARGE(_LAST | kind, 127, size))
        self._out.append(payload)

    def flush(self) -> None:
        """Write the collected frames."""
        if self._out:
            out, self._out = self._out, []
            if not self.transport.is_closing():
                self.transport.writelines(out)

    def say_closing(self, status: int) -> None:
        """Write a close frame after all others; the connection is aborted if the client does not close it in time."""
        if not self.is_closing:
            self.is_closing = True
            self.add(CLOSE, status.to_bytes(2))
            self.flush()
            asyncio.get_running_loop().call_later(self._closing_s, self.transport.abort)

    @property
    def unread_bytes(self) -> int:
        """How much was written that the client has not read yet."""
        return self.transport.get_write_buffer_size()

    async def send(self, kind: int, payload: bytes | bytearray) -> None:
        """Send a message, and return when more can be sent. Raises `OSError` if the connection has ended."""
        if self.is_lost or self.is_closing:
            raise ConnectionResetError("the WebSocket is closed")
        self.add(kind, payload)
        self.flush()
        if self._writable is not None:
            await asyncio.shield(self._writable)

    async def close(self, status: int = NORMAL) -> None:
        """Close the connection, and return when the client has done so, or its time is over."""
        self.say_closing(status)
        if not self.is_lost:
            self._ended = self._ended or asyncio.get_running_loop().create_future()
            await self._ended

    def watch(self, every_s: float) -> None:
        """From now on send a ping so often, and abort a connection on which nothing came since the last one."""
        if self.is_lost:
            return
        if not self._is_alive:
            self.transport.abort()
            return
        self._is_alive = False
        if not self.is_closing:
            self.add(PING, b"")
            self.flush()
        asyncio.get_running_loop().call_later(every_s, self.watch, every_s)

    def pause_writing(self) -> None:
        """Let senders wait."""
        self._writable = asyncio.get_running_loop().create_future()

    def resume_writing(self) -> None:
        """Let senders continue."""
        if self._writable is not None:
            if not self._writable.done():
                self._writable.set_result(None)
            self._writable = None

    # ── receiving ─────────────────────────────────────────────────────────────────────────────────────────────────────

    async def receive(self) -> SocketMessage | None:
        """Return the next message or ping, None when there will be no more."""
        while not self._messages:
            if self.is_lost:
                return None
            self._waiting = asyncio.get_running_loop().create_future()
            await self._waiting
        message = self._messages.popleft()
        if not self._messages:
            self._messages = None  # an empty deque takes 600 bytes, and most devices are silent
        self._unread -= len(message.data) + _FRAME_COST
        if self._is_paused and self._unread <= MOST_UNREAD // 2:
            self._is_paused = False
            self.transport.resume_reading()
        return message

    def data_received(self, data: bytes) -> None:
        """Read frames."""
        if self.is_lost:
            return
        self._is_alive = True
        if self._buffer is None:
            used = self._read_frames(data)
            if used < len(data) and not self.is_lost:
                self._buffer = bytearray(data[used:])
            return
        self._buffer += data
        if len(self._buffer) >= self._needed:
            whole, self._buffer = self._buffer, None
            used = self._read_frames(whole)
            if used < len(whole) and not self.is_lost:
                del whole[:used]
                self._buffer = whole

    def _read_frames(self, data: bytes | bytearray) -> int:
        """Read all whole frames in *data*; return how many bytes they take."""
        begin, end = 0, len(data)
        while end - begin >= 2:
            first, second = data[begin], data[begin + 1]
            kind, size, at = first & 0x0F, second & 0x7F, begin + 2
            if size > _MOST_CONTROL:
                at += 2 if size == 126 else 8
                if end < at:
                    self._needed = at - begin
                    return begin
                (size,) = _MEDIUM_SIZE(data, begin + 2) if size == 126 else _LARGE_SIZE(data, begin + 2)
            if first & 0x70 or not second & _MASKED or kind not in _KINDS:
                return self._fail(PROTOCOL_ERROR)
            if kind & _CONTROL and (size > _MOST_CONTROL or not first & _LAST):
                return self._fail(PROTOCOL_ERROR)
            if size > self._max_message - (0 if self._partial is None else len(self._partial)):
                return self._fail(TOO_BIG)
            stop = at + 4 + size
            if end < stop:
                self._needed = stop - begin
                return begin
            payload = data[at + 4 : stop]
            if not isinstance(payload, bytearray):
                payload = bytearray(payload)
            unmask(bytes(data[at : at + 4]), payload)
            begin = stop
            if not self._take(kind, payload, is_last=bool(first & _LAST)):
                return begin
        self._needed = 2
        return begin

    def _take(self, kind: int, payload: bytearray, *, is_last: bool) -> bool:
        """Take a frame; return whether there can be more."""
        if kind == CLOSE:
            if len(payload) == 1:
                self._fail(PROTOCOL_ERROR)
                return False
            self.say_closing(int.from_bytes(payload[:2]) if payload else NORMAL)
            self._end()
            self.transport.close()
            return False
        if kind == PONG:
            return True
        if kind == PING:
            self._put(SocketMessage(PING, payload))
            return True
        # A fragmented message goes on with continuations, and nothing else does.
        if (kind == CONTINUATION) == (self._partial is None):
            self._fail(PROTOCOL_ERROR)
            return False
        if self._partial is not None:
            self._partial += payload
            if is_last:
                self._put(SocketMessage(self._kind, self._partial))
                self._partial = None
        elif is_last:
            self._put(SocketMessage(kind, payload))
        else:
            self._kind, self._partial = kind, payload
        return True

    def _put(self, message: SocketMessage) -> None:
        if self.is_closing:
            return
        if self._messages is None:
            self._messages = deque()
        self._messages.append(message)
        self._unread += len(message.data) + _FRAME_COST
        if self._unread > MOST_UNREAD and not self._is_paused:
            self._is_paused = True
            self.transport.pause_reading()
        self._wake()

    def _fail(self, status: int) -> int:
        """Disconnect a client that violates the protocol, once it can know why; return that nothing more is read."""
        self.say_closing(status)
        self._end()
        return 0

    def _end(self) -> None:
        self.is_lost = True
        self._buffer = self._partial = None
        self._wake()
        if self._ended is not None and not self._ended.done():
            self._ended.set_result(None)

    def _wake(self) -> None:
        if self._waiting is not None:
            waiting, self._waiting = self._waiting, None
            if not waiting.done():
                waiting.set_result(None)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - the shape of asyncio
        """Wake whoever waits."""
        self._end()
        self.resume_writing()


class UpgradableConnection(HttpConnection):
    """An HTTP connection that a route can make a WebSocket, by `UpgradeResponse`."""

    takes_upgrades = True
    _is_upgrading = False
    """Whether what follows is no HTTP."""

    def data_received(self, data: bytes) -> None:
        """Read requests."""
        if self._is_upgrading:
            self.transport.abort()  # a client has to wait for the answer
        else:
            super().data_received(data)

    def on_headers_complete(self) -> None:
        """Begin to answer a request; one that asks for an upgrade is the last."""
        self._is_upgrading = self.parser is not None and self.parser.should_upgrade()
        if self._is_upgrading:
            cast("Scope", self.scope)["extensions"] = {_UPGRADE: self}
        super().on_headers_complete()
        if self._is_upgrading:
            self.cycle.keep_alive = False

    def _unsupported_upgrade_warning(self) -> None:
        """Say nothing: the route decides."""

    def upgrade(self, accepted: bytes, *, max_message: int, closing_s: float) -> WebSocket:
        """Become a WebSocket, and leave nothing of the request in memory."""
        transport = self.transport
        transport.write(
            b"HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\nconnection: Upgrade\r\n"
            b"sec-websocket-accept: " + accepted + b"\r\n\r\n"
        )
        socket = WebSocket(transport, max_message=max_message, closing_s=closing_s)
        transport.set_protocol(socket)
        self.connection_lost(ConnectionResetError())  # for HTTP it has ended
        return socket


class UpgradeResponse(Response):
    """Makes the connection a WebSocket and calls *begin* with it; refuses a request for anything else."""

    def __init__(self, begin: Callable[[WebSocket], None], *, max_message: int, closing_s: float) -> None:
        super().__init__()
        self._begin = begin
        self._max_message = max_message
        self._closing_s = closing_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer the request."""
        headers: dict[bytes, bytes] = dict(scope["headers"])
        connection: UpgradableConnection | None = scope.get("extensions", {}).get(_UPGRADE)
        key = headers.get(b"sec-websocket-key", b"")
        is_asked = headers.get(b"upgrade", b"").lower() == b"websocket"
        if connection is None or not is_asked or headers.get(b"sec-websocket-version") != b"13" or not _is_key(key):
            answer = PlainTextResponse(
                "expected a WebSocket, version 13\n", 426, {"Upgrade": "websocket", "Sec-WebSocket-Version": "13"}
            )
            await answer(scope, receive, send)
            return
        if connection.transport.is_closing():
            return
        accepted = base64.b64encode(sha1(key + _ACCEPT_KEY, usedforsecurity=False).digest())
        self._begin(connection.upgrade(accepted, max_message=self._max_message, closing_s=self._closing_s))


def _is_key(key: bytes) -> bool:
    with suppress(binascii.Error):
        return len(base64.b64decode(key, validate=True)) == 16
    return False
