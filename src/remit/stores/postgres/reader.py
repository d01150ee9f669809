"""Queries about records, runs and facts in a PostgreSQL database."""

import sys
from collections.abc import Collection, Sequence
from typing import Any

import msgspec

from remit.protocol.envelope import Response
from remit.protocol.errors import Code, fault
from remit.protocol.records import Kind, Record, outline, read_body, read_request, read_response
from remit.runtime.ports import ANYONES, MOST_FACTS, RunScope, RunState, RunSummary, StoreError
from remit.stores.postgres.connection import PgConnection
from remit.stores.postgres.schema import NOW_MS
from remit.stores.reader import run_state
from remit.stores.schema import KINDS

KIND_OF = {number: kind for kind, number in KINDS.items()}

# A page of the record; a hundred of the largest bodies fit into memory.
PAGE = 100
# This much is read for an outline of the newest records.
RECENT_BYTES = 16 * 2**20

# The row of the chain in which a record of the table `record` is; no row if it is not chained yet.
SEQ = """
    JOIN LATERAL (
        SELECT chain.first + record.number - chain.number AS seq, chain.last FROM remit.chain
        WHERE chain.stream = record.stream AND chain.number <= record.number ORDER BY chain.number DESC LIMIT 1
    ) AS placed ON placed.seq <= placed.last
"""

_COLUMNS = "seq, kind, at_ms, run, session, body"
_OF_RUN = f"SELECT {_COLUMNS} FROM remit.record {SEQ}"
_OF_ALL = """
    SELECT chain.first + record.number - chain.number AS seq, kind, at_ms, run, session, body
    FROM (SELECT * FROM remit.chain WHERE last > $1 ORDER BY first LIMIT $2) AS chain
    JOIN remit.record ON record.stream = chain.stream
        AND record.number BETWEEN chain.number AND chain.number + chain.last - chain.first
    WHERE chain.first + record.number - chain.number > $1 ORDER BY seq LIMIT $2
"""
_END_OF_BLOCKS = "SELECT max(last) FROM (SELECT last FROM remit.chain WHERE last > $1 ORDER BY first LIMIT $2) AS block"


async def records(
    connection: PgConnection, run: str | None, session: str | None, after: int, limit: int
) -> list[Record]:
    """Return chained records in order."""
    if run is None and session is None:
        return await _all(connection, after, limit)
    wanted = {"run": run, "session": session}
    values = [value for value in wanted.values() if value is not None]
    names = [name for name, value in wanted.items() if value is not None]
    where = " AND ".join(f"{name} = ${place}" for place, name in enumerate(names, start=3))
    rows = await connection.fetch(f"{_OF_RUN} WHERE {where} AND seq > $1 ORDER BY seq LIMIT $2", after, limit, *values)
    return [record_of(*row) for row in rows]


async def _all(connection: PgConnection, after: int, limit: int) -> list[Record]:
    found: list[Record] = []
    while (size := min(PAGE, limit - len(found))) > 0:
        rows = await connection.fetch(_OF_ALL, after, size)
        found += [record_of(*row) for row in rows]
        if len(rows) == size:
            after = found[-1].seq
        elif (after := await connection.fetchval(_END_OF_BLOCKS, after, size)) is None:
            break  # not merely blocks whose rows were removed
    return found


def record_of(seq: int, number: int, at_ms: int, run: str, session: str, body: bytes) -> Record:
    """Return a record from its columns."""
    kind = KIND_OF.get(number)
    if kind is None:
        raise StoreError(
            fault(
                Code.STORE_UNAVAILABLE,
                f"row {seq} of the record has an unknown kind",
                suggestion="The database was changed: check it with `remit audit verify`.",
            )
        )
    return Record(seq=seq, kind=kind, at_ms=at_ms, run=run, session=session, body=read_body(kind, body))


async def newest(connection: PgConnection) -> int:
    """Return the number of the newest chained record."""
    return await connection.fetchval("SELECT coalesce(max(last), 0) FROM remit.chain")


async def recent(connection: PgConnection, limit: int) -> list[Record]:
    """Return the outlines of the newest records."""
    last = await newest(connection)
    found: list[Record] = []
    room, end = RECENT_BYTES, last
    kinds = [KINDS[kind] for kind in (Kind.STARTED, Kind.DELEGATION, Kind.RESULT)]
    while end > max(0, last - limit) and room > 0:
        first = max(0, last - limit, end - PAGE)
        rows = await connection.fetch(_RECENT, first, end, kinds)
        room -= sum(len(row[-1]) for row in rows)
        some = [record_of(*row) for row in rows]
        found[:0] = [
            msgspec.structs.replace(each, body=said) for each in some if (said := outline(each.body)) is not None
        ]
        end = first
    return found


