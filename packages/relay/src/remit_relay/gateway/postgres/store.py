"""A store in a PostgreSQL database that several gateways share: any of them can be killed at any time."""

import asyncio
import logging
import secrets
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeVar

from remit.ports import Clock
from remit.stores.database import NOW_MS
from remit.stores.group_commit import resolve
from remit_cluster.postgres.connection import (
    CONFLICT,
    FAULTS,
    TROUBLE,
    Connections,
    DatabaseAddress,
    PgConnection,
    Query,
    close_quietly,
    is_lost,
)
from remit_relay.gateway.limits import GatewayLimits
from remit_relay.gateway.ports import (
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
)
from remit_relay.gateway.postgres.batch import (
    Acknowledging,
    Allowing,
    Entering,
    Fetching,
    GatewayBatch,
    Leaving,
    Publishing,
    StoreJob,
    Work,
)
from remit_relay.gateway.postgres.neighbours import BEAT_S, Neighbours
from remit_relay.gateway.postgres.tables import Cleanup, migrate
from remit_relay.gateway.rendezvous import SqlMailboxes
from remit_relay.wire import AllowSenders, Delivery, Denied, Done, Fetch, Publish, Refused

T = TypeVar("T")

# ── pages ─────────────────────────────────────────────────────────────────────────────────────────────────────────────

# The place of the device is read in the same moment as its messages: up to it there is nothing else.
_PAGE = """
    SELECT d.place, m.place, m.sender, m.number, m.body FROM remit_gateway.device d
    LEFT JOIN LATERAL (
        SELECT w.place, s.id AS sender, w.number, CASE WHEN w.nth = 1 OR w.size <= $4 THEN w.body END AS body
        FROM (
            SELECT place, sender, number, body, row_number() OVER places AS nth,
                sum(octet_length(body)) OVER places AS size
            FROM remit_gateway.message WHERE receiver = d.key AND place > $2
            WINDOW places AS (ORDER BY place ROWS UNBOUNDED PRECEDING) ORDER BY place LIMIT $3
        ) w JOIN remit_gateway.device s ON s.key = w.sender
    ) m ON true
    WHERE d.key = $1 ORDER BY m.place
"""
_LOOK = f"""
    SELECT EXISTS (SELECT 1 FROM remit_gateway.gateway g WHERE g.id = d.gateway AND g.lease_until_ms > {NOW_MS}),
        d.messages, (SELECT count(*) FROM remit_gateway.one_time o WHERE o.device = d.key AND o.body IS NOT NULL)
    FROM remit_gateway.device d WHERE d.id = $1
"""

_PRESENCE = f"""
    SELECT u.asker, u.device, EXISTS (SELECT 1 FROM remit_gateway.gateway g
        WHERE g.id = d.gateway AND g.id <> $3 AND g.lease_until_ms > {NOW_MS})
    FROM unnest($1::text[], $2::text[]) AS u (asker, device) JOIN remit_gateway.device d ON d.id = u.device
    WHERE d.is_open OR EXISTS (
        SELECT 1 FROM remit_gateway.allowed a WHERE a.receiver = d.key AND a.sender = u.asker)
"""


async def read_page(connection: PgConnection, *, receiver: int, after: int, messages: int, size: int) -> Page:
    """Return the messages after a place: at least one if there is any, up to *messages* and *size* bytes."""
    rows = await connection.fetch(_PAGE, receiver, after, messages + 1, size)
    deliveries: list[Delivery] = []
    for last, place, sender, number, body in rows:
        if place is None:
            return Page([], more=False, upto=last)
        if body is None or len(deliveries) == messages:
            return Page(deliveries, more=True)
        deliveries.append(Delivery(place, sender, number, body))
    return Page(deliveries, more=False, upto=rows[0][0] if rows else 0)


async def look(connection: PgConnection, *, device: str) -> StoredDevice | None:
    """Return the status of a device, None if it is unknown."""
    row = await connection.fetchrow(_LOOK, device)
    return None if row is None else StoredDevice(*row)


