"""A TCP proxy that can be cut in the ways in which a network fails."""

import asyncio
import random
import socket
import struct
from collections.abc import Callable
from contextlib import suppress
from typing import Literal

Cut = Literal["refused", "silent", "half-open", "slow"]
"""refused: connections are reset, as if the server were gone; silent: nothing arrives until it is healed; half-open:
what is sent is lost, and nobody hears of it until it is healed; slow: everything arrives late."""

_MOST = 262_144
# The longest a slow connection takes for a piece.
_SLOW_S = 0.5


class TcpProxy:
    """Passes connections on to one address, until it is cut."""

    def __init__(self, upstream: Callable[[], tuple[str, int]]) -> None:
        self._upstream = upstream
        self._server: asyncio.Server | None = None
        self._connected: set[asyncio.StreamWriter] = set()
        self._cut: Cut | None = None
        self._flowing = asyncio.Event()
        self._flowing.set()
        self.port = 0
        self.lost = 0
        """The bytes that half-open connections have swallowed."""

    async def open(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    async def close(self) -> None:
        self.heal()
        if self._server is not None:
            self._server.close()
        self._reset()

    def cut(self, how: Cut) -> None:
        """Fail in this way from now on."""
        self._cut = how
        if how in ("refused", "silent"):
            self._flowing.clear()
        if how == "refused":
            self._reset()

    def heal(self) -> None:
        """Let everything through again; what a silent cut held back arrives late, as over TCP."""
        if self._cut == "half-open":
            self._reset()  # what was lost on these connections never arrives
        self._cut = None
        self._flowing.set()

    def _reset(self) -> None:
        for writer in list(self._connected):
            _reset(writer)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._connected.add(writer)
        try:
            if self._cut == "refused":
                return
            await self._flowing.wait()
            try:
                there_reader, there_writer = await asyncio.open_connection(*self._upstream())
            except OSError:
                return
            self._connected.add(there_writer)
            try:
                async with asyncio.TaskGroup() as group:
                    group.create_task(self._pass(reader, there_writer))
                    group.create_task(self._pass(there_reader, writer))
            finally:
                self._connected.discard(there_writer)
                there_writer.transport.abort()
        except asyncio.CancelledError:  # the loop ends
            pass
        finally:
            self._connected.discard(writer)
            writer.transport.abort()

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await reader.read(_MOST):
                await self._flowing.wait()
                if self._cut == "slow":
                    await asyncio.sleep(random.random() * _SLOW_S)
                if writer.transport.is_closing():
                    return
                if self._cut == "half-open":
                    self.lost += len(data)
                    continue
                writer.write(data)
                await writer.drain()
        # The end of one direction is the end of the connection: neither PostgreSQL nor NATS closes only one.
        writer.transport.abort()


def _reset(writer: asyncio.StreamWriter) -> None:
    """Close a connection so that the other side hears of a reset, and not of an orderly end."""
    with suppress(OSError):
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()
