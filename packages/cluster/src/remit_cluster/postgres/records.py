"""Queries of the record in a PostgreSQL database."""

import msgspec

from remit.protocol.records import Kind, Record, outline
from remit.runtime.ports import RecordFilter
from remit.stores.database import FORGOTTEN, KEPT, SqlConnection
from remit.stores.reader import NEWEST_OF_SESSIONS, Conditions, record_of
from remit.stores.records import PAGE, RECENT_BYTES
from remit.stores.schema import KINDS

# How many rows of the chain are searched at first; each time that is not enough, eight times as many.
_FIRST_SPAN = 200
_WIDER = 8

_COLUMNS = "seq, kind, at_ms, run, session, body"
_OF_ALL = """
    SELECT chain.first + record.number - chain.number AS seq, kind, at_ms, run, session, body
    FROM (SELECT * FROM remit.chain WHERE last > $1 ORDER BY first LIMIT $2) AS chain
    JOIN remit.record ON record.stream = chain.stream
        AND record.number BETWEEN chain.number AND chain.number + chain.last - chain.first
    WHERE chain.first + record.number - chain.number > $1 ORDER BY seq LIMIT $2
"""
_END_OF_BLOCKS = "SELECT max(last) FROM (SELECT last FROM remit.chain WHERE last > $1 ORDER BY first LIMIT $2) AS block"


async def records(
    database: SqlConnection, run: str | None, session: str | None, after: int, limit: int, profile: str | None = None
) -> list[Record]:
    """Return chained records in order."""
    if run is None and session is None and profile is None:
        return await _all(database, after, limit)
    wanted = Conditions(after, limit).of(run, session, profile)
    sql = f"SELECT {_COLUMNS} FROM remit.chained WHERE {wanted} AND seq > $1 ORDER BY seq LIMIT $2"
    rows = await database.fetch(sql, *wanted.values)
    return [record_of(*row) for row in rows]


async def _all(database: SqlConnection, after: int, limit: int) -> list[Record]:
    found: list[Record] = []
    while (size := min(PAGE, limit - len(found))) > 0:
        rows = await database.fetch(_OF_ALL, after, size)
        found += [record_of(*row) for row in rows]
        if len(rows) == size:
            after = found[-1].seq
        elif (after := await database.fetchval(_END_OF_BLOCKS, after, size)) is None:
            break  # not merely blocks whose rows were removed
    return found


async def newest(database: SqlConnection) -> int:
    """Return the number of the newest chained record."""
    return await database.fetchval("SELECT coalesce(max(last), 0) FROM remit.chain")


async def recent(database: SqlConnection, limit: int) -> list[Record]:
    """Return the outlines of the newest records."""
    last = await newest(database)
    found: list[Record] = []
    room, end = RECENT_BYTES, last
    kinds = [KINDS[kind] for kind in (Kind.STARTED, Kind.DELEGATION, Kind.RESULT)]
    while end > max(0, last - limit) and room > 0:
        first = max(0, last - limit, end - PAGE)
        rows = await database.fetch(_RECENT, first, end, kinds)
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


async def before_newest(database: SqlConnection, count: int, run: str | None = None, profile: str | None = None) -> int:
    """Return the number before the newest *count* rows, optionally of one run or profile."""
    last = await newest(database)
    if run is None and profile is None:
        return max(0, last - count)
    wanted = Conditions(count).of(run, profile=profile)
    sql = f"SELECT seq FROM remit.chained WHERE {wanted} ORDER BY seq DESC LIMIT $1"
    rows = await database.fetch(sql, *wanted.values)
    return rows[-1][0] - 1 if rows else last


async def selected(database: SqlConnection, wanted: RecordFilter, above: int, below: int, size: int) -> list[Record]:
    """Return the last records that a filter selects in a range, newest first."""
    if wanted.run is None and wanted.session is None:
        return await _in_range(database, wanted, above, below, size)
    return await _by_index(database, wanted, above, below, size)


async def _by_index(database: SqlConnection, wanted: RecordFilter, above: int, below: int, size: int) -> list[Record]:
    wanted_rows = Conditions(above, below, size)
    wanted_rows.select(wanted)
    rows = await database.fetch(_SELECTED.format(where=wanted_rows), *wanted_rows.values)
    return [record_of(*row) for row in rows]


async def _in_range(database: SqlConnection, wanted: RecordFilter, above: int, below: int, size: int) -> list[Record]:
    """Return records of a range, searched in pieces that grow: a whole range would be sorted for one page."""
    found: list[Record] = []
    span = _FIRST_SPAN
    while below > above + 1 and len(found) < size:
        low = max(above, below - 1 - span)
        wanted_rows = Conditions(low, below - 1, size - len(found))
        wanted_rows.select(wanted)
        rows = await database.fetch(_OF_RANGE.format(where=wanted_rows), *wanted_rows.values)
        found += [record_of(*row) for row in rows]
        below, span = low + 1, span * _WIDER
    return found


_SELECTED = """
    SELECT seq, kind, at_ms, run, session, body FROM remit.chained
    WHERE seq > $1 AND seq < $2 AND {where} ORDER BY seq DESC LIMIT $3
"""
_OF_RANGE = """
    SELECT chain.first + record.number - chain.number AS seq, kind, at_ms, run, session, body
    FROM remit.chain JOIN remit.record ON record.stream = chain.stream
        AND record.number BETWEEN chain.number + greatest($1 + 1 - chain.first, 0)
        AND chain.number + least($2, chain.last) - chain.first
    WHERE chain.last > $1 AND chain.first <= $2 AND {where} ORDER BY seq DESC LIMIT $3
"""

# No other request began in the session later. Both indexes of runs are used only if the condition names them.
NEWEST_SESSIONS = NEWEST_OF_SESSIONS.replace(
    "{later}",
    f"""
        SELECT 1 FROM remit.record AS begun JOIN remit.request AS later ON later.run = begun.run
        WHERE begun.session = runs.session AND begun.kind = {KINDS[Kind.STARTED]} AND later.session = runs.session
            AND later.place > runs.place AND (later.{KEPT} OR later.{FORGOTTEN})
    """,
)
