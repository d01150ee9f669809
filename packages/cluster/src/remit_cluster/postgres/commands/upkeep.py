"""Removes rows from a PostgreSQL store while hubs work, so that the chain still proves that nothing else was removed.

It is used in a thread without an event loop, and has one of its own for its connection.
"""

import asyncio
import secrets
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeVar

import asyncpg  # pyright: ignore[reportMissingTypeStubs]
import msgspec

from remit.protocol.records import Kind, Notice, Removal
from remit.runtime.audit.chain import pairs, ranges
from remit.stores.database import NOW_MS
from remit.stores.opening import STORE
from remit.stores.user_keys import UserCipher
from remit_cli.upkeep.removal import SealedSegment, SegmentChanges
from remit_cli.upkeep.store_upkeep import StoreUpkeep, key_for_removal
from remit_cluster.postgres.audit import DatabaseChain, blocks_between, leaves_between, places
from remit_cluster.postgres.bulk import StreamPosition, columns
from remit_cluster.postgres.chainer import bring_up_to_date, extend, seal_all
from remit_cluster.postgres.checkpoints import check_signer
from remit_cluster.postgres.connection import CONFLICT, TROUBLE, DatabaseAddress, PgConnection, close_quietly
from remit_cluster.postgres.messages import DATABASE_INDEX
from remit_cluster.postgres.schema import CHAINING, UPKEEP, check_version
from remit_cluster.postgres.transaction import PgTransaction
from remit_cluster.postgres.user_keys import PgUserKeys, prefix_of

# How often a transaction is tried that was rolled back for the sake of another.
TRIES = 3
# A table of a hundred gigabytes is vacuumed within an hour.
VACUUM_SECONDS = 4 * 3_600.0

# The tables from which rows are removed.
_TABLES = (
    *("record", "request", "session", "fact", "note", "sealed", "question", "journal", "control", "user_key"),
    *("conversation", "indexed", "message", "word"),
)

# Hashing a segment takes a second at most. If this process vanishes, the server ends the transaction.
_LIMITS = "SET LOCAL idle_in_transaction_session_timeout = '60s'; SET LOCAL lock_timeout = '60s'"

# The rows from $1 to $2 of the chain.
_SEGMENT = """
    FROM remit.chain JOIN remit.record ON record.stream = chain.stream
        AND record.number BETWEEN chain.number + greatest($1 - chain.first, 0)
        AND chain.number + least($2, chain.last) - chain.first
    WHERE chain.first >= (SELECT coalesce(max(first), 0) FROM remit.chain WHERE first <= $1) AND chain.first <= $2
        AND chain.last >= $1
"""
T = TypeVar("T")


