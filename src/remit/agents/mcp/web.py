"""The transport to a server that runs elsewhere: the SDK's, on a client that takes no more than is good."""

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
from mcp.client.streamable_http import streamable_http_client

from remit.agents.mcp.pipes import MAX_LINE
from remit.agents.mcp.settings import Address

CONNECT_S = 10.0


@asynccontextmanager
async def reached(address: Address, time_s: float) -> AsyncGenerator[Any]:
    """Yield the streams to a server at an address, as the SDK's client takes them."""
    headers = {"accept-encoding": "identity"}
    if address.token is not None:
        headers["authorization"] = f"Bearer {address.token}"
    timeout = httpx2.Timeout(CONNECT_S, read=time_s + CONNECT_S)
    async with (
        httpx2.AsyncClient(headers=headers, timeout=timeout, transport=_Bounded()) as client,
        streamable_http_client(address.url, http_client=client, max_sse_event_size=MAX_LINE) as streams,
    ):
        yield streams


class _Bounded(httpx2.AsyncHTTPTransport):
    """Sends requests, and reads no more of an answer than it should have."""

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        response = await super().handle_async_request(request)
        if response.headers.get("content-encoding", "identity") != "identity":
            # A few bytes may unpack to gigabytes; nobody asked for it.
            await response.aclose()
            raise httpx2.RemoteProtocolError("the server compressed its answer, though it was not asked to")
        if not response.headers.get("content-type", "").startswith("text/event-stream"):
            stream = response.stream
            assert isinstance(stream, httpx2.AsyncByteStream)
            response.stream = _Counted(stream)
        return response


class _Counted(httpx2.AsyncByteStream):
    """A body that ends with an error where it becomes too long; events are counted one by one by the SDK."""

    def __init__(self, stream: httpx2.AsyncByteStream) -> None:
        self._stream = stream

    async def __aiter__(self) -> AsyncIterator[bytes]:
        size = 0
        async for chunk in self._stream:
            size += len(chunk)
            if size > MAX_LINE:
                # Of this kind the SDK makes an error of the one call; any other would end the connection.
                raise httpx2.StreamError(f"it has more than {MAX_LINE} bytes")
            yield chunk

    async def aclose(self) -> None:
        await self._stream.aclose()
