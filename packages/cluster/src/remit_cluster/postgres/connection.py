"""Connects to a PostgreSQL server, and translates its errors; no message contains a password."""

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterable, Awaitable, Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Protocol, TypeVar, cast
from urllib.parse import parse_qs, urlsplit

import asyncpg  # pyright: ignore[reportMissingTypeStubs]
import msgspec
from msgspec import Struct

from remit.ports import StoreError
from remit.protocol.errors import Code, fault

# A server that is there answers within milliseconds; one across an ocean within a second.
CONNECT_SECONDS = 10.0
# No statement of the store takes this long, unless the server hangs.
STATEMENT_SECONDS = 60.0
# A read whose connection was lost is tried on new ones for this long.
READ_PATIENCE_SECONDS = 5.0
RETRY_SECONDS = 0.2
# Reads are short; the rest keeps one long listing from blocking the others.
READERS = 4


class PgConnection(Protocol):
    """The part of `asyncpg.Connection` that is used here."""

    async def execute(self, query: str, *args: Any, timeout: float | None = None) -> str: ...

    async def executemany(self, command: str, args: Sequence[Sequence[Any]]) -> None: ...

    async def fetch(self, query: str, *args: Any, timeout: float | None = None) -> list[tuple[Any, ...]]: ...

    async def fetchrow(self, query: str, *args: Any, timeout: float | None = None) -> tuple[Any, ...] | None: ...

    async def fetchval(self, query: str, *args: Any, timeout: float | None = None) -> Any: ...

    def transaction(
        self, *, isolation: str | None = None, readonly: bool = False
    ) -> AbstractAsyncContextManager[object]: ...

    async def add_listener(self, channel: str, callback: Callable[..., None]) -> None: ...

    def is_closed(self) -> bool: ...

    def is_in_transaction(self) -> bool: ...

    async def close(self, *, timeout: float | None = None) -> None: ...

    def terminate(self) -> None: ...


class BulkConnection(PgConnection, Protocol):
    """The part of `asyncpg.Connection` that reads and writes many rows; it is used in transactions only."""

    def cursor(self, query: str, *args: Any, prefetch: int | None = None) -> AsyncIterable[tuple[Any, ...]]: ...

    async def copy_records_to_table(
        self, table_name: str, *, records: Iterable[Sequence[Any]], columns: Sequence[str], schema_name: str
    ) -> str: ...


_connect = cast(
    Callable[..., Awaitable[BulkConnection]],
    asyncpg.connect,  # pyright: ignore[reportUnknownMemberType]
)


T = TypeVar("T")
Query = Callable[[PgConnection], Awaitable[T]]
"""Something to read on a connection."""


