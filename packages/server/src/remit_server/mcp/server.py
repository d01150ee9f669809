"""The hub on the MCP SDK: reads requests of a host, and answers in the host's protocol version."""

import asyncio
import logging
import re
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any, get_args

import mcp_types as types
import msgspec
from mcp import MCPError
from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.auth.provider import AccessToken
from mcp.server.connection import allowed_log_levels
from mcp.server.context import CallNext, HandlerResult
from mcp.server.lowlevel import Server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS, MODERN_PROTOCOL_VERSIONS

from remit import __version__
from remit.ports import RunSummary
from remit.protocol.codec import MAX_BYTES
from remit.protocol.envelope import Response
from remit.protocol.errors import Code, RemitError, fault
from remit.protocol.records import Approval, Record
from remit_server.bodies import Receive, Scope, Send
from remit_server.delegations import Delegations, going_down
from remit_server.mcp import arguments, resources
from remit_server.mcp.arguments import (
    FORMS,
    DelegateTask,
    DelegationCancel,
    DelegationStatus,
    ListAgents,
    McpToolResult,
    read_arguments,
)
from remit_server.mcp.direct_tools import DirectTool, direct_tools
from remit_server.mcp.endpoint import MCP_CLIENT, McpClient
from remit_server.mcp.host_delegations import (
    TOGETHER,
    Call,
    Caller,
    Came,
    EndedDelegation,
    HostDelegations,
    HostReply,
    McpOffer,
    OpenQuestions,
    RunningDelegation,
    WaitingDelegation,
)
from remit_server.mcp.replay import RETRY_MS, SessionReplay, note_version
from remit_server.mcp.resources import TEMPLATES, McpResources, artifact_block, file_block
from remit_server.mcp.sdk_host import Context, SdkHost, form_of, put, reply_of

log = logging.getLogger("remit")
# Without this, the SDK's logs go to stderr, with whatever a host has sent.
logging.getLogger("mcp").addHandler(logging.NullHandler())

CallerOf = Callable[[Context], Caller]
"""Returns the caller of a tool from what the transport knows; raises a `RemitError` if that is not enough."""

INSTRUCTIONS = (
    "These tools ask the agents of a Remit hub to do work. list_agents says who is there and what they are for; "
    "delegate_task asks one of them. What agents do is guarded, budgeted and recorded; some of it waits until a person "
    "agrees."
)
DIRECTLY = " Some agents have a tool of their own, which asks them directly."
# A host that has timed out says so in its cancel reason; such a host still wants the result.
_HAS_WAITED = re.compile(r"\btim(?:ed?[ -]?out|e[ -]?limit)|\bdeadline\b", re.IGNORECASE)


