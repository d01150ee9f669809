"""Applies the retention rule to a SQLite store."""

import time
from collections.abc import Callable
from typing import NamedTuple

from remit.runtime.ports import FACTS
from remit.stores.connection import SqliteConnection, write_lock
from remit.stores.retention import HAVING_TEXTS, NEVER_REMOVED, Retention
from remit.stores.schema import KINDS
from remit.stores.segments import SealedSegment
from remit.stores.upkeep import Upkeep, Wanted

# Between two segments, hubs get the file for half as long as they waited, and at least for this long.
REST_SHARE = 0.5
REST_SECONDS = 0.01

_UNTOUCHED = ", ".join(str(KINDS[kind]) for kind in sorted(NEVER_REMOVED))
_TEXTUAL = ", ".join(str(KINDS[kind]) for kind in HAVING_TEXTS)


class Pruned(NamedTuple):
    """What was removed, or would be."""

    rows: int = 0
    """Records."""
    texts: int = 0
    """Records of which only the texts were removed."""
    values: int = 0
    """Values behind placeholders."""
    facts: int = 0
    """Facts about users, and notes of conversations."""
    bytes: int = 0
    """About how many bytes all of it takes."""
    returned: int = 0
    """By how many bytes the file has shrunk."""
    refused: tuple[str, ...] = ()
    """Segments that were left as they are, and why."""

    @property
    def is_empty(self) -> bool:
        return not (self.rows or self.texts or self.values or self.facts)


def prune(
    upkeep: Upkeep,
    keep: Retention,
    *,
    dry: bool = False,
    archived: Callable[[SealedSegment], object] = lambda _: None,
    stopped: Callable[[], bool] = lambda: False,
) -> Pruned:
    """Remove what *keep* no longer keeps; each step is a transaction of its own, so that it can be killed anywhere.

    *archived* is called with each segment before rows of it are removed. It ends early once *stopped* returns true.
    """
    now_ms = upkeep.wall_ms()
    rows = texts = size = 0
    refused: list[str] = []
    for segment in upkeep.segments():
        if stopped() or not _is_due(segment, keep, now_ms):
            break
        choose = _choice(segment, keep, now_ms)
        if not _any(upkeep.connection, choose):
            continue
        if not dry:
            archived(segment)
        began = time.monotonic()
        part = upkeep.remove(segment, choose, dry=dry)
        rows, texts, size = rows + part.rows, texts + part.texts, size + part.bytes
        refused += [part.refused] if part.refused else []
        if not dry:
            time.sleep(max(REST_SECONDS, REST_SHARE * (time.monotonic() - began)))
    values = _forget(upkeep, _VALUES, keep.vault, now_ms, dry=dry)
    facts = _forget(upkeep, _FACTS, keep.facts, now_ms, dry=dry) + _forget(
        upkeep, _NOTES, keep.messages, now_ms, dry=dry
    )
    _forget(upkeep, _FACT_VALUES, keep.facts, now_ms, dry=dry)
    returned = 0
    if not dry:
        if rows or texts:
            upkeep.seal()
        returned = upkeep.give_back()
    return Pruned(rows, texts, values, facts, size, returned, tuple(refused))


def _is_due(segment: SealedSegment, keep: Retention, now_ms: int) -> bool:
    ages = [age for age in (keep.records, keep.messages) if age is not None]
    return bool(ages) and segment.sealed_ms <= now_ms - min(ages)


def _any(connection: SqliteConnection, choose: Callable[[SqliteConnection], Wanted]) -> bool:
    wanted = choose(connection)
    return bool(wanted.gone or wanted.outlined)


def _choice(segment: SealedSegment, keep: Retention, now_ms: int) -> Callable[[SqliteConnection], Wanted]:
    """Return what chooses the rows of a segment that are no longer kept."""
    whole = keep.records is not None and segment.sealed_ms <= now_ms - keep.records

    def choose(connection: SqliteConnection) -> Wanted:
        open_sessions = _open_sessions(connection)
        sql = _GOING if whole else _SHORTENED
        found = [seq for (seq,) in connection.execute(sql, (segment.first, segment.last, open_sessions))]
        return Wanted("pruned", keep.rule(), *((found, ()) if whole else ((), found)))

    return choose


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
_VALUES = f"""
    FROM sealed WHERE at_ms <= ? AND substr(scope, 1, {len(FACTS)}) <> '{FACTS}'
    AND scope NOT IN (SELECT value FROM json_each(?))
    AND NOT EXISTS (SELECT 1 FROM request WHERE request.run = sealed.scope AND state < 2)
"""
# Whose they are is known only to whoever holds the key; so they go when no fact can need them any more.
_FACT_VALUES = f"""
    FROM sealed WHERE at_ms <= ? AND substr(scope, 1, {len(FACTS)}) = '{FACTS}' AND json_valid(?)
    AND NOT EXISTS (SELECT 1 FROM fact)
"""
_FACTS = "FROM main.fact WHERE at_ms <= ? AND json_valid(?)"
_NOTES = "FROM main.note WHERE at_ms <= ? AND session NOT IN (SELECT value FROM json_each(?))"


def _forget(upkeep: Upkeep, those: str, age_ms: int | None, now_ms: int, *, dry: bool) -> int:
    """Delete rows that are no longer kept; return how many there are."""
    if age_ms is None:
        return 0
    connection = upkeep.connection
    values = (now_ms - age_ms, _open_sessions(connection))
    if dry:
        return connection.execute(f"SELECT count(*) {those}", values).fetchall()[0][0]
    with write_lock(connection):
        connection.execute(f"DELETE {those}", values)
        return connection.changes()
