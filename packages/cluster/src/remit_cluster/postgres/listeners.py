"""Gives listeners the records that this hub committed, once their place in the chain is known."""

import asyncio
import logging
from collections import deque
from collections.abc import Callable

from remit.protocol.records import Record
from remit.stores.database import Entry
from remit.stores.group_commit import resolve
from remit.stores.writer import Listener
from remit_cluster.postgres.connection import PgConnection

# The chain is extended within milliseconds, unless the server or the hub that extends it is in trouble.
DELIVERY_SECONDS = 2.0

_log = logging.getLogger("remit.store")

_PLACES = """
    SELECT first, number, last - first + 1 FROM remit.chain
    WHERE stream = $1 AND number + last - first >= $2 ORDER BY number
"""


class Listeners:
    """The listeners of a store, and the records that they have not heard yet."""

    def __init__(self) -> None:
        self._listeners: dict[object, Listener] = {}
        self._eager: set[object] = set()
        self._undelivered: deque[tuple[int, int, Entry]] = deque()
        """StreamPosition, number and content, in the order of the commits."""
        self._waiting: list[tuple[int, int, asyncio.Future[None]]] = []

    def __bool__(self) -> bool:
        return bool(self._listeners)

    @property
    def eager(self) -> bool:
        """Whether one of them must not wait."""
        return bool(self._eager)

    def add(self, listener: Listener, *, patient: bool, changed: Callable[[], None]) -> Callable[[], None]:
        token = object()
        self._listeners[token] = listener
        if not patient:
            self._eager.add(token)
        changed()

        def leave() -> None:
            self._listeners.pop(token, None)
            self._eager.discard(token)
            changed()

        return leave

    def committed(self, stream: int, records: list[tuple[int, Entry]]) -> None:
        """Take records that were committed."""
        self._undelivered.extend((stream, number, entry) for number, entry in records)

    async def reached(self, stream: int, number: int) -> None:
        """Return once everything up to this record was given to the listeners."""
        if not self._undelivered or self._undelivered[0][0] != stream or self._undelivered[0][1] > number:
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((stream, number, future))
        # The records are durable; an answer is not held back for ever because the chain cannot be extended.
        await asyncio.wait([future], timeout=DELIVERY_SECONDS)

    async def chained(self, connection: PgConnection) -> None:
        """Give the listeners what is in the chain by now."""
        while self._undelivered:
            stream, number, _ = self._undelivered[0]
            blocks = await connection.fetch(_PLACES, stream, number)
            records = self._placed(stream, blocks)
            if not records:
                # After a failover, the end of an old stream may be lost; the next one comes after it.
                if self._undelivered[-1][0] == stream:
                    return
                while self._undelivered and self._undelivered[0][0] == stream:
                    self._undelivered.popleft()
                continue
            for listener in list(self._listeners.values()):
                self._call(listener, records)
        self._release()

    def _placed(self, stream: int, blocks: list[tuple[int, ...]]) -> list[Record]:
        records: list[Record] = []
        for first, start, count in blocks:
            while self._undelivered and self._undelivered[0][0] == stream and self._undelivered[0][1] < start + count:
                _, number, (kind, at_ms, run, session, body, _) = self._undelivered.popleft()
                seq = first + number - start
                records.append(Record(seq=seq, kind=kind, at_ms=at_ms, run=run, session=session, body=body))
        self._release()
        return records

    def _release(self) -> None:
        """Let those go on who wait for what was heard; they go on after the listeners were called."""
        head = self._undelivered[0] if self._undelivered else None
        waiting, self._waiting = self._waiting, []
        for stream, number, future in waiting:
            if head is not None and head[0] == stream and head[1] <= number:
                self._waiting.append((stream, number, future))
            else:
                resolve(future, None)

    def close(self) -> None:
        """Let everyone go on: nothing more is heard."""
        self._undelivered.clear()
        self._release()

    def _call(self, listener: Listener, records: list[Record]) -> None:
        try:
            listener(records)
        except Exception:  # noqa: BLE001 - it is someone else's code, and the others are to hear the records all the same
            _log.exception("a listener failed")
