"""A store in one SQLite file, which several processes may share."""

import asyncio
import os
import time
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import TypeVar

import apsw

from remit.policy.budget import estimate
from remit.protocol.envelope import ContextFilter, Message, Note, Request, Response
from remit.protocol.errors import Code, fault
from remit.protocol.records import Body, Kind, Record
from remit.runtime.audit import AuditVerdict
from remit.runtime.clock import Jumps
from remit.runtime.keys import HubKeys
from remit.runtime.ports import (
    ANYONES,
    NO_RUN,
    ControlAction,
    ControlCommand,
    Decision,
    DuplicateRequest,
    NumberedRecord,
    OrphanedRun,
    Question,
    RunEpoch,
    RunScope,
    RunState,
    RunSummary,
    SealedValue,
    SessionOwner,
    SingleUseProof,
    StoreError,
    Submitted,
    TakenRequest,
    TokenCounter,
)
from remit.stores import controls, inbox, vault
from remit.stores import messages as index
from remit.stores import reader as queries
from remit.stores.audit import verify_file
from remit.stores.checkpoints import EVERY, SECONDS
from remit.stores.connection import Durability, SqliteConnection
from remit.stores.daily_pruning import DailyPruning
from remit.stores.listings import SqliteListings
from remit.stores.locked_texts import LockedTexts
from remit.stores.opening import Opening
from remit.stores.outcome_waits import OutcomeWaits
from remit.stores.reader_pool import Reader
from remit.stores.retention import FOREVER, Erased, Retention
from remit.stores.stored_chain import SqliteChain
from remit.stores.transaction import Transaction
from remit.stores.user_erasure import erase_from_file, file_upkeep
from remit.stores.user_keys import is_encrypted
from remit.stores.writer import Listener, StoreWriter

__all__ = ["Durability", "SqliteStore", "verify_file"]

T = TypeVar("T")

# A hop appends two records: this is more than two thousand hops ahead of the disk.
MAX_QUEUED = 4_000


def _wall_ms() -> int:
    return time.time_ns() // 1_000_000


