"""Reads and writes the SQLite file of a store that is copied."""

import os
from collections.abc import AsyncGenerator, Callable, Generator, Iterable, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Protocol, cast

import apsw
import msgspec
from msgspec import Struct

from remit.runtime.signing import CheckpointKey, encode_checkpoint, read_key
from remit.stores.audit import FileChain
from remit.stores.checkpoints import Mark, checkpoint_path, key_path
from remit.stores.connection import (
    SqliteConnection,
    connect_reader,
    connect_writer,
    sync,
    translate,
    write_lock,
    write_private,
)
from remit.stores.database import SqliteDatabase, at_once
from remit.stores.opening import copying_path, restoring_path
from remit.stores.schema import APPLICATION_ID, MIGRATIONS, check_version, migrate
from remit.stores.user_keys import UserKeys, is_encrypted, lost_key
from remit_cluster.copying.stores import CopyWriter, StoreReader
from remit_cluster.copying.tables import (
    PAGE_BYTES,
    PAGE_ROWS,
    TABLES,
    CopiedRecord,
    CopiedRecords,
    CopiedTable,
    CopyState,
    RemovedDigest,
    Row,
    StoreFacts,
    TablePosition,
    not_empty,
    refused,
)

# How long to wait for a command that only reads.
BUSY_SECONDS = 2.0
# In the header of an unfinished copy, so that nobody takes it for a store and works in it ("Rmcp").
COPYING_ID = 0x526D6370


class _RequestFields(Struct):
    """What the columns of a request in another engine take from its record."""

    target: str = ""
    via: str | None = None
    correlation: str | None = None


class _OutcomeFields(Struct):
    """What the columns of a request in another engine take from the record of its outcome."""

    status: str | None = None
    requires_followup: bool = False


_read_request_fields = msgspec.json.Decoder(_RequestFields).decode
_read_outcome_fields = msgspec.json.Decoder(_OutcomeFields).decode


class SqliteReader(StoreReader):
    """Reads a file that nobody else has open."""

    removed_rows = "SELECT count(*) FROM removed"

    def __init__(self, path: Path, connection: SqliteConnection, key: CheckpointKey | None, name: str = "") -> None:
        super().__init__(SqliteDatabase(connection), FileChain(connection, path), key)
        self._path, self._connection = path, connection
        self.name = name or self.name
        self._keys = UserKeys(connection, path, key)

    @asynccontextmanager
    async def errors(self) -> AsyncGenerator[None]:
        with translated(self._path):
            yield

    async def _mark(self) -> Mark | None:
        mark, last = await self.chain.mark(), await self.chain.newest_checkpoint()
        if mark and last and last.number == mark.number + 1:
            # A crash left the file ahead of the database by one, which the next checkpoint would have made good.
            digest = await self.chain.digest_at(last.seq)
            if digest is not None and digest.hex() == last.digest:
                since_ms = 0 if last.seq == (await self.chain.head())[0] else mark.since_ms
                return Mark(last.number, last.seq, mark.signer, since_ms)
        return mark

    async def _page(self, after: int) -> CopiedRecords | None:
        records: list[CopiedRecord] = []
        size = 0
        for row in self._connection.execute(
            "SELECT seq, kind, at_ms, run, session, body, digest FROM main.record WHERE seq > ? ORDER BY seq LIMIT ?",
            (after, PAGE_ROWS),
        ):
            records.append(CopiedRecord(*row))
            size += len(row[5])
            if size > PAGE_BYTES:
                break
        if not records:
            return None
        last = records[-1].seq
        rows = self._connection.execute(
            "SELECT seq, leaf, digest FROM removed WHERE seq > ? AND seq <= ? ORDER BY seq LIMIT ?",
            (after, last, PAGE_ROWS),
        )
        removed = [RemovedDigest(*row) for row in rows]
        if len(removed) == PAGE_ROWS:
            last = removed[-1].seq
            records = [each for each in records if each.seq <= last]
        return CopiedRecords(last, records, removed)

    def stored(self, table: CopiedTable) -> Sequence[str]:
        return table.stored

    def common(self, table: CopiedTable, row: Row) -> Row:
        values = [bool(value) if place in table.flags else value for place, value in enumerate(row)]
        return [*values, *self._derived(row)] if table.derived else values

    def _derived(self, row: Row) -> Row:
        place, begun_seq, last_seq = row[:3]
        started_ms, *_ = self._record(place)
        begun_ms, session, begun = self._record(begun_seq or place)
        _, _, ended = self._record(last_seq)
        request = _RequestFields() if begun is None else _read_request_fields(begun)
        outcome = _OutcomeFields() if ended is None else _read_outcome_fields(ended)
        columns = (session, request.target, request.via or "", request.correlation or "", started_ms, begun_ms)
        return *columns, outcome.status, outcome.requires_followup

    def _record(self, seq: int | None) -> tuple[int, str, bytes | None]:
        """Return time, session and content of a record; empty ones if it was removed."""
        sql = "SELECT at_ms, session, body FROM main.record WHERE seq = ?"
        row = None if seq is None else self._connection.execute(sql, (seq,)).fetchone()
        return (0, "", None) if row is None else (row[0], row[1], self._keys.plain(row[2]))


