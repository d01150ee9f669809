"""The tables of gateways in PostgreSQL: their versions, and their cleanup in small steps by one gateway at a time."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import asyncpg  # pyright: ignore[reportMissingTypeStubs]

from remit.ports import StoreError
from remit.protocol.errors import Code, fault
from remit.stores.database import NOW_MS
from remit_cluster.postgres.connection import Connections, DatabaseAddress, PgConnection
from remit_cluster.postgres.schema import check_server
from remit_relay.gateway.keys import ROWS, forget_used_keys
from remit_relay.gateway.limits import DAY_S, GatewayLimits
from remit_relay.gateway.ports import ROW_BYTES, CleanupResult, StoreSize, expired_notice
from remit_relay.gateway.postgres.batch import BOUNDED, DeviceRows, GatewayNotice, Totals
from remit_relay.wire import Expired

# ── versions ──────────────────────────────────────────────────────────────────────────────────────────────────────────

# Advisory locks are shared by everything in a database: "Rmgw" and a number.
MIGRATING = 0x526D6777_00000001
CLEANING = 0x526D6777_00000002

# The step at place n takes a database from version n to n + 1. A step that was released is never changed.
MIGRATIONS: tuple[str, ...] = (
    """
    CREATE TABLE remit_gateway.store (
        one smallint PRIMARY KEY CHECK (one = 1), version integer NOT NULL, cleaned_ms bigint NOT NULL DEFAULT 0
    );
    INSERT INTO remit_gateway.store (one, version) VALUES (1, 0);

    -- A running gateway, and what it added to the whole: all rows together say how much is stored. Row 0 has what
    -- gateways that are gone had added. So no two gateways ever write to the same counter.
    CREATE TABLE remit_gateway.gateway (
        id bigint PRIMARY KEY, lease_until_ms bigint NOT NULL DEFAULT 0, devices bigint NOT NULL DEFAULT 0,
        messages bigint NOT NULL DEFAULT 0, size bigint NOT NULL DEFAULT 0, kept bigint NOT NULL DEFAULT 0
    );
    INSERT INTO remit_gateway.gateway (id) VALUES (0);

    -- place: the last place of a message for the device. It is taken under this row's lock, which lasts until the
    -- commit, so places become visible in their order and without gaps. messages, size: what waits for the device.
    -- gateway, session: where it is connected, and how often it has connected. NULL: its connection has ended, and
    -- frames and octets are what was left of its rate limit at left_ms.
    CREATE TABLE remit_gateway.device (
        key bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, id text NOT NULL UNIQUE,
        is_open boolean NOT NULL DEFAULT true, seen_ms bigint NOT NULL, place bigint NOT NULL DEFAULT 0,
        messages bigint NOT NULL DEFAULT 0, size bigint NOT NULL DEFAULT 0, gateway bigint,
        session bigint NOT NULL DEFAULT 0, frames double precision NOT NULL DEFAULT 0,
        octets double precision NOT NULL DEFAULT 0, left_ms bigint NOT NULL DEFAULT 0, bundle bytea
    ) WITH (fillfactor = 70);
    CREATE TABLE remit_gateway.allowed (receiver bigint, sender text, PRIMARY KEY (receiver, sender));
    CREATE TABLE remit_gateway.message (
        receiver bigint, place bigint, sender bigint NOT NULL, number bigint NOT NULL, at_ms bigint NOT NULL,
        body bytea NOT NULL, PRIMARY KEY (receiver, place)
    );
    -- Encrypted bytes do not compress.
    ALTER TABLE remit_gateway.message ALTER COLUMN body SET STORAGE EXTERNAL;
    CREATE INDEX message_at ON remit_gateway.message (at_ms);
    -- number: the last one of a sender for a receiver; one that is not above it is a repeat. expired: the last number
    -- that was deleted because nobody fetched it, until the sender sends something new. messages, size: what waits.
    CREATE TABLE remit_gateway.pair (
        receiver bigint, sender bigint, number bigint NOT NULL, used_ms bigint NOT NULL,
        expired bigint NOT NULL DEFAULT 0, messages bigint NOT NULL DEFAULT 0, size bigint NOT NULL DEFAULT 0,
        PRIMARY KEY (receiver, sender)
    ) WITH (fillfactor = 70);
    CREATE INDEX pair_expired ON remit_gateway.pair (sender) WHERE expired > 0;
    -- A key that was handed out leaves its digest, so that publishing it again does not bring it back.
    CREATE TABLE remit_gateway.one_time (
        key bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, device bigint NOT NULL, digest bytea NOT NULL, body bytea,
        used_ms bigint, UNIQUE (device, digest)
    );
    CREATE INDEX one_time_left ON remit_gateway.one_time (device, key) WHERE body IS NOT NULL;
    -- A mailbox in which two devices meet to pair, and what they tell each other. Both are gone after minutes.
    CREATE TABLE remit_gateway.mailbox (
        number integer PRIMARY KEY, is_joined boolean NOT NULL, is_ended boolean NOT NULL, until_ms bigint NOT NULL
    );
    CREATE TABLE remit_gateway.note (
        mailbox integer, side text, place integer,
        body bytea NOT NULL, PRIMARY KEY (mailbox, side, place)
    );
    """,
)


async def migrate(connection: PgConnection, address: DatabaseAddress) -> None:
    """Migrate the tables to the current version; several gateways may start at once, and each step runs once."""
    await check_server(connection, address)
    async with connection.transaction():
        await connection.execute("SELECT pg_advisory_xact_lock($1)", MIGRATING)
        version = await _version(connection, address)
        if version is None:
            try:
                await connection.execute("CREATE SCHEMA IF NOT EXISTS remit_gateway")
            except asyncpg.InsufficientPrivilegeError as error:
                raise address.translate(error) from None
            version = 0
        for number, step in enumerate(MIGRATIONS[version:], start=version + 1):
            await connection.execute(step)
            await connection.execute("UPDATE remit_gateway.store SET version = $1", number)


async def _version(connection: PgConnection, address: DatabaseAddress) -> int | None:
    """Return the version of the tables, None if there are none."""
    if not await connection.fetchval("SELECT to_regclass('remit_gateway.store') IS NOT NULL"):
        return None
    version = await connection.fetchval("SELECT version FROM remit_gateway.store")
    if not isinstance(version, int):
        raise _unusable(f"{address.name}: the row with the version of the gateway's tables was deleted", "Restore it.")
    if version > len(MIGRATIONS):
        raise _unusable(
            f"{address.name}: the gateway's tables have version {version}, which a newer program wrote; "
            f"this one knows {len(MIGRATIONS)}",
            "Update this program, or use another database.",
        )
    return version


def _unusable(message: str, advice: str) -> StoreError:
    return StoreError(fault(Code.STORE_UNAVAILABLE, message, suggestion=advice))


# ── cleanup ───────────────────────────────────────────────────────────────────────────────────────────────────────────

# Pause between two steps, in which others get the locks.
BETWEEN_STEPS_S = 0.05
# Every gateway asks once an hour; after this time the first one gets it.
AGAIN_S = 3_000.0

_LIVE = f"SELECT id FROM remit_gateway.gateway WHERE lease_until_ms > {NOW_MS}"
_CLAIM = "UPDATE remit_gateway.store SET cleaned_ms = $1::bigint WHERE cleaned_ms <= $1 - $2::bigint RETURNING one"
_OLD = f"""
    SELECT m.receiver, m.place, m.at_ms FROM remit_gateway.message m
    WHERE m.at_ms < $1 AND (m.at_ms, m.receiver, m.place) > ($2, $3, $4) AND NOT EXISTS (
        SELECT 1 FROM remit_gateway.device d WHERE d.key = m.receiver AND d.gateway IN ({_LIVE}))
    ORDER BY m.at_ms, m.receiver, m.place LIMIT $5