async def presence(
    connection: PgConnection, *, pairs: Sequence[PresencePair], gateway: int
) -> dict[PresencePair, bool]:
    """Return for each pair that may know it whether the device is connected to another gateway than *gateway*."""
    askers, devices = [pair.asker for pair in pairs], [pair.device for pair in pairs]
    rows = await connection.fetch(_PRESENCE, askers, devices, gateway)
    return {PresencePair(asker, device): elsewhere for asker, device, elsewhere in rows}


# ── the store ─────────────────────────────────────────────────────────────────────────────────────────────────────────


# Larger batches gain nothing, hold their locks for longer, and the first callers would wait longer.
MAX_BATCH = 500
# Jobs that are not urgent wait this long for others: a commit costs more than its content.
PATIENCE_S = 0.003
# A batch takes milliseconds. A server that needs longer hangs, and devices are better off at another gateway.
BATCH_S = 10.0
# How often a transaction is tried that was rolled back for the sake of another.
TRIES = 8
# Connections for pages, notices and the lease, besides one that writes and one that listens.
READERS = 3
FIRST_RETRY_S = 0.1
MOST_RETRY_S = 2.0
# When the gateway is told to stop, it waits this long for the database.
CLOSE_S = 5.0
# Everything that is asked for besides batches takes milliseconds.
ANSWER_S = 5.0


_log = logging.getLogger("remit.relay")


class _Connected(NamedTuple):
    """A device that is connected here."""

    key: int
    session: int


