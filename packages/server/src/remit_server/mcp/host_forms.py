"""Questions to a person as forms of an MCP host, and what the person did with them."""

from typing import Any, cast

import mcp_types as types

from remit.protocol.codec import text_of
from remit.protocol.envelope import USER, Json
from remit.runtime.ports import Question
from remit.words.terminal import several_lines
from remit_server.mcp.host_delegations import HostReply

# A question must fit on a screen; the inbox has all of it.
SHOWN = 2_000

_REASON = "reason"
_OWN = ("objective", "input", _REASON)
_PLAIN = (str, bool, int, float)


def put(question: Question) -> str:
    """Return a question as a person reads it: the question, and the request in doubt; all of it is already redacted."""
    request = question.request
    origin = "The user" if request.origin == USER else request.origin
    lines = [question.text, "", f"{origin} asks {request.target}, for {request.remit.user}: {request.objective}"]
    if request.input is not None:
        lines.append(f"Input: {text_of(request.input)}")
    text = several_lines("\n".join(lines))
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}… (remit pending show {question.id} shows the rest)"


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
        name: said
        for name, shown in _texts(question).items()
        if isinstance(said := content.get(name), str) and said != shown
    }
    # In a form, null is a field that the person has emptied.
    may_empty = question.form is not None
    filled = {
        name: said
        for name, shown in fields.items()
        if name in content and (said := content[name]) != shown and (said is not None or may_empty)
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
