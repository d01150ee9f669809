"""The writer of the store: records and operations, many in one transaction and one disk write."""

import asyncio
import logging
import sys
import time
from collections.abc import Callable, Iterable
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple, TypeVar, cast

import apsw

from remit.protocol.envelope import Response
from remit.protocol.records import Kind, Notice, Record
from remit.stores.checkpoints import Checkpoints
from remit.stores.connection import TROUBLE, SqliteConnection, translate, write_lock
from remit.stores.database import Entry
from remit.stores.group_commit import GroupCommit, resolve
from remit.stores.transaction import ReplacedRuns, RunEpochs, Transaction
from remit.stores.user_keys import UserKeys

T = TypeVar("T")
Listener = Callable[[list[Record]], None]

# This many records are worth waking the writer (which costs 41 µs); fewer wait for more, or for the idle timer.
WAKE_AT = 1_000
IDLE_SECONDS = 0.1
# How long a request that changes nothing may wait to share the commit of its outcome. Agents that take longer gain
# nothing by it, and other processes should see the request.
SOON_SECONDS = 0.01
# The loop writes up to this many items itself while the disk is fast, which takes a few milliseconds at most. A busy
# server has about this many requests in flight.
IN_LOOP = 100
# The log is merged into the file once it has this many pages: SQLite's own default.
MERGE_PAGES = 1_000
# While a batch is written, the loop pauses once in this many records, for this long.
GIVE_WAY_EVERY = 16
GIVE_WAY_SECONDS = 0.00002
# After a disk error the writer retries by itself, so that the queue is written once the error has passed.
RETRY_SECONDS = 0.25
# A checkpoint that could not be written is less urgent.
SEAL_RETRY_SECONDS = 5.0

_log = logging.getLogger("remit.store")


class WriteOperation(NamedTuple):
    """An operation in a transaction, and the future for its result."""

    apply: Callable[[Transaction], Any]
    future: "asyncio.Future[Any] | None"
    kept: bool = False
    """Whether it runs even if its caller was cancelled."""


Item = Entry | WriteOperation
"""A queued item; nearly all are entries, which are plain tuples and quick to recognise."""

Result = tuple["asyncio.Future[Any]", Any, Exception | None]
"""A waiting future, and its result or error."""


