"""Reads the PostgreSQL database of a store that is copied."""

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import asyncpg  # pyright: ignore[reportMissingTypeStubs]

from remit.protocol.records import Kind
from remit.runtime.audit import AuditVerdict
from remit.runtime.signing import CheckpointKey
from remit.stores.audit import Proof
from remit.stores.schema import KINDS
from remit_cluster.copying.tables import (
    PAGE_BYTES,
    PAGE_ROWS,
    REQUEST,
    TABLES,
    CopiedRecord,
    CopiedRecords,
    CopiedTable,
    RemovedDigest,
    Row,
    StoreFacts,
    TablePage,
    refused,
)
from remit_cluster.postgres.audit import DatabaseChain
from remit_cluster.postgres.chainer import bring_up_to_date, read_head
from remit_cluster.postgres.checkpoints import digest_at, read_checkpoints, read_mark
from remit_cluster.postgres.connection import TROUBLE, BulkConnection, DatabaseAddress, PgConnection, close_quietly
from remit_cluster.postgres.schema import check_complete, check_version

# How long to wait for the connections of hubs and commands that end.
_BUSY_SECONDS = 3.0

_SEQ = (
    "(SELECT chain.first + request.{0}_number - chain.number FROM remit.chain"
    " WHERE chain.stream = request.{0}_stream AND chain.number <= request.{0}_number"
    " ORDER BY chain.number DESC LIMIT 1)"
)
_BEGUN = f"CASE WHEN (begun_stream, begun_number) <> (first_stream, first_number) THEN {_SEQ.format('begun')} END"

_REQUEST = ", ".join((_SEQ.format("first"), _BEGUN, _SEQ.format("last"), *REQUEST.columns[3:]))
PLACES = ("first_stream", "first_number", "begun_stream", "begun_number", "last_stream", "last_number")

# The records of a piece of the chain.
_BLOCKS = """
    SELECT first, last, stream, number, digests FROM remit.chain
    WHERE first >= coalesce((SELECT max(first) FROM remit.chain WHERE first <= $1), 0) AND first <= $2 ORDER BY first
"""
# Each piece by the key: a plain join reads the whole table for each page, once one stream has most of the records.
_RECORDS = """
    SELECT found.* FROM unnest($1::bigint[], $2::bigint[], $3::bigint[]) AS wanted (stream, first, last)
    CROSS JOIN LATERAL (
        SELECT stream, number, kind, at_ms, run, session, body FROM remit.record
        WHERE record.stream = wanted.stream AND record.number BETWEEN wanted.first AND wanted.last ORDER BY number
    ) AS found
"""
# Ranges do not overlap, so only one that begins before can reach into these rows.
_REMOVED = """
    SELECT first, last, leaves FROM remit.removed
    WHERE first >= (SELECT coalesce(max(first), 0) FROM remit.removed WHERE first <= $1) AND first <= $2 AND last >= $1
"""
_ANY_KEY = "SELECT 1 FROM remit.user_key"
_WRITTEN = ("stream", "record", "chain", "checkpoint", "removed", *(each.name for each in TABLES))


