"""Pages of the record of a SQLite file, and the lists made of them."""

import sys
from collections.abc import Callable, Sequence
from typing import Any, TypeVar, cast

import msgspec

from remit.protocol.records import SAID, Kind, Record
from remit.runtime.ports import RecordFilter
from remit.stores.connection import SqliteConnection
from remit.stores.database import in_sqlite
from remit.stores.reader import NEWEST_OF_SESSIONS, Conditions, record_of
from remit.stores.schema import KINDS

T = TypeVar("T")
FileQuery = Callable[[SqliteConnection], T]
"""Something to read from a SQLite file, in a thread of its own."""

# A tampered row may contain invalid JSON.
_OF_PROFILE = f"""kind = {KINDS[Kind.SHARED]} AND
    CASE WHEN json_valid(CAST(body AS TEXT)) THEN CAST(body AS TEXT) ->> '$.profile' END = {{}}"""


def within(
    *values: Any, run: str | None = None, session: str | None = None, profile: str | None = None
) -> tuple[str, list[Any]]:
    """Return the condition that a row belongs to a run, a session or a profile, if given, with all its values.

    Before them are the *values* of the rest of the query.
    """
    wanted = Conditions(*values)
    wanted.add("run = {}", run)
    wanted.add("session = {}", session)
    wanted.add(_OF_PROFILE, profile)
    return in_sqlite(str(wanted)), wanted.values


def shared_runs(begins_with: str, limit: int) -> FileQuery[list[str]]:
    """Return the query for the runs with other devices whose ids start with a text."""
    sql = f"SELECT DISTINCT run FROM record WHERE kind = {KINDS[Kind.SHARED]} AND run >= ? AND run <= ? LIMIT ?"
    bounds = (begins_with, begins_with + chr(sys.maxunicode))
    return lambda connection: [run for (run,) in connection.execute(sql, (*bounds, limit))]


def records(
    run: str | None, session: str | None, after: int, limit: int, profile: str | None = None
) -> FileQuery[list[Record]]:
    """Return the query for committed records in order."""
    where, (_, *values) = within(None, run=run, session=session, profile=profile)

    def query(connection: SqliteConnection) -> list[Record]:
        found: list[Record] = []
        while (size := min(PAGE, limit - len(found))) > 0:
            start = found[-1].seq if found else after
            some = page(connection, f"seq > ?1 AND {where}", (start, *values), size)
            found += some
            if len(some) < size:
                break
        return found

    return query


def page(connection: SqliteConnection, where: str, values: Sequence[Any], size: int) -> list[Record]:
    """Return the first records, at most `PAGE`, for which *where* holds, in order."""
    ((raw,),) = connection.execute(_PAGE.format(where=where, size=size), values).fetchall()
    return [record_of(*row) for row in _rows(raw)]


def newest(connection: SqliteConnection) -> int:
    """Return the number of the newest record."""
    return connection.execute("SELECT coalesce(max(seq), 0) FROM record").fetchall()[0][0]


def selected(wanted: RecordFilter, above: int, below: int, size: int) -> FileQuery[list[Record]]:
    """Return the query for the last records, at most `PAGE`, that a filter selects in a range, newest first."""
    conditions = Conditions(above, below)
    conditions.add("run = {}", wanted.run)
    conditions.add("session = {}", wanted.session)
    conditions.add("kind = ANY ({})", None if wanted.kinds is None else kinds_of(wanted))
    conditions.add("run IN (SELECT request.run FROM request WHERE by_user = {})", wanted.user)
    conditions.add("at_ms >= {}", wanted.since_ms)
    conditions.add("at_ms <= {}", wanted.until_ms)
    sql = _NEWEST_PAGE.format(where=in_sqlite(str(conditions)), size=size)
    values = [_json(cast("list[Any]", each)) if isinstance(each, list) else each for each in conditions.values]

    def query(connection: SqliteConnection) -> list[Record]:
        ((raw,),) = connection.execute(sql, values).fetchall()
        return [record_of(*row) for row in reversed(_rows(raw))]

    return query


def kinds_of(wanted: RecordFilter) -> tuple[int, ...]:
    """Return the numbers of the kinds that a filter selects."""
    return tuple(KINDS[kind] for kind in wanted.kinds or () if kind in KINDS)


def recent(limit: int) -> FileQuery[list[Record]]:
    """Return the query for the outlines of the newest records."""

    def query(connection: SqliteConnection) -> list[Record]:
        end = newest(connection)
        found: list[Record] = []
        room, last = RECENT_BYTES, end
        while last > max(0, end - limit) and room > 0:
            first = max(0, end - limit, last - PAGE)
            ((raw, size),) = connection.execute(_OUTLINES, (first, last)).fetchall()
            found[:0] = [record_of(*row) for row in _rows(raw)]
            room, last = room - size, first
        return found

    return query


def numbered(connection: SqliteConnection, numbers: Sequence[int]) -> list[Record]:
    """Return the records with these numbers, at most `PAGE`."""
    ((raw,),) = connection.execute(_NUMBERED, (_json(numbers),)).fetchall()
    return [record_of(*row) for row in _rows(raw)]


# A page is returned as one row of JSON. Each row releases the interpreter lock, which a busy event loop returns late:
# beside such a loop 1,000 records took 560 ms row by row, and take 17 ms this way. A hundred of the largest bodies stay
# below SQLite's limit for one value.
PAGE = 100
_ROWS = "json_group_array(json_array(seq, kind, at_ms, run, session, json(CAST(body AS TEXT))) ORDER BY seq)"
_PAGE = f"SELECT {_ROWS} FROM (SELECT * FROM record WHERE {{where}} ORDER BY seq LIMIT {{size}})"
_NEWEST_PAGE = f"""
    SELECT {_ROWS} FROM (
        SELECT * FROM record WHERE seq > ?1 AND seq < ?2 AND {{where}} ORDER BY seq DESC LIMIT {{size}})
"""
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

# No other request began in the session later. The index of sessions finds that.
NEWEST_SESSIONS = NEWEST_OF_SESSIONS.replace(
    "{later}",
    f"""
        SELECT 1 FROM record AS later WHERE later.session = runs.session AND later.kind = {KINDS[Kind.STARTED]}
            AND later.seq > (SELECT coalesce(begun_seq, own.place) FROM request AS own WHERE own.place = runs.place)
    """,
)


def _json(values: object) -> str:
    return msgspec.json.encode(values).decode()
