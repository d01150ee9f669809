"""Lists records and conversations of a SQLite file, newest first."""

import sys
from collections.abc import Awaitable
from typing import Any, Protocol, TypeVar

import msgspec

from remit.protocol.records import Kind, Record, read_request
from remit.runtime.listing import is_wanted, list_records
from remit.runtime.ports import MOST_READ, ListedRecords, ListedSessions, RecordFilter, SessionFilter, SessionSummary
from remit.stores.connection import SqliteConnection
from remit.stores.reader import Query, newest, newest_page
from remit.stores.schema import KINDS

T = TypeVar("T")


class Reads(Protocol):
    """Runs a query in a reader's thread."""

    def __call__(self, query: Query[T], /) -> Awaitable[T]: ...


class SqliteListings:
    """The lists of a SQLite store."""

    def __init__(self, read: Reads) -> None:
        self._read = read

    async def records(self, wanted: RecordFilter, *, before: int | None = None, limit: int = 100) -> ListedRecords:
        """Return the newest records that a filter selects, of those before a number."""
        first = await self._read(newest) + 1 if before is None else before
        return await list_records(self._find, wanted, before=first, limit=limit)

    def _find(self, wanted: RecordFilter, above: int, below: int, size: int) -> Awaitable[list[Record]]:
        where, values = _conditions(wanted)
        return self._read(
            lambda connection: newest_page(
                connection, f"seq > ? AND seq < ? AND {where}", (above, below, *values), size
            )
        )

    async def sessions(self, wanted: SessionFilter, *, before: int | None = None, limit: int = 50) -> ListedSessions:
        """Return the conversations that a filter selects, the one with the newest request first."""
        return await self._read(_sessions(wanted, sys.maxsize if before is None else before, limit))


def _conditions(wanted: RecordFilter) -> tuple[str, list[Any]]:
    kinds = None if wanted.kinds is None else _json([KINDS[kind] for kind in sorted(wanted.kinds) if kind in KINDS])
    conditions = {
        "run = ?": wanted.run,
        "session = ?": wanted.session,
        "kind IN (SELECT value FROM json_each(?))": kinds,
        "run IN (SELECT request.run FROM request WHERE user = ?)": wanted.user,
        "at_ms >= ?": wanted.since_ms,
        "at_ms <= ?": wanted.until_ms,
    }
    given = {condition: value for condition, value in conditions.items() if value is not None}
    return " AND ".join(["TRUE", *given]), list(given.values())


def _json(values: list[Any]) -> str:
    return msgspec.json.encode(values).decode()


def _sessions(wanted: SessionFilter, before: int, limit: int) -> Query[ListedSessions]:
    conditions: dict[str, Any] = {"first_seq < ?": before}
    if wanted.session is not None:
        conditions[f"first_seq IN (SELECT seq FROM record WHERE session = ? AND kind = {_STARTED})"] = wanted.session
    if wanted.user is not None:
        conditions["user = ?"] = wanted.user
    if wanted.of.users is not None:
        conditions["user IN (SELECT value FROM json_each(?))"] = _json(sorted(wanted.of.users))
    sql, values = _NEWEST_OF_SESSIONS.format(where=" AND ".join(conditions)), conditions.values()

    def query(connection: SqliteConnection) -> ListedSessions:
        found: list[SessionSummary] = []
        looked_at = place = 0
        for place, session, user, run, body, begun_ms, last_ms in connection.execute(sql, (*values, MOST_READ)):
            looked_at += 1
            request = read_request(body)
            last = SessionSummary(
                session, user, request.target, request.objective, begun_ms, last_ms, 0, 0, run, request.via or ""
            )
            if is_wanted(last, wanted):
                first_ms, runs, messages = connection.execute(_COUNTS, (session,)).fetchall()[0]
                found.append(last._replace(first_ms=first_ms, runs=runs, messages=messages))
                if len(found) == limit:
                    return ListedSessions(found, place)
        return ListedSessions(found, place if looked_at == MOST_READ else None)

    return query


_STARTED, _RESULT = KINDS[Kind.STARTED], KINDS[Kind.RESULT]
# The newest request of each session: no other began in it later. The index of sessions finds that.
_NEWEST_OF_SESSIONS = f"""
    SELECT first_seq, begun.session, user, request.run, begun.body, begun.at_ms, coalesce(ended.at_ms, begun.at_ms)
    FROM request JOIN record AS begun ON begun.seq = coalesce(begun_seq, first_seq)
    LEFT JOIN record AS ended ON ended.seq = last_seq
    WHERE {{where}} AND NOT EXISTS (
        SELECT 1 FROM record AS later
        WHERE later.session = begun.session AND later.seq > begun.seq AND later.kind = {_STARTED}
    )
    ORDER BY first_seq DESC LIMIT ?
"""
# A request that was edited is recorded twice and counts once.
_COUNTS = f"""
    SELECT min(at_ms), count(DISTINCT CASE WHEN kind = {_STARTED} THEN run END),
        count(DISTINCT CASE WHEN kind = {_STARTED} THEN run END) + count(CASE WHEN kind = {_RESULT} THEN 1 END)
    FROM record WHERE session = ? AND kind IN ({_STARTED}, {_RESULT})
"""
