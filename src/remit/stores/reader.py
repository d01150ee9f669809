"""Queries of the records, runs and sessions in an SQLite file; they run on any connection, without an event loop."""

import sys
from collections.abc import Callable, Sequence
from typing import Any, Literal, TypeVar

import msgspec

from remit.protocol.envelope import Request, Response
from remit.protocol.errors import Code, fault
from remit.protocol.lifecycle import Status
from remit.protocol.records import SAID, Kind, Record, read_body, read_request, read_response
from remit.runtime.ports import ANYONES, MOST_FACTS, RunScope, RunState, RunSummary, SessionOwner, StoreError
from remit.stores.connection import SqliteConnection
from remit.stores.schema import KINDS

T = TypeVar("T")
Query = Callable[[SqliteConnection], T]
State = Literal["waiting", "running", "silent", "finished"]

_KIND_OF = {number: kind for kind, number in KINDS.items()}


# A tampered row may contain invalid JSON.
_OF_PROFILE = f"""kind = {KINDS[Kind.SHARED]} AND
    CASE WHEN json_valid(CAST(body AS TEXT)) THEN CAST(body AS TEXT) ->> '$.profile' END = ?"""


def within(*, run: str | None = None, session: str | None = None, profile: str | None = None) -> tuple[str, list[str]]:
    """Return the condition that a row belongs to a run, a session or a profile, if given, with its values."""
    wanted = {"run = ?": run, "session = ?": session, _OF_PROFILE: profile}
    given = {condition: value for condition, value in wanted.items() if value is not None}
    return " AND ".join(["TRUE", *given]), list(given.values())


def shared_runs(begins_with: str, limit: int) -> Query[list[str]]:
    """Return the query for the runs with other devices whose ids start with a text."""
    sql = f"SELECT DISTINCT run FROM record WHERE kind = {KINDS[Kind.SHARED]} AND run >= ? AND run <= ? LIMIT ?"
    bounds = (begins_with, begins_with + chr(sys.maxunicode))
    return lambda connection: [run for (run,) in connection.execute(sql, (*bounds, limit))]


def records(
    run: str | None, session: str | None, after: int, limit: int, profile: str | None = None
) -> Query[list[Record]]:
    """Return the query for committed records in order."""
    where, values = within(run=run, session=session, profile=profile)
    where = f"seq > ? AND {where}"

    def query(connection: SqliteConnection) -> list[Record]:
        found: list[Record] = []
        while (size := min(PAGE, limit - len(found))) > 0:
            start = found[-1].seq if found else after
            some = page(connection, where, (start, *values), size)
            found += some
            if len(some) < size:
                break
        return found

    return query


def page(connection: SqliteConnection, where: str, values: Sequence[Any], size: int) -> list[Record]:
    """Return the first records, at most `PAGE`, for which *where* holds, in order."""
    ((raw,),) = connection.execute(_PAGE.format(where=where), (*values, size)).fetchall()
    return [_record(*row) for row in _rows(raw)]


def newest(connection: SqliteConnection) -> int:
    """Return the number of the newest record."""
    return connection.execute("SELECT coalesce(max(seq), 0) FROM record").fetchall()[0][0]


def newest_page(connection: SqliteConnection, where: str, values: Sequence[Any], size: int) -> list[Record]:
    """Return the last records, at most `PAGE`, for which *where* holds, newest first."""
    ((raw,),) = connection.execute(_NEWEST_PAGE.format(where=where), (*values, size)).fetchall()
    return [_record(*row) for row in reversed(_rows(raw))]


def recent(limit: int) -> Query[list[Record]]:
    """Return the query for the outlines of the newest records."""

    def query(connection: SqliteConnection) -> list[Record]:
        end = newest(connection)
        found: list[Record] = []
        room, last = RECENT_BYTES, end
        while last > max(0, end - limit) and room > 0:
            first = max(0, end - limit, last - PAGE)
            ((raw, size),) = connection.execute(_OUTLINES, (first, last)).fetchall()
            found[:0] = [_record(*row) for row in _rows(raw)]
            room, last = room - size, first
        return found

    return query


def numbered(connection: SqliteConnection, numbers: Sequence[int]) -> list[Record]:
    """Return the records with these numbers, at most `PAGE`."""
    ((raw,),) = connection.execute(_NUMBERED, (msgspec.json.encode(numbers).decode(),)).fetchall()
    return [_record(*row) for row in _rows(raw)]


