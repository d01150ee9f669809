"""The keys that devices leave in the database for others, and who may have them; the rows of devices are locked."""

import hashlib
from typing import NamedTuple

from remit.relay.gateway.limits import GatewayLimits
from remit.relay.gateway.ports import FULL, ROW_BYTES, UNREACHABLE, Fetched
from remit.relay.wire import AllowSenders, BundleReply, Denied, Done, Fetch, Publish
from remit.stores.postgres.connection import PgConnection

_SIZES = """
    SELECT coalesce(octet_length(bundle), 0),
        (SELECT coalesce(sum(octet_length(body)), 0)::bigint FROM remit_gateway.one_time o WHERE o.device = d.key),
        (SELECT count(*) FROM remit_gateway.one_time o WHERE o.device = d.key AND body IS NOT NULL)
    FROM remit_gateway.device d WHERE d.key = $1
"""
_FIND = """
    SELECT d.key, d.bundle FROM remit_gateway.device d
    WHERE d.id = $2 AND d.bundle IS NOT NULL AND (d.is_open OR EXISTS (
        SELECT 1 FROM remit_gateway.allowed a WHERE a.receiver = d.key AND a.sender = $1))
"""
# Under the lock of its device, so that no two gateways hand out the same key.
_TAKE = """
    WITH oldest AS (
        SELECT key, body FROM remit_gateway.one_time WHERE device = $1 AND body IS NOT NULL ORDER BY key LIMIT 1
    )
    UPDATE remit_gateway.one_time o SET body = NULL, used_ms = $2 FROM oldest WHERE o.key = oldest.key
    RETURNING oldest.body
"""
_OLDEST = """
    SELECT key, octet_length(body) FROM remit_gateway.one_time
    WHERE device = $1 AND body IS NOT NULL ORDER BY key LIMIT $2
"""
LEFT = "SELECT count(*) FROM remit_gateway.one_time WHERE device = $1 AND body IS NOT NULL"


class KeyChange(NamedTuple):
    """The answer to a request about keys, and by how much it changed the size of the store."""

    answer: Done | Denied
    kept: int = 0


async def publish(connection: PgConnection, device: int, asked: Publish, limits: GatewayLimits, room: int) -> KeyChange:
    """Store a bundle and one-time keys, if no more than *room* bytes are added.

    Beyond the limit the newest keys take the place of the oldest, which the device may have forgotten.
    """
    row = await connection.fetchrow(_SIZES, device)
    assert row, "its device is connected"
    bundle, one_time, count = row
    over = count if asked.replace else max(0, count + len(asked.one_time) - limits.one_time_keys)
    old = await connection.fetch(_OLDEST, device, over) if over else []
    added = sum(map(len, asked.one_time)) + (0 if asked.bundle is None else len(asked.bundle) - bundle)
    added -= sum(size for _, size in old)
    if reason := _objection(limits, len(asked.one_time), bundle + one_time, added, room):
        return KeyChange(Denied(request=asked.request, code="full", reason=reason))
    kept = 0
    if old:
        await connection.execute("DELETE FROM remit_gateway.one_time WHERE key = ANY($1)", [key for key, _ in old])
        kept -= sum(ROW_BYTES + size for _, size in old)
    if asked.bundle is not None:
        await connection.execute("UPDATE remit_gateway.device SET bundle = $2 WHERE key = $1", device, asked.bundle)
        kept += len(asked.bundle) - bundle
    if asked.one_time:
        digests = [hashlib.blake2b(body, digest_size=16).digest() for body in asked.one_time]
        rows = await connection.fetch(
            "INSERT INTO remit_gateway.one_time (device, digest, body)"
            " SELECT $1, d, b FROM unnest($2::bytea[], $3::bytea[]) WITH ORDINALITY AS u (d, b, n) ORDER BY n"
            " ON CONFLICT DO NOTHING RETURNING octet_length(body)",
            device,
            digests,
            list(asked.one_time),
        )
        kept += sum(ROW_BYTES + size for (size,) in rows)
    return KeyChange(Done(request=asked.request, one_time_left=await connection.fetchval(LEFT, device)), kept)


def _objection(limits: GatewayLimits, count: int, size: int, added: int, room: int) -> str:
    """Return why a device cannot store *added* more bytes; empty if it can. Storing less is always possible."""
    if count > limits.one_time_keys:
        return f"the gateway keeps {limits.one_time_keys} one-time keys of a device; publish fewer"
    if added > 0 and size + added > limits.key_bytes:
        return f"the gateway keeps {limits.key_bytes} bytes of keys of a device; publish fewer"
    return FULL if added > 0 and added > room else ""


async def fetch(connection: PgConnection, sender: str, asked: Fetch, now_ms: int) -> tuple[Fetched, int]:
    """Hand out the keys of a device to an allowed sender; also return by how much the store has shrunk."""
    found = await connection.fetchrow(_FIND, sender, asked.device)
    if found is None:
        return Fetched(Denied(request=asked.request, code="unreachable", reason=UNREACHABLE), 0), 0
    device, bundle = found
    one_time: bytes | None = await connection.fetchval(_TAKE, device, now_ms)
    answer = BundleReply(request=asked.request, device=asked.device, bundle=bundle, one_time=one_time)
    return Fetched(answer, await connection.fetchval(LEFT, device)), len(one_time or b"")


async def allow(connection: PgConnection, device: int, asked: AllowSenders) -> KeyChange:
    """Replace the list of allowed senders of a device."""
    gone = await connection.fetch("DELETE FROM remit_gateway.allowed WHERE receiver = $1 RETURNING 1", device)
    senders = sorted(set(asked.senders or ()))
    await connection.execute(
        "INSERT INTO remit_gateway.allowed (receiver, sender) SELECT $1, unnest($2::text[])", device, senders
    )
    is_open = asked.senders is None
    await connection.execute("UPDATE remit_gateway.device SET is_open = $2 WHERE key = $1", device, is_open)
    left = await connection.fetchval(LEFT, device)
    return KeyChange(Done(request=asked.request, one_time_left=left), ROW_BYTES * (len(senders) - len(gone)))
