"""The MCP host that waits for a tool: hears of progress, asks its user with forms, and lends its model."""

from collections.abc import Collection
from typing import Any, Literal, cast

import mcp_types as types
from mcp import MCPError
from mcp.server.context import ServerRequestContext
from mcp.shared.message import ServerMessageMetadata
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import ValidationError

from remit.ports import Question
from remit.protocol.envelope import Json, Message
from remit.protocol.errors import Code, RemitError, fault
from remit.runtime.lent_models import Completion, Sampler
from remit.runtime.question_view import view_of
from remit.words.terminal import several_lines
from remit_server.mcp.host_delegations import Caller, HostReply, LogLine

# More than this is read nowhere in a form. A longer question is left to the inbox: nobody approves what is not shown.
MOST_SHOWN = 20_000

_REASON = "reason"
_OWN = ("objective", "input", _REASON)
_PLAIN = (str, bool, int, float)


def put(question: Question) -> str:
    """Return a question as a person reads it, with all that would be sent; all of it is already redacted."""
    return several_lines(f"{question.text}\n\n{view_of(question).text()}")


def form_of(question: Question) -> dict[str, Any]:
    """Return the form of a question: accepting it approves, and its fields hold what may be edited."""
    known: dict[str, Any] = {} if question.form is None else question.form["properties"]
    fields: dict[str, Any] = {}
    for name, value in {**_texts(question), **_inputs(question)}.items():
        fields[name] = {"title": name.capitalize(), **(known.get(name) or {"type": _type_of(value)})}
        if value is not None:
            fields[name]["default"] = value
    fields.setdefault(_REASON, {"type": "string", "title": "Reason", "description": "Optional; it is recorded."})
    required = [] if question.form is None else [name for name in question.form.get("required", ()) if name in fields]
    return {"type": "object", "properties": fields} | ({"required": required} if required else {})


def _type_of(value: Json) -> str:
    match value:
        case bool():
            return "boolean"
        case int():
            return "integer"
        case float():
            return "number"
        case _:
            return "string"


def reply_of(question: Question, answer: types.ElicitResult) -> HostReply:
    """Return what a person did with a question."""
    content = answer.content or {}
    fields = _inputs(question)
    reason = None if _REASON in fields else content.get(_REASON)
    edits: dict[str, Json] = {
        name: entered
        for name, shown in _texts(question).items()
        if isinstance(entered := content.get(name), str) and entered != shown
    }
    # In a form, null is a field that the person has emptied.
    may_empty = question.form is not None
    filled = {
        name: entered
        for name, shown in fields.items()
        if name in content and (entered := content[name]) != shown and (entered is not None or may_empty)
    }
    if filled:
        edits["input"] = {**cast("dict[str, Json]", question.request.input), **filled}
    return HostReply(
        action=answer.action,
        reason=reason[:500] if isinstance(reason, str) else "",
        edits=edits if answer.action == "accept" else {},
    )


def _texts(question: Question) -> dict[str, str]:
    """Return the texts of a request that may be edited."""
    request = question.request
    values = {"objective": request.objective, "input": request.input}
    return {name: value for name, value in values.items() if name in question.editable and isinstance(value, str)}


def _inputs(question: Question) -> dict[str, Json]:
    """Return the fields of an input that may be edited, if a form can hold them: the form of an MCP server, for one."""
    given = question.request.input
    if "input" not in question.editable or not isinstance(given, dict):
        return {}
    fields = cast("dict[str, Json]", given)
    if question.form is not None:
        return {name: fields.get(name) for name in question.form["properties"]}
    return {
        name: value
        for name, value in fields.items()
        if name not in _OWN and (value is None or isinstance(value, _PLAIN))
    }


Context = ServerRequestContext[Any, Any]
# Words of several letters are one token; a text that is much longer is not what was asked for.
MOST_PER_TOKEN = 20


class SdkHost:
    """The host that called a tool, by the SDK's context of the call."""

    def __init__(self, ctx: Context, caller: Caller, levels: Collection[types.LoggingLevel], *, sampling: bool) -> None:
        self._ctx = ctx
        self._levels = levels
        self._may_sample = sampling
        self._may_answer = caller.sender.may_approve
        self._report_count = 0
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

    def can_show(self, question: Question) -> bool:
        return len(put(question)) <= MOST_SHOWN

    async def tell(self, text: str) -> None:
        self._report_count += 1
        await self._ctx.session.report_progress(self._report_count, None, several_lines(text))

    async def log(self, line: LogLine) -> None:
        if line.level in self._levels:
            params = types.LoggingMessageNotificationParams(level=line.level, logger="remit", data=line.data)
            message = types.LoggingMessageNotification(params=params)
            await self._ctx.session.send_notification(message, self._ctx.request_id)

    async def ask(self, question: Question) -> HostReply:
        answer = await self._ctx.session.elicit_form(put(question), form_of(question), self._ctx.request_id)
        return reply_of(question, answer)

    @property
    def model(self) -> Sampler | None:
        # Sampling ended with the protocol without sessions.
        capabilities = self._ctx.session.client_capabilities
        offers = capabilities is not None and capabilities.sampling is not None
        can = self._may_sample and offers and not self._is_modern and self._ctx.session.can_send_request
        return self._sample if can else None

    async def _sample(self, system: str, messages: tuple[Message, ...], most: int) -> Completion:
        params = types.CreateMessageRequestParams(
            messages=[
                types.SamplingMessage(
                    role="assistant" if each.role == "assistant" else "user",
                    content=types.TextContent(type="text", text=each.text),
                )
                for each in messages
            ],
            max_tokens=most,
            system_prompt=system or None,
        )
        related = ServerMessageMetadata(related_request_id=self._ctx.request_id)
        try:
            message = await self._ctx.session.send_request(
                types.CreateMessageRequest(params=params), types.CreateMessageResult, metadata=related
            )
        except (MCPError, ValidationError) as error:
            why = f"the model of the MCP host did not answer ({type(error).__name__})"
            raise RemitError(fault(Code.DELEGATION_UNAVAILABLE, why)) from error
        if not isinstance(message.content, types.TextContent):
            raise RemitError(fault(Code.RESULT_VALIDATION_FAILED, "the model of the MCP host answered without a text"))
        # A user who edits it, or a program in the place of a model, may have written anything.
        return message.content.text[: MOST_PER_TOKEN * most], message.model[:200]