class PostgresGatewayStore:
    """A `GatewayStore` in the database at *url*; see `DatabaseAddress` for *password* and *pooler*."""

    is_shared = True

    def __init__(self, url: str, *, password: str | None = None, pooler: bool = False) -> None:
        self._address = DatabaseAddress(url, password, pooler)
        self._gateway = secrets.randbits(62)
        self._jobs: deque[StoreJob] = deque()
        self._wake = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None
        self._entering: set[asyncio.Future[AdmittedDevice | NoRoom]] = set()
        self._reading: set[asyncio.Task[None]] = set()
        self._present: dict[int, _Connected] = {}
        self._shut: dict[int, frozenset[str]] = {}
        self._size = StoreSize(0, 0, 0, 0)
        self._connection: PgConnection | None = None
        self._closing = False
        self.mailboxes = SqlMailboxes(self._ask, is_shared=True)

    @property
    def is_ready(self) -> bool:
        return self._connection is not None

    async def open(self, limits: GatewayLimits, clock: Clock, events: StoreEvents) -> None:
        self._limits, self._clock, self._events = limits, clock, events
        self._closing = False
        self._connections = Connections(self._address, READERS)
        self._neighbours = Neighbours(
            self._address,
            self._connections,
            gateway=self._gateway,
            limits=limits,
            events=events,
            present=lambda: [each.key for each in self._present.values()],
        )
        connection = await self._address.connect()
        try:
            await migrate(connection, self._address)
            self._size = await self._neighbours.beat()
        except BaseException as error:
            connection.terminate()
            await self._connections.close()
            if isinstance(error, FAULTS):
                raise self._address.translate(error) from error
            raise
        self._connection = connection
        works = (self._write, self._beat, self._neighbours.send, self._neighbours.hear)
        self._tasks = [asyncio.create_task(work()) for work in works]

    async def close(self) -> None:
        self._closing = True
        self._wake.set()
        # What could not be written has no receipt, and its device sends it again.
        await asyncio.wait(self._tasks[:1], timeout=CLOSE_S)
        for task in (*self._tasks, *self._reading):
            task.cancel()
        await asyncio.wait((*self._tasks, *self._reading))
        self._give_up("the gateway is closed")
        await self._neighbours.leave(CLOSE_S)
        await self._connections.close()
        if self._connection is not None:
            await close_quietly(self._connection)

    # ── calls ─────────────────────────────────────────────────────────────────────────────────────────────────────────

    async def enter(self, connection: int, device: str, *, may_be_new: bool) -> AdmittedDevice | NoRoom:
        def entered(result: AdmittedDevice | NoRoom) -> None:
            if isinstance(result, AdmittedDevice):
                self._present[connection] = _Connected(result.key, result.session)
                if future.done():
                    self.leave(connection, None)
            resolve(future, result)

        if not self._takes_jobs:
            raise OSError(f"{self._address.name} cannot be reached")
        future: asyncio.Future[AdmittedDevice | NoRoom] = asyncio.get_running_loop().create_future()
        self._entering.add(future)
        try:
            self._do(Entering(device, may_be_new), entered)
            return await future
        finally:
            self._entering.discard(future)

    def leave(self, connection: int, allowance: RateAllowance | None) -> None:
        connected = self._present.pop(connection, None)
        if connected is not None:
            # Its refusals are forgotten after its last message.
            forget = partial(self._forget_refusals, connection)
            self._do(Leaving(connected.key, connected.session, allowance), forget)

    async def look(self, device: str) -> StoredDevice | None:
        return await self._ask(partial(look, device=device))

    async def _ask(self, query: Query[T]) -> T:
        try:
            async with asyncio.timeout(ANSWER_S):
                return await self._connections.read(query)
        except FAULTS as error:
            raise OSError(str(error)) from error

    def reserve_place(self) -> int | None:
        """Return None: the place is taken under the lock of the receiver."""
        return None

    def put(self, message: SentMessage, then: Callable[[Placed | Refused], None]) -> None:
        self._do(message, then)

    def put_delivered(self, message: SentMessage) -> None:
        raise AssertionError(f"no place is reserved: {message.place}")

    def acknowledge(self, receiver: int, place: int, then: Callable[[None], None]) -> None:
        self._do(Acknowledging(receiver, place), then, urgent=False)

    def page(self, receiver: int, after: int, messages: int, size: int, then: Callable[[Page], None]) -> None:
        self._run_query(partial(read_page, receiver=receiver, after=after, messages=messages, size=size), then)

    def presence(self, pairs: Sequence[PresencePair], then: Callable[[dict[PresencePair, bool]], None]) -> None:
        if self._takes_jobs:
            self._run_query(partial(presence, pairs=pairs, gateway=self._gateway), then)

    def _run_query(self, query: Callable[[PgConnection], Awaitable[T]], then: Callable[[T], None]) -> None:
        connected = self._connection

        async def read() -> None:
            try:
                result = await self._connections.read(query)
            except FAULTS as error:
                if self._connection is connected:
                    self._fail(error)
                return
            self._settle([(then, result)])

        task = asyncio.create_task(read())
        self._reading.add(task)
        task.add_done_callback(self._reading.discard)

    def publish(self, device: int, request: Publish, then: Callable[[Done | Denied], None]) -> None:
        self._do(Publishing(device, request), then)

    def fetch(self, sender: str, request: Fetch, then: Callable[[Fetched], None]) -> None:
        self._do(Fetching(sender, request), then)

    def allow(self, device: int, request: AllowSenders, then: Callable[[Done], None]) -> None:
        self._do(Allowing(device, request), then)

    async def cleanup(self) -> AsyncIterator[CleanupResult]:
        cleanup = Cleanup(self._connections, gateway=self._gateway, limits=self._limits, wall_ms=self._clock.wall_ms)
        try:
            async for step in cleanup.steps():
                self._neighbours.tell(cleanup.notices)
                cleanup.notices.clear()
                self._size = cleanup.size or self._size
                yield step
        except FAULTS as error:
            raise OSError(str(error)) from error

    def size(self) -> StoreSize:
        return self._size

    def _do(self, work: Work, then: Callable[[Any], None], *, urgent: bool = True) -> None:
        if not self._takes_jobs:
            return  # its device was told to come back
        self._jobs.append(StoreJob(work, then))
        if urgent:
            self._wake.set()
        elif self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(PATIENCE_S, self._wake.set)

    def _forget_refusals(self, connection: int, _: None) -> None:
        self._shut.pop(connection, None)

    @property
    def _takes_jobs(self) -> bool:
        return self._connection is not None and not self._closing

    # ── writing ───────────────────────────────────────────────────────────────────────────────────────────────────────

    async def _write(self) -> None:
        """Commit what was asked for, many jobs at once, until the store is closed."""
        while True:
            if not self._jobs:
                if self._closing:
                    return
                await self._wake.wait()
            # What becomes ready in this turn of the loop shares the transaction.
            await asyncio.sleep(0)
            self._wake.clear()
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
            connection = self._connection
            if connection is None:
                self._jobs.clear()
                if self._closing:
                    return
                await self._reconnect()
                continue
            jobs = [self._jobs.popleft() for _ in range(min(len(self._jobs), MAX_BATCH))]
            if not jobs:
                continue
            try:
                results = await self._commit(connection, jobs)
            except FAULTS as error:
                self._fail(error)
                continue
            except Exception as error:  # noqa: BLE001 - without this task nothing would be written any more
                _log.exception("a transaction failed")
                self._fail(error)
                continue
            self._settle([(job.then, result) for job, result in zip(jobs, results, strict=True)])

    async def _commit(self, connection: PgConnection, jobs: list[StoreJob]) -> list[Any]:
        for left in reversed(range(TRIES)):
            batch = GatewayBatch(
                connection,
                gateway=self._gateway,
                limits=self._limits,
                wall_ms=self._clock.wall_ms(),
                shut=self._shut,
            )
            # Not a time-out: that would wait for the server to roll back.
            hung = asyncio.get_running_loop().call_later(BATCH_S, connection.terminate)
            try:
                results = await batch.run(jobs)
            except CONFLICT:
                if not left:
                    raise
                continue
            finally:
                hung.cancel()
            self._shut = batch.shut
            self._size = batch.totals.sized()
            self._neighbours.tell(batch.notices)
            return results
        raise AssertionError

    def _settle(self, done: list[tuple[Callable[[Any], None], Any]]) -> None:
        for then, result in done:
            try:
                then(result)
            except Exception:  # noqa: BLE001 - an error of one connection must not keep the others from their results
                _log.exception("delivering a result failed")
        self._events.settled()

    # ── trouble ───────────────────────────────────────────────────────────────────────────────────────────────────────

    def _fail(self, error: BaseException) -> None:
        """Let everyone go: nobody knows what of the last transaction was written, and devices send it again."""
        connection, self._connection = self._connection, None
        if connection is None:
            return
        if is_lost(error, connection) and not isinstance(error, TROUBLE):
            # The driver says what it could not do, and not why.
            error = ConnectionResetError("the connection was lost")
        connection.terminate()
        why = self._address.translate(error).fault.message
        _log.error("the gateway disconnects its devices until the database works again: %s", why)
        self._jobs.clear()
        self._present.clear()
        self._shut.clear()
        self._give_up(why)
        self._events.failed()
        self._wake.set()

    def _give_up(self, why: str) -> None:
        for future in self._entering:
            resolve(future, None, OSError(why))

    async def _reconnect(self) -> None:
        wait = FIRST_RETRY_S
        while not self._closing:
            try:
                self._size = await self._neighbours.beat()
                connection = await self._address.connect()
            except FAULTS as error:
                _log.debug("the database cannot be used yet: %s", error)
                await asyncio.sleep(wait)
                wait = min(2 * wait, MOST_RETRY_S)
                continue
            _log.warning("the database works again")
            self._connection = connection
            self._events.recovered()
            return

    async def _beat(self) -> None:
        """Extend the lease now and then; this also notices a server that hangs while no device sends anything."""
        while True:
            await asyncio.sleep(BEAT_S)
            if self._connection is None:
                continue
            try:
                self._size = await self._neighbours.beat()
            except FAULTS as error:
                self._fail(error)