class McpToolServer:
    """The tools of one hub, for all hosts that use them."""

    def __init__(
        self, name: str, delegations: HostDelegations, caller_of: CallerOf, offer: McpOffer | None = None
    ) -> None:
        self._delegations = delegations
        self._caller_of = caller_of
        self._offer = offer or McpOffer()
        self._resources = McpResources(delegations)
        self._subscriptions = RunSubscriptions(delegations)
        self._levels = LogLevels()
        schemas = {form.name: form.input_schema for form in FORMS}
        self.server: Server[Any] = Server(
            "remit",
            version=__version__,
            title=f"Remit: {name}" if name else "Remit",
            instructions=INSTRUCTIONS + (DIRECTLY if self._offer.tools else ""),
            get_tool_input_schema=schemas.get,
            on_list_tools=self._list,
            on_call_tool=self._call,
            on_list_resources=self._list_resources,
            on_list_resource_templates=self._list_templates,
            on_read_resource=self._read_resource,
            on_subscribe_resource=self._subscribe,
            on_unsubscribe_resource=self._unsubscribe,
            on_list_prompts=self._list_prompts,
            on_get_prompt=self._get_prompt,
            on_completion=self._complete,
        )
        # Not as an argument above, where the SDK would warn that the newest version has no such method.
        self.server.add_request_handler("logging/setLevel", types.SetLevelRequestParams, self._set_level)
        self.server.middleware.append(self._overhear)

    async def _list(self, ctx: Context, _: types.PaginatedRequestParams | None) -> types.ListToolsResult:
        described = [(form.title, form) for form in FORMS]
        described += [(tool.name, tool) for tool in self._direct(ctx).values()]
        return types.ListToolsResult(
            tools=[
                types.Tool(
                    name=each.name,
                    title=title,
                    description=each.description,
                    input_schema=each.input_schema,
                    annotations=types.ToolAnnotations(read_only_hint=each.reads_only),
                )
                for title, each in described
            ]
        )

    def _direct(self, ctx: Context) -> dict[str, DirectTool]:
        """Return the agents that are tools of their own for the caller; none if its user is unknown."""
        if not self._offer.tools:
            return {}
        try:
            return direct_tools(self._delegations.agents(self._caller_of(ctx)), self._offer)
        except RemitError:
            return {}

    async def _call(
        self, ctx: Context, params: types.CallToolRequestParams
    ) -> types.CallToolResult | types.InputRequiredResult:
        try:
            answer = await self._answer(ctx, params)
        except RemitError as error:
            answer = arguments.failed(error.fault)
        except Exception as error:  # noqa: BLE001 - logged without what it must not show
            log.error("the tool %s failed: %s", params.name[:100], type(error).__name__)
            answer = arguments.failed(fault(Code.DELEGATION_FAILED, f"the server failed ({type(error).__name__})"))
        if isinstance(answer, types.InputRequiredResult):
            return answer
        return types.CallToolResult(
            content=[
                types.TextContent(type="text", text=answer.text),
                *(artifact_block(answer.run, number, each) for number, each in enumerate(answer.artifacts)),
                *map(file_block, answer.files),
            ],
            structured_content=msgspec.to_builtins(answer.data),
            is_error=answer.is_error,
        )

    async def _answer(
        self, ctx: Context, params: types.CallToolRequestParams
    ) -> McpToolResult | types.InputRequiredResult:
        match params.name:
            case "list_agents":
                read_arguments(params.arguments, ListAgents)
                return arguments.known(self._delegations.agents(self._caller_of(ctx)))
            case "delegate_task":
                return await self._delegate(ctx, params, read_arguments(params.arguments, DelegateTask))
            case "delegation_status":
                return await self._status(ctx, params, read_arguments(params.arguments, DelegationStatus))
            case "delegation_cancel":
                return await self._cancel(ctx, read_arguments(params.arguments, DelegationCancel))
            case unknown:
                direct = self._direct(ctx)
                if unknown in direct:
                    return await self._delegate(ctx, params, direct[unknown].task_of(params.arguments))
                names = ", ".join((*(form.name for form in FORMS), *direct))
                raise RemitError(
                    fault(Code.NOT_FOUND, f"unknown tool `{unknown[:100]}`", suggestion=f"Use one of {names}.")
                )

    # ── the tools ─────────────────────────────────────────────────────────────────────────────────────────────────────

    async def _delegate(
        self, ctx: Context, params: types.CallToolRequestParams, given: DelegateTask
    ) -> McpToolResult | types.InputRequiredResult:
        caller = self._caller_of(ctx)
        host, call = self._host(ctx, caller), _call_of(ctx, caller, ctx.request_id)
        try:
            if params.request_state is not None:  # the same call again, with the answers of a person
                return await self._continue(params, host, caller, given.wait_seconds, call)
            request = await self._delegations.receive(given, caller, _traceparent(ctx))
            # Before it starts, as its agent may ask the host's model at once.
            with self._delegations.lending(request.run, host):
                started = await self._delegations.start(request, call)
                if isinstance(started, Response):
                    return arguments.ended_result(started)
                # The same request may be at work already, as another run.
                with self._delegations.lending(started.run, host):
                    await host.tell(f"delegated to {given.agent}; id {started.run}")
                    came = await self._delegations.attend(started, host, caller, given.wait_seconds)
            return _tool_result(came, started.known_as, given.agent)
        except asyncio.CancelledError:
            if host.hangs_up and given.request_id is None:
                # If a host sends no notifications, a closed stream cancels the call, unless it can be repeated by its
                # id.
                self._delegations.call_off(call, caller.user, "the client disconnected")
            raise

    async def _status(
        self, ctx: Context, params: types.CallToolRequestParams, given: DelegationStatus
    ) -> McpToolResult | types.InputRequiredResult:
        caller = self._caller_of(ctx)
        host = self._host(ctx, caller)
        if params.request_state is not None:
            return await self._continue(params, host, caller, given.wait_seconds)
        if given.id is None:
            runs = await self._delegations.newest(caller)
            open_runs = [each.run for each in runs if each.response is None]
            return arguments.delegations_result(runs, await self._delegations.questions_of(open_runs))
        return await self._attended(given.id, host, caller, given.wait_seconds)

    async def _attended(
        self, name: str, host: SdkHost, caller: Caller, wait_s: float | None
    ) -> McpToolResult | types.InputRequiredResult:
        """Continue to wait for a run that was started before."""
        summary = await self._delegations.find(name, caller)
        if (response := await self._delegations.outcome(summary, caller)) is not None:
            return arguments.ended_result(response)
        with self._delegations.lending(summary.run, host):
            came = await self._delegations.attend(self._delegations.follow(summary, caller), host, caller, wait_s)
        return _tool_result(came, summary.run, summary.agent)

    async def _cancel(self, ctx: Context, given: DelegationCancel) -> McpToolResult:
        caller = self._caller_of(ctx)
        run, agent, response = await self._delegations.cancel(given.id, caller, given.reason)
        return arguments.under_way(run, agent) if response is None else arguments.cancelled(response)

    async def _continue(
        self,
        params: types.CallToolRequestParams,
        host: SdkHost,
        caller: Caller,
        wait_s: float | None,
        call: Call | None = None,
    ) -> McpToolResult | types.InputRequiredResult:
        """Apply the answers to the questions of the last call, and continue to wait."""
        # The host's data is untrusted: the run must be the caller's, and the questions must be the run's.
        summary = await self._delegations.find((params.request_state or "")[:200], caller)
        if call is not None:
            self._delegations.adopt(summary.run, call)
        given = params.input_responses or {}
        for question in await self._delegations.questions(summary.run):
            answer = given.get(question.id)
            if answer is None or host.asks == "never" or not host.can_show(question):
                continue
            reply = reply_of(question, answer) if isinstance(answer, types.ElicitResult) else HostReply(action="cancel")
            if not await self._delegations.answer(question, reply, caller):
                return arguments.waiting(summary.run, summary.agent, question)
        return await self._attended(summary.run, host, caller, wait_s)

    # ── resources, prompts, log messages ──────────────────────────────────────────────────────────────────────────────

    def _known(self, ctx: Context) -> Caller:
        """Return the caller of a request that is no tool, or raise an `MCPError`."""
        try:
            return self._caller_of(ctx)
        except RemitError as error:
            raise MCPError(types.INVALID_PARAMS, error.fault.message) from error

    async def _list_resources(self, ctx: Context, _: types.PaginatedRequestParams | None) -> types.ListResourcesResult:
        return types.ListResourcesResult(resources=await self._resources.listed(self._known(ctx)))

    async def _list_templates(
        self, _: Context, __: types.PaginatedRequestParams | None
    ) -> types.ListResourceTemplatesResult:
        return types.ListResourceTemplatesResult(resource_templates=list(TEMPLATES))

    async def _read_resource(self, ctx: Context, params: types.ReadResourceRequestParams) -> types.ReadResourceResult:
        contents = await self._resources.read(str(params.uri), self._known(ctx), ctx.protocol_version)
        return types.ReadResourceResult(contents=[contents])

    async def _subscribe(self, ctx: Context, params: types.SubscribeRequestParams) -> types.EmptyResult:
        caller, uri = self._known(ctx), str(params.uri)
        summary = await self._resources.run_of(uri, caller, ctx.protocol_version)

        async def notify() -> None:
            await ctx.session.send_resource_updated(uri)

        try:
            self._subscriptions.add((*_session_of(ctx, caller), uri), summary, notify)
        except RemitError as error:
            raise MCPError(types.INVALID_REQUEST, error.fault.message) from error
        return types.EmptyResult()

    async def _unsubscribe(self, ctx: Context, params: types.UnsubscribeRequestParams) -> types.EmptyResult:
        self._subscriptions.remove((*_session_of(ctx, self._known(ctx)), str(params.uri)))
        return types.EmptyResult()

    async def close(self) -> None:
        """End what outlives a request."""
        await self._subscriptions.close()

    async def _list_prompts(self, ctx: Context, _: types.PaginatedRequestParams | None) -> types.ListPromptsResult:
        return types.ListPromptsResult(prompts=resources.prompts(self._delegations.agents(self._known(ctx))))

    async def _get_prompt(self, ctx: Context, params: types.GetPromptRequestParams) -> types.GetPromptResult:
        caller, given = self._known(ctx), params.arguments or {}
        attached = None
        if uri := given.get(resources.ATTACH):
            attached = resources.attachment(await self._resources.read(uri, caller, ctx.protocol_version))
        return resources.prompt(self._delegations.agents(caller), params.name, given, attached)

    async def _complete(self, ctx: Context, params: types.CompleteRequestParams) -> types.CompleteResult:
        caller = self._known(ctx)
        needs_runs = isinstance(params.ref, types.ResourceTemplateReference) or params.argument.name == resources.ATTACH
        runs = [each.run for each in await self._delegations.newest(caller)] if needs_runs else []
        return types.CompleteResult(completion=resources.complete(self._delegations.agents(caller), runs, params))

    async def _set_level(self, ctx: Context, params: types.SetLevelRequestParams) -> types.EmptyResult:
        self._levels.choose(_session_of(ctx, self._known(ctx)), params.level)
        return types.EmptyResult()

    def _host(self, ctx: Context, caller: Caller) -> SdkHost:
        wanted = self._levels.wanted(_session_of(ctx, caller), ctx.protocol_version, ctx.meta)
        return SdkHost(ctx, caller, wanted, sampling=self._offer.sampling)

    # ── what is called off ────────────────────────────────────────────────────────────────────────────────────────────

    async def _overhear(self, ctx: Context, call_next: CallNext) -> HandlerResult:
        """Cancel the run of a call that its host has cancelled, and note the version of the session.

        The SDK ends the call itself without the reason. A run whose host only timed out continues, so that
        `delegation_status` can return its outcome.
        """
        note_version(ctx.protocol_version)
        if ctx.method == "notifications/cancelled" and ctx.params is not None:
            reason = str(ctx.params.get("reason") or "")
            if not _HAS_WAITED.search(reason):
                try:
                    caller = self._caller_of(ctx)
                except RemitError:
                    return await call_next(ctx)
                self._delegations.call_off(_call_of(ctx, caller, ctx.params.get("requestId")), caller.user, reason)
        return await call_next(ctx)


