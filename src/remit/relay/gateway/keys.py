"""The keys that devices leave with a gateway for others, and who may have them.

Both are opaque here: the bundle is signed by its device, and whoever fetches it checks that. Everything runs in the
writer's thread, inside a transaction.
"""

import hashlib
from collections.abc import Sequence

from remit.relay.gateway.ports import FULL, ROW_BYTES, UNREACHABLE, Fetched, PresencePair
from remit.relay.gateway.queue import Queue
from remit.relay.wire import AllowSenders, BundleReply, Denied, Done, Fetch, Publish

_SIZES = """
SELECT coalesce(length(bundle), 0), (SELECT coalesce(sum(length(body)), 0) FROM one_time o WHERE o.device = d.key),
    (SELECT count(*) FROM one_time o WHERE o.device = d.key AND body IS NOT NULL)
FROM device d WHERE d.key = ?
"""
_OLDEST = "SELECT key, length(body) FROM one_time WHERE device = ? AND body IS NOT NULL ORDER BY key LIMIT ?"


def publish(queue: Queue, device: int, asked: Publish) -> Done | Denied:
    """Store a bundle and one-time keys; publishing a key again changes nothing, even if it is used up.

    Beyond the limit the newest keys take the place of the oldest, which the device may have forgotten.
    """
    ((bundle, one_time, count),) = queue.connection.execute(_SIZES, (device,)).fetchall()
    over = count if asked.replace else max(0, count + len(asked.one_time) - queue.limits.one_time_keys)
    old = queue.connection.execute(_OLDEST, (device, over)).fetchall()
    added = sum(map(len, asked.one_time)) + (0 if asked.bundle is None else len(asked.bundle) - bundle)
    added -= sum(size for _, size in old)
    if reason := _objection(queue, len(asked.one_time), bundle + one_time, added):
        return Denied(request=asked.request, code="full", reason=reason)
    for key, size in old:
        queue.connection.execute("DELETE FROM one_time WHERE key = ?", (key,))
        queue.kept -= ROW_BYTES + size
    if asked.bundle is not None:
        queue.connection.execute("UPDATE device SET bundle = ? WHERE key = ?", (asked.bundle, device))
        queue.kept += len(asked.bundle) - bundle
    for body in asked.one_time:
        digest = hashlib.blake2b(body, digest_size=16).digest()
        queue.connection.execute(
            "INSERT INTO one_time (device, digest, body) VALUES (?, ?, ?) ON CONFLICT DO NOTHING",
            (device, digest, body),
        )
        if queue.connection.changes():
            queue.kept += ROW_BYTES + len(body)
    return Done(request=asked.request, one_time_left=queue.one_time_left(device))


def _objection(queue: Queue, count: int, size: int, added: int) -> str:
    """Return why a device cannot store *added* more bytes; empty if it can. Storing less is always possible."""
    limits = queue.limits
    if count > limits.one_time_keys:
        return f"the gateway keeps {limits.one_time_keys} one-time keys of a device; publish fewer"
    if added > 0 and size + added > limits.key_bytes:
        return f"the gateway keeps {limits.key_bytes} bytes of keys of a device; publish fewer"
    if added > 0 and not queue.takes(added):
        return FULL
    return ""


def fetch(queue: Queue, sender: str, asked: Fetch) -> Fetched:
    """Hand out the keys of a device to an allowed sender; the one-time key is used up by that."""
    row = queue.connection.execute(
        "SELECT d.key, d.bundle FROM device d LEFT JOIN allowed a ON a.receiver = d.key AND a.sender = ?"
        " WHERE d.id = ? AND d.bundle IS NOT NULL AND (d.is_open OR a.sender IS NOT NULL)",
        (sender, asked.device),
    ).fetchone()
    if row is None:
        return Fetched(Denied(request=asked.request, code="unreachable", reason=UNREACHABLE), 0)
    device, bundle = row
    oldest = "SELECT key, body FROM one_time WHERE device = ? AND body IS NOT NULL ORDER BY key LIMIT 1"
    taken = queue.connection.execute(oldest, (device,)).fetchone()
    if taken is not None:
        used = (queue.wall_ms(), taken[0])
        queue.connection.execute("UPDATE one_time SET body = NULL, used_ms = ? WHERE key = ?", used)
        queue.kept -= len(taken[1])
    one_time: bytes | None = None if taken is None else taken[1]
    answer = BundleReply(request=asked.request, device=asked.device, bundle=bundle, one_time=one_time)
    return Fetched(answer, queue.one_time_left(device))


def allow(queue: Queue, device: int, asked: AllowSenders) -> Done:
    """Replace the list of allowed senders of a device; also when the gateway is full, as the list may get shorter."""
    queue.forget_routes()
    ((before,),) = queue.connection.execute("SELECT count(*) FROM allowed WHERE receiver = ?", (device,)).fetchall()
    queue.connection.execute("UPDATE device SET is_open = ? WHERE key = ?", (asked.senders is None, device))
    queue.connection.execute("DELETE FROM allowed WHERE receiver = ?", (device,))
    senders = set(asked.senders or ())
    for sender in senders:
        queue.connection.execute("INSERT INTO allowed (receiver, sender) VALUES (?, ?)", (device, sender))
    queue.kept += ROW_BYTES * (len(senders) - before)
    return Done(request=asked.request, one_time_left=queue.one_time_left(device))


def presence(queue: Queue, pairs: Sequence[PresencePair]) -> dict[PresencePair, bool]:
    """Return the pairs whose device accepts messages of the asker; there is no other gateway to be connected to."""
    known = "SELECT 1 FROM device d LEFT JOIN allowed a ON a.receiver = d.key AND a.sender = ?"
    mine = f"{known} WHERE d.id = ? AND (d.is_open OR a.sender IS NOT NULL)"
    return {pair: False for pair in pairs if queue.connection.execute(mine, pair).fetchone() is not None}