class PgCopyReader:
    """Reads a database to which nobody else writes."""

    def __init__(self, address: DatabaseAddress, connection: BulkConnection, key: CheckpointKey | None) -> None:
        self._address = address
        self._connection = connection
        self.name = address.name
        self.key = key
        self._step = PAGE_ROWS
        self._sealed: frozenset[int] | None = None

    def stores(self, table: CopiedTable) -> int:
        return len(table.columns)

    # ── reading ───────────────────────────────────────────────────────────────────────────────────────────────────────

    async def facts(self) -> StoreFacts:
        async with translated(self._address):
            return await self._facts()

    async def _facts(self) -> StoreFacts:
        connection = self._connection
        head = await read_head(connection)
        counts = {each.name: await connection.fetchval(f"SELECT count(*) FROM remit.{each.name}") for each in TABLES}
        return StoreFacts(
            head=head.seq,
            digest=head.digest,
            records=await connection.fetchval("SELECT count(*) FROM remit.record"),
            removed=await self._removed(),
            removals=await connection.fetchval(
                "SELECT count(*) FROM remit.record WHERE kind = $1", KINDS[Kind.REMOVED]
            ),
            counts=counts,
            mark=await read_mark(connection),
            checkpoints=tuple(each for each in await read_checkpoints(connection) if each),
        )

    async def digest_of(self, seq: int) -> bytes | None:
        async with translated(self._address):
            return await digest_at(self._connection, seq)

    async def page(self, after: int) -> CopiedRecords | None:
        async with translated(self._address):
            return await self._page(after)

    async def _page(self, after: int) -> CopiedRecords | None:
        last = after + self._step
        blocks = await self._connection.fetch(_BLOCKS, after + 1, last)
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
        found = {(row[0], row[1]): row[2:] for row in await self._connection.fetch(_RECORDS, *columns)}
        records = [
            CopiedRecord._make((seq, *found[stream, number], digest))
            for seq, stream, number, digest in digests
            if (stream, number) in found
        ]
        size = sum(len(each.body) for each in records)
        if size > PAGE_BYTES:
            self._step = max(10, self._step // 2)
        elif size < PAGE_BYTES // 4:
            self._step = min(PAGE_ROWS, self._step * 2)
        return CopiedRecords(
            digests[-1][0], records, await self._leaves(digests, frozenset(each.seq for each in records))
        )

    async def _removed(self) -> int:
        return await self._connection.fetchval("SELECT coalesce(sum(last - first + 1), 0)::bigint FROM remit.removed")

    async def _leaves(self, digests: list[tuple[int, int, int, bytes]], kept: frozenset[int]) -> list[RemovedDigest]:
        """Return what is kept of removed records among these rows of the chain."""
        if self._sealed is None:
            rows = await self._connection.fetch("SELECT seq FROM remit.checkpoint")
            self._sealed = frozenset(seq for (seq,) in rows)
        first, last = digests[0][0], digests[-1][0]
        leaves: dict[int, bytes] = {}
        for start, end, some in await self._connection.fetch(_REMOVED, first, last + 1):
            for seq in range(max(start, first), min(end, last + 1) + 1):
                leaves[seq] = some[(seq - start) * 32 : (seq - start) * 32 + 32]
        # Whoever follows the chain from a kept row, or compares a checkpoint, needs the digest of the row before.
        needed = {
            seq: digest
            for seq, _, _, digest in digests
            if seq not in kept and (seq in self._sealed or seq + 1 not in leaves or seq + 1 in kept)
        }
        return [RemovedDigest(seq, content, needed.get(seq)) for seq, content in sorted(leaves.items()) if seq <= last]

    async def rows(self, table: CopiedTable, after: Row) -> AsyncIterator[TablePage]:
        order = ", ".join(f'{each} COLLATE "C"' if table.texts else each for each in table.key)
        where = f"({order}) > ({', '.join(f'${place + 1}' for place in range(len(after)))})" if after else "TRUE"
        columns = _REQUEST if table is REQUEST else ", ".join(table.columns)
        sql = f"SELECT {', '.join(table.key)}, {columns} FROM remit.{table.name} WHERE {where} ORDER BY {order}"
        width = len(table.key)
        async with translated(self._address), self._connection.transaction(isolation="repeatable_read", readonly=True):
            page: list[tuple[Any, ...]] = []
            async for row in self._connection.cursor(sql, *after, prefetch=PAGE_ROWS):
                page.append(tuple(row))
                if len(page) == PAGE_ROWS:
                    yield TablePage(list(row[:width]), [each[width:] for each in page])
                    page = []
            if page:
                yield TablePage(list(page[-1][:width]), [each[width:] for each in page])

    async def verify(self) -> AuditVerdict:
        async with translated(self._address):
            return await DatabaseChain(self._connection, self.name).verify(Proof(self.key and self.key.public))


@asynccontextmanager
async def opened_database(
    address: DatabaseAddress, key: CheckpointKey | None, key_file: str
) -> AsyncGenerator[PgCopyReader]:
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
            yield PgCopyReader(address, connection, key)
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
