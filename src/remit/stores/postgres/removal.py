"""Finds and removes rows of the record in a PostgreSQL database."""

from collections.abc import Sequence
from typing import Any

from remit.runtime.audit.removal import pairs, ranges
from remit.runtime.ports import FACTS
from remit.stores.postgres import messages
from remit.stores.postgres.chain_rows import blocks_between, leaves_between, places
from remit.stores.postgres.connection import PgConnection
from remit.stores.postgres.schema import NOW_MS
from remit.stores.removal_plan import ExpiredRows, SegmentChanges
from remit.stores.retention import DAY_MS, HAVING_TEXTS, NEVER_REMOVED
from remit.stores.schema import KINDS
from remit.stores.segments import SealedSegment
from remit.stores.upkeep_port import Ageing

NEVER = ", ".join(str(KINDS[kind]) for kind in sorted(NEVER_REMOVED))
_TEXTUAL = ", ".join(str(KINDS[kind]) for kind in HAVING_TEXTS)

# The rows from $1 to $2 of the chain.
SEGMENT = """
    FROM remit.chain JOIN remit.record ON record.stream = chain.stream
        AND record.number BETWEEN chain.number + greatest($1 - chain.first, 0)
        AND chain.number + least($2, chain.last) - chain.first
    WHERE chain.first >= (SELECT coalesce(max(first), 0) FROM remit.chain WHERE first <= $1) AND chain.first <= $2
        AND chain.last >= $1
"""
SEQ_OF_SEGMENT = "chain.first + record.number - chain.number"

# The conversations that a run which may still go on can be shown.
_OPEN_SESSIONS = "SELECT other.session FROM remit.request JOIN remit.record AS other USING (run) WHERE state = 0"
# A run whose outcome is still given to whoever asks again stays whole; so does one that may be resumed.
_UNUSED = f"""
    AND NOT EXISTS (SELECT 1 FROM remit.request WHERE request.run = record.run AND state < 2)
    AND record.session NOT IN ({_OPEN_SESSIONS})
"""
_GOING = f"SELECT {SEQ_OF_SEGMENT} {SEGMENT} AND kind NOT IN ({NEVER}) {_UNUSED}"
_SHORTENED = f"SELECT {SEQ_OF_SEGMENT} {SEGMENT} AND kind IN ({_TEXTUAL}) {_UNUSED}"


async def expired_rows(connection: PgConnection, segment: SealedSegment, expired: ExpiredRows) -> list[int]:
    """Return the numbers of the rows of a segment that are no longer kept."""
    rows = await connection.fetch(_GOING if expired.whole else _SHORTENED, segment.first, segment.last)
    found = sorted(seq for (seq,) in rows)
    if expired.whole:
        return found
    shortened = await leaves_between(connection, segment.first, segment.last)
    return [seq for seq in found if seq not in shortened]


async def write_changes(connection: PgConnection, changes: SegmentChanges) -> None:
    """Remove rows of a segment, and keep of them what the chain needs."""
    first, last = changes.statement.first, changes.statement.last
    at = places(await blocks_between(connection, first, last))
    known = await leaves_between(connection, first, last)
    # A row of which the outline was kept has its digest there already.
    kept = {seq: content for seq, content, _ in changes.kept if seq not in known}
    await messages.forget(connection, [seq for seq, _, _ in changes.kept])
    spans = pairs(ranges(kept))
    await connection.execute(
        "INSERT INTO remit.removed SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::bytea[])",
        [start for start, _ in spans],
        [end for _, end in spans],
        [b"".join(kept[seq] for seq in range(start, end + 1)) for start, end in spans],
    )
    # The digest of the original content stays with the row.
    await connection.execute(
        "UPDATE remit.record SET body = new.body FROM unnest($1::bigint[], $2::bigint[], $3::bytea[])"
        " AS new (stream, number, body) WHERE record.stream = new.stream AND record.number = new.number",
        *_columns([(*at[seq], body) for body, seq in changes.outlines], 3),
    )
    gone = await connection.fetch(
        "DELETE FROM remit.record USING unnest($1::bigint[], $2::bigint[]) AS old (stream, number)"
        " WHERE record.stream = old.stream AND record.number = old.number RETURNING run, session",
        *_columns([at[seq] for seq in changes.gone], 2),
    )
    await _forget_places(connection, sorted({run for run, _ in gone}), sorted({session for _, session in gone}))


async def _forget_places(connection: PgConnection, runs: Sequence[str], sessions: Sequence[str]) -> None:
    """Delete what is known about runs and sessions of which no record is left."""
    await connection.execute(
        "DELETE FROM remit.request WHERE run = ANY ($1::text[]) AND state = 2"
        " AND NOT EXISTS (SELECT 1 FROM remit.record WHERE record.run = request.run)",
        runs,
    )
    over = await connection.fetch(
        "SELECT old.session FROM unnest($1::text[]) AS old (session)"
        " WHERE NOT EXISTS (SELECT 1 FROM remit.record WHERE record.session = old.session)",
        sessions,
    )
    ended = [session for (session,) in over]
    await connection.execute("DELETE FROM remit.session WHERE id = ANY ($1::text[])", ended)
    await messages.forget_conversations(connection, ended)


def _columns(rows: Sequence[Sequence[Any]], width: int) -> list[list[Any]]:
    return [list(column) for column in zip(*rows, strict=True)] if rows else [[] for _ in range(width)]


# ── besides records ───────────────────────────────────────────────────────────────────────────────────────────────────

# Each with the time before which they are no longer kept.
_AGEING: dict[Ageing, str] = {
    "values": f"""
        FROM remit.sealed WHERE at_ms <= $1 AND NOT starts_with(scope, '{FACTS}')
        AND scope NOT IN ({_OPEN_SESSIONS})
        AND NOT EXISTS (SELECT 1 FROM remit.request WHERE request.run = sealed.scope AND state < 2)
    """,
    "fact_values": f"""
        FROM remit.sealed WHERE at_ms <= $1 AND starts_with(scope, '{FACTS}')
        AND NOT EXISTS (SELECT 1 FROM remit.fact)
    """,
    "facts": "FROM remit.fact WHERE at_ms <= $1",
    "notes": f"FROM remit.note WHERE at_ms <= $1 AND session NOT IN ({_OPEN_SESSIONS})",
}


async def count_aged(connection: PgConnection, what: Ageing, before_ms: int) -> int:
    """Return how many are older."""
    return await connection.fetchval(f"SELECT count(*) {_AGEING[what]}", before_ms)


async def delete_aged(connection: PgConnection, what: Ageing, before_ms: int) -> int:
    """Delete what is older, and return how many there were."""
    sql = f"WITH gone AS (DELETE {_AGEING[what]} RETURNING 1) SELECT count(*) FROM gone"
    return await connection.fetchval(sql, before_ms)


async def claim_pruning(connection: PgConnection) -> bool:
    """Return whether nobody has pruned for a day; then it is this hub's turn, and nobody else's."""
    sql = f"UPDATE remit.store SET pruned_ms = {NOW_MS} WHERE pruned_ms <= {NOW_MS} - $1::bigint RETURNING 1"
    return await connection.fetchval(sql, DAY_MS) is not None
