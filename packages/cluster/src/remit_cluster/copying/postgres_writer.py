"""Writes the PostgreSQL database into which a store is copied."""

import secrets
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any

import asyncpg  # pyright: ignore[reportMissingTypeStubs]
import msgspec

from remit.protocol.codec import encode
from remit.runtime.audit import leaf, link
from remit.runtime.signing import CheckpointKey
from remit.stores.schema import KIND_OF
from remit_cluster.copying.postgres_reader import (
    PLACES,
    PgCopyReader,
    check_unused,
    translated,
)
from remit_cluster.copying.tables import (
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
from remit_cluster.postgres.chainer import MOST, read_head
from remit_cluster.postgres.checkpoints import read_mark
from remit_cluster.postgres.connection import BulkConnection, DatabaseAddress, close_quietly
from remit_cluster.postgres.schema import MIGRATING, migrate

_read_state = msgspec.json.Decoder(CopyState).decode


class PgCopyWriter:
    """Writes a database, which hubs do not open until the copy is finished."""

    def __init__(
        self,
        address: DatabaseAddress,
        connection: BulkConnection,
        key: CheckpointKey | None,
        facts: StoreFacts,
        write_key: Callable[[], None],
    ) -> None:
        self._address = address
        self._connection = connection
        self._facts = facts
        self._write_key = write_key
        self.reader = PgCopyReader(address, connection, key)

    async def begin(self, new: CopyState) -> CopyState:
        connection = self._connection
        async with translated(self._address), connection.transaction():
            await connection.execute("SELECT pg_advisory_xact_lock($1)", MIGRATING)
            if await connection.fetchval("SELECT to_regclass('remit.copying') IS NOT NULL"):
                return _read_state(await connection.fetchval("SELECT state FROM remit.copying"))
            await self._check_empty()
            state = msgspec.structs.replace(new, stream=secrets.randbits(63))
            await connection.execute(
                "CREATE TABLE remit.copying (one smallint PRIMARY KEY CHECK (one = 1), state bytea NOT NULL)"
            )
            await connection.execute("INSERT INTO remit.copying VALUES (1, $1)", encode(state))
            await connection.execute("DELETE FROM remit.last_control")
        return state

    async def _check_empty(self) -> None:
        connection = self._connection
        names = await connection.fetch("SELECT tablename FROM pg_tables WHERE schemaname = 'remit'")
        for (name,) in names:
            if name not in ("store", "last_control", "worker", "upkeep") and await connection.fetchval(
                f"SELECT EXISTS (SELECT 1 FROM remit.{name})"
            ):
                head = await read_head(connection)
                advice = "Give another database: createdb --encoding UTF8 NAME."
                raise not_empty(self.reader.name, head, self._facts, advice)
        mark = await read_mark(connection)
        if mark and mark.signer and (self.reader.key is None or mark.signer != self.reader.key.fingerprint):
            raise refused(
                f"a hub has used {self.reader.name} with another key",
                "Give another database: createdb --encoding UTF8 NAME.",
            )

    @asynccontextmanager
    async def _noting(self, state: CopyState, seen: CopyState | None = None) -> AsyncGenerator[BulkConnection]:
        """Write in one transaction, together with the state."""
        async with translated(self._address), self._connection.transaction():
            found = await self._connection.fetchval("SELECT state FROM remit.copying FOR UPDATE")
            if seen is not None and _read_state(found).seq != seen.seq:
                raise refused(f"another process copies into {self.reader.name}", "Let it finish.")
            yield self._connection
            await self._connection.execute("UPDATE remit.copying SET state = $1", encode(state))

    async def add_records(self, page: CopiedRecords, state: CopyState) -> CopyState:
        blocks, digest = _blocks(page, state)
        leaves = {each.seq: each.leaf for each in page.removed}
        stream = state.stream
        rows = [
            (
                *(stream, each.seq, each.kind, each.at_ms, each.run, each.session, each.body),
                leaves.get(each.seq) or _leaf(each),
            )
            for each in page.records
        ]
        last = page.records[-1] if page.records else None
        known = state.known if last is None else (last.seq, last.digest)
        new = msgspec.structs.replace(state, seq=page.last, digest=digest, known=known)
        async with self._noting(new, state) as connection:
            await connection.execute(
                "INSERT INTO remit.stream (id, opened_ms, batch, number, chained, closed) VALUES ($1, $2, 1, $3, $3,"
                " true) ON CONFLICT (id) DO UPDATE SET number = excluded.number, chained = excluded.chained",
                *(stream, page.records[0].at_ms if page.records else 0, page.last),
            )
            await _copy(
                connection,
                "record",
                ("stream", "number", "kind", "at_ms", "run", "session", "body", "digest"),
                rows,
            )
            await _copy(connection, "chain", ("first", "last", "stream", "number", "digests"), blocks)
            if page.removed:
                await _copy(connection, "removed", ("first", "last", "leaves"), _ranges(page.removed))
        return new

    async def add_rows(self, table: CopiedTable, rows: list[Row], state: CopyState) -> None:
        columns = table.columns if table is not REQUEST else ("place", *REQUEST.columns[3:], *PLACES)
        async with self._noting(state) as connection:
            own = rows if table is not REQUEST else [_request(state.stream, *row) for row in rows]
            await _copy(connection, table.name, columns, own)

    async def clear(self, table: CopiedTable | None, state: CopyState) -> None:
        async with self._noting(state) as connection:
            for each in TABLES if table is None else (table,):
                await connection.execute(f"TRUNCATE remit.{each.name}")
            if table is None:
                await connection.execute("TRUNCATE remit.record, remit.chain, remit.stream, remit.removed")

    async def seal(self, facts: StoreFacts) -> None:
        columns = ("number", "seq", "digest", "at_ms", "key", "signature")
        rows = [
            (each.number, each.seq, each.digest, each.at_ms, each.key, each.signature) for each in facts.checkpoints
        ]
        async with translated(self._address), self._connection.transaction():
            await self._connection.execute("DELETE FROM remit.checkpoint")
            await _copy(self._connection, "checkpoint", columns, rows)
            if facts.mark is not None:
                number, seq, signer, since_ms = facts.mark
                sql = "UPDATE remit.store SET number = $1, seq = $2, signer = $3, since_ms = $4"
                await self._connection.execute(sql, number, seq, signer, since_ms)

    async def finish(self) -> None:
        self._write_key()
        async with translated(self._address), self._connection.transaction():
            for name, (number, *_) in [(each.name, each.key) for each in TABLES if each.numbered]:
                await self._connection.execute(
                    f"SELECT setval(pg_get_serial_sequence('remit.{name}', '{number}'),"
                    f" coalesce(max({number}), 0) + 1, false) FROM remit.{name}"
                )
            await self._connection.execute("DROP TABLE remit.copying")
        async with translated(self._address):
            # The planner knows nothing of rows that were copied a moment ago.
            await self._connection.execute("ANALYZE remit.record, remit.chain, remit.request", timeout=600)


def _request(stream: int, first: int, begun: int | None, last: int | None, *rest: Any) -> Row:
    """Return a request in the form of this engine."""
    return first, *rest, stream, first, stream, begun or first, None if last is None else stream, last


def _blocks(page: CopiedRecords, state: CopyState) -> tuple[list[tuple[int, int, int, int, bytes]], bytes]:
    """Return the pieces of the chain for a page, and the digest of its last row."""
    known = {each.seq: each.digest for each in page.records}
    gone = {each.seq: each for each in page.removed if each.seq not in known}
    previous = state.digest
    blocks: list[tuple[int, int, int, int, bytes]] = []
    run: list[bytes] = []
    first = 0
    for seq in sorted({*known, *gone}):
        if seq in known:
            previous = known[seq]
        else:
            row = gone[seq]
            previous = link(previous, seq, row.leaf) if row.leaf else row.digest or bytes(32)
        if run and (seq != first + len(run) or len(run) == MOST):
            blocks.append((first, first + len(run) - 1, state.stream, first, b"".join(run)))
            run = []
        if not run:
            first = seq
        run.append(previous)
    if run:
        blocks.append((first, first + len(run) - 1, state.stream, first, b"".join(run)))
    return blocks, previous


def _ranges(removed: list[RemovedDigest]) -> list[tuple[int, int, bytes]]:
    """Return the digests of removed records, those of consecutive ones together."""
    found: list[tuple[int, list[bytes]]] = []
    for seq, content, _ in removed:
        if not content:
            raise refused(
                f"row {seq} was removed, and a version of this program that is long gone had written it",
                "Such a record can be copied to an SQLite file only.",
            )
        if found and seq == found[-1][0] + len(found[-1][1]):
            found[-1][1].append(content)
        else:
            found.append((seq, [content]))
    return [(first, first + len(some) - 1, b"".join(some)) for first, some in found]


def _leaf(record: CopiedRecord) -> bytes:
    kind = KIND_OF.get(record.kind)
    name = f"kind {record.kind}" if kind is None else kind.value
    return leaf(name, record.at_ms, record.run, record.session, record.body)


async def _copy(connection: BulkConnection, table: str, columns: tuple[str, ...], rows: list[Any]) -> None:
    if not rows:
        return
    try:
        await connection.copy_records_to_table(table, records=rows, columns=columns, schema_name="remit")
    except asyncpg.DataError as error:
        raise refused(
            f"a row for the table {table} has a value that PostgreSQL cannot hold ({type(error).__name__})",
            "Copy to an SQLite file.",
        ) from error


@asynccontextmanager
async def created_database(
    address: DatabaseAddress, key: CheckpointKey | None, facts: StoreFacts, write_key: Callable[[], None]
) -> AsyncGenerator[PgCopyWriter]:
    """Connect to a database, and create its tables if there are none.

    *key* and *facts* are of the source, and *write_key* copies the key to where the hubs of the copy look for it.
    """
    connection = await address.connect_bulk()
    try:
        async with translated(address):
            await migrate(connection, address)
            await check_unused(connection, address)
        yield PgCopyWriter(address, connection, key, facts, write_key)
    finally:
        await close_quietly(connection)
