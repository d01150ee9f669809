"""Responses: our responses as A2A tasks, and a run's records as events of a stream."""

from collections.abc import Collection, Iterable

from msgspec import Struct
from msgspec.structs import replace

from remit.protocol.codec import encode, text_of
from remit.protocol.envelope import Response
from remit.protocol.errors import Fault
from remit.protocol.lifecycle import Status
from remit.protocol.records import Approval, Delta, Progress, Record, outcome_in
from remit.words.failures import plain_failure
from remit.words.names import without_names
from remit_server.dialects.a2a.errors import (
    EXTENSION,
    OWN_DOMAIN,
    RESULT,
    TASKLESS,
    OutcomeWords,
    as_metadata,
    usage_words,
)
from remit_server.dialects.a2a.parts import ANY, AcceptedContent, artifact_of, file_artifacts, part_of
from remit_server.dialects.a2a.translator import outcome
from remit_server.dialects.a2a.types import (
    AGENT,
    A2aArtifact,
    A2aMessage,
    A2aPart,
    ArtifactUpdate,
    Metadata,
    StatusUpdate,
    StreamResponse,
    Task,
    TaskState,
    TaskStatus,
    timestamp,
)
from remit_server.dialects.claims import beyond
from remit_server.dialects.exchange import sentence, settled

MESSAGE = "a2a.message"
"""The key of an answer's metadata with which an agent says that its answer is a message, and not a task."""

_STATES = {
    Status.SUCCESS: TaskState.COMPLETED,
    Status.PARTIAL: TaskState.COMPLETED,
    Status.FAILED: TaskState.FAILED,
    Status.TIMEOUT: TaskState.FAILED,
    Status.REFUSED: TaskState.REJECTED,
    Status.CANCELLED: TaskState.CANCELED,
}


class TaskPresentation(Struct, frozen=True, kw_only=True):
    """Which task is presented, to whom, and how."""

    task: str
    context: str
    extended: bool = False
    """Whether the client uses the extension."""
    taste: AcceptedContent = ANY


def state_of(response: Response) -> TaskState:
    """Return the task state of an outcome."""
    if response.ok and response.requires_followup:
        return TaskState.INPUT_REQUIRED
    return _STATES[response.status]


def declines(response: Response) -> Fault | None:
    """Return why a request has no task, if so: it was refused, and may be sent again or corrected."""
    why = response.fault
    return why if why is not None and response.status is Status.REFUSED and why.code in TASKLESS else None


# ── tasks ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def ended_task(telling: TaskPresentation, response: Response, at_ms: int, history: tuple[A2aMessage, ...] = ()) -> Task:
    """Return the task of a run that has ended."""
    status, artifacts = _end(telling, response, at_ms)
    return Task(id=telling.task, context_id=telling.context, status=status, artifacts=artifacts, history=history)


def bare_message(telling: TaskPresentation, response: Response) -> A2aMessage | None:
    """Return an answer as a message without a task, if its agent says so; hubs always get the task."""
    if telling.extended or response.status is not Status.SUCCESS or response.metadata.get(MESSAGE) is not True:
        return None
    parts = [part for artifact in _artifacts(telling, response, TaskState.COMPLETED) for part in artifact.parts]
    return A2aMessage(
        message_id=f"{telling.task}-answer",
        context_id=telling.context,
        role=AGENT,
        parts=tuple(parts) or (A2aPart(text=response.summary),),
    )


def under_way(
    telling: TaskPresentation, state: TaskState, at_ms: int, *, says: str = "", history: tuple[A2aMessage, ...] = ()
) -> Task:
    """Return a task that has not ended; *says* is the message of its status."""
    return Task(
        id=telling.task, context_id=telling.context, status=_status(telling, state, at_ms, says), history=history
    )


def _status(
    telling: TaskPresentation, state: TaskState, at_ms: int, says: str = "", metadata: Metadata | None = None
) -> TaskStatus:
    message = None
    if says or metadata:
        message = A2aMessage(
            message_id=f"{telling.task}-{at_ms}",
            context_id=telling.context,
            task_id=telling.task,
            role=AGENT,
            parts=(A2aPart(text=says),),
            metadata=metadata,
            extensions=(EXTENSION,) if metadata and EXTENSION in metadata else (),
        )
    return TaskStatus(state=state, message=message, timestamp=timestamp(at_ms))


def _end(telling: TaskPresentation, response: Response, at_ms: int) -> tuple[TaskStatus, tuple[A2aArtifact, ...]]:
    response = settled(response)
    state = state_of(response)
    artifacts = _artifacts(telling, response, state)
    says = _status_text(response, state)
    if not telling.extended:
        return _status(telling, state, at_ms, says, _fault_metadata(response.fault)), artifacts
    # The extension's content is at the result; without one, at the status message.
    words = OutcomeWords(usage=usage_words(response.usage))
    at_result = bool(artifacts) and artifacts[0].artifact_id == RESULT
    first = Task(
        id=telling.task,
        status=_status(telling, state, at_ms, says, None if at_result else {EXTENSION: as_metadata(words)}),
        artifacts=_marked(artifacts, words) if at_result else artifacts,
    )
    lost = beyond(response, outcome(first, response.id, response.target))
    words = replace(words, rest=encode(lost).decode() if lost else "")
    if at_result:
        return _status(telling, state, at_ms, says), _marked(artifacts, words)
    return _status(telling, state, at_ms, says, {EXTENSION: as_metadata(words)}), artifacts