def _session_of(ctx: Context, caller: Caller) -> tuple[str, ...]:
    session = "" if ctx.request is None else ctx.request.headers.get("mcp-session-id", "")
    return caller.sender.name, caller.user, session


def _call_of(ctx: Context, caller: Caller, number: object) -> Call:
    return (*_session_of(ctx, caller), str(number))


def _traceparent(ctx: Context) -> str | None:
    traceparent = (ctx.meta or {}).get("traceparent")
    return traceparent[:55] if isinstance(traceparent, str) else None


def _tool_result(came: Came, run: str, agent: str) -> McpToolResult | types.InputRequiredResult:
    match came:
        case EndedDelegation(response):
            return arguments.ended_result(response)
        case RunningDelegation(known_as):
            return arguments.under_way(known_as, agent)
        case WaitingDelegation(question):
            return arguments.waiting(run, agent, question)
        case OpenQuestions(questions):
            elicitations: dict[str, types.InputRequest] = {
                each.id: types.ElicitRequest(
                    params=types.ElicitRequestFormParams(message=put(each), requested_schema=form_of(each))
                )
                for each in questions
            }
            return types.InputRequiredResult(input_requests=elicitations, request_state=run)


# ── what hosts are told of ────────────────────────────────────────────────────────────────────────────────────────────

