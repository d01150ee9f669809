"""`GET /v1/events`: one stream of events for all runs that the sender may see."""

import asyncio
import logging
import re
from collections.abc import AsyncGenerator, Callable, Collection

from msgspec import Struct

from remit.policy.reception import Permission, Sender
from remit.ports import ANYONES, Store, StoreError
from remit.protocol.codec import encode
from remit.protocol.envelope import Request
from remit.protocol.errors import Code, Problem, RemitError, fault
from remit.protocol.records import Kind, Record, outward
from remit_server.access import OPERATION, may_see, visible
from remit_server.bodies import Headers, Receive, Scope, Send, headers_of, send_bytes
from remit_server.delegations import Delegations
from remit_server.documents.api import ALL_EVENTS, StreamQuery
from remit_server.operations import query_of, refuse_unknown, sends, words_in
from remit_server.run_trees import summary_of
from remit_server.streams import KEEP_ALIVE, KEEP_ALIVE_S, LOOK_S, PAGE, PIECE, STREAM_HEADERS, ends, frame, send_events

log = logging.getLogger("remit")

# Changes of runs are told together: a list that is drawn anew four times a second is live.
TOGETHER_S = 0.25
LIGHT_PAGE = 1_000
# A reader of changes that is further behind is told to read the list again.
FAR_BEHIND = 10_000
# As many runs are remembered for a reader that may not see all of them.
MOST_RUNS = 4_096


