"""The state of A2A tasks, read from the record. A task is a run, or several runs of one conversation.

A run that ended with a question to its user is a task that requires input. The message that answers it is a run of its
own, in the same session; its correlation id names the task that it continues. If the task is cancelled instead, a
notice after its end says so.
"""

from msgspec import Struct
from msgspec.structs import replace

from remit.policy.reception import Sender, there
from remit.ports import RecordFilter, RunState, RunSummary
from remit.protocol.envelope import VERSION, Response
from remit.protocol.errors import Code, RemitError
from remit.protocol.records import Kind, Progress, Refusal
from remit.protocol.submission import Submission
from remit.words.names import hidden_names
from remit_server.access import asked_for, may_see, visible
from remit_server.bodies import Headers, Receive
from remit_server.delegations import Delegations
from remit_server.dialects.a2a.errors import Declined, Error
from remit_server.dialects.a2a.requests import message_of, unique_id
from remit_server.dialects.a2a.responses import TaskPresentation, ended_task, progress_text, state_of, under_way
from remit_server.dialects.a2a.types import (
    AGENT,
    ENDED,
    PAGE,
    A2aMessage,
    AskedMessage,
    ListTasks,
    Task,
    TaskList,
    TaskState,
    milliseconds,
)

_OF_TASK = "task:"
_REPORTS = frozenset({Kind.PROGRESS})


class A2aCall(Struct, frozen=True, kw_only=True):
    """One A2A request: who sends it, to which agent, and how."""

    sender: Sender
    agent: str
    headers: Headers
    extended: bool
    receive: Receive | None = None
    """Receives the disconnect of the client."""
    time_ms: int | None = None
    """How long the client waits for an answer, if the protocol says it."""

    def context(self, session: str) -> str:
        """Return the sender's name of a session: sessions of a hub are stored with the hub's name before its own."""
        return there(session, self.sender.name) if self.sender.is_hub else session

    def in_time(self, sent: Submission) -> Submission:
        """Return a submission that may take no longer than the client waits."""
        if self.time_ms is None or (sent.deadline_ms is not None and sent.deadline_ms <= self.time_ms):
            return sent
        return replace(sent, deadline_ms=self.time_ms)


class TaskRecord(Struct, frozen=True, kw_only=True):
    """A task and its state."""

    task: str
    runs: tuple[str, ...]
    """Its runs, in order; the last one is the current one."""
    user: str
    session: str
    own: bool
    """Whether its reader asked for it: only then it gets personal values in clear."""
    state: TaskState
    changed_ms: int
    sent: tuple[str, ...] = ()
    """The ids of the messages that continued it."""
    response: Response | None = None
    """The response, if it was refused: there is no other record of it."""
    says: str = ""

    @property
    def run(self) -> str:
        """The current run."""
        return self.runs[-1]

    @property
    def ended(self) -> bool:
        return self.state in ENDED


def continuation_of(task: str) -> str:
    """Return the correlation id of a run that continues a task."""
    return f"{_OF_TASK}{task}"


