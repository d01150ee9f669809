"""What an MCP server asks during a call: a form that a person fills in, or a text by the calling agent's model."""

import logging
from typing import Any, cast

import mcp_types as types

from remit.protocol.card import Schema
from remit.protocol.envelope import Message
from remit.protocol.errors import RemitError
from remit.protocol.forms import form_schema
from remit.runtime.lent_models import Sampler, ToolCaller
from remit.runtime.schemas import misfits
from remit_models.mcp.reading import MAX_DESCRIPTION, unusable, visible_text

log = logging.getLogger("remit")

MAX_FIELD = 200
# Servers summarize and classify with it; longer texts are the work of agents.
MAX_SAMPLED = 4_000
MAX_PROMPT = 100_000

DECLINED = types.ElicitResult(action="decline")


async def fill_form(caller: ToolCaller | None, server: str, params: types.ElicitRequestParams) -> types.ElicitResult:
    """Have a person fill in a form; declined if nobody can be asked, or if it is no form that can be shown."""
    if caller is None or not isinstance(params, types.ElicitRequestFormParams):
        return DECLINED
    schema = params.requested_schema
    try:
        form = None if unusable(schema) else _presentable(form_schema(schema))
    except RemitError:
        form = None
    if form is None:
        log.warning("MCP server %s asks with a form that cannot be shown", server)
        return DECLINED
    content: dict[str, Any] | None = await caller.fill(_question(server, params.message, form["properties"]), form)
    if content is None:
        return DECLINED
    if problems := misfits(schema, content):
        log.info("the answer to MCP server %s does not fit its form: %s", server, problems[0].path)
        return DECLINED
    return types.ElicitResult(action="accept", content=content)


def _presentable(form: Schema) -> Schema:
    """Return a form whose titles and descriptions, which are the server's words, hide nothing and are not long."""
    fields = {name: _visible(field) for name, field in form["properties"].items()}
    return {key: form[key] for key in ("type", "required") if key in form} | {"properties": fields}


def _visible(part: dict[str, Any]) -> dict[str, Any]:
    """Return a field or a choice with its words, and those of its choices, as they are shown."""
    shown = part | {key: visible_text(str(part[key]), MAX_FIELD) for key in ("title", "description") if key in part}
    if "enumNames" in part:
        shown["enumNames"] = [visible_text(each, MAX_FIELD) for each in part["enumNames"]]
    if isinstance(part.get("items"), dict):
        shown["items"] = _visible(part["items"])
    return shown | {key: [_visible(each) for each in part[key]] for key in ("oneOf", "anyOf") if key in part}


def _question(server: str, message: str, fields: dict[str, Any]) -> str:
    """Return the question as a person reads it; the words are those of the server, and marked as such."""
    lines = [f"MCP server {server} asks: {visible_text(message, MAX_DESCRIPTION).strip()}"]
    for name, field in fields.items():
        about = cast("dict[str, Any]", field) if isinstance(field, dict) else {}
        description = str(about.get("description") or about.get("title") or about.get("type") or "")
        lines.append(f"- {visible_text(name, MAX_FIELD)}: {visible_text(description, MAX_FIELD)}".rstrip(": "))
    lines.append("Whoever approves sends the fields in `input` to that server.")
    return "\n".join(lines)


async def complete_text(
    sampler: Sampler | None, server: str, params: types.CreateMessageRequestParams
) -> types.CreateMessageResult | types.ErrorData:
    """Have the model of the calling agent write a text, without tools, within the agent's budget."""
    if sampler is None:
        return types.ErrorData(code=types.INVALID_REQUEST, message="the calling agent has no model")
    messages = [Message(role=each.role, text=_text(each)) for each in params.messages]
    if not messages or sum(len(each.text) for each in messages) > MAX_PROMPT or params.tools:
        return types.ErrorData(code=types.INVALID_PARAMS, message="only texts of at most 100,000 characters, no tools")
    try:
        text, model = await sampler(params.system_prompt or "", tuple(messages), min(params.max_tokens, MAX_SAMPLED))
    except RemitError as error:
        log.info("MCP server %s got no text from the model: %s", server, error.fault.code)
        return types.ErrorData(code=types.INTERNAL_ERROR, message=f"the model did not answer ({error.fault.code})")
    content = types.TextContent(type="text", text=text)
    return types.CreateMessageResult(role="assistant", content=content, model=model, stop_reason="endTurn")


def _text(message: types.SamplingMessage) -> str:
    blocks = cast("list[Any]", message.content if isinstance(message.content, list) else [message.content])
    return "\n".join(each.text for each in blocks if isinstance(each, types.TextContent))
