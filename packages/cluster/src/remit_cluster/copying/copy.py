"""Copies a store to another place with its key: records first, then tables, by pages; it goes on where it was."""

import time
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from remit.ports import StoreError
from remit.protocol.errors import fault, in_sentences
from remit.runtime.audit import AuditVerdict
from remit.runtime.signing import CheckpointKey
from remit.stores.checkpoints import key_path
from remit.stores.connection import write_private
from remit.stores.schema import RUNNING
from remit_cluster.copying.sqlite import created_file, key_in, opened_file, translated
from remit_cluster.copying.stores import CopyWriter, StoreReader
from remit_cluster.copying.tables import (
    REQUEST,
    TABLES,
    CopiedTable,
    CopyState,
    Progress,
    RowSum,
    StoreFacts,
    TablePosition,
    fenced,
    refused,
)
from remit_cluster.postgres.by_address import missing_driver

RECORD = "record"


class Copied(Struct, frozen=True, kw_only=True):
    """What was copied, and that it is the same."""

    source: str
    target: str
    rows: dict[str, int]
    """The number of rows of each table in the copy; all of them were compared."""
    head: int
    """The number of the last record."""
    digest: str
    """Its digest in the chain, the same in both stores."""
    verdict: AuditVerdict
    """The verdict on the copy."""
    open_runs: int
    resumed: bool
    """Whether this went on with an unfinished copy."""
    written: int
    """How many rows were written this time."""
    seconds: float
    key: str = ""
    """The file with the key of the copy; empty if the source has none."""
    notices: tuple[str, ...] = ()


async def copy_store(source: StoreReader, target: CopyWriter, facts: StoreFacts, progress: Progress) -> Copied:
    """Copy everything from one store into the other, and verify it; both are open, and nobody else writes to them.

    *facts* are those of the source. Raises `StoreError` if the target is neither empty nor an unfinished copy of this
    source. Whenever this is killed, the next call goes on.
    """
    began = time.monotonic()
    new = CopyState(source=source.name, removals=facts.removals)
    state = await target.begin(new)
    try:
        return await _Copying(source, target, facts, state, progress, began).run(new)
    except StoreError as error:
        why = error.fault
        advice = in_sentences(why.suggestion, "Then run the same command again: it goes on where it was.")
        raise StoreError(fault(why.code, why.message, suggestion=advice)) from error


class _Copying:
    """A copy in progress."""

    def __init__(
        self,
        source: StoreReader,
        target: CopyWriter,
        facts: StoreFacts,
        state: CopyState,
        progress: Progress,
        began: float,
    ) -> None:
        self._source = source
        self._target = target
        self._copy = target.reader
        self._facts = facts
        self._state = state
        self._progress = progress
        self._began = began
        self._written = 0
        self._notices: list[str] = []
        self._open = 0
        self._sums: dict[str, RowSum] = {}
        """The sums of the tables of which this process has read every row of the source."""

    async def run(self, new: CopyState) -> Copied:
        resumed = self._state != replace(new, stream=self._state.stream)
        await self._check_source(new)
        await self._copy_records()
        for table in TABLES:
            await self._copy_table(table)
        await self._compare(resumed=resumed)
        await self._target.seal(self._facts)
        copied = await self._copy.facts()
        verdict = await self._verified(copied)
        await self._target.finish()
        return Copied(
            source=self._source.name,
            target=self._copy.name,
            rows={RECORD: copied.records, "removed": copied.removed, **copied.counts},
            head=copied.head,
            digest=copied.digest.hex(),
            verdict=verdict,
            open_runs=self._open,
            resumed=resumed,
            written=self._written,
            seconds=time.monotonic() - self._began,
            notices=tuple(self._notices),
        )

    async def _check_source(self, new: CopyState) -> None:
        """Check that the unfinished copy is one of this source, and begin anew where rows were removed from it."""
        seq, digest = self._state.known
        actual = await self._source.digest_of(seq) if seq else digest
        removed = self._state.removals != self._facts.removals
        if actual != digest and not (removed and actual is None and self._state.source == self._source.name):
            raise refused(
                f"{self._copy.name} is an unfinished copy of another store ({self._state.source}), "
                f"or {self._source.name} was changed since",
                "Give the store of which it is a copy, or an empty target.",
            )
        if removed:
            # What was removed must not live on in the copy.
            self._notices.append("records were removed from the source since the copy began: it was begun anew")
            self._state = replace(new, stream=self._state.stream)
            await self._target.clear(None, self._state)

    async def _copy_records(self) -> None:
        while (page := await self._source.page(self._state.seq)) is not None:
            self._state = await self._target.add_records(page, self._state)
            self._written += len(page.records)
            self._progress(RECORD, self._state.seq, self._facts.head)

    async def _copy_table(self, table: CopiedTable) -> None:
        position = self._state.tables.get(table.name, TablePosition())
        if position.done:
            return
        whole = RowSum(self._columns(table)) if not position.rows else None
        async for page in self._source.rows(table, position.after):
            rows = [fenced(table, row) for row in page.rows]
            if whole is not None:
                whole.add(rows)
            position = TablePosition(after=page.after, rows=position.rows + len(rows))
            self._move(table, position)
            await self._target.add_rows(table, rows, self._state)
            self._written += len(rows)
            self._progress(table.name, position.rows, self._facts.counts[table.name])
        if whole is not None:
            self._sums[table.name] = whole
        self._move(table, replace(position, done=True))

    def _move(self, table: CopiedTable, position: TablePosition) -> None:
        self._state = replace(self._state, tables={**self._state.tables, table.name: position})

    def _columns(self, table: CopiedTable) -> int:
        """Return how many columns of a table are the same in both stores."""
        return min(len(self._source.stored(table)), len(self._copy.stored(table)))

    async def _compare(self, *, resumed: bool) -> None:
        """Compare every row; a table that the source changed while the copy was interrupted is copied again."""
        for table in TABLES:
            if await self._is_same(table):
                continue
            if not resumed:
                raise _differs(f"its table {table.name} differs from that of {self._source.name}", self._target)
            self._notices.append(f"the table {table.name} was changed since the copy began: it was copied again")
            self._move(table, TablePosition())
            self._sums.pop(table.name, None)
            await self._target.clear(table, self._state)
            await self._copy_table(table)
            if not await self._is_same(table):
                raise _differs(f"its table {table.name} differs from that of {self._source.name}", self._target)

    async def _is_same(self, table: CopiedTable) -> bool:
        self._progress(f"comparing {table.name}", 0, 0)
        expected = self._sums.get(table.name)
        if expected is None:
            expected = RowSum(self._columns(table))
            async for page in self._source.rows(table, ()):
                expected.add([fenced(table, row) for row in page.rows])
        copied = RowSum(self._columns(table))
        running = 0
        async for page in self._copy.rows(table, ()):
            copied.add(page.rows)
            running += sum(row[8] == RUNNING for row in page.rows) if table is REQUEST else 0
        if table is REQUEST:
            self._open = running
        return copied == expected

    async def _verified(self, copied: StoreFacts) -> AuditVerdict:
        """Return the verdict on the copy, which is the same as that on the source."""
        self._progress("verifying the chain", 0, 0)
        wanted = self._facts
        if (copied.head, copied.digest, copied.records, copied.removed) != (
            *(wanted.head, wanted.digest, wanted.records, wanted.removed),
        ):
            raise _differs(
                f"it ends with row {copied.head}, and {self._source.name} with row {wanted.head}", self._target
            )
        verdict = await self._copy.verify()
        if not verdict.ok:
            before = await self._source.verify()
            if before.ok:
                raise _differs(f"the copy does not verify: {verdict.findings[0]}", self._target)
            self._notices.append("the record was damaged before it was copied")
        return verdict


