"""Opens SQLite files, and types the part of a connection that the store uses."""

import os
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, Protocol, cast

import apsw

Durability = Literal["power", "process"]

# In WAL mode FULL waits for the disk at each commit. NORMAL waits only when the log is folded into the file: a killed
# process loses nothing, a power cut the last commits but never the file. OFF would save another 0.3 µs a record and
# risk the file.
_SYNCHRONOUS: dict[Durability, str] = {"power": "FULL", "process": "NORMAL"}


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
    return writer


def connect_reader(path: Path, busy_seconds: float) -> SqliteConnection:
    """Return a connection that only reads."""
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    connection.set_busy_timeout(int(busy_seconds * 1_000))
    _plan_once(connection)
    return cast(SqliteConnection, connection)


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
