"""Removes rows from a PostgreSQL store while hubs work, so that the chain still proves that nothing else was removed.

It is used in a thread without an event loop, and has one of its own for its connection.
"""

import asyncio
import secrets
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeVar

import asyncpg  # pyright: ignore[reportMissingTypeStubs]
import msgspec

from remit.protocol.errors import Code, fault
from remit.protocol.records import Kind, Notice, Removal
from remit.runtime.audit import GENESIS, ChainRow, RemovedRow
from remit.runtime.audit.verification import accepted_keys
from remit.runtime.keys import HubKeys
from remit.runtime.ports import StoreError
from remit.runtime.signing import Checkpoint, CheckpointKey, read_key
from remit.stores.archive import write_segment
from remit.stores.encryption import key_id_of
from remit.stores.opening import STORE
from remit.stores.postgres import removal, user_data
from remit.stores.postgres.bulk import StreamPosition
from remit.stores.postgres.chain_rows import breaks, removals, rows_between
from remit.stores.postgres.chainer import bring_up_to_date, extend, seal_all
from remit.stores.postgres.checkpoints import check_signer, digest_at, read_checkpoints
from remit.stores.postgres.connection import CONFLICT, TROUBLE, DatabaseAddress, PgConnection, close_quietly
from remit.stores.postgres.schema import CHAINING, NOW_MS, UPKEEP, check_version
from remit.stores.postgres.transaction import PgTransaction
from remit.stores.postgres.user_keys import PgUserKeys
from remit.stores.removal_plan import (
    ExpiredRows,
    OfUser,
    RemovedPart,
    SegmentChanges,
    Selection,
    VerifiedRow,
    plan,
    verified,
)
from remit.stores.retention import outline_of
from remit.stores.segments import SealedSegment, segments
from remit.stores.upkeep_port import Ageing, Belongings, Deleted, Kept, erasure_notice

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

T = TypeVar("T")