def _differs(text: str, target: CopyWriter) -> StoreError:
    return refused(f"{target.reader.name}: {text}", "Begin anew with an empty target.")


# ── from one place to another ─────────────────────────────────────────────────────────────────────────────────────────


class DatabaseToCopy(Struct, frozen=True, kw_only=True):
    """A database, and the file with its key."""

    url: str
    key_file: Path
    password: str | None = None
    pooler: bool = False

    def __repr__(self) -> str:
        return "DatabaseToCopy(…)"  # the address may contain a password


CopyPlace = Path | DatabaseToCopy
"""Where a store is: an SQLite file, or a database."""


async def copy_between(source: CopyPlace, target: CopyPlace, progress: Progress = lambda _, __, ___: None) -> Copied:
    """Copy a store, and its key to where hubs look for it; raises `StoreError` if that cannot be done.

    Nobody may have either of the stores open. Whenever this is killed, the next call goes on.
    """
    if source == target:
        raise refused("source and target are the same store", "Give another target.")
    source_key, target_key = _key_file(source), _key_file(target)
    async with _reading(source) as reader:
        key, facts = reader.key, await reader.facts()

        def write_key() -> None:
            if key is not None and not target_key.exists():
                with translated(target_key):
                    target_key.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                    write_private(target_key, source_key.read_bytes())

        async with _writing(target, key, facts, write_key) as writer:
            _check_key(target_key, key)
            copied = await copy_store(reader, writer, facts, progress)
    if key is None:
        missing = f"the key of the source is missing ({source_key}): what was redacted cannot be read in the copy"
        return replace(copied, notices=(*copied.notices, missing))
    return replace(copied, key=str(target_key))


def _key_file(place: CopyPlace) -> Path:
    return key_path(place) if isinstance(place, Path) else place.key_file


def _check_key(file: Path, key: CheckpointKey | None) -> None:
    known = key_in(file)
    if known is not None and known != key:
        raise refused(f"{file} is the key of another store", "Move it away, or give another place for the copy.")


@asynccontextmanager
async def _reading(place: CopyPlace) -> AsyncGenerator[StoreReader]:
    if isinstance(place, Path):
        with opened_file(place) as reader:
            yield reader
        return
    try:
        from remit_cluster.copying.postgres import opened_database
        from remit_cluster.postgres.connection import DatabaseAddress
    except ImportError as error:
        raise missing_driver() from error
    address = DatabaseAddress(place.url, place.password, place.pooler)
    async with opened_database(address, key_in(place.key_file), str(place.key_file)) as reader:
        yield reader


@asynccontextmanager
async def _writing(
    place: CopyPlace, key: CheckpointKey | None, facts: StoreFacts, write_key: Callable[[], None]
) -> AsyncGenerator[CopyWriter]:
    if isinstance(place, Path):
        with created_file(place, key, facts, write_key) as writer:
            yield writer
        return
    try:
        from remit_cluster.copying.postgres import created_database
        from remit_cluster.postgres.connection import DatabaseAddress
    except ImportError as error:
        raise missing_driver() from error
    address = DatabaseAddress(place.url, place.password, place.pooler)
    async with created_database(address, key, facts, write_key) as writer:
        yield writer