_RECENT = """
    SELECT chain.first + record.number - chain.number AS seq, kind, at_ms, run, session, body
    FROM remit.chain JOIN remit.record ON record.stream = chain.stream
        AND record.number BETWEEN chain.number + greatest($1 + 1 - chain.first, 0)
        AND chain.number + least($2, chain.last) - chain.first
    WHERE chain.last > $1 AND chain.first <= $2 AND kind = ANY ($3::smallint[]) ORDER BY seq
"""


async def before_newest(connection: PgConnection, count: int, run: str | None) -> int:
    """Return the number before the newest *count* rows, optionally of one run."""
    last = await newest(connection)
    if run is None:
        return max(0, last - count)
    sql = f"SELECT seq FROM remit.record {SEQ} WHERE run = $1 ORDER BY seq DESC LIMIT $2"
    found = [seq for (seq,) in await connection.fetch(sql, run, count)]
    return found[-1] - 1 if found else last


async def shared_runs(connection: PgConnection, begins_with: str, limit: int) -> list[str]:
    """Return the runs with other devices whose ids start with a text."""
    sql = "SELECT DISTINCT run FROM remit.record WHERE kind = $1 AND starts_with(run, $2) LIMIT $3"
    return [run for (run,) in await connection.fetch(sql, KINDS[Kind.SHARED], begins_with, limit)]


class _Conditions:
    """Conditions of a query and their values."""

    def __init__(self, *values: Any) -> None:
        self.values: list[Any] = list(values)
        self.where: list[str] = ["TRUE"]

    def add(self, condition: str, *values: Any) -> None:
        """Add a condition in which each `{}` stands for a value."""
        first = len(self.values) + 1
        self.where.append(condition.format(*(f"${first + place}" for place in range(len(values)))))
        self.values += values

    def within(self, of: RunScope) -> None:
        if of.users is not None:
            self.add("by_user = ANY ({}::text[])", sorted(of.users))
        if of.agents is not None:
            self.add("target = ANY ({}::text[])", sorted(of.agents))
        if of.via is not None:
            self.add("via = {}", of.via)
        if of.before is not None:
            self.add("place < (SELECT max(place) FROM remit.request AS other WHERE other.run = {})", of.before)
        if of.since_ms is not None:
            self.add("started_ms >= {}", of.since_ms)
        if of.until_ms is not None:
            self.add("started_ms < {}", of.until_ms)


async def runs(
    connection: PgConnection,
    user: str | None,
    run: str | None,
    limit: int,
    of: RunScope = ANYONES,
    correlation: str | None = None,
) -> list[RunSummary]:
    """Return the newest runs."""
    wanted = _Conditions(limit)
    if user is not None:
        wanted.add("by_user = {}", user)
    if run:
        # No name sorts after one that continues with the last character of all.
        wanted.add('request.run COLLATE "C" >= {} AND request.run COLLATE "C" <= {}', run, run + chr(sys.maxunicode))
    if correlation is not None:
        wanted.add("coalesce(nullif(correlation, ''), request.run) = {}", correlation)
    wanted.within(of)
    rows = await connection.fetch(_RUNS.format(where=" AND ".join(wanted.where)), *wanted.values)
    return [_summary(*row) for row in rows]


_RUNS = f"""
    SELECT request.run, by_user, CASE WHEN last_number IS NOT NULL THEN 'finished' WHEN waiting THEN 'waiting'
        WHEN greatest(request.lease_until_ms, coalesce(worker.lease_until_ms, 0)) <= {NOW_MS} THEN 'silent'
        ELSE 'running' END, started_ms, begun.body, ended.body, request.session, coalesce(ended_ms, begun_ms)
    FROM remit.request
    JOIN remit.record AS begun ON begun.stream = begun_stream AND begun.number = begun_number
    LEFT JOIN remit.record AS ended ON ended.stream = last_stream AND ended.number = last_number
    LEFT JOIN remit.worker ON worker.name = request.worker AND request.worker <> ''
    WHERE {{where}} ORDER BY place DESC LIMIT $1
"""


def _summary(
    run: str, user: str, state: Any, started_ms: int, begun: bytes, ended: bytes | None, session: str, changed_ms: int
) -> RunSummary:
    request = read_request(begun)
    return RunSummary(
        run,
        user,
        request.target,
        request.objective,
        started_ms,
        read_response(ended) if ended is not None else None,
        state,
        request.via or "",
        session,
        changed_ms,
        request.correlation or run,
    )


async def named(connection: PgConnection, id: str, of: RunScope) -> list[str]:
    """Return the runs whose requests have this id."""
    wanted = _Conditions()
    wanted.add("id = {} AND state < 2", id)
    wanted.within(of)
    sql = f"SELECT run FROM remit.request WHERE {' AND '.join(wanted.where)} ORDER BY place DESC"
    return [run for (run,) in await connection.fetch(sql, *wanted.values)]


