"""One connection to an MCP server, from initialization to close."""

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from typing import Any, cast

import httpx2
import mcp_types as types
from mcp import Client, MCPError
from mcp.client.session import IncomingMessage
from mcp.client.streamable_http import streamable_http_client
from mcp.client.subscriptions import SubscriptionLost
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import TypeAdapter, ValidationError

from remit import __version__
from remit.agents.mcp.pipes import MAX_LINE, UNREADABLE, Pipes
from remit.agents.mcp.settings import Address, Program, Settings
from remit.protocol.envelope import Json

# Otherwise the SDK's log messages, which may quote the server, go to stderr.
logging.getLogger("mcp").addHandler(logging.NullHandler())

CONNECT_S = 10.0
MAX_PAGES = 20
# A process that has closed its pipes is exiting, or will be stopped.
NOTICE_S = 0.5
MAX_TOOLS = 1_000

_ANSWER: TypeAdapter[types.CallToolResult | types.InputRequiredResult] = TypeAdapter(
    types.CallToolResult | types.InputRequiredResult
)


class McpConnectionLost(Exception):
    """The connection was lost or could not be opened; the text says how."""


class McpTimeout(Exception):
    """The server did not answer in time."""


class McpBadReply(Exception):
    """The server sent an invalid reply; the text says why."""


class McpRefusal(Exception):
    """The server refused the call; the text is the server's own."""