# A page is returned as one row of JSON. Each row releases the interpreter lock, which a busy event loop returns late:
# beside such a loop 1,000 records took 560 ms row by row, and take 17 ms this way. A hundred of the largest bodies stay
# below SQLite's limit for one value.
PAGE = 100
_ROWS = "json_group_array(json_array(seq, kind, at_ms, run, session, json(CAST(body AS TEXT))) ORDER BY seq)"
_PAGE = f"SELECT {_ROWS} FROM (SELECT * FROM record WHERE {{where}} ORDER BY seq LIMIT ?)"
_NEWEST_PAGE = f"SELECT {_ROWS} FROM (SELECT * FROM record WHERE {{where}} ORDER BY seq DESC LIMIT ?)"
_NUMBERED = f"SELECT {_ROWS} FROM record WHERE seq IN (SELECT value FROM json_each(?))"
# This much is read in some 30 ms.
RECENT_BYTES = 16 * 2**20
_PLACES = ", ".join(f"'$.{name}'" for name in SAID)
_ENVELOPES = ", ".join(str(KINDS[kind]) for kind in (Kind.STARTED, Kind.DELEGATION, Kind.RESULT))
_OUTLINES = f"""
    SELECT json_group_array(json_array(
            seq, kind, at_ms, run, session, json_remove(CAST(body AS TEXT), {_PLACES})
        ) ORDER BY seq), coalesce(sum(length(body)), 0)
    FROM record WHERE seq > ? AND seq <= ? AND kind IN ({_ENVELOPES})
"""
_rows = msgspec.json.Decoder(list[tuple[int, int, int, str, str, msgspec.Raw]]).decode


def _record(seq: int, number: int, at_ms: int, run: str, session: str, raw: msgspec.Raw) -> Record:
    kind = _KIND_OF.get(number)
    if kind is None:
        raise StoreError(
            fault(
                Code.STORE_UNAVAILABLE,
                f"row {seq} of the record has an unknown kind",
                suggestion="The file was changed: check it with `remit audit verify`.",
            )
        )
    return Record(seq=seq, kind=kind, at_ms=at_ms, run=run, session=session, body=read_body(kind, bytes(raw)))


def runs(
    user: str | None,
    run: str | None,
    limit: int,
    now_ms: int,
    of: RunScope = ANYONES,
    correlation: str | None = None,
) -> Query[list[RunSummary]]:
    """Return the query for the newest runs."""
    wanted: dict[str, list[Any]] = {"user = ?": [user]} if user is not None else {}
    if run:
        # No name sorts after one that continues with the last character of all.
        bounds = [run, run + chr(sys.maxunicode)]
        wanted[_BEGINS_WITH] = bounds * 2
    if correlation is not None:
        # Without an index: the query is rare, and each index costs every delegation.
        wanted["coalesce(CAST(begun.body AS TEXT) ->> '$.correlation', request.run) = ?"] = [correlation]
    wanted |= _within(of)
    sql = _RUNS.format(where=" AND ".join(wanted) or "TRUE")
    values = [value for each in wanted.values() for value in each]
    return lambda connection: [_summary(*row) for row in connection.execute(sql, (now_ms, *values, limit))]


_RUNS = """
    SELECT request.run, user, CASE WHEN last_seq THEN 'finished' WHEN waiting THEN 'waiting'
        WHEN lease_until_ms <= ? THEN 'silent' ELSE 'running' END, submitted.at_ms, begun.body, ended.body,
        begun.session, coalesce(ended.at_ms, begun.at_ms)
    FROM request JOIN record AS submitted ON submitted.seq = first_seq
    JOIN record AS begun ON begun.seq = coalesce(begun_seq, first_seq) LEFT JOIN record AS ended ON ended.seq = last_seq
    WHERE {where} ORDER BY first_seq DESC LIMIT ?
"""

# Two halves, each of which has an index.
_BEGINS_WITH = """first_seq IN (
    SELECT first_seq FROM request WHERE state < 2 AND run >= ? AND run <= ?
    UNION ALL SELECT first_seq FROM request WHERE state = 2 AND run >= ? AND run <= ?)"""


def named(id: str, of: RunScope) -> Query[list[str]]:
    """Return the query for the runs whose requests have this id."""
    wanted = {"id = ?": [id], "state < 2": [], **_within(of)}
    sql = _NAMED.format(where=" AND ".join(wanted))
    values = [value for each in wanted.values() for value in each]
    return lambda connection: [run for (run,) in connection.execute(sql, values)]


_NAMED = """
    SELECT request.run FROM request JOIN record AS begun ON begun.seq = coalesce(begun_seq, first_seq)
    WHERE {where} ORDER BY first_seq DESC
"""


