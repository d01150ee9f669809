"""The operations on A2A tasks: send, stream, get, list, subscribe, cancel, push notifications."""

from collections.abc import AsyncGenerator, Callable
from functools import partial
from typing import NamedTuple

from msgspec.structs import replace

from remit.policy.reception import Sender
from remit.ports import RunSummary, SessionOwner
from remit.protocol.envelope import USER, Request, Response
from remit.protocol.errors import Code, RemitError
from remit.protocol.lifecycle import Status
from remit.protocol.records import Kind, Notice, Record, Refusal
from remit.runtime.active_runs import ActiveRun
from remit.runtime.events import Events
from remit.runtime.sessions import resumed
from remit.words.names import hidden_names
from remit_server.a2a.guests import Guests, OpenTasks, is_guest
from remit_server.a2a.push import Push
from remit_server.a2a.task_records import A2aCall, TaskRecord, TaskRecords, continuation_of, cut, invalid, no_task
from remit_server.delegations import Delegations, order_of
from remit_server.dialects.a2a.errors import Declined, Error
from remit_server.dialects.a2a.parts import AcceptedContent
from remit_server.dialects.a2a.requests import message_of, submission
from remit_server.dialects.a2a.responses import Stream, TaskPresentation, bare_message, declines, ended_task, under_way
from remit_server.dialects.a2a.types import (
    A2aMessage,
    A2aObject,
    AskedMessage,
    CancelTask,
    Configuration,
    GetCard,
    GetTask,
    ListPush,
    ListTasks,
    OnePush,
    PushConfig,
    PushList,
    SendMessage,
    StreamResponse,
    Subscribe,
    Task,
    TaskList,
    TaskState,
)
from remit_server.documents.api_values import Handle
from remit_server.streams import KEEP_ALIVE_S, Following, ends, follow_records, is_open

# How long a task is reserved for the first message that continues it, unless that message was refused.
CLAIM_MS = 30_000
# How often a task that waits for its user is looked at while somebody reads along: any process may continue it.
LOOK_S = 1.0


class Nothing(A2aObject, frozen=True, kw_only=True):
    """An empty answer."""


class Streaming(NamedTuple):
    """A started stream: its first event, the following ones, and the subscription to close after them."""

    first: StreamResponse
    rest: AsyncGenerator[list[StreamResponse], None] | None = None
    events: Events | None = None


class Begun(NamedTuple):
    """An accepted message: its request, how it is answered, and the task that it continues."""

    call: A2aCall
    request: Request
    telling: TaskPresentation
    continued: TaskRecord | None
    history: tuple[A2aMessage, ...]
    going: ActiveRun | Response