# Of a host that has not chosen: what its user should know, and not every step.
DEFAULT_LEVEL: types.LoggingLevel = "notice"
# As many as there are sessions; the least used is forgotten first, and has the default again.
MOST_CHOICES = 1_000

_LEVELS: tuple[types.LoggingLevel, ...] = get_args(types.LoggingLevel)


class LogLevels:
    """The levels that hosts have chosen, by session."""

    def __init__(self) -> None:
        self._chosen: OrderedDict[tuple[str, ...], types.LoggingLevel] = OrderedDict()

    def choose(self, session: tuple[str, ...], level: types.LoggingLevel) -> None:
        """Set the lowest level that a host wants to hear (`logging/setLevel`)."""
        self._chosen[session] = level
        self._chosen.move_to_end(session)
        if len(self._chosen) > MOST_CHOICES:
            self._chosen.popitem(last=False)

    def wanted(
        self, session: tuple[str, ...], version: str, meta: Mapping[str, Any] | None
    ) -> frozenset[types.LoggingLevel]:
        """Return the levels that a host wants to hear during a request, which names them itself in new versions."""
        if version in MODERN_PROTOCOL_VERSIONS:
            return allowed_log_levels(version, meta)
        return frozenset(_LEVELS[_LEVELS.index(self._chosen.get(session, DEFAULT_LEVEL)) :])


