"""The state file of a device: SQLite, with all content encrypted with the device's key.

Without the key one can see the number of rows, their lengths, and what the gateway sees anyway. The code is
synchronous; a caller in an event loop uses one thread or `asyncio.to_thread`. Each write is one transaction that is
durable when it returns, so a device that is killed keeps the state of the last one.
"""

import threading
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Generic, TypeVar

import msgspec

from remit.protocol.errors import Code, RemitError, fault
from remit.runtime.keys import HubKeys
from remit.runtime.ports import StoreError
from remit.stores.connection import TROUBLE, Durability, Rows, SqliteConnection, connect_writer, translate, write_lock

VERSION = 1
_BUSY_S = 10.0
_CHECK = b"remit device state"

# Ids are never reused: other devices remember them.
_SCHEMA = """
CREATE TABLE facts (name TEXT PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE peers (id INTEGER PRIMARY KEY, tag BLOB NOT NULL UNIQUE, content BLOB NOT NULL);
CREATE TABLE lines (peer INTEGER PRIMARY KEY, content BLOB NOT NULL);
CREATE TABLE sessions (id INTEGER PRIMARY KEY AUTOINCREMENT, peer INTEGER NOT NULL, tag BLOB NOT NULL, content BLOB,
    UNIQUE (peer, tag));
CREATE TABLE held (id INTEGER PRIMARY KEY AUTOINCREMENT, peer INTEGER NOT NULL, tag BLOB NOT NULL,
    size INTEGER NOT NULL, last INTEGER, chain BLOB, content BLOB NOT NULL, UNIQUE (peer, tag));
CREATE TABLE outbox (id INTEGER PRIMARY KEY AUTOINCREMENT, peer INTEGER NOT NULL, seq INTEGER, sealed BLOB NOT NULL);
CREATE INDEX outbox_by_peer ON outbox (peer, seq);
CREATE TABLE pieces (peer INTEGER NOT NULL, seq INTEGER NOT NULL, content BLOB NOT NULL, UNIQUE (peer, seq));
CREATE TABLE inbox (id INTEGER PRIMARY KEY AUTOINCREMENT, peer INTEGER NOT NULL, size INTEGER NOT NULL,
    content BLOB NOT NULL);
CREATE TABLE marks (id INTEGER PRIMARY KEY AUTOINCREMENT, peer INTEGER NOT NULL, kind TEXT NOT NULL,
    tag BLOB NOT NULL, UNIQUE (peer, kind, tag));
CREATE TABLE losses (id INTEGER PRIMARY KEY AUTOINCREMENT, peer INTEGER NOT NULL, content BLOB NOT NULL);
"""

# Created at each start if missing: older files have other indexes.
_INDEXES = """
CREATE INDEX IF NOT EXISTS held_by_last ON held (peer, last, size);
CREATE INDEX IF NOT EXISTS held_unsealed ON held (peer) WHERE last IS NULL;
CREATE INDEX IF NOT EXISTS inbox_by_size ON inbox (peer, size);
DROP INDEX IF EXISTS inbox_by_peer;
"""

T = TypeVar("T")


