"""The A2A dialect as transports use it: bytes in, bytes out, and a peer's replies as a response of ours."""

from collections.abc import Collection, Generator, Mapping
from contextlib import contextmanager
from typing import NamedTuple, cast

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from remit.policy.budget import estimate
from remit.protocol.codec import encode, text_of
from remit.protocol.envelope import VERSION as REMIT_VERSION
from remit.protocol.envelope import Json, Request, Response, Usage
from remit.protocol.errors import Code, Fault, RemitError, fault
from remit.protocol.generous import MAX_WARNINGS, parse, read_generously, with_warnings
from remit.protocol.lifecycle import Status
from remit_server.dialects.a2a.card import choose, is_signed_by, read_card
from remit_server.dialects.a2a.errors import (
    EXTENSION,
    OWN_DOMAIN,
    RESULT,
    Detail,
    OutcomeWords,
    PeerError,
    claims_of,
    extension_content,
    fault_from_error,
    usage_of,
)
from remit_server.dialects.a2a.parts import beside, merged, result_of, text_in
from remit_server.dialects.a2a.requests import send
from remit_server.dialects.a2a.types import (
    ENDED,
    EXTENSIONS_HEADER,
    VERSION,
    VERSION_HEADER,
    A2aArtifact,
    A2aMessage,
    ArtifactUpdate,
    Binding,
    Metadata,
    PushConfig,
    StatusUpdate,
    StreamResponse,
    Task,
    TaskState,
    TaskStatus,
    event_of,
    extensions_of,
    plain,
)
from remit_server.dialects.claims import refined_answer
from remit_server.transports.credentials.keys import is_signed

# As often a task is looked at that does not change in a state that is unknown: some seconds.
_MOST_UNCHANGED = 5
# More than an answer has; a peer that sends more is at fault.
_MOST_ARTIFACTS = 1_000

_STATUSES: Mapping[str, Status] = {
    TaskState.COMPLETED: Status.SUCCESS,
    TaskState.INPUT_REQUIRED: Status.SUCCESS,
    TaskState.FAILED: Status.FAILED,
    TaskState.CANCELED: Status.CANCELLED,
    TaskState.REJECTED: Status.REFUSED,
}
_CONTENT = (Status.SUCCESS, Status.PARTIAL)
_UNDER_WAY = (TaskState.SUBMITTED, TaskState.WORKING, TaskState.AUTH_REQUIRED)
_CODES = {
    Status.FAILED: Code.DELEGATION_FAILED,
    Status.CANCELLED: Code.CANCELLED,
    Status.REFUSED: Code.PERMISSION_DENIED,
}


def outcome(task: Task, id: str, target: str) -> Response:
    """Return the outcome of a task as the response to the request *id*; raise a `RemitError` if it has none."""
    warnings = list[str]()
    status = _STATUSES.get(task.status.state)
    if status is None:
        if task.status.state in _UNDER_WAY or not task.artifacts:
            raise _unusable(target, f"a task in the state {task.status.state[:100]!r} as its end")
        status = Status.PARTIAL
        warnings.append(f"The state {task.status.state[:100]!r} of the task is unknown: it may be incomplete.")
    asks, says = task.status.state == TaskState.INPUT_REQUIRED, text_in(task.status.message)
    words, place = _words(task, warnings)
    if asks and says:
        # A question is a message and not a result: artifacts that came with it stay artifacts.
        content = beside(task.artifacts, says)
    elif place and not any(each.artifact_id == RESULT for each in task.artifacts[:1]):
        # A peer with the extension names its result; there is none.
        content = beside(task.artifacts)
    elif status is Status.SUCCESS and not task.artifacts and task.status.message is not None:
        # An agent that has nothing to hand over answers in the message of its status.
        content = result_of((A2aArtifact(parts=task.status.message.parts),))
        says = ""
    else:
        content = result_of(task.artifacts)
    try:
        usage = usage_of(words.usage, (*place, "usage")) or Usage(estimated=True)
        claims = claims_of(words.rest, place)
    except RemitError as error:
        usage, claims = Usage(estimated=True), dict[str, Json]()
        warnings.append(f"What the extension says was left out: {error.fault.message}")
    response = Response(
        version=REMIT_VERSION,
        id=id,
        target=target,
        status=status,
        result=content.result,
        summary="" if status not in _CONTENT or asks else says,
        artifacts=content.artifacts,
        files=content.files,
        warnings=(*warnings, *content.warnings),
        usage=usage,
        requires_followup=asks,
        fault=None if status in _CONTENT else fault(_CODES[status], _why(task, says) or f"{target} gave no reason"),
    )
    return refined_answer(response, claims, place, _sayable)


