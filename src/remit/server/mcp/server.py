"""The four tools on the MCP SDK: reads calls of a host, and answers in the host's protocol version."""

import asyncio
import logging
import re
from collections.abc import Callable
from typing import Any, Literal

import mcp_types as types
import msgspec
from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.server.lowlevel import Server
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from remit import __version__
from remit.protocol.codec import text_of
from remit.protocol.envelope import USER, Json, Response
from remit.protocol.errors import Code, RemitError, fault
from remit.runtime.ports import Question
from remit.server.mcp import arguments
from remit.server.mcp.arguments import (
    FORMS,
    DelegateTask,
    DelegationCancel,
    DelegationStatus,
    ListAgents,
    McpToolResult,
    read_arguments,
)
from remit.server.mcp.host_delegations import (
    Call,
    Caller,
    Came,
    EndedDelegation,
    HostDelegations,
    HostReply,
    OpenQuestions,
    RunningDelegation,
    WaitingDelegation,
)
from remit.text.terminal import several_lines

log = logging.getLogger("remit")
# Without this, the SDK's logs go to stderr, with whatever a host has sent.
logging.getLogger("mcp").addHandler(logging.NullHandler())

Context = ServerRequestContext[Any, Any]
CallerOf = Callable[[Context], Caller]
"""Returns the caller of a tool from what the transport knows; raises a `RemitError` if that is not enough."""

INSTRUCTIONS = (
    "These tools ask the agents of a Remit hub to do work. list_agents says who is there and what they are for; "
    "delegate_task asks one of them. What agents do is guarded, budgeted and recorded; some of it waits until a person "
    "agrees."
)
# A host that has timed out says so in its cancel reason; such a host still wants the result.
_HAS_WAITED = re.compile(r"\btim(?:ed?[ -]?out|e[ -]?limit)|\bdeadline\b", re.IGNORECASE)
# A question must fit on a screen; the inbox has all of it.
SHOWN = 2_000


