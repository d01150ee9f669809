"""A proxy for a browser that keeps every byte of every response, unpacked."""

import asyncio
import re
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager


class ByteProxy:
    """An HTTP proxy with one request for each connection. It asks for nothing compressed, so that all can be read."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        """The method and path of each request."""
        self.got = bytearray()
        """All that was answered."""
        self.address = ""

        self._tasks: set[asyncio.Task[None]] = set()

    def connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve a connection of the browser."""
        task = asyncio.create_task(self._serve(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        """Cut off what is still open: streams of events."""
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        server = None
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            asked = re.match(r"(\w+) http://([^:/]+):(\d+)(\S*) ", head)
            if asked is None:
                return  # the browser itself wants something of its maker, by CONNECT
            method, host, port, path = asked.groups()
            self.asked.append(f"{method} {path}")
            plain = re.sub(r"(?im)^(?:accept-encoding|connection|proxy-connection):.*\r\n", "", head)
            plain = plain.replace(asked[0], f"{method} {path or '/'} ", 1).replace(
                "\r\n", "\r\nConnection: close\r\n", 1
            )
            answer, server = await asyncio.open_connection(host, int(port))
            server.write(plain.encode("latin-1"))
            async with asyncio.TaskGroup() as both:
                sending = both.create_task(_pass_on(reader, server))
                while data := await answer.read(65_536):
                    self.got += data
                    writer.write(data)
                    await writer.drain()
                sending.cancel()
        except* (OSError, asyncio.IncompleteReadError):
            pass  # one of them is gone
        finally:
            for each in (writer, server):
                if each is not None:
                    each.close()


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65_536):
        writer.write(data)
        await writer.drain()
    raise ConnectionResetError  # the browser wants no more


@asynccontextmanager
async def byte_proxy() -> AsyncGenerator[ByteProxy]:
    """Run a proxy while the block lasts."""
    made = ByteProxy()
    server = await asyncio.start_server(made.connected, "127.0.0.1", 0)
    made.address = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield made
    finally:
        server.close()
        await made.close()
