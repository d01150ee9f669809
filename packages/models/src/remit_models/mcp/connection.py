"""One connection to an MCP server, from initialization to close."""

import asyncio
import logging
from collections.abc import Callable, Generator
from contextlib import AbstractAsyncContextManager, contextmanager, suppress
from typing import Any, cast

import mcp_types as types
from mcp import Client, MCPError
from mcp.client.session import ClientRequestContext, IncomingMessage
from mcp.client.subscriptions import SubscriptionLost
from mcp.shared.dispatcher import ProgressFnT
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import TypeAdapter, ValidationError

from remit import __version__
from remit.agents.program import Program
from remit.protocol.envelope import Json
from remit.protocol.errors import Fault, RemitError
from remit.runtime.lent_models import SAMPLER, TOOL_CALLER
from remit_models.mcp.logins import LoginFile
from remit_models.mcp.oauth import OauthTokens
from remit_models.mcp.reading import MAX_WORDS, visible_text
from remit_models.mcp.server_requests import DECLINED, complete_text, fill_form
from remit_models.mcp.settings import Address, Offered, Settings
from remit_models.mcp.streams import UNREADABLE, Pipes, http_streams


class RunningCall:
    """A call under way, and whose it is."""

    def __init__(self) -> None:
        self.caller, self.sampler = TOOL_CALLER.get(), SAMPLER.get()
        self._loop = asyncio.get_running_loop()
        self._asked_at = 0.0
        self._asking = 0
        self._asked_s = 0.0
        self.unasked = asyncio.Event()
        """Set while no person is asked: the time of a call does not run meanwhile."""
        self.unasked.set()

    @property
    def asked_s(self) -> float:
        """How long persons were asked so far."""
        return self._asked_s + (self._loop.time() - self._asked_at if self._asking else 0.0)

    @contextmanager
    def asking(self) -> Generator[None]:
        """Stop the clock of the call."""
        self._asked_at = self._asked_at if self._asking else self._loop.time()
        self._asking += 1
        self.unasked.clear()
        try:
            yield
        finally:
            self._asking -= 1
            if not self._asking:
                self._asked_s += self._loop.time() - self._asked_at
                self.unasked.set()


# Otherwise the SDK's log messages, which may quote the server, go to stderr.
logging.getLogger("mcp").addHandler(logging.NullHandler())

MAX_PAGES = 20
# A process that has closed its pipes is exiting, or will be stopped.
NOTICE_S = 0.5
MAX_TOOLS = 1_000
# A server that asks back more often is not after an answer.
MAX_ROUNDS = 10

log = logging.getLogger("remit")

_ANSWER: TypeAdapter[types.CallToolResult | types.InputRequiredResult] = TypeAdapter(
    types.CallToolResult | types.InputRequiredResult
)


class McpConnectionLost(Exception):
    """The connection was lost or could not be opened; the text says how."""


class McpUnauthorized(McpConnectionLost):
    """The server wants a token that this hub does not have."""

    def __init__(self, fault: Fault) -> None:
        super().__init__(fault.message)
        self.fault = fault


class McpTimeout(Exception):
    """The server did not answer in time."""


class McpBadReply(Exception):
    """The server sent an invalid reply; the text says why."""


class McpRefusal(Exception):
    """The server refused the call; the text is the server's own."""