class PgUpkeep:
    """A connection that removes rows, beside the hubs that write."""

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
        self.key = _read_key(address, key_file)
        self._stream = StreamPosition(secrets.randbits(63))
        """Where the records about the upkeep are written."""
        self._runner = asyncio.Runner()
        try:
            self.connection = self._run(self._open(str(key_file)))
        except BaseException:
            self._runner.close()
            raise

    async def _open(self, key_file: str) -> PgConnection:
        connection = await self._address.connect()
        try:
            await check_version(connection, self._address)
            await check_signer(connection, self.key.fingerprint, key_file)
            await bring_up_to_date(connection)
            known = await read_checkpoints(connection)
            self._accepted = accepted_keys(self.key.public, known, await breaks(connection))
        except BaseException:
            connection.terminate()
            raise
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

    def now_ms(self) -> int:
        """Return the time by which ages are judged: a clock that is ahead, here or at the server, removes nothing."""
        return self._run(self._now_ms())

    async def _now_ms(self) -> int:
        return min(await self.connection.fetchval(f"SELECT {NOW_MS}"), self._wall_ms())

    def segments(self) -> list[SealedSegment]:
        """Return the sealed segments, oldest first."""
        return self._run(self._segments())

    async def _segments(self) -> list[SealedSegment]:
        stated = await removals(self.connection)
        return segments(await read_checkpoints(self.connection), [each for _, each in stated])

    def seal(self) -> None:
        """Sign everything that is committed."""
        self._run(seal_all(self.connection, self.key, self._wall_ms()))

    # ── one segment ───────────────────────────────────────────────────────────────────────────────────────────────────

    def has(self, segment: SealedSegment, selection: Selection) -> bool:
        """Return whether a segment has rows of a selection."""
        return bool(self._run(self._chosen(segment, selection)))

    async def _chosen(self, segment: SealedSegment, selection: Selection) -> list[int]:
        match selection:
            case ExpiredRows():
                return await removal.expired_rows(self.connection, segment, selection)
            case OfUser(user, runs, _):
                return await user_data.rows_of(self.connection, segment.first, segment.last, runs, user)

    def remove(self, segment: SealedSegment, selection: Selection, *, dry: bool = False) -> RemovedPart:
        """Remove rows of a segment in one transaction, together with the signed statement that says so.

        Nothing is removed from a segment that does not verify: that would destroy what shows the tampering. With *dry*,
        nothing is removed, and the result says what would be.
        """
        return self._run(self._tried(lambda: self._remove(segment, selection, dry=dry)))

    async def _remove(self, segment: SealedSegment, selection: Selection, *, dry: bool) -> RemovedPart:
        connection = self.connection
        async with self._transaction():
            if not dry:
                # No two processes remove rows at once: each needs to see what the other left.
                await connection.execute("SELECT pg_advisory_xact_lock($1)", UPKEEP)
            chosen = await self._chosen(segment, selection)
            if not chosen:
                return RemovedPart()
            before = await self._digest_before(segment)
            try:
                rows = list(await self._verified(segment, before))
            except ValueError as problem:
                return RemovedPart(refused=f"rows {segment.first} to {segment.last}: {problem}")
            bodies = [row.body for row, _, _ in rows if isinstance(row, ChainRow)]
            await self._keys.load(connection, {id for body in bodies if (id := key_id_of(body)) is not None})
            part, changes = plan(
                segment,
                selection,
                chosen,
                rows,
                before=before or b"",
                outline=self._outline,
                key=self.key,
                at_ms=await self._now_ms(),
            )
            if not dry and changes.kept:
                await self._write(changes)
            return part

    def _outline(self, kind: Kind, stored: bytes) -> bytes:
        """Return the outline of a body, encrypted like the body itself."""
        id = key_id_of(stored)
        if id is None:
            return outline_of(kind, stored)
        cipher = self._keys.cipher(id)
        return cipher.encrypt(outline_of(kind, cipher.decrypt(stored)))

    async def _digest_before(self, segment: SealedSegment) -> bytes | None:
        return GENESIS if segment.first == 1 else await digest_at(self.connection, segment.first - 1)

    async def _verified(self, segment: SealedSegment, before: bytes | None) -> Iterator[VerifiedRow]:
        rows = await rows_between(self.connection, segment.first, segment.last)
        return verified(segment, rows, before, self._accepted)

    async def _write(self, changes: SegmentChanges) -> None:
        await removal.write_changes(self.connection, changes)
        await self._record(Kind.REMOVED, changes.statement)

    async def _record(self, kind: Kind, body: Removal | Notice) -> None:
        """Append a record about the store itself, and chain it in the same transaction.

        So whoever sees that rows are gone also sees in the chain why.
        """
        connection, now_ms = self.connection, await self._now_ms()
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

    @asynccontextmanager
    async def _transaction(self) -> AsyncGenerator[None]:
        self._written = self._stream
        async with self.connection.transaction():
            await self.connection.execute(_LIMITS)
            yield
        self._stream = self._written

    async def _tried(self, work: Callable[[], Awaitable[T]]) -> T:
        for _ in range(TRIES - 1):
            try:
                return await work()
            except CONFLICT:
                await asyncio.sleep(0.1)
        return await work()

    def archive(self, segment: SealedSegment, folder: Path) -> bool:
        """Write a segment into an archive; False: it is there already. A segment that does not verify is refused."""
        before, rows, checkpoints = self._run(self._archived(segment))
        return write_segment(folder, segment, rows, before, checkpoints) is not None

    async def _archived(
        self, segment: SealedSegment
    ) -> tuple[bytes, list[tuple[ChainRow | RemovedRow, bytes]], Sequence[Checkpoint | None]]:
        async with self.connection.transaction(isolation="repeatable_read", readonly=True):
            before = await self._digest_before(segment)
            try:
                rows = [(row, digest) for row, digest, _ in await self._verified(segment, before)]
            except ValueError as problem:
                message = f"rows {segment.first} to {segment.last} were not archived: {problem}"
                advice = "Check the record with `remit audit verify`."
                raise StoreError(fault(Code.STORE_UNAVAILABLE, message, suggestion=advice)) from problem
            return before or b"", rows, await read_checkpoints(self.connection)

    # ── the rest ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def forget(self, what: Ageing, before_ms: int, *, dry: bool) -> int:
        """Delete what is older; return how many there are."""
        act = removal.count_aged if dry else removal.delete_aged
        return self._run(self._tried(lambda: act(self.connection, what, before_ms)))

    def check_no_open_run(self, user: str) -> None:
        """Raise `StoreError` while a run of a user is open."""
        self._run(user_data.check_no_open_run(self.connection, user))

    def belongings(self, user: str, keys: HubKeys) -> Belongings:
        """Return what belongs to a user; *keys* are those with which redacted values are encrypted."""
        return self._run(user_data.belongings(self.connection, user, keys))

    def delete(self, of: Belongings, rows: int, subject: str) -> Deleted:
        """Delete what is kept about a user besides records, and record the erasure of *rows* records."""
        return self._run(self._tried(lambda: self._delete(of, rows, subject)))

    async def _delete(self, of: Belongings, rows: int, subject: str) -> Deleted:
        async with self._transaction():
            await self.connection.execute("SELECT pg_advisory_xact_lock($1)", UPKEEP)
            # What was submitted meanwhile would be lost with the rest; hubs wait for some milliseconds.
            await self.connection.execute("LOCK TABLE remit.request IN SHARE ROW EXCLUSIVE MODE")
            await user_data.check_no_open_run(self.connection, of.user)
            found = await user_data.delete(self.connection, of)
            await self._record(Kind.NOTICE, erasure_notice(found, rows, subject))
            return found

    def kept_about(self, user: str, keys: HubKeys) -> Iterator[Kept]:
        """Yield everything that is kept about a user."""
        kept = user_data.kept_about(self.connection, user, keys)
        while (each := self._run(_next(kept))) is not None:
            yield each

    # ── space ─────────────────────────────────────────────────────────────────────────────────────────────────────────

    # What PostgreSQL frees, it keeps for new rows.
    gives_back = False

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


async def _next(kept: AsyncIterator[Kept]) -> Kept | None:
    return await anext(kept, None)


def _read_key(address: DatabaseAddress, key_file: Path) -> CheckpointKey:
    try:
        return read_key(key_file)
    except FileNotFoundError as error:
        message = f"the key of {address.name} is missing: there is no {key_file}"
        advice = "Put it back from a backup: without it, nothing can be removed so that the record still verifies."
        raise StoreError(fault(Code.STORE_UNAVAILABLE, message, suggestion=advice)) from error
