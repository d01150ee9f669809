"""The statement that writes many records, requests, outcomes and steps at once, and what may be part of it."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from remit.ports import TakenRequest
from remit.stores.database import KEPT, KEPT_OPEN, NOW_MS, OPEN, OVER
from remit.stores.requests import Begin, Finish, JournalWrite, Submit, Take, Write
from remit.stores.schema import FORGOTTEN, RUNNING


class RefusedError(Exception):
    """A request was known, or an epoch stale, in a statement that assumed otherwise."""


class StreamLostError(Exception):
    """The database does not know the last transaction of this stream."""


class StreamPosition(NamedTuple):
    """Where a stream stands: its last acknowledged transaction and record."""

    id: int
    batch: int = 0
    number: int = 0


# The parts of one statement see the same snapshot: none sees what another one writes. Runs that are written about are
# locked, so that no other hub can claim them before the commit: a hub may stand still in between.
WRITE = f"""
    WITH mark AS (
        UPDATE remit.stream SET batch = $2, number = $3 WHERE id = $1 AND batch BETWEEN $2 - 1 AND $2 RETURNING 1
    ), written AS (
        INSERT INTO remit.record (stream, number, kind, at_ms, run, session, body, digest)
        SELECT $1, $4 + place, kind, at_ms, run, session, body, digest
        FROM unnest($5::smallint[], $6::bigint[], $7::text[], $8::text[], $9::bytea[], $10::bytea[])
            WITH ORDINALITY AS new (kind, at_ms, run, session, body, digest, place)
    ), submitted AS (
        INSERT INTO remit.request (id, by_user, origin, digest, run, session, target, via, correlation, state, epoch,
            worker, lease_until_ms, waiting, started_ms, begun_ms, first_stream, first_number, begun_stream,
            begun_number, ended_ms, status, asks_back, last_stream, last_number)
        SELECT id, by_user, origin, digest, run, session, target, via, correlation, state, 1, worker,
            {NOW_MS} + lease_ms, waiting, at_ms, at_ms, $1, number, $1, number, ended_ms, status, asks_back,
            CASE WHEN last_number IS NOT NULL THEN $1 END, last_number
        FROM unnest($11::text[], $12::text[], $13::text[], $14::bytea[], $15::text[], $16::text[], $17::text[],
            $18::text[], $19::text[], $20::smallint[], $21::text[], $22::bigint[], $23::boolean[], $24::bigint[],
            $25::bigint[], $26::bigint[], $27::text[], $28::boolean[], $29::bigint[])
            AS new (id, by_user, origin, digest, run, session, target, via, correlation, state, worker, lease_ms,
                waiting, at_ms, number, ended_ms, status, asks_back, last_number)
        ON CONFLICT DO NOTHING RETURNING 1
    ), finished AS (
        UPDATE remit.request SET state = new.state, last_stream = $1, last_number = new.number, ended_ms = new.ended_ms,
            status = new.status, asks_back = new.asks_back
        FROM unnest($30::text[], $31::integer[], $32::smallint[], $33::bigint[], $34::bigint[], $35::text[],
            $36::boolean[]) AS new (run, epoch, state, number, ended_ms, status, asks_back)
        WHERE request.run = new.run AND request.epoch = new.epoch AND request.{KEPT} AND request.{OPEN}
        RETURNING 1
    ), unasked AS (
        DELETE FROM remit.question WHERE run = ANY ($30::text[]) AND decision IS NULL
    ), cleared AS (
        DELETE FROM remit.journal WHERE run = ANY ($37::text[])
    ), unsealed AS (
        DELETE FROM remit.sealed WHERE scope = ANY ($38::text[])
            AND NOT EXISTS (SELECT 1 FROM remit.session WHERE session.id = sealed.scope)
    ), noted AS (
        INSERT INTO remit.journal (run, step, value)
        SELECT new.run, new.step, new.value FROM unnest($39::text[], $40::integer[], $41::text[], $42::bytea[])
            AS new (run, epoch, step, value)
        JOIN remit.request ON request.run = new.run AND request.epoch = new.epoch AND request.{KEPT} AND request.{OPEN}
        ON CONFLICT (run, step) DO UPDATE SET value = excluded.value RETURNING run
    ), held AS (
        SELECT request.epoch > mine.epoch AS replaced
        FROM unnest($43::text[], $44::integer[]) AS mine (run, epoch)
        JOIN remit.request ON request.run = mine.run AND request.{KEPT}
        FOR SHARE OF request
    )
    SELECT (SELECT count(*) FROM mark), (SELECT count(*) FROM submitted), (SELECT count(*) FROM finished),
        (SELECT array_agg(DISTINCT run) FROM noted), (SELECT bool_or(replaced) FROM held)
