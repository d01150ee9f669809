"""The messages that a gateway stores until their receivers have acknowledged them.

Everything here runs in the writer's thread, inside a transaction, in the order of the requests. So refusals, the order
of messages and durability are decided in one place.
"""

from collections import defaultdict, deque
from collections.abc import Callable, Iterable
from itertools import chain
from pathlib import Path

from msgspec import Struct

from remit.stores.connection import Durability, SqliteConnection, connect_writer
from remit.stores.database import SqliteDatabase, at_once
from remit_relay.gateway.keys import one_time_left
from remit_relay.gateway.limits import GatewayLimits
from remit_relay.gateway.ports import (
    EARLIER_REFUSED,
    MOST_EXPIRED,
    NO_DEVICES,
    NO_NEW_DEVICES,
    ROW_BYTES,
    UNREACHABLE,
    AdmittedDevice,
    NoRoom,
    Page,
    Placed,
    QueueSize,
    SentMessage,
    StoredDevice,
    expired_notice,
    queue_objection,
)
from remit_relay.wire import Delivery, Expired, Put, RefusalCode, Refused

SCHEMA_VERSION = 1
_SCHEMA = """
CREATE TABLE device (
    key INTEGER PRIMARY KEY,
    id TEXT NOT NULL UNIQUE,
    is_open INTEGER NOT NULL DEFAULT 1,
    bundle BLOB,
    seen_ms INTEGER NOT NULL
);
CREATE TABLE allowed (
    receiver INTEGER NOT NULL,
    sender TEXT NOT NULL,
    PRIMARY KEY (receiver, sender)
) WITHOUT ROWID;
-- Columns that are read often come before the body, which may fill many pages.
CREATE TABLE message (
    place INTEGER PRIMARY KEY,
    receiver INTEGER NOT NULL,
    sender INTEGER NOT NULL,
    number INTEGER NOT NULL,
    at_ms INTEGER NOT NULL,
    body BLOB NOT NULL
);
CREATE INDEX message_of ON message (receiver);
-- The last number of each sender for each receiver: a number that is not above it is a repeat. And the last number that
-- was deleted because nobody fetched it, until the sender sends something new.
CREATE TABLE pair (
    receiver INTEGER NOT NULL,
    sender INTEGER NOT NULL,
    number INTEGER NOT NULL,
    used_ms INTEGER NOT NULL,
    expired INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (receiver, sender)
) WITHOUT ROWID;
CREATE INDEX pair_expired ON pair (sender) WHERE expired > 0;
-- A key that was handed out leaves its digest, so that publishing it again does not bring it back.
CREATE TABLE one_time (
    key INTEGER PRIMARY KEY,
    device INTEGER NOT NULL,
    digest BLOB NOT NULL,
    body BLOB,
    used_ms INTEGER,
    UNIQUE (device, digest)
);
CREATE INDEX one_time_left ON one_time (device) WHERE body IS NOT NULL;
-- A mailbox in which two devices meet to pair, and what they tell each other. Both are gone after minutes.
CREATE TABLE mailbox (
    number INTEGER PRIMARY KEY, is_joined INTEGER NOT NULL, is_ended INTEGER NOT NULL, until_ms INTEGER NOT NULL
);
CREATE TABLE note (
    mailbox INTEGER, side TEXT, place INTEGER, body BLOB NOT NULL, PRIMARY KEY (mailbox, side, place)
) WITHOUT ROWID;
"""
# Checkpoint less often than the default of SQLite: most messages are deleted before that.
_CHECKPOINT_PAGES = 4_000

# Each statement releases the GIL and must get it back from a busy event loop, so one statement adds many rows.
_ROWS = 16
_INSERT = "INSERT INTO message (place, receiver, sender, number, at_ms, body) VALUES "
_INSERT_ONE = _INSERT + "(?, ?, ?, ?, ?, ?)"
_INSERT_MANY = _INSERT + ", ".join(["(?, ?, ?, ?, ?, ?)"] * _ROWS)
# Allowed routes between two devices that are remembered.
_MOST_ROUTES = 20_000

_Row = tuple[int, int, int, int, int, bytes]
"""A row of `message`."""


class _Route(Struct):
    """A receiver that a sender may reach, and the last number that the sender used."""

    receiver: int
    number: int


_NOTHING = QueueSize()


