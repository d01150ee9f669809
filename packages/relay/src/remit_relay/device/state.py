"""The files of a device: its state (SQLite, all content encrypted), the key of that, and a writer of commits."""

import asyncio
import hashlib
import logging
import os
import secrets
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Generic, TypeVar

import msgspec
from msgspec import Meta, Struct

from remit.ports import StoreError
from remit.ports.keys import HubKeys
from remit.protocol.errors import Code, RemitError, fault
from remit.stores.connection import TROUBLE, Durability, Rows, SqliteConnection, connect_writer, translate, write_lock
from remit.stores.group_commit import GroupCommit, resolve
from remit_server.transports.credentials.keys import write_private

# ── the key file ──────────────────────────────────────────────────────────────────────────────────────────────────────

# These files are beside the store of the device's team.
DEVICE_FILE = "device.db"
LOCK_FILE = "device.lock"
"""Locked by the process that runs the device."""
KEY_FILE = "device.key"

SECRET_BYTES = 32
# 128 MiB and half a second for each guess (RFC 7914's parameters for files); the owner waits once, at the start.
_COST, _BLOCK, _LANES = 2**17, 8, 1
_MEMORY = 2**28
_KEY_CHECK = "remit device key"

_Hex = Annotated[str, Meta(pattern=r"^[0-9a-f]{32,64}\Z")]


class _Open(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="kind", tag="remit-device-key/1"):
    secret: _Hex


class _Locked(
    Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="kind", tag="remit-device-passphrase/1"
):
    """The secret, encrypted with a key derived from the passphrase, so that the passphrase can change."""

    salt: _Hex
    locked: str


def open_keys(path: Path, passphrase: str = "") -> HubKeys:
    """Return the keys for a device's state; create the file if it does not exist (of several processes one wins).

    With a *passphrase* the file alone is useless; without one the file is enough, and only its owner can read it.
    """
    if not path.exists():
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with suppress(FileExistsError):
            write_private(path, _encode_key(secrets.token_bytes(SECRET_BYTES), passphrase), replace=False)
    return HubKeys(_read_key(path, passphrase))


def _encode_key(secret: bytes, passphrase: str) -> bytes:
    if not passphrase:
        return msgspec.json.encode(_Open(secret=secret.hex())) + b"\n"
    salt = secrets.token_bytes(16)
    locked = _stretched(passphrase, salt).lock(secret, _KEY_CHECK)
    return msgspec.json.encode(_Locked(salt=salt.hex(), locked=locked.hex())) + b"\n"


def _read_key(path: Path, passphrase: str) -> bytes:
    try:
        with path.open("rb") as file:
            mode, content = os.fstat(file.fileno()).st_mode, file.read(4_096)
    except OSError as error:
        raise _unusable(f"cannot read {path}: {error.strerror}", "Give this user read permission.") from error
    if os.name == "posix" and mode & 0o077:
        raise _unusable(f"{path} is readable by other users", f"Restrict it: chmod 600 {path}")
    try:
        key_file = msgspec.json.decode(content, type=_Open | _Locked)
        if isinstance(key_file, _Open):
            return bytes.fromhex(key_file.secret)
        salt, locked = bytes.fromhex(key_file.salt), bytes.fromhex(key_file.locked)
    except (ValueError, UnicodeDecodeError):
        # Without its cause, which would show the content of the file.
        raise _unusable(
            f"{path} is damaged: it does not contain a device key",
            "Restore the file from a backup. Without it the device's state cannot be read: move both files away, "
            "create a new device, and pair again.",
        ) from None
    if not passphrase:
        raise _unusable(f"{path} is protected by a passphrase", "Enter the passphrase that was set for it.")
    secret = _stretched(passphrase, salt).unlock(locked, _KEY_CHECK)
    if secret is None:
        raise _unusable(f"wrong passphrase for {path}", "Try again; passphrases are case-sensitive.")
    return secret


def _stretched(passphrase: str, salt: bytes) -> HubKeys:
    return HubKeys(
        hashlib.scrypt(passphrase.encode(), salt=salt, n=_COST, r=_BLOCK, p=_LANES, maxmem=_MEMORY, dklen=SECRET_BYTES)
    )


# ── the state file ────────────────────────────────────────────────────────────────────────────────────────────────────