class RunChange(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A run that has new records."""

    run: str
    """The id of the run."""
    seq: int
    """The number of the newest of them."""
    at_ms: int
    """When it was recorded, in milliseconds since 1970."""
    records: int
    """How many they are."""
    began: bool = False
    """Whether it started."""
    ended: bool = False
    """Whether it ended."""


class StreamStart(Struct, frozen=True, kw_only=True):
    """The first event of a stream."""

    seq: int
    """The stream goes on after this record."""


class StreamGap(Struct, frozen=True, kw_only=True):
    """A reader of changes fell far behind: many runs have changed, and it must read the list again."""

    after: int
    """The last record that the reader has."""
    seq: int
    """The stream goes on after this record."""


class RecordTail:
    """The newest number of the record, for all who wait for more; one of them asks the store for all."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.newest = 0
        self._waiting: set[asyncio.Future[None]] = set()
        self._leave: Callable[[], None] | None = None
        self._readers = 0
        self._reading: dict[tuple[str | None, int, int], asyncio.Task[list[Record]]] = {}
        self._polling: asyncio.Task[None] | None = None
        self.closed = False

    async def open(self) -> None:
        """Begin to follow the record for one more reader."""
        self._readers += 1
        if self._leave is None:
            # A patient listener: nobody commits sooner because of it.
            self._leave = self._store.listen(self._note_records, patient=True)
            self._polling = asyncio.get_running_loop().create_task(self._poll())
        self._move(await self._store.newest())

    def leave(self) -> None:
        """Count one reader less; nothing is followed for nobody."""
        self._readers -= 1
        if self._readers == 0:
            self._stop()

    def close(self) -> None:
        """End all streams; their readers go on at another server."""
        self.closed = True
        self._stop()
        self._wake()

    def expect(self) -> "asyncio.Future[None]":
        """Return what is done once there are more records, or the tail is closed."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.add(future)
        future.add_done_callback(self._waiting.discard)
        return future

    async def read(self, run: str | None, after: int, limit: int) -> list[Record]:
        """Return the records after a number; readers at the same place share what is read."""
        key = (run, after, limit)
        task = self._reading.get(key)
        if task is None:
            reading = self._store.records(run=run, after=after, limit=limit)
            task = self._reading[key] = asyncio.ensure_future(reading)
            task.add_done_callback(lambda _: self._reading.pop(key, None))
        return await asyncio.shield(task)

    async def _poll(self) -> None:
        """Ask the store for what other processes have committed."""
        while True:
            await asyncio.sleep(LOOK_S)
            try:
                self._move(await self._store.newest())
            except StoreError as error:
                log.warning("the store cannot be read; trying again: %s", error)

    def _note_records(self, records: list[Record]) -> None:
        self._move(records[-1].seq)

    def _move(self, newest: int) -> None:
        if newest > self.newest:
            self.newest = newest
            self._wake()

    def _wake(self) -> None:
        for future in list(self._waiting):
            if not future.done():
                future.set_result(None)

    def _stop(self) -> None:
        if self._leave is not None:
            self._leave()
            self._leave = None
        if self._polling is not None:
            self._polling.cancel()
            self._polling = None


class StreamWanted(Struct, frozen=True, kw_only=True):
    """What a reader wants to see of the record."""

    after: int | None = None
    """The last record that it has; None: it begins with what is recorded from now on."""
    run: str | None = None
    kinds: frozenset[Kind] = frozenset()
    """Empty: all."""
    light: bool = False
    """Whether it wants to know which runs changed, and not the records themselves."""


class StreamReader:
    """One reader of the record, who sees the runs that its sender may see."""

    def __init__(self, tail: RecordTail, store: Store, sender: Sender, others: Permission | None) -> None:
        self._tail = tail
        self._store = store
        self._sender = sender
        self._others = others
        self._sees_all = visible(sender, others) == ANYONES
        self._seen_runs: dict[str, bool] = {}
        self._waits: asyncio.Future[None] | None = None
        self._closed = False

    def close(self) -> None:
        """End the stream: its reader is gone."""
        self._closed = True
        if self._waits is not None and not self._waits.done():
            self._waits.set_result(None)

    async def frames(self, wanted: StreamWanted) -> AsyncGenerator[bytes, None]:
        """Yield events as bytes, in the order of their records, until the reader or the tail is closed."""
        tail = self._tail
        seen = tail.newest if wanted.after is None else wanted.after
        yield _event(StreamStart(seq=seen), "ready", seen)
        while not (tail.closed or self._closed):
            if tail.newest <= seen:
                if not await self._wait(KEEP_ALIVE_S):
                    yield KEEP_ALIVE
                continue
            if wanted.light and tail.newest - seen > FAR_BEHIND:
                yield _event(StreamGap(after=seen, seq=tail.newest), "gap", tail.newest)
                seen = tail.newest
                continue
            newest = tail.newest
            page = await tail.read(wanted.run, seen, LIGHT_PAGE if wanted.light else PAGE)
            # Rows may have been removed, or be of other runs.
            seen = page[-1].seq if page else newest
            mine = [each for each in page if await self._may_see(each, wanted.kinds)]
            for piece in _changes(mine, seen) if wanted.light else _records(mine, seen):
                yield piece
            if wanted.light:
                await asyncio.sleep(TOGETHER_S)

    async def _wait(self, seconds: float) -> bool:
        """Return once there may be more records; False after *seconds*."""
        self._waits = self._tail.expect()
        try:
            async with asyncio.timeout(seconds):
                await self._waits
        except TimeoutError:
            return False
        return True

    async def _may_see(self, record: Record, kinds: Collection[Kind]) -> bool:
        if kinds and record.kind not in kinds:
            return False
        if self._sees_all:
            return True
        if record.run not in self._seen_runs:
            if len(self._seen_runs) >= MOST_RUNS:
                del self._seen_runs[next(iter(self._seen_runs))]
            summary = await summary_of(self._store, record.run)
            self._seen_runs[record.run] = summary is not None and may_see(self._sender, summary, self._others)
        return self._seen_runs[record.run]


def _records(records: list[Record], seen: int) -> list[bytes]:
    """Return records as events, in pieces that are written at once, and then how far the stream is."""
    pieces: list[bytes] = []
    size = PIECE
    for record in records:
        framed = frame(outward(record))
        if size + len(framed) > PIECE:
            pieces.append(b"")
            size = 0
        pieces[-1] += framed
        size += len(framed)
    if not records or records[-1].seq != seen:
        pieces.append(_position_event(seen))
    return pieces


def _changes(records: list[Record], seen: int) -> list[bytes]:
    """Return the runs that records belong to as events; only after all of them the reader has this page."""
    changed: dict[str, RunChange] = {}
    for record in records:
        before = changed.pop(record.run, None)
        changed[record.run] = RunChange(
            run=record.run,
            seq=record.seq,
            at_ms=record.at_ms,
            records=1 if before is None else before.records + 1,
            began=_begins(record) or (before is not None and before.began),
            ended=ends(record) or (before is not None and before.ended),
        )
    return [b"".join([*(_event(each, "run") for each in changed.values()), _position_event(seen)])]


def _begins(record: Record) -> bool:
    return record.kind is Kind.STARTED and isinstance(record.body, Request)


def _position_event(seen: int) -> bytes:
    """Return an event without data: a reader that connects again begins after it, and shows nothing."""
    return f"id: {seen}\n\n".encode()


def _event(value: Struct, name: str, number: int | None = None) -> bytes:
    place = "" if number is None else f"id: {number}\n"
    return f"{place}event: {name}\ndata: ".encode() + encode(value) + b"\n\n"


# ── the endpoint ──────────────────────────────────────────────────────────────────────────────────────────────────────

# The maximum number of digits of a record number.
NUMBER = re.compile("[0-9]{1,18}", re.ASCII)
_ABSENT = -1


class EventEndpoints:
    """The stream of all runs."""

    def __init__(self, delegations: Delegations) -> None:
        self._delegations = delegations
        self._store = delegations.hub.store
        self.tail = RecordTail(self._store)

    @sends(ALL_EVENTS)
    async def events(self, scope: Scope, receive: Receive, send: Send) -> None:
        sender = await self._delegations.sender(scope, headers_of(scope))
        wanted = _stream_wanted(scope)
        if scope["method"] == "HEAD":
            await send_bytes(send, 200, b"", tuple(STREAM_HEADERS))
            return
        reader = StreamReader(self.tail, self._store, sender, scope[OPERATION].others)
        await self.tail.open()
        try:
            soon = self._delegations.waiting.soon
            await send_events(reader.frames(wanted), receive, send, left=reader.close, soon=soon)
        finally:
            self.tail.leave()


def _stream_wanted(scope: Scope) -> StreamWanted:
    refuse_unknown(scope, *scope[OPERATION].query)
    query = query_of(scope, StreamQuery)
    # A browser that connects again sends the header, beside the address with which it began.
    last = last_event_of(headers_of(scope), query.get("after", _ABSENT))
    return StreamWanted(
        after=None if last == _ABSENT else last,
        run=query.get("run"),
        kinds=frozenset(map(Kind, words_in(query.get("kinds", "")))),
        light=query.get("form") == "runs",
    )


def last_event_of(headers: Headers, absent: int) -> int:
    """Return the number in the header `Last-Event-ID`, or raise a `RemitError` if it is not a number."""
    if "last-event-id" not in headers:
        return absent
    last = headers["last-event-id"].strip()
    if NUMBER.fullmatch(last) is None:
        problem = Problem("Last-Event-ID", "give the number of the last event that was received")
        raise RemitError(fault(Code.MALFORMED_ENVELOPE, "invalid header Last-Event-ID", problems=(problem,)))
    return int(last)
