"""Queries about runs and sessions, the same for both engines."""

import sys
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Any, Literal, cast

import msgspec

from remit.ports import (
    ANYONES,
    MOST_LOOKED_AT,
    MOST_READ,
    DuplicateRequest,
    ListedRecords,
    ListedSessions,
    RecordFilter,
    RunScope,
    RunState,
    RunSummary,
    SessionFilter,
    SessionOwner,
    SessionSummary,
    StoreError,
)
from remit.protocol.codec import encode
from remit.protocol.envelope import Request, Response
from remit.protocol.errors import Code, fault
from remit.protocol.lifecycle import Status
from remit.protocol.records import Kind, Notice, Record, agent_of, read_body, read_request, read_response
from remit.stores.database import FORGOTTEN, KEPT, NOW_MS, OPEN, SqlConnection
from remit.stores.schema import KIND_OF, KINDS

State = Literal["waiting", "running", "silent", "finished"]

_read_notice = msgspec.json.Decoder(Notice).decode


def record_of(seq: int, number: int, at_ms: int, run: str, session: str, body: bytes | msgspec.Raw) -> Record:
    """Return a record from its columns."""
    kind = KIND_OF.get(number)
    if kind is None:
        raise StoreError(
            fault(
                Code.STORE_UNAVAILABLE,
                f"row {seq} of the record has an unknown kind",
                suggestion="The store was changed: check it with `remit audit verify`.",
            )
        )
    return Record(seq=seq, kind=kind, at_ms=at_ms, run=run, session=session, body=read_body(kind, bytes(body)))


class Conditions:
    """Conditions of a query and their values."""

    def __init__(self, *values: Any) -> None:
        self.values: list[Any] = list(values)
        self._all: list[str] = []
        self.has_index = False
        """Whether the records for which they hold are found by an index."""

    def add(self, condition: str, *values: Any) -> None:
        """Add a condition in which each `{}` stands for a value; nothing if there are values and the first is None."""
        if values and values[0] is None:
            return
        first = len(self.values) + 1
        self._all.append(condition.format(*(f"${first + place}" for place in range(len(values)))))
        self.values += [sorted(cast("tuple[Any, ...]", each)) if _is_many(each) else each for each in values]

    def within(self, of: RunScope) -> None:
        """Add that a run is one of these."""
        self.add("by_user = ANY ({}::text[])", of.users)
        self.add("target = ANY ({}::text[])", of.agents)
        self.add("via = {}", of.via)
        self.add(_BEFORE, of.before, of.before)
        self.add("started_ms >= {}", of.since_ms)
        self.add("started_ms < {}", of.until_ms)

    def of(self, run: str | None = None, session: str | None = None, profile: str | None = None) -> "Conditions":
        """Add that a record belongs to a run, a session or a profile, as far as they are given."""
        self.add("run = {}", run)
        self.add("session = {}", session)
        # These bodies are never encrypted; a quote within a text is written in another way.
        named = None if profile is None else b'"profile":' + encode(profile)
        self.add(f"kind = {KINDS[Kind.SHARED]} AND position({{}}::bytea IN body) > 0", named)
        self.has_index = any(each is not None for each in (run, session, profile))
        return self

    def select(self, wanted: RecordFilter) -> "Conditions":
        """Add that a filter selects a record."""
        self.of(wanted.run, wanted.session)
        self.add("kind = ANY ({}::smallint[])", None if wanted.kinds is None else _numbers_of(wanted.kinds))
        self.add("run IN (SELECT request.run FROM remit.request WHERE by_user = {})", wanted.user)
        self.add("at_ms >= {}", wanted.since_ms)
        self.add("at_ms <= {}", wanted.until_ms)
        return self

    def __str__(self) -> str:
        return " AND ".join(self._all) or "TRUE"


def _is_many(value: object) -> bool:
    return isinstance(value, frozenset | tuple)


def _numbers_of(kinds: Collection[Kind]) -> tuple[int, ...]:
    return tuple(KINDS[kind] for kind in kinds if kind in KINDS)


# Two halves, each of which has an index. A run that was forgotten, and submitted again, is there twice.
_BEFORE = f"""place < (SELECT max(place) FROM (
    SELECT place FROM remit.request WHERE {KEPT} AND run = {{}}
    UNION ALL SELECT place FROM remit.request WHERE {FORGOTTEN} AND run = {{}}) AS either)"""