def _fault_metadata(why: Fault | None) -> Metadata | None:
    """Return why a task failed, for programs: the status message is for users."""
    return None if why is None else {OWN_DOMAIN: {"code": why.code, "message": sentence(why)}}


def _artifacts(telling: TaskPresentation, response: Response, state: TaskState) -> tuple[A2aArtifact, ...]:
    artifacts: list[A2aArtifact] = []
    # A question is a message and not a result. A failed task has no artifact, unless there is content for it.
    if state is not TaskState.INPUT_REQUIRED and (response.result is not None or (telling.extended and response.ok)):
        artifacts.append(A2aArtifact(artifact_id=RESULT, name=RESULT, parts=(part_of(response.result, telling.taste),)))
    artifacts += [artifact_of(each, number, telling.taste) for number, each in enumerate(response.artifacts, start=1)]
    artifacts += file_artifacts(response.files, telling.taste)
    return tuple(artifacts)


def _marked(artifacts: tuple[A2aArtifact, ...], words: OutcomeWords) -> tuple[A2aArtifact, ...]:
    first, *others = artifacts
    return (replace(first, metadata={EXTENSION: as_metadata(words)}, extensions=(EXTENSION,)), *others)


def _status_text(response: Response, state: TaskState) -> str:
    if response.fault is not None:
        # A2A clients show the status message to their users; programs read the fault in its metadata.
        return response.summary or plain_failure(response.fault)
    if state is TaskState.INPUT_REQUIRED:
        return response.result if isinstance(response.result, str) else response.summary or text_of(response.result)
    return response.summary


def progress_text(progress: Progress, run: str, hidden: Collection[str]) -> str:
    """Return a progress report in a run as clients read it: only the called agent may use the *hidden* names."""
    return progress.text if progress.delegation == run else without_names(progress.text, hidden)


# ── streams ───────────────────────────────────────────────────────────────────────────────────────────────────────────


class Stream:
    """The events of one stream: a run's records in A2A. The first is always a task."""

    def __init__(self, telling: TaskPresentation, run: str, hidden: Collection[str] = ()) -> None:
        self._telling = telling
        self._run = run
        self._hidden = hidden
        """The names of agents and capabilities that progress of other agents than the called one must not show."""
        self._begun = False
        """Whether a part of the result has been streamed."""
        self.ended = False

    def of(self, records: Iterable[Record]) -> list[StreamResponse]:
        """Return the events of some records."""
        return [event for record in records for event in self._events_of(record)]

    def _events_of(self, record: Record) -> Iterable[StreamResponse]:
        match record.body:
            case Progress() as progress if progress.text:
                report = progress_text(progress, self._run, self._hidden)
                yield self._stands(TaskState.WORKING, record.at_ms, report)
            case Delta(text=text, delegation=delegation) if delegation == self._run:
                yield self._piece(text)
            case Approval(agreed=None, question=question):
                yield self._stands(TaskState.AUTH_REQUIRED, record.at_ms, question)
            case Approval():
                yield self._stands(TaskState.WORKING, record.at_ms)
            case body if (outcome := outcome_in(self._run, body)) is not None:
                yield from self._end(outcome, record.at_ms)
            case _:
                pass

    def _end(self, response: Response, at_ms: int) -> Iterable[StreamResponse]:
        self.ended = True
        status, artifacts = _end(self._telling, response, at_ms)
        for artifact in artifacts:
            # The whole result replaces its pieces: an agent may answer differently from how it began.
            yield self._addressed(ArtifactUpdate(artifact=artifact, last_chunk=True))
        yield self._addressed(StatusUpdate(status=status))

    def _piece(self, text: str) -> StreamResponse:
        artifact = A2aArtifact(artifact_id=RESULT, name="" if self._begun else RESULT, parts=(A2aPart(text=text),))
        update = ArtifactUpdate(artifact=artifact, append=self._begun)
        self._begun = True
        return self._addressed(update)

    def _stands(self, state: TaskState, at_ms: int, says: str = "") -> StreamResponse:
        return self._addressed(StatusUpdate(status=_status(self._telling, state, at_ms, says)))

    def _addressed(self, update: StatusUpdate | ArtifactUpdate) -> StreamResponse:
        telling = self._telling
        update = replace(update, task_id=telling.task, context_id=telling.context)
        if isinstance(update, StatusUpdate):
            return StreamResponse(status_update=update)
        return StreamResponse(artifact_update=update)