class TaskRecords:
    """The tasks of one server, as recorded."""

    def __init__(self, delegations: Delegations) -> None:
        self._delegations = delegations
        self._hub = delegations.hub

    # ── one ───────────────────────────────────────────────────────────────────────────────────────────────────────────

    async def find(self, call: A2aCall, task: str) -> TaskRecord:
        """Return a task by its id, or decline; a task that its sender may not see does not exist for it."""
        try:
            summary = await self._delegations.find(task, call.sender)
        except RemitError as error:
            if error.fault.code is not Code.NOT_FOUND:
                raise
            return await self._refused(call, task)
        if summary.agent != call.agent:
            raise no_task(task)
        if summary.response is None:
            return await self._under_way(call, summary)
        known = TaskRecord(
            task=summary.run,
            runs=(summary.run,),
            user=summary.user,
            session=summary.session,
            own=asked_for(call.sender, summary),
            state=state_of(summary.response),
            changed_ms=summary.changed_ms,
        )
        return await self._with_continuations(call, known) if known.state is TaskState.INPUT_REQUIRED else known

    async def id_for(self, call: A2aCall, message: AskedMessage) -> str:
        """Return the id of the request of a client's message.

        Clients repeat message ids: the same message is answered once, a different one under the same id is another
        request. The same message is a new one, too, once its first task was cancelled or continued, since its sender
        had the answer then.
        """
        first = id = unique_id(message, call.agent)
        number = 1
        while (summary := await self._known(call, id)) is not None and not message.task_id:
            record = await self.find(call, summary.run)
            if record.state is not TaskState.CANCELED and len(record.runs) == 1:
                break
            number += 1
            id = f"{first}.{number}"
        return id

    async def _known(self, call: A2aCall, id: str) -> RunSummary | None:
        try:
            return await self._delegations.find(id, call.sender)
        except RemitError as error:
            if error.fault.code is not Code.NOT_FOUND:
                raise
            return None

    async def _under_way(self, call: A2aCall, summary: RunSummary) -> TaskRecord:
        question = await self._question(summary.run)
        waits = bool(question) or summary.state == "waiting"
        return TaskRecord(
            task=summary.run,
            runs=(summary.run,),
            user=summary.user,
            session=summary.session,
            own=asked_for(call.sender, summary),
            state=TaskState.AUTH_REQUIRED if waits else TaskState.WORKING,
            changed_ms=summary.changed_ms,
            says=question,
        )

    async def _with_continuations(self, call: A2aCall, record: TaskRecord) -> TaskRecord:
        """Return a task that required input, with the runs that continued it."""
        rows = await self._hub.store.states(agent=call.agent, users=[record.user], session=record.session)
        for each in _joined(rows, frozenset(), call.sender):
            if each.task == record.task:
                question = await self._question(each.run) if each.state is TaskState.WORKING else ""
                return replace(each, state=TaskState.AUTH_REQUIRED, says=question) if question else each
        return record

    async def _question(self, run: str) -> str:
        """Return the question to a person in a run; empty if there is none."""
        return next((each.text for each in await self._hub.pending() if each.request.run == run), "")

    async def _report(self, run: str) -> tuple[str, int] | None:
        """Return the last progress report in a run as its client reads it, and when it was made."""
        page = await self._hub.store.listings.records(RecordFilter(run=run, kinds=_REPORTS), limit=1)
        for record in page.records:
            if isinstance(record.body, Progress):
                return progress_text(record.body, run, hidden_names(self._hub.cards.values())), record.at_ms
        return None

    async def _refused(self, call: A2aCall, task: str) -> TaskRecord:
        """Return a task that was refused, and has no other record."""
        for record in await self._hub.store.records(run=task, limit=1):
            if isinstance(record.body, Refusal):
                request, response = record.body.request, record.body.response
                summary = RunSummary(task, request.remit.user, request.target, "", 0, response, via=request.via or "")
                if request.parent is None and request.target == call.agent and may_see(call.sender, summary):
                    return TaskRecord(
                        task=task,
                        runs=(task,),
                        user=request.remit.user,
                        session=request.session or task,
                        own=asked_for(call.sender, summary),
                        state=state_of(response),
                        changed_ms=record.at_ms,
                        response=response,
                    )
        raise no_task(task)

    async def task(self, call: A2aCall, record: TaskRecord, length: int | None, *, artifacts: bool = True) -> Task:
        """Return a task as A2A defines it, with as much of its history as is wanted."""
        telling = self.telling(call, record)
        history = () if length == 0 else cut(await self.history(record, telling), length)
        response = record.response
        if response is None and (record.ended or record.state is TaskState.INPUT_REQUIRED):
            response = await self._hub.outcome(record.run, raw=record.own)
        if response is None or record.state is not state_of(response):
            says, at_ms = record.says, record.changed_ms
            if record.state is TaskState.CANCELED:
                says = "it was cancelled"
            elif record.state is TaskState.WORKING and (report := await self._report(record.run)) is not None:
                says, at_ms = report
            return under_way(telling, record.state, at_ms, says=says, history=history)
        task = ended_task(telling, response, record.changed_ms, history)
        return task if artifacts else replace(task, artifacts=())

    def telling(self, call: A2aCall, record: TaskRecord) -> TaskPresentation:
        """Return how a task is presented to the caller."""
        return TaskPresentation(task=record.task, context=call.context(record.session), extended=call.extended)

    async def history(
        self, record: TaskRecord, telling: TaskPresentation, *, answered: bool = False
    ) -> list[A2aMessage]:
        """Return the messages of a task: those of its user, and the agent's questions that are *answered*."""
        messages: list[A2aMessage] = []
        for run in record.runs:
            if (request := await self._hub.request_of(run, raw=record.own)) is not None:
                messages.append(message_of(request, task=telling.task, context=telling.context))
            if (answered or run != record.run) and (
                response := await self._hub.outcome(run, raw=record.own)
            ) is not None:
                question = ended_task(replace(telling, extended=False), response, 0).status.message
                if question is not None:
                    messages.append(replace(question, message_id=f"{run}-question", role=AGENT))
        return messages

    # ── several ───────────────────────────────────────────────────────────────────────────────────────────────────────

    async def listed(self, call: A2aCall, params: ListTasks) -> TaskList:
        """Return a page of the tasks that a sender may see, the last changed first."""
        size, before = params.page_size or PAGE, _cursor(params.page_token)
        since_ms = milliseconds(params.status_timestamp_after) if params.status_timestamp_after else 0
        if since_ms is None:
            raise invalid("statusTimestampAfter", "is not a timestamp; expected a form like 2026-01-31T12:00:00Z")
        records = [
            each
            for each in await self._visible(call, params.context_id)
            if params.status in (TaskState.UNSPECIFIED, each.state) and each.changed_ms >= since_ms
        ]
        left = [each for each in records if before is None or _sort_key(each) < before]
        tasks = [
            await self.task(call, each, params.history_length or 0, artifacts=params.include_artifacts)
            for each in left[:size]
        ]
        return TaskList(
            tasks=tuple(tasks),
            next_page_token=_token(left[size - 1]) if len(left) > size else "",
            page_size=size,
            total_size=len(records),
        )

    async def _visible(self, call: A2aCall, context: str) -> list[TaskRecord]:
        whose = visible(call.sender)
        rows = await self._hub.store.states(agent=call.agent, users=whose.users)
        rows = [row for row in rows if whose.via in (None, row.via)]
        waiting = frozenset(each.request.run for each in await self._hub.pending())
        records = [each for each in _joined(rows, waiting, call.sender) if context in ("", call.context(each.session))]
        return sorted(records, key=_sort_key, reverse=True)


