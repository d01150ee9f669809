"""Following a run: waiting for its outcome or a question, and its records as server-sent events, each exactly once."""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from contextlib import aclosing, suppress
from functools import partial

from msgspec import Struct
from msgspec.structs import replace

from remit.policy.reception import with_session_of_peer
from remit.protocol.codec import encode
from remit.protocol.envelope import Response
from remit.protocol.records import Approval, Kind, Record, Refusal, outcome_in, outward
from remit.runtime.active_runs import ActiveRun
from remit.runtime.engine import Engine
from remit.runtime.events import Events
from remit.runtime.ports import StoreError
from remit.words.failures import with_plain_summary
from remit_server.bodies import Receive, Send

# Most requests are answered before it pays to start a task that watches for a disconnect.
LOOK_AFTER_S = 0.2
# A person does not notice this delay, and a store notices more frequent reads.
OUTCOME_LOOK_S = 0.5

First = asyncio.Future[Response | str | None]
"""The outcome of a run; a question to a person in it; or None: nothing more will be known of it here."""


class _Watched:
    """A running run: its open questions to a person, and who waits for it."""

    __slots__ = ("questions", "waiting")

    def __init__(self) -> None:
        self.questions: dict[str, str] = {}
        self.waiting: dict[First, bool] = {}
        """Each waiter, with whether it wants questions, too."""


class Waiter:
    """A waiter for a run: *first* gets its outcome, a question to a person, or None."""

    __slots__ = ("_call_off", "_watched", "first")

    def __init__(self, first: First, watched: _Watched | None, call_off: Callable[[], None] | None) -> None:
        self.first = first
        self._watched = watched
        self._call_off = call_off

    def leave(self) -> None:
        """Stop waiting."""
        self.first.cancel()
        if self._watched is not None:
            self._watched.waiting.pop(self.first, None)
        if self._call_off is not None:
            self._call_off()


class DelayedCalls:
    """Calls functions after a delay, in order: the delay is the same for all, so one timer is enough."""

    def __init__(self) -> None:
        self._calls: deque[tuple[float, list[Callable[[], None]]]] = deque()

    def call(self, act: Callable[[], None]) -> Callable[[], None]:
        """Call *act* after `LOOK_AFTER_S`, unless the returned function is called before: that releases *act*."""
        loop = asyncio.get_running_loop()
        due, acts = loop.time() + LOOK_AFTER_S, [act]
        self._calls.append((due, acts))
        if len(self._calls) == 1:
            loop.call_at(due, self._turn, loop)
        return acts.clear

    def _turn(self, loop: asyncio.AbstractEventLoop) -> None:
        now, due = loop.time(), list[Callable[[], None]]()
        while self._calls and self._calls[0][0] <= now:
            due += self._calls.popleft()[1]
        if self._calls:
            loop.call_at(self._calls[0][0], self._turn, loop)
        for act in due:
            act()


class RunWaiters:
    """The running runs that this server received, and who waits for them."""

    def __init__(self, hub: Engine) -> None:
        self._hub = hub
        self.soon = DelayedCalls()
        self._watched: dict[str, _Watched] = {}
        self._leave = hub.store.listen(self._committed, patient=True)

    def close(self) -> None:
        """Stop listening, and release all waiters: this server shuts down before their runs have ended."""
        self._leave()
        for watched in self._watched.values():
            for first in tuple(watched.waiting):
                if not first.done():
                    first.set_result(None)

    async def watch(self, going: ActiveRun, ended: Callable[[asyncio.Task[Response]], None]) -> None:
        """Follow the questions to a person in a run, and call *ended* once when it is over."""
        if going.run in self._watched:
            return
        watched = self._watched[going.run] = _Watched()

        def over(task: asyncio.Task[Response]) -> None:
            del self._watched[going.run]
            for first in tuple(watched.waiting):
                _settle(first, task)
            ended(task)

        going.when_ended(over)
        if going.on_record:
            # It was started before this server listened, by a server that is gone.
            watched.questions |= {
                each.id: each.text for each in await self._hub.pending() if each.request.run == going.run
            }

    def question(self, run: str) -> str:
        """Return the open question to a person in a run, here or at another hub; empty if there is none."""
        watched = self._watched.get(run)
        return "" if watched is None else next(iter(watched.questions.values()), "")

    def wait(self, going: ActiveRun, *, questions: bool = True) -> Waiter:
        """Wait for what is known of a run next: its outcome, a question if *questions* are wanted, or None."""
        first: First = asyncio.get_running_loop().create_future()
        watched = self._watched.get(going.run)
        call_off = None
        if watched is None:
            _settle(first, going.task)
        elif questions and (question := self.question(going.run)):
            first.set_result(question)
        else:
            watched.waiting[first] = questions
            if questions:
                call_off = self.soon.call(partial(self._look_elsewhere, going, first))
        return Waiter(first, watched, call_off)

    def _look_elsewhere(self, going: ActiveRun, first: First) -> None:
        if going.on_record not in ("", going.run):
            looking = asyncio.create_task(self._asked_elsewhere(going.on_record, first))
            first.add_done_callback(lambda _: looking.cancel())

    async def _asked_elsewhere(self, run: str, first: First) -> None:
        """Look up the question in the run that executes the same request, in this process or another."""
        while not first.done():
            with suppress(StoreError):
                for question in await self._hub.pending():
                    if question.request.run == run and not first.done():
                        first.set_result(question.text)
            await asyncio.sleep(OUTCOME_LOOK_S)

    def _committed(self, records: list[Record]) -> None:
        for record in records:
            if isinstance(record.body, Approval) and (watched := self._watched.get(record.run)) is not None:
                self._heard(watched, record.body)

    def _heard(self, watched: _Watched, approval: Approval) -> None:
        if approval.agreed is not None:
            watched.questions.pop(approval.id, None)
            return
        watched.questions[approval.id] = approval.question
        for first, questions in watched.waiting.items():
            if questions and not first.done():
                first.set_result(approval.question)


