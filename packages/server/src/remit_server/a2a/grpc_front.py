"""The connections of a gRPC server: accepted within bounds, then passed on to it byte by byte.

gRPC accepts connections in C, as many as there are file descriptors, and reads ahead on each. So it listens on a
private socket, and only connections that this module accepts get there.
"""

import asyncio
import os
import socket
from pathlib import Path
from tempfile import TemporaryDirectory

from remit.policy.shares import SharedTotal, ShareOwner
from remit_server.connections import HEADERS_S
from remit_server.transports.listening import ACCEPTED_AT_ONCE, BACKLOG

# A connection that is not authenticated may send so much: metadata of 64 KiB, a TLS handshake and HTTP/2's own frames.
MOST_BEFORE = 96 * 1024
# Connections that are not authenticated: a real client needs only a moment. With gRPC's own part of each they take up
# to 50 MB.
MOST_UNKNOWN = 256
# Read at once; the bytes are passed on before the next are read.
_CHUNK = 16 * 1024
# Each connection has this many file descriptors: the client's, and the two ends of the private socket.
DESCRIPTORS = 3


class GrpcFront:
    """Accepts the connections of gRPC clients, and says who is at the other end of each."""

    def __init__(self, bound: socket.socket, most: int) -> None:
        self._bound = bound
        self._most = most
        self._folder = TemporaryDirectory(prefix="remit-grpc-")  # only this user can open it
        self._numbers = 0
        self._unknown: dict[int, _ClientSide] = {}
        """The connections that are not authenticated, oldest first."""
        self._known: dict[int, _ClientSide] = {}
        self._total = SharedTotal(most)
        self._server: asyncio.Server | None = None

    @property
    def inner(self) -> str:
        """The private address on which gRPC has to listen."""
        return str(Path(self._folder.name) / "grpc")

    async def start(self) -> None:
        """Accept connections from now on."""
        self._server = await asyncio.get_running_loop().create_server(
            lambda: _ClientSide(self), sock=self._bound, backlog=ACCEPTED_AT_ONCE
        )
        self._bound.listen(BACKLOG)

    def stop(self) -> None:
        """Accept nothing more."""
        if self._server is not None:
            self._server.close()

    def close(self) -> None:
        """Close all connections."""
        for each in [*self._unknown.values(), *self._known.values()]:
            each.abort()
        self._bound.close()
        self._folder.cleanup()

    def address_of(self, peer: str) -> tuple[str, int] | None:
        """Return the address of the client that gRPC calls *peer*."""
        found = self._found(peer)
        return None if found is None else found.address

    def know(self, peer: str, client: str) -> None:
        """Note that a connection belongs to an authenticated client; it is closed if that has too many."""
        found = self._found(peer)
        if found is None or found.number not in self._unknown:
            return
        share = ShareOwner(client)
        if not self._total.has_room(share):
            found.abort()
            return
        del self._unknown[found.number]
        self._known[found.number] = found
        self._total.take(share)
        found.known(share)

    def arrived(self, side: "_ClientSide") -> int:
        """Count a new connection, make room for it, and return its number."""
        self._numbers += 1
        self._unknown[self._numbers] = side
        if len(self._unknown) > MOST_UNKNOWN or len(self._unknown) + len(self._known) > self._most:
            self._unknown.pop(next(iter(self._unknown))).abort()
        return self._numbers

    def gone(self, number: int, share: ShareOwner | None) -> None:
        """Forget a connection."""
        self._unknown.pop(number, None)
        self._known.pop(number, None)
        if share is not None:
            self._total.give_back(share)

    async def connect(self, number: int, outer: "_ClientSide") -> asyncio.Transport:
        """Return a connection to gRPC; it is bound to a name, which gRPC tells the service."""
        loop = asyncio.get_running_loop()
        name = Path(self._folder.name) / str(number)
        inner = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            inner.setblocking(False)
            inner.bind(str(name))
            try:
                await loop.sock_connect(inner, self.inner)
            finally:
                name.unlink()
            transport, _ = await loop.create_unix_connection(lambda: _InnerSide(outer), sock=inner)
        except BaseException:
            inner.close()
            raise
        return transport

    def _found(self, peer: str) -> "_ClientSide | None":
        number = peer.rpartition(os.sep)[2]
        if not number.isdecimal():
            return None
        return self._known.get(int(number)) or self._unknown.get(int(number))


# All connections share it: what it holds is passed on before another connection is read.
_buffer = bytearray(_CHUNK)


class _ClientSide(asyncio.BufferedProtocol):
    """One client's connection."""

    def __init__(self, front: GrpcFront) -> None:
        self._front = front
        self._inner: asyncio.Transport | None = None
        self._connecting: asyncio.Task[None] | None = None
        self._first = b""
        self._received = 0
        self._share: ShareOwner | None = None
        self._pauses: set[str] = set()
        """Why nothing is read."""
        self.address: tuple[str, int] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self.address = transport.get_extra_info("peername")[:2]
        self._late = asyncio.get_running_loop().call_later(HEADERS_S, transport.abort)
        self.number = self._front.arrived(self)

    def get_buffer(self, sizehint: int) -> bytearray:  # noqa: ARG002 - the shape of asyncio
        return _buffer

    def buffer_updated(self, nbytes: int) -> None:
        self._received += nbytes
        data = bytes(memoryview(_buffer)[:nbytes])
        if self._inner is None:
            self._first = data
            self.pause("connecting")
            self._connecting = asyncio.get_running_loop().create_task(self._connect())
            return
        self._inner.write(data)
        if self._share is None and self._received > MOST_BEFORE:
            self.pause("unknown")

    async def _connect(self) -> None:
        try:
            inner = await self._front.connect(self.number, self)
        except OSError:
            self._transport.abort()
            return
        if self._transport.is_closing():
            inner.abort()
            return
        self._inner = inner
        inner.write(self._first)
        self._first = b""
        self.resume("connecting")

    def known(self, share: ShareOwner) -> None:
        """Read on: the client is authenticated."""
        self._share = share
        self._late.cancel()
        self.resume("unknown")

    def pause(self, why: str) -> None:
        """Read nothing more until every reason for that is gone."""
        self._pauses.add(why)
        self._transport.pause_reading()

    def resume(self, why: str) -> None:
        """Read on, unless there is another reason not to."""
        self._pauses.discard(why)
        if not self._pauses:
            self._transport.resume_reading()

    def write(self, data: bytes) -> None:
        self._transport.write(data)

    def close(self) -> None:
        self._transport.close()

    def abort(self) -> None:
        self._transport.abort()

    def pause_writing(self) -> None:
        if self._inner is not None:
            self._inner.pause_reading()

    def resume_writing(self) -> None:
        if self._inner is not None:
            self._inner.resume_reading()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - the shape of asyncio
        self._late.cancel()
        self._front.gone(self.number, self._share)
        if self._inner is not None:
            self._inner.close()


class _InnerSide(asyncio.Protocol):
    """The other end of a connection, at gRPC."""

    def __init__(self, outer: _ClientSide) -> None:
        self._outer = outer

    def data_received(self, data: bytes) -> None:
        self._outer.write(data)

    def pause_writing(self) -> None:
        self._outer.pause("full")

    def resume_writing(self) -> None:
        self._outer.resume("full")

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - the shape of asyncio
        self._outer.close()
