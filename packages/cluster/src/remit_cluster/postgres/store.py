"""A store in a PostgreSQL database, which any number of hubs share."""

import asyncio
import os
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import asyncpg  # pyright: ignore[reportMissingTypeStubs]

from remit.policy.budget import estimate
from remit.ports import OrphanedRun, StoreError, TokenCounter
from remit.protocol.envelope import Request, Response
from remit.protocol.errors import Code, fault
from remit.runtime.clock import LoopClock
from remit.runtime.signing import CheckpointKey, open_key, read_key
from remit.stores import reader
from remit.stores.audit import Proof, SqlChain, StoredChain
from remit.stores.checkpoints import EVERY, SECONDS
from remit.stores.database import Query as SharedQuery
from remit.stores.database import SqlChange
from remit.stores.opening import reported
from remit.stores.requests import JournalWrite, Submit, Write, is_old
from remit.stores.sql_store import SqlStore, open_upkeep
from remit.stores.writer import Listener
from remit_cluster.postgres.audit import DatabaseChain
from remit_cluster.postgres.bulk import EXTEND_LEASE, LATE_WORKERS
from remit_cluster.postgres.chainer import Chainer, read_head
from remit_cluster.postgres.checkpoints import check_signer, examine, read_mark
from remit_cluster.postgres.commits import Change
from remit_cluster.postgres.connection import TROUBLE, Connections, DatabaseAddress, PgConnection, Query
from remit_cluster.postgres.listeners import Listeners
from remit_cluster.postgres.messages import DATABASE_INDEX
from remit_cluster.postgres.schema import CHAINING, check_complete, migrate
from remit_cluster.postgres.transaction import PgTransaction
from remit_cluster.postgres.user_keys import PgUserKeys
from remit_cluster.postgres.waiting import Waiting
from remit_cluster.postgres.writer import PgWriter

T = TypeVar("T")

_wall_ms = LoopClock().wall_ms