class _Many(Protocol):
    """What of `apsw.Connection` is used here alone; its own annotations are not complete."""

    def executemany(self, statements: str, sequenceofbindings: Iterable[Row], /) -> object: ...


class SqliteWriter(CopyWriter):
    """Writes a file, which has another name until the copy is finished."""

    records = ("record", "removed")

    def __init__(
        self, path: Path, connection: SqliteConnection, key: CheckpointKey | None, write_key: Callable[[], None]
    ) -> None:
        self._final, self._path, self._connection = path, copying_path(path), connection
        super().__init__(SqliteReader(self._path, connection, key, str(path)), write_key)
        self.begun: bool = connection.pragma("application_id") == COPYING_ID

    async def begin(self, new: CopyState) -> CopyState:
        connection = self._connection
        if self.begun:
            if connection.pragma("user_version") == len(MIGRATIONS):
                return await self.noted()
            raise refused(
                f"the unfinished copy {self._path} was begun by another version of this program",
                f"Delete it, and begin anew: rm {self._path}*",
            )
        with translated(self._path):
            new = await self._renamed_state(new)
            migrate(connection, self._path, BUSY_SECONDS)
            with write_lock(connection):
                await self.note_begun(new)
                connection.pragma("application_id", COPYING_ID)
        self.begun = True
        return new

    async def _renamed_state(self, new: CopyState) -> CopyState:
        """Return the state of a copy that was complete and killed before its file was renamed, else the *new* one."""
        if not self._connection.pragma("user_version"):
            return new
        last = await self.reader.chain.head()
        done = TablePosition(rows=1, done=True)
        tables = dict.fromkeys((each.name for each in TABLES), done)
        return msgspec.structs.replace(new, seq=last[0], known=last, tables=tables)

    @asynccontextmanager
    async def transaction(self) -> AsyncGenerator[None]:
        with write_lock(self._connection):
            yield

    async def insert(self, table: str, columns: Sequence[str], rows: Sequence[Row]) -> None:
        sql = f"INSERT INTO main.{table} ({', '.join(columns)}) VALUES ({','.join('?' * len(columns))})"
        cast(_Many, self._connection).executemany(sql, rows)

    async def add_page(self, page: CopiedRecords, state: CopyState) -> bytes:
        await self.insert("record", CopiedRecord._fields, page.records)
        await self.insert("removed", RemovedDigest._fields, page.removed)
        return state.digest

    async def add_rows(self, table: CopiedTable, rows: list[Row], state: CopyState) -> None:
        async with self.noting(state):
            await self.insert(table.name, table.stored, [row[: len(table.stored)] for row in rows])

    async def seal(self, facts: StoreFacts) -> None:
        write_private(checkpoint_path(self._path), b"".join(map(encode_checkpoint, facts.checkpoints)))
        async with self.reader.errors(), self.transaction():
            self._connection.execute("DELETE FROM checkpoint")
            if facts.mark is not None:
                self._connection.execute("INSERT INTO checkpoint VALUES (1,?,?,?,?)", facts.mark)

    async def finish(self) -> None:
        with translated(self._final):
            self._finish()

    def _finish(self) -> None:
        draft, connection = self._path, self._connection
        with write_lock(connection):
            connection.execute("DROP TABLE copying")
            connection.pragma("application_id", APPLICATION_ID)
        # One file again, with nothing beside it.
        connection.execute("PRAGMA journal_mode = DELETE").fetchall()
        connection.close()
        sync(draft)
        self._write_key()
        os.replace(checkpoint_path(draft), checkpoint_path(self._final))
        os.replace(draft, self._final)
        sync(self._final.parent)


