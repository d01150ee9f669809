"""The only way out of a sandbox's network: an HTTP proxy in the hub that connects to allowed hosts."""

import asyncio
import logging
import socket
from collections.abc import Iterable
from contextlib import suppress
from urllib.parse import urlsplit

from remit_cli.processes.sandbox import destination

log = logging.getLogger("remit")

MAX_HEAD = 32 * 1024
# Longer than any successful connection attempt takes.
CONNECT_S = 30.0
_CHUNK = 64 * 1024
# For the process of one agent; each costs two sockets and a task here.
MAX_CONNECTIONS = 64


class OutgoingProxy:
    """Serves one process: `CONNECT host:port`, and plain HTTP requests with a whole address."""

    def __init__(self, listener: socket.socket, network: Iterable[str], agent: str) -> None:
        self._listener = listener
        self._allowed = {found for each in network if (found := destination(each)) is not None}
        self._agent = agent
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None

    async def open(self) -> None:
        """Start listening."""
        self._server = await asyncio.start_server(self._serve, sock=self._listener, limit=MAX_HEAD)

    def close(self) -> None:
        """Stop listening and close all connections."""
        if self._server is None:
            self._listener.close()
        else:
            self._server.close()
        for task in tuple(self._tasks):
            task.cancel()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None, "a connection is served by a task"
        if len(self._tasks) >= MAX_CONNECTIONS:
            writer.transport.abort()
            return
        self._tasks.add(task)
        try:
            await self._answer(reader, writer)
        except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, asyncio.CancelledError):
            pass  # one end hung up or sent an invalid head, or the process is gone
        finally:
            self._tasks.discard(task)
            writer.transport.abort()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        method, address, first = _asked(head)
        wanted = destination(address)
        if wanted is None or wanted not in self._allowed:
            log.warning("%s wanted to reach %.200r, which its `network` does not name", self._agent, address)
            writer.write(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
            await writer.drain()
            return
        try:
            async with asyncio.timeout(CONNECT_S):
                far_reader, far_writer = await asyncio.open_connection(*wanted)
        except (OSError, TimeoutError):
            writer.write(b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
            await writer.drain()
            return
        try:
            if method == b"CONNECT":
                writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
            else:
                far_writer.write(first)
            async with asyncio.TaskGroup() as both:
                both.create_task(_pass_on(reader, far_writer))
                both.create_task(_pass_on(far_reader, writer))
        except ExceptionGroup:
            pass  # one side hung up, which closes the other
        finally:
            far_writer.transport.abort()


def _asked(head: bytes) -> tuple[bytes, str, bytes]:
    """Return method, host with port, and the request head to forward instead of *head*."""
    line, _, rest = head.partition(b"\r\n")
    method, target, version = (*line.split(b" "), b"", b"", b"")[:3]
    if method == b"CONNECT":
        return method, target.decode("latin-1"), b""
    with suppress(ValueError):
        url = urlsplit(target.decode("latin-1"))
        if url.scheme == "http" and url.hostname:
            host = f"[{url.hostname}]" if ":" in url.hostname else url.hostname
            path = url._replace(scheme="", netloc="", fragment="").geturl() or "/"
            # One request for each connection: the next one might be for another host.
            kept = [each for each in rest.split(b"\r\n") if each and not each.lower().startswith(_HOP)]
            lines = [b" ".join((method, path.encode("latin-1"), version)), *kept, b"Connection: close"]
            return method, f"{host}:{url.port or 80}", b"\r\n".join(lines) + b"\r\n\r\n"
    return method, "", b""


_HOP = (b"connection:", b"proxy-connection:", b"proxy-authorization:", b"keep-alive:")


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(_CHUNK):
        writer.write(data)
        await writer.drain()
    with suppress(OSError):
        writer.write_eof()
