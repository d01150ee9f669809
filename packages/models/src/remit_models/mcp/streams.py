"""The streams to an MCP server: the pipes of its process, or HTTP; bounded either way."""

import asyncio
import os
import re
import shutil
from collections.abc import AsyncGenerator, AsyncIterator, Collection
from contextlib import asynccontextmanager
from subprocess import Popen
from typing import Any

import anyio
import httpx2
import mcp_types as types
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.client.stdio import get_default_environment
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.message import SessionMessage
from pydantic import ValidationError

from remit.agents.piped_process import LineSplitter, OverlongLine, PipedProcess, start
from remit.agents.program import Program, user_program_variables
from remit_models.mcp.settings import Address

# More than any answer should have; the part that agents get is limited once more.
MAX_LINE = 4_000_000
# A server that writes this much without a line end, or this many invalid lines, will not send anything useful.
MAX_SKIPPED = 64 * MAX_LINE
MAX_GARBAGE = 1_000
# A server that does not read for this long has stopped working.
WRITE_S = 10.0

UNREADABLE = -32_099
"""The error code that replaces an answer that is too long or invalid."""

_ID = re.compile(rb'\A\s*\{[^{}\[\]]*?"id"\s*:\s*(\d{1,15})\b')
# The only notifications that matter here.
_NOTIFICATIONS = frozenset(
    {"notifications/progress", "notifications/tools/list_changed", "notifications/subscriptions/acknowledged"}
)

Incoming = SessionMessage | Exception


class Pipes:
    """The stdio transport to a server process, for the SDK's client."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self._process: PipedProcess | None = None

    async def __aenter__(self) -> tuple[MemoryObjectReceiveStream[Incoming], MemoryObjectSendStream[SessionMessage]]:
        self._process = process = PipedProcess(_started(self._program), "an MCP server")
        try:
            await process.connect()
        except BaseException:
            await process.end()
            raise
        into, read = anyio.create_memory_object_stream[Incoming](0)
        write, out = anyio.create_memory_object_stream[SessionMessage](0)
        loop = asyncio.get_running_loop()
        process.tasks += [
            loop.create_task(self._read_output(process, into)),
            loop.create_task(self._write(out, process, into)),
        ]
        return read, write

    async def __aexit__(self, *_: object) -> None:
        """Stop the server and everything that it started; every wait is bounded."""
        if self._process is not None:
            await self._process.end()

    @property
    def exited(self) -> asyncio.Future[int] | None:
        """Its exit code, once it has exited; None if it was never started."""
        return None if self._process is None else self._process.exited

    @property
    def how_it_ended(self) -> str | None:
        """How the process exited, if it was not killed."""
        return None if self._process is None else self._process.ended_by_itself

    @property
    def last_lines(self) -> list[str]:
        """The last lines of its stderr."""
        return [] if self._process is None else self._process.last_lines()

    # ── output ────────────────────────────────────────────────────────────────────────────────────────────────────────

    async def _read_output(self, process: PipedProcess, into: MemoryObjectSendStream[Incoming]) -> None:
        lines, skipped, garbage = LineSplitter(MAX_LINE), 0, 0
        async with into:
            while chunk := await process.stdout.read(65_536):
                skipped += len(chunk)
                for line in lines.feed(chunk):
                    skipped = 0
                    message = _message(line)
                    if message is None:
                        garbage += 1
                        if garbage > MAX_GARBAGE:
                            return
                        continue
                    garbage = 0
                    if isinstance(message, types.JSONRPCNotification) and message.method not in _NOTIFICATIONS:
                        continue
                    try:
                        await into.send(SessionMessage(message))
                    except (anyio.BrokenResourceError, anyio.ClosedResourceError):
                        return
                if skipped > MAX_SKIPPED:
                    return

    async def _write(
        self,
        out: MemoryObjectReceiveStream[SessionMessage],
        process: PipedProcess,
        into: MemoryObjectSendStream[Incoming],
    ) -> None:
        try:
            async with out:
                async for message in out:
                    line = message.message.model_dump_json(by_alias=True, exclude_unset=True)
                    async with asyncio.timeout(WRITE_S):
                        await process.write(line.encode())
        except (OSError, TimeoutError):
            # Callers that wait for an answer get the error that the connection is lost.
            await into.aclose()


def _started(program: Program) -> Popen[bytes]:
    # The SDK adds what programs need on Windows. The secrets in this process's environment are not passed on.
    environ = {**user_program_variables(os.environ), **get_default_environment(), **program.env}
    command = shutil.which(program.command, path=environ.get("PATH")) or program.command
    return start([command, *program.args], environ=environ, folder=program.folder)


def _message(line: bytes | OverlongLine) -> types.JSONRPCMessage | None:
    """Parse a line; an unreadable one becomes an error for the request id in it, if there is one."""
    if isinstance(line, OverlongLine):
        return _unreadable(line.head, f"it has more than {MAX_LINE} bytes")
    try:
        return types.jsonrpc_message_adapter.validate_json(line, by_name=False)
    except ValidationError:
        return _unreadable(line, "it is not of the form that the protocol asks for")


def _unreadable(line: bytes, why: str) -> types.JSONRPCError | None:
    match = _ID.match(line[: LineSplitter.HEAD])
    if match is None:
        return None
    error = types.ErrorData(code=UNREADABLE, message=why)
    return types.JSONRPCError(jsonrpc="2.0", id=int(match[1]), error=error)


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