def _open_file(path: Path, durability: Durability) -> SqliteConnection:
    """Open the file of a gateway, locked for other processes."""
    connection = connect_writer(path, durability, busy_seconds=1.0)
    try:
        # With an exclusive lock SQLite needs no shared memory for its log, and a second gateway is refused.
        connection.pragma("locking_mode", "exclusive")
        connection.pragma("journal_mode", "wal")
        connection.pragma("wal_autocheckpoint", _CHECKPOINT_PAGES)
        connection.execute("BEGIN IMMEDIATE")
        version = connection.pragma("user_version")
        if version == 0:
            connection.execute(_SCHEMA)
        elif version != SCHEMA_VERSION:
            raise OSError(f"unsupported schema version {version} (this version of Remit supports {SCHEMA_VERSION})")
        connection.pragma("user_version", SCHEMA_VERSION)
        connection.execute("COMMIT")
    except BaseException:
        connection.close()
        raise
    return connection


def open_queue(path: Path, durability: Durability, limits: GatewayLimits, wall_ms: Callable[[], int]) -> "Queue":
    """Return the queue in a gateway's file, which is locked for other processes."""
    connection = _open_file(path, durability)
    try:
        return Queue(connection, limits, wall_ms)
    except BaseException:
        connection.close()
        raise


