"""What a store does alike in either engine: everything that is not on the way of each delegation."""

import asyncio
import sys
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import TypeVar

import msgspec

from remit.protocol.codec import encode
from remit.protocol.envelope import Note
from remit.protocol.records import Record
from remit.runtime.audit import AuditVerdict
from remit.runtime.audit.stored_chain import AuditedChain
from remit.runtime.keys import HubKeys
from remit.runtime.listing import list_records
from remit.runtime.ports import (
    ANYONES,
    NO_RUN,
    ControlAction,
    ControlCommand,
    Decision,
    ListedRecords,
    ListedSessions,
    Question,
    RecordFilter,
    RunEpoch,
    RunScope,
    RunState,
    RunSummary,
    SealedValue,
    SessionFilter,
    SessionOwner,
)
from remit.stores import changes, inbox, reader
from remit.stores.background import DailyPruning, OpenUpkeep, erase_user
from remit.stores.database import Query, SqlChange
from remit.stores.retention import FOREVER, Erased, Retention

T = TypeVar("T")

# A hop appends two records: this is more than two thousand hops ahead of the disk.
MAX_QUEUED = 4_000


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


class SqlStore(ABC):
    """The part of `remit.runtime.ports.Store` that is the same in either engine, and says what each method promises."""

    chain: AuditedChain

    def __init__(self, name: str, upkeep: OpenUpkeep, wall_ms: Callable[[], int], newest_sessions: str) -> None:
        """*newest_sessions* is the engine's query of the newest request of each conversation."""
        self.retention: Retention = FOREVER
        """How long what is kept; the rest is removed once a day, by one of the hubs."""
        self.vault_key: bytes | None = None
        """The key with which redacted values are encrypted; None: one derived from the store's own."""
        self._wall_ms = wall_ms
        self._upkeep = upkeep
        self._pruning = DailyPruning(name, upkeep, wall_ms)
        self._locked = LockedTexts(self.secret)
        self.listings = SqlListings(self, newest_sessions)

    @abstractmethod
    async def read(self, query: Query[T]) -> T:
        """Return the result of a query of what is committed."""

    async def peek(self, query: Query[T]) -> T:
        """Read few rows, as fast as can be."""
        return await self.read(query)

    @abstractmethod
    def _change(self, change: Callable[[SqlChange], Awaitable[T]]) -> "asyncio.Future[T]":
        """Return the result of a change once it is durable."""

    @abstractmethod
    def _change_later(self, change: Callable[[SqlChange], Awaitable[object]]) -> None:
        """Change something, durable like a record."""

    @abstractmethod
    async def _settled(self) -> None:
        """Return once a query sees everything that was queued before."""

    @abstractmethod
    async def caught_up(self) -> None:
        """Return once everything that was committed has its place in the chain."""

    @abstractmethod
    async def flush(self) -> None: ...

    @abstractmethod
    def secret(self) -> bytes: ...

    @abstractmethod
    async def newest(self) -> int: ...

    @abstractmethod
    async def selected(self, wanted: RecordFilter, above: int, below: int, size: int) -> list[Record]:
        """Return the last records that a filter selects in a range, newest first."""

    # ── vault, inbox, controls ────────────────────────────────────────────────────────────────────────────────────────

    async def unseal(self, scope: str) -> list[SealedValue]:
        return await self.read(lambda database: inbox.unseal(database, scope))

    async def put(self, question: Question) -> Question:
        return await self._change(lambda change: inbox.put(change, question))

    async def decide(self, question: str, decision: Decision) -> bool:
        locked = self._locked.lock_decision(question, decision)
        return await self._change(lambda change: inbox.decide(change.database, question, locked, change.now_ms))

    async def decision(self, question: str) -> Decision | None:
        locked = await self.read(lambda database: inbox.decision(database, question))
        return self._locked.open_decision(question, locked)

    async def withdraw(self, question: str) -> None:
        await self._change(lambda change: inbox.withdraw(change.database, question))

    async def pending(self) -> list[Question]:
        now_ms = self._wall_ms()
        return await self.read(lambda database: inbox.pending(database, now_ms))

    async def control(self, run: str, action: ControlAction, by: str, reason: str, delegation: str = "") -> int:
        locked = self._locked.lock_reason(run, reason)
        return await self._change(
            lambda change: inbox.add_control(change.database, run, action, by, locked, delegation, change.now_ms)
        )

    async def controls(self, after: int, run: str | None = None) -> list[ControlCommand]:
        if run is None and await self.peek(inbox.last_control) <= after:
            return []
        found = await self.read(lambda database: inbox.controls(database, after, run))
        return [each._replace(reason=self._locked.open_reason(each.run, locked)) for each, locked in found]

    async def last_control(self) -> int:
        return await self.read(inbox.last_control)

    # ── notes, journal, counters ──────────────────────────────────────────────────────────────────────────────────────

    def note(self, session: str, notes: Sequence[Note], of: RunEpoch = NO_RUN) -> None:
        kept = tuple(notes)
        self._change_later(lambda change: changes.note(change, session, kept, of))

    async def notes(self, session: str) -> list[Note]:
        return await self.read(lambda database: reader.notes(database, session))

    async def load(self, run: str) -> dict[str, bytes]:
        return await self.read(lambda database: reader.journal(database, run))

    async def incr(self, key: str, n: int, window_ms: int) -> int:
        return await self._change(lambda change: changes.incr(change, key, n, window_ms))

    async def cas(self, key: str, revision: int, value: bytes) -> int | None:
        return await self._change(lambda change: changes.cas(change, key, revision, value))

    async def get(self, key: str) -> tuple[int, bytes] | None:
        return await self.read(lambda database: reader.cell(database, key))

    # ── sessions, runs, facts ─────────────────────────────────────────────────────────────────────────────────────────

    async def owner(self, session: str) -> SessionOwner | None:
        await self._settled()
        return await self.peek(lambda database: reader.owner(database, session))

    async def session(self, session: str, user: str, agent: str) -> SessionOwner:
        known = await self.peek(lambda database: reader.assigned(database, session))
        return known or await self._change(lambda change: changes.session(change, session, user, agent))

    async def claimed(self, worker: str) -> list[tuple[str, int]]:
        await self._settled()
        return await self.peek(lambda database: reader.claimed(database, worker))

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
        self._change_later(lambda change: changes.remember(change, user, facts, RunEpoch(run, epoch)))

    async def facts(self, user: str) -> tuple[str, ...]:
        return await self.read(lambda database: reader.facts(database, user))

    # ── upkeep ────────────────────────────────────────────────────────────────────────────────────────────────────────

    async def erase(self, user: str) -> Erased:
        """Erase everything of a user, and record it; raises `StoreError` while runs of the user are open."""
        await self.flush()
        return await asyncio.to_thread(erase_user, self._upkeep, user, HubKeys(self.vault_key or self.secret()))

    async def verify(self) -> AuditVerdict:
        """Verify the audit chain and its checkpoints, as far as they are committed."""
        return await self.chain.verify()


class SqlListings:
    """The lists of a store."""

    def __init__(self, store: SqlStore, newest_sessions: str) -> None:
        self._store, self._newest_sessions = store, newest_sessions

    async def records(self, wanted: RecordFilter, *, before: int | None = None, limit: int = 100) -> ListedRecords:
        await self._store.caught_up()
        first = await self._store.newest() + 1 if before is None else before
        return await list_records(self._store.selected, wanted, before=first, limit=limit)

    async def sessions(self, wanted: SessionFilter, *, before: int | None = None, limit: int = 50) -> ListedSessions:
        first = sys.maxsize if before is None else before
        return await self._store.read(
            lambda database: reader.sessions(database, wanted, first, limit, self._newest_sessions)
        )
