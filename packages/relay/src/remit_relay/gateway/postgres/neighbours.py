"""What gateways of one database tell each other: notifications, with a poll as fallback, and that each is alive."""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable, Sequence

from remit.stores.database import NOW_MS
from remit_cluster.postgres.connection import (
    FAULTS,
    Connections,
    DatabaseAddress,
    PgConnection,
    close_quietly,
)
from remit_relay.gateway.limits import GatewayLimits
from remit_relay.gateway.ports import StoreEvents, StoreSize, expired_notice
from remit_relay.gateway.postgres.batch import GatewayNotice, Totals

# A gateway that is alive extends its lease five times before it ends; until then its devices count as connected.
BEAT_S = 3.0
LEASE_S = 15.0
# What gateways that are gone had stored is counted elsewhere after this time.
GONE_S = 60.0
# Notifications come within a millisecond. The poll finds what was lost because a gateway or a connection died.
POLL_S = 3.0
# Through a pooler no notification comes, so polls are all there is.
POOLER_POLL_S = 0.2
# How soon the loss of the listening connection is noticed.
LOOK_S = 0.25
RETRY_S = 0.2
# The answer to a poll, and to everything else here, takes milliseconds.
ANSWER_S = 5.0
# PostgreSQL takes less than 8,000 bytes in a notification.
MOST_BYTES = 7_000
# Devices asked for in one poll statement.
POLLED = 2_000

_log = logging.getLogger("remit.relay")

_BEAT = f"""
    INSERT INTO remit_gateway.gateway (id, lease_until_ms) VALUES ($1, {NOW_MS} + $2)
    ON CONFLICT (id) DO UPDATE SET lease_until_ms = excluded.lease_until_ms
"""
_FOLD = f"""
    WITH gone AS (
        DELETE FROM remit_gateway.gateway WHERE id <> 0 AND lease_until_ms < {NOW_MS} - $1
        RETURNING devices, messages, size, kept
    )
    UPDATE remit_gateway.gateway g SET devices = g.devices + s.devices, messages = g.messages + s.messages,
        size = g.size + s.size, kept = g.kept + s.kept
    FROM (SELECT sum(devices)::bigint AS devices, sum(messages)::bigint AS messages, sum(size)::bigint AS size,
        sum(kept)::bigint AS kept FROM gone HAVING count(*) > 0) s
    WHERE g.id = 0
"""
_POLL = "SELECT id, place, session FROM remit_gateway.device WHERE key = ANY($1)"


def channel_of(gateway: int) -> str:
    """The name under which a gateway listens."""
    return f"remit_gateway_{gateway}"


