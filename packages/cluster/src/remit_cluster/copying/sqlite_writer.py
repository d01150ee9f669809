"""Writes the SQLite file into which a store is copied."""

import os
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol, cast

import apsw
import msgspec

from remit.protocol.codec import encode
from remit.runtime.signing import CheckpointKey, encode_checkpoint
from remit.stores.checkpoints import checkpoint_path
from remit.stores.connection import SqliteConnection, connect_reader, connect_writer, sync, write_lock, write_private
from remit.stores.opening import copying_path, restoring_path
from remit.stores.schema import APPLICATION_ID, MIGRATIONS, migrate
from remit_cluster.copying.sqlite_reader import BUSY_SECONDS, SqliteReader, lock, translated
from remit_cluster.copying.tables import (
    TABLES,
    CopiedRecords,
    CopiedTable,
    CopyState,
    Row,
    StoreFacts,
    TablePosition,
    not_empty,
    refused,
)

# In the header of an unfinished copy, so that nobody takes it for a store and works in it ("Rmcp").
COPYING_ID = 0x526D6370

_read_state = msgspec.json.Decoder(CopyState).decode


class _Many(Protocol):
    """What of `apsw.Connection` is used here alone; its own annotations are not complete."""

    def executemany(self, statements: str, sequenceofbindings: Iterable[Row], /) -> object: ...


class SqliteWriter:
    """Writes a file, which has another name until the copy is finished."""

    def __init__(
        self, path: Path, connection: SqliteConnection, key: CheckpointKey | None, write_key: Callable[[], None]
    ) -> None:
        self._final = path
        self._path = copying_path(path)
        self._connection = connection
        self._write_key = write_key
        self.reader = SqliteReader(self._path, connection, str(path), key)
        self.begun: bool = connection.pragma("application_id") == COPYING_ID

    async def begin(self, new: CopyState) -> CopyState:
        connection = self._connection
        if connection.pragma("application_id") == COPYING_ID:
            if connection.pragma("user_version") == len(MIGRATIONS):
                ((state,),) = connection.execute("SELECT state FROM copying").fetchall()
                return _read_state(state)
            raise refused(
                f"the unfinished copy {self._path} was begun by another version of this program",
                f"Delete it, and begin anew: rm {self._path}*",
            )
        with translated(self._path):
            new = self._renamed_state(new)
            migrate(connection, self._path, BUSY_SECONDS)
        with self._writing():
            connection.execute("CREATE TABLE copying (one INTEGER PRIMARY KEY CHECK (one = 1), state BLOB NOT NULL)")
            connection.execute("INSERT INTO copying VALUES (1, ?)", (encode(new),))
            connection.execute("DELETE FROM last_control")
            connection.pragma("application_id", COPYING_ID)
        self.begun = True
        return new

    def _renamed_state(self, new: CopyState) -> CopyState:
        """Return the state of a copy that was complete and killed before its file was renamed, else the *new* one."""
        if not self._connection.pragma("user_version"):
            return new
        sql = "SELECT seq, digest FROM main.record ORDER BY seq DESC LIMIT 1"
        last = self._connection.execute(sql).fetchone() or (0, b"")
        done = TablePosition(rows=1, done=True)
        return msgspec.structs.replace(
            new, seq=last[0], known=tuple(last), tables=dict.fromkeys((each.name for each in TABLES), done)
        )

    async def add_records(self, page: CopiedRecords, state: CopyState) -> CopyState:
        last = page.records[-1] if page.records else None
        known = state.known if last is None else (last.seq, last.digest)
        state = msgspec.structs.replace(state, seq=page.last, known=known)
        with self._writing():
            self._insert("INSERT INTO main.record VALUES (?,?,?,?,?,?,?)", page.records)
            self._insert("INSERT INTO removed (seq, leaf, digest) VALUES (?,?,?)", page.removed)
            self._note(state)
        return state

    async def add_rows(self, table: CopiedTable, rows: list[Row], state: CopyState) -> None:
        width = len(table.stored)
        sql = f"INSERT INTO main.{table.name} ({', '.join(table.stored)}) VALUES ({','.join('?' * width)})"
        with self._writing():
            self._insert(sql, [row[:width] for row in rows])
            self._note(state)

    async def clear(self, table: CopiedTable | None, state: CopyState) -> None:
        with self._writing():
            for each in TABLES if table is None else (table,):
                self._connection.execute(f"DELETE FROM main.{each.name}")
            if table is None:
                self._connection.execute("DELETE FROM main.record")
                self._connection.execute("DELETE FROM removed")
            self._note(state)

    @contextmanager
    def _writing(self) -> Generator[None]:
        with translated(self._path), write_lock(self._connection):
            yield

    def _insert(self, sql: str, rows: Any) -> None:
        cast(_Many, self._connection).executemany(sql, rows)

    def _note(self, state: CopyState) -> None:
        self._connection.execute("UPDATE copying SET state = ?", (encode(state),))

    async def seal(self, facts: StoreFacts) -> None:
        write_private(checkpoint_path(self._path), b"".join(map(encode_checkpoint, facts.checkpoints)))
        with self._writing():
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
def created_file(
    path: Path, key: CheckpointKey | None, facts: StoreFacts, write_key: Callable[[], None]
) -> Generator[SqliteWriter]:
    """Create a file, or open an unfinished copy.

    *key* and *facts* are of the source, and *write_key* copies the key to where the hubs of the copy look for it.
    """
    if path.exists() and path.stat().st_size:
        raise not_empty(str(path), _head(path), facts, "Give a path where there is no file yet.")
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


def _head(path: Path) -> tuple[int, bytes]:
    """Return the last record of a file and its digest; nothing if it cannot be read."""
    try:
        connection = connect_reader(path, BUSY_SECONDS)
        try:
            found = connection.execute("SELECT seq, digest FROM record ORDER BY seq DESC LIMIT 1").fetchone()
            return (0, b"") if found is None else (found[0], found[1])
        finally:
            connection.close()
    except apsw.Error:
        return 0, b""