class McpConnection:
    """A shared connection that is closed by the task that opened it, as the SDK requires."""

    def __init__(self, settings: Settings, changed: Callable[[], None]) -> None:
        self._settings = settings
        self._changed = changed
        self._client: Client | None = None
        self._stop = asyncio.Event()
        self._up: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._pipes = Pipes(settings.reach) if isinstance(settings.reach, Program) else None
        self._calls: set[asyncio.Task[Any]] = set()
        self.tools: dict[str, types.Tool] = {}
        """All tools that the server lists, whether or not the team allows them."""
        self.ended: asyncio.Task[None] = asyncio.get_running_loop().create_task(self._run())

    @property
    def is_up(self) -> bool:
        return self._client is not None

    @property
    def last_lines(self) -> tuple[str, ...]:
        """The last lines of the process's stderr, for operators only."""
        return () if self._pipes is None else tuple(self._pipes.last_lines)

    async def open(self) -> None:
        """Return once the server is initialized and has listed its tools, or raise `McpConnectionLost`."""
        await asyncio.shield(self._up)

    async def close(self) -> None:
        """Close the connection, also before it is initialized."""
        self._stop.set()
        if self._client is None:
            self.ended.cancel()
        await asyncio.wait({self.ended})

    async def _run(self) -> None:
        info = types.Implementation(name="remit", version=__version__)
        error: BaseException | None = None
        try:
            async with Client(self._transport(), cache=None, client_info=info, message_handler=self._heard) as client:
                await self._list(client)
                self._client = client
                self._up.set_result(None)
                await self._over(client)
        except Exception as raised:  # noqa: BLE001 - whatever it is, the connection is gone, and `open` says how
            error = raised
        finally:
            self._client = None
            if not self._up.done():
                self._up.set_exception(McpConnectionLost(self._why(error)))
                self._up.exception()  # waiting callers get the error; without any it does not matter

    async def _over(self, client: Client) -> None:
        """Return when the connection should be closed, or the process has exited."""
        loop = asyncio.get_running_loop()
        own = {loop.create_task(self._stop.wait()), loop.create_task(self._listen(client))}
        gone = () if self._pipes is None or self._pipes.exited is None else (self._pipes.exited,)
        try:
            await asyncio.wait({*own, *gone}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in own:
                task.cancel()
            await asyncio.wait(own)

    async def _listen(self, client: Client) -> None:
        """Subscribe to tool changes, for servers that notify only subscribers; never returns."""
        if client.protocol_version in MODERN_PROTOCOL_VERSIONS:
            # A server that does not notify, or no longer does, is polled from time to time.
            with suppress(MCPError, SubscriptionLost, TimeoutError):
                async with client.listen(tools_list_changed=True) as changes:
                    async for _ in changes:
                        self._changed()
        await asyncio.Event().wait()

    def _why(self, error: BaseException | None) -> str:
        if self._pipes is not None and self._pipes.how_it_ended is not None:
            return f"its process ended ({self._pipes.how_it_ended})"
        match _innermost(error):
            case FileNotFoundError(strerror=why) | PermissionError(strerror=why) | NotADirectoryError(strerror=why):
                return f"it cannot be started: {why}"
            case MCPError(code=code, message=message) if code == UNREADABLE:
                return f"what it says cannot be read: {message}"
            case MCPError(code=code):
                return f"it refused the connection ({code})"
            case None:
                return "it hung up"
            case other:
                return type(other).__name__

    def _transport(self) -> AbstractAsyncContextManager[Any]:
        if self._pipes is not None:
            return self._pipes
        assert isinstance(self._settings.reach, Address)
        return http_streams(self._settings.reach, self._settings.time_s)

    # ── the list of tools ─────────────────────────────────────────────────────────────────────────────────────────────

    async def relist(self) -> None:
        """List the server's tools again, or raise `McpConnectionLost`."""
        if self._client is None:
            raise McpConnectionLost("it hung up")
        try:
            await self._list(self._client)
        except (MCPError, ValidationError) as error:
            raise McpConnectionLost(type(error).__name__) from error

    async def _list(self, client: Client) -> None:
        found: dict[str, types.Tool] = {}
        cursor: str | None = None
        for _ in range(MAX_PAGES):
            page = await client.session.list_tools(params=types.PaginatedRequestParams(cursor=cursor))
            for tool in page.tools:
                # The first tool of a name counts: a second one could be anything.
                found.setdefault(tool.name, tool)
            cursor = page.next_cursor
            if cursor is None or len(found) > MAX_TOOLS:
                break
        self.tools = found

    async def _heard(self, message: IncomingMessage) -> None:
        if isinstance(message, types.ToolListChangedNotification):
            self._changed()

    # ── calls ─────────────────────────────────────────────────────────────────────────────────────────────────────────

    async def call(self, tool: str, arguments: dict[str, Json], time_s: float) -> types.CallToolResult:
        """Call a tool and return its result, or raise one of the errors above.

        A cancelled caller does not wait until the server was notified.
        """
        client = self._client
        if client is None:
            raise McpConnectionLost("it hung up")
        params = types.CallToolRequestParams(name=tool, arguments=arguments)
        # Not `call_tool`: that would validate the answer against the server's own schema, whose patterns may be
        # malicious.
        work = asyncio.get_running_loop().create_task(
            client.session.send_request(types.CallToolRequest(params=params), _ANSWER)
        )
        self._calls.add(work)
        work.add_done_callback(self._calls.discard)
        try:
            done, _ = await asyncio.wait({work, self.ended}, timeout=time_s, return_when=asyncio.FIRST_COMPLETED)
        finally:
            work.cancel()
        if not done:
            raise McpTimeout
        if work not in done:
            raise await self._broken()
        try:
            answer = work.result()
        except MCPError as error:
            if error.code == types.CONNECTION_CLOSED:
                raise await self._broken() from error
            if error.code in (UNREADABLE, types.PARSE_ERROR):
                raise McpBadReply(f"it cannot be read ({error.message[:100]})") from error
            raise McpRefusal(error.message) from error
        except ValidationError as error:
            raise McpBadReply("it is not of the form that the protocol asks for") from error
        except (OSError, RuntimeError, ValueError) as error:
            raise McpConnectionLost(type(error).__name__) from error
        if isinstance(answer, types.InputRequiredResult):
            raise McpBadReply("it asks back, and there is nobody who could answer")
        return answer

    async def _broken(self) -> McpConnectionLost:
        """Return how the connection ended; a process exits a moment after its pipes close."""
        if self._pipes is not None and self._pipes.exited is not None:
            await asyncio.wait({self._pipes.exited}, timeout=NOTICE_S)
        return McpConnectionLost(self._why(None))


def _innermost(error: BaseException | None) -> BaseException | None:
    while isinstance(error, BaseExceptionGroup):
        error = cast("BaseExceptionGroup[BaseException]", error).exceptions[0]
    return error


# ── over HTTP ─────────────────────────────────────────────────────────────────────────────────────────────────────────


@asynccontextmanager
async def http_streams(address: Address, time_s: float) -> AsyncGenerator[Any]:
    """Yield the streams to a server at an address, for the SDK's client."""
    headers = {"accept-encoding": "identity"}
    if address.token is not None:
        headers["authorization"] = f"Bearer {address.token}"
    timeout = httpx2.Timeout(CONNECT_S, read=time_s + CONNECT_S)
    async with (
        httpx2.AsyncClient(headers=headers, timeout=timeout, transport=_BoundedTransport()) as client,
        streamable_http_client(address.url, http_client=client, max_sse_event_size=MAX_LINE) as streams,
    ):
        yield streams


class _BoundedTransport(httpx2.AsyncHTTPTransport):
    """An HTTP transport that limits the size of responses."""

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        response = await super().handle_async_request(request)
        if response.headers.get("content-encoding", "identity") != "identity":
            # A few bytes may unpack to gigabytes, and compression was not requested.
            await response.aclose()
            raise httpx2.RemoteProtocolError("the server compressed its answer, though it was not asked to")
        if not response.headers.get("content-type", "").startswith("text/event-stream"):
            stream = response.stream
            assert isinstance(stream, httpx2.AsyncByteStream)
            response.stream = _BoundedBody(stream)
        return response


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
