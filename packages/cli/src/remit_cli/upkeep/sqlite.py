"""Removes rows from a SQLite store while hubs work, so that the chain still proves that nothing else was removed."""

import logging
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Generator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, TypeVar

import apsw

from remit.protocol.records import Kind, Notice, Removal
from remit.runtime.audit.chain import pairs, ranges
from remit.stores.audit import FileChain
from remit.stores.checkpoints import EVERY, SECONDS, Checkpoints, key_path
from remit.stores.connection import Durability, SqliteConnection, connect_writer, write_lock
from remit.stores.database import SqliteDatabase, at_once
from remit.stores.messages import FILE_INDEX
from remit.stores.opening import STORE
from remit.stores.schema import check_version
from remit.stores.transaction import Transaction
from remit.stores.user_keys import UserCipher, UserKeys, is_encrypted
from remit_cli.upkeep.removal import SealedSegment, SegmentChanges
from remit_cli.upkeep.store_upkeep import StoreUpkeep, key_for_removal

# Pages that are given back in one transaction: 2 MB.
VACUUM_PAGES = 500

T = TypeVar("T")

_log = logging.getLogger("remit.store")


class SqliteUpkeep(StoreUpkeep):
    """A connection that removes rows from a file."""

    _seq, _segment = "seq", "FROM remit.record WHERE seq BETWEEN $1 AND $2"

    _messages = FILE_INDEX

    def __init__(
        self,
        path: Path,
        *,
        durability: Durability = "power",
        busy_seconds: float = 30,
        wall_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        self.path = path
        self._wall_ms = wall_ms
        self._durability: Durability = durability
        self.key = key_for_removal(str(path), key_path(path))
        self.connection = connect_writer(path, durability, busy_seconds)
        try:
            check_version(self.connection, path)
            self._keys = UserKeys(self.connection, path, self.key)
            if is_encrypted(self.connection):
                self._keys.show_plain()
            self._chain = FileChain(self.connection, path)
            self._accepted = at_once(self._chain.accepted(self.key.public))
        except BaseException:
            self.connection.close()
            raise

    def close(self) -> None:
        self.connection.close()

    def seal(self) -> None:
        """Sign everything that is committed."""
        ((head,),) = self.connection.execute("SELECT coalesce(max(seq), 0) FROM record").fetchall()
        durable = self._durability == "power"
        checkpoints = Checkpoints(self.path, self.key, every=EVERY, seconds=SECONDS, durable=durable)
        checkpoints.committed(head)
        checkpoints.seal(self.connection, self._wall_ms())

    # ── steps ─────────────────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def _database(self) -> SqliteDatabase:
        return SqliteDatabase(self.connection, self._wall_ms)

    def _run(self, work: Awaitable[T]) -> T:
        return at_once(work)

    def _run_again(self, work: Callable[[], Awaitable[T]]) -> T:
        return at_once(work())

    @asynccontextmanager
    async def _transaction(self, *, dry: bool = False) -> AsyncGenerator[None]:
        with _snapshot(self.connection) if dry else write_lock(self.connection):
            yield

    async def _now(self) -> int:
        return self._wall_ms()

    async def _outlined(self, segment: SealedSegment) -> Collection[int]:
        sql = "SELECT seq FROM removed WHERE seq BETWEEN ? AND ?"
        return {seq for (seq,) in self.connection.execute(sql, (segment.first, segment.last))}

    async def _key_prefix(self, user: str) -> None:  # noqa: ARG002 - this connection reads all texts decrypted
        return None

    async def _load_ciphers(self, ids: Collection[int]) -> None:
        """The keys are in the same file."""

    def _cipher(self, id: int) -> UserCipher:
        return self._keys.cipher(id)

    async def _write(self, changes: SegmentChanges) -> None:
        connection = self.connection
        # Written first: the chain continues from the last row, so that one must not be removed.
        await self._record(Kind.REMOVED, changes.statement)
        await self._messages.forget(self._database, [seq for seq, _, _ in changes.kept])
        for row in changes.kept:
            # A row of which the outline was kept has an entry already.
            connection.execute(
                "INSERT INTO removed (seq, leaf, digest) VALUES (?,?,?)"
                " ON CONFLICT DO UPDATE SET digest = coalesce(digest, excluded.digest)",
                row,
            )
        for row in changes.outlines:
            connection.execute("UPDATE main.record SET body = ? WHERE seq = ?", row)
        gone: list[tuple[Any, ...]] = []
        for span in pairs(ranges(changes.gone)):
            sql = "DELETE FROM main.record WHERE seq BETWEEN ? AND ? RETURNING run, session"
            gone += connection.execute(sql, tuple(span))
        await self._forget_places(gone)

    async def _record(self, kind: Kind, body: Removal | Notice) -> None:
        now_ms = self._wall_ms()
        transaction = Transaction(self.connection, now_ms, {}, keep_records=False)
        transaction.extend([(kind, now_ms, STORE, STORE, body, 0)])
        transaction.write()
        self.connection.execute("UPDATE checkpoint SET since_ms = ? WHERE since_ms = 0", (now_ms,))

    async def _lock_requests(self) -> None:
        """The transaction holds the lock of the whole file."""

    # ── space ─────────────────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def gives_back(self) -> bool:
        """Whether the file can give free pages back; one that an earlier program made keeps them for new rows."""
        return self.connection.pragma("auto_vacuum") == 2

    def give_back(self) -> int:
        """Give free pages back to the file system, in small steps; return by how many bytes the file has shrunk."""
        before = self._size()
        while self.gives_back and (free := self.connection.pragma("freelist_count")) > 0:
            self.connection.execute(f"PRAGMA incremental_vacuum({VACUUM_PAGES})").fetchall()
            if self.connection.pragma("freelist_count") >= free:
                break
        self._merge_log()
        return max(0, before - self._size())

    def rebuild(self) -> int:
        """Write the file anew without free pages, and able to give them back later; hubs wait meanwhile."""
        before = self._size()
        self.connection.pragma("auto_vacuum", 2)
        self.connection.execute("VACUUM")
        self._merge_log()
        return max(0, before - self._size())

    def _merge_log(self) -> None:
        try:
            self.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        except apsw.Error as error:  # a reader is at work: the next writer merges the log
            _log.debug("%s: the log was not merged: %s", self.path, error)

    def _size(self) -> int:
        return sum(each.stat().st_size for each in (self.path, Path(f"{self.path}-wal")) if each.exists())


@contextmanager
def _snapshot(connection: SqliteConnection) -> Generator[None]:
    connection.execute("BEGIN")
    try:
        yield
    finally:
        connection.execute("ROLLBACK")
