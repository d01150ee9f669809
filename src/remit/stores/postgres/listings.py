"""Lists records and conversations of a PostgreSQL database, newest first."""

import sys
from collections.abc import Awaitable, Callable
from typing import Any, Protocol, TypeVar

from remit.protocol.records import Kind, Record, read_request
from remit.runtime.listing import is_wanted, list_records
from remit.runtime.ports import MOST_READ, ListedRecords, ListedSessions, RecordFilter, SessionFilter, SessionSummary
from remit.stores.postgres.connection import PgConnection, Query
from remit.stores.postgres.reader import SEQ, newest, record_of
from remit.stores.schema import KINDS

T = TypeVar("T")

# How many rows of the chain are searched at first; each time that is not enough, eight times as many.
_FIRST_SPAN = 200
_WIDER = 8
# How many conversations are read at once.
_SESSIONS = 200


class ReadsDatabase(Protocol):
    """Runs a query on a connection that reads."""

    def __call__(self, query: Query[T], /) -> Awaitable[T]: ...


class PostgresListings:
    """The lists of a PostgreSQL store."""

    def __init__(self, read: ReadsDatabase, caught_up: Callable[[], Awaitable[None]]) -> None:
        self._read = read
        self._caught_up = caught_up

    async def records(self, wanted: RecordFilter, *, before: int | None = None, limit: int = 100) -> ListedRecords:
        await self._caught_up()
        first = await self._read(newest) + 1 if before is None else before
        return await list_records(self._find, wanted, before=first, limit=limit)

    def _find(self, wanted: RecordFilter, above: int, below: int, size: int) -> Awaitable[list[Record]]:
        if wanted.run is None and wanted.session is None:
            return self._read(lambda connection: _in_range(connection, wanted, above, below, size))
        return self._read(lambda connection: _by_index(connection, wanted, above, below, size))

    async def sessions(self, wanted: SessionFilter, *, before: int | None = None, limit: int = 50) -> ListedSessions:
        first = sys.maxsize if before is None else before
        return await self._read(lambda connection: _sessions(connection, wanted, first, limit))


async def _by_index(connection: PgConnection, wanted: RecordFilter, above: int, below: int, size: int) -> list[Record]:
    where, values = _conditions(wanted, 4)
    rows = await connection.fetch(_OF_RUN.format(where=where), above, below, size, *values)
    return [record_of(*row) for row in rows]


async def _in_range(connection: PgConnection, wanted: RecordFilter, above: int, below: int, size: int) -> list[Record]:
    """Return records of a range, searched in pieces that grow: a whole range would be sorted for one page."""
    where, values = _conditions(wanted, 4)
    found: list[Record] = []
    span = _FIRST_SPAN
    while below > above + 1 and len(found) < size:
        low = max(above, below - 1 - span)
        rows = await connection.fetch(_OF_RANGE.format(where=where), low, below - 1, size - len(found), *values)
        found += [record_of(*row) for row in rows]
        below, span = low + 1, span * _WIDER
    return found


def _conditions(wanted: RecordFilter, place: int) -> tuple[str, list[Any]]:
    kinds = None if wanted.kinds is None else [KINDS[kind] for kind in wanted.kinds if kind in KINDS]
    conditions = {
        "run = {}": wanted.run,
        "session = {}": wanted.session,
        "kind = ANY ({}::smallint[])": kinds,
        "run IN (SELECT request.run FROM remit.request WHERE by_user = {})": wanted.user,
        "at_ms >= {}": wanted.since_ms,
        "at_ms <= {}": wanted.until_ms,
    }
    given = {condition: value for condition, value in conditions.items() if value is not None}
    where = [condition.format(f"${number}") for number, condition in enumerate(given, start=place)]
    return " AND ".join(["TRUE", *where]), list(given.values())


