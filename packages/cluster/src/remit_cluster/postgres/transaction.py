"""One write transaction of a hub: it extends the hub's stream and updates requests.

Common writes are collected and written by one statement, because a round trip costs more than a row. The statement
assumes that every request is new and every epoch is current, since a record's number depends on it. If that turns out
wrong, the transaction is rolled back and its items are written one by one.
"""

from collections.abc import Sequence
from typing import Any

from remit.ports import (
    MOST_EPOCHS,
    AcceptedRequest,
    DuplicateRequest,
    OrphanedRun,
    ReusedProof,
    RunEpoch,
    StoreError,
    Submitted,
    TakenRequest,
)
from remit.protocol.codec import encode
from remit.protocol.envelope import Request, Response
from remit.protocol.errors import Code, fault
from remit.protocol.lifecycle import Status
from remit.protocol.records import Kind, read_request
from remit.runtime.audit import leaf
from remit.stores import reader, requests
from remit.stores.database import KEPT, KEPT_OPEN, NOW_MS, Entry, SqlConnection
from remit.stores.requests import Begin, Finish, JournalWrite, Submit, Take, Write, is_old
from remit.stores.schema import FINISHED, FORGOTTEN, KINDS, RUNNING
from remit.stores.side_tables import incr
from remit_cluster.postgres.bulk import (
    BEGIN,
    CLAIM,
    END_LEASES,
    EXPIRED,
    FINISH_COLUMNS,
    FORGET_OUTCOMES,
    REPLACED,
    SUBMIT_COLUMNS,
    TAKE,
    WRITE,
    PendingTake,
    RefusedError,
    StreamLostError,
    StreamPosition,
    WriteStatement,
    by_key,
    columns,
)
from remit_cluster.postgres.connection import PgConnection
from remit_cluster.postgres.user_keys import PgUserKeys