def _why(task: Task, says: str) -> str:
    """Return why a task failed: a hub without the extension has that in the metadata of the message for users."""
    own_metadata = (task.status.message.metadata or {}).get(OWN_DOMAIN) if task.status.message is not None else None
    message = cast("dict[str, Json]", own_metadata).get("message") if isinstance(own_metadata, dict) else None
    return message if isinstance(message, str) else says


def _words(task: Task, warnings: list[str]) -> tuple[OutcomeWords, tuple[str | int, ...]]:
    """Return the content of the extension, and where it is; nothing, if the peer does not use it."""
    message = task.status.message
    places: list[tuple[Metadata | None, tuple[str | int, ...]]] = [
        (artifact.metadata, ("artifacts", number)) for number, artifact in enumerate(task.artifacts)
    ]
    places.append((message.metadata if message is not None else None, ("status", "message")))
    for metadata, place in places:
        if (value := extension_content(metadata)) is not None:
            place = (*place, "metadata", EXTENSION)
            try:
                words, more = read_generously(value, OutcomeWords, place=place)
            except RemitError as error:
                words, more = OutcomeWords(), (error.fault.message,)
            warnings += more
            return words, place
    return OutcomeWords(), ()


class _Sayable(Struct, frozen=True, kw_only=True):
    """An outcome as far as A2A and the extension can express it."""

    state: str
    result: Json
    usage: Usage


def _sayable(meant: Response) -> _Sayable:
    states = {status: state for state, status in _STATUSES.items() if state != TaskState.INPUT_REQUIRED}
    states |= {Status.PARTIAL: TaskState.COMPLETED, Status.TIMEOUT: TaskState.FAILED}
    if meant.ok and meant.requires_followup:
        return _Sayable(state=TaskState.INPUT_REQUIRED, result=None, usage=meant.usage)
    # If the client accepts only text, the result is a text, whatever it was.
    return _Sayable(state=states[meant.status], result=text_of(meant.result), usage=meant.usage)


def _unusable(target: str, what: str) -> RemitError:
    return RemitError(fault(Code.RESULT_VALIDATION_FAILED, f"{target} sent {what}"))


# ── step by step ──────────────────────────────────────────────────────────────────────────────────────────────────────


class TaskUpdate(NamedTuple):
    """An update of a task that can be forwarded."""

    piece: str = ""
    """A piece of the answer."""
    progress: str = ""


