"""A run as a stream of server-sent events: what is on record, in order, then what is added, and nothing twice."""

import asyncio
from collections.abc import AsyncGenerator

from msgspec import Struct
from msgspec.structs import replace

from remit.policy.session_names import with_session_of_peer
from remit.protocol.codec import encode
from remit.protocol.envelope import Response
from remit.protocol.records import Kind, Record, Refusal, outward
from remit.runtime.engine import Engine
from remit.runtime.events import Events

# A run that another process carries out is heard of by looking; a person does not notice a quarter of a second.
LOOK_S = 0.25
# Proxies hang up on a stream that is silent for a minute, and hosts of tools after less.
KEEP_ALIVE_S = 15.0
# Several events that are ready go out together: one by one a stream costs ten times as much.
TOGETHER = 256

# No more is written ahead of a reader than this, or one event that is larger.
PIECE = 64 * 1024
# No more is read from the store ahead of a reader.
PAGE = 100

STREAM = "text/event-stream"
STREAM_HEADERS = [
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),
]
KEEP_ALIVE = b": still at work\n\n"


class Following(Struct, frozen=True, kw_only=True):
    """Which part of a run is followed, and by whom."""

    run: str
    after: int = 0
    """The number of the last event that was received."""
    raw: bool = True
    """Whether the values that are the asker's own come as they are; who else looks on sees tokens."""
    peer: str | None = None
    """The peer that reads it, and is told its own names of sessions."""
    task: asyncio.Task[Response] | None = None
    """What carries it out here, if that is known: it has the outcome at hand."""


async def follow(hub: Engine, following: Following, events: Events) -> AsyncGenerator[bytes, None]:
    """Yield a run's events, framed, several at a time, and end after the one that holds its outcome."""
    async for records in follow_records(hub, following, events):
        if not records:
            yield KEEP_ALIVE
        together: list[bytes] = []
        size = 0
        for record in records:
            framed = frame(record)
            if together and size + len(framed) > PIECE:
                yield b"".join(together)
                together, size = [], 0
            together.append(framed)
            size += len(framed)
        if together:
            yield b"".join(together)


async def follow_records(hub: Engine, following: Following, events: Events) -> AsyncGenerator[list[Record], None]:
    """Yield a run's records, several at a time, and end after the one that holds its outcome.

    *events* were subscribed to before: what is committed meanwhile is in them, or in the store, or in both. Once they
    are closed, it ends with what is on record by then. Where there is nothing to tell for a while, it yields nothing at
    all: a sign of life is due.
    """
    seen, silent_s = following.after, 0.0
    look, deaf, wonder = True, False, True
    while True:
        found: list[Record] = []
        if look:
            found = await hub.store.records(run=following.run, after=seen, limit=PAGE)
        if deaf and not found:
            return
        # What another process carries out, or was missed here, is only in the store.
        here = hub.is_here(following.run)
        wait_s = 0.0 if found else KEEP_ALIVE_S if here else LOOK_S
        said = _with_spoken(found, events) if found else await _next_records(events, wait_s)
        deaf = said is None
        look = bool(found) or events.lost or deaf or not here
        # What was dropped came before what is left, and both are in the store, in order.
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
                # Whoever has the end already, or says so, waits for nothing.
                deaf = deaf or await hub.outcome(following.run) is not None
            wonder = False
            if silent_s >= KEEP_ALIVE_S:
                silent_s = 0.0
                yield []


def _with_spoken(found: list[Record], events: Events) -> list[Record]:
    """Return what is on record with what was said meanwhile, which is nowhere else; nothing is said after the end."""
    spoken = [record for record in events.ready(TOGETHER) if record.kind is Kind.DELTA]
    place = _end(found)
    return [*found[:place], *spoken, *found[place:]]


def _end(records: list[Record]) -> int:
    """Return where the outcome is, behind which only the hub notes something for itself; if nowhere, how many."""
    return next((place for place, record in enumerate(records) if ends(record)), len(records))


async def _next_records(events: Events, wait_s: float) -> list[Record] | None:
    """Wait for what is said next, and return it with all that is ready; nothing after a while, None at the end."""
    try:
        async with asyncio.timeout(wait_s):
            first = await anext(events, None)
    except TimeoutError:
        return []
    return None if first is None else [first, *events.ready(TOGETHER)]


async def _whole(hub: Engine, following: Following, record: Record) -> Record:
    if following.raw and ends(record) and isinstance(record.body, Response):
        if following.task is not None:
            return replace(record, body=with_session_of_peer(await asyncio.shield(following.task), following.peer))
        outcome = await hub.outcome(following.run)
        return record if outcome is None else replace(record, body=with_session_of_peer(outcome, following.peer))
    return record


def frame(record: Record) -> bytes:
    """Return a record as an event; one that is not kept has no number, so that nobody asks for it again."""
    number = f"id: {record.seq}\n" if record.seq else ""
    return f"{number}event: {record.kind}\ndata: ".encode() + encode(record) + b"\n\n"


def ends(record: Record) -> bool:
    """Say whether a record holds the outcome of its run."""
    match record.body:
        case Response() as response:
            return record.kind is Kind.RESULT and response.run == record.run and _is_root(record, response)
        case Refusal(request=request):
            return request.parent is None
        case _:
            return False


def _is_root(record: Record, response: Response) -> bool:
    """A nested delegation's id is a place below its run's; the root's is the run's own, or its sender's."""
    return not response.id.startswith(f"{record.run}.")
