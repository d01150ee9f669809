"""A server that loses connections."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from urllib.parse import urlsplit

import pytest

from remit_server.server import Server


class LossyProxy:
    """Passes on every request with its answer, except that the answers of the first ones never arrive."""

    def __init__(self, server: Server, lost: int) -> None:
        self.requests: list[str] = []
        """The first line of each request."""
        self.address = ""
        self._port = urlsplit(server.address).port
        self._lost = lost

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection with one request."""
        try:
            head = await reader.readuntil(b"\r\n\r\n")
        except asyncio.IncompleteReadError:
            writer.close()
            return
        length = next(
            (int(each[15:]) for each in head.lower().split(b"\r\n") if each.startswith(b"content-length:")), 0
        )
        body = await reader.readexactly(length)
        self.requests.append(head.split(b"\r\n", 1)[0].decode())
        answer, server = await asyncio.open_connection("127.0.0.1", self._port)
        server.write(head.replace(b"\r\n", b"\r\nConnection: close\r\n", 1) + body)
        content = await answer.read()
        if len(self.requests) > self._lost:
            writer.write(content)
        server.close()
        writer.close()


@pytest.fixture
def lossy() -> Callable[[Server, int], AbstractAsyncContextManager[LossyProxy]]:
    @asynccontextmanager
    async def made(server: Server, lost: int) -> AsyncGenerator[LossyProxy]:
        proxy = LossyProxy(server, lost)
        listening = await asyncio.start_server(proxy.serve, "127.0.0.1", 0)
        async with listening:
            proxy.address = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
            yield proxy

    return made