class PgUpkeep(StoreUpkeep):
    """A connection that removes rows from a database."""

    _seq, _segment = "chain.first + record.number - chain.number", _SEGMENT

    _messages = DATABASE_INDEX

    def __init__(
        self,
        address: DatabaseAddress,
        key_file: Path,
        *,
        wall_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        self._keys = PgUserKeys(key_file)
        self._address = msgspec.structs.replace(address, reading=self._keys.reading)
        self._wall_ms = wall_ms
        self.key = key_for_removal(address.name, key_file)
        self._stream = StreamPosition(secrets.randbits(63))
        """Where the records about the upkeep are written."""
        self._runner = asyncio.Runner()
        try:
            self.connection = self._run(self._open(str(key_file)))
        except BaseException:
            self._runner.close()
            raise

    async def _open(self, key_file: str) -> PgConnection:
        async with self._address.connecting() as connection:
            await check_version(connection, self._address)
            await check_signer(connection, self.key.fingerprint, key_file)
            await bring_up_to_date(connection)
            self._chain = DatabaseChain(connection, self._address.name)
            self._accepted = await self._chain.accepted(self.key.public)
        return connection

    def _run(self, work: Awaitable[T]) -> T:
        async def working() -> T:
            return await work

        try:
            return self._runner.run(working())
        except (*TROUBLE, asyncpg.PostgresError, asyncpg.InterfaceError, msgspec.DecodeError) as error:
            raise self._address.translate(error) from error

    def close(self) -> None:
        try:
            self._run(self._close())
        finally:
            self._runner.close()

    async def _close(self) -> None:
        if self._stream.batch and not self.connection.is_closed():
            # The chainer passes over closed streams.
            sql = "UPDATE remit.stream SET closed = true WHERE id = $1 AND chained = number"
            await self.connection.execute(sql, self._stream.id)
        await close_quietly(self.connection)

    async def _now(self) -> int:
        # A clock that is ahead, here or at the server, removes nothing.
        return min(await self.connection.fetchval(f"SELECT {NOW_MS}"), self._wall_ms())

    def seal(self) -> None:
        """Sign everything that is committed."""
        self._run(seal_all(self.connection, self.key, self._wall_ms()))

    # ── steps ─────────────────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def _database(self) -> PgConnection:
        return self.connection

    def _run_again(self, work: Callable[[], Awaitable[T]]) -> T:
        async def tried() -> T:
            for _ in range(TRIES - 1):
                try:
                    return await work()
                except CONFLICT:
                    await asyncio.sleep(0.1)
            return await work()

        return self._run(tried())

    @asynccontextmanager
    async def _transaction(self, *, dry: bool = False) -> AsyncGenerator[None]:
        self._written = self._stream
        async with self.connection.transaction(isolation="repeatable_read" if dry else None, readonly=dry):
            await self.connection.execute(_LIMITS)
            if not dry:
                # No two processes remove rows at once: each needs to see what the other left.
                await self.connection.execute("SELECT pg_advisory_xact_lock($1)", UPKEEP)
            yield
        self._stream = self._written

    async def _outlined(self, segment: SealedSegment) -> Collection[int]:
        return await leaves_between(self.connection, segment.first, segment.last)

    async def _key_prefix(self, user: str) -> bytes | None:
        return await prefix_of(self.connection, user)

    async def _load_ciphers(self, ids: Collection[int]) -> None:
        await self._keys.load(self.connection, ids)

    def _cipher(self, id: int) -> UserCipher:
        return self._keys.cipher(id)

    async def _write(self, changes: SegmentChanges) -> None:
        connection = self.connection
        first, last = changes.statement.first, changes.statement.last
        at = places(await blocks_between(connection, first, last))
        known = await leaves_between(connection, first, last)
        # A row of which the outline was kept has its digest there already.
        kept = {seq: content for seq, content, _ in changes.kept if seq not in known}
        await self._messages.forget(connection, [seq for seq, _, _ in changes.kept])
        spans = pairs(ranges(kept))
        await connection.execute(
            "INSERT INTO remit.removed SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::bytea[])",
            [start for start, _ in spans],
            [end for _, end in spans],
            [b"".join(kept[seq] for seq in range(start, end + 1)) for start, end in spans],
        )
        # The digest of the original content stays with the row.
        await connection.execute(
            "UPDATE remit.record SET body = new.body FROM unnest($1::bigint[], $2::bigint[], $3::bytea[])"
            " AS new (stream, number, body) WHERE record.stream = new.stream AND record.number = new.number",
            *columns([(*at[seq], body) for body, seq in changes.outlines], 3),
        )
        gone = await connection.fetch(
            "DELETE FROM remit.record USING unnest($1::bigint[], $2::bigint[]) AS old (stream, number)"
            " WHERE record.stream = old.stream AND record.number = old.number RETURNING run, session",
            *columns([at[seq] for seq in changes.gone], 2),
        )
        await self._forget_places(gone)
        await self._record(Kind.REMOVED, changes.statement)

    async def _record(self, kind: Kind, body: Removal | Notice) -> None:
        # Chained in the same transaction: whoever sees that rows are gone also sees in the chain why.
        connection, now_ms = self.connection, await self._now()
        if not self._stream.batch:
            await connection.execute(
                f"INSERT INTO remit.stream (id, opened_ms, batch, number) VALUES ($1, {NOW_MS}, 0, 0)", self._stream.id
            )
        transaction = PgTransaction(connection, self._stream, now_ms, keep_records=False)
        transaction.extend([(kind, now_ms, STORE, STORE, body, 0)])
        await transaction.write()
        self._written = transaction.stream
        # Taken last, so that hubs wait for it only as long as this takes.
        await connection.execute("SELECT pg_advisory_xact_lock($1)", CHAINING)
        more = True
        while more:
            _, more = await extend(connection, now_ms)

    async def _lock_requests(self) -> None:
        # Hubs wait for some milliseconds.
        await self.connection.execute("LOCK TABLE remit.request IN SHARE ROW EXCLUSIVE MODE")

    # ── space ─────────────────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def gives_back(self) -> bool:
        # What PostgreSQL frees, it keeps for new rows.
        return False

    def give_back(self) -> int:
        """Free the space of removed rows for new ones; return by how many bytes the store has shrunk.

        PostgreSQL gives only empty pages at the end of a table back to the file system.
        """
        return self._run(self._vacuum("VACUUM"))

    def rebuild(self) -> int:
        """Write the tables anew, without free space; hubs wait meanwhile. Return as `give_back` does."""
        return self._run(self._vacuum("VACUUM FULL"))

    async def _vacuum(self, command: str) -> int:
        before = await self._size()
        for name in _TABLES:
            await self.connection.execute(f"{command} remit.{name}", timeout=VACUUM_SECONDS)
        return max(0, before - await self._size())

    async def _size(self) -> int:
        sql = "SELECT sum(pg_total_relation_size(('remit.' || name)::regclass))::bigint FROM unnest($1::text[]) AS name"
        return await self.connection.fetchval(sql, list(_TABLES))