class Tasks:
    """The tasks of one server."""

    def __init__(
        self,
        delegations: Delegations,
        wall_ms: Callable[[], int],
        push: Push | None,
        open: OpenTasks,
        guests: Guests | None = None,
    ) -> None:
        self._delegations = delegations
        self._hub = delegations.hub
        self._standing = TaskRecords(delegations)
        self._wall_ms = wall_ms
        self._push = push
        self._open = open
        self._guests = guests

    # ── sending ───────────────────────────────────────────────────────────────────────────────────────────────────────

    async def send(self, call: A2aCall, params: SendMessage) -> StreamResponse:
        """`SendMessage`: the task that a message started or continued, at its end unless it is wanted at once."""
        how = params.configuration or Configuration()
        begun = await self._begin(call, params.message, how)
        if how.return_immediately or how.task_push_notification_config is not None or begun.continued is not None:
            begun = await self._recorded(begun, how)
        going = begun.going
        if isinstance(going, Response):
            return self._ended(begun, going)
        if how.return_immediately:
            return self._under_way(begun, TaskState.WORKING)
        match await self._delegations.end_of(going, begun.request.id, call.receive):
            case Response() as response:
                return self._ended(begun, response)
            case Handle(state="waiting", question=question):
                return self._under_way(begun, TaskState.AUTH_REQUIRED, question)
            case Handle():  # this server is shutting down
                return self._under_way(begun, TaskState.WORKING)

    async def stream(self, call: A2aCall, params: SendMessage) -> Streaming:
        """`SendStreamingMessage`: the task, then its updates."""
        how = params.configuration or Configuration()
        request, telling, record = await self._request(call, params.message, how)
        events = self._hub.follow(request.run)
        try:
            begun = await self._recorded(await self._started(call, request, telling, record, how), how)
            if isinstance(begun.going, Response):
                events.close()
                return Streaming(self._ended(begun, begun.going))
            run = begun.going.on_record
            if run != request.run:
                events.close()
                events = self._hub.follow(run)
            task = begun.going.task if run == begun.going.run else None
            records = follow_records(self._hub, Following(run=run, task=task), events)
            first = await anext(records, list[Record]())
        except BaseException:
            events.close()
            raise
        at_ms = first[0].at_ms if first else self._wall_ms()
        task = under_way(begun.telling, TaskState.SUBMITTED, at_ms, history=begun.history)
        return Streaming(
            StreamResponse(task=task), _stream_responses(self._stream_of(begun.telling, run), first, records), events
        )

    async def _begin(self, call: A2aCall, message: AskedMessage, how: Configuration) -> Begun:
        return await self._started(call, *await self._request(call, message, how), how)

    async def _started(
        self, call: A2aCall, request: Request, telling: TaskPresentation, record: TaskRecord | None, how: Configuration
    ) -> Begun:
        going = await self._delegations.begin(request)
        if isinstance(going, ActiveRun):
            self._open.began(call.sender.name, going.task)
            if self._guests is not None and is_guest(call.sender):
                self._guests.open.began(request.remit.user, going.task)
        history = [] if record is None else await self._standing.history(record, telling, answered=True)
        history.append(message_of(request, task=telling.task, context=telling.context))
        return Begun(call, request, telling, record, cut(history, how.history_length), going)

    async def _recorded(self, begun: Begun, how: Configuration) -> Begun:
        """Return once a message is durable, and its push notifications are set up."""
        going = begun.going
        if isinstance(going, Response):
            return begun
        await going.decided.wait()
        if not going.on_record:  # it ended before it was recorded
            return begun._replace(going=going.task.result())
        begun = _renamed(begun, going.on_record, begun.request.session)
        telling, wanted = begun.telling, how.task_push_notification_config
        if wanted is not None:
            await self._pushing().add(telling, going.on_record, wanted, since_ms=0)
        elif self._push is not None and begun.continued is not None:
            await self._push.resume(telling.task, going.on_record)
        return begun

    async def _request(
        self, call: A2aCall, message: AskedMessage, how: Configuration
    ) -> tuple[Request, TaskPresentation, TaskRecord | None]:
        """Return the request of a message, how it is answered, and the task that it continues, if any."""
        taste = AcceptedContent(how.accepted_output_modes)
        if how.task_push_notification_config is not None:
            await self._pushing().judge(how.task_push_notification_config)
        traceparent = call.headers.get("traceparent")
        sent = submission(message, call.agent, extended=call.extended, traceparent=traceparent)
        if not call.sender.is_hub:
            # A hub that is known here as a client may use the extension, too; it does not speak for agents then.
            sent = replace(sent, origin=USER)
        if not call.extended:
            sent = replace(sent, id=await self._standing.id_for(call, message))
        self._open.admit(call.sender.name, call.sender.name)
        if self._guests is not None and is_guest(call.sender):
            (user,) = call.sender.users or ("",)
            self._guests.admit(user)
            sent = self._guests.bounded(sent, user)
        if not how.return_immediately:
            sent = call.in_time(sent)
        record = await self._continued_task(call, message, sent.id or "") if message.task_id else None
        if record is not None:
            sent = replace(sent, session=None, correlation=continuation_of(record.task))
        request = await self._delegations.received(sent, call.sender, call.headers, unmarked=not call.extended)
        try:
            request = await self._placed(request, call, message, record)
        except BaseException:
            self._delegations.drop(request)
            raise
        telling = TaskPresentation(
            task=record.task if record is not None else request.run,
            context=call.context(request.session or request.run),
            extended=call.extended,
            taste=taste,
        )
        return request, telling, record

    async def _placed(
        self, request: Request, call: A2aCall, message: AskedMessage, record: TaskRecord | None
    ) -> Request:
        """Return a request in the conversation that it continues, if that is allowed."""
        if record is None:
            return await self._in_context(request, call.sender) if message.context_id else request
        if request.remit.user != record.user:
            raise no_task(message.task_id)
        if request.id not in record.sent:
            await self._claim(record, request.run)
        return replace(request, session=record.session)

    async def _continued_task(self, call: A2aCall, message: AskedMessage, id: str) -> TaskRecord:
        record = await self._standing.find(call, message.task_id)
        if message.context_id and message.context_id != call.context(record.session):
            raise invalid("message.contextId", f"is not the context of task {record.task}")
        if id in record.sent or record.state is TaskState.INPUT_REQUIRED:
            return record  # a repeated message gets the same answer
        if record.ended:
            raise _unsupported(record, "it has ended; send the message without its id")
        waits = record.state is TaskState.AUTH_REQUIRED
        raise _unsupported(record, "it is waiting for approval" if waits else "it is still running")

    async def _in_context(self, request: Request, sender: Sender) -> Request:
        """Return a request in the conversation that its sender named; refuse a conversation of somebody else."""
        if sender.is_hub:
            request = await resumed(request, self._hub.store)
        owner = await self._hub.store.owner(request.session or request.run)
        if owner not in (None, SessionOwner(request.remit.user, request.target)):
            raise invalid("message.contextId", "does not name a conversation of this user with this agent")
        return request

    async def _claim(self, record: TaskRecord, run: str) -> None:
        """Ensure that only one of several concurrent messages continues a task."""
        store, key, now_ms = self._hub.store, f"a2a/task/{record.task}", self._wall_ms()
        held = await store.get(key)
        revision = 0 if held is None else held[0]
        if held is not None:
            first, _, at_ms = held[1].decode().partition(" ")
            if first not in record.runs and int(at_ms) > now_ms - CLAIM_MS:
                records = await store.records(run=first, limit=1)
                if not records or not isinstance(records[0].body, Refusal):
                    raise _unsupported(record, "another message is continuing it")
        if await store.cas(key, revision, f"{run} {now_ms}".encode()) is None:
            raise _unsupported(record, "another message is continuing it")

    def _under_way(self, begun: Begun, state: TaskState, says: str = "") -> StreamResponse:
        return StreamResponse(task=under_way(begun.telling, state, self._wall_ms(), says=says, history=begun.history))

    def _ended(self, begun: Begun, response: Response) -> StreamResponse:
        if (why := declines(response)) is not None:
            raise RemitError(why)
        begun = _renamed(begun, response.run, response.session)
        if begun.continued is None and (message := bare_message(begun.telling, response)) is not None:
            return StreamResponse(message=message)
        return StreamResponse(task=ended_task(begun.telling, response, self._wall_ms(), begun.history))

    # ── looking, reading along, cancelling ────────────────────────────────────────────────────────────────────────────

    async def get(self, call: A2aCall, params: GetTask) -> Task:
        """`GetTask`."""
        return await self._standing.task(call, await self._standing.find(call, params.id), params.history_length)

    async def listed(self, call: A2aCall, params: ListTasks) -> TaskList:
        """`ListTasks`."""
        return await self._standing.listed(call, params)

    async def subscribe(self, call: A2aCall, params: Subscribe) -> Streaming:
        """`SubscribeToTask`: the task in its current state, then its updates."""
        record = await self._standing.find(call, params.id)
        if record.ended:
            raise _unsupported(record, "it has ended; get it instead")
        events = self._hub.follow(record.run, raw=record.own)
        try:
            # Updates after this record arrive as events; earlier ones are in the task. Their times would not tell:
            # a record may be made before a subscription, and committed after it.
            after = await self._hub.store.newest()
            record = await self._standing.find(call, record.task)
            first = StreamResponse(task=await self._standing.task(call, record, None))
        except BaseException:
            events.close()
            raise
        if record.ended:
            events.close()
            return Streaming(first)
        return Streaming(first, self._updates(call, record, events, after), events)

    async def _updates(
        self, call: A2aCall, record: TaskRecord, events: Events, after: int
    ) -> AsyncGenerator[list[StreamResponse], None]:
        """Yield the updates of a task until it has ended, also those of the messages that continue it."""
        current = events
        while True:
            run = record.run
            if record.state is not TaskState.INPUT_REQUIRED:
                stream = self._stream_of(self._standing.telling(call, record), run)
                outcome = partial(self._hub.outcome, run, raw=record.own)
                following = Following(run=run, after=after, outcome=outcome)
                async for records in follow_records(self._hub, following, current):
                    yield stream.of(records)
                record = await self._standing.find(call, record.task)
            silent_s = 0.0
            while record.run == run and record.state is TaskState.INPUT_REQUIRED:
                if not await is_open(current, LOOK_S):
                    return
                silent_s += LOOK_S
                if silent_s >= KEEP_ALIVE_S:
                    silent_s = 0.0
                    yield []
                record = await self._standing.find(call, record.task)
            if record.run == run:
                if record.state is TaskState.CANCELED:  # while it waited for its user
                    yield [StreamResponse(task=await self._standing.task(call, record, None))]
                return
            later = self._hub.follow(record.run, raw=record.own)
            current.then(later)
            current, after = later, 0

    def _stream_of(self, telling: TaskPresentation, run: str) -> Stream:
        return Stream(telling, run, hidden_names(self._hub.cards.values()))

    async def cancel(self, call: A2aCall, params: CancelTask) -> Task:
        """`CancelTask`."""
        order = order_of(params.id, call.sender, None, "")
        order = replace(order, scope=order.scope._replace(agents=frozenset({call.agent})))
        runs_here = self._hub.shared.running(order) is not None
        record: TaskRecord | None = None

        async def find() -> RunSummary:
            nonlocal record
            record = await self._standing.find(call, params.id)
            if record.ended and not runs_here:
                why = f"task {record.task} cannot be cancelled: it has ended ({record.state})"
                raise Declined(Error.TASK_NOT_CANCELABLE, why, about={"taskId": record.task})
            return await self._delegations.find(record.run, call.sender)

        run, _, response = await self._delegations.cancel(order, find)
        if record is None:  # the store is away, and the hub that has the run was reached
            is_cancelled = response is not None and response.status is Status.CANCELLED
            state = TaskState.CANCELED if is_cancelled else TaskState.WORKING
            return under_way(TaskPresentation(task=run, context="", extended=call.extended), state, self._wall_ms())
        if record.state is TaskState.INPUT_REQUIRED:
            # Nothing is running any more; record that nobody will answer.
            text = f"cancelled: by {call.sender.name}"
            body = Notice(delegation=record.run, agent=call.agent, text=text, code=Code.CANCELLED)
            self._hub.store.append(Kind.NOTICE, self._wall_ms(), record.run, record.session, body)
            await self._hub.store.flush()
        return await self._standing.task(call, await self._standing.find(call, record.task), None)

    # ── notifications ─────────────────────────────────────────────────────────────────────────────────────────────────

    async def create_push(self, call: A2aCall, params: PushConfig) -> PushConfig:
        """`CreateTaskPushNotificationConfig`."""
        push = self._pushing()
        if not params.task_id:
            raise invalid("taskId", "is missing")
        record = await self._standing.find(call, params.task_id)
        over = StreamResponse(task=await self._standing.task(call, record, 0)) if record.ended else None
        return await push.add(self._standing.telling(call, record), record.run, params, own=record.own, ended=over)

    async def get_push(self, call: A2aCall, params: OnePush) -> PushConfig:
        """`GetTaskPushNotificationConfig`."""
        push, record = self._pushing(), await self._standing.find(call, params.task_id)
        for each in await push.of(record.task):
            if each.id == params.id:
                return _without_secret(each)
        raise Declined(
            Error.TASK_NOT_FOUND,
            f"task {record.task} has no push notification configuration `{params.id[:100]}`",
            about={"taskId": record.task},
        )

    async def list_push(self, call: A2aCall, params: ListPush) -> PushList:
        """`ListTaskPushNotificationConfigs`."""
        push, record = self._pushing(), await self._standing.find(call, params.task_id)
        return PushList(configs=tuple(_without_secret(each) for each in await push.of(record.task)))

    async def delete_push(self, call: A2aCall, params: OnePush) -> Nothing:
        """`DeleteTaskPushNotificationConfig`."""
        push, record = self._pushing(), await self._standing.find(call, params.task_id)
        await push.remove(record.task, params.id)
        return Nothing()

    def _pushing(self) -> Push:
        if self._push is None:
            raise Declined(Error.PUSH_NOTIFICATION_NOT_SUPPORTED, "this agent does not support push notifications")
        return self._push

    async def extended_card(self, call: A2aCall, _: GetCard) -> Nothing:
        """`GetExtendedAgentCard`: declined, since the public card holds everything."""
        raise Declined(Error.UNSUPPORTED_OPERATION, f"{call.agent} has no extended agent card")