def handed_over(run: str, user: str) -> Query[list[tuple[str, str]]]:
    """Return the query for the calls of a run that other hubs on this store executed: request id, and run there."""
    sql = (
        "SELECT id, request.run FROM request WHERE state < 2 AND user = ?1 AND origin LIKE '%@%@%'"
        " AND id >= ?2 AND id < ?2 || '/' AND request.run <> ?2 ORDER BY first_seq"
    )
    return lambda connection: [(id, part) for id, part in connection.execute(sql, (user, run))]


def _within(of: RunScope) -> dict[str, list[Any]]:
    """Return the conditions for these runs, each with its values."""
    wanted: dict[str, list[Any]] = {}
    if of.users is not None:
        wanted["user IN (SELECT value FROM json_each(?))"] = [msgspec.json.encode(sorted(of.users)).decode()]
    if of.agents is not None:
        agents = msgspec.json.encode(sorted(of.agents)).decode()
        wanted["CAST(begun.body AS TEXT) ->> '$.target' IN (SELECT value FROM json_each(?))"] = [agents]
    if of.via is not None:
        wanted["CAST(begun.body AS TEXT) ->> '$.via' = ?"] = [of.via]
    if of.before is not None:
        wanted[f"first_seq < ({_PLACE})"] = [of.before] * 2
    if of.since_ms is not None:
        wanted[f"({_STARTED}) >= ?"] = [of.since_ms]
    if of.until_ms is not None:
        wanted[f"({_STARTED}) < ?"] = [of.until_ms]
    return wanted


_STARTED = "SELECT at_ms FROM record WHERE seq = first_seq"
# Two halves, each of which has an index. A run that was forgotten, and submitted again, is there twice.
_PLACE = """SELECT max(first_seq) FROM (
    SELECT first_seq FROM request WHERE state < 2 AND run = ?
    UNION ALL SELECT first_seq FROM request WHERE state = 2 AND run = ?)"""


def _summary(
    run: str,
    user: str,
    state: State,
    started_ms: int,
    begun: bytes,
    ended: bytes | None,
    session: str,
    changed_ms: int,
) -> RunSummary:
    request = read_request(begun)
    response = read_response(ended) if ended else None
    return RunSummary(
        run,
        user,
        request.target,
        request.objective,
        started_ms,
        response,
        state,
        request.via or "",
        session,
        changed_ms,
        request.correlation or run,
    )


def states(agent: str, users: Sequence[str] | None, session: str | None, limit: int) -> Query[list[RunState]]:
    """Return the query for the states of an agent's runs."""
    wanted = ["text ->> '$.target' = ?"]
    values: list[Any] = [KINDS[Kind.NOTICE], Code.CANCELLED]
    if session is not None:
        values.append(session)
    if users is not None:
        wanted.append("user IN (SELECT value FROM json_each(?))")
    of_session = "" if session is None else "AND begun.session = ?"
    sql = _STATES.format(of_session=of_session, where=" AND ".join(wanted))
    values += [agent, *([] if users is None else [msgspec.json.encode(users).decode()]), limit]
    return lambda connection: [run_state(*row) for row in connection.execute(sql, values)]


# A notice after the end of a run that asked back can only mean that the run was cancelled.
_STATES = """
    SELECT run, id, user, coalesce(text ->> '$.via', ''), session, coalesce(text ->> '$.correlation', ''),
        coalesce(called_off_ms, ended_ms, begun_ms), seq, status, coalesce(asks_back, 0), called_off_ms IS NOT NULL
    FROM (
        SELECT *, CASE WHEN asks_back THEN (
            SELECT max(at_ms) FROM record AS later WHERE later.run = found.run AND later.seq > last_seq
            AND later.kind = ? AND CAST(later.body AS TEXT) ->> '$.code' = ?) END AS called_off_ms
        FROM (
            SELECT request.run, id, user, begun.session, CAST(begun.body AS TEXT) AS text, begun.at_ms AS begun_ms,
                ended.at_ms AS ended_ms, last_seq, coalesce(last_seq, begun.seq) AS seq,
                CAST(ended.body AS TEXT) ->> '$.status' AS status,
                CAST(ended.body AS TEXT) ->> '$.requires_followup' AS asks_back
            FROM request JOIN record AS begun ON begun.seq = coalesce(begun_seq, first_seq) {of_session}
            LEFT JOIN record AS ended ON ended.seq = last_seq
        ) AS found
    )
    WHERE {where} ORDER BY 7 DESC, seq DESC LIMIT ?
"""


