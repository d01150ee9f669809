"""One SQL for both engines: queries are written as PostgreSQL has them, and a table of differences makes SQLite's."""

import re
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import lru_cache
from typing import Any, Protocol, TypeVar, cast

import msgspec

from remit.ports import RunEpoch
from remit.protocol.envelope import Request, Response
from remit.protocol.records import Body, Kind
from remit.stores.connection import SqliteConnection

T = TypeVar("T")

# The clock of the server: the clocks of hubs may differ by minutes, and leases must not.
NOW_MS = "(extract(epoch FROM clock_timestamp()) * 1000)::bigint"

# The state of a request, in the words of the indexes that have only a part of all requests: an index is used only by a
# condition that repeats its words.
KEPT = "state < 2"
"""The run goes on, or its outcome is still given to whoever asks again; found by its id, or by its run."""
OPEN = "state = 0"
"""The run goes on; found by its lease."""
KEPT_OPEN = f"{KEPT} AND {OPEN}"
"""The run goes on; found by its id, or by its run."""
OVER = "state = 1"
"""The run has ended, and its outcome is kept; found by when it ended."""
FORGOTTEN = "state = 2"
"""The outcome is no longer given; found by its run."""


class SqlConnection(Protocol):
    """The part of a connection that shared queries use."""

    async def execute(self, query: str, *args: Any) -> object: ...

    async def executemany(self, command: str, args: Sequence[Sequence[Any]]) -> None: ...

    async def fetch(self, query: str, *args: Any) -> list[tuple[Any, ...]]: ...

    async def fetchrow(self, query: str, *args: Any) -> tuple[Any, ...] | None: ...

    async def fetchval(self, query: str, *args: Any) -> Any: ...

    def transaction(self) -> AbstractAsyncContextManager[object]: ...


Query = Callable[[SqlConnection], Awaitable[T]]
"""Something to read on a connection to either engine."""


Entry = tuple[Kind, int, str, str, Body, int]
"""A record before it has a number: kind, at_ms, run, session, body, and the epoch of its run or 0."""


class SqlChange(Protocol):
    """An open write transaction of either engine."""

    now_ms: int

    @property
    def database(self) -> SqlConnection: ...

    def extend(self, entries: "list[Entry]") -> None:
        """Append records, except those with a stale epoch."""
        ...

    async def encrypted(self, user: str, text: bytes) -> bytes:
        """Return a text as it is stored: under the key of its user, if the store encrypts."""
        ...

    async def is_replaced(self, claim: RunEpoch) -> bool:
        """Return whether a run has been claimed again, or released, since a hub claimed it."""
        ...

    async def claim(self, run: str, worker: str, lease_ms: int) -> int | None:
        """Return the new epoch of a run that no worker holds."""
        ...

    async def begin_changed(self, request: Request) -> None:
        """Record the form in which a request begins, if that is another than was submitted."""
        ...

    async def end(self, run: str, epoch: int, response: Response, at_ms: int) -> None:
        """Record the outcome of a run that nobody else can end meanwhile."""
        ...

    def epoch_changed(self, run: str) -> None:
        """Note that the epoch of a run is another one now."""
        ...

    async def end_leases(self, worker: str, within_ms: int) -> bool:
        """End the leases of a worker that is known to be dead; False: it has none, or has shown life since."""
        ...

    async def forget_outcomes(self, before_ms: int) -> None:
        """No longer give the outcomes of runs that ended before."""
        ...

    async def expired(self, now_ms: int) -> list[tuple[Any, ...]]:
        """Return the open runs whose lease has ended: run, epoch, attempts, whether it waits, and the request."""
        ...


# ── SQLite ────────────────────────────────────────────────────────────────────────────────────────────────────────────

