"""What a store does alike in either engine: everything that is not on the way of each delegation."""

import asyncio
import logging
import sys
import threading
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Collection, Sequence
from contextlib import closing
from functools import partial
from typing import Any, Generic, Protocol, TypeVar

import apsw
import msgspec

from remit.installed import brought_under, install_command, named
from remit.ports import (
    ANYONES,
    MOST_FACTS,
    MOST_NOTES,
    NO_RUN,
    ControlAction,
    ControlCommand,
    Decision,
    DuplicateRequest,
    ListedRecords,
    ListedSessions,
    NumberedRecord,
    Question,
    RecordFilter,
    RunEpoch,
    RunScope,
    RunState,
    RunSummary,
    SealedValue,
    SessionFilter,
    SessionOwner,
    SingleUseProof,
    StoreError,
    Submitted,
    TakenRequest,
    TokenCounter,
)
from remit.ports.keys import HubKeys
from remit.ports.upkeep import DAY_MS, FOREVER, Erased, Retention, Upkeep
from remit.protocol.codec import encode
from remit.protocol.envelope import ContextFilter, Message, Note, Request, Response
from remit.protocol.errors import Code, fault
from remit.protocol.records import Body, Kind, Record
from remit.runtime.audit import AuditVerdict
from remit.runtime.audit.chain import AuditedChain
from remit.runtime.signing import CheckpointKey
from remit.stores import reader, requests, side_tables
from remit.stores.database import NOW_MS, OPEN, Entry, Query, SqlChange
from remit.stores.messages import MessageIndex, by_words
from remit.stores.records import RecordPages
from remit.stores.requests import Begin, Finish, JournalWrite, Submit, Take, Write
from remit.stores.user_keys import secret_of

T = TypeVar("T")

# A hop appends two records: this is more than two thousand hops ahead of the disk.
MAX_QUEUED = 4_000

# How often a hub looks whether another has pruned.
LOOK_MS = 3_600_000

_log = logging.getLogger("remit.store")

OpenUpkeep = Callable[[], Upkeep]
"""Opens the upkeep of a store; called in a thread."""


_read_decision = msgspec.json.Decoder(Decision).decode


class LockedTexts:
    """Encrypts under the secret of a store: people wrote these texts, and they are not redacted.

    Each can be decrypted only for its own question or run.
    """

    def __init__(self, secret: Callable[[], bytes]) -> None:
        self._secret = secret

    def lock_decision(self, question: str, decision: Decision) -> bytes:
        return self._keys().lock(encode(decision), f"decision {question}")

    def open_decision(self, question: str, locked: bytes | None) -> Decision | None:
        """Return a decision; None if there is none, or if it was changed or moved."""
        opened = None if locked is None else self._keys().unlock(locked, f"decision {question}")
        return None if opened is None else _read_decision(opened)

    def lock_reason(self, run: str, reason: str) -> bytes:
        return self._keys().lock(reason.encode(), f"control {run}")

    def open_reason(self, run: str, locked: bytes) -> str:
        """Return the reason of a command; empty if it was changed or moved."""
        return (self._keys().unlock(locked, f"control {run}") or b"").decode()

    def _keys(self) -> HubKeys:
        return HubKeys(self._secret())


class AppendsEntries(Protocol):
    """A queue of what is to be written."""

    def __len__(self) -> int: ...

    def append(self, entry: Entry, /) -> None: ...


class QueueWriter(Protocol):
    """The part of a writer that appends and waits."""

    calm: int

    @property
    def queue(self) -> AppendsEntries: ...

    def nudge(self) -> None: ...

    async def room(self, limit: int) -> None: ...


W = TypeVar("W", bound=QueueWriter)


Look = Callable[[str], Awaitable[tuple[bool, Response | None]]]
"""Returns whether a run was submitted, and its outcome."""


