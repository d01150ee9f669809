"""The keys that devices leave at a gateway, and who may send to them: one SQL for both stores.

Both are opaque here: a bundle is signed by its device, and whoever fetches it checks that. Everything runs inside a
transaction that holds the device.
"""

import hashlib
from typing import NamedTuple

from remit.stores.database import SqlConnection
from remit_relay.gateway.limits import GatewayLimits
from remit_relay.gateway.ports import FULL, ROW_BYTES, UNREACHABLE, Fetched
from remit_relay.wire import AllowSenders, BundleReply, Denied, Done, Fetch, Publish

# This many rows take a few milliseconds; between two steps of a cleanup other work gets its turn.
ROWS = 500

_HELD = """
    SELECT coalesce(octet_length(bundle), 0),
        (SELECT coalesce(sum(octet_length(body)), 0)::bigint FROM remit_gateway.one_time o WHERE o.device = d.key),
        (SELECT count(*) FROM remit_gateway.one_time o WHERE o.device = d.key),
        (SELECT count(*) FROM remit_gateway.one_time o WHERE o.device = d.key AND body IS NOT NULL)
    FROM remit_gateway.device d WHERE d.key = $1
"""
_FIND = """
    SELECT d.key, d.bundle FROM remit_gateway.device d
    WHERE d.id = $2 AND d.bundle IS NOT NULL AND (d.is_open OR EXISTS (
        SELECT 1 FROM remit_gateway.allowed a WHERE a.receiver = d.key AND a.sender = $1))
"""
_OLDEST = """
    SELECT key, octet_length(body), body FROM remit_gateway.one_time
    WHERE device = $1 AND body IS NOT NULL ORDER BY key LIMIT $2
"""
_LEFT = "SELECT count(*) FROM remit_gateway.one_time WHERE device = $1 AND body IS NOT NULL"
_DROP = "DELETE FROM remit_gateway.one_time WHERE key = ANY ($1) RETURNING 1"
_ADD = "INSERT INTO remit_gateway.one_time (device, digest, body) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING"
_OLD = """
    SELECT key, coalesce(used_ms < $1, false) FROM remit_gateway.one_time WHERE key > $2 ORDER BY key LIMIT $3
"""


class KeyChange(NamedTuple):
    """The answer to a request about keys, and by how much it changed the size of the store."""

    answer: Done | Denied
    kept: int = 0


class _Held(NamedTuple):
    bundle: int
    one_time: int
    rows: int
    left: int

    @property
    def size(self) -> int:
        return self.bundle + self.one_time + ROW_BYTES * self.rows


async def _count_stored(database: SqlConnection, device: int) -> _Held:
    row = await database.fetchrow(_HELD, device)
    assert row, "its device is connected"
    return _Held(*row)


async def one_time_left(database: SqlConnection, device: int) -> int:
    """Return how many one-time keys a device has left."""
    return await database.fetchval(_LEFT, device)


async def publish_keys(
    database: SqlConnection, device: int, request: Publish, limits: GatewayLimits, room: int
) -> KeyChange:
    """Store a bundle and one-time keys, if no more than *room* bytes are added.

    Publishing a key again changes nothing, even if it is used up. Beyond the limit the newest keys take the place of
    the oldest, which the device may have forgotten.
    """
    before = await _count_stored(database, device)
    over = before.left if request.replace else max(0, before.left + len(request.one_time) - limits.one_time_keys)
    old = await database.fetch(_OLDEST, device, over) if over else []
    added = sum(map(len, request.one_time)) + (0 if request.bundle is None else len(request.bundle) - before.bundle)
    added -= sum(row[1] for row in old)
    if reason := _objection(limits, len(request.one_time), before.bundle + before.one_time, added, room):
        return KeyChange(Denied(request=request.request, code="full", reason=reason))
    if old:
        await database.execute(_DROP, [row[0] for row in old])
    if request.bundle is not None:
        await database.execute("UPDATE remit_gateway.device SET bundle = $2 WHERE key = $1", device, request.bundle)
    if request.one_time:
        digests = [hashlib.blake2b(body, digest_size=16).digest() for body in request.one_time]
        rows = [(device, digest, body) for digest, body in zip(digests, request.one_time, strict=True)]
        await database.executemany(_ADD, rows)
    after = await _count_stored(database, device)
    return KeyChange(Done(request=request.request, one_time_left=after.left), after.size - before.size)


def _objection(limits: GatewayLimits, count: int, size: int, added: int, room: int) -> str:
    """Return why a device cannot store *added* more bytes; empty if it can. Storing less is always possible."""
    if count > limits.one_time_keys:
        return f"the gateway keeps {limits.one_time_keys} one-time keys of a device; publish fewer"
    if added > 0 and size + added > limits.key_bytes:
        return f"the gateway keeps {limits.key_bytes} bytes of keys of a device; publish fewer"
    return FULL if added > 0 and added > room else ""


async def fetch_keys(database: SqlConnection, sender: str, request: Fetch, now_ms: int) -> tuple[Fetched, int]:
    """Hand out the keys of a device to an allowed sender, which uses up the one-time key.

    Also return by how much the store has shrunk.
    """
    row = await database.fetchrow(_FIND, sender, request.device)
    if row is None:
        return Fetched(Denied(request=request.request, code="unreachable", reason=UNREACHABLE), 0), 0
    device, bundle = row
    oldest = await database.fetchrow(_OLDEST, device, 1)
    one_time: bytes | None = None
    if oldest is not None:
        key, _, one_time = oldest
        used = "UPDATE remit_gateway.one_time SET body = NULL, used_ms = $2 WHERE key = $1"
        await database.execute(used, key, now_ms)
    answer = BundleReply(request=request.request, device=request.device, bundle=bundle, one_time=one_time)
    return Fetched(answer, await one_time_left(database, device)), len(one_time or b"")


async def allow_senders(database: SqlConnection, device: int, request: AllowSenders) -> tuple[Done, int]:
    """Replace the list of allowed senders of a device; also when the gateway is full, as the list may get shorter.

    Also return by how much the store has grown.
    """
    gone = await database.fetch("DELETE FROM remit_gateway.allowed WHERE receiver = $1 RETURNING 1", device)
    senders = sorted(set(request.senders or ()))
    listed = "INSERT INTO remit_gateway.allowed (receiver, sender) VALUES ($1, $2)"
    await database.executemany(listed, [(device, sender) for sender in senders])
    is_open = "UPDATE remit_gateway.device SET is_open = $2 WHERE key = $1"
    await database.execute(is_open, device, request.senders is None)
    left = await one_time_left(database, device)
    return Done(request=request.request, one_time_left=left), ROW_BYTES * (len(senders) - len(gone))


class ForgottenKeys(NamedTuple):
    """A step through the keys: how many are forgotten, and the last key if there may be more."""

    forgotten: int
    last: int | None


async def forget_used_keys(database: SqlConnection, after: int, before_ms: int) -> ForgottenKeys:
    """Forget keys after a place that were handed out so long ago that nobody publishes them again."""
    rows = await database.fetch(_OLD, before_ms, after, ROWS)
    gone = await database.fetch(_DROP, [key for key, is_old in rows if is_old])
    return ForgottenKeys(len(gone), rows[-1][0] if len(rows) == ROWS else None)