_BEGINS_WITH = f"""place IN (
    SELECT place FROM remit.request WHERE {KEPT} AND run COLLATE "C" >= {{}} AND run COLLATE "C" <= {{}}
    UNION ALL SELECT place FROM remit.request
    WHERE {FORGOTTEN} AND run COLLATE "C" >= {{}} AND run COLLATE "C" <= {{}})"""


# ── runs ──────────────────────────────────────────────────────────────────────────────────────────────────────────────


async def runs(
    database: SqlConnection,
    user: str | None,
    run: str | None,
    limit: int,
    of: RunScope = ANYONES,
    correlation: str | None = None,
) -> list[RunSummary]:
    """Return the newest runs."""
    wanted = Conditions(limit)
    wanted.add("by_user = {}", user)
    if run:
        # No name sorts after one that continues with the last character of all.
        wanted.add(_BEGINS_WITH, *(run, run + chr(sys.maxunicode)) * 2)
    # Without an index: the query is rare, and each index costs every delegation.
    wanted.add("coalesce(nullif(correlation, ''), run) = {}", correlation)
    wanted.within(of)
    return [_summary(*row) for row in await database.fetch(_RUNS.format(where=wanted), *wanted.values)]


_RUNS = f"""
    SELECT run, by_user, CASE WHEN state > 0 THEN 'finished' WHEN waiting THEN 'waiting'
        WHEN lease_until_ms <= {NOW_MS} THEN 'silent' ELSE 'running' END, started_ms, begun_body, ended_body, session,
        coalesce(ended_ms, begun_ms)
    FROM remit.runs WHERE {{where}} ORDER BY place DESC LIMIT $1
"""


def _summary(
    run: str, user: str, state: State, started_ms: int, begun: bytes, ended: bytes | None, session: str, changed_ms: int
) -> RunSummary:
    request = read_request(begun)
    return RunSummary(
        run,
        user,
        request.target,
        request.objective,
        started_ms,
        read_response(ended) if ended else None,
        state,
        request.via or "",
        session,
        changed_ms,
        request.correlation or run,
    )


async def named(database: SqlConnection, id: str, of: RunScope) -> list[str]:
    """Return the runs whose requests have this id."""
    wanted = Conditions()
    wanted.add(f"id = {{}} AND {KEPT}", id)
    wanted.within(of)
    rows = await database.fetch(f"SELECT run FROM remit.runs WHERE {wanted} ORDER BY place DESC", *wanted.values)
    return [run for (run,) in rows]


async def shared_runs(database: SqlConnection, begins_with: str, limit: int) -> list[str]:
    """Return the runs with other devices whose ids start with a text."""
    sql = (
        f"SELECT DISTINCT run FROM remit.record WHERE kind = {KINDS[Kind.SHARED]}"
        ' AND run COLLATE "C" >= $1 AND run COLLATE "C" <= $2 LIMIT $3'
    )
    rows = await database.fetch(sql, begins_with, begins_with + chr(sys.maxunicode), limit)
    return [run for (run,) in rows]


async def handed_over(database: SqlConnection, run: str, user: str) -> list[tuple[str, str]]:
    """Return the calls of a run that other hubs on this store executed: request id, and run there."""
    rows = await database.fetch(
        f"SELECT id, run FROM remit.request WHERE {KEPT} AND by_user = $2 AND origin LIKE '%@%@%'"
        " AND starts_with(id, $1) AND run <> $1 ORDER BY place",
        run,
        user,
    )
    return [(id, part) for id, part in rows]


async def states(
    database: SqlConnection, agent: str, users: Collection[str] | None, session: str | None, limit: int
) -> list[RunState]:
    """Return the states of an agent's runs, the newest first."""
    wanted = Conditions()
    wanted.add("target = {}", agent)
    wanted.add("by_user = ANY ({}::text[])", None if users is None else tuple(users))
    wanted.add("runs.session = {}", session)
    cancelled: dict[str, int] = {}
    for run, at_ms, body in await database.fetch(_NOTICES_AFTER.format(where=wanted), *wanted.values):
        if _read_notice(body).code is Code.CANCELLED:
            cancelled[run] = max(at_ms, cancelled.get(run, 0))
    newest = f"SELECT {_STATE} WHERE {wanted} ORDER BY 7 DESC, seq DESC LIMIT ${len(wanted.values) + 1}"
    rows = await database.fetch(newest, *wanted.values, limit)
    if cancelled:
        # They may come before others by the time of that.
        wanted.add("run = ANY ({}::text[])", tuple(cancelled))
        rows += await database.fetch(f"SELECT {_STATE} WHERE {wanted} AND asks_back", *wanted.values)
    states = {row[-1]: _run_state(cancelled, *row) for row in rows if row[-1] is not None}
    return sorted(states.values(), key=lambda each: (each.changed_ms, each.seq), reverse=True)[:limit]


