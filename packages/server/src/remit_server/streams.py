"""Following a run: its records as server-sent events, each exactly once."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from contextlib import aclosing

from msgspec import Struct
from msgspec.structs import replace

from remit.hub.hub import Hub
from remit.policy.reception import with_session_of_peer
from remit.protocol.codec import encode
from remit.protocol.envelope import Response
from remit.protocol.records import Kind, Record, Refusal, outcome_in, outward
from remit.runtime.events import Events
from remit.words.failures import with_plain_summary
from remit_server.bodies import Receive, Send
from remit_server.delegations import DelayedCalls, DisconnectWatcher

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


async def follow(hub: Hub, following: Following, events: Events) -> AsyncGenerator[bytes, None]:
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


async def follow_records(hub: Hub, following: Following, events: Events) -> AsyncGenerator[list[Record], None]:
    """Yield a run's records, several at a time, and end after the one that holds its outcome.

    The caller subscribed to *events* before: records committed meanwhile are in them, in the store, or in both. Once
    they are closed, the stream ends with what is stored by then. After a silent interval an empty list is yielded: a
    keep-alive is due.
    """
    seen, silent_s = following.after, 0.0
    look, deaf, wonder = True, False, True
    while True:
        records: list[Record] = []
        if look:
            records = await hub.store.records(run=following.run, after=seen, limit=PAGE)
        if deaf and not records:
            return
        # Records of another process, and events missed here, are only in the store.
        here = hub.is_running(following.run)
        wait_s = 0.0 if records else KEEP_ALIVE_S if here else LOOK_S
        received = _with_spoken(records, events) if records else await _next_records(events, wait_s)
        deaf = received is None
        look = bool(records) or events.lost or deaf or not here
        # Dropped events came before the remaining ones, and both are in the store, in order.
        ready = records if received is None or events.lost else received
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


def _with_spoken(records: list[Record], events: Events) -> list[Record]:
    """Return stored records with the text deltas in between, which are stored nowhere; none follows the outcome."""
    spoken = [record for record in events.ready(TOGETHER) if record.kind is Kind.DELTA]
    place = _end(records)
    return [*records[:place], *spoken, *records[place:]]


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


async def _whole(hub: Hub, following: Following, record: Record) -> Record:
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