# What SQLite calls otherwise, in the order in which it is replaced. Whatever writes names the table, and whatever reads
# may get a view of the same name, which decrypts.
_DIFFERENCES = tuple(
    (re.compile(pattern), text)
    for pattern, text in (
        (r"\b(INSERT INTO|UPDATE|DELETE FROM) remit\w*\.", r"\1 main."),
        (r"\bremit\.chained\b", "record"),
        (r"\bremit\w*\.", ""),
        (r"\btx, stream, number\b", "seq"),
        (r"::\w+(\[\])?", ""),
        (r"\bposition\((\$\d+) IN body\)", r"instr(body, \1)"),
        (r"\$(\d+)", r"?\1"),
        (r"= ANY \((\?\d+)\)", r"IN (SELECT value FROM json_each(\1))"),
        (r"\bstarts_with\(([^(),]+), ([^(),]+)\)", r"substr(\1, 1, length(\2)) = \2"),
        (r' COLLATE "C"', ""),
        (r"\bgreatest\(", "max("),
        (r"\bleast\(", "min("),
        (r" FOR UPDATE\b( OF \w+)?", ""),
        # Declarations of tables.
        (r"/\* keyed \*/", "WITHOUT ROWID"),
        (r"\bGENERATED ALWAYS AS IDENTITY ", ""),
        (r"\b(bigint|smallint|boolean)\b", "INTEGER"),
        (r"\bbytea\b", "BLOB"),
    )
)


_NOW = "{now_ms}"


@lru_cache(500)
def in_sqlite(query: str) -> str:
    """Return a statement in SQLite's words; `NOW_MS` becomes a value that is given last."""
    query = query.replace(NOW_MS, _NOW)
    for pattern, text in _DIFFERENCES:
        query = pattern.sub(text, query)
    return query


def wall_ms() -> int:
    """Return the milliseconds since 1970, by the clock of this machine."""
    return time.time_ns() // 1_000_000


class SqliteDatabase:
    """A connection to a SQLite file, as shared queries see it; nothing here ever waits."""

    def __init__(self, connection: SqliteConnection, now_ms: Callable[[], int] = wall_ms) -> None:
        """*now_ms* is the clock in place of that of a server."""
        self._connection = connection
        self._now_ms = now_ms

    async def execute(self, query: str, *args: Any) -> None:
        self._rows(query, args)

    async def executemany(self, command: str, args: Sequence[Sequence[Any]]) -> None:
        for each in args:
            self._rows(command, each)

    async def fetch(self, query: str, *args: Any) -> list[tuple[Any, ...]]:
        return self._rows(query, args)

    async def fetchrow(self, query: str, *args: Any) -> tuple[Any, ...] | None:
        return next(iter(self._rows(query, args)), None)

    async def fetchval(self, query: str, *args: Any) -> Any:
        row = next(iter(self._rows(query, args)), None)
        return row[0] if row else None

    def _rows(self, query: str, args: Sequence[Any]) -> list[tuple[Any, ...]]:
        text, values = in_sqlite(query), [*map(_sqlite_value, args)]
        if _NOW in text:
            values.append(self._now_ms())
            text = text.replace(_NOW, f"?{len(values)}")
        return self._connection.execute(text, values).fetchall()

    @asynccontextmanager
    async def transaction(self) -> AsyncGenerator[None]:
        """Hold one state of the file; a transaction that is open already goes on."""
        if self._connection.in_transaction:
            yield
            return
        self._connection.execute("BEGIN")
        try:
            yield
            self._connection.execute("COMMIT")
        except BaseException:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
            raise


def _sqlite_value(value: Any) -> Any:
    return msgspec.json.encode(cast("list[Any]", value)).decode() if isinstance(value, list) else value


def at_once(work: Awaitable[T]) -> T:
    """Return the result of a query on a SQLite file, which is there at once."""
    try:
        cast("Coroutine[Any, Any, T]", work).send(None)
    except StopIteration as done:
        return cast(T, done.value)
    raise RuntimeError("a query of a SQLite file waits for something else")


def ask(connection: SqliteConnection, query: Query[T], now_ms: Callable[[], int] = wall_ms) -> T:
    """Return the result of a query on a connection to a SQLite file."""
    return at_once(query(SqliteDatabase(connection, now_ms)))