class Neighbours:
    """The other gateways. *present* returns the keys of the devices that are connected here."""

    def __init__(
        self,
        address: DatabaseAddress,
        connections: Connections,
        *,
        gateway: int,
        limits: GatewayLimits,
        events: StoreEvents,
        present: Callable[[], Sequence[int]],
    ) -> None:
        self._address = address
        self._connections = connections
        self._gateway = gateway
        self._limits = limits
        self._events = events
        self._present = present
        self._unsent: defaultdict[int, list[str]] = defaultdict(list)
        self._due = asyncio.Event()

    # ── telling ───────────────────────────────────────────────────────────────────────────────────────────────────────

    def tell(self, notices: Sequence[GatewayNotice]) -> None:
        """Tell other gateways something after a commit. It may be lost: they poll."""
        for gateway, text in notices:
            self._unsent[gateway].append(text)
        if notices:
            self._due.set()

    async def send(self) -> None:
        """Send notices for ever, on connections that do not write: a notification in a commit would hold up others."""
        while True:
            await self._due.wait()
            self._due.clear()
            unsent, self._unsent = self._unsent, defaultdict(list)
            channels: list[str] = []
            payloads: list[str] = []
            for gateway, texts in unsent.items():
                for payload in _packed(texts):
                    channels.append(channel_of(gateway))
                    payloads.append(payload)
            try:
                async with self._connections.lend() as connection:
                    await connection.fetch(
                        "SELECT pg_notify(c, p) FROM unnest($1::text[], $2::text[]) AS u (c, p)",
                        channels,
                        payloads,
                        timeout=ANSWER_S,
                    )
            except FAULTS as error:
                _log.debug("notices were not sent: %s", error)
                await asyncio.sleep(RETRY_S)

    # ── hearing ───────────────────────────────────────────────────────────────────────────────────────────────────────

    async def hear(self) -> None:
        """Listen and poll for ever, on a connection of its own."""
        while True:
            connection: PgConnection | None = None
            try:
                connection = await self._address.connect()
                if not self._address.pooler:
                    await connection.add_listener(channel_of(self._gateway), self._handle_notices)
                while not connection.is_closed():
                    # At once too: what was told while nobody listened is lost.
                    await self._poll(connection)
                    await self._pause(connection)
            except FAULTS as error:
                _log.debug("listening failed and is tried again: %s", error)
            except Exception:  # noqa: BLE001 - without this task messages would wait for ever
                _log.exception("listening failed and is tried again")
            finally:
                if connection is not None:
                    connection.terminate()
            await asyncio.sleep(RETRY_S)

    async def _pause(self, connection: PgConnection) -> None:
        if self._address.pooler:
            await asyncio.sleep(POOLER_POLL_S)
            return
        waited = 0.0
        while waited < POLL_S and not connection.is_closed():
            await asyncio.sleep(LOOK_S)
            waited += LOOK_S

    async def _poll(self, connection: PgConnection) -> None:
        """Look what came for the devices here, and which of them are connected elsewhere by now."""
        keys = list(self._present())
        for start in range(0, len(keys), POLLED):
            rows = await connection.fetch(_POLL, keys[start : start + POLLED], timeout=ANSWER_S)
            for device, place, session in rows:
                self._events.replaced(device, session)
                self._events.arrived(device, place)

    def _handle_notices(self, _connection: object, _process: int, _channel: str, payload: str) -> None:
        for text in payload.split("\n"):
            match text.split(" "):
                case ["message", device, place] if place.isdecimal():
                    self._events.arrived(device, int(place))
                case ["replaced", device, session] if session.isdecimal():
                    self._events.replaced(device, int(session))
                case ["keys", device, left] if left.isdecimal():
                    self._events.keys_left(device, int(left))
                case ["expired", device, to, number] if number.isdecimal():
                    self._events.expired(device, expired_notice(self._limits, to, int(number)))
                case _:
                    _log.warning("unknown notice of another gateway; it may be newer than this one")

    # ── being alive ───────────────────────────────────────────────────────────────────────────────────────────────────

    async def beat(self) -> StoreSize:
        """Extend the lease of this gateway, count what those that are gone had stored, and return how much there is."""

        async def write(connection: PgConnection) -> StoreSize:
            await connection.execute(_BEAT, self._gateway, round(LEASE_S * 1_000), timeout=ANSWER_S)
            await connection.execute(_FOLD, round(GONE_S * 1_000), timeout=ANSWER_S)
            totals = Totals(connection)
            await totals.read()
            return totals.sized()

        return await self._connections.read(write)

    async def leave(self, within_s: float) -> None:
        """End the lease: the devices here count as not connected."""
        try:
            async with asyncio.timeout(within_s):
                connection = await self._address.connect()
                try:
                    statement = "UPDATE remit_gateway.gateway SET lease_until_ms = 0 WHERE id = $1"
                    await connection.execute(statement, self._gateway, timeout=ANSWER_S)
                finally:
                    await close_quietly(connection)
        except FAULTS as error:
            _log.debug("the lease ends by itself: %s", error)


def _packed(texts: list[str]) -> list[str]:
    """Join notices to as few payloads as their size allows; the last of equal kind and device is enough."""
    payloads, lines, size = list[str](), list[str](), 0
    for text in dict.fromkeys(texts):
        if size + len(text) >= MOST_BYTES:
            payloads.append("\n".join(lines))
            lines, size = [], 0
        lines.append(text)
        size += len(text) + 1
    payloads.append("\n".join(lines))
    return payloads