# A notice after the end of a run that asked back, and that says so, can only mean that the run was cancelled.
_NOTICES_AFTER = f"""
    SELECT later.run, later.at_ms, later.body FROM remit.runs JOIN remit.chained AS later ON later.run = runs.run
    WHERE later.kind = {KINDS[Kind.NOTICE]} AND later.seq > runs.seq AND asks_back AND {{where}}
"""
_STATE = """
    run, id, by_user, via, session, correlation, coalesce(ended_ms, begun_ms), status, asks_back, seq FROM remit.runs
"""


def _run_state(
    cancelled: dict[str, int],
    run: str,
    id: str,
    user: str,
    via: str,
    session: str,
    correlation: str,
    changed_ms: int,
    status: str | None,
    asks_back: int,
    seq: int,
) -> RunState:
    how, called_off = None if status is None else Status(status), bool(asks_back) and run in cancelled
    changed_ms = cancelled[run] if called_off else changed_ms
    return RunState(run, id, user, via, session, correlation, changed_ms, seq, how, bool(asks_back), called_off)


async def running(database: SqlConnection) -> frozenset[str]:
    """Return the runs in progress."""
    rows = await database.fetch(
        f"SELECT run FROM remit.runs WHERE {OPEN} AND NOT waiting AND lease_until_ms > {NOW_MS}"
    )
    return frozenset(run for (run,) in rows)


async def has_claims(database: SqlConnection, worker: str) -> bool:
    """Return whether a worker has unfinished runs."""
    sql = f"SELECT 1 FROM remit.request WHERE {OPEN} AND worker = $1 LIMIT 1"
    return await database.fetchval(sql, worker) is not None


async def find(database: SqlConnection, request: Request, digest: bytes) -> DuplicateRequest | None:
    """Return what is known about a request."""
    row = await database.fetchrow(
        "SELECT request.run, request.digest, ended_body FROM remit.request JOIN remit.runs USING (place)"
        f" WHERE request.id = $1 AND request.by_user = $2 AND request.origin = $3 AND request.{KEPT}",
        *(request.id, request.remit.user, request.sender),
    )
    if not row:
        return None
    run, known, body = row
    return DuplicateRequest(run, known == digest, None if body is None else read_response(body))


async def outcomes(database: SqlConnection, wanted: Sequence[str]) -> dict[str, Response | None]:
    """Return the outcome of each run that was submitted, None if it has not ended."""
    # The newest request counts, if an id was used again.
    rows = await database.fetch(_OUTCOMES, list(wanted))
    return {run: None if body is None else read_response(body) for run, body, *_ in rows}


_OUTCOMES = f"""
    SELECT run, ended_body, {FORGOTTEN} AS late, place FROM remit.runs WHERE place IN (
        SELECT place FROM remit.request WHERE {KEPT} AND run = ANY ($1::text[])
        UNION ALL SELECT place FROM remit.request WHERE {FORGOTTEN} AND run = ANY ($1::text[])
    ) ORDER BY late DESC, place
"""


# ── sessions ──────────────────────────────────────────────────────────────────────────────────────────────────────────


async def assigned(database: SqlConnection, session: str) -> SessionOwner | None:
    """Return the owner of a session, as far as it was assigned."""
    row = await database.fetchrow("SELECT by_user, agent FROM remit.session WHERE id = $1", session)
    return SessionOwner(*row) if row else None


async def owner(database: SqlConnection, session: str) -> SessionOwner | None:
    """Return the owner of a session: as assigned, else the user and agent of the first request in it."""
    if known := await assigned(database, session):
        return known
    first = await database.fetchrow(
        f"SELECT body FROM remit.record WHERE session = $1 AND kind IN ({_STARTED}, {KINDS[Kind.DELEGATION]})"
        " ORDER BY tx, stream, number LIMIT 1",
        session,
    )
    if first is None:
        return None
    request = read_request(first[0])
    return SessionOwner(request.remit.user, request.target)


# How many conversations are read at once.
_SESSIONS = 200