"""
_DELETE = """
    DELETE FROM remit_gateway.message m USING unnest($1::bigint[], $2::bigint[]) AS u (receiver, place)
    WHERE m.receiver = u.receiver AND m.place = u.place
    RETURNING m.receiver, m.sender, m.number, octet_length(m.body)
"""
_MARK = """
    UPDATE remit_gateway.pair p SET expired = greatest(p.expired, u.number), used_ms = $4
    FROM unnest($1::bigint[], $2::bigint[], $3::bigint[]) AS u (receiver, sender, number)
    WHERE p.receiver = u.receiver AND p.sender = u.sender
"""
_IDS = "SELECT key, id, gateway FROM remit_gateway.device WHERE key = ANY($1)"
_PAIRS = """
    SELECT receiver, sender, used_ms < $1 AND messages = 0 FROM remit_gateway.pair
    WHERE (receiver, sender) > ($2, $3) ORDER BY receiver, sender LIMIT $4
"""
_DROP_PAIRS = """
    DELETE FROM remit_gateway.pair p USING unnest($1::bigint[], $2::bigint[]) AS u (receiver, sender)
    WHERE p.receiver = u.receiver AND p.sender = u.sender AND p.used_ms < $3 AND p.messages = 0 RETURNING 1
"""
_DEVICES = f"""
    SELECT key, seen_ms, coalesce(gateway IN ({_LIVE}), false) FROM remit_gateway.device
    WHERE key > $1 ORDER BY key LIMIT $2