"""

# Whether a run was claimed again. As above, no hub can claim it before this transaction ends.
REPLACED = f"SELECT epoch > $2 FROM remit.request WHERE run = $1 AND {KEPT} FOR SHARE"

# A request that another hub is about to take is skipped: nobody waits, and no two hubs block each other. As in `CLAIM`,
# a worker that died while a person was asked is not to blame.
TAKE = f"""
    WITH free AS (
        SELECT place, body, greatest(request.lease_until_ms, coalesce(worker.lease_until_ms, 0)) AS until_ms,
            new.worker AS taker, new.lease_ms, begins
        FROM unnest($1::text[], $2::text[], $3::bigint[], $4::boolean[]) AS new (run, worker, lease_ms, begins)
        JOIN remit.request ON request.run = new.run AND {KEPT_OPEN} AND waiting
        JOIN remit.record ON stream = begun_stream AND number = begun_number
        LEFT JOIN remit.worker ON worker.name = request.worker AND request.worker <> ''
        WHERE request.lease_until_ms <= {NOW_MS} AND coalesce(worker.lease_until_ms, 0) <= {NOW_MS}
        FOR UPDATE OF request SKIP LOCKED
    )
    UPDATE remit.request SET epoch = epoch + 1, worker = taker, lease_until_ms = {NOW_MS} + lease_ms,
        waiting = NOT begins,
        spared = CASE WHEN begins THEN epoch ELSE spared + (CASE WHEN until_ms > 0 AND epoch < $5 AND (
            EXISTS (SELECT 1 FROM remit.question WHERE question.run = request.run AND decision IS NULL)
            OR EXISTS (SELECT 1 FROM remit.question WHERE question.run = request.run AND over_ms >= until_ms - lease_ms)
        ) THEN 1 ELSE 0 END) END
    FROM free WHERE request.place = free.place RETURNING run, epoch, body
"""

# Only requests that begin as they were submitted. Nothing before the start counts as an attempt: this is the first.
BEGIN = f"""
    UPDATE remit.request SET spared = CASE WHEN waiting THEN request.epoch - 1 ELSE spared END, waiting = false
    FROM unnest($1::text[], $2::integer[], $3::bytea[]) AS new (run, epoch, body), remit.record
    WHERE request.run = new.run AND request.epoch = new.epoch AND request.{KEPT} AND request.{OPEN}
        AND record.stream = begun_stream AND record.number = begun_number AND record.body = new.body
    RETURNING 1
"""

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

# Has the lease of a worker, and so of all its requests, end after this time.
EXTEND_LEASE = f"""
    INSERT INTO remit.worker VALUES ($1, {NOW_MS} + $2)
    ON CONFLICT (name) DO UPDATE SET lease_until_ms = excluded.lease_until_ms
"""


class PendingTake:
    """What became of a claim, once it is written."""

    def __init__(self) -> None:
        self.taken: TakenRequest | None = None


SUBMIT_COLUMNS = 19
FINISH_COLUMNS = 7


class WriteStatement:
    """Writes that do not depend on each other, and so can be one statement."""

    def __init__(self) -> None:
        self.submits: dict[str, list[Any]] = {}
        self.takes: dict[str, tuple[Take, PendingTake]] = {}
        self.begins: dict[str, tuple[str, int, bytes]] = {}
        self.finishes: dict[str, tuple[Any, ...]] = {}
        self.cleared: list[str] = []
        self.unsealed: list[str] = []
        self.steps: dict[tuple[str, str], JournalWrite] = {}
        self.epochs: dict[str, int] = {}

    def __bool__(self) -> bool:
        return bool(self.submits or self.takes or self.begins or self.finishes or self.steps)

    def accepts(self, what: Write) -> bool:
        """Return whether a write can be part of this statement: it must not need to see another part of it."""
        run = what.run
        if run in self.takes or run in self.begins:
            return False
        match what:
            case Take() | Begin():
                return run not in self.submits and run not in self.finishes and run not in self.epochs
            case Submit():
                return run not in self.submits and run not in self.finishes and run not in self.epochs
            case Finish():
                fresh = run in self.submits and what.epoch == 1 and self.submits[run][9] == RUNNING
                return run not in self.finishes and run not in self.epochs and (run not in self.submits or fresh)
            case JournalWrite():
                known = run in self.submits or run in self.finishes
                return not known and self.epochs.get(run, what.epoch) == what.epoch


def columns(rows: Sequence[Sequence[Any]], width: int) -> list[list[Any]]:
    """Return the columns of rows: one array for each."""
    return [list(column) for column in zip(*rows, strict=True)] if rows else [[] for _ in range(width)]


def by_key(row: Sequence[Any]) -> tuple[str, str, str]:
    # Hubs that insert the same requests in the same order do not block each other.
    return row[0], row[1], row[2]
