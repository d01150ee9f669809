"""The cleanup of a gateway's file in small steps.

A pass goes once through each table, a few rows at each step, so that nobody waits for it. Everything runs in the
writer's thread, inside a transaction; if that fails, the next pass visits the same rows.
"""

from collections.abc import Iterator

from remit.relay.gateway.limits import DAY_S
from remit.relay.gateway.ports import ROW_BYTES, CleanupResult
from remit.relay.gateway.queue import Queue
from remit.relay.wire import Expired

# This many rows take a few milliseconds; between two steps other work gets its turn.
ROWS = 500


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
    told: list[tuple[str, Expired]] = []
    for (receiver, sender), number in last.items():
        # Marked as used now, so that the sender is notified even if it connects only weeks later.
        queue.connection.execute(
            "UPDATE pair SET expired = ?, used_ms = ? WHERE receiver = ? AND sender = ?",
            (number, now_ms, receiver, sender),
        )
        ids = "SELECT (SELECT id FROM device WHERE key = ?), (SELECT id FROM device WHERE key = ?)"
        ((sender_id, receiver_id),) = queue.connection.execute(ids, (sender, receiver)).fetchall()
        if sender_id and receiver_id:
            told.append((sender_id, queue.expired(receiver_id, number)))
    return CleanupResult(full, tuple(told), expired=len(rows))


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
    """Forget keys that were handed out so long ago that nobody publishes them again."""
    after, looked = 0, ROWS
    while looked == ROWS:
        before_ms = _before_ms(queue, queue.limits.repeat_days * DAY_S)
        rows = queue.connection.execute(
            "SELECT key, used_ms FROM one_time WHERE key > ? ORDER BY key LIMIT ?", (after, ROWS)
        ).fetchall()
        old = [key for key, used_ms in rows if used_ms is not None and used_ms < before_ms]
        for key in old:
            queue.connection.execute("DELETE FROM one_time WHERE key = ?", (key,))
        queue.kept -= ROW_BYTES * len(old)
        looked = len(rows)
        after = rows[-1][0] if rows else after
        yield CleanupResult(looked == ROWS)


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
