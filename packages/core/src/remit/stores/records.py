"""Pages of the record of a SQLite file, and the lists made of them."""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import msgspec

from remit.protocol.records import SAID, Kind, Record
from remit.runtime.ports import RecordFilter
from remit.stores.connection import SqliteConnection
from remit.stores.database import SqlConnection
from remit.stores.reader import NEWEST_OF_SESSIONS, Conditions, record_of
from remit.stores.schema import KINDS

T = TypeVar("T")
FileQuery = Callable[[SqliteConnection], T]
"""Something to read from a SQLite file, in a thread of its own."""


async def records(
    database: SqlConnection, run: str | None, session: str | None, after: int, limit: int, profile: str | None = None
) -> list[Record]:
    """Return committed records in order."""
    found: list[Record] = []
    while (size := min(PAGE, limit - len(found))) > 0:
        start = found[-1].seq if found else after
        wanted = Conditions(start, size).of(run, session, profile)
        if profile is not None:
            wanted.add("json_valid(CAST(body AS TEXT))")  # a tampered row may contain invalid JSON
        some = await page(database, f"seq > $1 AND {wanted}", *wanted.values)
        found += some
        if len(some) < size:
            break
    return found


async def page(database: SqlConnection, where: str, *values: Any) -> list[Record]:
    """Return the first records for which *where* holds, in order; the second value is their number, at most `PAGE`."""
    return _records(await database.fetchval(_PAGE.format(where=where), *values))


async def newest(database: SqlConnection) -> int:
    """Return the number of the newest record."""
    return await database.fetchval("SELECT coalesce(max(seq), 0) FROM record")


async def before_newest(database: SqlConnection, count: int, run: str | None = None, profile: str | None = None) -> int:
    """Return the number before the newest *count* rows, optionally of one run or profile."""
    wanted = Conditions(count).of(run, profile=profile)
    rows = f"SELECT seq FROM record WHERE {wanted} ORDER BY seq DESC LIMIT $1"
    sql = f"SELECT coalesce(min(seq) - 1, (SELECT max(seq) FROM record), 0) FROM ({rows})"
    return await database.fetchval(sql, *wanted.values)


async def selected(database: SqlConnection, wanted: RecordFilter, above: int, below: int, size: int) -> list[Record]:
    """Return the last records, at most `PAGE`, that a filter selects in a range, newest first."""
    conditions = Conditions(above, below, size)
    conditions.select(wanted)
    return _records(await database.fetchval(_NEWEST_PAGE.format(where=conditions), *conditions.values))[::-1]


async def recent(database: SqlConnection, limit: int) -> list[Record]:
    """Return the outlines of the newest records."""
    end = await newest(database)
    found: list[Record] = []
    room, last = RECENT_BYTES, end
    while last > max(0, end - limit) and room > 0:
        first = max(0, end - limit, last - PAGE)
        row = await database.fetchrow(_OUTLINES, first, last)
        assert row
        found[:0] = _records(row[0])
        room, last = room - row[1], first
    return found


async def numbered(database: SqlConnection, numbers: Sequence[int]) -> list[Record]:
    """Return the records with these numbers, at most `PAGE`."""
    return _records(await database.fetchval(_NUMBERED, list(numbers)))


# A page is returned as one row of JSON. Each row releases the interpreter lock, which a busy event loop returns late:
# beside such a loop 1,000 records took 560 ms row by row, and take 17 ms this way. A hundred of the largest bodies stay
# below SQLite's limit for one value.
PAGE = 100
_ROWS = "json_group_array(json_array(seq, kind, at_ms, run, session, json(CAST(body AS TEXT))) ORDER BY seq)"
_PAGE = f"SELECT {_ROWS} FROM (SELECT * FROM record WHERE {{where}} ORDER BY seq LIMIT $2)"
_NEWEST_PAGE = f"""
    SELECT {_ROWS} FROM (
        SELECT * FROM record WHERE seq > $1 AND seq < $2 AND {{where}} ORDER BY seq DESC LIMIT $3)
"""
_NUMBERED = f"SELECT {_ROWS} FROM record WHERE seq = ANY ($1)"
# This much is read in some 30 ms.
RECENT_BYTES = 16 * 2**20
_PLACES = ", ".join(f"'$.{name}'" for name in SAID)
_ENVELOPES = ", ".join(str(KINDS[kind]) for kind in (Kind.STARTED, Kind.DELEGATION, Kind.RESULT))
_OUTLINES = f"""
    SELECT json_group_array(json_array(
            seq, kind, at_ms, run, session, json_remove(CAST(body AS TEXT), {_PLACES})
        ) ORDER BY seq), coalesce(sum(length(body)), 0)
    FROM record WHERE seq > $1 AND seq <= $2 AND kind IN ({_ENVELOPES})
"""
_read_rows = msgspec.json.Decoder(list[tuple[int, int, int, str, str, msgspec.Raw]]).decode


def _records(rows: str) -> list[Record]:
    return [record_of(*row) for row in _read_rows(rows)]


# No other request began in the session later. The index of sessions finds that.
NEWEST_SESSIONS = NEWEST_OF_SESSIONS.replace(
    "{later}",
    f"""
        SELECT 1 FROM record AS later WHERE later.session = runs.session AND later.kind = {KINDS[Kind.STARTED]}
            AND later.seq > (SELECT coalesce(begun_seq, own.place) FROM request AS own WHERE own.place = runs.place)
    """,
)