log = logging.getLogger("remit")

# Each is a task or two that waits; a host follows what its user looks at.
MOST_SUBSCRIPTIONS = 1_000

Key = tuple[str, ...]
"""Whose subscription it is: sender, user, session and address of the resource."""


class RunSubscriptions:
    """The subscriptions of all hosts; each ends with its run."""

    def __init__(self, delegations: HostDelegations) -> None:
        self._delegations = delegations
        self._tasks: dict[Key, asyncio.Task[None]] = {}

    def add(self, key: Key, summary: RunSummary, notify: Callable[[], Awaitable[None]]) -> None:
        """Call *notify* when a run changes; raise a `RemitError` if there are too many subscriptions."""
        if key in self._tasks or summary.response is not None:
            return  # what has ended does not change
        if len(self._tasks) >= MOST_SUBSCRIPTIONS:
            raise RemitError(fault(Code.OVERLOADED, f"there are already {MOST_SUBSCRIPTIONS} subscriptions"))
        task = asyncio.get_running_loop().create_task(self._follow(summary, notify))
        self._tasks[key] = task
        task.add_done_callback(lambda _: self._tasks.pop(key, None))

    def remove(self, key: Key) -> None:
        """End a subscription, if there is one."""
        if (task := self._tasks.pop(key, None)) is not None:
            task.cancel()

    async def close(self) -> None:
        """End all subscriptions."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    async def _follow(self, summary: RunSummary, notify: Callable[[], Awaitable[None]]) -> None:
        started = self._delegations.follow(summary)
        next_record: asyncio.Future[Record] | None = None
        is_over = False
        try:
            while not is_over:
                next_record = next_record or asyncio.ensure_future(anext(started.events))
                done, _ = await asyncio.wait({started.end, next_record}, return_when=asyncio.FIRST_COMPLETED)
                is_over = started.end in done
                records: list[Record] = []
                if next_record in done:
                    records, next_record = [next_record.result(), *started.events.ready(TOGETHER)], None
                if is_over or any(isinstance(each.body, Approval) for each in records):
                    await notify()
        except StopAsyncIteration:
            pass  # the hub is closing
        except Exception as error:  # noqa: BLE001 - whatever it is, the session is gone
            log.info("an MCP host could not be told of a run: %s", type(error).__name__)
        finally:
            if next_record is not None:
                next_record.cancel()
            started.end.cancel()
            started.events.close()


SESSION_HEADER, VERSION_HEADER = b"mcp-session-id", b"mcp-protocol-version"
# Each session is a task or two and some buffers; a host has one, and abandoned ones expire.
MOST_SESSIONS = 1_000
IDLE_S = 600.0
# Finished answers are sent within a moment, unless the host does not read.
LAST_WORDS_S = 2.0


class McpSessions:
    """Everything that is served at `/mcp`, from the first request until it is closed."""

    def __init__(self, delegations: Delegations, offer: McpOffer) -> None:
        self._face = McpToolServer("", HostDelegations(delegations), _caller_of, offer)
        self._replay = SessionReplay()
        self._manager = StreamableHTTPSessionManager(
            self._face.server,
            event_store=self._replay,
            retry_interval=RETRY_MS,
            max_sessions=MOST_SESSIONS,
            session_idle_timeout=IDLE_S,
            max_request_body_size=MAX_BYTES,
        )
        self._up, self._over, self._quiet = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self._answering = 0
        self._quiet.set()
        # The SDK must be entered and left by the same task.
        self._running = asyncio.get_running_loop().create_task(self._run())

    async def _run(self) -> None:
        try:
            async with self._manager.run():
                self._up.set()
                await self._over.wait()
        finally:
            self._up.set()

    async def serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request of an authenticated client."""
        await self._up.wait()
        if self._over.is_set():
            raise going_down()
        client: McpClient = scope[MCP_CLIENT]
        user = client.caller.user if isinstance(client.caller, Caller) else None
        # By this the SDK keeps clients and users out of each other's sessions.
        scope["user"] = AuthenticatedUser(AccessToken(token="", client_id=client.client, scopes=[], subject=user))
        if scope["method"] != "POST":  # a stream that stays open, or the end of a session
            await self._handle(scope, receive, send, client.client, user)
            return
        self._answering += 1
        self._quiet.clear()
        try:
            await self._handle(scope, receive, send, client.client, user)
        finally:
            self._answering -= 1
            if not self._answering:
                self._quiet.set()

    async def _handle(self, scope: Scope, receive: Receive, send: Send, client: str, user: str | None) -> None:
        """Let the SDK answer a request, in the session that it belongs to."""
        headers: list[tuple[bytes, bytes]] = scope["headers"]
        # The first one, as the SDK reads it: by another, a host could replay a session that is not its own.
        named = next((value for name, value in headers if name == SESSION_HEADER), None)
        key = None if named is None else (client, user, named.decode("latin-1"))
        with self._replay.serving(key) as session:

            async def noting(message: Any) -> None:
                if scope["method"] == "DELETE" and message["type"] == "http.response.start" and message["status"] < 400:
                    # Cancelled timers of the session may hold its context for ten minutes more.
                    session.close()
                if named is None and message["type"] == "http.response.start":
                    opened = dict(message["headers"]).get(SESSION_HEADER)
                    if opened is not None:
                        self._replay.opened((client, user, opened.decode("latin-1")), session)
                await send(message)

            if session.version is not None:
                scope["headers"] = agreed(headers, session.version)
            await self._manager.handle_request(scope, receive, noting)

    async def close(self) -> None:
        """Let running calls be answered, then end every session."""
        with suppress(TimeoutError):
            async with asyncio.timeout(LAST_WORDS_S):
                await self._quiet.wait()
        await self._face.close()
        self._replay.close()
        self._over.set()
        await asyncio.wait({self._running})


def agreed(headers: list[tuple[bytes, bytes]], version: str) -> list[tuple[bytes, bytes]]:
    """Return the headers of a request in a session with the version that the session agreed on.

    Some hosts leave the header out, or name an older version in it, and would then not be told how to resume a stream.
    """
    stated = dict(headers).get(VERSION_HEADER)
    if stated is not None and stated.decode("latin-1") not in HANDSHAKE_PROTOCOL_VERSIONS:
        return headers
    return [*(each for each in headers if each[0] != VERSION_HEADER), (VERSION_HEADER, version.encode())]


def _caller_of(ctx: Context) -> Caller:
    assert ctx.request is not None, "over HTTP every message has its request"
    client: McpClient = ctx.request.scope[MCP_CLIENT]
    if isinstance(client.caller, RemitError):
        raise client.caller
    return client.caller