class OutcomeWaits:
    """The waits for runs that this process or another finishes."""

    def __init__(self, look: Look) -> None:
        self._look = look
        self._awaited: dict[str, list[asyncio.Future[Response | None]]] = {}
        self.poll_seconds = 0.1
        """How often a wait looks for an outcome that another process wrote."""

    def __len__(self) -> int:
        return len(self._awaited)

    async def wait(self, run: str) -> Response:
        """Return the outcome of a run once there is one."""
        while True:
            # First subscribed, then read: an outcome in between is not missed.
            ended: asyncio.Future[Response | None] = asyncio.get_running_loop().create_future()
            self._awaited.setdefault(run, []).append(ended)
            try:
                is_known, outcome = await self._look(run)
                if ended.done() and (response := ended.result()) is not None:
                    return response
                if not is_known:
                    raise StoreError(fault(Code.OUTCOME_UNKNOWN, f"no request was submitted here as run {run}"))
                if outcome is not None:
                    return outcome
                await asyncio.wait([ended], timeout=self.poll_seconds)
                if ended.done() and (response := ended.result()) is not None:
                    return response
            finally:
                self._forget(run, ended)

    def tell(self, run: str, response: Response | None) -> None:
        """Give the outcome of a run to those who wait for it; None: they look for it."""
        for ended in self._awaited.get(run, ()):
            if not ended.done():
                ended.set_result(response)

    def _forget(self, run: str, ended: "asyncio.Future[Response | None]") -> None:
        self._awaited[run].remove(ended)
        if not self._awaited[run]:
            del self._awaited[run]