@contextmanager
def opened_file(path: Path) -> Generator[SqliteReader]:
    """Open a file so that nobody else can; raises `StoreError` if it is in use or cannot be copied."""
    for unfinished in (restoring_path(path), copying_path(path)):
        if unfinished.exists():
            raise refused(f"{path} is not complete: there is {unfinished}", "Finish that first.")
    if not path.is_file():
        raise refused(f"{path}: there is no such store", "Give the path of its file, such as .remit/hub.db.")
    with translated(path):
        connection = cast(SqliteConnection, apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE))
    try:
        with translated(path):
            connection.set_busy_timeout(int(BUSY_SECONDS * 1_000))
            lock(connection, path)
            check_version(connection, path)
            key = key_in(key_path(path))
            if key is None and is_encrypted(connection):
                raise lost_key(connection, path)
        yield SqliteReader(path, connection, key)
    finally:
        connection.close()


def lock(connection: SqliteConnection, path: Path) -> None:
    """Lock a file until the connection is closed, which works only if nobody else has it open."""
    connection.pragma("locking_mode", "exclusive")
    try:
        connection.execute("BEGIN IMMEDIATE; ROLLBACK")
    except apsw.BusyError as error:
        raise refused(f"{path} is in use", "Stop the hubs that have it open, then try again.") from error


@contextmanager
def translated(path: Path) -> Generator[None]:
    """Translate errors of SQLite and the file system."""
    try:
        yield
    except (apsw.Error, OSError) as error:
        raise translate(error, path) from error


def key_in(path: Path) -> CheckpointKey | None:
    """Return the key in a file; None if there is no such file."""
    try:
        return read_key(path)
    except FileNotFoundError:
        return None


@contextmanager
def created_file(
    path: Path, key: CheckpointKey | None, facts: StoreFacts, write_key: Callable[[], None]
) -> Generator[SqliteWriter]:
    """Create a file, or open an unfinished copy.

    *key* and *facts* are of the source, and *write_key* copies the key to where the hubs of the copy look for it.
    """
    if path.exists() and path.stat().st_size:
        raise not_empty(str(path), _end_of(path), facts, "Give a path where there is no file yet.")
    if restoring_path(path).exists():
        raise refused(f"{path} is being restored from a backup", "Finish that first, or give another path.")
    draft = copying_path(path)
    with translated(draft):
        connection = connect_writer(draft, "process", BUSY_SECONDS)
    try:
        with translated(draft):
            lock(connection, draft)
        writer = SqliteWriter(path, connection, key, write_key)
    except BaseException:
        connection.close()
        raise
    try:
        yield writer
    finally:
        connection.close()
        if not writer.begun:
            for suffix in ("", "-wal", "-shm"):
                Path(f"{draft}{suffix}").unlink(missing_ok=True)


def _end_of(path: Path) -> tuple[int, bytes]:
    """Return the last record of a file and its digest; nothing if it cannot be read."""
    try:
        connection = connect_reader(path, BUSY_SECONDS)
        try:
            return at_once(FileChain(connection, path).head())
        finally:
            connection.close()
    except apsw.Error:
        return 0, b""
