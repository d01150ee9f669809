"""Opens and writes the files of a SQLite store, and translates errors of SQLite and the file system."""

import os
import secrets
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, Protocol, cast

import apsw
import msgspec

from remit.ports import StoreError
from remit.protocol.errors import Code, fault

Durability = Literal["power", "process"]

# In WAL mode FULL waits for the disk at each commit. NORMAL waits only when the log is folded into the file: a killed
# process loses nothing, a power cut the last commits but never the file. OFF would save another 0.3 µs a record and
# risk the file.
_SYNCHRONOUS: dict[Durability, str] = {"power": "FULL", "process": "NORMAL"}

# Half of SQLite's default. Rows are appended and new runs sort last, so few pages are read again: 200,000 records cost
# the same with either size.
_CACHE_KIB = 1_000


class Rows(Protocol):
    """The result of a statement."""

    def __iter__(self) -> Iterator[tuple[Any, ...]]: ...

    def fetchone(self) -> tuple[Any, ...] | None: ...

    def fetchall(self) -> list[tuple[Any, ...]]: ...


class SqliteConnection(Protocol):
    """The part of `apsw.Connection` that is used here; its own annotations are not complete."""

    in_transaction: bool

    def execute(self, statements: str, bindings: Sequence[Any] = ..., /) -> Rows: ...

    def changes(self) -> int: ...

    def total_changes(self) -> int: ...

    def pragma(self, name: str, value: Any = ..., /) -> Any: ...

    def set_busy_timeout(self, milliseconds: int, /) -> None: ...

    def set_wal_hook(self, hook: Callable[[Any, str, int], int], /) -> None: ...

    def wal_checkpoint(self) -> tuple[int, int]: ...

    def close(self) -> None: ...


def connect_writer(path: Path, durability: Durability, busy_seconds: float) -> SqliteConnection:
    """Return a connection that writes; the file and its folder are created if they do not exist."""
    # Private whatever the umask: the key is in the same folder, and file names reveal what is done here.
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    # Created here and not by SQLite, so that nobody else can read it; its log inherits these permissions.
    os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
    connection = apsw.Connection(str(path))
    connection.set_busy_timeout(int(busy_seconds * 1_000))
    _plan_once(connection)
    writer = cast(SqliteConnection, connection)
    writer.pragma("synchronous", _SYNCHRONOUS[durability])
    writer.pragma("cache_size", -_CACHE_KIB)
    # What is deleted is overwritten. Hubs delete little, and not on the way of a request.
    writer.pragma("secure_delete", 1)
    return writer


def connect_reader(path: Path, busy_seconds: float) -> SqliteConnection:
    """Return a connection that only reads."""
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    connection.set_busy_timeout(int(busy_seconds * 1_000))
    _plan_once(connection)
    return cast(SqliteConnection, connection)


def connect_file(path: Path) -> SqliteConnection:
    """Return a connection to a file that no hub works with: a backup, or a store that is being replaced."""
    return cast(SqliteConnection, apsw.Connection(str(path)))


def copy_database(source: SqliteConnection, target: SqliteConnection) -> None:
    """Copy one snapshot of a database, which does not block its writers."""
    # In one step: a copy that paused would begin anew after each commit.
    with cast(apsw.Connection, target).backup("main", cast(apsw.Connection, source), "main") as backup:
        backup.step(-1)


def _plan_once(connection: apsw.Connection) -> None:
    # Otherwise a query with `>` or `IS NULL` is planned again for each new value (8 µs each), by statistics that these
    # files do not have.
    connection.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)


@contextmanager
def write_lock(connection: SqliteConnection) -> Generator[None]:
    """Hold the file's write lock; commit at the end, or roll back if anything fails."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        # A full disk may have ended the transaction already.
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


# Each is a problem of the store, not of the data: it passes, or someone repairs it.
_TROUBLES: dict[type[Exception], tuple[str, str]] = {
    apsw.FullError: (
        "the disk is full, or the file has reached its size limit",
        "Make room; what is waiting in memory is written as soon as there is some.",
    ),
    apsw.BusyError: (
        "another process keeps it locked",
        "Find the process that holds a transaction open on the file, and end it; then try again.",
    ),
    apsw.LockedError: ("another process keeps it locked", "Find the process that locked the file, and end it."),
    apsw.CorruptError: (
        "the file is damaged",
        "Stop every process that uses it, keep a copy, then restore a backup or try `sqlite3 FILE .recover`.",
    ),
    apsw.NotADBError: ("it is not a SQLite database", "Give the store a file of its own, or restore a backup."),
    apsw.ReadOnlyError: (
        "the file or its folder cannot be written to",
        "Give this user the right to write the file and its folder, or choose another path.",
    ),
    apsw.CantOpenError: (
        "the file cannot be opened",
        "Check that the folder exists, that the path is not a folder, and that this user may read and write there.",
    ),
    apsw.PermissionsError: ("access is denied", "Give this user the right to read and write the file and its folder."),
    apsw.IOError: (
        "reading or writing it failed",
        "Check the disk and its free space; what is waiting in memory is written as soon as writing works again.",
    ),
    apsw.NoMemError: ("there is no memory left", "Free some memory, then try again."),
    apsw.ProtocolError: ("its locks are in a bad state", "End the other processes that use the file, then try again."),
    apsw.InterruptError: ("the operation was interrupted", "Try again."),
    OSError: ("the file system refused", "Check the path, its folder's permissions, and the free space."),
}

TROUBLE = tuple(_TROUBLES)


def translate(error: Exception, path: Path) -> StoreError:
    """Return *error*, raised for the file at *path*, as a `StoreError`."""
    if isinstance(error, StoreError):
        return error
    for kind, (reason, advice) in _TROUBLES.items():
        if isinstance(error, kind):
            return StoreError(fault(Code.STORE_UNAVAILABLE, f"{path}: {reason} ({error})", suggestion=advice))
    if isinstance(error, apsw.Error | msgspec.DecodeError):
        return StoreError(fault(Code.STORE_UNAVAILABLE, f"{path}: {error}"))
    return StoreError(fault(Code.MALFORMED_ENVELOPE, f"this cannot be recorded: {error}"))


def write_private(path: Path, content: bytes) -> None:
    """Write a file that only its owner can read; it gets its name once it is complete and on the disk."""
    draft = path.with_name(f"{path.name}.{secrets.token_hex(4)}.draft")
    handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)


def sync(path: Path) -> None:
    """Return once a file or folder is on the disk."""
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
