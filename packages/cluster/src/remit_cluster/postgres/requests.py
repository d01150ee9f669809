"""Statements about single requests, their leases and their sealed values."""

from remit.stores.database import KEPT_OPEN, NOW_MS, OPEN, OVER
from remit.stores.schema import FORGOTTEN
from remit_cluster.postgres.connection import PgConnection

# The lease of a request ends when neither its own nor that of its worker holds. A worker dies at most one lease before
# its lease expires. If a question was open at that time, the worker died while it waited for the answer.
CLAIM = f"""
    WITH expired AS (
        SELECT place, greatest(request.lease_until_ms, coalesce(worker.lease_until_ms, 0)) AS until_ms
        FROM remit.request LEFT JOIN remit.worker ON worker.name = request.worker AND request.worker <> ''
        WHERE run = $4 AND {KEPT_OPEN}
    )
    UPDATE remit.request SET epoch = epoch + 1, worker = $1, lease_until_ms = {NOW_MS} + $2, spared = spared + (
        CASE WHEN until_ms > 0 AND epoch < $3 AND (
            EXISTS (SELECT 1 FROM remit.question WHERE question.run = request.run AND decision IS NULL)
            OR EXISTS (SELECT 1 FROM remit.question WHERE question.run = request.run AND over_ms >= until_ms - $2)
        ) THEN 1 ELSE 0 END)
    FROM expired WHERE request.place = expired.place AND {OPEN} AND until_ms <= {NOW_MS}
        AND request.lease_until_ms <= {NOW_MS}
    RETURNING epoch
"""

EXPIRED = f"""
    SELECT request.run, epoch, epoch - spared, waiting, body
    FROM remit.request JOIN remit.record ON stream = begun_stream AND number = begun_number
    LEFT JOIN remit.worker ON worker.name = request.worker AND request.worker <> ''
    WHERE {OPEN} AND request.lease_until_ms <= $1 AND coalesce(worker.lease_until_ms, 0) <= $1 ORDER BY place
"""

# A worker that has claimed something since its last heartbeat is alive.
LATE_WORKERS = f"""
    SELECT name FROM remit.worker WHERE lease_until_ms > {NOW_MS} AND lease_until_ms <= {NOW_MS} + $1
        AND EXISTS (SELECT 1 FROM remit.request WHERE {OPEN} AND request.worker = name)
        AND NOT EXISTS (
            SELECT 1 FROM remit.request WHERE {OPEN} AND request.worker = name
                AND request.lease_until_ms > {NOW_MS} + $1
        )
"""

END_LEASES = f"""
    WITH ended AS (
        UPDATE remit.worker SET lease_until_ms = {NOW_MS}
        WHERE name = $2 AND name IN ({LATE_WORKERS}) AND lease_until_ms <= {NOW_MS} + $1 RETURNING name
    )
    UPDATE remit.request SET lease_until_ms = least(lease_until_ms, {NOW_MS})
    WHERE {OPEN} AND worker IN (SELECT name FROM ended) RETURNING 1
"""

FORGET_OUTCOMES = f"""
    WITH old AS (
        UPDATE remit.request SET state = {FORGOTTEN} WHERE {OVER} AND ended_ms <= $1 RETURNING run
    ), cleared AS (
        DELETE FROM remit.journal WHERE run IN (SELECT run FROM old)
    )
    DELETE FROM remit.sealed WHERE scope IN (SELECT run FROM old)
        AND NOT EXISTS (SELECT 1 FROM remit.session WHERE session.id = sealed.scope)
"""


async def extend_lease(connection: PgConnection, worker: str, lease_ms: int) -> None:
    """Have the lease of a worker, and so of all its requests, end after this time."""
    await connection.execute(
        f"INSERT INTO remit.worker VALUES ($1, {NOW_MS} + $2)"
        " ON CONFLICT (name) DO UPDATE SET lease_until_ms = excluded.lease_until_ms",
        worker,
        lease_ms,
    )