def _renamed(begun: Begun, run: str, session: str | None) -> Begun:
    """Return a started message under the id of its run: a repeated message belongs to the first run."""
    if begun.continued is not None or run in ("", begun.telling.task):
        return begun
    telling = replace(begun.telling, task=run, context=begun.call.context(_session_of(begun, run, session)))
    history = tuple(replace(each, task_id=run, context_id=telling.context) for each in begun.history)
    return begun._replace(telling=telling, history=history)


def _session_of(begun: Begun, run: str, session: str | None) -> str:
    # A context named after the run was not chosen by the client: then it is named after the first run.
    return run if session in (None, begun.request.run) else session


async def _stream_responses(
    stream: Stream, first: list[Record], rest: AsyncGenerator[list[Record], None]
) -> AsyncGenerator[list[StreamResponse], None]:
    yield stream.of(first)
    if not any(map(ends, first)):
        async for records in rest:
            yield stream.of(records)


def _without_secret(config: PushConfig) -> PushConfig:
    """Return a configuration as it is shown: without its secret, which its creator knows."""
    shown = config.authentication
    return config if shown is None else replace(config, authentication=replace(shown, credentials=""))


def _unsupported(record: TaskRecord, why: str) -> Declined:
    return Declined(
        Error.UNSUPPORTED_OPERATION,
        f"not possible for task {record.task}: {why}",
        about={"taskId": record.task, "state": record.state},
    )
