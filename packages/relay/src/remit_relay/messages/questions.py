"""Convert questions of other devices to hub requests, and results to messages and audit entries."""

import re
from collections.abc import Iterable
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path

from msgspec import Struct, ValidationError, convert, structs

from remit.policy.reception import Sender
from remit.protocol.codec import text_of
from remit.protocol.envelope import Answer, AnswerContent, Artifact, Json, Response, fields_of
from remit.protocol.errors import Fault, RemitError
from remit.protocol.records import SharedStep
from remit.protocol.submission import Submission
from remit.protocol.trace import TraceContext, span_id, trace_id
from remit.words.file_types import guessed
from remit_relay.e2e.channel import MessageCipher, Opened
from remit_relay.e2e.inbox import MAX_INBOX
from remit_relay.messages import audit, types
from remit_relay.messages.audit import AuditEntry
from remit_relay.messages.types import AnswerMessage, DeclineMessage, QuestionMessage
from remit_relay.session.profile import MAX_FILES, AttachedFile, FileRules, refused_file

# The longest name and objective of the envelope (`protocol/remit.py`, `protocol/envelope.py`); of a longer text this
# much is used as the objective.
MOST_NAME = 200
MOST_OBJECTIVE = 100_000
SHORTENED = 1_000

_ID = re.compile(r"[\w.-]{1,64}", re.ASCII)


def request_id(name: str) -> str:
    """Return the request id of the hub for a question id *name*; equal names give equal ids."""
    return blake2b(name.encode(), digest_size=16).hexdigest()


def request_ids(sealer: MessageCipher) -> set[str]:
    """Return the request ids of all questions in the inbox."""
    ids: set[str] = set()
    for opened in sealer.inbox(limit=MAX_INBOX):
        with suppress(RemitError):
            message = types.decode_message(opened.body)
            if isinstance(message, QuestionMessage):
                ids.add(request_id(message.id))
    return ids


def fitting(text: str, most: int) -> str:
    """Return a name of at most *most* characters, different for different texts."""
    return text if len(text) <= most else f"{text[: most - 33]}~{request_id(text)}"


# ── to the hub ────────────────────────────────────────────────────────────────────────────────────────────────────────


def submission(opened: Opened, question: QuestionMessage, agent: str, folder: Path | None = None) -> Submission:
    """Return a question as a submission to the hub; its files are in *folder*."""
    trace = trace_id(question.control.trace_id)
    request = question.request or _in_words(question.text)
    if folder is not None:
        request = structs.replace(request, input=_with_files(question.text, question.files, folder))
    return structs.replace(
        request,
        target=agent,
        id=request_id(question.id),
        user=_user(opened),
        # Conversations of different devices stay separate, whatever their names are.
        session=fitting(f"{opened.sender}/{question.session}", MOST_NAME),
        files=(),  # files of other devices come with the message, by the rules of the shared agent
        depth=max(request.depth, question.control.hop_count - 1),
        traceparent=str(TraceContext(trace, span_id(question.id), sampled=True)),
    )


def sender(opened: Opened, agent: str) -> Sender:
    """Return the sender of a request, and the agent that it may reach."""
    return Sender(name=opened.sender, users=frozenset({_user(opened)}), targets=frozenset({agent}))


def _user(opened: Opened) -> str:
    """Return the user of a request: the device id first, because only that is proven."""
    return fitting(f"{opened.sender}/{opened.requester}", MOST_NAME) if opened.requester else opened.sender


def _in_words(text: str) -> Submission:
    """Return the text of a person's run as a submission; a text too long for an objective becomes the input."""
    if len(text) <= MOST_OBJECTIVE:
        return Submission(target="-", objective=text)
    return Submission(target="-", objective=text[:SHORTENED], input=text)


def _with_files(text: str, files: Iterable[AttachedFile], folder: Path) -> Json:
    """Return the input of a request with files: the message, and where each file is, and what it is."""
    listed = [
        {"name": each.name, "media_type": each.media_type, "size": len(each.data), "path": str(folder / each.name)}
        for each in files
    ]
    return {"message": text, "attachments": listed}