class A2aTaskExchange:
    """The messages about one request: the one to send, and the state of its task from all that the peer has sent."""

    def __init__(self, request: Request, *, extended: bool = False, push: PushConfig | None = None) -> None:
        self._request = request
        self._extended = extended
        self._push = push
        self._artifacts: dict[str, A2aArtifact] = {}
        self._status = TaskStatus()
        self._message: A2aMessage | None = None
        self._warnings: list[str] = []
        self._unchanged = 0
        """How often in a row the task was in the same state that is unknown."""
        self.task = ""
        """The peer's task id; empty until it has sent it."""
        self.context = ""
        """The peer's context id."""

    @property
    def state(self) -> str:
        """The state of the task."""
        return TaskState.COMPLETED if self._message is not None else self._status.state

    @property
    def asks(self) -> bool:
        """Whether it ended with a question to the user."""
        return self.state == TaskState.INPUT_REQUIRED

    @property
    def ended(self) -> bool:
        """Whether there is nothing more to wait for: it has ended, or waits for the user."""
        return self.state in ENDED or self.asks or self._unchanged >= _MOST_UNCHANGED

    @property
    def waits(self) -> bool:
        """Whether a person is asked there."""
        return self.state == TaskState.AUTH_REQUIRED

    @property
    def question(self) -> str:
        """The message of its status, which is the question to the person."""
        return text_in(self._status.message)

    def message(self, *, context: str, task: str, tenant: str, at_once: bool) -> bytes:
        """Return the message to send; *at_once*: the peer should answer with the current state of the task."""
        message = send(
            self._request, extended=self._extended, context=context, task=task, at_once=at_once, push=self._push
        )
        return encode(replace(message, tenant=tenant))

    def hear(self, raw: bytes, *, is_task: bool = False) -> TaskUpdate:
        """Process an answer or an event, and return what is new for readers; raise a `RemitError` if it is invalid."""
        with self._blaming("an invalid"):
            # The reader has already limited the size of an answer.
            value, warnings = parse(raw, max_bytes=len(raw))
            event = plain(event_of(value, is_task=is_task), StreamResponse)
            answer, more = read_generously(event, StreamResponse)
        update = self.take(answer)
        self.warn(*warnings, *more)
        return update

    def warn(self, *warnings: str) -> None:
        """Add warnings to the response."""
        self._warnings += (each for each in warnings[:MAX_WARNINGS] if each not in self._warnings)
        del self._warnings[MAX_WARNINGS:]

    @contextmanager
    def _blaming(self, what: str) -> Generator[None]:
        """Raise an error as one of the peer, which sent *what* answer."""
        try:
            yield
        except RemitError as error:
            why = f"{self._request.target} sent {what} answer: {error.fault.message}"
            raise RemitError(fault(Code.RESULT_VALIDATION_FAILED, why, problems=error.fault.problems)) from error

    def take(self, answer: StreamResponse) -> TaskUpdate:
        """Process an answer of the server, and return what is new for readers."""
        if answer.message is not None:
            self._message, self.context = answer.message, answer.message.context_id
        elif answer.task is not None:
            self._whole(answer.task)
        elif answer.status_update is not None:
            return self._stands(answer.status_update)
        elif answer.artifact_update is not None:
            return self._comes(answer.artifact_update)
        else:
            raise _unusable(self._request.target, "an answer that is neither a task nor a message nor an event")
        return TaskUpdate()

    def _whole(self, task: Task) -> None:
        if self.task and task.id not in ("", self.task):
            raise _unusable(self._request.target, "an answer about another task")
        self.task, self.context = task.id or self.task, task.context_id or self.context
        artifacts = {
            each.artifact_id or f"#{number}": each for number, each in enumerate(task.artifacts[:_MOST_ARTIFACTS])
        }
        # A peer in a state of its own may have ended: what does not change any more is taken as it is.
        is_unknown = bool(artifacts) and task.status.state not in _STATUSES and task.status.state not in _UNDER_WAY
        is_same = task.status.state == self._status.state and artifacts == self._artifacts
        self._unchanged = self._unchanged + 1 if is_unknown and is_same else 0
        self._status, self._artifacts = task.status, artifacts or self._artifacts

    def _stands(self, update: StatusUpdate) -> TaskUpdate:
        self._same(update.task_id, update.context_id)
        self._status = update.status
        working = update.status.state in (TaskState.WORKING, TaskState.SUBMITTED)
        return TaskUpdate(progress=text_in(update.status.message) if working else "")

    def _comes(self, update: ArtifactUpdate) -> TaskUpdate:
        self._same(update.task_id, update.context_id)
        new = update.artifact
        if not new.artifact_id:  # it continues the newest one, or is another
            newest = next(reversed(self._artifacts), "") if update.append else ""
            new = replace(new, artifact_id=newest or f"#{len(self._artifacts)}")
        old = self._artifacts.get(new.artifact_id)
        if update.append and old is not None:
            new = replace(new, parts=merged(old.parts, new.parts), name=new.name or old.name)
        elif old is None and len(self._artifacts) >= _MOST_ARTIFACTS:
            raise _unusable(self._request.target, f"more than {_MOST_ARTIFACTS} artifacts")
        self._artifacts[new.artifact_id] = new
        whole = update.last_chunk and not update.append
        return TaskUpdate(piece="" if whole else "".join(part.text or "" for part in update.artifact.parts))

    def _same(self, task: str, context: str) -> None:
        if self.task and task and task != self.task:
            raise _unusable(self._request.target, "an event of another task")
        self.task, self.context = self.task or task, self.context or context

    def size(self) -> int:
        """Return about how much content has arrived so far."""
        return sum(len(part.text or part.raw or "") for each in self._artifacts.values() for part in each.parts)

    def response(self) -> Response:
        """Return the outcome; usage that a peer does not state is estimated."""
        request = self._request
        if self._message is not None:
            answer = A2aArtifact(artifact_id=RESULT, parts=self._message.parts, metadata=self._message.metadata)
            task = Task(id=self.task, status=TaskStatus(state=TaskState.COMPLETED), artifacts=(answer,))
        else:
            task = Task(id=self.task, status=self._status, artifacts=tuple(self._artifacts.values()))
        with self._blaming("an unusable"):
            response = with_warnings(outcome(task, request.id, request.target), tuple(self._warnings))
        if response.usage != Usage(estimated=True):
            return response
        prompt = estimate(request.objective) + estimate(request.input)
        usage = Usage(prompt=prompt, completion=estimate(response.result), estimated=True)
        return replace(response, usage=usage)