class DatabaseAddress(Struct, frozen=True):
    """The address of a database, with its credentials."""

    url: str
    password: str | None = None
    """The password, if the address has none."""
    pooler: bool = False
    """Whether a pooler in transaction mode (PgBouncer) is in between: nothing may be left behind in a session."""
    reading: "Callable[[PgConnection], PgConnection] | None" = None
    """Makes connections read encrypted texts decrypted; None: they read them as they are stored."""

    @property
    def name(self) -> str:
        """The address without its credentials, for people to read."""
        try:
            shown = [urlsplit(each) for each in self._each_host()]
            hosts = [f"{each.hostname or 'localhost'}{f':{each.port}' if each.port else ''}" for each in shown]
            return f"postgresql://{','.join(hosts)}{shown[0].path}"
        except ValueError:
            return "postgresql://…"

    def __repr__(self) -> str:
        return f"DatabaseAddress({self.name})"

    async def connect(self) -> PgConnection:
        """Return a new connection, or raise `StoreError`."""
        connection = await self.connect_bulk()
        return connection if self.reading is None else self.reading(connection)

    @asynccontextmanager
    async def connecting(self) -> AsyncGenerator[PgConnection]:
        """Return a new connection that stays open, unless what is done with it first fails."""
        connection = await self.connect()
        try:
            yield connection
        except BaseException as error:
            connection.terminate()
            if isinstance(error, (*TROUBLE, asyncpg.PostgresError, asyncpg.InterfaceError)):
                raise self.translate(error) from error
            raise

    async def connect_bulk(self) -> BulkConnection:
        """Return a new connection that reads and writes many rows at once, encrypted texts as they are stored."""
        try:
            connection = await _first(
                self._candidates(),
                password=self.password,
                timeout=CONNECT_SECONDS,
                command_timeout=STATEMENT_SECONDS,
                # Prepared statements stay in a session, and a pooler gives the session to others.
                statement_cache_size=0 if self.pooler else 200,
                server_settings={"application_name": "remit"},
            )
        except TROUBLE as error:
            raise self.translate(error) from None
        except (ValueError, asyncpg.InterfaceError):
            # Their text may quote the address.
            raise StoreError(
                fault(
                    Code.STORE_UNAVAILABLE,
                    f"{self.name}: the address is invalid",
                    suggestion="Write it as postgresql://USER:PASSWORD@HOST:PORT/DATABASE; "
                    "special characters of a password are percent-encoded.",
                )
            ) from None
        return PooledConnection(connection) if self.pooler else connection

    def _each_host(self) -> list[str]:
        """Return the address of each host, if it names several."""
        parts = urlsplit(self.url)
        user, at, hosts = parts.netloc.rpartition("@")
        return [parts._replace(netloc=f"{user}{at}{host}").geturl() for host in hosts.split(",")]

    def _candidates(self) -> list[str]:
        """Return the addresses to try at once: of several hosts, the hub needs the one that accepts writes.

        The driver itself tries one after another within one time-out, and never gets past a machine that is switched
        off. Whoever asks for another kind of host gets what the driver does.
        """
        each = self._each_host()
        wanted = parse_qs(urlsplit(self.url).query).get("target_session_attrs")
        if len(each) == 1 or wanted not in (None, ["read-write"], ["primary"]):
            return [self.url]
        if wanted is None:
            mark = "&" if "?" in self.url else "?"
            each = [f"{one}{mark}target_session_attrs=read-write" for one in each]
        return each

    def translate(self, error: BaseException) -> StoreError:
        """Return an error of this database as a `StoreError`."""
        if isinstance(error, StoreError):
            return error
        for kind, (reason, advice) in _TROUBLES.items():
            if isinstance(error, kind):
                return StoreError(
                    fault(Code.STORE_UNAVAILABLE, f"{self.name}: {reason}{_detail(error)}", suggestion=advice)
                )
        if isinstance(error, asyncpg.InterfaceError) and _CLOSED in str(error):
            return StoreError(
                fault(Code.STORE_UNAVAILABLE, f"{self.name}: the connection was lost ({error})", suggestion=_START)
            )
        if isinstance(error, asyncpg.PostgresError | asyncpg.InterfaceError | asyncpg.InternalClientError):
            if isinstance(error, _OF_DATA):
                # The text of the error may quote unredacted data.
                return StoreError(fault(Code.MALFORMED_ENVELOPE, f"this cannot be recorded: {type(error).__name__}"))
            return StoreError(fault(Code.STORE_UNAVAILABLE, f"{self.name}: {type(error).__name__}{_detail(error)}"))
        if isinstance(error, msgspec.DecodeError):
            return StoreError(fault(Code.STORE_UNAVAILABLE, f"{self.name}: {error}"))
        return StoreError(fault(Code.MALFORMED_ENVELOPE, f"this cannot be recorded: {error}"))


async def _first(urls: Sequence[str], **options: Any) -> BulkConnection:
    """Return the first connection that one of the addresses gives, or raise why none does."""
    if len(urls) == 1:
        return await _connect(urls[0], **options)
    chosen: BulkConnection | None = None

    def discard(task: "asyncio.Task[BulkConnection]") -> None:
        if not task.cancelled() and task.exception() is None and task.result() is not chosen:
            task.result().terminate()

    async def connect(url: str) -> BulkConnection:
        return await _connect(url, **options)

    tasks = [asyncio.create_task(connect(url)) for url in urls]
    errors: list[Exception] = []
    try:
        for each in asyncio.as_completed(tasks):
            try:
                chosen = await each
                return chosen
            except Exception as error:  # noqa: BLE001 - one of them is raised below
                errors.append(error)
    finally:
        for task in tasks:
            task.add_done_callback(discard)
            task.cancel()
    # A server that answered says more than one that is not there.
    raise next((each for each in errors if not isinstance(each, OSError)), errors[0])