class DisconnectWatcher:
    """Calls a function when the client disconnects, unless it is cancelled before."""

    def __init__(self, receive: Receive, act: Callable[[], object], soon: DelayedCalls) -> None:
        self._receive = receive
        self._act = act
        self._task: asyncio.Task[None] | None = None
        self._call_off = soon.call(self._look)

    def cancel(self) -> None:
        """Stop watching for a disconnect."""
        self._call_off()
        if self._task is not None:
            self._task.cancel()

    def _look(self) -> None:
        self._task = asyncio.create_task(self._until_gone())

    async def _until_gone(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self._act()


def _settle(first: First, task: asyncio.Task[Response]) -> None:
    if first.done():
        return
    if task.cancelled():
        first.cancel()
    elif (error := task.exception()) is not None:
        first.set_exception(error)
    else:
        first.set_result(task.result())


# A run in another process is polled; a person does not notice a quarter of a second.
LOOK_S = 0.25
# Proxies close a stream that is silent for a minute, and MCP hosts after less.
KEEP_ALIVE_S = 15.0
# Ready events are sent together: one by one, a stream costs ten times as much.
TOGETHER = 256

# The maximum that is written ahead of a reader, or one event that is larger.
PIECE = 64 * 1024
# The maximum number of records that are read from the store ahead of a reader.
PAGE = 100

STREAM = "text/event-stream"
STREAM_HEADERS = [
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),
]
KEEP_ALIVE = b": still at work\n\n"


async def send_events(
    frames: AsyncGenerator[bytes],
    receive: Receive,
    send: Send,
    *,
    left: Callable[[], object],
    soon: DelayedCalls,
    headers: Iterable[tuple[bytes, bytes]] = (),
) -> None:
    """Send a stream of events until it ends; call *left* when the client disconnects."""
    leaving = DisconnectWatcher(receive, left, soon)
    try:
        await send({"type": "http.response.start", "status": 200, "headers": [*STREAM_HEADERS, *headers]})
        async with aclosing(frames):
            async for each in frames:
                await send({"type": "http.response.body", "body": each, "more_body": True})
        await send({"type": "http.response.body", "body": b""})
    finally:
        leaving.cancel()


class Following(Struct, frozen=True, kw_only=True):
    """Which part of a run is followed, and by whom."""

    run: str
    after: int = 0
    """The number of the last event that was received."""
    outcome: Callable[[], Awaitable[Response | None]] | None = None
    """How the outcome is read for somebody else than who asked, who gets its own values in clear."""
    peer: str | None = None
    """The peer that reads it; it gets its own session names."""
    task: asyncio.Task[Response] | None = None
    """The task that executes the run here, if known: it has the outcome at hand."""