async def states(
    connection: PgConnection, agent: str, users: Collection[str] | None, session: str | None, limit: int
) -> list[RunState]:
    """Return the states of an agent's runs."""
    wanted = _Conditions(agent)
    if users is not None:
        wanted.add("by_user = ANY ({}::text[])", list(users))
    if session is not None:
        wanted.add("request.session = {}", session)
    where = " AND ".join(wanted.where)
    cancelled: dict[str, int] = {}
    for run, at_ms, body in await connection.fetch(_NOTICES_AFTER.format(where=where), *wanted.values):
        if _CANCELLED in body:
            cancelled[run] = max(at_ms, cancelled.get(run, 0))
    values = [*wanted.values, limit, list(cancelled), list(cancelled.values())]
    sql = _STATES.format(where=where, limit=len(values) - 2, runs=len(values) - 1, times=len(values))
    return [run_state(*row) for row in await connection.fetch(sql, *values)]


# As it is written in the body of a notice.
_CANCELLED = f'"code":"{Code.CANCELLED.value}"'.encode()
_LAST_RECORD = """
    JOIN remit.record ON record.stream = coalesce(last_stream, begun_stream)
        AND record.number = coalesce(last_number, begun_number)
"""
# A notice after the end of a run that asked back, and that says so, can only mean that the run was cancelled.
_NOTICES_AFTER = f"""
    SELECT later.run, later.at_ms, later.body FROM remit.request {_LAST_RECORD}
    JOIN remit.record AS later ON later.run = request.run AND later.kind = {KINDS[Kind.NOTICE]}
        AND later.tx >= record.tx AND NOT (later.stream = record.stream AND later.number <= record.number)
    WHERE target = $1 AND asks_back AND {{where}}
"""
_STATES = f"""
    SELECT run, id, by_user, via, session, correlation, coalesce(called_off_ms, ended_ms, begun_ms), seq, status,
        asks_back, called_off_ms IS NOT NULL
    FROM (
        SELECT request.run, id, by_user, via, request.session, correlation, begun_ms, ended_ms, status, asks_back,
            placed.seq, cancelled.at_ms AS called_off_ms
        FROM remit.request {_LAST_RECORD} {SEQ}
        LEFT JOIN unnest(${{runs}}::text[], ${{times}}::bigint[]) AS cancelled (run, at_ms)
            ON cancelled.run = request.run AND asks_back
        WHERE target = $1 AND {{where}}
    ) AS found
    ORDER BY 7 DESC, seq DESC LIMIT ${{limit}}
"""


async def running(connection: PgConnection) -> frozenset[str]:
    """Return the runs in progress."""
    rows = await connection.fetch(
        "SELECT run FROM remit.request LEFT JOIN remit.worker ON worker.name = request.worker AND request.worker <> ''"
        " WHERE state = 0 AND NOT waiting"
        f" AND greatest(request.lease_until_ms, coalesce(worker.lease_until_ms, 0)) > {NOW_MS}"
    )
    return frozenset(run for (run,) in rows)


async def outcomes(connection: PgConnection, wanted: Sequence[str]) -> dict[str, Response | None]:
    """Return the outcome of each run that was submitted, None if it has not ended."""
    rows = await connection.fetch(_OUTCOMES, list(wanted))
    return {run: None if body is None else read_response(body) for run, body in rows}


# The newest request counts, if an id was used again.
_OUTCOMES = """
    SELECT DISTINCT ON (request.run) request.run, body FROM remit.request
    LEFT JOIN remit.record ON stream = last_stream AND number = last_number
    WHERE request.run = ANY ($1::text[]) AND (state < 2 OR state = 2) ORDER BY request.run, state = 2, place DESC
"""


async def journal(connection: PgConnection, run: str) -> dict[str, bytes]:
    """Return the journal of a run."""
    rows = await connection.fetch("SELECT step, value FROM remit.journal WHERE run = $1", run)
    return {step: value for step, value in rows}  # noqa: C416 - the rows are records of the driver


async def facts(connection: PgConnection, user: str) -> tuple[str, ...]:
    """Return the newest facts about a user, oldest first."""
    rows = await connection.fetch(
        "SELECT text FROM remit.fact WHERE by_user = $1 ORDER BY id DESC LIMIT $2", user, MOST_FACTS
    )
    return tuple(text.decode(errors="surrogatepass") for (text,) in reversed(rows))


async def cell(connection: PgConnection, key: str) -> tuple[int, bytes] | None:
    """Return a shared value and its revision."""
    found = await connection.fetchrow("SELECT revision, value FROM remit.cell WHERE key = $1", key)
    return None if found is None else (found[0], found[1])


async def handed_over(connection: PgConnection, run: str, user: str) -> list[tuple[str, str]]:
    """Return the calls of a run that other hubs on this store executed: request id, and run there."""
    rows = await connection.fetch(
        "SELECT id, run FROM remit.request WHERE state < 2 AND by_user = $1 AND origin LIKE '%@%@%'"
        " AND starts_with(id, $2) AND run <> $2 ORDER BY place",
        user,
        run,
    )
    return [(id, part) for id, part in rows]
