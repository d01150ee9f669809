"""Reads pages of messages and the status of devices from the database."""

from collections.abc import Sequence

from remit.relay.gateway.ports import Page, PresencePair, StoredDevice
from remit.relay.wire import Delivery
from remit.stores.postgres.connection import PgConnection
from remit.stores.postgres.schema import NOW_MS

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
    found: list[Delivery] = []
    for last, place, sender, number, body in rows:
        if place is None:
            return Page([], more=False, upto=last)
        if body is None or len(found) == messages:
            return Page(found, more=True)
        found.append(Delivery(place, sender, number, body))
    return Page(found, more=False, upto=rows[0][0] if rows else 0)


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