async def follow(hub: Engine, following: Following, events: Events) -> AsyncGenerator[bytes, None]:
    """Yield a run's events as bytes, several at a time, and end after the one that holds its outcome."""
    async for records in follow_records(hub, following, events):
        if not records:
            yield KEEP_ALIVE
        together: list[bytes] = []
        size = 0
        for record in records:
            framed = frame(record if following.peer else _with_plain_summary(record))
            if together and size + len(framed) > PIECE:
                yield b"".join(together)
                together, size = [], 0
            together.append(framed)
            size += len(framed)
        if together:
            yield b"".join(together)


async def follow_records(hub: Engine, following: Following, events: Events) -> AsyncGenerator[list[Record], None]:
    """Yield a run's records, several at a time, and end after the one that holds its outcome.

    The caller subscribed to *events* before: records committed meanwhile are in them, in the store, or in both. Once
    they are closed, the stream ends with what is stored by then. After a silent interval an empty list is yielded: a
    keep-alive is due.
    """
    seen, silent_s = following.after, 0.0
    look, deaf, wonder = True, False, True
    while True:
        found: list[Record] = []
        if look:
            found = await hub.store.records(run=following.run, after=seen, limit=PAGE)
        if deaf and not found:
            return
        # Records of another process, and events missed here, are only in the store.
        here = hub.is_running(following.run)
        wait_s = 0.0 if found else KEEP_ALIVE_S if here else LOOK_S
        said = _with_spoken(found, events) if found else await _next_records(events, wait_s)
        deaf = said is None
        look = bool(found) or events.lost or deaf or not here
        # Dropped events came before the remaining ones, and both are in the store, in order.
        ready = found if said is None or events.lost else said
        events.lost = False
        end = _end(ready)
        fresh = [record for record in ready[: end + 1] if record.seq > seen or record.kind is Kind.DELTA]
        seen = max([seen, *(record.seq for record in fresh)])
        if fresh:
            silent_s = 0.0
            yield [outward(await _whole(hub, following, record)) for record in fresh]
        if end < len(ready):
            return
        if not fresh:
            silent_s += wait_s
            if not here and (wonder or silent_s >= KEEP_ALIVE_S):
                # If the outcome is known already, there is nothing to wait for.
                deaf = deaf or await hub.outcome(following.run) is not None
            wonder = False
            if silent_s >= KEEP_ALIVE_S:
                silent_s = 0.0
                yield []


def _with_spoken(found: list[Record], events: Events) -> list[Record]:
    """Return stored records with the text deltas in between, which are stored nowhere; none follows the outcome."""
    spoken = [record for record in events.ready(TOGETHER) if record.kind is Kind.DELTA]
    place = _end(found)
    return [*found[:place], *spoken, *found[place:]]


def _end(records: list[Record]) -> int:
    """Return the index of the outcome, after which come only notes of the hub; without one, the number of records."""
    return next((place for place, record in enumerate(records) if ends(record)), len(records))


async def is_open(events: Events, wait_s: float) -> bool:
    """Wait for a time, and return whether somebody still listens then."""
    return await _next_records(events, wait_s) is not None


async def _next_records(events: Events, wait_s: float) -> list[Record] | None:
    """Wait for the next record, and return it with all that are ready; an empty list after a while, None at the end."""
    try:
        async with asyncio.timeout(wait_s):
            first = await anext(events, None)
    except TimeoutError:
        return []
    return None if first is None else [first, *events.ready(TOGETHER)]


async def _whole(hub: Engine, following: Following, record: Record) -> Record:
    if ends(record) and isinstance(record.body, Response):
        if following.task is not None:
            return replace(record, body=with_session_of_peer(await asyncio.shield(following.task), following.peer))
        outcome = await (hub.outcome(following.run) if following.outcome is None else following.outcome())
        return record if outcome is None else replace(record, body=with_session_of_peer(outcome, following.peer))
    return record


def _with_plain_summary(record: Record) -> Record:
    """Return the record of an outcome with a summary that a client can show to its user."""
    match record.body:
        case Response() as response if ends(record):
            return replace(record, body=with_plain_summary(response))
        case Refusal(response=response) as refusal if ends(record):
            return replace(record, body=replace(refusal, response=with_plain_summary(response)))
        case _:
            return record


def frame(record: Record) -> bytes:
    """Return a record as an event; one that is not stored has no number, so that no reader asks for it again."""
    number = f"id: {record.seq}\n" if record.seq else ""
    return f"{number}event: {record.kind}\ndata: ".encode() + encode(record) + b"\n\n"


def ends(record: Record) -> bool:
    """Return whether a record holds the outcome of its run."""
    outcome = outcome_in(record.run, record.body)
    return outcome is not None and (isinstance(record.body, Refusal) or outcome.run == record.run)
