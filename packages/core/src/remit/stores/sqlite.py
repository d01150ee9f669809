"""A store in one SQLite file, which several processes may share."""

import asyncio
import os
import time
from collections.abc import Awaitable, Callable
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import apsw

from remit.policy.budget import estimate
from remit.ports import OrphanedRun, StoreError, Submitted, TokenCounter
from remit.ports.upkeep import FOREVER, Erased, Retention
from remit.protocol.envelope import Request, Response
from remit.protocol.errors import Code, fault
from remit.runtime.clock import Jumps
from remit.stores import reader
from remit.stores.audit import BUSY_SECONDS, FileChain, Proof, SqlChain, StoredChain, verify_file
from remit.stores.checkpoints import EVERY, SECONDS
from remit.stores.connection import Durability, SqliteConnection, connect_reader, translate
from remit.stores.database import Query, SqlChange, ask, at_once, wall_ms
from remit.stores.messages import FILE_INDEX
from remit.stores.opening import FileQuery, Opening, Reader
from remit.stores.requests import JournalWrite, Submit, Write
from remit.stores.sql_store import OutcomeWaits, SqlStore, open_upkeep
from remit.stores.transaction import Transaction, is_submitted, late_workers
from remit.stores.user_keys import is_encrypted
from remit.stores.writer import Listener, StoreWriter

__all__ = ["Durability", "SqliteStore", "verify_file"]

T = TypeVar("T")


class SqliteStore(SqlStore[StoreWriter]):
    """Everything a hub remembers, in the file at *path*; implements `remit.ports.Store`.

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
        wall_ms: Callable[[], int] = wall_ms,
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
        upkeep = partial(open_upkeep, "sqlite", self.path, durability=durability, wall_ms=wall_ms)
        super().__init__(str(self.path), upkeep, wall_ms, FILE_INDEX, count)
        self.retention, self.encrypt = retention, encrypt
        self._jumps = Jumps(monotonic)
        self._waits = OutcomeWaits(self._outcome)
        self._writer = StoreWriter(self.path, wall_ms=wall_ms, commit_hook=commit_hook, ended=self._ended)
        self.sizes = self._writer.sizes
        self.chain = SqlChain(
            self._read_chain,
            lambda: Proof(self._key.public, every=checkpoint_every, seconds=checkpoint_seconds),
        )
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

    async def flush(self) -> None:
        """Return once everything appended so far is durable, or raise `StoreError`."""
        await self._apply(Transaction.write)

    def listen(self, listener: Listener, *, patient: bool = False) -> Callable[[], None]:
        """Call *listener* in the event loop with each group of records that this store committed, in order."""
        self._opened()
        return self._writer.listen(listener, patient=patient)

    # ── requests ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def submit_soon(
        self, request: Request, digest: bytes, *, worker: str, lease_ms: int
    ) -> "asyncio.Future[Submitted] | None":
        """Submit a request with the next transaction, soon; None if others are queued or it was submitted before."""
        # If other writes are queued, it shares their commit anyway, and looking it up costs more than that gains.
        if not self._writer.is_idle or self._may_be_submitted(request):
            return None
        return self._writer.do_soon(lambda transaction: transaction.submit(Submit(request, digest, worker, lease_ms)))

    async def heartbeat(self, worker: str, lease_ms: int) -> None:
        # Without runs there is no lease to renew, and no lock to take. A claim that is still being written is not seen.
        if not self._writer.is_idle or await self.peek(lambda database: reader.has_claims(database, worker)):
            await self._apply(lambda transaction: transaction.heartbeat(worker, lease_ms))

    async def late_workers(self, within_ms: int) -> list[str]:
        """Return the workers with claims whose leases end *within_ms*: they have sent no heartbeat for a while."""
        return await self._look(late_workers(self._wall_ms(), within_ms))

    async def wait(self, run: str) -> Response:
        return await self._waits.wait(run)

    async def _outcome(self, run: str) -> tuple[bool, Response | None]:
        outcomes = await self.read(lambda database: reader.outcomes(database, [run]))
        return run in outcomes, outcomes.get(run)

    def _ended(self, ended: list[tuple[str, Response]]) -> None:
        for run, response in ended:
            self._waits.tell(run, response)

    async def sweep(self, *, max_attempts: int, keep_ms: int) -> list[OrphanedRun]:
        """Return expired requests; those that expired *max_attempts* times end as OUTCOME_UNKNOWN."""
        expired = await self._apply(lambda transaction: transaction.sweep(max_attempts, keep_ms, self._jumps))
        await self._prune_if_due()
        return expired

    async def erase(self, user: str) -> Erased:
        try:
            return await super().erase(user)
        except (apsw.Error, OSError) as error:
            raise translate(error, self.path) from error

    # ── inside ────────────────────────────────────────────────────────────────────────────────────────────────────────

    def _apply(self, apply: Callable[[Transaction], T], *, kept: bool = False) -> "asyncio.Future[T]":
        self._opened()
        return self._writer.do(apply, kept=kept)

    def _do(self, what: Write, *, kept: bool = False) -> "asyncio.Future[Any]":
        return self._apply(lambda transaction: transaction.apply(what), kept=kept)

    def _do_later(self, what: JournalWrite) -> None:
        self._writer.later(lambda transaction: transaction.journal(what))

    async def _index_messages(self, step: Query[bool]) -> bool:
        return await self._apply(lambda transaction: at_once(step(transaction.database)))

    def _change(self, change: Callable[[SqlChange], Awaitable[T]]) -> "asyncio.Future[T]":
        return self._apply(lambda transaction: transaction.changed(change))

    def _change_later(self, change: Callable[[SqlChange], Awaitable[object]]) -> None:
        self._writer.later(lambda transaction: transaction.changed(change))

    async def _settled(self) -> None:
        if not self._writer.is_idle:
            await self.flush()

    async def caught_up(self) -> None:
        """A record has its place in the chain as soon as it is committed."""

    async def read(self, query: Query[T]) -> T:
        return await self._look(lambda connection: ask(connection, query, self._wall_ms))

    async def _read_chain(self, query: Callable[[StoredChain], Awaitable[T]]) -> T:
        """Read the chain on a connection of its own: reading all of it takes long."""

        def read() -> T:
            try:
                with closing(connect_reader(self.path, BUSY_SECONDS)) as connection:
                    return at_once(query(FileChain(connection, self.path)))
            except (apsw.Error, OSError) as error:
                raise translate(error, self.path) from error

        return await asyncio.to_thread(read)

    async def _look(self, query: FileQuery[T]) -> T:
        return await self._opened().read(query)

    async def peek(self, query: Query[T]) -> T:
        """Read in the event loop, which takes microseconds; a thread beside a busy loop waits for it."""
        self._opened()
        assert self._glance is not None
        try:
            return ask(self._glance, query, self._wall_ms)
        except apsw.Error:
            return await self.read(query)

    def _may_be_submitted(self, request: Request) -> bool:
        self._opened()
        assert self._glance is not None
        try:
            return is_submitted(self._glance, request)
        except apsw.Error:  # what follows reports it
            return True

    def _opened(self) -> Reader:
        if self._reader is None:
            raise StoreError(
                fault(Code.STORE_UNAVAILABLE, f"{self.path}: the store is not open", suggestion="Open it first.")
            )
        return self._reader