class McpConnection:
    """A shared connection that is closed by the task that opened it, as the SDK requires."""

    def __init__(
        self,
        settings: Settings,
        changed: Callable[[], None],
        offered: Offered | None = None,
        logins: LoginFile | None = None,
    ) -> None:
        self._settings = settings
        self._changed = changed
        self._offered = offered or Offered()
        self._client: Client | None = None
        self._stop = asyncio.Event()
        self._up: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._pipes = Pipes(settings.reach) if isinstance(settings.reach, Program) else None
        reach = settings.reach
        self._oauth = OauthTokens(settings.name, reach, logins) if isinstance(reach, Address) and reach.oauth else None
        self._calls: dict[asyncio.Task[Any], RunningCall] = {}
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
        if self._oauth is not None:
            await self._oauth.close()

    async def _run(self) -> None:
        info = types.Implementation(name="remit", version=__version__)
        error: BaseException | None = None
        try:
            async with Client(
                self._transport(),
                cache=None,
                client_info=info,
                message_handler=self._handle_message,
                elicitation_callback=self._elicit if self._offered.elicitation else None,
                sampling_callback=self._sample if self._offered.sampling else None,
            ) as client:
                await self._list(client)
                self._client = client
                self._up.set_result(None)
                await self._over(client)
        except Exception as raised:  # noqa: BLE001 - whatever it is, the connection is gone, and `open` says how
            error = raised
        finally:
            self._client = None
            if not self._up.done():
                self._up.set_exception(self._unauthorized() or McpConnectionLost(self._why(error)))
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

    def _unauthorized(self) -> McpUnauthorized | None:
        """Return why this hub has no token that the server accepts, if that was the last problem."""
        problem = None if self._oauth is None else self._oauth.problem
        return None if problem is None else McpUnauthorized(problem)

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
        # While a person is asked, a server says nothing for hours.
        time_s = None if self._offered.elicitation else self._settings.time_s
        return http_streams(self._settings.reach, time_s, self._oauth)

    # ── the list of tools ─────────────────────────────────────────────────────────────────────────────────────────────

    async def relist(self) -> None:
        """List the server's tools again, or raise `McpConnectionLost`."""
        if self._client is None:
            raise McpConnectionLost("it hung up")
        try:
            await self._list(self._client)
        except (MCPError, ValidationError) as error:
            raise self._unauthorized() or McpConnectionLost(type(error).__name__) from error

    async def _list(self, client: Client) -> None:
        tools: dict[str, types.Tool] = {}
        cursor: str | None = None
        for _ in range(MAX_PAGES):
            page = await client.session.list_tools(params=types.PaginatedRequestParams(cursor=cursor))
            for tool in page.tools:
                # The first tool of a name counts: a second one could be anything.
                tools.setdefault(tool.name, tool)
            cursor = page.next_cursor
            if cursor is None or len(tools) > MAX_TOOLS:
                break
        self.tools = tools

    async def _handle_message(self, message: IncomingMessage) -> None:
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
        running = RunningCall()
        work = asyncio.get_running_loop().create_task(self._answered(client, running, tool, arguments))
        self._calls[work] = running
        work.add_done_callback(self._calls.pop)
        try:
            done = await self._waited(work, running, time_s)
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
            raise self._unauthorized() or McpRefusal(error.message) from error
        except ValidationError as error:
            raise McpBadReply("it is not of the form that the protocol asks for") from error
        except (OSError, RuntimeError, ValueError) as error:
            raise McpConnectionLost(type(error).__name__) from error
        return answer

    async def _waited(self, work: "asyncio.Task[Any]", running: RunningCall, time_s: float) -> "set[asyncio.Task[Any]]":
        """Return what is done first, the call or the connection; nothing if the time is over."""
        loop = asyncio.get_running_loop()
        start = loop.time()
        while True:
            left_s = time_s + running.asked_s - (loop.time() - start)
            if left_s <= 0:
                return set()
            done, _ = await asyncio.wait({work, self.ended}, timeout=left_s, return_when=asyncio.FIRST_COMPLETED)
            if done:
                return done
            if not running.unasked.is_set():
                answered = loop.create_task(running.unasked.wait())
                await asyncio.wait({work, self.ended, answered}, return_when=asyncio.FIRST_COMPLETED)
                answered.cancel()

    async def _answered(
        self, client: Client, running: RunningCall, tool: str, arguments: dict[str, Json]
    ) -> types.CallToolResult:
        """Send a call, with what the server asks for in between."""
        given: dict[str, types.InputResponse] | None = None
        state: str | None = None
        for _ in range(MAX_ROUNDS):
            params = types.CallToolRequestParams(
                name=tool, arguments=arguments, input_responses=given, request_state=state
            )
            # Not `call_tool`: that would validate the answer against the server's own schema, whose patterns may be
            # malicious.
            answer = await client.session.send_request(
                types.CallToolRequest(params=params), _ANSWER, progress_callback=self._progress(running, tool)
            )
            if not isinstance(answer, types.InputRequiredResult):
                return answer
            given, state = await self._inputs(running, answer), answer.request_state
        raise McpBadReply(f"it asked back {MAX_ROUNDS} times")

    def _progress(self, running: RunningCall, tool: str) -> ProgressFnT | None:
        """Return what makes the progress of a server's tool the progress of the agent that uses it."""
        caller = running.caller
        if caller is None:
            return None

        async def report(progress: float, total: float | None, message: str | None) -> None:
            share = f"{progress:g}" if total is None else f"{progress:g} of {total:g}"
            text = visible_text(message or share, MAX_WORDS)
            with suppress(RemitError):  # the agent is stopped, and the call with it
                caller.progress(f"{self._settings.name}.{tool}: {text}", None)

        return report

    # ── what the server asks ──────────────────────────────────────────────────────────────────────────────────────────

    async def _inputs(self, running: RunningCall, asking: types.InputRequiredResult) -> dict[str, types.InputResponse]:
        """Return the answers to what a server asks in the place of a result."""
        given: dict[str, types.InputResponse] = {}
        for name, request in (asking.input_requests or {}).items():
            match request:
                case types.ElicitRequest(params=form) if self._offered.elicitation:
                    given[name] = await self._filled(running, form)
                case types.CreateMessageRequest(params=prompt) if self._offered.sampling:
                    answer = await complete_text(running.sampler, self._settings.name, prompt)
                    if isinstance(answer, types.ErrorData):
                        raise McpBadReply(f"it wanted a text of a model: {answer.message}")
                    given[name] = answer
                case _:
                    raise McpBadReply("it asks for something that it was not offered")
        return given

    async def _filled(self, running: RunningCall, form: types.ElicitRequestParams) -> types.ElicitResult:
        with running.asking():
            return await fill_form(running.caller, self._settings.name, form)

    async def _elicit(
        self,
        context: ClientRequestContext,  # noqa: ARG002 - the shape of a callback
        params: types.ElicitRequestParams,
    ) -> types.ElicitResult:
        running = self._only_call()
        return DECLINED if running is None else await self._filled(running, params)

    async def _sample(
        self,
        context: ClientRequestContext,  # noqa: ARG002 - the shape of a callback
        params: types.CreateMessageRequestParams,
    ) -> types.CreateMessageResult | types.ErrorData:
        running = self._only_call()
        return await complete_text(None if running is None else running.sampler, self._settings.name, params)

    def _only_call(self) -> RunningCall | None:
        """Return the call that a server asks about; in old versions it does not say so, and only one can be meant."""
        running = list(self._calls.values())
        if len(running) > 1:
            log.warning(
                "MCP server %s asked during %d calls at once, and does not say for which",
                self._settings.name,
                len(running),
            )
        return running[0] if len(running) == 1 else None

    async def _broken(self) -> McpConnectionLost:
        """Return how the connection ended; a process exits a moment after its pipes close."""
        if self._pipes is not None and self._pipes.exited is not None:
            await asyncio.wait({self._pipes.exited}, timeout=NOTICE_S)
        return McpConnectionLost(self._why(None))


def _innermost(error: BaseException | None) -> BaseException | None:
    while isinstance(error, BaseExceptionGroup):
        error = cast("BaseExceptionGroup[BaseException]", error).exceptions[0]
    return error