def run_state(
    run: str,
    id: str,
    user: str,
    via: str,
    session: str,
    correlation: str,
    changed_ms: int,
    seq: int,
    status: str | None,
    asks_back: int,
    called_off: int,
) -> RunState:
    """Return the state of a run from the columns of a store."""
    how = None if status is None else Status(status)
    return RunState(run, id, user, via, session, correlation, changed_ms, seq, how, bool(asks_back), bool(called_off))


def running(now_ms: int) -> Query[frozenset[str]]:
    """Return the query for the runs in progress."""
    sql = "SELECT run FROM request WHERE state = 0 AND NOT waiting AND lease_until_ms > ?"
    return lambda connection: frozenset(run for (run,) in connection.execute(sql, (now_ms,)))


def claimed(worker: str) -> Query[list[tuple[str, int]]]:
    """Return the query for the unfinished runs of a worker, with their epochs."""
    sql = "SELECT run, epoch FROM request WHERE state = 0 AND worker = ?"
    return lambda connection: [(run, epoch) for run, epoch in connection.execute(sql, (worker,))]


def has_claims(worker: str) -> Query[bool]:
    """Return the query for whether a worker has unfinished runs."""
    sql = "SELECT 1 FROM request WHERE state = 0 AND worker = ? LIMIT 1"
    return lambda connection: connection.execute(sql, (worker,)).fetchone() is not None


def late_workers(now_ms: int, within_ms: int) -> Query[list[str]]:
    """Return the query for the workers with claims whose leases end *within_ms*."""
    sql = (
        "SELECT worker FROM request WHERE state = 0 AND worker <> '' GROUP BY worker"
        " HAVING max(lease_until_ms) > ? AND max(lease_until_ms) <= ?"
    )
    return lambda connection: [str(worker) for (worker,) in connection.execute(sql, (now_ms, now_ms + within_ms))]


def outcome(run: str) -> Query[tuple[Response | None] | None]:
    """Return the query for the outcome of a run, (None,) if it has not ended; the result is None if it was
    never submitted.
    """
    sql = (
        "SELECT body FROM request LEFT JOIN record ON seq = last_seq WHERE request.run = ?1 AND state < 2 UNION ALL"
        " SELECT body FROM request LEFT JOIN record ON seq = last_seq WHERE request.run = ?1 AND state = 2 LIMIT 1"
    )

    def query(connection: SqliteConnection) -> tuple[Response | None] | None:
        found = connection.execute(sql, (run,)).fetchone()
        return found and (read_response(found[0]) if found[0] else None,)

    return query


def journal(run: str) -> Query[dict[str, bytes]]:
    """Return the query for the journal of a run."""
    return lambda connection: dict(
        connection.execute("SELECT step, value FROM journal WHERE run = ?", (run,)).fetchall()
    )


def facts(user: str) -> Query[tuple[str, ...]]:
    """Return the query for the newest facts about a user, oldest first."""
    sql = "SELECT text FROM fact WHERE user = ? ORDER BY id DESC LIMIT ?"
    return lambda connection: tuple(text for (text,) in connection.execute(sql, (user, MOST_FACTS)))[::-1]


def cell(key: str) -> Query[tuple[int, bytes] | None]:
    """Return the query for a shared value."""
    sql = "SELECT revision, value FROM cell WHERE key = ?"
    return lambda connection: connection.execute(sql, (key,)).fetchone()


def owner(connection: SqliteConnection, session: str) -> SessionOwner | None:
    """Return the owner of a session: as assigned, else the user and agent of the first request in it."""
    found = connection.execute("SELECT user, agent FROM session WHERE id = ?", (session,)).fetchone()
    if found:
        return SessionOwner(*found)
    first = connection.execute(
        "SELECT body FROM record WHERE session = ? AND kind IN (?,?) ORDER BY seq LIMIT 1",
        (session, KINDS[Kind.STARTED], KINDS[Kind.DELEGATION]),
    ).fetchone()
    if not first:
        return None
    request = read_request(first[0])
    return SessionOwner(request.remit.user, request.target)


def is_submitted(connection: SqliteConnection, request: Request) -> bool:
    """Return whether a request with the same sender, user and id was submitted, and is not forgotten."""
    sql = "SELECT 1 FROM request WHERE id = ? AND user = ? AND origin = ? AND state < 2"
    return connection.execute(sql, (request.id, request.remit.user, request.sender)).fetchone() is not None