# Without the key one can see the number of rows, their lengths, and what the gateway sees anyway. The code is
# synchronous; a caller in an event loop uses one thread or `asyncio.to_thread`. Each write is one transaction that is
# durable when it returns, so a device that is killed keeps the state of the last one.

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
CREATE INDEX held_by_last ON held (peer, last, size);
CREATE INDEX held_unsealed ON held (peer) WHERE last IS NULL;
CREATE INDEX inbox_by_size ON inbox (peer, size);
CREATE TABLE losses (id INTEGER PRIMARY KEY AUTOINCREMENT, peer INTEGER NOT NULL, content BLOB NOT NULL);
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
        why = f"{self.path} is damaged: {what}"
        todo = "Restore it from a backup; or move it and its key away, create a new device, and pair."
        return StoreError(fault(Code.STORE_UNAVAILABLE, why, suggestion=todo))

    # ── named values ──────────────────────────────────────────────────────────────────────────────────────────────────

    def fact(self, name: str, kind: type[T]) -> T | None:
        """Return the value stored under *name*, if there is one."""
        row = self.one("SELECT value FROM facts WHERE name = ?", name)
        return None if row is None else self.unlock(row[0], f"facts/{name}", kind)

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
                    why = f"{self.path} has version {version}, but this Remit supports version {VERSION}"
                    todo = "Use the version of Remit that created it, or a newer one."
                    raise _unusable(why, todo)
            check = self.one("SELECT value FROM facts WHERE name = 'check'")
        except TROUBLE as error:
            raise translate(error, self.path) from error
        if check is None or self.keys.unlock(check[0], "facts/check") is None:
            why = f"wrong key for {self.path}"
            todo = "Use the key file or passphrase that it was created with; without it the file cannot be read."
            raise _unusable(why, todo)


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


# ── the writer ────────────────────────────────────────────────────────────────────────────────────────────────────────

# Each piece of work is applied whole or not at all, and is reported only when it is durable.


# Enough that the disk is not the bottleneck, and few enough that later work does not wait long.
MOST_AT_ONCE = 64
# A full disk gets space at any time; looking once a second costs nothing beside what waits for it.
AGAIN_S = 1.0

_log = logging.getLogger("remit.relay")


class FailedWork(Struct, frozen=True):
    """Work that was rolled back, and why."""

    error: Exception


class Work(Struct, frozen=True):
    """A function to run, and a callback for its result once that is durable, or for a `FailedWork`."""

    do: Callable[[], Any]
    report: Callable[[Any], None]


class Commits:
    """Runs work in order, several pieces in each commit.

    *company* may add work to a commit, first or last, before it begins. It learns the outcome of that work before it is
    called for the next commit, so the thread gets one batch at a time.
    """

    def __init__(self, state: DeviceFile, company: Callable[[list[Work]], None] = lambda _: None) -> None:
        self._state = state
        self._company = company
        self._group = GroupCommit[Work](f"remit-device {state.path.name}", self._commit)
        self._group.start()
        self._waiting: deque[Work] = deque()
        self._idle = asyncio.Event()
        self._idle.set()

    def do(self, work: Callable[[], T]) -> "asyncio.Future[T]":
        """Queue *work* and return a future of its result. It runs even if the future is cancelled."""
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._waiting.append(Work(work, partial(_report, future)))
        if self._idle.is_set():
            self._begin()
        return future

    async def close(self) -> None:
        """Wait for all work and end the thread; no work can be queued after that."""
        await self._idle.wait()
        await self._group.stop()

    def _begin(self) -> None:
        self._idle.clear()
        batch = [self._waiting.popleft() for _ in range(min(MOST_AT_ONCE, len(self._waiting)))]
        self._company(batch)
        self._group.queue.extend(batch)
        self._group.wake()

    def _end(self, batch: list[Work], outcomes: list[Any]) -> None:
        for work, outcome in zip(batch, outcomes, strict=True):
            work.report(outcome)
        if self._waiting:
            self._begin()
        else:
            self._idle.set()

    # ── in the thread ─────────────────────────────────────────────────────────────────────────────────────────────────

    def _commit(self, batch: list[Work]) -> bool:
        if not batch:
            return True
        outcomes: list[Any] = []
        works = True
        try:
            with self._state.writing():
                for work in batch:
                    outcomes.append(self._outcome(work))
        except Exception as error:  # noqa: BLE001 - the store failed: the whole commit was rolled back
            outcomes = [each if isinstance(each, FailedWork) else FailedWork(error) for each in outcomes]
            outcomes += [FailedWork(error) for _ in batch[len(outcomes) :]]
            works = False
        self._group.tell(self._end, batch, outcomes)
        return works

    def _outcome(self, work: Work) -> Any:
        try:
            with self._state.apart():
                return work.do()
        except Exception as error:
            if isinstance(error, TROUBLE) or not self._state.is_writing:
                raise  # the store failed, not this work
            return FailedWork(error)


async def until_stored(work: Callable[[], Awaitable[T]]) -> T:
    """Return the result of *work*; while the store cannot be used, as on a full disk, try it again each second.

    It is for work that nobody asked for and so nobody would repeat. The work must change nothing if it fails.
    """
    trouble = ""
    while True:
        try:
            result = await work()
        except StoreError as error:
            if error.fault.message != trouble:
                trouble = error.fault.message
                _log.error("%s; trying again each second", trouble)
            await asyncio.sleep(AGAIN_S)
        else:
            if trouble:
                _log.warning("writing works again after: %s", trouble)
            return result


def _report(future: "asyncio.Future[Any]", outcome: object) -> None:
    if isinstance(outcome, FailedWork):
        resolve(future, None, outcome.error)
    else:
        resolve(future, outcome)