class SqlStore(ABC, Generic[W]):
    """The part of `remit.ports.Store` that is the same in either engine, and says what each method promises."""

    chain: AuditedChain
    _key: CheckpointKey
    _writer: W

    def __init__(
        self,
        name: str,
        upkeep: OpenUpkeep,
        wall_ms: Callable[[], int],
        messages: MessageIndex,
        count: TokenCounter,
    ) -> None:
        """*messages* has the engine's queries of the record and of its index; *count* counts the tokens of a text."""
        self.retention: Retention = FOREVER
        """How long what is kept; the rest is removed once a day, by one of the hubs."""
        self.vault_key: bytes | None = None
        """The key with which redacted values are encrypted; None: one derived from the store's own."""
        self._wall_ms = wall_ms
        self._upkeep = upkeep
        self._pruning = DailyPruning(name, upkeep, wall_ms)
        self._locked = LockedTexts(self.secret)
        self._pages, self._messages, self._count = messages.pages, messages, count
        self._keeps_words = True
        """Whether words are indexed: beside encrypted texts, an index of plain words would give them away."""
        self.listings = SqlListings(self, messages.pages)

    # ── what each engine does ─────────────────────────────────────────────────────────────────────────────────────────

    @abstractmethod
    async def read(self, query: Query[T]) -> T:
        """Return the result of a query of what is committed."""

    async def peek(self, query: Query[T]) -> T:
        """Read few rows, as fast as can be."""
        return await self.read(query)

    @abstractmethod
    def _do(self, what: Write, *, kept: bool = False) -> "asyncio.Future[Any]":
        """Return the result of a common write once it is durable; one that is *kept* is done for no caller, too."""

    @abstractmethod
    def _do_later(self, what: JournalWrite) -> None:
        """Write a step, durable like a record."""

    @abstractmethod
    def _change(self, change: Callable[[SqlChange], Awaitable[T]]) -> "asyncio.Future[T]":
        """Return the result of a change once it is durable."""

    @abstractmethod
    def _change_later(self, change: Callable[[SqlChange], Awaitable[object]]) -> None:
        """Change something, durable like a record."""

    @abstractmethod
    async def _index_messages(self, step: Query[bool]) -> bool:
        """Do a step of indexing in a transaction that writes."""

    @abstractmethod
    async def _settled(self) -> None:
        """Return once a query sees everything that was queued before."""

    @abstractmethod
    async def caught_up(self) -> None:
        """Return once everything that was committed has its place in the chain."""

    @abstractmethod
    async def flush(self) -> None:
        """Return once everything appended so far is durable, or raise `StoreError`."""

    @abstractmethod
    def _opened(self) -> object:
        """Raise `StoreError` if the store is not open."""

    # ── the record ────────────────────────────────────────────────────────────────────────────────────────────────────

    def append(self, kind: Kind, at_ms: int, run: str, session: str, body: Body, epoch: int = 0) -> None:
        """Take a record without waiting; it is durable once a later `flush`, `submit` or `finish` has returned."""
        writer = self._writer
        queue = writer.queue
        queue.append((kind, at_ms, run, session, body, epoch))
        if len(queue) > writer.calm:
            writer.nudge()

    @property
    def full(self) -> bool:
        """Whether the queue is so long that callers should await `room` before they append."""
        return len(self._writer.queue) >= MAX_QUEUED

    async def room(self) -> None:
        """Return once there is room for more records."""
        self._opened()
        await self._writer.room(MAX_QUEUED)

    async def transfer(self, source: str, entries: Sequence[NumberedRecord]) -> int:
        """Record the entries of another log, each number of a *source* once; return the highest recorded number."""
        taken = tuple(entries)
        return await self._change(lambda change: requests.transfer(change, source, taken))

    async def records(
        self, *, run: str | None = None, session: str | None = None, after: int = 0, limit: int = 1_000
    ) -> list[Record]:
        await self.caught_up()
        return await self.read(lambda database: self._pages.records(database, run, session, after, limit))

    async def newest(self) -> int:
        await self.caught_up()
        return await self.read(self._pages.newest)

    async def recent(self, limit: int) -> list[Record]:
        await self.caught_up()
        return await self.read(lambda database: self._pages.recent(database, limit))

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
        return await self._do(Submit(request, digest, worker, lease_ms, waiting, once))

    async def find(self, request: Request, digest: bytes) -> DuplicateRequest | None:
        await self._settled()
        return await self.read(lambda database: reader.find(database, request, digest))

    async def begin(self, run: str, epoch: int, request: Request) -> bool:
        return await self._do(Begin(run, epoch, request))

    async def take(self, run: str, worker: str, lease_ms: int, *, begin: bool = False) -> TakenRequest | None:
        return await self._do(Take(run, worker, lease_ms, begin))

    async def finish(self, run: str, epoch: int, response: Response, at_ms: int, *, keep: bool = True) -> bool:
        # The outcome is kept even if the caller no longer waits for the acknowledgement.
        return await self._do(Finish(run, epoch, response, at_ms, keep), kept=True)

    async def end_leases(self, worker: str, within_ms: int) -> bool:
        return await self._change(lambda change: change.end_leases(worker, within_ms))

    async def release(self, run: str, epoch: int, *, begun: bool = True) -> bool:
        return await self._change(lambda change: requests.release(change, run, epoch, begun=begun))

    async def claim(self, run: str, worker: str, lease_ms: int) -> int | None:
        return await self._change(lambda change: change.claim(run, worker, lease_ms))

    async def claimed(self, worker: str) -> list[tuple[str, int]]:
        await self._settled()
        sql = f"SELECT run, epoch FROM remit.request WHERE {OPEN} AND worker = $1"
        return [(run, epoch) for run, epoch in await self.peek(lambda database: database.fetch(sql, worker))]

    # ── vault, inbox, controls ────────────────────────────────────────────────────────────────────────────────────────

    def secret(self) -> bytes:
        """Return 32 bytes derived from the store's key; the same for all processes that share the store."""
        self._opened()
        return secret_of(self._key)

    def seal(self, scope: str, sealed: Sequence[SealedValue]) -> None:
        """Store values, durable like a record; the first of each token is kept, `of_user` stays once it is set."""
        kept = tuple(sealed)
        self._change_later(lambda change: side_tables.seal(change, scope, kept))

    async def unseal(self, scope: str) -> list[SealedValue]:
        rows = await self._rows("SELECT token, value, of_user FROM remit.sealed WHERE scope = $1", scope)
        return [SealedValue(token, value, bool(of_user)) for token, value, of_user in rows]

    async def put(self, question: Question) -> Question:
        return await self._change(lambda change: side_tables.put(change, question))

    async def decide(self, question: str, decision: Decision) -> bool:
        """Answer a question if it exists, is not answered and has not expired."""
        locked = self._locked.lock_decision(question, decision)
        sql = (
            "UPDATE remit.question SET decision = $2, over_ms = $3"
            " WHERE id = $1 AND decision IS NULL AND expires_ms > $3 RETURNING 1"
        )
        changed = await self._change(lambda change: change.database.fetch(sql, question, locked, change.now_ms))
        return bool(changed)

    async def decision(self, question: str) -> Decision | None:
        rows = await self._rows("SELECT decision FROM remit.question WHERE id = $1", question)
        return self._locked.open_decision(question, rows[0][0] if rows else None)

    async def withdraw(self, question: str) -> None:
        # One that was answered stays, so that its answer is found after a restart.
        sql = "DELETE FROM remit.question WHERE id = $1 AND decision IS NULL"
        await self._change(lambda change: change.database.execute(sql, question))

    async def pending(self) -> list[Question]:
        now_ms = self._wall_ms()
        return await self.read(lambda database: side_tables.pending(database, now_ms))

    async def control(self, run: str, action: ControlAction, by: str, reason: str, delegation: str = "") -> int:
        locked = self._locked.lock_reason(run, reason)
        return await self._change(lambda change: side_tables.add_control(change, run, action, by, locked, delegation))

    async def controls(self, after: int, run: str | None = None) -> list[ControlCommand]:
        if run is None and await self.peek(side_tables.last_control) <= after:
            return []
        rows = await self._rows(
            "SELECT seq, run, action, by_user, reason FROM remit.control"
            " WHERE seq > $1 AND ($2::text IS NULL OR run = $2) ORDER BY seq",
            *(after, run),
        )
        return [
            side_tables.command(seq, of, packed, by, self._locked.open_reason(of, reason))
            for seq, of, packed, by, reason in rows
        ]

    # ── conversations ─────────────────────────────────────────────────────────────────────────────────────────────────

    async def messages(self, session: str, wanted: ContextFilter, *, now_ms: int, tokens: int) -> list[Message]:
        await self.caught_up()
        choose = partial(self._messages.choose, session=session, wanted=wanted, now_ms=now_ms, tokens=tokens)
        words = self._keeps_words
        chosen = await self.read(partial(choose, words=words))
        if chosen is None:
            by_word = words and by_words(wanted)
            await self._messages.update(self._index_messages, session, self._count, words=by_word)
            chosen = await self.read(partial(choose, words=words, behind=True))
        return chosen or []

    async def seen(self, session: str, messages: Collection[int]) -> frozenset[int]:
        await self.caught_up()
        find = partial(self._messages.seen, session=session, messages=messages)
        seen = await self.read(find)
        if seen is None:
            await self._messages.update(self._index_messages, session, self._count, words=False)
            seen = await self.read(partial(find, behind=True))
        return seen or frozenset()

    # ── notes, journal, counters ──────────────────────────────────────────────────────────────────────────────────────

    def note(self, session: str, notes: Sequence[Note], of: RunEpoch = NO_RUN) -> None:
        kept = tuple(notes)
        self._change_later(lambda change: side_tables.note(change, session, kept, of))

    async def notes(self, session: str) -> list[Note]:
        sql = "SELECT kind, text, by_agent FROM remit.note WHERE session = $1 ORDER BY id DESC LIMIT $2"
        rows = await self._rows(sql, session, MOST_NOTES)
        return [Note(kind, text.decode(errors="surrogatepass"), by) for kind, text, by in reversed(rows)]

    def journal(self, run: str, epoch: int, step: str, value: bytes) -> None:
        self._do_later(JournalWrite(run, epoch, step, value))

    async def journal_durably(self, run: str, epoch: int, step: str, value: bytes) -> bool:
        return await self._do(JournalWrite(run, epoch, step, value))

    async def load(self, run: str) -> dict[str, bytes]:
        rows = await self._rows("SELECT step, value FROM remit.journal WHERE run = $1", run)
        return {step: value for step, value in rows}  # noqa: C416 - the rows are records of the driver

    async def incr(self, key: str, n: int, window_ms: int) -> int:
        return await self._change(lambda change: side_tables.incr(change, key, n, window_ms))

    async def cas(self, key: str, revision: int, value: bytes) -> int | None:
        """Write *value* if the key is still at *revision* (0: absent); return the new revision, or None if it moved."""
        if revision == 0:
            sql = "INSERT INTO remit.cell VALUES ($1, 1, $2) ON CONFLICT DO NOTHING RETURNING revision"
            return await self._change(lambda change: change.database.fetchval(sql, key, value))
        sql = (
            "UPDATE remit.cell SET value = $3, revision = revision + 1 WHERE key = $1 AND revision = $2"
            " RETURNING revision"
        )
        return await self._change(lambda change: change.database.fetchval(sql, key, revision, value))

    async def get(self, key: str) -> tuple[int, bytes] | None:
        rows = await self._rows("SELECT revision, value FROM remit.cell WHERE key = $1", key)
        return (rows[0][0], rows[0][1]) if rows else None

    # ── sessions, runs, facts ─────────────────────────────────────────────────────────────────────────────────────────

    async def owner(self, session: str) -> SessionOwner | None:
        await self._settled()
        return await self.peek(lambda database: reader.owner(database, session))

    async def session(self, session: str, user: str, agent: str) -> SessionOwner:
        known = await self.peek(lambda database: reader.assigned(database, session))
        return known or await self._change(lambda change: side_tables.session(change, session, user, agent))

    async def runs(
        self,
        *,
        user: str | None = None,
        run: str | None = None,
        correlation: str | None = None,
        of: RunScope = ANYONES,
        limit: int = 50,
    ) -> list[RunSummary]:
        return await self.read(lambda database: reader.runs(database, user, run, limit, of, correlation))

    async def named(self, id: str, of: RunScope) -> list[str]:
        return await self.read(lambda database: reader.named(database, id, of))

    async def handed_over(self, run: str, user: str) -> list[tuple[str, str]]:
        return await self.read(lambda database: reader.handed_over(database, run, user))

    async def states(
        self, *, agent: str, users: Collection[str] | None = None, session: str | None = None, limit: int = 10_000
    ) -> list[RunState]:
        await self.caught_up()
        return await self.read(lambda database: reader.states(database, agent, users, session, limit))

    def remember(self, user: str, run: str, facts: tuple[str, ...], epoch: int = 0) -> None:
        self._change_later(lambda change: side_tables.remember(change, user, facts, RunEpoch(run, epoch)))

    async def facts(self, user: str) -> tuple[str, ...]:
        sql = "SELECT text FROM remit.fact WHERE by_user = $1 ORDER BY id DESC LIMIT $2"
        rows = await self._rows(sql, user, MOST_FACTS)
        return tuple(text.decode(errors="surrogatepass") for (text,) in reversed(rows))

    async def _rows(self, sql: str, *values: Any) -> list[tuple[Any, ...]]:
        return await self.read(lambda database: database.fetch(sql, *values))

    # ── upkeep ────────────────────────────────────────────────────────────────────────────────────────────────────────

    async def _prune_if_due(self) -> None:
        """Prune in the background if no hub has done so for a day; then it is this hub's turn, and nobody else's."""
        if self._pruning.may_be_due(self.retention):
            sql = f"UPDATE remit.upkeep SET pruned_ms = {NOW_MS} WHERE pruned_ms <= {NOW_MS} - $1::bigint RETURNING 1"
            if await self._change(lambda change: change.database.fetchval(sql, DAY_MS)):
                self._pruning.start(self.retention)

    async def erase(self, user: str) -> Erased:
        """Erase everything of a user, and record it; raises `StoreError` while runs of the user are open."""
        await self.flush()
        keys = HubKeys(self.vault_key or self.secret())

        def erased() -> Erased:
            with closing(self._upkeep()) as upkeep:
                return upkeep.erase(user, keys)

        return await asyncio.to_thread(erased)

    async def verify(self) -> AuditVerdict:
        """Verify the audit chain and its checkpoints, as far as they are committed."""
        return await self.chain.verify()


