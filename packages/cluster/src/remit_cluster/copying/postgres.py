"""Reads and writes the PostgreSQL database of a store that is copied."""

import asyncio
import secrets
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import asyncpg  # pyright: ignore[reportMissingTypeStubs]
import msgspec

from remit.runtime.audit import leaf, link
from remit.runtime.signing import CheckpointKey
from remit.stores.audit import kind_name
from remit_cluster.copying.stores import CopyWriter, StoreReader
from remit_cluster.copying.tables import (
    PAGE_BYTES,
    PAGE_ROWS,
    REQUEST,
    TABLES,
    CopiedRecord,
    CopiedRecords,
    CopiedTable,
    CopyState,
    RemovedDigest,
    Row,
    StoreFacts,
    not_empty,
    refused,
)
from remit_cluster.postgres.audit import RECORDS, DatabaseChain, blocks_between, leaves_between
from remit_cluster.postgres.chainer import MOST, ChainBlock, bring_up_to_date
from remit_cluster.postgres.checkpoints import read_mark
from remit_cluster.postgres.connection import TROUBLE, BulkConnection, DatabaseAddress, PgConnection, close_quietly
from remit_cluster.postgres.schema import MIGRATING, check_complete, check_version, migrate

# How long to wait for the connections of hubs and commands that end.
_BUSY_SECONDS = 3.0

_SEQ = (
    "(SELECT chain.first + request.{0}_number - chain.number FROM remit.chain"
    " WHERE chain.stream = request.{0}_stream AND chain.number <= request.{0}_number"
    " ORDER BY chain.number DESC LIMIT 1)"
)
_BEGUN = f"CASE WHEN (begun_stream, begun_number) <> (first_stream, first_number) THEN {_SEQ.format('begun')} END"

_REQUEST = (_SEQ.format("first"), _BEGUN, _SEQ.format("last"), *REQUEST.columns[3:])
PLACES = ("first_stream", "first_number", "begun_stream", "begun_number", "last_stream", "last_number")

_ANY_KEY = "SELECT 1 FROM remit.user_key"
_WRITTEN = ("stream", "record", "chain", "checkpoint", "removed", *(each.name for each in TABLES))


