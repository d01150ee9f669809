"""One write transaction: it extends the chain and updates requests."""

import json
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable
from functools import cache
from operator import itemgetter
from typing import Any, TypeVar

from remit.ports import (
    FIRST_EPOCH,
    MOST_EPOCHS,
    AcceptedRequest,
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
from remit.protocol.records import Body, Kind, Record
from remit.runtime.audit import GENESIS, leaf, link
from remit.runtime.clock import LEAST_JUMP_MS, SEEN_EVERY_MS, Jumps
from remit.stores import reader, requests
from remit.stores.connection import SqliteConnection
from remit.stores.database import KEPT, KEPT_OPEN, OPEN, OVER, Entry, SqlChange, SqlConnection, SqliteDatabase, at_once
from remit.stores.requests import Begin, Finish, JournalWrite, Submit, Take, Write, is_old
from remit.stores.schema import FINISHED, FORGOTTEN, KINDS, RUNNING
from remit.stores.side_tables import incr
from remit.stores.user_keys import UserKeys

# A hub has fewer runs in flight. Each takes about 150 bytes.
MOST_KNOWN = 10_000

_log = logging.getLogger("remit.store")


class ReplacedRuns:
    """The runs that other hubs have claimed since this one did; each is logged once."""

    def __init__(self, store: str) -> None:
        self._store = store
        self._known: set[str] = set()

    def report(self, runs: Iterable[str]) -> None:
        """Log runs of which something was refused."""
        new = sorted(set(runs) - self._known)
        if not new:
            return
        if len(self._known) > MOST_KNOWN:
            self._known.clear()
        self._known.update(new)
        which = f"run {new[0]} was" if len(new) == 1 else f"{len(new)} runs were ({', '.join(new[:5])})"
        _log.warning("%s: %s taken over by another hub; nothing more is recorded of it here", self._store, which)


class RunEpochs:
    """The epochs in a SQLite file, as far as one process knows them: it looks again once others have written."""

    def __init__(self) -> None:
        self._newest: dict[str, int] = {}
        self._version = -1

    def submitted(self, run: str) -> None:
        """Note a new run."""
        self._newest[run] = FIRST_EPOCH

    def changed(self, run: str) -> None:
        """Note that a run was claimed or released, or has ended."""
        self._newest.pop(run, None)

    def forget(self) -> None:
        """Forget everything: a transaction was rolled back."""
        self._newest.clear()

    def look_again(self, connection: SqliteConnection) -> None:
        """Forget everything if another process has written since; called once in each transaction that needs it."""
        version: int = connection.pragma("data_version")
        if version != self._version or len(self._newest) > MOST_KNOWN:
            self._newest.clear()
            self._version = version

    def replaced(self, connection: SqliteConnection, claims: Collection[RunEpoch]) -> set[RunEpoch]:
        """Return those of these claims that are followed by a newer one."""
        newest = self._newest
        if unknown := {run for run, _ in claims if run not in newest}:
            sql = f"SELECT run, epoch FROM json_each(?) JOIN request ON run = value AND {KEPT}"
            newest.update(dict.fromkeys(unknown, 0))  # one that was forgotten, or is not submitted yet
            newest.update(connection.execute(sql, (json.dumps(sorted(unknown)),)))
        return {claim for claim in claims if claim.epoch < newest[claim.run]}


T = TypeVar("T")
# Few runs have many records, and to make a `RunEpoch` of each would cost a hop one percent.
_CLAIM_OF: Callable[[Entry], tuple[str, int]] = itemgetter(2, 5)

# One statement inserts many rows. Each statement releases the interpreter lock, which a busy event loop returns only
# after 5 ms: beside such a loop 500 records took 2.5 s row by row, and take 20 ms this way. (For the same reason the
# rest of this file does as much as it can in one statement.) Statements are kept compiled, at 1.2 kB for each row, and
# more than 200 rows in one save nothing.
_CHUNKS = (200, 50, 20, 5, 2, 1)
_COLUMNS = 7

# A worker dies at most one lease before its lease expires. If a question was open at that time, the worker died while
# it waited for the answer.
_CLAIM = f"""
    UPDATE request SET epoch = epoch + 1, worker = ?, lease_until_ms = ?, spared = spared + (
        lease_until_ms > 0 AND epoch < ? AND (
            EXISTS (SELECT 1 FROM question WHERE question.run = request.run AND decision IS NULL)
            OR EXISTS (SELECT 1 FROM question WHERE question.run = request.run AND over_ms >= lease_until_ms - ?)
        )
    )
    WHERE run = ? AND {KEPT_OPEN} AND lease_until_ms <= ? RETURNING epoch
"""


@cache
def _insert(rows: int) -> str:
    return "INSERT INTO main.record VALUES " + ",".join(["(?,?,?,?,?,?,?)"] * rows)


class Transaction:
    """An open write transaction of one process; it reads the chain's head itself, because others write too."""

    def __init__(
        self,
        connection: SqliteConnection,
        now_ms: int,
        sizes: dict[str, int],
        *,
        keep_records: bool,
        keys: UserKeys | None = None,
        epochs: RunEpochs | None = None,
    ) -> None:
        self.connection = connection
        self._epochs = epochs or RunEpochs()
        self._knows_epochs = False
        self.replaced: set[str] = set()
        """The runs of which something was refused, because another hub has claimed them since."""
        self.now_ms = now_ms
        self._sizes = sizes
        self.keys = keys
        """The keys under which texts are encrypted; None: they are not."""
        if keys is not None:
            keys.begin()
        head = connection.execute("SELECT seq, digest FROM record ORDER BY seq DESC LIMIT 1").fetchone()
        self.seq, self._digest = head or (0, GENESIS)
        self._values: list[Any] = []
        self.records: list[Record] | None = [] if keep_records else None
        """The new records, for listeners; None if there are none."""
        self.outcomes: list[tuple[str, Response]] = []
        """The runs that ended in this transaction."""

    # ── records ───────────────────────────────────────────────────────────────────────────────────────────────────────

    def extend(self, entries: list[Entry]) -> None:
        """Append records to the chain, except those with a stale epoch."""
        claims = {RunEpoch(*each) for each in set(map(_CLAIM_OF, entries)) if each[1]}
        if claims and (stale := self._replaced(claims)):
            entries = [entry for entry in entries if (entry[2], entry[5]) not in stale]
        seq, digest, add, numbers, sizes = self.seq, self._digest, self._values.extend, KINDS, self._sizes
        keys = self.keys
        for kind, at_ms, run, session, body, _ in entries:
            seq += 1
            raw = encode(body)
            if keys is not None:
                raw = keys.encrypt_body(run, body, raw)
            digest = link(digest, seq, leaf(kind, at_ms, run, session, raw))
            add((seq, numbers[kind], at_ms, run, session, raw, digest))
            if (size := sizes.get(run)) is not None:
                sizes[run] = size + len(raw)
        if self.records is not None:
            first = self.seq + 1
            self.records += [_record(first + place, *entry[:5]) for place, entry in enumerate(entries)]
        self.seq, self._digest = seq, digest

    async def is_replaced(self, claim: RunEpoch) -> bool:
        """Return whether a run has been claimed again, or released, since a hub claimed it."""
        return bool(claim.epoch and self._replaced({claim}))

    def _replaced(self, claims: set[RunEpoch]) -> set[RunEpoch]:
        if not self._knows_epochs:
            self._epochs.look_again(self.connection)
            self._knows_epochs = True
        stale = self._epochs.replaced(self.connection, claims)
        self.replaced.update(run for run, _ in stale)
        return stale

    def write(self) -> None:
        """Insert every record of this transaction into the table."""
        values, start = self._values, 0
        for rows in _CHUNKS:
            width = rows * _COLUMNS
            while len(values) - start >= width:
                self.connection.execute(_insert(rows), values[start : start + width])
                start += width
        values.clear()

    # ── requests ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def apply(self, what: Write) -> Submitted | TakenRequest | bool | None:
        """Do one of the common writes."""
        match what:
            case Submit():
                return self.submit(what)
            case Finish():
                return self.finish(what)
            case JournalWrite():
                return self.journal(what)
            case Take():
                return at_once(requests.take(self, what))
            case Begin():
                return at_once(requests.begin(self, what))

    def submit(self, what: Submit) -> Submitted:
        request, digest, worker, lease_ms, waiting, once = what
        if is_old(request, self.now_ms):
            at_once(requests.check_fence(self, request, digest))
        if once is not None and at_once(incr(self, once.key, 1, once.until_ms)) > 1:
            return ReusedProof()
        key = (request.id, request.remit.user, request.sender)
        self.connection.execute(
            "INSERT INTO request"
            " (place, id, by_user, origin, digest, run, state, epoch, worker, lease_until_ms, waiting)"
            " VALUES (?,?,?,?,?,?,?,?,?,?,?) ON CONFLICT DO NOTHING",
            (self.seq + 1, *key, digest, request.run, RUNNING, 1, worker, self.now_ms + lease_ms, waiting),
        )
        if not self.connection.changes():
            known = at_once(reader.find(self.database, request, digest))
            if known is None:
                raise StoreError(fault(Code.DUPLICATE_REQUEST, f"another request was submitted as run {request.run}"))
            return known
        self._epochs.submitted(request.run)
        self._start(request, request.created_ms or self.now_ms)
        return AcceptedRequest(1)

    async def begin_changed(self, request: Request) -> None:
        sql = f"UPDATE request SET begun_seq = ? WHERE run = ? AND {KEPT}"
        self.connection.execute(sql, (self.seq + 1, request.run))
        self._start(request, self.now_ms)

    async def claim(self, run: str, worker: str, lease_ms: int) -> int | None:
        self._epochs.changed(run)
        row = self._row(_CLAIM, (worker, self.now_ms + lease_ms, MOST_EPOCHS, lease_ms, run, self.now_ms))
        return row[0] if row else None

    def epoch_changed(self, run: str) -> None:
        self._epochs.changed(run)

    def heartbeat(self, worker: str, lease_ms: int) -> None:
        self.connection.execute(
            f"UPDATE request SET lease_until_ms = ? WHERE {OPEN} AND worker = ?", (self.now_ms + lease_ms, worker)
        )

    async def end_leases(self, worker: str, within_ms: int) -> bool:
        if worker not in late_workers(self.now_ms, within_ms)(self.connection):
            return False
        self.connection.execute(
            f"UPDATE request SET lease_until_ms = min(lease_until_ms, ?) WHERE {OPEN} AND worker = ?",
            (self.now_ms, worker),
        )
        return True

    def finish(self, what: Finish) -> bool:
        run, epoch, response, at_ms, keep = what
        self.connection.execute(
            f"UPDATE request SET state = ?, last_seq = ?, ended_ms = ? WHERE run = ? AND epoch = ? AND {KEPT_OPEN}",
            (FINISHED if keep else FORGOTTEN, self.seq + 1, at_ms, run, epoch),
        )
        if not self.connection.changes():
            return False
        if response.status is Status.SUCCESS:
            self.connection.execute("DELETE FROM journal WHERE run = ?", (run,))
        session = response.session or self._session(run)
        self._epochs.changed(run)
        self.extend([(Kind.RESULT, at_ms, run, session, response, 0)])
        self.outcomes.append((run, response))
        return True

    async def end(self, run: str, epoch: int, response: Response, at_ms: int) -> None:
        self.finish(Finish(run, epoch, response, at_ms))

    def sweep(self, max_attempts: int, keep_ms: int, jumps: Jumps) -> list[OrphanedRun]:
        self._follow_clock(jumps)
        return at_once(requests.sweep(self, self.now_ms, max_attempts, keep_ms))

    async def forget_outcomes(self, before_ms: int) -> None:
        self.connection.execute(f"UPDATE request SET state = ? WHERE {OVER} AND ended_ms <= ?", (FORGOTTEN, before_ms))

    async def expired(self, now_ms: int) -> list[tuple[Any, ...]]:
        # The plus keeps SQLite from scanning all requests in order, which it would do to avoid a sort.
        return self.connection.execute(
            "SELECT request.run, epoch, epoch - spared, waiting, body"
            " FROM request JOIN record ON seq = coalesce(begun_seq, place)"
            f" WHERE {OPEN} AND lease_until_ms <= ? ORDER BY +place",
            (now_ms,),
        ).fetchall()

    def _follow_clock(self, jumps: Jumps) -> None:
        """Shift stored times after a jump of the clock, so that only elapsed time counts."""
        noted_ms = (self._row("SELECT seen_ms FROM clock", ()) or (0,))[0]
        jump_ms, now_ms = jumps.since(noted_ms, self.now_ms), self.now_ms
        if jump_ms > 0:
            # Rows written since the jump are not shifted.
            before_ms = now_ms - jump_ms + LEAST_JUMP_MS
            self.connection.execute(
                f"UPDATE request SET ended_ms = ended_ms + ?1 WHERE {OVER} AND ended_ms <= ?2",
                (jump_ms, before_ms),
            )
            self.connection.execute(
                "UPDATE request SET lease_until_ms = lease_until_ms + ?1"
                f" WHERE {OPEN} AND lease_until_ms BETWEEN 1 AND ?2",
                (jump_ms, before_ms),
            )
        elif jump_ms < 0:
            # An outcome with a time in the future has finished by now; its retention starts again.
            self.connection.execute(f"UPDATE request SET ended_ms = ?1 WHERE {OVER} AND ended_ms > ?1", (now_ms,))
            self.connection.execute(
                f"UPDATE request SET lease_until_ms = lease_until_ms + ?1 WHERE {OPEN} AND lease_until_ms >= ?2",
                (jump_ms, now_ms - jump_ms - LEAST_JUMP_MS),
            )
        if jump_ms or not 0 <= now_ms - noted_ms < SEEN_EVERY_MS:
            self.connection.execute("INSERT OR REPLACE INTO clock VALUES (1, ?)", (now_ms,))
            jumps.noted(now_ms)

    def _start(self, request: Request, at_ms: int) -> None:
        self.extend([(Kind.STARTED, at_ms, request.run, request.session or request.run, request, 0)])

    def _session(self, run: str) -> str:
        self.write()
        row = self._row("SELECT session FROM record WHERE run = ? ORDER BY seq LIMIT 1", (run,))
        return row[0] if row else run

    # ── the rest ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def journal(self, what: JournalWrite) -> bool:
        self.connection.execute(
            "INSERT OR REPLACE INTO journal (run, step, value)"
            " SELECT ?1, ?3, ?4 FROM request"
            f" WHERE run = ?1 AND epoch = ?2 AND {KEPT_OPEN}",
            what,
        )
        return bool(self.connection.changes())

    @property
    def database(self) -> SqlConnection:
        """This transaction as shared queries see it, with all records so far."""
        self.write()
        return SqliteDatabase(self.connection, lambda: self.now_ms)

    def changed(self, change: Callable[[SqlChange], Awaitable[T]]) -> T:
        """Return the result of a change that both engines do alike."""
        return at_once(change(self))

    async def encrypted(self, user: str, text: bytes) -> bytes:
        return text if self.keys is None else self.keys.encrypt(user, text)

    def _row(self, sql: str, values: tuple[Any, ...]) -> tuple[Any, ...] | None:
        return self.connection.execute(sql, values).fetchone()


def _record(seq: int, kind: Kind, at_ms: int, run: str, session: str, body: Body) -> Record:
    return Record(seq=seq, kind=kind, at_ms=at_ms, run=run, session=session, body=body)


def late_workers(now_ms: int, within_ms: int) -> Callable[[SqliteConnection], list[str]]:
    """Return the query for the workers with claims whose leases end *within_ms*."""
    sql = (
        f"SELECT worker FROM request WHERE {OPEN} AND worker <> '' GROUP BY worker"
        " HAVING max(lease_until_ms) > ? AND max(lease_until_ms) <= ?"
    )
    return lambda connection: [str(worker) for (worker,) in connection.execute(sql, (now_ms, now_ms + within_ms))]


_SUBMITTED = f"SELECT 1 FROM request WHERE id = ? AND by_user = ? AND origin = ? AND {KEPT}"


def is_submitted(connection: SqliteConnection, request: Request) -> bool:
    """Return whether a request with the same sender, user and id was submitted, and is not forgotten."""
    return connection.execute(_SUBMITTED, (request.id, request.remit.user, request.sender)).fetchone() is not None
