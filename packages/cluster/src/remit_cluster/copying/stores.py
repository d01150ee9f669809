"""Reads a store that is copied, and writes its copy: what both engines do alike."""

from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import msgspec

from remit.protocol.codec import encode
from remit.protocol.records import Kind
from remit.runtime.audit import AuditVerdict
from remit.runtime.signing import CheckpointKey
from remit.stores.audit import Proof, StoredChain
from remit.stores.checkpoints import Mark
from remit.stores.database import SqlConnection
from remit.stores.schema import KINDS
from remit_cluster.copying.tables import (
    PAGE_ROWS,
    TABLES,
    CopiedRecords,
    CopiedTable,
    CopyState,
    Row,
    StoreFacts,
    TablePage,
    refused,
)

_read_state = msgspec.json.Decoder(CopyState).decode


class StoreReader(ABC):
    """Reads a store to which nobody else writes."""

    removed_rows: str
    """The query of how many records were removed, or have only an outline left."""

    def __init__(self, database: SqlConnection, chain: StoredChain, key: CheckpointKey | None) -> None:
        """*key* is that of the store; None: it is missing."""
        self.database, self.chain, self.key = database, chain, key
        self.name = chain.name

    @abstractmethod
    def errors(self) -> AbstractAsyncContextManager[None]:
        """Translate errors of the engine."""

    @abstractmethod
    def stored(self, table: CopiedTable) -> Sequence[str]:
        """Return the columns of a table as they are queried; those that are missing are derived from records."""

    @abstractmethod
    def common(self, table: CopiedTable, row: Row) -> Row:
        """Return a row in the form that both engines have."""

    @abstractmethod
    async def _page(self, after: int) -> CopiedRecords | None: ...

    async def _mark(self) -> Mark | None:
        return await self.chain.mark()

    async def facts(self) -> StoreFacts:
        async with self.errors():
            count = self.database.fetchval
            head, digest = await self.chain.head()
            removals = f"SELECT count(*) FROM remit.record WHERE kind = {KINDS[Kind.REMOVED]}"
            return StoreFacts(
                head=head,
                digest=digest,
                records=await count("SELECT count(*) FROM remit.record"),
                removed=await count(self.removed_rows),
                removals=await count(removals),
                counts={each.name: await count(f"SELECT count(*) FROM remit.{each.name}") for each in TABLES},
                mark=await self._mark(),
                checkpoints=tuple(each for each in await self.chain.checkpoints() if each),
            )

    async def digest_of(self, seq: int) -> bytes | None:
        async with self.errors():
            return await self.chain.digest_at(seq)

    async def page(self, after: int) -> CopiedRecords | None:
        """Return the records after a number; None: there are no more."""
        async with self.errors():
            return await self._page(after)

    async def rows(self, table: CopiedTable, after: Sequence[Any]) -> AsyncIterator[TablePage]:
        order, width = ", ".join(table.key), len(table.key)
        select = f"SELECT {order}, {', '.join(self.stored(table))} FROM remit.{table.name}"
        while True:
            where = f"({order}) > ({', '.join(f'${place + 1}' for place in range(len(after)))})" if after else "TRUE"
            async with self.errors():
                sql = f"{select} WHERE {where} ORDER BY {order} LIMIT {PAGE_ROWS}"
                rows = [tuple(row) for row in await self.database.fetch(sql, *after)]
                page = [self.common(table, row[width:]) for row in rows]
            if rows:
                after = rows[-1][:width]
                yield TablePage(list(after), page)
            if len(rows) < PAGE_ROWS:
                return

    async def verify(self) -> AuditVerdict:
        async with self.errors():
            return await self.chain.verify(Proof(self.key and self.key.public))


class CopyWriter(ABC):
    """Writes a store that nobody else opens before it is finished."""

    records: tuple[str, ...]
    """The tables of the record."""

    def __init__(self, reader: StoreReader, write_key: Callable[[], None]) -> None:
        """*write_key* copies the key to where the hubs of the copy look for it."""
        self.reader, self._write_key = reader, write_key

    @abstractmethod
    async def begin(self, new: CopyState) -> CopyState:
        """Return the state of an unfinished copy, or begin one; raises `StoreError` if the target is not empty."""

    @abstractmethod
    def transaction(self) -> AbstractAsyncContextManager[object]: ...

    @abstractmethod
    async def insert(self, table: str, columns: Sequence[str], rows: Sequence[Row]) -> None: ...

    @abstractmethod
    async def add_page(self, page: CopiedRecords, state: CopyState) -> bytes:
        """Write records in a transaction; return the digest of the last row."""

    @abstractmethod
    async def add_rows(self, table: CopiedTable, rows: list[Row], state: CopyState) -> None: ...

    @abstractmethod
    async def seal(self, facts: StoreFacts) -> None:
        """Write the checkpoints."""

    @abstractmethod
    async def finish(self) -> None:
        """Make a store of the copy, which hubs can open."""

    async def note_begun(self, state: CopyState) -> None:
        """Create the table with the state of the copy, in a transaction."""
        database = self.reader.database
        await database.execute(
            "CREATE TABLE remit.copying (one smallint PRIMARY KEY CHECK (one = 1), state bytea NOT NULL)"
        )
        await database.execute("INSERT INTO remit.copying VALUES (1, $1)", encode(state))
        await database.execute("DELETE FROM remit.last_control")

    async def noted(self) -> CopyState:
        """Return the state of an unfinished copy."""
        return _read_state(await self.reader.database.fetchval("SELECT state FROM remit.copying FOR UPDATE"))

    @asynccontextmanager
    async def noting(self, state: CopyState, *, follows: bool = True) -> AsyncGenerator[list[CopyState]]:
        """Write in one transaction, together with the state; one that is put into the list takes its place."""
        new = [state]
        async with self.reader.errors(), self.transaction():
            if follows and (await self.noted()).seq != state.seq:
                raise refused(f"another process copies into {self.reader.name}", "Let it finish.")
            yield new
            await self.reader.database.execute("UPDATE remit.copying SET state = $1", encode(new[-1]))

    async def add_records(self, page: CopiedRecords, state: CopyState) -> CopyState:
        last = page.records[-1] if page.records else None
        known = state.known if last is None else (last.seq, last.digest)
        async with self.noting(state) as new:
            digest = await self.add_page(page, state)
            new.append(msgspec.structs.replace(state, seq=page.last, digest=digest, known=known))
        return new[-1]

    async def clear(self, table: CopiedTable | None, state: CopyState) -> None:
        """Delete what was copied of a table, or everything."""
        names = [table.name] if table else [*(each.name for each in TABLES), *self.records]
        async with self.noting(state, follows=False):
            for name in names:
                await self.reader.database.execute(f"DELETE FROM remit.{name}")
