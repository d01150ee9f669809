"""The MCP host that waits for a tool: hears of progress, asks its user, and lends its model."""

from collections.abc import Collection
from typing import Any, Literal

import mcp_types as types
from mcp import MCPError
from mcp.server.context import ServerRequestContext
from mcp.shared.message import ServerMessageMetadata
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import ValidationError

from remit.protocol.envelope import Message
from remit.protocol.errors import Code, RemitError, fault
from remit.runtime.lent_models import Completion, Sampler
from remit.runtime.ports import Question
from remit.words.terminal import several_lines
from remit_server.mcp.host_delegations import Caller, HostReply
from remit_server.mcp.host_forms import form_of, put, reply_of
from remit_server.mcp.host_log import LogLine

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
            found = await self._ctx.session.send_request(
                types.CreateMessageRequest(params=params), types.CreateMessageResult, metadata=related
            )
        except (MCPError, ValidationError) as error:
            why = f"the model of the MCP host did not answer ({type(error).__name__})"
            raise RemitError(fault(Code.DELEGATION_UNAVAILABLE, why)) from error
        if not isinstance(found.content, types.TextContent):
            raise RemitError(fault(Code.RESULT_VALIDATION_FAILED, "the model of the MCP host answered without a text"))
        # A user who edits it, or a program in the place of a model, may have written anything.
        return found.content.text[: MOST_PER_TOKEN * most], found.model[:200]
