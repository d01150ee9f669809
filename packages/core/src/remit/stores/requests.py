"""What becomes of single requests: the common writes as values, and for both engines whatever is not hot."""

from collections.abc import Sequence
from typing import NamedTuple

from remit.ports import NumberedRecord, OrphanedRun, SingleUseProof, StoreError, TakenRequest, silent_outcome
from remit.protocol.codec import encode
from remit.protocol.envelope import Request, Response
from remit.protocol.errors import Code, fault
from remit.protocol.records import read_request
from remit.stores import reader, side_tables
from remit.stores.database import KEPT, KEPT_OPEN, OPEN, SqlChange

# A request that is older than this was sent before, or waited somewhere.
OLD_MS = 1_000


# ── writes on the way of each delegation, which each engine does in its own way ───────────────────────────────────────


class Submit(NamedTuple):
    """A new request."""

    request: Request
    digest: bytes
    worker: str
    lease_ms: int
    waiting: bool = False
    once: SingleUseProof | None = None
    """A proof that lets only one request in."""

    @property
    def run(self) -> str:
        return self.request.run


class Take(NamedTuple):
    """A claim on a request that has not begun."""

    run: str
    worker: str
    lease_ms: int
    begin: bool


class Begin(NamedTuple):
    """The beginning of a request that waited."""

    run: str
    epoch: int
    request: Request


class Finish(NamedTuple):
    """The outcome of a run."""

    run: str
    epoch: int
    response: Response
    at_ms: int
    keep: bool = True


class JournalWrite(NamedTuple):
    """A finished step of a run."""

    run: str
    epoch: int
    step: str
    value: bytes


Write = Submit | Take | Begin | Finish | JournalWrite
"""A write on the way of each delegation."""


# ── the rest ──────────────────────────────────────────────────────────────────────────────────────────────────────────

_OPEN_REQUEST = f"""
    SELECT begun_body FROM remit.request JOIN remit.runs USING (place)
    WHERE request.run = $1 AND request.{KEPT} AND request.{OPEN}
"""


def is_old(request: Request, now_ms: int) -> bool:
    """Return whether a request can have been accepted between a backup and its restore; nearly all are new."""
    return request.created_ms is not None and request.created_ms < now_ms - OLD_MS


async def check_fence(change: SqlChange, request: Request, digest: bytes) -> None:
    """Raise `StoreError` for a request that may have been executed before the store was restored."""
    sql = "SELECT 1 FROM remit.fence WHERE $1 BETWEEN backup_ms AND restored_ms"
    if not await change.database.fetch(sql, request.created_ms):
        return
    if await reader.find(change.database, request, digest) is None:
        message = "the store was restored from a backup that is older than this request: it may have been executed"
        advice = "Find out whether it was; if not, send it again under a new id."
        raise StoreError(fault(Code.OUTCOME_UNKNOWN, message, suggestion=advice))


async def begin(change: SqlChange, what: Begin) -> bool:
    """Begin a request that was claimed under this epoch, maybe in another form; False: the epoch is stale."""
    sql = f"{_OPEN_REQUEST} AND request.epoch = $2 FOR UPDATE OF request"
    if (body := await change.database.fetchval(sql, what.run, what.epoch)) is None:
        return False
    # Nothing before the start counts as an attempt: this is the first.
    await change.database.execute(
        "UPDATE remit.request SET spared = CASE WHEN waiting THEN epoch - 1 ELSE spared END, waiting = FALSE"
        f" WHERE run = $1 AND {KEPT}",
        what.run,
    )
    if body != encode(what.request):
        await change.begin_changed(what.request)
    return True


async def take(change: SqlChange, what: Take) -> TakenRequest | None:
    """Claim a request that has not begun and that no worker holds, and return it."""
    body = await change.database.fetchval(f"{_OPEN_REQUEST} AND request.waiting", what.run)
    if body is None or (epoch := await change.claim(what.run, what.worker, what.lease_ms)) is None:
        return None
    if what.begin:
        sql = f"UPDATE remit.request SET spared = epoch - 1, waiting = FALSE WHERE run = $1 AND {KEPT}"
        await change.database.execute(sql, what.run)
    return TakenRequest(epoch, read_request(body))


async def release(change: SqlChange, run: str, epoch: int, *, begun: bool) -> bool:
    """Give a run back; False: the epoch is stale."""
    change.epoch_changed(run)
    # The epoch grows, so that the worker that released the request has no more control over it. Neither this claim nor
    # the released one counts as an attempt.
    released = await change.database.fetch(
        "UPDATE remit.request SET epoch = epoch + 1, spared = spared + 2, worker = '', lease_until_ms = 0,"
        f" waiting = waiting OR NOT $3 WHERE run = $1 AND epoch = $2 AND {KEPT_OPEN} RETURNING 1",
        *(run, epoch, begun),
    )
    return bool(released)


async def sweep(change: SqlChange, now_ms: int, max_attempts: int, keep_ms: int) -> list[OrphanedRun]:
    """Return expired requests; those that expired *max_attempts* times end as OUTCOME_UNKNOWN. Delete what is over."""
    await change.database.execute("DELETE FROM remit.counter WHERE end_ms <= $1", now_ms)
    await change.forget_outcomes(now_ms - keep_ms)
    await side_tables.forget(change.database, now_ms, now_ms - keep_ms)
    expired: list[OrphanedRun] = []
    for run, epoch, attempts, waiting, body in await change.expired(now_ms):
        request = read_request(body)
        if waiting or attempts < max_attempts:
            expired.append(OrphanedRun(run, request, bool(waiting)))
        else:
            await change.end(run, epoch, silent_outcome(request, attempts), now_ms)
            # Its worker may only stand still: as after a claim, nothing that it still writes of the run counts.
            await change.database.execute("UPDATE remit.request SET epoch = epoch + 1 WHERE run = $1", run)
            change.epoch_changed(run)
    return expired


async def transfer(change: SqlChange, source: str, entries: Sequence[NumberedRecord]) -> int:
    """Record the entries of another log, each number of a *source* once; return the highest recorded number."""
    database = change.database
    # The row is locked first: another hub may transfer the same entries.
    await database.execute("INSERT INTO remit.transferred VALUES ($1, 0) ON CONFLICT (source) DO NOTHING", source)
    last: int = await database.fetchval("SELECT number FROM remit.transferred WHERE source = $1 FOR UPDATE", source)
    new = [entry for entry in entries if entry.number > last]
    if new:
        change.extend([(*entry[1:], 0) for entry in new])
        last = new[-1].number
        await database.execute("UPDATE remit.transferred SET number = $2 WHERE source = $1", source, last)
    return last