def _joined(rows: list[RunState], waiting: frozenset[str], sender: Sender) -> list[TaskRecord]:
    """Return tasks, each with all the runs that continued it; in *waiting* ones a person is asked."""
    later: dict[tuple[str, str, str], list[RunState]] = {}
    roots: list[RunState] = []
    runs = {row.run for row in rows}
    for row in rows:
        task = row.correlation.removeprefix(_OF_TASK)
        if task != row.correlation and task in runs:
            later.setdefault((task, row.user, row.session), []).append(row)
        else:
            roots.append(row)
    return [_task_of(root, later.get((root.run, root.user, root.session), []), waiting, sender) for root in roots]


def _task_of(root: RunState, later: list[RunState], waiting: frozenset[str], sender: Sender) -> TaskRecord:
    # Run ids sort by time.
    chain = [root, *sorted(later, key=lambda row: row.run)]
    last = chain[-1]
    return TaskRecord(
        task=root.run,
        runs=tuple(row.run for row in chain),
        user=root.user,
        session=root.session,
        own=all(row.via == sender.name for row in chain),
        state=_state(last, waiting),
        changed_ms=last.changed_ms,
        sent=tuple(row.id for row in chain[1:]),
    )


def _state(row: RunState, waiting: frozenset[str]) -> TaskState:
    if row.status is None:
        return TaskState.AUTH_REQUIRED if row.run in waiting else TaskState.WORKING
    if row.called_off:
        return TaskState.CANCELED
    return state_of(Response(version=VERSION, id=row.id, target="", status=row.status, requires_followup=row.asks_back))


def cut(messages: list[A2aMessage], length: int | None) -> tuple[A2aMessage, ...]:
    """Return the last messages, as many as are wanted."""
    return tuple(messages if length is None else messages[max(0, len(messages) - length) :])


def _sort_key(record: TaskRecord) -> tuple[int, str]:
    return record.changed_ms, record.task


def _token(record: TaskRecord) -> str:
    return f"{record.changed_ms}.{record.task}"


def _cursor(token: str) -> tuple[int, str] | None:
    if not token:
        return None
    at_ms, _, task = token.partition(".")
    if not (at_ms.isascii() and at_ms.isdecimal() and len(at_ms) <= 15 and task):
        raise invalid("pageToken", "was not issued by this server")
    return int(at_ms), task


def invalid(field: str, why: str) -> Declined:
    """Return the error of an invalid parameter."""
    return Declined(Error.INVALID_PARAMS, f"{field} {why}", fields={field: why})


def no_task(task: str) -> Declined:
    """Return the error of a task that does not exist, or that the sender may not see."""
    why = f"the task `{task[:100]}` does not exist, or you may not see it"
    return Declined(Error.TASK_NOT_FOUND, why, about={"taskId": task[:200]})
