"""The records and counters of the store in memory."""

import asyncio
from collections.abc import Callable, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from remit.policy.context import messages_from_records
from remit.protocol.codec import encode
from remit.protocol.envelope import Message, Request
from remit.protocol.records import Body, Kind, Record, outline
from remit.runtime.ports import NumberedRecord, SessionOwner, TokenCounter

Listener = Callable[[list[Record]], None]


class MemoryRecords:
    """All records in order, and the listeners that are told of each."""

    def __init__(self) -> None:
        self.all: list[Record] = []
        self.sizes: dict[str, int] = {}
        self._listeners: dict[object, Listener] = {}
        self._transferred: dict[str, int] = {}

    def append(self, kind: Kind, at_ms: int, run: str, session: str, body: Body) -> None:
        record = Record(seq=len(self.all) + 1, kind=kind, at_ms=at_ms, run=run, session=session, body=body)
        self.all.append(record)
        if run in self.sizes:
            self.sizes[run] += len(encode(body))
        if self._listeners:
            asyncio.get_running_loop().call_soon(self._tell, record)

    def transfer(self, source: str, entries: Sequence[NumberedRecord]) -> int:
        for entry in entries:
            if entry.number > self._transferred.get(source, 0):
                self._transferred[source] = entry.number
                self.append(*entry[1:])
        return self._transferred.get(source, 0)

    def listen(self, listener: Listener) -> Callable[[], None]:
        token = object()
        self._listeners[token] = listener

        def stop() -> None:
            self._listeners.pop(token, None)

        return stop

    def _tell(self, record: Record) -> None:
        for listener in list(self._listeners.values()):
            listener([record])

    def find(self, run: str | None, session: str | None, after: int) -> list[Record]:
        return [
            record
            for record in self.all
            if record.seq > after and run in (None, record.run) and session in (None, record.session)
        ]

    def recent(self, limit: int) -> list[Record]:
        newest = self.all[-limit:] if limit else []
        return [replace(each, body=body) for each in newest if (body := outline(each.body)) is not None]

    def conversation(self, session: str, count: TokenCounter) -> list[Message]:
        return messages_from_records(self.find(None, session, 0), original=self._numbered, count=count).messages

    def first_owner(self, session: str) -> SessionOwner | None:
        """Return the user and agent of the first request in a session."""
        for record in self.find(None, session, 0):
            if isinstance(record.body, Request):
                return SessionOwner(record.body.remit.user, record.body.target)
        return None

    def _numbered(self, seq: int) -> Record | None:
        return self.all[seq - 1] if 0 < seq <= len(self.all) else None


class _Window(NamedTuple):
    start_ms: int
    total: int


class MemoryCounters:
    """Counters by time window, and values with a revision."""

    def __init__(self) -> None:
        self._counters: dict[str, _Window] = {}
        self._cells: dict[str, tuple[int, bytes]] = {}

    def incr(self, key: str, n: int, window_ms: int, now_ms: int) -> int:
        new = _Window(now_ms - now_ms % window_ms, n)
        old = self._counters.get(key)
        if old is not None and old.start_ms >= new.start_ms:
            new = _Window(old.start_ms, old.total + n)
        self._counters[key] = new
        return new.total

    def cas(self, key: str, revision: int, value: bytes) -> int | None:
        if self._cells.get(key, (0, b""))[0] != revision:
            return None
        self._cells[key] = (revision + 1, value)
        return revision + 1

    def get(self, key: str) -> tuple[int, bytes] | None:
        return self._cells.get(key)
