"""Removes rows from a PostgreSQL store while hubs work, so that the chain still proves that nothing else was removed.

It is used in a thread without an event loop, and has one of its own for its connection.
"""

import asyncio
import secrets
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Collection, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import asyncpg  # pyright: ignore[reportMissingTypeStubs]
import msgspec

from remit.protocol.codec import encode
from remit.protocol.records import Kind, Notice, Removal
from remit.runtime.audit.chain import pairs, ranges
from remit.stores.database import NOW_MS
from remit.stores.opening import STORE
from remit.stores.removal import (
    ExpiredRows,
    OfUser,
    SealedSegment,
    SegmentChanges,
)
from remit.stores.schema import KINDS
from remit.stores.store_upkeep import NEVER, TEXTUAL, UNUSED, StoreUpkeep, key_for_removal
from remit.stores.user_data import Kept, kept_record
from remit.stores.user_keys import UserCipher
from remit_cluster.postgres import messages
from remit_cluster.postgres.audit import DatabaseChain, blocks_between, leaves_between, places
from remit_cluster.postgres.bulk import StreamPosition, columns
from remit_cluster.postgres.chainer import bring_up_to_date, extend, seal_all
from remit_cluster.postgres.checkpoints import check_signer
from remit_cluster.postgres.connection import CONFLICT, TROUBLE, DatabaseAddress, PgConnection, close_quietly
from remit_cluster.postgres.schema import CHAINING, UPKEEP, check_version
from remit_cluster.postgres.transaction import PgTransaction
from remit_cluster.postgres.user_keys import PREFIX_BYTES, PgUserKeys, prefix_of

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
_SEQ_OF_SEGMENT = "chain.first + record.number - chain.number"

_GOING = f"SELECT {_SEQ_OF_SEGMENT} {_SEGMENT} AND kind NOT IN ({NEVER}) {UNUSED}"
_SHORTENED = f"SELECT {_SEQ_OF_SEGMENT} {_SEGMENT} AND kind IN ({TEXTUAL}) {UNUSED}"
# Where a body of each kind names its user. Other records belong to whoever's run it is.
_NAMED: dict[int, tuple[str, ...]] = {
    KINDS[Kind.STARTED]: ("remit", "user"),
    KINDS[Kind.DELEGATION]: ("remit", "user"),
    KINDS[Kind.REFUSED]: ("request", "remit", "user"),
    KINDS[Kind.SHARED]: ("requester",),
}
_NAMING = ", ".join(str(kind) for kind in _NAMED)

# Bodies in which the name of a user stands: the server cannot parse all of them, so this is confirmed by `_names_user`.
_HINT = f"kind IN ({_NAMING}) AND (position({{}} IN body) > 0 OR position({{}} IN body) > 0)"


# Bodies that are encrypted under the key of a user.
_ENCRYPTED = f"coalesce(substring(body FROM 1 FOR {PREFIX_BYTES}) = {{}}::bytea, false)"
_OWN = f"(run = ANY ($5::text[]) OR {_ENCRYPTED.format('$6')})"
_ROWS = f"""
    SELECT {_SEQ_OF_SEGMENT}, kind, CASE WHEN NOT {_OWN} THEN body END AS body {_SEGMENT} AND kind NOT IN ({NEVER})
        AND ({_OWN} OR ({_HINT.format("$3", "$4")}))
"""
_RECORDS = f"""
    SELECT {_SEQ_OF_SEGMENT} AS seq, kind, at_ms, run, session, body {_SEGMENT}
        AND {_SEQ_OF_SEGMENT} = ANY ($3::bigint[]) ORDER BY seq
"""
# How many rows of the chain are searched at once.
_STEP = 10_000

T = TypeVar("T")


class PgUpkeep(StoreUpkeep):
    """A connection that removes rows from a database."""

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
        connection = await self._address.connect()
        try:
            await check_version(connection, self._address)
            await check_signer(connection, self.key.fingerprint, key_file)
            await bring_up_to_date(connection)
            self._chain = DatabaseChain(connection, self._address.name)
            self._accepted = await self._chain.accepted(self.key.public)
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

    async def _expired_rows(self, segment: SealedSegment, expired: ExpiredRows) -> list[int]:
        sql = _GOING if expired.whole else _SHORTENED
        found = sorted(seq for (seq,) in await self.connection.fetch(sql, segment.first, segment.last))
        if expired.whole:
            return found
        shortened = await leaves_between(self.connection, segment.first, segment.last)
        return [seq for seq in found if seq not in shortened]

    async def _rows_of(self, segment: SealedSegment, of: OfUser) -> list[int]:
        return await self._rows_between(segment.first, segment.last, of.runs, of.user)

    async def _rows_between(self, first: int, last: int, runs: tuple[str, ...], user: str) -> list[int]:
        prefix = await prefix_of(self.connection, user)
        rows = await self.connection.fetch(_ROWS, first, last, *_hints(user), list(runs), prefix)
        return sorted(seq for seq, kind, body in rows if body is None or _names_user(kind, body, user))

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
        await messages.forget(connection, [seq for seq, _, _ in changes.kept])
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

    async def _started_by(self, user: str) -> list[str]:
        started = await self.connection.fetch(
            "SELECT run, kind, body FROM remit.record"
            f" WHERE kind = $1 AND ({_HINT.format('$2', '$3')} OR {_ENCRYPTED.format('$4')})",
            *(KINDS[Kind.STARTED], *_hints(user), await prefix_of(self.connection, user)),
        )
        return [run for run, kind, body in started if _names_user(kind, body, user)]

    async def _kept_records(self, runs: tuple[str, ...], user: str) -> AsyncIterator[Kept]:
        head: int = await self.connection.fetchval("SELECT coalesce(max(last), 0) FROM remit.chain")
        for first in range(1, head + 1, _STEP):
            last = min(first + _STEP - 1, head)
            found = await self._rows_between(first, last, runs, user)
            for row in await self.connection.fetch(_RECORDS, first, last, found) if found else ():
                yield kept_record(*row)

    async def _forget_conversations(self, sessions: Sequence[str]) -> None:
        await messages.forget_conversations(self.connection, sessions)

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


def _hints(user: str) -> tuple[bytes, bytes]:
    name = encode(user)
    return b'"user":' + name, b'"requester":' + name


def _names_user(kind: int, body: bytes, user: str) -> bool:
    found: Any = msgspec.json.decode(body)
    for step in _NAMED[kind]:
        found = found.get(step, {})
    return bool(found == user)
