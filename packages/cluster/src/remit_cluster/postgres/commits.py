"""BatchCommits batches of one hub on one connection, each exactly once, however often the connection is lost.

Each transaction leaves its number in the row of the stream. If the connection is lost during a commit, the next one
finds out by that number whether it happened. So a batch is written once, and under the same numbers, however often it
is tried.
"""

import asyncio
import logging
import secrets
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

import asyncpg  # pyright: ignore[reportMissingTypeStubs]

from remit.ports import RunEpoch, StoreError
from remit.protocol.records import ChainBreak, Kind
from remit.runtime.audit import Tampering
from remit.stores.database import NOW_MS, Entry
from remit.stores.group_commit import resolve
from remit.stores.opening import STORE
from remit.stores.requests import JournalWrite, Write
from remit.stores.transaction import ReplacedRuns
from remit_cluster.postgres.bulk import PendingTake, RefusedError, StreamLostError, StreamPosition
from remit_cluster.postgres.connection import CONFLICT, TROUBLE, DatabaseAddress, PgConnection, close_quietly, is_lost
from remit_cluster.postgres.transaction import PgTransaction
from remit_cluster.postgres.user_keys import PgUserKeys

# A server that restarts is back within seconds; callers wait this long for it before they are told.
PATIENCE_SECONDS = 5.0
# How often a lost connection is tried again.
RETRY_SECONDS = 0.1
# How long the server may take to find out what became of a commit whose connection was lost.
DOUBT_SECONDS = 10

_log = logging.getLogger("remit.store")

# If the hub vanishes in the middle, the server ends the transaction and frees its locks.
_BEGIN = "BEGIN; SET LOCAL idle_in_transaction_session_timeout = '10s'; SET LOCAL lock_timeout = '30s'"

Change = Callable[[PgTransaction], Awaitable[Any]]
"""A write that is not collected with others."""


class UnreachableError(Exception):
    """The database could not be reached in time."""

    def __init__(self, problem: StoreError) -> None:
        super().__init__(str(problem))
        self.problem = problem


# It passes, or someone repairs it: the items are not to blame.
PASSING: tuple[type[BaseException], ...] = (*TROUBLE, UnreachableError)


class QueuedWrite(NamedTuple):
    """A queued operation, and the future for its result."""

    what: Write | Change | None
    """None: a barrier, which writes nothing."""
    future: "asyncio.Future[Any] | None"
    kept: bool = False
    """Whether it is written even if its caller was cancelled."""


Item = Entry | QueuedWrite
"""A queued item; nearly all are entries, which are plain tuples and quick to recognise."""

Result = tuple["asyncio.Future[Any]", Any]


class Commit(NamedTuple):
    """A transaction that was sent to be committed."""

    batch: list[Item]
    transaction: PgTransaction
    results: list[Result]


