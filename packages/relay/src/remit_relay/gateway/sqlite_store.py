"""The store of one gateway: an SQLite file, with group commit."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeVar, cast

import apsw

from remit.ports import Clock, StoreError
from remit.protocol.errors import Code, fault
from remit.stores.connection import TROUBLE, Durability, translate, write_lock
from remit.stores.database import Query, at_once
from remit.stores.group_commit import GroupCommit, resolve
from remit_relay.gateway import keys
from remit_relay.gateway.keys import ROWS
from remit_relay.gateway.limits import DAY_S, GatewayLimits
from remit_relay.gateway.ports import (
    ROW_BYTES,
    AdmittedDevice,
    CleanupResult,
    Fetched,
    NoRoom,
    Page,
    Placed,
    PresencePair,
    RateAllowance,
    SentMessage,
    StoredDevice,
    StoreEvents,
    StoreSize,
    expired_notice,
)
from remit_relay.gateway.queue import Queue, open_queue
from remit_relay.gateway.rendezvous import SqlMailboxes
from remit_relay.wire import MAX_BODY, AllowSenders, Denied, Done, Expired, Fetch, Publish, Refused

# ── group commit ──────────────────────────────────────────────────────────────────────────────────────────────────────

T = TypeVar("T")

# The event loop writes this few jobs itself while the disk is fast.
FEW = 32

# Jobs that are not urgent wait this long for others: a commit costs more than its content. Receivers have these
# messages already and acknowledge many of them meanwhile, so that they need not be written.
PATIENCE_S = 0.01
# With so many no commit waits for others. The bytes are half of what a device sends without receipts; a device that
# sends its 256 messages within 10 ms has nothing to wait for.
MOST_DELIVERED = 512
MOST_DELIVERED_BYTES = 8 * MAX_BODY

_log = logging.getLogger("remit.relay")


class Job(NamedTuple):
    """A function to run in the thread, and a callback for the event loop once its result is durable."""

    run: Callable[[Queue], Any]
    then: Callable[[Any], None]


class GatewayWriter:
    """Runs jobs in order. Everything but `_commit` and what it calls runs in the event loop."""

    def __init__(
        self,
        path: Path,
        queue: Queue,
        *,
        placed: Callable[[Sequence[SentMessage], Sequence[Placed | Refused]], None],
        settled: Callable[[], None],
        troubled: Callable[[], None],
        commit_hook: Callable[[], None] | None = None,
    ) -> None:
        self._path = path
        self._queue = queue
        self._placed = placed
        self._settled = settled
        self._troubled = troubled
        self._commit_hook = commit_hook
        self._failed = False
        self._miscounted = False
        self._waiting: set[asyncio.Future[Any]] = set()
        self._loop = asyncio.get_running_loop()
        self._staged: list[Job] = []
        """The jobs that the thread does not know yet."""
        self._run: list[SentMessage] | None = None
        """The messages of the last staged job, if it may get more of them."""
        self._delivered = self._delivered_bytes = 0
        """How many messages in staged jobs were delivered already, and their size."""
        self._planned = False
        self._timer: asyncio.TimerHandle | None = None
        # In the queue, None marks the end of a failure. A hook simulates slow or failing disks, which must not block
        # the event loop.
        self._group = GroupCommit[Job | None](
            f"remit-gateway {path.name}",
            self._commit,
            close=queue.connection.close,
            in_loop=0 if commit_hook else FEW,
        )
        self._group.start()

    # ── in the event loop ─────────────────────────────────────────────────────────────────────────────────────────────

    def do(self, run: Callable[[Queue], T], then: Callable[[T], None], *, urgent: bool = True) -> None:
        """Queue *run*; *then* gets its result once that is durable, and is never called if it fails."""
        self._run = None
        self._staged.append(Job(run, then))
        if urgent:
            self._pass_soon()
        else:
            self._pass_later()

    def put_delivered(self, message: SentMessage) -> None:
        """Queue a message that its receiver was sent already; it shares a job with others before and after it."""
        if self._run is None:
            self._run = run = []
            self._staged.append(Job(partial(_put_all, run), partial(self._placed, run)))
            self._pass_later()
        self._run.append(message)
        self._delivered += 1
        self._delivered_bytes += len(message.put.body)
        if self._delivered >= MOST_DELIVERED or self._delivered_bytes >= MOST_DELIVERED_BYTES:
            self._pass_soon()

    def _pass_soon(self) -> None:
        """Pass all staged jobs to the thread after all ready tasks have run: jobs that they queue share the commit."""
        if not self._planned:
            self._planned = True
            self._loop.call_soon(self._pass)

    def _pass_later(self) -> None:
        if self._timer is None:
            self._timer = self._loop.call_later(PATIENCE_S, self._pass)

    def _pass(self) -> None:
        self._unstage()
        self._group.wake()

    def _unstage(self) -> None:
        self._planned, self._run = False, None
        self._delivered = self._delivered_bytes = 0
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._group.queue.extend(self._staged)
        self._staged.clear()

    async def ask(self, run: Callable[[Queue], T]) -> T:
        """Return the result of *run* once it is durable; raises `OSError` if writing fails."""
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._waiting.add(future)
        try:
            self.do(run, partial(resolve, future))
            return await future
        finally:
            self._waiting.discard(future)

    async def stop(self) -> None:
        """Finish all jobs, and end the thread."""
        self._unstage()
        await self._group.stop()
        self._give_up("the gateway is closed")

    def _settle(self, done: list[tuple[Callable[[Any], None], Any]]) -> None:
        for then, result in done:
            try:
                then(result)
            except Exception:  # noqa: BLE001 - an error of one connection must not keep the others from their results
                _log.exception("delivering a result failed")
        self._settled()

    def _fail(self, error: Exception) -> None:
        """Fail all waiting callers; no job runs until they have been notified."""
        _log.error("cannot write to %s: %s", self._path, error)
        self._give_up(str(error))
        self._troubled()
        self._unstage()
        self._group.queue.append(None)
        self._group.wake()

    def _give_up(self, why: str) -> None:
        for future in self._waiting:
            resolve(future, None, OSError(f"{self._path}: {why}"))

    # ── in the thread ─────────────────────────────────────────────────────────────────────────────────────────────────

    def _commit(self, batch: list[Job | None]) -> bool:
        jobs = self._accepted(batch)
        if not jobs:
            return True
        done: list[tuple[Callable[[Any], None], Any]] = []
        try:
            with write_lock(self._queue.connection):
                if self._miscounted:
                    self._queue.reload()
                    self._miscounted = False
                for run, then in jobs:
                    done.append((then, run(self._queue)))
                self._queue.write()
                if self._commit_hook:
                    self._commit_hook()
        except Exception as error:  # noqa: BLE001 - whatever it is, the whole batch failed, and all callers are notified
            self._failed = self._miscounted = True
            self._group.tell(self._fail, error)
            return False
        self._group.tell(self._settle, done)
        return True

    def _accepted(self, batch: list[Job | None]) -> list[Job]:
        """Return the jobs to run; those that were queued before everyone was notified of a failure are dropped."""
        if not self._failed:
            return cast("list[Job]", batch)  # the mark only follows a failure
        jobs: list[Job] = []
        for job in batch:
            if job is None:
                self._failed = False
            elif not self._failed:
                jobs.append(job)
        return jobs


def _put_all(messages: list[SentMessage], queue: Queue) -> list[Placed | Refused]:
    return queue.put_all(messages)


# ── deletion of what is too old ───────────────────────────────────────────────────────────────────────────────────────

# A pass goes once through each table, a few rows at each step, so that nobody waits for it. Everything runs in the
# writer's thread, inside a transaction; if that fails, the next pass visits the same rows.


def passing(queue: Queue) -> Iterator[CleanupResult]:
    """Clean up everything once; each step may be a transaction of its own."""
    yield from _messages(queue)
    yield from _pairs(queue)
    yield from _one_time(queue)
    yield from _devices(queue)


def _messages(queue: Queue) -> Iterator[CleanupResult]:
    """Delete messages that were not fetched in time, except those for connected devices, which get them soon."""
    after, looked = 0, ROWS
    while looked == ROWS:
        queue.write()
        before_ms, present = _before_ms(queue, queue.limits.keep_s), queue.present()
        rows = queue.connection.execute(
            "SELECT place, receiver, sender, number, length(body), at_ms FROM message"
            " WHERE place > ? ORDER BY place LIMIT ?",
            (after, ROWS),
        ).fetchall()
        old = [row[:5] for row in rows if row[5] < before_ms and row[1] not in present]
        looked = len(rows)
        if rows:
            after = rows[-1][0]
            # Places are in the order of time: all messages after a recent one are more recent.
            if rows[-1][5] >= before_ms:
                looked = 0
        yield _expire(queue, old, full=looked == ROWS)


def _expire(queue: Queue, rows: list[tuple[int, int, int, int, int]], *, full: bool) -> CleanupResult:
    """Delete messages (place, receiver, sender, number, size), and remember that for their senders."""
    now_ms = queue.wall_ms()
    last: dict[tuple[int, int], int] = {}
    for place, receiver, sender, number, size in rows:
        queue.connection.execute("DELETE FROM message WHERE place = ?", (place,))
        queue.count(receiver, sender, -1, -size)
        last[receiver, sender] = max(number, last.get((receiver, sender), 0))
    notices: list[tuple[str, Expired]] = []
    for (receiver, sender), number in last.items():
        # Marked as used now, so that the sender is notified even if it connects only weeks later.
        queue.connection.execute(
            "UPDATE pair SET expired = ?, used_ms = ? WHERE receiver = ? AND sender = ?",
            (number, now_ms, receiver, sender),
        )
        ids = "SELECT (SELECT id FROM device WHERE key = ?), (SELECT id FROM device WHERE key = ?)"
        ((sender_id, receiver_id),) = queue.connection.execute(ids, (sender, receiver)).fetchall()
        if sender_id and receiver_id:
            notices.append((sender_id, expired_notice(queue.limits, receiver_id, number)))
    return CleanupResult(full, tuple(notices), expired=len(rows))


def _pairs(queue: Queue) -> Iterator[CleanupResult]:
    """Forget pairs of sender and receiver that are so old that no repeat can come."""
    after, looked = (0, 0), ROWS
    while looked == ROWS:
        queue.write()
        before_ms = _before_ms(queue, queue.limits.repeat_days * DAY_S)
        rows = queue.connection.execute(
            "SELECT receiver, sender, used_ms FROM pair WHERE (receiver, sender) > (?, ?)"
            " ORDER BY receiver, sender LIMIT ?",
            (*after, ROWS),
        ).fetchall()
        old = [row[:2] for row in rows if row[2] < before_ms and not queue.holds(row[0], row[1])]
        for pair in old:
            queue.connection.execute("DELETE FROM pair WHERE receiver = ? AND sender = ?", pair)
        if old:
            queue.kept -= ROW_BYTES * len(old)
            queue.forget_routes()
        looked = len(rows)
        after = rows[-1][:2] if rows else after
        yield CleanupResult(looked == ROWS)


def _one_time(queue: Queue) -> Iterator[CleanupResult]:
    after: int | None = 0
    while after is not None:
        before_ms = round(_before_ms(queue, queue.limits.repeat_days * DAY_S))
        count, after = at_once(keys.forget_used_keys(queue.database, after, before_ms))
        queue.kept -= ROW_BYTES * count
        yield CleanupResult(full=after is not None)


def _devices(queue: Queue) -> Iterator[CleanupResult]:
    """Forget devices that were away for too long, and update when connected devices were last seen."""
    after, looked = 0, ROWS
    while looked == ROWS:
        now_ms, present = queue.wall_ms(), queue.present()
        before_ms = _before_ms(queue, queue.limits.forget_s)
        rows = queue.connection.execute(
            "SELECT key, seen_ms, key = (SELECT max(key) FROM device) FROM device WHERE key > ? ORDER BY key LIMIT ?",
            (after, ROWS),
        ).fetchall()
        gone: list[int] = []
        for key, seen_ms, is_newest in rows:
            if key in present:
                if seen_ms < now_ms - DAY_S * 1_000:
                    queue.connection.execute("UPDATE device SET seen_ms = ? WHERE key = ?", (now_ms, key))
            # The newest stays: otherwise the next device would get its key, and what others still store under it.
            elif seen_ms < before_ms and not is_newest:
                gone.append(key)
        looked = len(rows)
        after = rows[-1][0] if rows else after
        yield CleanupResult(looked == ROWS)
        for key in gone:
            yield from _device(queue, key, before_ms)


def _device(queue: Queue, key: int, before_ms: float) -> Iterator[CleanupResult]:
    """Delete the messages for a device, then the device; unless it connected between two steps."""
    while True:
        seen = queue.connection.execute("SELECT seen_ms FROM device WHERE key = ?", (key,)).fetchone()
        if seen is None or seen[0] >= before_ms:
            return
        queue.write()
        rows = queue.connection.execute(
            "SELECT place, receiver, sender, number, length(body) FROM message WHERE receiver = ? LIMIT ?", (key, ROWS)
        ).fetchall()
        if not rows:
            break
        yield _expire(queue, rows, full=True)
    queue.remove_device(key)
    yield CleanupResult(full=False, devices=1)


def _before_ms(queue: Queue, age_s: float) -> float:
    return queue.wall_ms() - age_s * 1_000


# ── keys ──────────────────────────────────────────────────────────────────────────────────────────────────────────────


def _publish(queue: Queue, device: int, request: Publish) -> Done | Denied:
    room = queue.limits.total_bytes - queue.size()
    answer, kept = at_once(keys.publish_keys(queue.database, device, request, queue.limits, room))
    queue.kept += kept
    return answer


def _fetch(queue: Queue, sender: str, request: Fetch) -> Fetched:
    fetched, freed = at_once(keys.fetch_keys(queue.database, sender, request, queue.wall_ms()))
    queue.kept -= freed
    return fetched


def _allow(queue: Queue, device: int, request: AllowSenders) -> Done:
    queue.forget_routes()
    answer, kept = at_once(keys.allow_senders(queue.database, device, request))
    queue.kept += kept
    return answer


def present_pairs(queue: Queue, pairs: Sequence[PresencePair]) -> dict[PresencePair, bool]:
    """Return the pairs whose device accepts messages of the asker; there is no other gateway to be connected to."""
    known = "SELECT 1 FROM device d LEFT JOIN allowed a ON a.receiver = d.key AND a.sender = ?"
    mine = f"{known} WHERE d.id = ? AND (d.is_open OR a.sender IS NOT NULL)"
    return {pair: False for pair in pairs if queue.connection.execute(mine, pair).fetchone() is not None}


# ── the store ─────────────────────────────────────────────────────────────────────────────────────────────────────────


# Pause between two steps of the cleanup, in which other writes get their turn.
BETWEEN_STEPS_S = 0.05


class SqliteGatewayStore:
    """A `GatewayStore` in a file, which is locked for other processes. *commit_hook* simulates bad disks in tests."""

    is_shared = False
    is_ready = True

    def __init__(
        self, path: Path, *, durability: Durability = "power", commit_hook: Callable[[], None] | None = None
    ) -> None:
        self.path = path
        self._durability: Durability = durability
        self._commit_hook = commit_hook
        self.mailboxes = SqlMailboxes(self._ask, is_shared=False)

    async def open(self, limits: GatewayLimits, clock: Clock, events: StoreEvents) -> None:
        try:
            queue = await asyncio.to_thread(open_queue, self.path, self._durability, limits, clock.wall_ms)
        except apsw.BusyError as error:  # the file is opened exclusively, so that is another gateway
            why = f"{self.path} is in use by another gateway process"
            todo = (
                "Stop that process, or choose another folder (--folder), or a database that gateways share (--store)."
            )
            raise StoreError(fault(Code.STORE_UNAVAILABLE, why, suggestion=todo)) from error
        except TROUBLE as error:
            raise translate(error, self.path) from error
        self._queue = queue
        self._last_place = queue.last_place()
        self._writer = GatewayWriter(
            self.path,
            queue,
            placed=events.placed,
            settled=events.settled,
            troubled=events.failed,
            commit_hook=self._commit_hook,
        )

    async def close(self) -> None:
        await self._writer.stop()

    async def _ask(self, query: Query[T]) -> T:
        return await self._writer.ask(lambda queue: at_once(query(queue.database)))

    async def enter(self, connection: int, device: str, *, may_be_new: bool) -> AdmittedDevice | NoRoom:
        return await self._writer.ask(lambda queue: queue.enter(connection, device, may_be_new=may_be_new))

    def leave(self, connection: int, allowance: RateAllowance | None) -> None:  # noqa: ARG002 - this gateway remembers it
        self._writer.do(lambda queue: queue.leave(connection), lambda _: None)

    async def look(self, device: str) -> StoredDevice | None:
        return await self._writer.ask(lambda queue: queue.look(device))

    def reserve_place(self) -> int | None:
        self._last_place += 1
        return self._last_place

    def put(self, message: SentMessage, then: Callable[[Placed | Refused], None]) -> None:
        self._writer.do(lambda queue: queue.put(message), then)

    def put_delivered(self, message: SentMessage) -> None:
        self._writer.put_delivered(message)

    def acknowledge(self, receiver: int, place: int, then: Callable[[None], None]) -> None:
        self._writer.do(lambda queue: queue.acknowledge(receiver, place), then, urgent=False)

    def page(self, receiver: int, after: int, messages: int, size: int, then: Callable[[Page], None]) -> None:
        self._writer.do(lambda queue: queue.page(receiver, after, messages, size), then)

    def publish(self, device: int, request: Publish, then: Callable[[Done | Denied], None]) -> None:
        self._writer.do(lambda queue: _publish(queue, device, request), then)

    def fetch(self, sender: str, request: Fetch, then: Callable[[Fetched], None]) -> None:
        self._writer.do(lambda queue: _fetch(queue, sender, request), then)

    def allow(self, device: int, request: AllowSenders, then: Callable[[Done], None]) -> None:
        self._writer.do(lambda queue: _allow(queue, device, request), then)

    def presence(self, pairs: Sequence[PresencePair], then: Callable[[dict[PresencePair, bool]], None]) -> None:
        self._writer.do(lambda queue: present_pairs(queue, pairs), then)

    async def cleanup(self) -> AsyncIterator[CleanupResult]:
        steps: Iterator[CleanupResult] | None = None

        def next_step(queue: Queue) -> CleanupResult | None:
            nonlocal steps
            steps = steps or passing(queue)
            return next(steps, None)

        while (step := await self._writer.ask(next_step)) is not None:
            yield step
            if step.full:
                await asyncio.sleep(BETWEEN_STEPS_S)

    def size(self) -> StoreSize:
        queue = self._queue
        return StoreSize(queue.devices, queue.all.messages, queue.all.size, queue.size())
