"""Requests: A2A messages to requests of ours, and back."""

import re
from hashlib import sha256

from msgspec import Struct
from msgspec.structs import replace

from remit.protocol.codec import convert, encode, text_of
from remit.protocol.envelope import Handoff, Json, Request, View
from remit.protocol.files import File
from remit.protocol.submission import Submission
from remit_server.dialects.a2a.errors import (
    EXTENSION,
    Declined,
    Error,
    RemitWords,
    as_metadata,
    claims_of,
    count,
    extension_content,
    remit_words,
    within,
)
from remit_server.dialects.a2a.parts import BREAK, content_of, file_part, part_of
from remit_server.dialects.a2a.types import (
    USER,
    A2aMessage,
    A2aPart,
    AskedMessage,
    Configuration,
    PushConfig,
    SendMessage,
)
from remit_server.dialects.claims import beyond, bounded, flat, refined

# A longer text is data.
_LONGEST_OBJECTIVE = 100_000

_PLACE = ("message", "metadata", EXTENSION)


# ── from a client ─────────────────────────────────────────────────────────────────────────────────────────────────────


def submission(message: AskedMessage, target: str, *, extended: bool, traceparent: str | None = None) -> Submission:
    """Return a client's message as a submission; *extended*: it uses the extension, whose content counts."""
    value = extension_content(message.metadata) if extended else None
    words = None if value is None else convert(value, RemitWords, _PLACE)
    number = None if words is None else count(words.input_part, (*_PLACE, "inputPart"))
    files = None if words is None else count(words.file_parts, (*_PLACE, "fileParts"))
    objective, given, files = _content(message.parts, number, files)
    parsed = Submission(
        target=target,
        id=message.message_id,
        session=message.context_id or None,
        objective=objective,
        input=given,
        files=files,
        traceparent=None if traceparent is None else traceparent[:55],
    )
    if words is None:
        return parsed
    parsed = within(words, parsed, _PLACE)
    return bounded(refined(parsed, claims_of(words.rest, _PLACE), _PLACE, _sayable), parsed)


def _content(
    parts: tuple[A2aPart, ...], number: int | None, file_parts: int | None = None
) -> tuple[str, Json, tuple[File, ...]]:
    """Return objective, input and files in the parts of a message; *number* says which part is the input."""
    if number is not None:
        chosen = content_of(parts[number : number + 1])
        objective, rest, files = _content((*parts[:number], *parts[number + 1 :]), None, file_parts)
        contents = [*chosen.texts, *chosen.values]
        return objective, contents[0] if rest is None and contents else rest, (*chosen.files, *files)
    content = content_of(parts, file_parts)
    text, values, files = BREAK.join(content.texts), content.values, tuple(content.files)
    given = None if not values else values[0] if len(values) == 1 else values
    if len(text) <= _LONGEST_OBJECTIVE:
        return text, given, files
    if values:
        why = f"the text has more than {_LONGEST_OBJECTIVE} characters, and there is data, too: send one of them"
        raise Declined(Error.INVALID_PARAMS, why, fields={"message.parts": why})
    return "", text, files


class _Sayable(Struct, frozen=True, kw_only=True):
    """A request as far as A2A and the extension can express it."""

    id: str | None
    session: str | None
    text: str
    data: Json
    files: tuple[File, ...]
    remit: RemitWords


def _sayable(meant: Submission) -> _Sayable:
    is_text = isinstance(meant.input, str)
    text = BREAK.join(filter(None, (meant.objective, meant.input if is_text else "")))
    return _Sayable(
        id=meant.id,
        session=meant.session,
        text=text,
        data=None if is_text else meant.input,
        files=meant.files,
        remit=remit_words(meant),
    )


# What follows a client's message id: a digest of the message, and a number if it came again.
_MARK = re.compile(r"~[0-9a-f]{16}(\.\d{1,9})?\Z")
_LONGEST_ID = 170


def unique_id(message: AskedMessage, agent: str) -> str:
    """Return the id of the request that a message makes: its own, with a digest of what it says, to whom and where."""
    content = encode((agent, message.task_id, message.context_id, message.parts, message.metadata))
    return f"{message.message_id[:_LONGEST_ID]}~{sha256(content).hexdigest()[:16]}"


def message_of(request: Request, *, task: str, context: str) -> A2aMessage:
    """Return the request of a run as a message in the history of its task."""
    return A2aMessage(
        message_id=_MARK.sub("", request.id),
        context_id=context,
        task_id=task,
        role=USER,
        parts=_parts(request),
    )


# ── to a peer ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def send(
    request: Request,
    *,
    extended: bool,
    context: str = "",
    task: str = "",
    at_once: bool = False,
    push: PushConfig | None = None,
) -> SendMessage:
    """Return the message for a peer.

    With *at_once* it should answer with the current state of the task, not its end; it notifies *push* about the task.
    """
    parts = _parts(request)
    if not extended and (beside := _background(request.view, request.handoff)) is not None:
        parts = (beside, *parts)
    message = AskedMessage(
        message_id=request.id,
        context_id=context,
        task_id=task,
        role="ROLE_USER",
        parts=parts,
    )
    if extended:
        message = replace(message, extensions=(EXTENSION,), metadata=_extended(request, message))
    return SendMessage(
        message=message, configuration=Configuration(return_immediately=at_once, task_push_notification_config=push)
    )


def _extended(request: Request, message: AskedMessage) -> dict[str, Json]:
    meant = flat(request)
    files = len(request.files)
    number = str(len(message.parts) - files - 1) if isinstance(request.input, str) else None
    words = replace(remit_words(meant), input_part=number, file_parts=str(files) if files else None)
    first = replace(message, metadata={EXTENSION: as_metadata(words)})
    parsed = submission(first, request.target, extended=True, traceparent=request.traceparent)
    # The conversation is the one that the message names.
    lost = beyond(replace(meant, session=parsed.session), parsed)
    return {EXTENSION: as_metadata(replace(words, rest=encode(lost).decode() if lost else ""))}


def _parts(request: Request) -> tuple[A2aPart, ...]:
    objective_parts = (A2aPart(text=request.objective),) if request.objective else ()
    input_parts = () if request.input is None else (part_of(request.input),)
    # A message has at least one part.
    return (*objective_parts, *input_parts, *map(file_part, request.files)) or (A2aPart(text=""),)


def _background(view: View | None, handoff: Handoff | None) -> A2aPart | None:
    """Return the visible context as a text, for a peer without the extension."""
    paragraphs: list[str] = []
    if view is not None:
        if view.known:
            paragraphs.append("\n".join(("[Known]", *(f"- {note.text}" for note in view.known))))
        if view.summary:
            paragraphs.append(f"[Conversation summary]\n{view.summary}")
        if view.messages:
            lines = (f"{message.name or message.role}: {message.text}" for message in view.messages)
            paragraphs.append("\n".join(("[Conversation]", *lines)))
        if view.workspace:
            paragraphs.append(f"[Workspace]\n{view.workspace}")
    if handoff is not None and handoff != Handoff():
        paragraphs.append(f"[Handed over]\n{text_of(handoff)}")
    return A2aPart(text=BREAK.join(paragraphs)) if paragraphs else None