class DatabaseReader(StoreReader):
    """Reads a database to which nobody else writes."""

    removed_rows = "SELECT coalesce(sum(last - first + 1), 0)::bigint FROM remit.removed"

    def __init__(self, address: DatabaseAddress, connection: BulkConnection, key: CheckpointKey | None) -> None:
        super().__init__(connection, DatabaseChain(connection, address.name), key)
        self._address, self.bulk = address, connection
        self._step = PAGE_ROWS
        self._sealed: frozenset[int] | None = None

    def errors(self) -> AbstractAsyncContextManager[None]:
        return translated(self._address)

    def stored(self, table: CopiedTable) -> Sequence[str]:
        return _REQUEST if table is REQUEST else table.columns

    def common(self, table: CopiedTable, row: Row) -> Row:  # noqa: ARG002 - it is in that form
        return row

    async def _page(self, after: int) -> CopiedRecords | None:
        last = after + self._step
        blocks = await blocks_between(self.bulk, after + 1, last)
        wanted: list[tuple[int, int, int]] = []
        digests: list[tuple[int, int, int, bytes]] = []
        for first, end, stream, number, some in blocks:
            low, high = max(first, after + 1), min(end, last)
            if low <= high:
                wanted.append((stream, number + low - first, number + high - first))
                digests += [
                    (seq, stream, number + seq - first, some[(seq - first) * 32 : (seq - first) * 32 + 32])
                    for seq in range(low, high + 1)
                ]
        if not wanted:
            return None
        columns = [list(column) for column in zip(*wanted, strict=True)]
        rows = {(row[0], row[1]): row[2:] for row in await self.bulk.fetch(RECORDS, *columns)}
        records = [
            CopiedRecord._make((seq, *rows[stream, number], digest))
            for seq, stream, number, digest in digests
            if (stream, number) in rows
        ]
        size = sum(len(each.body) for each in records)
        if size > PAGE_BYTES:
            self._step = max(10, self._step // 2)
        elif size < PAGE_BYTES // 4:
            self._step = min(PAGE_ROWS, self._step * 2)
        return CopiedRecords(
            digests[-1][0], records, await self._leaves(digests, frozenset(each.seq for each in records))
        )

    async def _leaves(self, digests: list[tuple[int, int, int, bytes]], kept: frozenset[int]) -> list[RemovedDigest]:
        """Return what is kept of removed records among these rows of the chain."""
        if self._sealed is None:
            rows = await self.bulk.fetch("SELECT seq FROM remit.checkpoint")
            self._sealed = frozenset(seq for (seq,) in rows)
        first, last = digests[0][0], digests[-1][0]
        leaves = await leaves_between(self.bulk, first, last + 1)
        # Whoever follows the chain from a kept row, or compares a checkpoint, needs the digest of the row before.
        needed = {
            seq: digest
            for seq, _, _, digest in digests
            if seq not in kept and (seq in self._sealed or seq + 1 not in leaves or seq + 1 in kept)
        }
        first = digests[0][0]
        return [
            RemovedDigest(seq, content, needed.get(seq))
            for seq, content in sorted(leaves.items())
            if first <= seq <= last
        ]


class DatabaseWriter(CopyWriter):
    """Writes a database, which hubs do not open until the copy is finished."""

    records = ("record", "chain", "stream", "removed")

    def __init__(
        self,
        address: DatabaseAddress,
        connection: BulkConnection,
        key: CheckpointKey | None,
        facts: StoreFacts,
        write_key: Callable[[], None],
    ) -> None:
        super().__init__(DatabaseReader(address, connection, key), write_key)
        self._connection, self._facts = connection, facts

    def transaction(self) -> AbstractAsyncContextManager[object]:
        return self._connection.transaction()

    async def begin(self, new: CopyState) -> CopyState:
        connection = self._connection
        async with self.reader.errors(), self.transaction():
            await connection.execute("SELECT pg_advisory_xact_lock($1)", MIGRATING)
            if await connection.fetchval("SELECT to_regclass('remit.copying') IS NOT NULL"):
                return await self.noted()
            await self._check_empty()
            state = msgspec.structs.replace(new, stream=secrets.randbits(63))
            await self.note_begun(state)
        return state

    async def _check_empty(self) -> None:
        connection = self._connection
        names = await connection.fetch("SELECT tablename FROM pg_tables WHERE schemaname = 'remit'")
        for (name,) in names:
            if name not in ("store", "last_control", "worker", "upkeep") and await connection.fetchval(
                f"SELECT EXISTS (SELECT 1 FROM remit.{name})"
            ):
                head = await self.reader.chain.head()
                advice = "Give another database: createdb --encoding UTF8 NAME."
                raise not_empty(self.reader.name, head, self._facts, advice)
        mark = await self.reader.chain.mark()
        if mark and mark.signer and (self.reader.key is None or mark.signer != self.reader.key.fingerprint):
            raise refused(
                f"a hub has used {self.reader.name} with another key",
                "Give another database: createdb --encoding UTF8 NAME.",
            )

    async def insert(self, table: str, columns: Sequence[str], rows: Sequence[Row]) -> None:
        if not rows:
            return
        try:
            await self._connection.copy_records_to_table(table, records=rows, columns=columns, schema_name="remit")
        except asyncpg.DataError as error:
            raise refused(
                f"a row for the table {table} has a value that PostgreSQL cannot hold ({type(error).__name__})",
                "Copy to an SQLite file.",
            ) from error

    async def add_page(self, page: CopiedRecords, state: CopyState) -> bytes:
        blocks, digest = _blocks(page, state)
        leaves = {each.seq: each.leaf for each in page.removed}
        connection, stream = self._connection, state.stream
        rows = [
            (
                *(stream, each.seq, each.kind, each.at_ms, each.run, each.session, each.body),
                leaves.get(each.seq) or _leaf(each),
            )
            for each in page.records
        ]
        await connection.execute(
            "INSERT INTO remit.stream (id, opened_ms, batch, number, chained, closed) VALUES ($1, $2, 1, $3, $3, true)"
            " ON CONFLICT (id) DO UPDATE SET number = excluded.number, chained = excluded.chained",
            *(stream, page.records[0].at_ms if page.records else 0, page.last),
        )
        await self.insert("record", ("stream", "number", "kind", "at_ms", "run", "session", "body", "digest"), rows)
        await self.insert("chain", ChainBlock._fields, blocks)
        await self.insert("removed", ("first", "last", "leaves"), _ranges(page.removed))
        return digest

    async def add_rows(self, table: CopiedTable, rows: list[Row], state: CopyState) -> None:
        columns = table.columns if table is not REQUEST else ("place", *REQUEST.columns[3:], *PLACES)
        own = rows if table is not REQUEST else [_request(state.stream, *row) for row in rows]
        async with self.noting(state):
            await self.insert(table.name, columns, own)

    async def seal(self, facts: StoreFacts) -> None:
        columns = ("number", "seq", "digest", "at_ms", "key", "signature")
        rows = [[getattr(each, name) for name in columns] for each in facts.checkpoints]
        async with self.reader.errors(), self.transaction():
            await self._connection.execute("DELETE FROM remit.checkpoint")
            await self.insert("checkpoint", columns, rows)
            if facts.mark is not None:
                sql = "UPDATE remit.store SET number = $1, seq = $2, signer = $3, since_ms = $4"
                await self._connection.execute(sql, *facts.mark)

    async def finish(self) -> None:
        self._write_key()
        async with self.reader.errors(), self.transaction():
            for name, (number, *_) in [(each.name, each.key) for each in TABLES if each.numbered]:
                await self._connection.execute(
                    f"SELECT setval(pg_get_serial_sequence('remit.{name}', '{number}'),"
                    f" coalesce(max({number}), 0) + 1, false) FROM remit.{name}"
                )
            await self._connection.execute("DROP TABLE remit.copying")
        async with self.reader.errors():
            # The planner knows nothing of rows that were copied a moment ago.
            await self._connection.execute("ANALYZE remit.record, remit.chain, remit.request", timeout=600)


def _request(stream: int, first: int, begun: int | None, last: int | None, *rest: Any) -> Row:
    """Return a request in the form of this engine."""
    return first, *rest, stream, first, stream, begun or first, None if last is None else stream, last


def _blocks(page: CopiedRecords, state: CopyState) -> tuple[list[ChainBlock], bytes]:
    """Return the pieces of the chain for a page, and the digest of its last row."""
    known = {each.seq: each.digest for each in page.records}
    gone = {each.seq: each for each in page.removed if each.seq not in known}
    previous = state.digest
    blocks: list[ChainBlock] = []
    run: list[bytes] = []
    first = 0
    for seq in sorted({*known, *gone}):
        if seq in known:
            previous = known[seq]
        else:
            row = gone[seq]
            previous = link(previous, seq, row.leaf) if row.leaf else row.digest or bytes(32)
        if run and (seq != first + len(run) or len(run) == MOST):
            blocks.append(ChainBlock(first, first + len(run) - 1, state.stream, first, b"".join(run)))
            run = []
        if not run:
            first = seq
        run.append(previous)
    if run:
        blocks.append(ChainBlock(first, first + len(run) - 1, state.stream, first, b"".join(run)))
    return blocks, previous


def _ranges(removed: list[RemovedDigest]) -> list[tuple[int, int, bytes]]:
    """Return the digests of removed records, those of consecutive ones together."""
    ranges: list[tuple[int, list[bytes]]] = []
    for seq, content, _ in removed:
        if not content:
            raise refused(
                f"row {seq} was removed, and a version of this program that is long gone had written it",
                "Such a record can be copied to an SQLite file only.",
            )
        if ranges and seq == ranges[-1][0] + len(ranges[-1][1]):
            ranges[-1][1].append(content)
        else:
            ranges.append((seq, [content]))
    return [(first, first + len(some) - 1, b"".join(some)) for first, some in ranges]


def _leaf(record: CopiedRecord) -> bytes:
    return leaf(kind_name(record.kind), record.at_ms, record.run, record.session, record.body)


@asynccontextmanager
async def opened_database(
    address: DatabaseAddress, key: CheckpointKey | None, key_file: str
) -> AsyncGenerator[DatabaseReader]:
    """Open a database so that nobody can write to it; raises `StoreError` if hubs have it open."""
    connection = await address.connect_bulk()
    try:
        async with translated(address):
            await check_version(connection, address)
            await check_complete(connection, address)
            await check_unused(connection, address)
            await bring_up_to_date(connection)
            mark = await read_mark(connection)
            if key is None and await connection.fetchval(f"SELECT EXISTS ({_ANY_KEY})"):
                raise refused(
                    f"the key of {address.name} is gone, and with it the texts of its users: there is no {key_file}",
                    "Put it back from a backup, or give it with --key FILE.",
                )
        if key is not None and mark and mark.signer not in ("", key.fingerprint):
            raise refused(f"{key_file} is not the key of {address.name}", "Give the right one with --key FILE.")
        async with translated(address), connection.transaction(isolation="repeatable_read"):
            await connection.execute("SET LOCAL lock_timeout = '5s'")
            await connection.execute("SET LOCAL idle_in_transaction_session_timeout = 0")
            # Before anything is read: what is read was committed before the lock.
            names = [f"remit.{each}" for each in _WRITTEN]
            await connection.execute(f"LOCK TABLE {', '.join(names)} IN SHARE MODE")
            yield DatabaseReader(address, connection, key)
    finally:
        await close_quietly(connection)


async def check_unused(connection: PgConnection, address: DatabaseAddress) -> None:
    """Raise `StoreError` if hubs are connected to the database."""
    if address.pooler:
        return  # a pooler keeps connections that nobody uses
    give_up = time.monotonic() + _BUSY_SECONDS
    while others := await connection.fetchval(
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'remit'"
        " AND pid <> pg_backend_pid()"
    ):
        if time.monotonic() > give_up:
            raise refused(f"{address.name} is in use: hubs have {others} connections", "Stop the hubs, then try again.")
        await asyncio.sleep(0.1)


@asynccontextmanager
async def translated(address: DatabaseAddress) -> AsyncGenerator[None]:
    try:
        yield
    except asyncpg.LockNotAvailableError as error:
        raise refused(f"{address.name} is in use: somebody writes to it", "Stop the hubs, then try again.") from error
    except (*TROUBLE, asyncpg.PostgresError, asyncpg.InterfaceError) as error:
        raise address.translate(error) from error


@asynccontextmanager
async def created_database(
    address: DatabaseAddress, key: CheckpointKey | None, facts: StoreFacts, write_key: Callable[[], None]
) -> AsyncGenerator[DatabaseWriter]:
    """Connect to a database, and create its tables if there are none.

    *key* and *facts* are of the source, and *write_key* copies the key to where the hubs of the copy look for it.
    """
    connection = await address.connect_bulk()
    try:
        async with translated(address):
            await migrate(connection, address)
            await check_unused(connection, address)
        yield DatabaseWriter(address, connection, key, facts, write_key)
    finally:
        await close_quietly(connection)