class PooledConnection:
    """A connection through a pooler in transaction mode: each statement is in a transaction.

    The driver sends a statement in two steps, and outside a transaction the second may reach another server process.
    """

    def __init__(self, connection: BulkConnection) -> None:
        self._connection = connection
        self.transaction = connection.transaction
        self.cursor = connection.cursor
        self.copy_records_to_table = connection.copy_records_to_table
        self.add_listener = connection.add_listener
        self.is_closed = connection.is_closed
        self.is_in_transaction = connection.is_in_transaction
        self.close = connection.close
        self.terminate = connection.terminate

    @asynccontextmanager
    async def _within(self) -> AsyncGenerator[PgConnection]:
        if self._connection.is_in_transaction():
            yield self._connection
        else:
            async with self._connection.transaction():
                yield self._connection

    async def execute(self, query: str, *args: Any, timeout: float | None = None) -> str:
        if not args:  # sent in one step
            return await self._connection.execute(query, timeout=timeout)
        async with self._within() as connection:
            return await connection.execute(query, *args, timeout=timeout)

    async def executemany(self, command: str, args: Sequence[Sequence[Any]]) -> None:
        async with self._within() as connection:
            await connection.executemany(command, args)

    async def fetch(self, query: str, *args: Any, timeout: float | None = None) -> list[tuple[Any, ...]]:
        async with self._within() as connection:
            return await connection.fetch(query, *args, timeout=timeout)

    async def fetchrow(self, query: str, *args: Any, timeout: float | None = None) -> tuple[Any, ...] | None:
        async with self._within() as connection:
            return await connection.fetchrow(query, *args, timeout=timeout)

    async def fetchval(self, query: str, *args: Any, timeout: float | None = None) -> Any:
        async with self._within() as connection:
            return await connection.fetchval(query, *args, timeout=timeout)


# Said by the driver when a connection ends within a transaction.
_CLOSED = "connection is closed"
# Raised by the driver, too, for values that it cannot encode.
_OF_DATA = (asyncpg.DataError, asyncpg.IntegrityConstraintViolationError, asyncpg.InterfaceError)


def _detail(error: BaseException) -> str:
    text = str(error).strip().splitlines()
    return f" ({text[0]})" if text and not isinstance(error, asyncpg.InternalClientError) else ""


_START = "Start the server, or check host, port and firewall; the store reconnects by itself."

# Each is a problem of the server or the way to it, not of the data: it passes, or someone repairs it.
_TROUBLES: dict[type[BaseException], tuple[str, str]] = {
    asyncpg.InvalidPasswordError: (
        "the server refused the password",
        "Check user and password of the database (`[store]`, or --store of a gateway); "
        "the password is best given by an environment variable.",
    ),
    asyncpg.InvalidAuthorizationSpecificationError: (
        "the server refused the user",
        "Check the user of the database (`[store]`, or --store of a gateway), and pg_hba.conf on the server.",
    ),
    asyncpg.InvalidCatalogNameError: (
        "the database does not exist",
        "Create it: createdb --encoding UTF8 NAME. The store creates its tables itself.",
    ),
    asyncpg.ReadOnlySQLTransactionError: (
        "the server accepts no writes: it is a standby, or is set to read-only",
        "Give the address of the primary server; `target_session_attrs=read-write` chooses it among several hosts.",
    ),
    asyncpg.TargetServerAttributeNotMatched: (
        "no server accepts writes: each is a standby, set to read-only, or not there",
        "Promote a standby, or start the primary server; the store reconnects by itself.",
    ),
    asyncpg.InsufficientPrivilegeError: (
        "the user lacks a right",
        "Let the user own the database or its schema `remit`: GRANT CREATE ON DATABASE … TO …",
    ),
    asyncpg.CannotConnectNowError: ("the server is starting or stopping", "Wait; the store reconnects by itself."),
    asyncpg.TooManyConnectionsError: (
        "the server has no connection left",
        f"Raise max_connections, or put PgBouncer in front: a hub uses up to {READERS + 2} connections.",
    ),
    asyncpg.DiskFullError: (
        "the disk of the server is full",
        "Make room; what is waiting in memory is written as soon as there is some.",
    ),
    asyncpg.OutOfMemoryError: ("the server has no memory left", "Free some memory on the server, then try again."),
    asyncpg.OperatorInterventionError: ("the server ended the connection", _START),
    asyncpg.PostgresConnectionError: ("the connection was lost", _START),
    **dict.fromkeys(
        (asyncpg.InvalidSQLStatementNameError, asyncpg.DuplicatePreparedStatementError),
        (
            "a pooler gave this session to others",
            "Set `pooler = true` in `[store]`: PgBouncer in transaction mode is in between.",
        ),
    ),
    asyncpg.DeadlockDetectedError: ("two hubs blocked each other", "Try again."),
    asyncpg.SerializationError: ("two hubs wrote at once", "Try again."),
    asyncpg.LockNotAvailableError: ("a lock was not available in time", "Try again."),
    asyncpg.InternalServerError: ("the server failed", "See the server's log."),
    asyncpg.InternalClientError: ("the connection was lost", _START),
    asyncpg.ConnectionDoesNotExistError: ("the connection was lost", _START),
    TimeoutError: ("the server does not respond", _START),
    OSError: ("the server cannot be reached", _START),
}