"""
_DROP_DEVICE = """
    WITH pairs AS (DELETE FROM remit_gateway.pair WHERE receiver = $1 RETURNING 1),
        listed AS (DELETE FROM remit_gateway.allowed WHERE receiver = $1 RETURNING 1),
        keys AS (DELETE FROM remit_gateway.one_time WHERE device = $1 RETURNING octet_length(body) AS size),
        gone AS (DELETE FROM remit_gateway.device WHERE key = $1 RETURNING octet_length(bundle) AS size)
    SELECT (SELECT count(*) FROM pairs) + (SELECT count(*) FROM listed) + (SELECT count(*) FROM keys)
        + (SELECT count(*) FROM gone), (SELECT coalesce(sum(size), 0)::bigint FROM keys)
        + (SELECT coalesce(sum(size), 0)::bigint FROM gone)
"""

Step = Callable[[PgConnection, Totals], Awaitable[CleanupResult]]


class Cleanup:
    """One pass through all tables."""

    def __init__(
        self, connections: Connections, *, gateway: int, limits: GatewayLimits, wall_ms: Callable[[], int]
    ) -> None:
        self._connections = connections
        self._gateway = gateway
        self._limits = limits
        self._wall_ms = wall_ms
        self._after: tuple[int, ...] = ()
        self._gone: list[int] = []
        self.notices: list[GatewayNotice] = []
        """What other gateways should hear; the caller sends and clears it."""
        self.size: StoreSize | None = None
        """How much is left after the last step."""

    async def steps(self) -> AsyncIterator[CleanupResult]:
        """Clean up everything once; a gateway that comes second does nothing."""
        async with self._connections.lend() as connection:
            if not await connection.fetch(_CLAIM, self._wall_ms(), round(AGAIN_S * 1_000)):
                return
        works: tuple[tuple[Step, tuple[int, ...]], ...] = (
            (self._messages, (0, 0, 0)),
            (self._pairs, (0, 0)),
            (self._one_time, (0,)),
            (self._devices, (0,)),
        )
        for work, self._after in works:
            full = True
            while full:
                result = await self._step(work)
                if result is None:
                    return
                yield result
                full = result.full
                if full:
                    await asyncio.sleep(BETWEEN_STEPS_S)
                while self._gone:
                    result = await self._step(self._device)
                    if result is None:
                        return
                    yield result

    async def _step(self, work: Step) -> CleanupResult | None:
        """Do a step in a transaction of its own; None if another gateway is at it."""
        async with self._connections.lend() as connection, connection.transaction():
            await connection.execute(BOUNDED)
            if not await connection.fetchval("SELECT pg_try_advisory_xact_lock($1)", CLEANING):
                return None
            totals = Totals(connection)
            await totals.read()
            result = await work(connection, totals)
            await totals.write(self._gateway)
        self.size = totals.sized()
        return result

    async def _messages(self, connection: PgConnection, totals: Totals) -> CleanupResult:
        """Delete messages that were not fetched in time, except those for connected devices, which get them soon."""
        before_ms = self._before_ms(self._limits.keep_s)
        receiver, place, at_ms = self._after
        rows = await connection.fetch(_OLD, before_ms, at_ms, receiver, place, ROWS)
        if rows:
            self._after = rows[-1]
        return await self._expire(connection, totals, [row[:2] for row in rows], full=len(rows) == ROWS)

    async def _expire(
        self, connection: PgConnection, totals: Totals, places: list[tuple[Any, ...]], *, full: bool, devices: int = 0
    ) -> CleanupResult:
        """Delete messages (receiver, place), and remember that for their senders."""
        if not places:
            return CleanupResult(full, devices=devices)
        receivers, numbers = [place[0] for place in places], [place[1] for place in places]
        locked = DeviceRows(connection)
        await locked.lock((), set(receivers))
        deleted = await connection.fetch(_DELETE, receivers, numbers)
        messages, size = await locked.free(_summed(deleted))
        totals.messages -= messages
        totals.size -= size
        await locked.write(self._wall_ms())
        last: dict[tuple[int, int], int] = {}
        for receiver, sender, number, _ in deleted:
            last[receiver, sender] = max(number, last.get((receiver, sender), 0))
        if last:
            # Marked as used now, so that the sender is notified even if it connects only weeks later.
            columns = [pair[0] for pair in last], [pair[1] for pair in last], list(last.values())
            await connection.execute(_MARK, *columns, self._wall_ms())
        notices = await self._notices_for_senders(connection, last)
        return CleanupResult(full, notices, expired=len(deleted), devices=devices)

    async def _notices_for_senders(
        self, connection: PgConnection, last: dict[tuple[int, int], int]
    ) -> tuple[tuple[str, Expired], ...]:
        """Return the notices for senders; those that may be connected elsewhere are told there."""
        rows = await connection.fetch(_IDS, sorted({key for pair in last for key in pair}))
        ids = {key: (device, gateway) for key, device, gateway in rows}
        notices: list[tuple[str, Expired]] = []
        for (receiver, sender), number in last.items():
            if receiver not in ids or sender not in ids:
                continue
            (to, _), (device, gateway) = ids[receiver], ids[sender]
            notices.append((device, expired_notice(self._limits, to, number)))
            if gateway not in (None, self._gateway):
                self.notices.append(GatewayNotice(gateway, f"expired {device} {to} {number}"))
        return tuple(notices)

    async def _pairs(self, connection: PgConnection, totals: Totals) -> CleanupResult:
        """Forget pairs of sender and receiver that are so old that no repeat can come."""
        before_ms = self._before_ms(self._limits.repeat_days * DAY_S)
        rows = await connection.fetch(_PAIRS, before_ms, *self._after, ROWS)
        old = [row[:2] for row in rows if row[2]]
        if old:
            receivers, senders = [row[0] for row in old], [row[1] for row in old]
            await DeviceRows(connection).lock((), set(receivers))
            gone = await connection.fetch(_DROP_PAIRS, receivers, senders, before_ms)
            totals.kept -= ROW_BYTES * len(gone)
        if rows:
            self._after = rows[-1][:2]
        return CleanupResult(len(rows) == ROWS)

    async def _one_time(self, connection: PgConnection, totals: Totals) -> CleanupResult:
        """Forget keys that were handed out so long ago that nobody publishes them again."""
        before_ms = self._before_ms(self._limits.repeat_days * DAY_S)
        count, last = await forget_used_keys(connection, self._after[0], before_ms)
        totals.kept -= ROW_BYTES * count
        if last is not None:
            self._after = (last,)
        return CleanupResult(full=last is not None)

    async def _devices(self, connection: PgConnection, totals: Totals) -> CleanupResult:  # noqa: ARG002 - as the others
        """Find devices that were away for too long, and update when connected devices were last seen."""
        now_ms, before_ms = self._wall_ms(), self._before_ms(self._limits.forget_s)
        rows = await connection.fetch(_DEVICES, *self._after, ROWS)
        here = [key for key, seen_ms, live in rows if live and seen_ms < now_ms - DAY_S * 1_000]
        if here:
            await DeviceRows(connection).lock((), here)
            await connection.execute(
                "UPDATE remit_gateway.device SET seen_ms = greatest(seen_ms, $2) WHERE key = ANY($1)", here, now_ms
            )
        self._gone = [key for key, seen_ms, live in rows if not live and seen_ms < before_ms]
        if rows:
            self._after = (rows[-1][0],)
        return CleanupResult(len(rows) == ROWS)

    async def _device(self, connection: PgConnection, totals: Totals) -> CleanupResult:
        """Delete some messages for a device; with the last ones the device, unless it connected between two steps."""
        key = self._gone[-1]
        locked = DeviceRows(connection)
        await locked.lock((), (key,))
        row = locked.by_key.get(key)
        if row is None or row.seen_ms >= self._before_ms(self._limits.forget_s):
            self._gone.pop()
            return CleanupResult(full=False)
        places = await connection.fetch(
            "SELECT receiver, place FROM remit_gateway.message WHERE receiver = $1 LIMIT $2", key, ROWS
        )
        if len(places) == ROWS:
            return await self._expire(connection, totals, places, full=False)
        result = await self._expire(connection, totals, places, full=False, devices=1)
        counts = await connection.fetchrow(_DROP_DEVICE, key)
        assert counts
        totals.kept -= ROW_BYTES * counts[0] + counts[1]
        totals.devices -= 1
        self._gone.pop()
        return result

    def _before_ms(self, age_s: float) -> int:
        return self._wall_ms() - round(age_s * 1_000)


def _summed(rows: list[tuple[Any, ...]]) -> list[tuple[int, int, int, int]]:
    """Sum deleted messages (receiver, sender, number, size) by pair, as (receiver, sender, messages, size)."""
    sums: dict[tuple[int, int], tuple[int, int]] = {}
    for receiver, sender, _, size in rows:
        messages, total = sums.get((receiver, sender), (0, 0))
        sums[receiver, sender] = messages + 1, total + size
    return [(*pair, *counted) for pair, counted in sums.items()]