class SqlListings:
    """The lists of a store."""

    def __init__(self, store: SqlStore[Any], pages: RecordPages) -> None:
        self._store, self._pages = store, pages

    async def records(self, wanted: RecordFilter, *, before: int | None = None, limit: int = 100) -> ListedRecords:
        await self._store.caught_up()
        first = await self._store.newest() + 1 if before is None else before

        async def selected(wanted: RecordFilter, above: int, below: int, size: int) -> list[Record]:
            return await self._store.read(lambda database: self._pages.selected(database, wanted, above, below, size))

        return await reader.list_records(selected, wanted, before=first, limit=limit)

    async def sessions(self, wanted: SessionFilter, *, before: int | None = None, limit: int = 50) -> ListedSessions:
        first = sys.maxsize if before is None else before
        return await self._store.read(
            lambda database: reader.sessions(database, wanted, first, limit, self._pages.newest_sessions)
        )


# ── removal ───────────────────────────────────────────────────────────────────────────────────────────────────────────


class DailyPruning:
    """The task that prunes."""

    def __init__(self, name: str, open_upkeep: OpenUpkeep, wall_ms: Callable[[], int]) -> None:
        self._name = name
        self._open = open_upkeep
        self._wall_ms = wall_ms
        self._looked_ms = 0
        self._task: asyncio.Task[None] | None = None
        self._stopping = threading.Event()

    def may_be_due(self, keep: Retention) -> bool:
        """Return whether it is time to look whose turn it is."""
        now_ms = self._wall_ms()
        if keep.is_forever or now_ms - self._looked_ms < LOOK_MS or (self._task and not self._task.done()):
            return False
        self._looked_ms = now_ms
        return True

    def start(self, keep: Retention) -> None:
        self._stopping.clear()
        self._task = asyncio.get_running_loop().create_task(asyncio.to_thread(self._prune, keep))

    async def stop(self) -> None:
        """Wait until the segment that is being pruned is done."""
        self._stopping.set()
        if (task := self._task) is not None:
            self._task = None
            await task

    def _prune(self, keep: Retention) -> None:
        try:
            with closing(self._open()) as upkeep:
                pruned = upkeep.prune(keep, stopped=self._stopping.is_set)
        except (apsw.Error, OSError, StoreError) as error:  # the next day tries again
            _log.warning("%s was not pruned: %s", self._name, error)
            return
        for each in pruned.refused:
            _log.error("%s: not pruned, see `remit audit verify`: %s", self._name, each)
        if not pruned.is_empty:
            _log.info("%s: pruned %d records, and the texts of %d", self._name, pruned.rows, pruned.texts)


def open_upkeep(engine: str, *place: object, **options: object) -> Upkeep:
    """Return the upkeep of a store of an engine, as an installed plugin brings it, or raise `StoreError`."""
    missing = None
    for kind in brought_under("stores", engine):
        if kind.upkeep:
            try:
                return named(kind.upkeep)(*place, **options)
            except ImportError as error:  # the plugin is there, and the package that it needs for this is not
                missing = error
    why = f"no installed plugin removes anything from a store in {engine}" + (f" ({missing})" if missing else "")
    raise StoreError(fault(Code.STORE_UNAVAILABLE, why, suggestion=f"Install it: {install_command()}")) from missing