class DeviceFile:
    """The open file. Several processes may open it; their transactions are serialised."""

    def __init__(self, path: Path, connection: SqliteConnection, keys: HubKeys) -> None:
        self.path = path
        self.keys = keys
        self._connection = connection
        self._lock = threading.RLock()

    @classmethod
    def open(cls, path: Path, keys: HubKeys, durability: Durability = "power") -> "DeviceFile":
        """Open the state file, created if it does not exist; raise a `RemitError` if *keys* do not match."""
        try:
            connection = connect_writer(path, durability, _BUSY_S)
        except TROUBLE as error:
            raise translate(error, path) from error
        state = cls(path, connection, keys)
        try:
            state._prepare()
        except BaseException:
            connection.close()
            raise
        return state

    def close(self) -> None:
        with self._lock:
            self._connection.close()

    @contextmanager
    def writing(self) -> Generator[None]:
        """Run the block as one transaction: durable at the end, or rolled back if anything is raised."""
        with self._lock:
            if self._connection.in_transaction:
                yield
                return
            try:
                with write_lock(self._connection):
                    yield
            except TROUBLE as error:
                raise translate(error, self.path) from error

    @property
    def is_writing(self) -> bool:
        return self._connection.in_transaction

    @contextmanager
    def apart(self) -> Generator[None]:
        """Run the block as a savepoint: if anything is raised, only this part is rolled back."""
        self.execute("SAVEPOINT apart")
        try:
            yield
        except BaseException:
            # A disk error may have ended the whole transaction already.
            if self.is_writing:
                self.execute("ROLLBACK TO apart")
                self.execute("RELEASE apart")
            raise
        self.execute("RELEASE apart")

    def version(self) -> tuple[int, int] | None:
        """Return a value that changes with each commit, of this process or another; None if that cannot be told now.

        It takes microseconds and does not wait, so that an event loop can ask often.
        """
        if not self._lock.acquire(blocking=False):
            return None
        try:
            return self._connection.pragma("data_version"), self._connection.total_changes()
        except TROUBLE:
            return None
        finally:
            self._lock.release()

    def execute(self, statement: str, *bindings: Any) -> Rows:
        return self._connection.execute(statement, bindings)

    def rows(self, statement: str, *bindings: Any) -> list[tuple[Any, ...]]:
        """Return the rows of a query, from one snapshot."""
        with self._lock:
            try:
                return self._connection.execute(statement, bindings).fetchall()
            except TROUBLE as error:
                raise translate(error, self.path) from error

    def one(self, statement: str, *bindings: Any) -> tuple[Any, ...] | None:
        """Return the first row of a query."""
        return next(iter(self.rows(statement, *bindings)), None)

    # ── encryption ────────────────────────────────────────────────────────────────────────────────────────────────────

    def tag(self, text: str) -> bytes:
        """Return the keyed digest of *text* for a searchable column; without the key it cannot be guessed."""
        return self.keys.digest(text.encode())

    def lock(self, value: object, place: str) -> bytes:
        """Return a value encrypted for *place*; it can be decrypted only there."""
        return self.keys.lock(msgspec.msgpack.encode(value), place)

    def unlock(self, content: bytes, place: str, kind: type[T]) -> T:
        """Return the value that was encrypted for *place*, or raise `StoreError` if it was changed or moved."""
        plain = self.keys.unlock(content, place)
        if plain is None:
            raise self.damage(f"the value at {place} was not written there by this device")
        return msgspec.msgpack.decode(plain, type=kind)

    def damage(self, what: str) -> StoreError:
        """Return the error for a file that was damaged or changed from outside."""
        return StoreError(
            fault(
                Code.STORE_UNAVAILABLE,
                f"{self.path} is damaged: {what}",
                suggestion="Restore it from a backup; or move it and its key away, create a new device, and pair.",
            )
        )

    # ── named values ──────────────────────────────────────────────────────────────────────────────────────────────────

    def fact(self, name: str, kind: type[T]) -> T | None:
        """Return the value stored under *name*, if there is one."""
        found = self.one("SELECT value FROM facts WHERE name = ?", name)
        return None if found is None else self.unlock(found[0], f"facts/{name}", kind)

    def keep(self, name: str, value: object) -> None:
        """Store a value under *name*, replacing the previous one."""
        with self.writing():
            self.execute("INSERT OR REPLACE INTO facts VALUES (?, ?)", name, self.lock(value, f"facts/{name}"))

    def _prepare(self) -> None:
        try:
            with self._lock:
                self._connection.pragma("journal_mode", "wal")
                # Deleted content must not stay in free pages of the file.
                self._connection.pragma("secure_delete", 1)
            with self.writing():
                version: int = self._connection.pragma("user_version")
                if version == 0:
                    self.execute(_SCHEMA)
                    self._connection.pragma("user_version", VERSION)
                    self.keep("check", _CHECK)
                elif version != VERSION:
                    raise _unusable(
                        f"{self.path} has version {version}, but this Remit supports version {VERSION}",
                        "Use the version of Remit that created it, or a newer one.",
                    )
                self.execute(_INDEXES)
            found = self.one("SELECT value FROM facts WHERE name = 'check'")
        except TROUBLE as error:
            raise translate(error, self.path) from error
        if found is None or self.keys.unlock(found[0], "facts/check") is None:
            raise _unusable(
                f"wrong key for {self.path}",
                "Use the key file or passphrase that it was created with; without it the file cannot be read.",
            )


class FileChanges:
    """Tells whether a file has changed since the last look: most of the time nothing has, and nothing need be read."""

    def __init__(self, state: DeviceFile) -> None:
        self._state = state
        self._seen: tuple[int, int] | None = None

    def look(self) -> bool:
        """Return whether the file may have changed since the last call."""
        before, self._seen = self._seen, self._state.version()
        return self._seen is None or self._seen != before


class DecryptedCache(Generic[T]):
    """A cache of decrypted values that are read far more often than they change.

    Values are shared by all callers, and must not be changed.
    """

    def __init__(self, state: DeviceFile, kind: type[T]) -> None:
        self._state = state
        self._kind = kind
        self._last: dict[str, tuple[bytes, T]] = {}

    def lock(self, value: T, place: str) -> bytes:
        """See `DeviceFile.lock`."""
        content = self._state.lock(value, place)
        self._last[place] = content, value
        return content

    def unlock(self, content: bytes, place: str) -> T:
        """See `DeviceFile.unlock`."""
        known = self._last.get(place)
        # Encryption never gives the same bytes twice, so equal bytes mean the same value.
        if known is not None and known[0] == content:
            return known[1]
        value = self._state.unlock(content, place, self._kind)
        self._last[place] = content, value
        return value


def _unusable(message: str, suggestion: str) -> RemitError:
    return RemitError(fault(Code.TEAM_INVALID, message, suggestion=suggestion))
