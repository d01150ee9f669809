"""A TCP proxy between a hub and its servers that can be cut, as a network can."""

import asyncio
import socket
import struct
from contextlib import suppress
from typing import Literal

Cut = Literal["refused", "silent"]
"""refused: connections are reset, as if the server were gone; silent: nothing arrives, as if the cable were out."""

_MOST = 262_144


class TcpProxy:
    """Passes connections on to one address, until it is cut."""

    def __init__(self, port: int, host: str = "127.0.0.1") -> None:
        self._upstream = host, port
        self._server: asyncio.Server | None = None
        self._connected: set[asyncio.StreamWriter] = set()
        self._cut: Cut | None = None
        self._flowing = asyncio.Event()
        self._flowing.set()
        self.port = 0

    async def open(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    async def close(self) -> None:
        self._flowing.set()
        if self._server is not None:
            self._server.close()
        self._reset()

    def cut(self, how: Cut) -> None:
        """Let nothing through from now on."""
        self._cut = how
        self._flowing.clear()
        if how == "refused":
            self._reset()

    def heal(self) -> None:
        """Let everything through again; what a silent cut held back arrives late, as over TCP."""
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
                there_reader, there_writer = await asyncio.open_connection(*self._upstream)
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
                if writer.transport.is_closing():
                    return
                writer.write(data)
                await writer.drain()
        # The end of one direction is the end of the connection: neither PostgreSQL nor NATS closes only one.
        writer.transport.abort()


def _reset(writer: asyncio.StreamWriter) -> None:
    """Close a connection so that the other side hears of a reset, and not of an orderly end."""
    with suppress(OSError):
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()