_OF_RUN = f"""
    SELECT seq, kind, at_ms, run, session, body FROM remit.record {SEQ}
    WHERE seq > $1 AND seq < $2 AND {{where}} ORDER BY seq DESC LIMIT $3
"""
_OF_RANGE = """
    SELECT chain.first + record.number - chain.number AS seq, kind, at_ms, run, session, body
    FROM remit.chain JOIN remit.record ON record.stream = chain.stream
        AND record.number BETWEEN chain.number + greatest($1 + 1 - chain.first, 0)
        AND chain.number + least($2, chain.last) - chain.first
    WHERE chain.last > $1 AND chain.first <= $2 AND {where} ORDER BY seq DESC LIMIT $3
"""


async def _sessions(connection: PgConnection, wanted: SessionFilter, before: int, limit: int) -> ListedSessions:
    conditions: dict[str, Any] = {
        "request.session = {}": wanted.session,
        "by_user = {}": wanted.user,
        "by_user = ANY ({}::text[])": None if wanted.of.users is None else sorted(wanted.of.users),
        "target = ANY ({}::text[])": None if wanted.of.agents is None else sorted(wanted.of.agents),
        "via = {}": wanted.of.via,
    }
    given = {condition: value for condition, value in conditions.items() if value is not None}
    where = [condition.format(f"${number}") for number, condition in enumerate(given, start=3)]
    if wanted.session is not None:
        where.append(_BY_SESSION.format(f"${3 + list(given).index('request.session = {}')}"))
    sql = _NEWEST_OF_SESSIONS.format(where=" AND ".join(["TRUE", *where]))
    found: list[SessionSummary] = []
    for _ in range(0, MOST_READ, _SESSIONS):
        rows = await connection.fetch(sql, before, _SESSIONS, *given.values())
        for place, session, user, agent, via, run, started_ms, last_ms, body in rows:
            before = place
            last = SessionSummary(
                session, user, agent, read_request(body).objective, started_ms, last_ms, 0, 0, run, via
            )
            if is_wanted(last, wanted):
                counts = await connection.fetchrow(_COUNTS, session)
                assert counts
                first_ms, runs, messages = counts
                found.append(last._replace(first_ms=first_ms, runs=runs, messages=messages))
                if len(found) == limit:
                    return ListedSessions(found, before)
        if len(rows) < _SESSIONS:
            return ListedSessions(found, None)
    return ListedSessions(found, before)


_STARTED, _RESULT = KINDS[Kind.STARTED], KINDS[Kind.RESULT]
# Requests have no index of sessions, and records have: they lead from a session to its runs. Both indexes of runs are
# used only if the condition names them.
_BY_SESSION = (
    f"request.run IN (SELECT run FROM remit.record WHERE record.session = {{}} AND kind = {_STARTED})"
    " AND (request.state < 2 OR request.state = 2)"
)
_NEWEST_OF_SESSIONS = f"""
    SELECT place, request.session, by_user, target, via, request.run, started_ms, coalesce(ended_ms, begun_ms),
        begun.body
    FROM remit.request
    JOIN remit.record AS begun ON begun.stream = begun_stream AND begun.number = begun_number
    WHERE place < $1 AND {{where}} AND NOT EXISTS (
        SELECT 1 FROM remit.record AS said JOIN remit.request AS later ON later.run = said.run
        WHERE said.session = request.session AND said.kind = {_STARTED} AND later.session = request.session
            AND later.place > request.place AND (later.state < 2 OR later.state = 2)
    )
    ORDER BY place DESC LIMIT $2
"""
# A request that was edited is recorded twice and counts once.
_COUNTS = f"""
    SELECT min(at_ms), count(DISTINCT CASE WHEN kind = {_STARTED} THEN run END),
        count(DISTINCT CASE WHEN kind = {_STARTED} THEN run END) + count(CASE WHEN kind = {_RESULT} THEN 1 END)
    FROM remit.record WHERE session = $1 AND kind IN ({_STARTED}, {_RESULT})
"""