class McpToolServer:
    """The tools of one hub, for all hosts that use them."""

    def __init__(self, name: str, delegations: HostDelegations, caller_of: CallerOf) -> None:
        self._delegations = delegations
        self._caller_of = caller_of
        schemas = {form.name: form.input_schema for form in FORMS}
        self.server: Server[Any] = Server(
            "remit",
            version=__version__,
            title=f"Remit: {name}" if name else "Remit",
            instructions=INSTRUCTIONS,
            get_tool_input_schema=schemas.get,
            on_list_tools=self._list,
            on_call_tool=self._call,
        )
        self.server.middleware.append(self._overhear)

    async def _list(self, _: Context, __: types.PaginatedRequestParams | None) -> types.ListToolsResult:
        return types.ListToolsResult(
            tools=[
                types.Tool(
                    name=form.name,
                    title=form.title,
                    description=form.description,
                    input_schema=form.input_schema,
                    annotations=types.ToolAnnotations(read_only_hint=form.reads_only),
                )
                for form in FORMS
            ]
        )

    async def _call(
        self, ctx: Context, params: types.CallToolRequestParams
    ) -> types.CallToolResult | types.InputRequiredResult:
        try:
            told = await self._answer(ctx, params)
        except RemitError as error:
            told = arguments.failed(error.fault)
        except Exception as error:  # noqa: BLE001 - logged without what it must not show
            log.error("the tool %s failed: %s", params.name[:100], type(error).__name__)
            told = arguments.failed(fault(Code.DELEGATION_FAILED, f"the server failed ({type(error).__name__})"))
        if isinstance(told, types.InputRequiredResult):
            return told
        return types.CallToolResult(
            content=[types.TextContent(type="text", text=told.text)],
            structured_content=msgspec.to_builtins(told.data),
            is_error=told.is_error,
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
                names = ", ".join(form.name for form in FORMS)
                raise RemitError(
                    fault(Code.NOT_FOUND, f"unknown tool `{unknown[:100]}`", suggestion=f"Use one of {names}.")
                )

    # ── the tools ─────────────────────────────────────────────────────────────────────────────────────────────────────

    async def _delegate(
        self, ctx: Context, params: types.CallToolRequestParams, given: DelegateTask
    ) -> McpToolResult | types.InputRequiredResult:
        caller = self._caller_of(ctx)
        host, call = SdkHost(ctx, caller), _call_of(ctx, caller, ctx.request_id)
        try:
            if params.request_state is not None:  # the same call again, with the answers of a person
                return await self._continue(params, host, caller, given.wait_seconds, call)
            request = await self._delegations.receive(given, caller, _traceparent(ctx))
            started = await self._delegations.start(request, call)
            if isinstance(started, Response):
                return arguments.ended_result(started)
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
        host = SdkHost(ctx, caller)
        if params.request_state is not None:
            return await self._continue(params, host, caller, given.wait_seconds)
        if given.id is None:
            return arguments.delegations_result(await self._delegations.newest(caller))
        return await self._attended(given.id, host, caller, given.wait_seconds)

    async def _attended(
        self, name: str, host: "SdkHost", caller: Caller, wait_s: float | None
    ) -> McpToolResult | types.InputRequiredResult:
        """Continue to wait for a run that was started before."""
        summary = await self._delegations.find(name, caller)
        if (response := await self._delegations.outcome(summary)) is not None:
            return arguments.ended_result(response)
        came = await self._delegations.attend(self._delegations.follow(summary), host, caller, wait_s)
        return _tool_result(came, summary.run, summary.agent)

    async def _cancel(self, ctx: Context, given: DelegationCancel) -> McpToolResult:
        caller = self._caller_of(ctx)
        summary = await self._delegations.find(given.id, caller)
        response = await self._delegations.cancel(summary, caller, given.reason)
        return arguments.under_way(summary.run, summary.agent) if response is None else arguments.cancelled(response)

    async def _continue(
        self,
        params: types.CallToolRequestParams,
        host: "SdkHost",
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
            if answer is None or host.asks == "never":
                continue
            reply = reply_of(question, answer) if isinstance(answer, types.ElicitResult) else HostReply(action="cancel")
            if not await self._delegations.answer(question, reply, caller):
                return arguments.waiting(summary.run, summary.agent, question)
        return await self._attended(summary.run, host, caller, wait_s)

    # ── what is called off ────────────────────────────────────────────────────────────────────────────────────────────

    async def _overhear(self, ctx: Context, call_next: CallNext) -> HandlerResult:
        """Cancel the run of a call that its host has cancelled.

        The SDK ends the call itself without the reason. A run whose host only timed out continues, so that
        `delegation_status` can return its outcome.
        """
        if ctx.method == "notifications/cancelled" and ctx.params is not None:
            reason = str(ctx.params.get("reason") or "")
            if not _HAS_WAITED.search(reason):
                try:
                    caller = self._caller_of(ctx)
                except RemitError:
                    return await call_next(ctx)
                self._delegations.call_off(_call_of(ctx, caller, ctx.params.get("requestId")), caller.user, reason)
        return await call_next(ctx)


def _call_of(ctx: Context, caller: Caller, number: object) -> Call:
    session = "" if ctx.request is None else ctx.request.headers.get("mcp-session-id", "")
    return caller.sender.name, caller.user, session, str(number)


def _traceparent(ctx: Context) -> str | None:
    found = (ctx.meta or {}).get("traceparent")
    return found[:55] if isinstance(found, str) else None


def _tool_result(came: Came, run: str, agent: str) -> McpToolResult | types.InputRequiredResult:
    match came:
        case EndedDelegation(response):
            return arguments.ended_result(response)
        case RunningDelegation(known_as):
            return arguments.under_way(known_as, agent)
        case WaitingDelegation(question):
            return arguments.waiting(run, agent, question)
        case OpenQuestions(questions):
            asked: dict[str, types.InputRequest] = {
                each.id: types.ElicitRequest(
                    params=types.ElicitRequestFormParams(message=put(each), requested_schema=form_of(each))
                )
                for each in questions
            }
            return types.InputRequiredResult(input_requests=asked, request_state=run)


# ── the host, and the person there ────────────────────────────────────────────────────────────────────────────────────


class SdkHost:
    """The host that called a tool, by the SDK's context of the call."""

    def __init__(self, ctx: Context, caller: Caller) -> None:
        self._ctx = ctx
        self._may_answer = caller.sender.may_approve
        self._said = 0
        self._is_modern = ctx.protocol_version in MODERN_PROTOCOL_VERSIONS

    @property
    def hangs_up(self) -> bool:
        """Whether it cancels a tool by closing the stream: over HTTP, since the version without notifications."""
        return self._is_modern and self._ctx.request is not None

    @property
    def asks(self) -> Literal["now", "later", "never"]:
        capabilities = self._ctx.session.client_capabilities
        can = None if capabilities is None else capabilities.elicitation
        # A host that names no kind of elicitation supports forms, the only kind when it was written.
        if not self._may_answer or can is None or (can.form is None and can.url is not None):
            return "never"
        if self._is_modern:
            return "later"
        return "now" if self._ctx.session.can_send_request else "never"

    async def tell(self, text: str) -> None:
        self._said += 1
        await self._ctx.session.report_progress(self._said, None, several_lines(text))

    async def ask(self, question: Question) -> HostReply:
        answer = await self._ctx.session.elicit_form(put(question), form_of(question), self._ctx.request_id)
        return reply_of(question, answer)


def put(question: Question) -> str:
    """Return a question as a person reads it: the question, and the request in doubt; all of it is already redacted."""
    request = question.request
    origin = "The user" if request.origin == USER else request.origin
    lines = [question.text, "", f"{origin} asks {request.target}, for {request.remit.user}: {request.objective}"]
    if request.input is not None:
        lines.append(f"Input: {text_of(request.input)}")
    text = several_lines("\n".join(lines))
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}… (remit pending show {question.id} shows the rest)"


_REASON = "reason"


def form_of(question: Question) -> dict[str, Any]:
    """Return the form of a question: accepting it approves, and its fields hold what may be edited."""
    fields: dict[str, Any] = {
        name: {"type": "string", "title": name.capitalize(), "default": value}
        for name, value in _editable(question).items()
    }
    fields[_REASON] = {"type": "string", "title": "Reason", "description": "Optional; it is recorded."}
    return {"type": "object", "properties": fields}


def reply_of(question: Question, answer: types.ElicitResult) -> HostReply:
    """Return what a person did with a question."""
    content = answer.content or {}
    reason = content.get(_REASON)
    edits: dict[str, Json] = {
        name: said
        for name, shown in _editable(question).items()
        if isinstance(said := content.get(name), str) and said != shown
    }
    return HostReply(
        action=answer.action,
        reason=reason[:500] if isinstance(reason, str) else "",
        edits=edits if answer.action == "accept" else {},
    )


def _editable(question: Question) -> dict[str, str]:
    """Return the fields of a request that may be edited, as far as a form can hold them."""
    request = question.request
    values = {"objective": request.objective, "input": request.input}
    return {name: value for name, value in values.items() if name in question.editable and isinstance(value, str)}
