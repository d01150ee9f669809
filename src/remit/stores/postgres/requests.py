"""Statements about single requests and the owners of sessions."""

from remit.protocol.envelope import Request
from remit.protocol.records import Kind, read_request, read_response
from remit.runtime.ports import DuplicateRequest, SessionOwner
from remit.stores.postgres.connection import PgConnection
from remit.stores.postgres.schema import NOW_MS
from remit.stores.schema import FORGOTTEN, KINDS

# The lease of a request ends when neither its own nor that of its worker holds. A worker dies at most one lease before
# its lease expires. If a question was open at that time, the worker died while it waited for the answer.
CLAIM = f"""
    WITH expired AS (
        SELECT place, greatest(request.lease_until_ms, coalesce(worker.lease_until_ms, 0)) AS until_ms
        FROM remit.request LEFT JOIN remit.worker ON worker.name = request.worker AND request.worker <> ''
        WHERE run = $4 AND state < 2 AND state = 0
    )
    UPDATE remit.request SET epoch = epoch + 1, worker = $1, lease_until_ms = {NOW_MS} + $2, spared = spared + (
        CASE WHEN until_ms > 0 AND epoch < $3 AND (
            EXISTS (SELECT 1 FROM remit.question WHERE question.run = request.run AND decision IS NULL)
            OR EXISTS (SELECT 1 FROM remit.question WHERE question.run = request.run AND over_ms >= until_ms - $2)
        ) THEN 1 ELSE 0 END)
    FROM expired WHERE request.place = expired.place AND state = 0 AND until_ms <= {NOW_MS}
        AND request.lease_until_ms <= {NOW_MS}
    RETURNING epoch
"""

EXPIRED = """
    SELECT request.run, epoch, epoch - spared, waiting, body
    FROM remit.request JOIN remit.record ON stream = begun_stream AND number = begun_number
    LEFT JOIN remit.worker ON worker.name = request.worker AND request.worker <> ''
    WHERE state = 0 AND request.lease_until_ms <= $1 AND coalesce(worker.lease_until_ms, 0) <= $1 ORDER BY place
"""

# A worker that has claimed something since its last heartbeat is alive.
LATE_WORKERS = f"""
    SELECT name FROM remit.worker WHERE lease_until_ms > {NOW_MS} AND lease_until_ms <= {NOW_MS} + $1
        AND EXISTS (SELECT 1 FROM remit.request WHERE state = 0 AND request.worker = name)
        AND NOT EXISTS (
            SELECT 1 FROM remit.request WHERE state = 0 AND request.worker = name
                AND request.lease_until_ms > {NOW_MS} + $1
        )
"""

END_LEASES = f"""
    WITH ended AS (
        UPDATE remit.worker SET lease_until_ms = {NOW_MS}
        WHERE name = $2 AND name IN ({LATE_WORKERS}) AND lease_until_ms <= {NOW_MS} + $1 RETURNING name
    )
    UPDATE remit.request SET lease_until_ms = least(lease_until_ms, {NOW_MS})
    WHERE state = 0 AND worker IN (SELECT name FROM ended) RETURNING 1
"""

# The request as it was submitted, if it has not begun.
NOT_BEGUN = """
    SELECT body FROM remit.request JOIN remit.record ON stream = begun_stream AND number = begun_number
    WHERE request.run = $1 AND state < 2 AND state = 0 AND waiting
"""

FORGET_OUTCOMES = f"""
    WITH old AS (
        UPDATE remit.request SET state = {FORGOTTEN} WHERE state = 1 AND ended_ms <= $1 RETURNING run
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


async def find(connection: PgConnection, request: Request, digest: bytes) -> DuplicateRequest | None:
    """Return what is known about a request."""
    found = await connection.fetchrow(
        "SELECT request.run, request.digest, body FROM remit.request"
        " LEFT JOIN remit.record ON stream = last_stream AND number = last_number"
        " WHERE id = $1 AND by_user = $2 AND origin = $3 AND state < 2",
        request.id,
        request.remit.user,
        request.sender,
    )
    if not found:
        return None
    run, known, body = found
    return DuplicateRequest(run, known == digest, None if body is None else read_response(body))


async def claimed(connection: PgConnection, worker: str) -> list[tuple[str, int]]:
    """Return the unfinished runs of a worker, with their epochs."""
    rows = await connection.fetch("SELECT run, epoch FROM remit.request WHERE state = 0 AND worker = $1", worker)
    return [(run, epoch) for run, epoch in rows]


async def assigned(connection: PgConnection, session: str) -> SessionOwner | None:
    """Return the owner of a session, as far as it was assigned."""
    found = await connection.fetchrow("SELECT by_user, agent FROM remit.session WHERE id = $1", session)
    return SessionOwner(*found) if found else None


async def owner(connection: PgConnection, session: str) -> SessionOwner | None:
    """Return the owner of a session: as assigned, else the user and agent of the first request in it."""
    if known := await assigned(connection, session):
        return known
    first = await connection.fetchval(
        "SELECT body FROM remit.record WHERE session = $1 AND kind = ANY ($2::smallint[])"
        " ORDER BY tx, stream, number LIMIT 1",
        session,
        [KINDS[Kind.STARTED], KINDS[Kind.DELEGATION]],
    )
    if first is None:
        return None
    request = read_request(first)
    return SessionOwner(request.remit.user, request.target)