TROUBLE = tuple(_TROUBLES)

# Everything that the driver or the server may raise, and what this module makes of it.
FAULTS: tuple[type[BaseException], ...] = (*TROUBLE, asyncpg.PostgresError, asyncpg.InterfaceError, StoreError)

# After one of these, the connection is of no more use, and a new one may work.
LOST: tuple[type[BaseException], ...] = (
    asyncpg.PostgresConnectionError,
    asyncpg.OperatorInterventionError,
    asyncpg.InternalClientError,
    asyncpg.CannotConnectNowError,
    # A primary that became a standby: another server accepts writes now, or will soon.
    asyncpg.ReadOnlySQLTransactionError,
    TimeoutError,
    OSError,
)

# The transaction was rolled back for the sake of another, and may work the next time.
CONFLICT: tuple[type[BaseException], ...] = (
    asyncpg.DeadlockDetectedError,
    asyncpg.SerializationError,
    asyncpg.LockNotAvailableError,
)


def is_lost(error: BaseException, connection: PgConnection | None) -> bool:
    """Return whether an error means that the connection can no longer be used."""
    if isinstance(error, LOST):
        return True
    # A connection that was closed under a statement answers with an interface error.
    return isinstance(error, asyncpg.InterfaceError) and (connection is None or connection.is_closed())


class Connections:
    """A few connections for reading, opened when they are needed."""

    def __init__(self, address: DatabaseAddress, size: int = READERS) -> None:
        self._address = address
        self._idle: list[PgConnection] = []
        self._free = asyncio.Semaphore(size)
        self._closed = False

    async def read(self, query: Query[T]) -> T:
        """Return the query's result, on a new connection if one is lost, or raise `StoreError`."""

        async def once() -> T:
            async with self.lend() as connection:
                return await query(connection)

        return await self.patiently(once)

    async def patiently(self, work: Callable[[], Awaitable[T]]) -> T:
        """Return the result of *work*, which uses `lend`; try again for a while if a connection is lost or refused."""
        give_up = time.monotonic() + READ_PATIENCE_SECONDS
        while True:
            try:
                return await work()
            except StoreError as error:
                # Raised while connecting: a server that restarts is back within seconds.
                if error.fault.code is not Code.STORE_UNAVAILABLE or time.monotonic() > give_up or self._closed:
                    raise
            except (*TROUBLE, asyncpg.PostgresError, asyncpg.InterfaceError, msgspec.DecodeError) as error:
                if not is_lost(error, None) or time.monotonic() > give_up or self._closed:
                    raise self._address.translate(error) from error
            await asyncio.sleep(RETRY_SECONDS)

    @asynccontextmanager
    async def lend(self) -> AsyncGenerator[PgConnection]:
        """Lend a connection; one that was lost meanwhile, or is in an unknown state, is closed."""
        async with self._free:
            connection = await self._take()
            sound = False
            try:
                yield connection
                sound = True
            except (asyncpg.PostgresError, StoreError) as error:
                sound = not is_lost(error, connection)
                raise
            finally:
                if sound and not connection.is_closed() and not self._closed:
                    self._idle.append(connection)
                else:
                    connection.terminate()

    async def _take(self) -> PgConnection:
        while self._idle:
            connection = self._idle.pop()
            if not connection.is_closed():
                return connection
        return await self._address.connect()

    async def close(self) -> None:
        self._closed = True
        idle, self._idle = self._idle, []
        for connection in idle:
            await close_quietly(connection)


async def close_quietly(connection: PgConnection) -> None:
    """Close a connection, whatever state it is in."""
    try:
        await connection.close(timeout=2)
    except Exception:  # noqa: BLE001 - it is not used any more
        connection.terminate()
