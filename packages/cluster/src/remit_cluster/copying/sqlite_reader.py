"""Reads the SQLite file of a store that is copied."""

from collections.abc import AsyncIterator, Generator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any, cast

import apsw
import msgspec
from msgspec import Struct

from remit.protocol.records import Kind
from remit.runtime.audit import GENESIS, AuditVerdict
from remit.runtime.signing import CheckpointKey, read_key
from remit.stores.audit import FileChain, Proof, digest_of
from remit.stores.checkpoints import Mark, key_path, read_checkpoints, read_mark
from remit.stores.connection import SqliteConnection, translate
from remit.stores.opening import copying_path, restoring_path
from remit.stores.schema import KINDS, check_version
from remit.stores.user_keys import UserKeys, is_encrypted, lost_key
from remit_cluster.copying.tables import (
    PAGE_BYTES,
    PAGE_ROWS,
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

# How long to wait for a command that only reads.
BUSY_SECONDS = 2.0


class _Asked(Struct):
    """What the columns of a request in another engine take from its record."""

    target: str = ""
    via: str | None = None
    correlation: str | None = None


class _Ended(Struct):
    """What the columns of a request in another engine take from the record of its outcome."""

    status: str | None = None
    requires_followup: bool = False


_read_asked = msgspec.json.Decoder(_Asked).decode
_read_ended = msgspec.json.Decoder(_Ended).decode


class SqliteReader:
    """Reads a file that nobody else has open."""

    def __init__(self, path: Path, connection: SqliteConnection, name: str, key: CheckpointKey | None) -> None:
        self._path = path
        self._connection = connection
        self.name = name
        self.key = key
        self._keys = UserKeys(connection, path, key)

    def stores(self, table: CopiedTable) -> int:
        return len(table.stored)

    # ── reading ───────────────────────────────────────────────────────────────────────────────────────────────────────

    async def facts(self) -> StoreFacts:
        with translated(self._path):
            return self._facts()

    def _facts(self) -> StoreFacts:
        one = self._one
        newest = self._connection.execute("SELECT seq, digest FROM main.record ORDER BY seq DESC LIMIT 1").fetchone()
        head, digest = newest or (0, GENESIS)
        checkpoints = [each for each in read_checkpoints(self._path) if each]
        mark = read_mark(self._connection)
        last = checkpoints[-1] if checkpoints else None
        if mark and last and last.number == mark.number + 1:
            # A crash left the file ahead of the database by one, which the next checkpoint would have made good.
            found = digest_of(self._connection, last.seq)
            if found is not None and found.hex() == last.digest:
                mark = Mark(last.number, last.seq, mark.signer, 0 if last.seq == head else mark.since_ms)
        return StoreFacts(
            head=head,
            digest=digest,
            records=one("SELECT count(*) FROM main.record"),
            removed=one("SELECT count(*) FROM removed"),
            removals=one(f"SELECT count(*) FROM main.record WHERE kind = {KINDS[Kind.REMOVED]}"),
            counts={each.name: one(f"SELECT count(*) FROM main.{each.name}") for each in TABLES},
            mark=mark,
            checkpoints=tuple(checkpoints),
        )

    def _one(self, sql: str) -> Any:
        return self._connection.execute(sql).fetchall()[0][0]

    async def digest_of(self, seq: int) -> bytes | None:
        return digest_of(self._connection, seq)

    async def page(self, after: int) -> CopiedRecords | None:
        with translated(self._path):
            return self._page(after)

    def _page(self, after: int) -> CopiedRecords | None:
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

    async def rows(self, table: CopiedTable, after: Row) -> AsyncIterator[TablePage]:
        order = ", ".join(table.key)
        where = f"({order}) > ({', '.join('?' * len(after))})" if after else "TRUE"
        sql = f"SELECT {order}, {', '.join(table.stored)} FROM main.{table.name} WHERE {where} ORDER BY {order}"
        width = len(table.key)
        with translated(self._path):
            rows = iter(self._connection.execute(sql, tuple(after)))
            while page := list(islice(rows, PAGE_ROWS)):
                yield TablePage(list(page[-1][:width]), [self._common(table, row[width:]) for row in page])

    def _common(self, table: CopiedTable, row: Row) -> Row:
        """Return a row in the form of the copy."""
        match table.name:
            case "request":
                return (*row[:13], bool(row[13]), row[14], *self._derived(row))
            case "sealed":
                scope, token, value, of_user, at_ms = row
                return scope, token, value, bool(of_user), at_ms
            case _:
                return row

    def _derived(self, row: Row) -> Row:
        place, begun_seq, last_seq = row[:3]
        started_ms, *_ = self._record(place)
        begun_ms, session, begun = self._record(begun_seq or place)
        _, _, ended = self._record(last_seq)
        asked = _Asked() if begun is None else _read_asked(begun)
        outcome = _Ended() if ended is None else _read_ended(ended)
        columns = (session, asked.target, asked.via or "", asked.correlation or "", started_ms, begun_ms)
        return *columns, outcome.status, outcome.requires_followup

    def _record(self, seq: int | None) -> tuple[int, str, bytes | None]:
        """Return time, session and content of a record; empty ones if it was removed."""
        sql = "SELECT at_ms, session, body FROM main.record WHERE seq = ?"
        found = None if seq is None else self._connection.execute(sql, (seq,)).fetchone()
        return (0, "", None) if found is None else (found[0], found[1], self._keys.plain(found[2]))

    async def verify(self) -> AuditVerdict:
        with translated(self._path):
            return await FileChain(self._connection, self._path).verify(Proof(self.key and self.key.public))


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
        yield SqliteReader(path, connection, str(path), key)
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
