"""Streams to an MCP server over HTTP, with a limit on the size of what it sends."""

from collections.abc import AsyncGenerator, AsyncIterator, Collection
from contextlib import asynccontextmanager
from typing import Any

import httpx2
from mcp.client.streamable_http import streamable_http_client

from remit_models.mcp.pipes import MAX_LINE
from remit_models.mcp.settings import Address

CONNECT_S = 10.0


@asynccontextmanager
async def http_streams(address: Address, time_s: float | None, auth: httpx2.Auth | None) -> AsyncGenerator[Any]:
    """Yield the streams to a server at an address, for the SDK's client; *time_s* is the longest silence."""
    headers = {"accept-encoding": "identity"}
    if address.token is not None:
        headers["authorization"] = f"Bearer {address.token}"
    timeout = httpx2.Timeout(CONNECT_S, read=None if time_s is None else time_s + CONNECT_S)
    async with (
        httpx2.AsyncClient(headers=headers, timeout=timeout, transport=BoundedTransport(), auth=auth) as client,
        streamable_http_client(address.url, http_client=client, max_sse_event_size=MAX_LINE) as streams,
    ):
        yield streams


class BoundedTransport(httpx2.AsyncHTTPTransport):
    """An HTTP transport that limits the size of responses; with *known* addresses, it looks nothing up elsewhere."""

    def __init__(self, known: Collection[str] = ()) -> None:
        super().__init__()
        self._known = {_origin(httpx2.URL(each)) for each in known}

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        if self._known and request.method == "GET" and _origin(request.url) not in self._known:
            # A server may say that its description or its issuer is anywhere, also in a private network.
            return httpx2.Response(404, request=request)
        response = await super().handle_async_request(request)
        if response.headers.get("content-encoding", "identity") != "identity":
            # A few bytes may unpack to gigabytes, and compression was not requested.
            await response.aclose()
            raise httpx2.RemoteProtocolError("the server compressed its answer, though it was not asked to")
        is_stream = response.headers.get("content-type", "").startswith("text/event-stream")
        if not is_stream or "text/event-stream" not in request.headers.get("accept", ""):
            stream = response.stream
            assert isinstance(stream, httpx2.AsyncByteStream)
            response.stream = _BoundedBody(stream)
        return response


def _origin(url: httpx2.URL) -> tuple[str, str, int | None]:
    return url.scheme, url.host, url.port


class _BoundedBody(httpx2.AsyncByteStream):
    """A response body that raises an error beyond `MAX_LINE` bytes; the SDK limits events one by one."""

    def __init__(self, stream: httpx2.AsyncByteStream) -> None:
        self._stream = stream

    async def __aiter__(self) -> AsyncIterator[bytes]:
        size = 0
        async for chunk in self._stream:
            size += len(chunk)
            if size > MAX_LINE:
                # The SDK turns this error into one of the single call; any other would end the connection.
                raise httpx2.StreamError(f"it has more than {MAX_LINE} bytes")
            yield chunk

    async def aclose(self) -> None:
        await self._stream.aclose()