class PostgresStore(SqlStore[PgWriter]):
    """Everything a team of hubs remembers, in the database at *url*; implements `remit.ports.Store`, which
    says what each method promises.

    Use it from one event loop. The tables are in the schema `remit`, and are created by whoever comes first. All hubs
    need the same *key* file; without *make_key*, a missing one is not created. *password* is for an address that has
    none. *pooler*: PgBouncer in transaction mode is in between. With *encrypt*, texts are encrypted under keys of their
    users. *count* counts the tokens of each message once. Leases and counters go by the clock of the server.
    """

    def __init__(
        self,
        url: str,
        *,
        key: str | os.PathLike[str],
        password: str | None = None,
        pooler: bool = False,
        checkpoint_every: int = EVERY,
        checkpoint_seconds: float = SECONDS,
        make_key: bool = True,
        encrypt: bool = False,
        count: TokenCounter = estimate,
        wall_ms: Callable[[], int] = _wall_ms,
    ) -> None:
        self.key_file = Path(key)
        self._user_keys = PgUserKeys(self.key_file)
        self.address = DatabaseAddress(url, password, pooler, self._user_keys.reading)
        self._every, self._seconds = checkpoint_every, checkpoint_seconds
        self._make_key = make_key
        upkeep = partial(open_upkeep, "postgresql", self.address, self.key_file, wall_ms=wall_ms)
        super().__init__(self.address.name, upkeep, wall_ms, DATABASE_INDEX, count)
        self.encrypt = encrypt
        self._writer = PgWriter(self.address, wall_ms=wall_ms, committed=self._committed)
        self.sizes = self._writer.sizes
        self._listeners, self._waiting = Listeners(), Waiting(self.address, self._outcomes)
        self._connections: Connections | None = None
        self._chainer: Chainer | None = None
        self.chain = SqlChain(
            self._read_chain, lambda: Proof(self._key.public, every=checkpoint_every, seconds=checkpoint_seconds)
        )

    def __repr__(self) -> str:
        return f"PostgresStore({self.address.name})"

    # ── opening and closing ───────────────────────────────────────────────────────────────────────────────────────────

    async def open(self) -> None:
        """Connect to the database; its tables and the key are created if they do not exist."""
        async with self.address.connecting() as connection:
            await migrate(connection, self.address)
            await check_complete(connection, self.address)
            async with connection.transaction():
                await connection.execute("SELECT pg_advisory_xact_lock($1)", CHAINING)
                self._key = await self._open_key(connection)
                await check_signer(connection, self._key.fingerprint, str(self.key_file))
                breaks = await examine(connection, (await read_head(connection)).seq)
            self._keeps_words = not await self._user_keys.open(connection, encrypt=self.encrypt)
        self._writer.commits.keys = self._user_keys if self.encrypt else None
        self._connections = connections = Connections(self.address)
        every, seconds, wall_ms = self._every, self._seconds, self._wall_ms
        self._chainer = Chainer(
            connections, self._key, every=every, seconds=seconds, wall_ms=wall_ms, chained=self._listeners.chained
        )
        self._writer.start(connection)
        self._chainer.start()
        self._waiting.start()
        if breaks:
            for entry in reported(self.address.name, breaks, self._wall_ms()):
                self.append(*entry)
            await self.flush()
            await self._chainer.catch_up(sign=True)

    async def _open_key(self, connection: PgConnection) -> CheckpointKey:
        mark = await read_mark(connection)
        known = mark is not None and bool(mark.signer)
        path = self.key_file
        if not known and self._make_key:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            return await asyncio.to_thread(open_key, path)
        try:
            return await asyncio.to_thread(read_key, path)
        except FileNotFoundError:
            why = f"the key of {self.address.name} is missing: there is no {path}"
            how = (
                "Copy it from a hub that uses this store, or from a backup: "
                "without it, nothing that was redacted can be read."
            )
            raise StoreError(fault(Code.STORE_UNAVAILABLE, why, suggestion=how)) from None

    async def close(self) -> None:
        """Make everything durable and close; raises `StoreError` if that fails, and keeps the queue for `open`."""
        if (connections := self._connections) is None or (chainer := self._chainer) is None:
            return
        try:
            await self._pruning.stop()
            await self.flush()
            await chainer.stop()
        except (*TROUBLE, asyncpg.InterfaceError) as error:
            raise self.address.translate(error) from error
        finally:
            self._connections = None
            await chainer.end()
            await self._waiting.stop()
            await self._writer.stop()
            self._listeners.close()
            await connections.close()

    # ── the record ────────────────────────────────────────────────────────────────────────────────────────────────────

    async def flush(self) -> None:
        await self._settled()
        await self._reach_listeners()

    def listen(self, listener: Listener, *, patient: bool = False) -> Callable[[], None]:
        self._opened()
        return self._listeners.add(listener, patient=patient, changed=self._listeners_changed)

    # ── requests ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def submit_soon(self, request: Request, digest: bytes, *, worker: str, lease_ms: int) -> None:  # noqa: ARG002
        return None

    async def heartbeat(self, worker: str, lease_ms: int) -> None:
        # Not with the rest: a lease must not expire because a long batch is written, and the row is this worker's own.
        await self._settled()
        await self.read(lambda connection: connection.execute(EXTEND_LEASE, worker, lease_ms))

    async def late_workers(self, within_ms: int) -> list[str]:
        rows = await self.read(lambda connection: connection.fetch(LATE_WORKERS, within_ms))
        return [name for (name,) in rows]

    async def finish(self, run: str, epoch: int, response: Response, at_ms: int, *, keep: bool = True) -> bool:
        done = await super().finish(run, epoch, response, at_ms, keep=keep)
        # Whoever follows the run hears of its records before its answer.
        await self._reach_listeners()
        return done

    async def wait(self, run: str) -> Response:
        self._opened()
        return await self._waiting.waits.wait(run)

    async def sweep(self, *, max_attempts: int, keep_ms: int) -> list[OrphanedRun]:
        expired = await self._do(lambda transaction: transaction.sweep(max_attempts, keep_ms))
        await self._prune_if_due()
        return expired

    # ── inside ────────────────────────────────────────────────────────────────────────────────────────────────────────

    def _do(self, what: Write | Change | None, *, kept: bool = False) -> "asyncio.Future[Any]":
        self._opened()
        if isinstance(what, Submit) and (what.once is not None or is_old(what.request, self._wall_ms())):
            alone = what
            return self._writer.do(lambda transaction: transaction.submit(alone))
        return self._writer.do(what, kept=kept)

    def _do_later(self, what: JournalWrite) -> None:
        self._writer.later(what)

    async def _settled(self) -> None:
        """Return once everything that this hub queued is durable."""
        self._opened()
        if not self._writer.is_idle:
            await self._do(None)

    async def caught_up(self) -> None:
        """Return once everything that was committed is in the chain."""
        assert self._chainer is not None
        await self._opened().patiently(self._chainer.catch_up)

    async def _reach_listeners(self) -> None:
        """Return once eager listeners have heard everything that was committed."""
        if self._listeners.eager and self._chainer is not None:
            self._chainer.kick(eager=True)
            await self._listeners.reached(self._writer.commits.stream.id, self._writer.commits.stream.number)

    def _change(self, change: Callable[[SqlChange], Awaitable[T]]) -> "asyncio.Future[T]":
        return self._do(change)

    def _change_later(self, change: Callable[[SqlChange], Awaitable[object]]) -> None:
        self._writer.later(change)

    async def read(self, query: Query[T]) -> T:
        return await self._opened().read(query)

    async def _index_messages(self, step: SharedQuery[bool]) -> bool:
        async def index(connection: PgConnection) -> bool:
            async with connection.transaction():
                return await step(connection)

        return await self.read(index)

    async def _read_chain(self, query: Callable[[StoredChain], Awaitable[T]]) -> T:
        return await self.read(lambda connection: query(DatabaseChain(connection, self.address.name)))

    async def _outcomes(self, runs: Sequence[str]) -> dict[str, Response | None]:
        return await self.read(lambda connection: reader.outcomes(connection, runs))

    def _committed(self, transaction: PgTransaction) -> None:
        if transaction.records:
            self._listeners.committed(transaction.stream.id, transaction.records)
        if transaction.outcomes:
            self._waiting.ended(transaction.outcomes)
        if transaction.sizes and self._chainer is not None:
            self._chainer.kick(eager=self._listeners.eager)

    def _listeners_changed(self) -> None:
        self._writer.commits.keep_records = bool(self._listeners)
        self._writer.eager = self._listeners.eager
        if self._writer.eager:
            self._writer.calm = 0

    def _opened(self) -> Connections:
        if self._connections is not None:
            return self._connections
        message = f"{self.address.name}: the store is not open"
        raise StoreError(fault(Code.STORE_UNAVAILABLE, message, suggestion="Open it first."))