# ── to the device ─────────────────────────────────────────────────────────────────────────────────────────────────────


def answered(question: QuestionMessage, response: Response) -> AnswerMessage:
    """Return the answer of an agent: complete for a hub, as text for a person's run."""
    tokens = response.usage.total
    if question.request is None:
        text = text_of(response.result) or response.summary
        return AnswerMessage(
            to=question.id, session=question.session, text=text, tokens=tokens, files=files_in(response)
        )
    answer = structs.replace(
        Answer(**fields_of(AnswerContent, response)),
        sources=(),  # they name users of this hub, whom the other does not know
        warnings=(*response.warnings, *([_NO_FILES] if response.files else ())),
        files=(),
    )
    return AnswerMessage(to=question.id, session=question.session, text="", tokens=tokens, answer=answer)


def files_in(response: Response) -> tuple[AttachedFile, ...]:
    """Return the files of an answer, and its artifacts of type `file` that have a name and their bytes in base64."""
    attached = (_file(each) for each in response.artifacts if each.type == "file")
    files = (
        AttachedFile(name=each.name, media_type=each.media_type, data=each.data)
        for each in response.files
        if each.data is not None
    )
    return (*files, *(each for each in attached if each is not None))


_NO_FILES = "The files of the answer are not sent: hubs that ask a shared agent get none."


def _file(artifact: Artifact) -> AttachedFile | None:
    try:
        value = convert(artifact.value, _FileValue)
    except ValidationError:
        return None
    name = value.filename or artifact.label
    return AttachedFile(name=name, media_type=value.mediaType or guessed(name, value.raw), data=value.raw)


def with_allowed_files(message: AnswerMessage, rules: FileRules, name: str) -> AnswerMessage:
    """Return an answer without the files that its shared agent may not send; the text says which and why."""
    sent: list[AttachedFile] = []
    notes: list[str] = []
    for each in message.files[:MAX_FILES]:
        if (why := refused_file(rules, each, sent, who=f"the shared agent {name}")) is None:
            sent.append(each)
        else:
            notes.append(f"[Not sent: {why.message}]")
    text = "\n\n".join([message.text, *notes])
    return structs.replace(message, text=text, files=tuple(sent)) if message.files else message


class _FileValue(Struct):
    """A file in an artifact, as the A2A dialect writes it."""

    raw: bytes
    mediaType: str = ""
    filename: str = ""


def declined(question: QuestionMessage, why: Fault) -> DeclineMessage:
    """Return the message that declines a question."""
    return DeclineMessage(
        to=question.id, session=question.session, code=why.code.value, reason=why.outward().message[:2_000]
    )


# ── to the record ─────────────────────────────────────────────────────────────────────────────────────────────────────


def step_of(
    opened: Opened,
    question: QuestionMessage,
    event: str,
    code: str,
    now_ms: int,
    *,
    name: str = "",
    took_ms: int = 0,
    task: str = "",
    files: Iterable[AttachedFile] = (),
) -> AuditEntry:
    """Return the audit entry of an event of a question."""
    step = SharedStep(
        side="shares",
        profile=name,
        device=opened.sender,
        requester=audit.printable(opened.requester),
        event=event,
        active_ms=took_ms,
        origin=_id(question.control.origin_agent_device_id),
        hops=question.control.hop_count,
        task=task,
        code=code,
        files=audit.file_notes(files),
    )
    # With the device id in front it cannot equal the id of a run of the hub.
    run = f"{opened.sender}/{_id(question.control.trace_id)}"
    return AuditEntry(at_ms=now_ms, run=run, session=run, step=step)


def _id(text: str) -> str:
    """Return an id of another device if it has the form of one, else a digest: its texts are not recorded."""
    return text if _ID.fullmatch(text) else request_id(text)


def decline(sealer: MessageCipher, opened: Opened, question: QuestionMessage, why: Fault, now_ms: int) -> None:
    """Decline a question with a reason, and delete it."""
    with sealer.device.state.writing():
        sealer.seal(opened.sender, types.write(declined(question, why)))
        sealer.taken(opened.id)
        audit.keep(sealer.device.state, step_of(opened, question, "declined", why.code.value, now_ms))