class PgTransaction:
    """An open write transaction."""

    def __init__(
        self,
        connection: PgConnection,
        stream: StreamPosition,
        now_ms: int,
        *,
        keep_records: bool,
        keys: PgUserKeys | None = None,
    ) -> None:
        self.connection = connection
        self.keys = keys
        """The keys under which texts are encrypted; None: they are not."""
        self._unencrypted: list[Entry] = []
        self.now_ms = now_ms
        self.stream = StreamPosition(stream.id, stream.batch + 1, stream.number)
        self._written = stream.number
        self._records: tuple[list[Any], ...] = ([], [], [], [], [], [])
        self._segment = WriteStatement()
        self._claims: set[RunEpoch] = set()
        """The claims under which records are written."""
        self.replaced: set[str] = set()
        """The runs of which something was refused, because another hub has claimed them since."""
        self.records: list[tuple[int, Entry]] | None = [] if keep_records else None
        """The new records with their numbers in the stream, for listeners; None if there are none."""
        self.sizes: list[tuple[str, int]] = []
        self.outcomes: list[tuple[str, Response]] = []
        """The runs that ended in this transaction."""
        self.journalled: set[str] = set()
        """The runs whose collected steps were written."""

    # ── records ───────────────────────────────────────────────────────────────────────────────────────────────────────

    def extend(self, entries: Sequence[Entry]) -> None:
        """Append records to the stream."""
        kinds, times, runs, sessions, bodies, digests = self._records
        for kind, at_ms, run, session, body, epoch in entries:
            raw = encode(body)
            if epoch:
                self._claims.add(RunEpoch(run, epoch))
            kinds.append(KINDS[kind])
            times.append(at_ms)
            runs.append(run)
            sessions.append(session)
            bodies.append(raw)
            digests.append(leaf(kind, at_ms, run, session, raw))
            self.sizes.append((run, len(raw)))
        if self.keys is not None:
            self._unencrypted += entries
        number = self.stream.number
        if self.records is not None:
            self.records += [(number + place, entry) for place, entry in enumerate(entries, start=1)]
        self.stream = self.stream._replace(number=number + len(entries))

    async def write(self, *, last: bool = False) -> None:
        """Write everything that was collected; raises `RefusedError` if an assumption was wrong.

        The *last* one also marks the stream. Until then, nobody who extends the chain waits for its row.
        """
        segment = self._segment
        if not segment and not self._records[0] and not last:
            return
        self._segment = WriteStatement()
        if segment.begins and await self._begun(segment) < len(segment.begins):
            raise RefusedError
        if segment.takes:
            await self._claim(segment)
        records, self._records = self._records, ([], [], [], [], [], [])
        if self._unencrypted and self.keys is not None:
            entries, self._unencrypted = self._unencrypted, []
            stored = await self.keys.encrypt_bodies(
                self.connection, [entry[2] for entry in entries], [entry[4] for entry in entries], records[4]
            )
            digests = [leaf(*entry[:4], body) for entry, body in zip(entries, stored, strict=True)]
            records = (*records[:4], stored, digests)
        submits = columns(sorted(segment.submits.values(), key=by_key), SUBMIT_COLUMNS)
        finishes = columns(sorted(segment.finishes.values()), FINISH_COLUMNS)
        steps = columns(sorted(segment.steps.values()), 4)
        claims, self._claims = self._claims, set()
        row = await self.connection.fetchrow(
            WRITE,
            *self.stream,
            self._written,
            *records,
            *submits,
            *finishes,
            segment.cleared,
            segment.unsealed,
            *steps,
            *columns(sorted(claims.union((each.run, each.epoch) for each in segment.steps.values())), 2),
        )
        assert row
        marked, submitted, finished, noted, replaced = row
        if not marked:
            raise StreamLostError
        if replaced or submitted < len(segment.submits) or finished < len(segment.finishes):
            raise RefusedError
        self.journalled.update(noted or ())
        self._written = self.stream.number

    async def is_replaced(self, claim: RunEpoch) -> bool:
        """Return whether a run has been claimed again, or released, since a hub claimed it."""
        if not claim.epoch or not await self.connection.fetchval(REPLACED, *claim):
            return False
        self.replaced.add(claim.run)
        return True

    async def _claim(self, segment: WriteStatement) -> None:
        wanted = columns([segment.takes[run][0] for run in sorted(segment.takes)], 4)
        for run, epoch, body in await self.connection.fetch(TAKE, *wanted, MOST_EPOCHS):
            segment.takes[run][1].taken = TakenRequest(epoch, read_request(body))

    async def _begun(self, segment: WriteStatement) -> int:
        return len(await self.connection.fetch(BEGIN, *columns(sorted(segment.begins.values()), 3)))

    async def collect(self, what: Write) -> Submitted | PendingTake | bool:
        """Take part in the next statement; the result holds if `write` does not raise."""
        if not self._segment.accepts(what):
            await self.write()
        segment = self._segment
        match what:
            case Submit():
                segment.submits[what.run] = self._submit_row(what)
                return AcceptedRequest(1)
            case Take():
                pending = PendingTake()
                segment.takes[what.run] = what, pending
                return pending
            case Begin():
                segment.begins[what.run] = what.run, what.epoch, encode(what.request)
                return True
            case Finish():
                row = segment.submits.get(what.run)
                session = what.response.session or (row[5] if row else None)
                if session is None:
                    return await self.finish(what)
                self._finish_row(what, session)
                return True
            case JournalWrite():
                segment.steps[what.run, what.step] = what
                segment.epochs[what.run] = what.epoch
                return True

    def _submit_row(self, what: Submit) -> list[Any]:
        request = what.request
        at_ms, session = request.created_ms or self.now_ms, request.session or request.run
        row: list[Any] = [
            *(request.id, request.remit.user, request.sender, what.digest, request.run, session, request.target),
            *(request.via or "", request.correlation or "", RUNNING, what.worker, what.lease_ms, what.waiting, at_ms),
            *(self.stream.number + 1, None, None, False, None),
        ]
        self.extend([(Kind.STARTED, at_ms, request.run, session, request, 0)])
        return row

    def _finish_row(self, what: Finish, session: str) -> None:
        run, response, segment = what.run, what.response, self._segment
        state = FINISHED if what.keep else FORGOTTEN
        shown = (what.at_ms, response.status.value, bool(response.requires_followup))
        number = self.stream.number + 1
        if run in segment.submits:
            row = segment.submits[run]
            row[9], row[15:19] = state, (*shown, number)
        else:
            segment.finishes[run] = (run, what.epoch, state, number, *shown)
        if response.status is Status.SUCCESS or not what.keep:
            segment.cleared.append(run)
        if not what.keep:
            segment.unsealed.append(run)
        self.extend([(Kind.RESULT, what.at_ms, run, response.session or session, response, 0)])
        self.outcomes.append((run, response))

    # ── requests, one at a time ───────────────────────────────────────────────────────────────────────────────────────

    async def alone(self, what: Write) -> Submitted | TakenRequest | bool | None:
        """Write one item, whose assumptions may be wrong."""
        match what:
            case Take():
                await self.write()
                return await requests.take(self, what)
            case Begin():
                await self.write()
                return await requests.begin(self, what)
            case Submit():
                return await self.submit(what)
            case Finish():
                return await self.finish(what)
            case JournalWrite():
                return await self.journal(what)

    async def submit(self, what: Submit) -> Submitted:
        request, once = what.request, what.once
        if is_old(request, self.now_ms):
            await requests.check_fence(self, request, what.digest)
        if once is not None and await incr(self, once.key, 1, once.until_ms) > 1:
            return ReusedProof()
        await self.write()
        known = await self.find(request, what.digest)
        if known is None and await self._is_free(what):
            self._segment.submits[what.run] = self._submit_row(what)
            await self.write()
            return AcceptedRequest(1)
        # Another hub may have submitted it since.
        known = known or await self.find(request, what.digest)
        if known is None:
            raise StoreError(fault(Code.DUPLICATE_REQUEST, f"another request was submitted as run {request.run}"))
        return known

    async def _is_free(self, what: Submit) -> bool:
        sql = f"SELECT NOT EXISTS (SELECT 1 FROM remit.request WHERE run = $1 AND {KEPT})"
        return await self.connection.fetchval(sql, what.run)

    async def find(self, request: Request, digest: bytes) -> DuplicateRequest | None:
        return await reader.find(self.connection, request, digest)

    async def begin_changed(self, request: Request) -> None:
        await self.connection.execute(
            "UPDATE remit.request SET begun_stream = $2, begun_number = $3, begun_ms = $4, target = $5, via = $6,"
            f" correlation = $7, session = $8 WHERE run = $1 AND {KEPT}",
            *(request.run, self.stream.id, self.stream.number + 1, self.now_ms, request.target, request.via or ""),
            *(request.correlation or "", request.session or request.run),
        )
        self.extend([(Kind.STARTED, self.now_ms, request.run, request.session or request.run, request, 0)])

    async def claim(self, run: str, worker: str, lease_ms: int) -> int | None:
        return await self.connection.fetchval(CLAIM, worker, lease_ms, MOST_EPOCHS, run)

    def epoch_changed(self, run: str) -> None:
        """No epochs are remembered between transactions."""

    async def finish(self, what: Finish) -> bool:
        await self.write()
        row = await self.connection.fetchrow(
            f"SELECT session FROM remit.request WHERE run = $1 AND epoch = $2 AND {KEPT_OPEN} FOR UPDATE",
            what.run,
            what.epoch,
        )
        if not row:
            return False
        self._finish_row(what, row[0])
        await self.write()
        return True

    async def end_leases(self, worker: str, within_ms: int) -> bool:
        await self.write()
        return bool(await self.connection.fetch(END_LEASES, within_ms, worker))

    async def end(self, run: str, epoch: int, response: Response, at_ms: int) -> None:
        await self.finish(Finish(run, epoch, response, at_ms))

    async def sweep(self, max_attempts: int, keep_ms: int) -> list[OrphanedRun]:
        await self.write()
        now_ms: int = await self.connection.fetchval(f"SELECT {NOW_MS}")
        await self.connection.execute("DELETE FROM remit.worker WHERE lease_until_ms <= $1", now_ms - keep_ms)
        return await requests.sweep(self, now_ms, max_attempts, keep_ms)

    async def forget_outcomes(self, before_ms: int) -> None:
        await self.connection.execute(FORGET_OUTCOMES, before_ms)

    async def expired(self, now_ms: int) -> list[tuple[Any, ...]]:
        return await self.connection.fetch(EXPIRED, now_ms)

    # ── the rest ──────────────────────────────────────────────────────────────────────────────────────────────────────

    async def journal(self, what: JournalWrite) -> bool:
        await self.write()
        if await self.is_replaced(RunEpoch(what.run, what.epoch)):
            return False
        self._segment.steps[what.run, what.step] = what
        self.journalled.discard(what.run)
        await self.write()
        return what.run in self.journalled

    @property
    def database(self) -> SqlConnection:
        """This transaction as shared queries see it."""
        return self.connection

    async def encrypted(self, user: str, text: bytes) -> bytes:
        return text if self.keys is None else await self.keys.encrypt(self.connection, user, text)
