"""A device's own file: SQLite, everything in it that means something locked with the device's key.

What can be read without the key: how many rows there are, how long they are, and what the gateway sees anyway. The
code that uses it is synchronous; a caller in an event loop goes through one thread or `asyncio.to_thread`. Each write
is one transaction that is durable when it returns, so a device that is killed is as it was after the last of them.
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
from remit.stores.connection import Durability, Rows, SqliteConnection, connect_writer, write_lock
from remit.stores.faults import TROUBLE, translate

VERSION = 1
_BUSY_S = 10.0
_CHECK = b"remit device state"

# Ids are never used twice: what others remember of a row must not come to mean another.
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

# Made at each start if they are not there: files of before have others.
_INDEXES = """
CREATE INDEX IF NOT EXISTS held_by_last ON held (peer, last, size);
CREATE INDEX IF NOT EXISTS held_unsealed ON held (peer) WHERE last IS NULL;
CREATE INDEX IF NOT EXISTS inbox_by_size ON inbox (peer, size);
DROP INDEX IF EXISTS inbox_by_peer;
"""

T = TypeVar("T")


class DeviceFile:
    """The open file. One device may be open in several processes; what each does is whole before the next begins."""

    def __init__(self, path: Path, connection: SqliteConnection, keys: HubKeys) -> None:
        self.path = path
        self.keys = keys
        self._connection = connection
        self._lock = threading.RLock()

    @classmethod
    def open(cls, path: Path, keys: HubKeys, durability: Durability = "power") -> "DeviceFile":
        """Return the state in a file, made now if there is none; raise a `RemitError` if *keys* do not open it."""
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
        """Do what follows as one change: whole and durable at the end, or not at all if anything is raised."""
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
        """Do what follows as a part of a change: if anything is raised, this part alone is undone."""
        self.execute("SAVEPOINT apart")
        try:
            yield
        except BaseException:
            # A disk in trouble may have ended the whole of it already.
            if self.is_writing:
                self.execute("ROLLBACK TO apart")
                self.execute("RELEASE apart")
            raise
        self.execute("RELEASE apart")

    def execute(self, statement: str, *bindings: Any) -> Rows:
        return self._connection.execute(statement, bindings)

    def rows(self, statement: str, *bindings: Any) -> list[tuple[Any, ...]]:
        """Return what a query finds, as of one moment."""
        with self._lock:
            try:
                return self._connection.execute(statement, bindings).fetchall()
            except TROUBLE as error:
                raise translate(error, self.path) from error

    def one(self, statement: str, *bindings: Any) -> tuple[Any, ...] | None:
        """Return the first row that a query finds."""
        return next(iter(self.rows(statement, *bindings)), None)

    # ── what is locked ────────────────────────────────────────────────────────────────────────────────────────────────

    def tag(self, text: str) -> bytes:
        """Return what stands for *text* in a column that is searched; nobody without the key can try guesses on it."""
        return self.keys.digest(text.encode())

    def lock(self, value: object, place: str) -> bytes:
        """Return a value as it stands in the file; it can be read at *place* alone."""
        return self.keys.lock(msgspec.msgpack.encode(value), place)

    def unlock(self, content: bytes, place: str, kind: type[T]) -> T:
        """Return the value that was locked for *place*, or raise `StoreError` if somebody changed or moved it."""
        plain = self.keys.unlock(content, place)
        if plain is None:
            raise self.damage(f"what stands at {place} was not written there by this device")
        return msgspec.msgpack.decode(plain, type=kind)

    def damage(self, what: str) -> StoreError:
        """Return the error for when somebody or something else has changed the file."""
        return StoreError(
            fault(
                Code.STORE_UNAVAILABLE,
                f"{self.path} is damaged: {what}",
                suggestion="Put the file back from a backup, or move it away with its key, begin anew, pair again.",
            )
        )

    # ── single facts ──────────────────────────────────────────────────────────────────────────────────────────────────

    def fact(self, name: str, kind: type[T]) -> T | None:
        """Return what was kept under *name*, if anything was."""
        found = self.one("SELECT value FROM facts WHERE name = ?", name)
        return None if found is None else self.unlock(found[0], f"facts/{name}", kind)

    def keep(self, name: str, value: object) -> None:
        """Keep a value under *name*, in place of the one before."""
        with self.writing():
            self.execute("INSERT OR REPLACE INTO facts VALUES (?, ?)", name, self.lock(value, f"facts/{name}"))

    def _prepare(self) -> None:
        try:
            with self._lock:
                self._connection.pragma("journal_mode", "wal")
                # What was taken or settled is not to be found in the free pages of the file.
                self._connection.pragma("secure_delete", 1)
            with self.writing():
                version: int = self._connection.pragma("user_version")
                if version == 0:
                    self.execute(_SCHEMA)
                    self._connection.pragma("user_version", VERSION)
                    self.keep("check", _CHECK)
                elif version != VERSION:
                    raise _unusable(
                        f"{self.path} is of version {version}, and this is made for version {VERSION}",
                        "Use the Remit that made it, or a newer one.",
                    )
                self.execute(_INDEXES)
            found = self.one("SELECT value FROM facts WHERE name = 'check'")
        except TROUBLE as error:
            raise translate(error, self.path) from error
        if found is None or self.keys.unlock(found[0], "facts/check") is None:
            raise _unusable(
                f"{self.path} does not open with this key",
                "Use the key file or passphrase with which it was made; without it nothing in it can be read.",
            )


class Recall(Generic[T]):
    """Values that are read far more often than they change: none is unlocked again that stands in the file as it did.

    They are shared by all who ask, and must not be changed.
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
        # What is locked is never the same bytes twice, so these were made of this very value.
        if known is not None and known[0] == content:
            return known[1]
        value = self._state.unlock(content, place, self._kind)
        self._last[place] = content, value
        return value


def _unusable(message: str, suggestion: str) -> RemitError:
    return RemitError(fault(Code.TEAM_INVALID, message, suggestion=suggestion))