class BatchCommits:
    """The write connection of a hub, and its stream."""

    def __init__(
        self,
        address: DatabaseAddress,
        *,
        wall_ms: Callable[[], int],
        committed: Callable[[PgTransaction], None],
        requeue: Callable[[list[Item]], None],
    ) -> None:
        self._address = address
        self._wall_ms = wall_ms
        self._committed = committed
        self._requeue = requeue
        self.stream = StreamPosition(_random_id())
        """Where the stream stands, as far as it is acknowledged."""
        self.keep_records = False
        """Whether somebody listens to the records."""
        self.keys: PgUserKeys | None = None
        """The keys under which texts are encrypted; None: they are not."""
        self._connection: PgConnection | None = None
        self._replaced = ReplacedRuns(address.name)
        self._doubt: Commit | None = None
        """A transaction of which nobody knows whether it was committed."""

    def start(self, connection: PgConnection) -> None:
        self._connection = connection

    async def stop(self, *, everything: bool) -> None:
        """Disconnect; *everything* says whether nothing is left to be written."""
        if self._connection is not None:
            if everything and self.stream.batch and self._doubt is None:
                await self._close_stream(self._connection)
            await close_quietly(self._connection)
            self._connection = None
        # The next opening is another stream.
        if self._doubt is None:
            self.stream = StreamPosition(_random_id())

    def doubts(self, batch: list[Item] | None = None) -> bool:
        """Return whether it is not known if a batch, or this one, was committed."""
        return self._doubt is not None and (batch is None or self._doubt.batch is batch)

    async def _close_stream(self, connection: PgConnection) -> None:
        try:
            # Only once everything is in the chain: the chainer passes over closed streams.
            sql = "UPDATE remit.stream SET closed = true WHERE id = $1 AND chained = number"
            await connection.execute(sql, self.stream.id)
        except Exception as error:  # noqa: BLE001 - an open stream costs the chainer one look, and nothing is lost
            _log.debug("%s: the stream was not closed: %s", self._address.name, type(error).__name__)

    async def persist(self, batch: list[Item], patience_s: float) -> None:
        """Commit the batch, on new connections if need be, or raise what keeps it from being committed."""
        loop = asyncio.get_running_loop()
        give_up = loop.time() + patience_s
        careful = False
        while True:
            try:
                if not await self._connect(batch):
                    await self._commit(batch, careful=careful)
                return
            except RefusedError:
                careful = True
                continue
            except StreamLostError:
                self._disconnect()
                continue
            except (*PASSING, asyncpg.InterfaceError) as error:
                if isinstance(error, UnreachableError) or is_lost(error, self._connection):
                    self._disconnect()
                elif not isinstance(error, CONFLICT):
                    raise
                if loop.time() > give_up:
                    raise self._unreachable(error) from error
            await asyncio.sleep(RETRY_SECONDS)

    def _unreachable(self, error: BaseException) -> "UnreachableError":
        return error if isinstance(error, UnreachableError) else UnreachableError(self._address.translate(error))

    async def _connect(self, batch: list[Item]) -> bool:
        """Connect if there is no connection; return whether *batch* turns out to be committed already."""
        if self._connection is not None and not self._connection.is_closed() and self._doubt is None:
            return False
        self._disconnect()
        try:
            connection = await self._address.connect()
        except StoreError as error:
            raise UnreachableError(error) from error
        try:
            committed = await self._compare(connection, batch)
        except BaseException:
            connection.terminate()
            raise
        self._connection = connection
        _log.info("%s: connected again", self._address.name)
        return committed

    async def _compare(self, connection: PgConnection, batch: list[Item]) -> bool:
        """Compare the stream in the database with what was acknowledged, and settle the transaction in doubt."""
        if not self.stream.batch and self._doubt is None:
            return False
        async with connection.transaction():
            await connection.execute(f"SET LOCAL lock_timeout = '{DOUBT_SECONDS}s'")
            # The lock waits for a commit that the server has not finished yet.
            sql = "SELECT batch, number FROM remit.stream WHERE id = $1 FOR UPDATE"
            row = await connection.fetchrow(sql, self.stream.id)
        known, number = row or (0, 0)
        doubt, self._doubt = self._doubt, None
        if doubt is not None and known == doubt.transaction.stream.batch:
            self._acknowledge(doubt)
            return doubt.batch is batch
        if known != self.stream.batch:
            self._lose(number)
        if doubt is not None and doubt.batch is not batch:
            self._requeue(doubt.batch)
        return False

    def _lose(self, number: int) -> None:
        """Begin a new stream after the database lost records that it had acknowledged, and record that."""
        lost = self.stream
        text = (
            f"after a reconnection, stream {lost.id} ended at record {number} in the database;"
            f" records up to {lost.number} had been acknowledged and are lost"
        )
        _log.error("%s: ACKNOWLEDGED RECORDS ARE LOST: %s", self._address.name, text)
        self.stream = StreamPosition(_random_id())
        at_ms = self._wall_ms()
        self._requeue([(Kind.BREAK, at_ms, STORE, STORE, ChainBreak(finding=Tampering.TRUNCATED, text=text), 0)])

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.terminate()

    async def _commit(self, batch: list[Item], *, careful: bool) -> None:
        connection = self._connection
        assert connection is not None
        work = [each for each in batch if not _is_idle(each)]
        results: list[Result] = [
            (each.future, None)
            for each in batch
            if isinstance(each, QueuedWrite) and each.what is None and each.future is not None
        ]
        if not work:
            for future, result in results:
                resolve(future, result)
            return
        transaction = PgTransaction(
            connection, self.stream, self._wall_ms(), keep_records=self.keep_records, keys=self.keys
        )
        await connection.execute(_BEGIN)
        try:
            if not self.stream.batch:
                await connection.execute(
                    f"INSERT INTO remit.stream (id, opened_ms, batch, number) VALUES ($1, {NOW_MS}, 0, 0)",
                    self.stream.id,
                )
            results += await _apply(work, transaction, careful=careful)
            await transaction.write(last=True)
        except BaseException:
            if not connection.is_closed():
                await self._roll_back(connection)
            raise
        commit = Commit(batch, transaction, results)
        self._doubt = commit
        # If this raises, nobody knows whether it happened, and the next connection finds out.
        await connection.execute("COMMIT")
        self._doubt = None
        self._acknowledge(commit)

    async def _roll_back(self, connection: PgConnection) -> None:
        try:
            await connection.execute("ROLLBACK")
        except Exception:  # noqa: BLE001 - a connection that cannot even roll back is of no more use
            self._disconnect()

    def _acknowledge(self, commit: Commit) -> None:
        transaction = commit.transaction
        self.stream = transaction.stream
        if transaction.replaced:
            self._replaced.report(transaction.replaced)
        self._committed(transaction)
        for future, result in commit.results:
            if isinstance(result, JournalWrite):
                result = result.run in transaction.journalled
            elif isinstance(result, PendingTake):
                result = result.taken
            resolve(future, result)


async def _apply(batch: list[Item], transaction: PgTransaction, *, careful: bool) -> list[Result]:
    """Apply the batch in order, and return the results for waiting callers."""
    results: list[Result] = []
    for item in batch:
        if not isinstance(item, QueuedWrite):
            if not careful or not await transaction.is_replaced(RunEpoch(item[2], item[5])):
                transaction.extend([item])
            continue
        what, future, _ = item
        if isinstance(what, Write):
            result = await (transaction.alone(what) if careful else transaction.collect(what))
            if isinstance(what, JournalWrite) and not careful:
                result = what
        else:
            assert what is not None
            await transaction.write()
            result = await what(transaction)
        if future is not None:
            results.append((future, result))
    return results


def _is_idle(item: Item) -> bool:
    """Return whether an item writes nothing: it is a barrier, or its caller was cancelled before the work began."""
    if not isinstance(item, QueuedWrite):
        return False
    return item.what is None or (item.future is not None and item.future.done() and not item.kept)


def _random_id() -> int:
    return secrets.randbits(63)