async def sessions(database: SqlConnection, wanted: SessionFilter, before: int, limit: int, sql: str) -> ListedSessions:
    """Return the conversations that a filter selects, the one with the newest request first.

    *sql* is the engine's query of the newest request of each session.
    """
    conditions = Conditions(before, _SESSIONS)
    conditions.add(_OF_SESSION, wanted.session)
    conditions.add("by_user = {}", wanted.user)
    conditions.add("by_user = ANY ({}::text[])", wanted.of.users)
    sql = sql.format(where=conditions)
    listed: list[SessionSummary] = []
    for _ in range(0, MOST_READ, _SESSIONS):
        rows = await database.fetch(sql, before, *conditions.values[1:])
        for place, session, user, run, started_ms, last_ms, body in rows:
            before, request = place, read_request(body)
            last = SessionSummary(
                session, user, request.target, request.objective, started_ms, last_ms, 0, 0, run, request.via or ""
            )
            if is_wanted(last, wanted):
                counts = await database.fetchrow(_COUNTS, session)
                assert counts
                first_ms, runs, messages = counts
                listed.append(last._replace(first_ms=first_ms, runs=runs, messages=messages))
                if len(listed) == limit:
                    return ListedSessions(listed, before)
        if len(rows) < _SESSIONS:
            return ListedSessions(listed, None)
    return ListedSessions(listed, before)


_STARTED, _RESULT = KINDS[Kind.STARTED], KINDS[Kind.RESULT]
# Requests have no index of sessions, and records have: they lead from a session to its runs. Both indexes of runs are
# used only if the condition names them.
_OF_SESSION = f"""runs.session = {{0}} AND place IN (
    SELECT place FROM remit.record AS begun JOIN remit.request ON request.run = begun.run AND request.{KEPT}
    WHERE begun.session = {{0}} AND begun.kind = {_STARTED}
    UNION ALL
    SELECT place FROM remit.record AS begun JOIN remit.request ON request.run = begun.run AND request.{FORGOTTEN}
    WHERE begun.session = {{0}} AND begun.kind = {_STARTED})"""
NEWEST_OF_SESSIONS = """
    SELECT place, session, by_user, run, begun_ms, coalesce(ended_ms, begun_ms), begun_body FROM remit.runs
    WHERE place < $1 AND {where} AND NOT EXISTS ({later}) ORDER BY place DESC LIMIT $2
"""
# A request that was edited is recorded twice and counts once.
_COUNTS = f"""
    SELECT min(at_ms), count(DISTINCT CASE WHEN kind = {_STARTED} THEN run END),
        count(DISTINCT CASE WHEN kind = {_STARTED} THEN run END) + count(CASE WHEN kind = {_RESULT} THEN 1 END)
    FROM remit.record WHERE session = $1 AND kind IN ({_STARTED}, {_RESULT})
"""


# ── pages ─────────────────────────────────────────────────────────────────────────────────────────────────────────────

# As many rows as stores return at once.
_AT_ONCE = 100

Find = Callable[[RecordFilter, int, int, int], Awaitable[list[Record]]]
"""Returns records above a number and below another, newest first, at most so many; it ignores the filter's agent."""


async def list_records(find: Find, wanted: RecordFilter, *, before: int, limit: int) -> ListedRecords:
    """Return the page of records below *before*; the work for it is bounded."""
    has_index = wanted.run is not None or wanted.session is not None
    lowest = 0 if has_index else max(0, before - MOST_LOOKED_AT)
    listed: list[Record] = []
    read = 0
    while len(listed) < limit:
        size = min(_AT_ONCE, limit - len(listed)) if wanted.agent is None else _AT_ONCE
        some = await find(wanted, lowest, before, size)
        read += len(some)
        for record in some:
            if wanted.agent in (None, agent_of(record.body)):
                listed.append(record)
                if len(listed) == limit:
                    return ListedRecords(listed, record.seq)
        if len(some) < size:
            return ListedRecords(listed, lowest + 1 if lowest else None)
        before = some[-1].seq
        if wanted.agent is not None and read >= MOST_READ:
            break
    return ListedRecords(listed, before)


def is_wanted(newest: SessionSummary, wanted: SessionFilter) -> bool:
    """Return whether a conversation, given by its newest run, is one that a filter selects by what the run says."""
    text, scope = wanted.text.casefold(), wanted.of
    return (
        wanted.agent in (None, newest.agent)
        and (scope.agents is None or newest.agent in scope.agents)
        and scope.via in (None, newest.via)
        and (wanted.since_ms is None or newest.last_ms >= wanted.since_ms)
        and (wanted.until_ms is None or newest.last_ms <= wanted.until_ms)
        and (text in newest.objective.casefold() or text in newest.session.casefold())
    )
