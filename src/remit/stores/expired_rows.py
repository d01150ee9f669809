"""Finds what a SQLite store no longer keeps by the retention rule."""

from remit.runtime.ports import FACTS
from remit.stores.connection import SqliteConnection
from remit.stores.removal_plan import ExpiredRows
from remit.stores.retention import HAVING_TEXTS, NEVER_REMOVED
from remit.stores.schema import KINDS
from remit.stores.segments import SealedSegment
from remit.stores.upkeep_port import Ageing

_UNTOUCHED = ", ".join(str(KINDS[kind]) for kind in sorted(NEVER_REMOVED))
_TEXTUAL = ", ".join(str(KINDS[kind]) for kind in HAVING_TEXTS)


def expired_rows(connection: SqliteConnection, segment: SealedSegment, expired: ExpiredRows) -> list[int]:
    """Return the numbers of the rows of a segment that are no longer kept."""
    sql = _GOING if expired.whole else _SHORTENED
    rows = connection.execute(sql, (segment.first, segment.last, _open_sessions(connection)))
    return [seq for (seq,) in rows]


# The conversations that a run which may still go on can be shown.
_OPEN_SESSIONS = """
    SELECT json_group_array(DISTINCT session) FROM request CROSS JOIN record ON record.run = request.run
    WHERE state = 0
"""


def _open_sessions(connection: SqliteConnection) -> str:
    return connection.execute(_OPEN_SESSIONS).fetchall()[0][0]


# A run whose outcome is still given to whoever asks again stays whole; so does one that may be resumed.
_UNUSED = """
    AND NOT EXISTS (SELECT 1 FROM request WHERE request.run = record.run AND state < 2)
    AND session NOT IN (SELECT value FROM json_each(?))
"""
_GOING = f"SELECT seq FROM record WHERE seq BETWEEN ? AND ? AND kind NOT IN ({_UNTOUCHED}) {_UNUSED} ORDER BY seq"
_SHORTENED = f"""
    SELECT seq FROM record WHERE seq BETWEEN ? AND ? AND kind IN ({_TEXTUAL})
    AND NOT EXISTS (SELECT 1 FROM removed WHERE removed.seq = record.seq) {_UNUSED} ORDER BY seq
"""

# Each with the time before which they are no longer kept, and the sessions of runs that may go on.
_AGEING: dict[Ageing, str] = {
    "values": f"""
        FROM sealed WHERE at_ms <= ? AND substr(scope, 1, {len(FACTS)}) <> '{FACTS}'
        AND scope NOT IN (SELECT value FROM json_each(?))
        AND NOT EXISTS (SELECT 1 FROM request WHERE request.run = sealed.scope AND state < 2)
    """,
    "fact_values": f"""
        FROM sealed WHERE at_ms <= ? AND substr(scope, 1, {len(FACTS)}) = '{FACTS}' AND json_valid(?)
        AND NOT EXISTS (SELECT 1 FROM fact)
    """,
    "facts": "FROM main.fact WHERE at_ms <= ? AND json_valid(?)",
    "notes": "FROM main.note WHERE at_ms <= ? AND session NOT IN (SELECT value FROM json_each(?))",
}


def count_aged(connection: SqliteConnection, what: Ageing, before_ms: int) -> int:
    """Return how many are older."""
    values = (before_ms, _open_sessions(connection))
    return connection.execute(f"SELECT count(*) {_AGEING[what]}", values).fetchall()[0][0]


def delete_aged(connection: SqliteConnection, what: Ageing, before_ms: int) -> int:
    """Delete what is older, and return how many there were."""
    connection.execute(f"DELETE {_AGEING[what]}", (before_ms, _open_sessions(connection)))
    return connection.changes()
