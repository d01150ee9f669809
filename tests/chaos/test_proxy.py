"""The proxy of the chaos runs passes on, resets, holds back, loses and delays."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest

from chaos.proxy import TcpProxy
from waiting import PATIENCE_S, eventually


@asynccontextmanager
async def echoing() -> AsyncGenerator[tuple[TcpProxy, asyncio.StreamReader, asyncio.StreamWriter]]:
    """A proxy before a server that sends back each line, with a connection that has been used."""

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while line := await reader.readline():
            writer.write(line)
        writer.close()

    server = await asyncio.start_server(echo, "127.0.0.1", 0)
    proxy = TcpProxy(server.sockets[0].getsockname)
    await proxy.open()
    reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
    try:
        async with asyncio.timeout(PATIENCE_S):
            writer.write(b"one\n")
            assert await reader.readline() == b"one\n"
            yield proxy, reader, writer
    finally:
        writer.transport.abort()
        await proxy.close()
        server.close()


async def test_a_silent_cut_holds_back_and_a_healed_one_delivers() -> None:
    async with echoing() as (proxy, reader, writer):
        proxy.cut("silent")
        writer.write(b"two\n")
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1):
                await reader.readline()
        proxy.heal()
        assert await reader.readline() == b"two\n"


async def test_a_slow_connection_delivers() -> None:
    async with echoing() as (proxy, reader, writer):
        proxy.cut("slow")
        writer.write(b"two\n")
        assert await reader.readline() == b"two\n"


async def test_a_half_open_connection_loses_everything_and_is_reset_when_it_is_healed() -> None:
    async with echoing() as (proxy, reader, writer):
        proxy.cut("half-open")
        writer.write(b"two\n")
        await eventually(lambda: proxy.lost == 4)
        proxy.heal()
        with pytest.raises(ConnectionError):
            await reader.readexactly(1)


async def test_a_refused_cut_resets_and_accepts_nothing_until_it_is_healed() -> None:
    async with echoing() as (proxy, reader, _):
        proxy.cut("refused")
        with pytest.raises(ConnectionError):
            await reader.readexactly(1)
        later, new = await asyncio.open_connection("127.0.0.1", proxy.port)
        with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
            await later.readexactly(1)
        new.transport.abort()
        proxy.heal()
        later, new = await asyncio.open_connection("127.0.0.1", proxy.port)
        new.write(b"two\n")
        assert await later.readline() == b"two\n"
        new.transport.abort()
