"""Opens the file of a SQLite store: schema, key, and the check that rows and checkpoints agree."""

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue
from typing import NamedTuple, TypeVar

import apsw
import msgspec
from msgspec import Struct

from remit.ports import StoreError
from remit.protocol.errors import Code, fault
from remit.protocol.records import ChainBreak, Kind
from remit.runtime.signing import CheckpointKey, open_key
from remit.stores.checkpoints import Checkpoints, key_path
from remit.stores.connection import Durability, SqliteConnection, connect_writer, translate, write_lock
from remit.stores.database import Entry
from remit.stores.schema import migrate
from remit.stores.transaction import Transaction
from remit.stores.user_keys import NOBODY, UserKeys, connect_plain, is_encrypted, lost_key

T = TypeVar("T")
FileQuery = Callable[[SqliteConnection], T]
"""Something to read from a SQLite file, in a thread of its own."""

# Reads are short; a second thread keeps one long listing from blocking the rest.
CONNECTIONS = 2


class Reader:
    """A few read-only connections and the threads that use them."""

    def __init__(self, path: Path, busy_seconds: float) -> None:
        self._path = path
        self._connections: SimpleQueue[SqliteConnection] = SimpleQueue()
        for _ in range(CONNECTIONS):
            self._connections.put(connect_plain(path, busy_seconds))
        self._threads = ThreadPoolExecutor(CONNECTIONS, thread_name_prefix=f"remit-reader {path.name}")

    async def read(self, query: FileQuery[T]) -> T:
        """Return the query's result, or raise `StoreError`."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, self.read_at_once, query)

    def read_at_once(self, query: FileQuery[T]) -> T:
        """Return the query's result, read in this thread."""
        connection = self._connections.get()
        try:
            return query(connection)
        except (apsw.Error, OSError, msgspec.DecodeError) as error:
            raise translate(error, self._path) from error
        finally:
            self._connections.put(connection)

    async def close(self) -> None:
        await asyncio.to_thread(self._close)

    def _close(self) -> None:
        self._threads.shutdown()
        for _ in range(CONNECTIONS):
            self._connections.get().close()


_log = logging.getLogger("remit.store")

# The run and session of records that are about the store itself.
STORE = "remit-store"


def restoring_path(path: Path) -> Path:
    """Return the path that a store has while its files are being restored."""
    return path.with_name(path.name + ".restoring")


def copying_path(path: Path) -> Path:
    """Return the path that a store has while another one is being copied into it."""
    return path.with_name(path.name + ".copying")


class OpenedStore(NamedTuple):
    """The connections of an open store, and the parts that sign its checkpoints."""

    writer: SqliteConnection
    key: CheckpointKey
    checkpoints: Checkpoints
    reader: Reader
    glance: SqliteConnection
    keys: UserKeys | None
    """The keys under which new texts are encrypted; None: they are not."""


class Opening(Struct, frozen=True, kw_only=True):
    """The settings with which a store is opened."""

    path: Path
    durability: Durability
    checkpoint_every: int
    checkpoint_seconds: float
    busy_seconds: float
    make_key: bool
    wall_ms: Callable[[], int]

    def open(self, sizes: dict[str, int], *, encrypt: bool) -> OpenedStore:
        """Open the file; it is created, with its folder and its key, if it does not exist.

        With *encrypt*, new texts are encrypted.
        """
        if restoring_path(self.path).exists():
            message = f"restoring {self.path} from a backup was interrupted"
            advice = "Do it again: remit store restore FILE --force."
            raise StoreError(fault(Code.STORE_UNAVAILABLE, message, suggestion=advice))
        if copying_path(self.path).exists():
            message = f"{self.path} is an unfinished copy of another store"
            advice = f"Go on with it: remit store copy FROM {self.path}. Or delete {copying_path(self.path)}."
            raise StoreError(fault(Code.STORE_UNAVAILABLE, message, suggestion=advice))
        try:
            connection = connect_writer(self.path, self.durability, self.busy_seconds)
            try:
                migrate(connection, self.path, self.busy_seconds)
                key_made = not key_path(self.path).exists()
                if key_made and is_encrypted(connection):
                    raise lost_key(connection, self.path)
                key = self._open_key()
                keys = self._open_keys(connection, key, encrypt=encrypt)
                checkpoints = self._examined(connection, key, sizes, key_made=key_made)
                glance = connect_plain(self.path, 0)
                return OpenedStore(
                    connection,
                    key,
                    checkpoints,
                    Reader(self.path, self.busy_seconds),
                    glance,
                    keys if encrypt else None,
                )
            except BaseException:
                connection.close()
                raise
        except (apsw.Error, OSError) as error:
            raise translate(error, self.path) from error

    def _open_keys(self, connection: SqliteConnection, key: CheckpointKey, *, encrypt: bool) -> UserKeys:
        """Return the keys of users; from then on the connection reads their texts decrypted."""
        keys = UserKeys(connection, self.path, key)
        if encrypt and not is_encrypted(connection):
            with write_lock(connection):
                keys.encrypt(NOBODY, b"")
        if is_encrypted(connection):
            keys.show_plain()
        return keys

    def _examined(
        self, connection: SqliteConnection, key: CheckpointKey, sizes: dict[str, int], *, key_made: bool
    ) -> Checkpoints:
        """Return the checkpoints, after a check that rows, checkpoints and key agree; a break is recorded."""
        checkpoints = Checkpoints(
            self.path,
            key,
            every=self.checkpoint_every,
            seconds=self.checkpoint_seconds,
            durable=self.durability == "power",
        )
        now_ms = self.wall_ms()
        with write_lock(connection):
            breaks = checkpoints.examine(connection, key_made=key_made)
            if not breaks:
                return checkpoints
            transaction = Transaction(connection, now_ms, sizes, keep_records=False)
            transaction.extend(reported(str(self.path), breaks, now_ms))
            transaction.write()
            checkpoints.begin(connection, transaction.seq, now_ms)
        checkpoints.committed(transaction.seq)
        try:
            checkpoints.seal(connection, now_ms)
        except (apsw.Error, OSError) as error:  # the writer tries again
            _log.warning("no checkpoint was written: %s", translate(error, self.path))
        return checkpoints

    def _open_key(self) -> CheckpointKey:
        path = key_path(self.path)
        if self.make_key or path.exists():
            return open_key(path)
        message = f"the key of {self.path} is gone: there is no {path}"
        advice = "Put it back from a backup: without it, nothing that was redacted can be read."
        raise StoreError(fault(Code.STORE_UNAVAILABLE, message, suggestion=advice))


def reported(name: str, breaks: list[ChainBreak], now_ms: int) -> list[Entry]:
    """Log what did not agree in a store, and return it as records."""
    for each in breaks:
        _log.error("%s: THE AUDIT CHAIN IS BROKEN (%s): %s", name, each.finding, each.text)
    _log.error("%s: the break is on record; see `remit audit verify` and `remit docs verification`", name)
    return [(Kind.BREAK, now_ms, STORE, STORE, each, 0) for each in breaks]