class Queue:
    """The queued messages, and which devices may send to which."""

    def __init__(self, connection: SqliteConnection, limits: GatewayLimits, wall_ms: Callable[[], int]) -> None:
        self.connection = connection
        self.limits = limits
        self.wall_ms = wall_ms
        self._present: dict[int, int] = {}
        """The device of each connection."""
        self.reload()

    def reload(self) -> None:
        """Load all counters from the file: at the start, and after a failed transaction."""
        self._receivers: defaultdict[int, QueueSize] = defaultdict(QueueSize)
        self._pairs: defaultdict[tuple[int, int], QueueSize] = defaultdict(QueueSize)
        self.all = QueueSize()
        self.kept = 0
        """The size of everything but messages: keys, lists, pairs of sender and receiver."""
        self._shut: dict[int, set[str]] = {}
        """For each connection the receivers for which a message was refused, until one is put `anew`."""
        self._routes: dict[tuple[int, str], _Route] = {}
        self._new: defaultdict[int, deque[_Row]] = defaultdict(deque)
        """For each receiver the rows that are not written yet, by place; `_used` has their last numbers."""
        self._used: dict[tuple[int, int], int] = {}
        counted = "SELECT receiver, sender, count(*), sum(length(body)) FROM message GROUP BY receiver, sender"
        for receiver, sender, messages, size in self.connection.execute(counted):
            self.count(receiver, sender, messages, size)
        counted = "SELECT count(*), coalesce(sum(length(bundle)), 0) FROM device"
        ((self.devices, self.kept),) = self.connection.execute(counted).fetchall()
        counted = "SELECT coalesce(sum(length(body)), 0) FROM one_time"
        self.kept += int(self.connection.execute(counted).fetchall()[0][0])
        for table in ("device", "allowed", "pair", "one_time"):
            ((rows,),) = self.connection.execute(f"SELECT count(*) FROM {table}").fetchall()
            self.kept += ROW_BYTES * rows

    def last_place(self) -> int:
        """The place of the last message."""
        return int(self.connection.execute("SELECT coalesce(max(place), 0) FROM message").fetchall()[0][0])

    # ── connecting and disconnecting ──────────────────────────────────────────────────────────────────────────────────

    def enter(self, connection: int, device: str, *, may_be_new: bool) -> AdmittedDevice | NoRoom:
        """Admit an authenticated device, or return why there is no room for it."""
        now_ms = self.wall_ms()
        row = self.connection.execute("SELECT key FROM device WHERE id = ?", (device,)).fetchone()
        if is_new := row is None:
            if not may_be_new:
                return NoRoom("address_devices", NO_NEW_DEVICES)
            if self.devices >= self.limits.max_devices or self.size() >= self.limits.total_bytes:
                return NoRoom("devices", NO_DEVICES)
            self.connection.execute("INSERT INTO device (id, seen_ms) VALUES (?, ?)", (device, now_ms))
            row = self.connection.execute("SELECT last_insert_rowid()").fetchall()[0]
            self.devices += 1
            self.kept += ROW_BYTES
        else:
            self.connection.execute("UPDATE device SET seen_ms = ? WHERE key = ?", (now_ms, row[0]))
        key = int(row[0])
        self._present[connection] = key
        return AdmittedDevice(key, at_once(one_time_left(self.database, key)), is_new, self._expired_of(key))

    def leave(self, connection: int) -> None:
        """Forget a connection that has ended, and its refusals."""
        self._shut.pop(connection, None)
        self._present.pop(connection, None)

    def present(self) -> frozenset[int]:
        """The devices that are connected."""
        return frozenset(self._present.values())

    def look(self, device: str) -> StoredDevice | None:
        """Return the status of a device, None if it is unknown."""
        row = self.connection.execute("SELECT key FROM device WHERE id = ?", (device,)).fetchone()
        if row is None:
            return None
        held = self._receivers.get(row[0])
        return StoredDevice(
            row[0] in self.present(), held.messages if held else 0, at_once(one_time_left(self.database, row[0]))
        )

    @property
    def database(self) -> SqliteDatabase:
        """The file, as queries for both stores see it."""
        return SqliteDatabase(self.connection, self.wall_ms)

    def remove_device(self, key: int) -> None:
        """Delete a device for which no message waits, with its keys and lists."""
        size = (
            "SELECT coalesce(length(bundle), 0)"
            " + (SELECT coalesce(sum(coalesce(length(body), 0) + ?2), 0) FROM one_time WHERE device = ?1)"
            " + ?2 * (1 + (SELECT count(*) FROM allowed WHERE receiver = ?1)"
            " + (SELECT count(*) FROM pair WHERE receiver = ?1)) FROM device WHERE key = ?1"
        )
        ((freed,),) = self.connection.execute(size, (key, ROW_BYTES)).fetchall()
        for table, column in (("pair", "receiver"), ("allowed", "receiver"), ("one_time", "device"), ("device", "key")):
            self.connection.execute(f"DELETE FROM {table} WHERE {column} = ?", (key,))
        self.kept -= freed
        self.devices -= 1
        self.forget_routes()

    def _expired_of(self, sender: int) -> tuple[Expired, ...]:
        rows = self.connection.execute(
            "SELECT d.id, p.expired FROM pair p JOIN device d ON d.key = p.receiver"
            " WHERE p.sender = ? AND p.expired > 0 LIMIT ?",
            (sender, MOST_EXPIRED),
        )
        return tuple(expired_notice(self.limits, to, number) for to, number in rows)

    # ── messages ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def put(self, message: SentMessage, at_ms: int | None = None) -> Placed | Refused:
        """Queue a message at its reserved place, unless it is a repeat."""
        connection, sender, sender_id, put, place = message
        assert place is not None
        shut = self._shut.get(connection)
        if shut is not None and put.to in shut and not put.anew:
            return Refused(to=put.to, number=put.number, code="behind", reason=EARLIER_REFUSED)
        route = self._route(sender, sender_id, put.to)
        if route is None:
            return self._refuse(connection, put, "unreachable", UNREACHABLE)
        if put.number > route.number and (objection := self._objection(route.receiver, sender, len(put.body))):
            return self._refuse(connection, put, "full", objection, self.limits.full_retry_ms)
        if shut:
            shut.discard(put.to)
        if put.number <= route.number:
            return Placed(place, is_new=False)
        if not route.number:
            self.kept += ROW_BYTES
        route.number = self._used[route.receiver, sender] = put.number
        at_ms = at_ms or self.wall_ms()
        self._new[route.receiver].append((place, route.receiver, sender, put.number, at_ms, put.body))
        self.count(route.receiver, sender, 1, len(put.body))
        return Placed(place, is_new=True)

    def put_all(self, messages: Iterable[SentMessage]) -> list[Placed | Refused]:
        """Queue messages in their order."""
        at_ms = self.wall_ms()
        return [self.put(message, at_ms) for message in messages]

    def write(self) -> None:
        """Write the queued rows: before each query on them, and at the end of each transaction."""
        new, used = sorted(chain.from_iterable(self._new.values())), self._used
        whole = len(new) - len(new) % _ROWS
        for start in range(0, whole, _ROWS):
            self.connection.execute(_INSERT_MANY, tuple(chain.from_iterable(new[start : start + _ROWS])))
        for row in new[whole:]:
            self.connection.execute(_INSERT_ONE, row)
        now_ms = self.wall_ms() if used else 0
        for (receiver, sender), number in used.items():
            self.connection.execute(
                "INSERT INTO pair (receiver, sender, number, used_ms) VALUES (?1, ?2, ?3, ?4)"
                " ON CONFLICT DO UPDATE SET number = ?3, used_ms = ?4, expired = 0",
                (receiver, sender, number, now_ms),
            )
        self._new.clear()
        used.clear()

    def forget_routes(self) -> None:
        """Forget all remembered routes, because permissions have changed."""
        self.write()
        self._routes.clear()

    def _route(self, sender: int, sender_id: str, to: str) -> _Route | None:
        route = self._routes.get((sender, to))
        if route is not None:
            return route
        row = self.connection.execute(
            "SELECT d.key, coalesce(p.number, 0) FROM device d"
            " LEFT JOIN allowed a ON a.receiver = d.key AND a.sender = ?1"
            " LEFT JOIN pair p ON p.receiver = d.key AND p.sender = ?2"
            " WHERE d.id = ?3 AND (d.is_open OR a.sender IS NOT NULL)",
            (sender_id, sender, to),
        ).fetchone()
        if row is None:
            return None
        if len(self._routes) >= _MOST_ROUTES:
            self.forget_routes()
        route = self._routes[sender, to] = _Route(*row)
        return route

    def page(self, receiver: int, after: int, messages: int, size: int) -> Page:
        """Return the messages after a place: at least one if there is any, up to *messages* and *size* bytes."""
        self.write()
        rows = self.connection.execute(
            "SELECT m.place, d.id, m.number, m.body FROM message m JOIN device d ON d.key = m.sender"
            " WHERE m.receiver = ? AND m.place > ? ORDER BY m.place LIMIT ?",
            (receiver, after, messages + 1),
        )
        deliveries: list[Delivery] = []
        for row in rows:
            if len(deliveries) == messages or (deliveries and size < len(row[3])):
                return Page(deliveries, more=True)
            deliveries.append(Delivery(*row))
            size -= len(row[3])
        return Page(deliveries, more=False)

    def acknowledge(self, receiver: int, place: int) -> None:
        """Delete what the receiver has acknowledged.

        A message that is not written yet is never written: its receiver has stored it. Its number is written in this
        transaction, and only then its sender gets a receipt. If the gateway dies before that, the sender sends it
        again, and the receiver recognises the number.
        """
        new = self._new[receiver]
        while new and new[0][0] <= place:
            row = new.popleft()
            self.count(receiver, row[2], -1, -len(row[5]))
        whole = self._receivers.get(receiver)
        if whole is None or whole.messages == len(new):
            return  # nothing of it is in the file
        gone = (
            "SELECT sender, count(*), sum(length(body)) FROM message WHERE receiver = ? AND place <= ? GROUP BY sender"
        )
        for sender, messages, size in self.connection.execute(gone, (receiver, place)).fetchall():
            self.count(receiver, sender, -messages, -size)
        self.connection.execute("DELETE FROM message WHERE receiver = ? AND place <= ?", (receiver, place))

    def holds(self, receiver: int, sender: int) -> bool:
        """Return whether a message from one device waits for another."""
        return (receiver, sender) in self._pairs

    def size(self) -> int:
        """The size of everything that is stored."""
        return self.all.size + ROW_BYTES * self.all.messages + self.kept

    def _objection(self, receiver: int, sender: int, size: int) -> str:
        """Return why a message does not fit; empty if it does."""
        pair, whole = self._pairs.get((receiver, sender), _NOTHING), self._receivers.get(receiver, _NOTHING)
        return queue_objection(self.limits, pair, whole, self.size(), size)

    def _refuse(self, connection: int, put: Put, code: RefusalCode, reason: str, retry_after_ms: int = 0) -> Refused:
        self._shut.setdefault(connection, set()).add(put.to)
        return Refused(to=put.to, number=put.number, code=code, reason=reason, retry_after_ms=retry_after_ms)

    def count(self, receiver: int, sender: int, messages: int, size: int) -> None:
        """Add a number of messages and bytes from one device to another to the counters."""
        whole, pair = self._receivers[receiver], self._pairs[receiver, sender]
        whole.messages += messages
        whole.size += size
        pair.messages += messages
        pair.size += size
        self.all.messages += messages
        self.all.size += size
        if not whole.messages:
            del self._receivers[receiver]
        if not pair.messages:
            del self._pairs[receiver, sender]