class StoreWriter:
    """The queue and the thread behind it. Everything but `_write` and what it calls happens in the event loop.

    While the disk is fast, `_write` runs there, too: a commit then takes less time than switching threads twice.
    """

    def __init__(
        self,
        path: Path,
        *,
        wall_ms: Callable[[], int],
        commit_hook: Callable[[], None] | None,
        ended: Callable[[list[tuple[str, Response]]], None],
    ) -> None:
        self._path = path
        self._wall_ms = wall_ms
        self._commit_hook = commit_hook
        self._ended = ended
        self._group = GroupCommit[Item](
            f"remit-writer {path.name}",
            self._write,
            close=self._end,
            enough=WAKE_AT,
            linger_s=IDLE_SECONDS,
            in_loop=0 if commit_hook else IN_LOOP,
        )
        self.queue = self._group.queue
        """Items to write, oldest first."""
        self.sizes: dict[str, int] = {}
        """The recorded bytes of the runs that the loop watches. The thread adds to them, and never adds a run."""
        self.calm = sys.maxsize
        """Up to this queue length, callers that append need not `nudge`."""
        self._listeners: dict[object, Listener] = {}
        self._eager: set[object] = set()
        """Those of them for whom the writer is woken."""
        self._crowd: list[asyncio.Future[None]] = []
        self._epochs, self._replaced = RunEpochs(), ReplacedRuns(str(path))
        self._troubled = False

    def start(self, connection: SqliteConnection, checkpoints: Checkpoints, keys: UserKeys | None = None) -> None:
        self._connection = connection
        self._keys = keys
        self._checkpoints = checkpoints
        self._busy_ms: int = connection.pragma("busy_timeout")
        self._pages = 0
        # In place of SQLite's own hook, which would merge the log in whichever thread commits.
        connection.set_wal_hook(self._committed)
        self._loop = asyncio.get_running_loop()
        self.calm = 0
        self._group.start()

    async def stop(self) -> None:
        """Let the thread write the queue, if it can, and stop it."""
        self.calm = sys.maxsize
        await self._group.stop()
        self.calm = sys.maxsize  # the thread has changed it
        self._settle([], None)

    # ── in the event loop ─────────────────────────────────────────────────────────────────────────────────────────────

    def nudge(self) -> None:
        """Write the queue: now if it is long enough or there are listeners, else shortly."""
        if len(self.queue) >= WAKE_AT:
            self._group.wake()
        elif self._eager:
            self._group.wake_soon()
        else:
            self._group.wake_within(IDLE_SECONDS)
        if self._eager:
            self.calm = 0
        elif self._group.busy:
            self._give_way()
            self.calm = len(self.queue) + GIVE_WAY_EVERY
        else:
            self.calm = WAKE_AT - 1

    def _give_way(self) -> None:
        # A busy loop releases the interpreter lock at every turn, but takes it back before the woken writer gets it:
        # both pay, and the writer starves. So the loop pauses for a moment.
        time.sleep(GIVE_WAY_SECONDS)

    def do(self, apply: Callable[[Transaction], T], *, kept: bool = False) -> "asyncio.Future[T]":
        """Queue *apply*; the future has its result once the transaction that it was part of is durable."""
        future: asyncio.Future[T] = self._loop.create_future()
        self.queue.append(WriteOperation(apply, future, kept))
        self._group.wake_soon()
        return future

    def do_soon(self, apply: Callable[[Transaction], T]) -> "asyncio.Future[T]":
        """Queue *apply* for the next transaction, at most `SOON_SECONDS` from now, even if the future is cancelled."""
        future: asyncio.Future[T] = self._loop.create_future()
        self.queue.append(WriteOperation(apply, future, kept=True))
        if self._eager:
            self._group.wake_soon()
        else:
            self._group.wake_within(SOON_SECONDS)
        return future

    def later(self, apply: Callable[[Transaction], object]) -> None:
        """Queue *apply* for when a batch is written anyway."""
        self.queue.append(WriteOperation(apply, None))
        if len(self.queue) > self.calm:
            self.nudge()

    @property
    def is_idle(self) -> bool:
        """Whether everything that was queued is written."""
        return not self.queue and not self._group.busy

    async def room(self, limit: int) -> None:
        """Return once fewer than *limit* items are queued."""
        while len(self.queue) >= limit and not self._group.stopping:
            waiting: asyncio.Future[None] = self._loop.create_future()
            self._crowd.append(waiting)
            self._group.wake_soon()
            await waiting

    def listen(self, listener: Listener, *, patient: bool) -> Callable[[], None]:
        token = object()
        self._listeners[token] = listener
        if not patient:
            self._eager.add(token)
            self.calm = 0

        def leave() -> None:
            self._listeners.pop(token, None)
            self._eager.discard(token)

        return leave

    def _settle(self, results: list[Result], done: Transaction | None) -> None:
        """Notify listeners first and then callers, so that an event never comes later than the answer it led to."""
        if done is not None and done.records:
            for listener in list(self._listeners.values()):
                self._call(listener, done.records)
        if done is not None and done.outcomes:
            self._ended(done.outcomes)
        for future, result, error in results:
            resolve(future, result, error)
        crowd, self._crowd = self._crowd, []
        for waiting in crowd:
            resolve(waiting, None)

    def _call(self, listener: Listener, records: list[Record]) -> None:
        try:
            listener(records)
        except Exception:  # noqa: BLE001 - it is someone else's code, and the others are to hear the records all the same
            _log.exception("a listener failed")

    # ── in the thread, and in the loop while the disk is fast ─────────────────────────────────────────────────────────

    def _write(self, batch: list[Item]) -> bool:
        if self._group.is_in_loop:
            return self._write_in_loop(batch)
        if self._checkpoints.needs_plan:  # for rows that the loop has written
            self._seal(self._checkpoints.seal_if_due)
        self.calm = len(self.queue) + GIVE_WAY_EVERY if not self._eager else 0
        works = self._write_batch(batch)
        if self._pages >= MERGE_PAGES:
            self._merge_log()
        self._group.again_s = self._seal(self._checkpoints.seal_if_due) if works else RETRY_SECONDS
        self.calm = 0
        return works

    def _write_in_loop(self, batch: list[Item]) -> bool:
        """Write the batch, or leave it to the thread if that would take long or fails: the thread reports the error."""
        if self._checkpoints.needs_plan or not self._try_in_loop(batch):
            self.queue.extendleft(reversed(batch))
            return False
        if self._pages >= MERGE_PAGES or self._checkpoints.needs_plan:
            self._group.wake_thread()
        self.calm = 0
        return True

    def _try_in_loop(self, batch: list[Item]) -> bool:
        self._connection.set_busy_timeout(0)
        try:
            self._commit(batch)
        except Exception:  # noqa: BLE001 - nothing was written; the thread gets the same error and reports it
            return False
        finally:
            self._connection.set_busy_timeout(self._busy_ms)
        return True

    def _committed(self, connection: object, name: str, pages: int) -> int:  # noqa: ARG002 - the shape of apsw
        self._pages = pages
        return 0

    def _merge_log(self) -> None:
        """Merge the log into the file, so that it does not grow without end."""
        self._pages = 0
        try:
            self._connection.wal_checkpoint()
        except apsw.Error as error:
            # Another process merges it, or the next commit tries again.
            _log.debug("%s: the log was not merged: %s", self._path, error)

    def _end(self) -> None:
        self._seal(self._checkpoints.seal)
        self._connection.close()

    def _write_batch(self, batch: list[Item]) -> bool:
        """Write the batch and return whether that worked; items without a caller are queued again if it did not."""
        if not batch:
            return True
        try:
            self._commit(batch)
        except TROUBLE as error:
            self._set_aside(batch, error)
            return False
        except Exception:  # noqa: BLE001 - whichever item is to blame, the others must not suffer for it
            return self._commit_each(batch)
        self._troubled = False
        return True

    def _commit_each(self, batch: list[Item]) -> bool:
        for place, item in enumerate(batch):
            try:
                self._commit_alone(item)
            except TROUBLE as error:
                self._set_aside(batch[place:], error)
                return False
        return True

    def _commit_alone(self, item: Item) -> None:
        """Write one item; if that fails, report it to the caller, or write a notice in place of the record."""
        try:
            self._commit([item])
        except TROUBLE:
            raise
        except Exception as error:  # noqa: BLE001 - what it can be depends on what agents put into their answers
            # Only the type of the error is reported: its text may quote unredacted data.
            _log.error("%s: something could not be written (%s)", self._path, type(error).__name__)
            if not isinstance(item, WriteOperation):
                self._commit([notice_of(item, error)])
            elif item.future:
                self._fail([item.future], error)

    def _commit(self, batch: list[Item]) -> None:
        try:
            self._commit_once(batch)
        except BaseException:
            self._epochs.forget()
            if self._keys is not None:
                self._keys.forget()  # those that were made in this transaction are not stored
            raise

    def _commit_once(self, batch: list[Item]) -> None:
        with write_lock(self._connection):
            transaction = Transaction(
                self._connection,
                self._wall_ms(),
                self.sizes,
                keep_records=bool(self._listeners),
                keys=self._keys,
                epochs=self._epochs,
            )
            results = _apply(batch, transaction)
            transaction.write()
            self._checkpoints.begin(self._connection, transaction.seq, transaction.now_ms)
            if self._commit_hook:
                self._commit_hook()
        self._checkpoints.committed(transaction.seq)
        if transaction.replaced:
            self._replaced.report(transaction.replaced)
        if results or transaction.records or transaction.outcomes or self._crowd:
            self._group.tell(self._settle, results, transaction)

    def _set_aside(self, batch: list[Item], error: Exception) -> None:
        """Report the store's error to waiting callers, and keep the rest for later."""
        if not self._troubled:
            _log.warning("%s", translate(error, self._path))
            self._troubled = True
        waiting = [item.future for item in batch if isinstance(item, WriteOperation) and item.future]
        self.queue.extendleft(
            item for item in reversed(batch) if not (isinstance(item, WriteOperation) and item.future)
        )
        self._fail(waiting, error)

    def _fail(self, waiting: "list[asyncio.Future[Any]]", error: Exception) -> None:
        results: list[Result] = [(future, None, translate(error, self._path)) for future in waiting]
        if results:
            self._group.tell(self._settle, results, None)

    def _seal(self, seal: Callable[[SqliteConnection, int], float | None]) -> float | None:
        try:
            return seal(self._connection, self._wall_ms())
        except (apsw.Error, OSError) as error:
            _log.warning("no checkpoint was written: %s", translate(error, self._path))
            return SEAL_RETRY_SECONDS


def _apply(batch: list[Item], transaction: Transaction) -> list[Result]:
    """Apply the batch in order, and return the results for waiting callers."""
    results: list[Result] = []
    for kind, items in groupby(batch, type):
        if kind is tuple:
            transaction.extend(cast(list[Entry], list(items)))
            continue
        for apply, future, kept in cast(Iterable[WriteOperation], items):
            if future is None:
                apply(transaction)
            # A caller that was cancelled before the work began was promised nothing.
            elif kept or not future.cancelled():
                results.append((future, apply(transaction), None))
    return results


def notice_of(entry: Entry, error: Exception) -> Entry:
    """Return what is recorded in place of a record that cannot be written."""
    kind, at_ms, run, session, _, epoch = entry
    # The names may be what cannot be written.
    run, session = (name.encode(errors="replace").decode().replace("\0", "\ufffd") for name in (run, session))
    text = f"a record of kind {kind.value} could not be written: {type(error).__name__}"
    return (Kind.NOTICE, at_ms, run, session, Notice(delegation=run, agent="remit", text=text), epoch)