class SqliteStore:
    """Everything a hub remembers, in the file at *path*; implements `remit.runtime.ports.Store`.

    Use it from one event loop. `durability="power"` survives a power cut, `"process"` a killed process. Without
    *make_key*, a store whose key is missing is not opened; else a new key is made. What *retention* no longer keeps is
    removed once a day, by one of the processes that share the file. With *encrypt*, texts are encrypted under a key of
    their user. *count* counts the tokens of each message once. *monotonic* tells elapsed time from a jump of *wall_ms*.
    *commit_hook* is called before each commit, for tests that want it slow or failing.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        durability: Durability = "power",
        checkpoint_every: int = EVERY,
        checkpoint_seconds: float = SECONDS,
        busy_seconds: float = 5,
        make_key: bool = True,
        retention: Retention = FOREVER,
        encrypt: bool = False,
        count: TokenCounter = estimate,
        wall_ms: Callable[[], int] = _wall_ms,
        monotonic: Callable[[], float] = time.monotonic,
        commit_hook: Callable[[], None] | None = None,
    ) -> None:
        self.path = Path(path)
        self._opening = Opening(
            path=self.path,
            durability=durability,
            checkpoint_every=checkpoint_every,
            checkpoint_seconds=checkpoint_seconds,
            busy_seconds=busy_seconds,
            make_key=make_key,
            wall_ms=wall_ms,
        )
        self.retention, self.encrypt = retention, encrypt
        self.vault_key: bytes | None = None
        """The key with which redacted values are encrypted; None: one derived from the store's own."""
        self._upkeep = file_upkeep(self.path, durability, wall_ms)
        self._pruning = DailyPruning(str(self.path), self._upkeep, wall_ms)
        self._count, self._wall_ms, self._jumps, self._keeps_words = count, wall_ms, Jumps(monotonic), True
        self._waits, self._locked = OutcomeWaits(), LockedTexts(self.secret)
        self._writer = StoreWriter(self.path, wall_ms=wall_ms, commit_hook=commit_hook, ended=self._waits.tell)
        self._queue, self.sizes = self._writer.queue, self._writer.sizes
        self.listings, self.chain = SqliteListings(self._read), SqliteChain(self._opening, lambda: self._key)
        self._reader: Reader | None = None
        self._glance: SqliteConnection | None = None
        """A connection for frequent queries: a thread beside a busy loop takes 2 % of it."""

    # ── opening and closing ───────────────────────────────────────────────────────────────────────────────────────────

    async def open(self) -> None:
        """Open the file; it is created, with its folder and its key, if it does not exist."""
        opened = await asyncio.to_thread(self._opening.open, self.sizes, encrypt=self.encrypt)
        self._key, self._reader, self._glance = opened.key, opened.reader, opened.glance
        self._keeps_words = not is_encrypted(opened.writer)
        self._writer.start(opened.writer, opened.checkpoints, opened.keys)

    async def close(self) -> None:
        """Make everything durable and close; raises `StoreError` if that fails, and keeps the queue for `open`."""
        if (reader := self._reader) is None:
            return
        try:
            await self._pruning.stop()
            await self.flush()
        finally:
            self._reader = None
            if self._glance is not None:
                self._glance.close()
                self._glance = None
            # The writer's connection closes last: only a connection that may write merges the log into the file.
            await reader.close()
            await self._writer.stop()

    # ── the record ────────────────────────────────────────────────────────────────────────────────────────────────────

    def append(self, kind: Kind, at_ms: int, run: str, session: str, body: Body, epoch: int = 0) -> None:
        """Take a record without waiting; it is durable once a later `flush`, `submit` or `finish` has returned."""
        queue, writer = self._queue, self._writer
        queue.append((kind, at_ms, run, session, body, epoch))
        if len(queue) > writer.calm:
            writer.nudge()

    @property
    def full(self) -> bool:
        """Whether the queue is so long that callers should await `room` before they append."""
        return len(self._queue) >= MAX_QUEUED

    async def room(self) -> None:
        """Return once there is room for more records."""
        self._opened()
        await self._writer.room(MAX_QUEUED)

    async def flush(self) -> None:
        """Return once everything appended so far is durable, or raise `StoreError`."""
        await self._do(Transaction.write)

    async def transfer(self, source: str, entries: Sequence[NumberedRecord]) -> int:
        """Record the entries of another log, each number of a *source* once; return the highest recorded number."""
        taken = tuple(entries)
        return await self._do(lambda transaction: transaction.transfer(source, taken))

    def listen(self, listener: Listener, *, patient: bool = False) -> Callable[[], None]:
        """Call *listener* in the event loop with each group of records that this store committed, in order."""
        self._opened()
        return self._writer.listen(listener, patient=patient)

    # ── requests ──────────────────────────────────────────────────────────────────────────────────────────────────────

    async def submit(
        self,
        request: Request,
        digest: bytes,
        *,
        worker: str,
        lease_ms: int,
        waiting: bool = False,
        once: SingleUseProof | None = None,
    ) -> Submitted:
        """Make the request durable together with its first record and claim it; idempotent by (sender, user, id)."""
        return await self._do(
            lambda transaction: transaction.submit(request, digest, worker, lease_ms, waiting=waiting, once=once)
        )

    def submit_soon(
        self, request: Request, digest: bytes, *, worker: str, lease_ms: int
    ) -> "asyncio.Future[Submitted] | None":
        """Submit a request with the next transaction, soon; None if others are queued or it was submitted before."""
        # If other writes are queued, it shares their commit anyway, and looking it up costs more than that gains.
        if not self._writer.is_idle or self._glance_at(lambda each: queries.is_submitted(each, request), failed=True):
            return None
        return self._writer.do_soon(lambda transaction: transaction.submit(request, digest, worker, lease_ms))

    async def begin(self, run: str, epoch: int, request: Request) -> bool:
        return await self._do(lambda transaction: transaction.begin(run, epoch, request))

    async def release(self, run: str, epoch: int, *, begun: bool = True) -> bool:
        return await self._do(lambda transaction: transaction.release(run, epoch, begun=begun))

    async def find(self, request: Request, digest: bytes) -> DuplicateRequest | None:
        return await self._do(lambda transaction: transaction.find(request, digest))

    async def claim(self, run: str, worker: str, lease_ms: int) -> int | None:
        return await self._do(lambda transaction: transaction.claim(run, worker, lease_ms))

    async def take(self, run: str, worker: str, lease_ms: int, *, begin: bool = False) -> TakenRequest | None:
        return await self._do(lambda transaction: transaction.take(run, worker, lease_ms, begin=begin))

    async def heartbeat(self, worker: str, lease_ms: int) -> None:
        # Without runs there is no lease to renew, and no lock to take. A claim that is still being written is not seen.
        if not self._writer.is_idle or self._glance_at(queries.has_claims(worker), failed=True):
            await self._do(lambda transaction: transaction.heartbeat(worker, lease_ms))

    async def claimed(self, worker: str) -> list[tuple[str, int]]:
        # As for a heartbeat: most of the time there are none, and no thread is woken to find that out.
        if self._writer.is_idle and not self._glance_at(queries.has_claims(worker), failed=True):
            return []
        return await self._read(queries.claimed(worker))

    async def late_workers(self, within_ms: int) -> list[str]:
        """Return the workers with claims whose leases end *within_ms*: they have sent no heartbeat for a while."""
        return await self._read(queries.late_workers(self._wall_ms(), within_ms))

    async def end_leases(self, worker: str, within_ms: int) -> bool:
        """End the leases of a worker that is known to be dead; False: it has none, or has shown life since."""
        return await self._do(lambda transaction: transaction.end_leases(worker, within_ms))

    async def finish(self, run: str, epoch: int, response: Response, at_ms: int, *, keep: bool = True) -> bool:
        # The outcome is kept even if the caller no longer waits for the acknowledgement.
        return await self._do(lambda transaction: transaction.finish(run, epoch, response, at_ms, keep=keep), kept=True)

    async def wait(self, run: str) -> Response:
        return await self._waits.wait(run, lambda: self._read(queries.outcome(run)))

    async def sweep(self, *, max_attempts: int, keep_ms: int) -> list[OrphanedRun]:
        """Return expired requests; those that expired *max_attempts* times end as OUTCOME_UNKNOWN."""
        expired = await self._do(lambda transaction: transaction.sweep(max_attempts, keep_ms, self._jumps))
        if self._pruning.may_be_due(self.retention) and await self._change(self._pruning.claim):
            self._pruning.start(self.retention)
        return expired

    # ── vault, inbox, controls ────────────────────────────────────────────────────────────────────────────────────────

    def secret(self) -> bytes:
        """Return 32 bytes derived from the store's key; the same for all processes that share the store."""
        self._opened()
        return vault.secret(self._key)

    def seal(self, scope: str, sealed: Sequence[SealedValue]) -> None:
        """Store values, durable like a record; the first of each token is kept, `of_user` stays once it is set."""
        kept = tuple(sealed)
        self._writer.later(lambda transaction: vault.seal(transaction.connection, scope, kept, transaction.now_ms))

    async def unseal(self, scope: str) -> list[SealedValue]:
        """Return all values of a scope."""
        return await self._read(lambda connection: vault.unseal(connection, scope))

    async def put(self, question: Question) -> Question:
        """Add a question, durable on return; if it exists, the stored one is returned unchanged."""
        return await self._do(lambda transaction: inbox.put(transaction.connection, question, transaction.keys))

    async def decide(self, question: str, decision: Decision) -> bool:
        """Answer a question, durable on return; False: it does not exist, has expired, or was answered before."""
        locked = self._locked.lock_decision(question, decision)
        return await self._do(
            lambda transaction: inbox.decide(transaction.connection, question, locked, transaction.now_ms)
        )

    async def decision(self, question: str) -> Decision | None:
        """Return the answer, if there is one, whichever process wrote it."""
        locked = await self._read(lambda connection: inbox.decision(connection, question))
        return self._locked.open_decision(question, locked)

    async def withdraw(self, question: str) -> None:
        """Delete a question that no longer needs an answer."""
        await self._do(lambda transaction: inbox.withdraw(transaction.connection, question))

    async def pending(self) -> list[Question]:
        """Return the questions that can still be answered, oldest first."""
        now_ms = self._wall_ms()
        return await self._read(lambda connection: inbox.pending(connection, now_ms))

    async def control(self, run: str, action: ControlAction, by: str, reason: str, delegation: str = "") -> int:
        locked, what = self._locked.lock_reason(run, reason).hex(), controls.packed(action, delegation)
        return await self._do(
            lambda transaction: controls.add(transaction.connection, run, what, by, locked, transaction.now_ms)
        )

    async def controls(self, after: int, run: str | None = None) -> list[ControlCommand]:
        """Return the commands after number *after*, optionally about one run; those older than a day may be deleted."""
        if run is None and not self._glance_at(lambda connection: controls.last(connection) > after, failed=True):
            return []
        said = await self._read(lambda connection: controls.after(connection, after, run))
        opened = self._locked.open_reason
        return [each._replace(reason=opened(each.run, bytes.fromhex(each.reason))) for each in said]

    async def last_control(self) -> int:
        """Return the number of the newest command, 0 if there is none."""
        return await self._read(controls.last)

    # ── conversations ─────────────────────────────────────────────────────────────────────────────────────────────────

    async def messages(self, session: str, wanted: ContextFilter, *, now_ms: int, tokens: int) -> list[Message]:
        """Return what `policy.context.select` chooses of everything committed in a session, oldest first."""
        words = self._keeps_words  # beside encrypted texts, an index of plain words would give them away
        found = await self._read(index.choose(session, wanted, now_ms, tokens, words=words))
        if found is None:
            await index.update(self._change, session, self._count, words=words and index.by_words(wanted))
            found = await self._read(index.choose(session, wanted, now_ms, tokens, behind=True, words=words))
        return found or []

    async def seen(self, session: str, messages: Collection[int]) -> frozenset[int]:
        """Return which of these messages, by number, belong to a session: sent there, or shown to its agent before."""
        found = await self._read(index.seen(session, messages))
        if found is None:
            await index.update(self._change, session, self._count, words=False)
            found = await self._read(index.seen(session, messages, behind=True))
        return found or frozenset()

    def note(self, session: str, notes: Sequence[Note], of: RunEpoch = NO_RUN) -> None:
        kept = tuple(notes)
        self._writer.later(
            lambda each: each.is_replaced(of) or index.note(each.connection, session, kept, each.now_ms, each.keys)
        )

    async def notes(self, session: str) -> list[Note]:
        """Return the notes of a conversation, oldest first."""
        return await self._read(index.notes(session))

    # ── journal, counters, archive ────────────────────────────────────────────────────────────────────────────────────

    def journal(self, run: str, epoch: int, step: str, value: bytes) -> None:
        """Store a step's value, durable like a record. A stale epoch writes nothing; a later value replaces it."""
        self._writer.later(lambda transaction: transaction.journal(run, epoch, step, value))

    async def journal_durably(self, run: str, epoch: int, step: str, value: bytes) -> bool:
        """Store a step's value before its effects begin; False: the epoch is stale, and nothing was written."""
        return await self._do(lambda transaction: transaction.journal(run, epoch, step, value))

    async def load(self, run: str) -> dict[str, bytes]:
        """Return the journal of a run."""
        return await self._read(queries.journal(run))

    async def incr(self, key: str, n: int, window_ms: int) -> int:
        """Add *n* in the current window and return the window's total."""
        return await self._do(lambda transaction: transaction.incr(key, n, window_ms))

    async def cas(self, key: str, revision: int, value: bytes) -> int | None:
        """Write *value* if the key is still at *revision* (0: absent); return the new revision, or None if it moved."""
        return await self._do(lambda transaction: transaction.cas(key, revision, value))

    async def get(self, key: str) -> tuple[int, bytes] | None:
        """Return revision and value."""
        return await self._read(queries.cell(key))

    async def owner(self, session: str) -> SessionOwner | None:
        """Return the owner of a session, or None if it has none yet."""
        if self._writer.is_idle and (found := self._glance_at(lambda each: (queries.owner(each, session),), None)):
            return found[0]
        return await self._do(lambda transaction: transaction.owner(session))

    async def session(self, session: str, user: str, agent: str) -> SessionOwner:
        """Return the owner of a session; it becomes *user* and *agent* if it has none yet."""
        return await self._do(lambda transaction: transaction.session(session, user, agent))

    async def records(
        self, *, run: str | None = None, session: str | None = None, after: int = 0, limit: int = 1_000
    ) -> list[Record]:
        return await self._read(queries.records(run, session, after, limit))

    async def newest(self) -> int:
        return await self._read(queries.newest)

    async def recent(self, limit: int) -> list[Record]:
        return await self._read(queries.recent(limit))

    async def runs(
        self,
        *,
        user: str | None = None,
        run: str | None = None,
        correlation: str | None = None,
        of: RunScope = ANYONES,
        limit: int = 50,
    ) -> list[RunSummary]:
        return await self._read(queries.runs(user, run, limit, self._wall_ms(), of, correlation))

    async def named(self, id: str, of: RunScope) -> list[str]:
        return await self._read(queries.named(id, of))

    async def handed_over(self, run: str, user: str) -> list[tuple[str, str]]:
        return await self._read(queries.handed_over(run, user))

    async def states(
        self, *, agent: str, users: Collection[str] | None = None, session: str | None = None, limit: int = 10_000
    ) -> list[RunState]:
        return await self._read(queries.states(agent, None if users is None else list(users), session, limit))

    def remember(self, user: str, run: str, facts: tuple[str, ...], epoch: int = 0) -> None:
        self._writer.later(lambda transaction: transaction.remember(user, run, facts, epoch))

    async def facts(self, user: str) -> tuple[str, ...]:
        return await self._read(queries.facts(user))

    async def erase(self, user: str) -> Erased:
        """Erase everything of a user, and record it; raises `StoreError` while runs of the user are open."""
        await self.flush()
        keys = HubKeys(self.vault_key or self.secret())
        return await asyncio.to_thread(erase_from_file, self.path, self._upkeep, user, keys)

    async def verify(self) -> AuditVerdict:
        """Verify the audit chain and its checkpoints, as far as they are committed."""
        return await self.chain.verify()

    # ── inside ────────────────────────────────────────────────────────────────────────────────────────────────────────

    def _do(self, apply: Callable[[Transaction], T], *, kept: bool = False) -> "asyncio.Future[T]":
        self._opened()
        return self._writer.do(apply, kept=kept)

    def _change(self, change: queries.Query[T]) -> "asyncio.Future[T]":
        return self._do(lambda transaction: change(transaction.connection))

    async def _read(self, query: queries.Query[T]) -> T:
        return await self._opened().read(query)

    def _glance_at(self, query: queries.Query[T], failed: T) -> T:
        """Query in the event loop, which takes microseconds; *failed* after an error: what follows reports it."""
        self._opened()
        assert self._glance is not None
        try:
            return query(self._glance)
        except apsw.Error:
            return failed

    def _opened(self) -> Reader:
        if self._reader is None:
            raise StoreError(
                fault(Code.STORE_UNAVAILABLE, f"{self.path}: the store is not open", suggestion="Open it first.")
            )
        return self._reader