class A2aEndpoint(NamedTuple):
    """How an agent can be called, by its card."""

    url: str
    binding: Binding
    tenant: str
    streams: bool
    extended: bool
    """Whether it supports the extension that carries a remit."""
    headers: dict[str, str]
    """The headers of every request, or its metadata over gRPC."""


class A2aTranslator:
    """A2A 1.0.

    Agents are called in *binding* alone if it is given, and without *streaming* never as a stream. They notify *push*
    about their tasks.
    """

    def __init__(
        self, *, binding: Binding | None = None, streaming: bool = True, push: PushConfig | None = None
    ) -> None:
        self._binding: Binding | None = binding
        self._streaming = streaming
        self._push = push

    def offer(self, card: bytes, url: str, keys: Collection[str]) -> A2aEndpoint:
        """Return how an agent can be called; raise a `RemitError` if its card is unusable, or not signed with a key."""
        known = read_card(card, url)
        if keys and not is_signed_by(card, {key: key for key in keys}, is_signed):
            why = "the agent card is not signed with a trusted key"
            how = "Compare the trusted keys with those that its owner publishes."
            raise RemitError(fault(Code.PERMISSION_DENIED, why, suggestion=how, detail=url))
        chosen = choose(known, url, self._binding)
        headers = {VERSION_HEADER: VERSION}
        if known.extended:
            headers[EXTENSIONS_HEADER] = EXTENSION
        return A2aEndpoint(
            url=chosen.url,
            binding=cast("Binding", chosen.protocol_binding),
            tenant=chosen.tenant,
            streams=self._streaming and bool(known.capabilities.streaming),
            extended=known.extended,
            headers=headers,
        )

    def talk(self, request: Request, *, extended: bool) -> A2aTaskExchange:
        """Return the messages about a request."""
        return A2aTaskExchange(request, extended=extended, push=self._push)

    def fault(self, status: int, raw: bytes, peer: str) -> Fault:
        """Return a peer's error as a fault; *status* is the HTTP status."""
        try:
            error = msgspec.json.decode(raw, type=PeerError)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            error = PeerError()
        return fault_from_error(error.code, error.message, _details(error.data or error.details), peer, status)

    def is_echoed(self, headers: str) -> bool:
        """Return whether a peer confirms the extension in its headers."""
        return EXTENSION in extensions_of({EXTENSIONS_HEADER: headers})


def _details(value: Json) -> tuple[Detail, ...]:
    """Return the details of an error that are understood; others are omitted."""
    details: list[Detail] = []
    for each in cast("list[Json]", value)[:100] if isinstance(value, list) else ():
        try:
            details.append(msgspec.convert(each, Detail))
        except msgspec.ValidationError:
            continue
    return tuple(details)


TONGUE = A2aTranslator()
