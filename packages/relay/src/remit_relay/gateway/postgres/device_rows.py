"""The rows of devices and of pairs of devices that one transaction reads, locks, changes and writes back."""

from collections.abc import Collection, Iterable, Sequence
from typing import Any, NamedTuple

from remit_cluster.postgres.connection import PgConnection

_LOCK = """
    SELECT key, id, is_open, seen_ms, place, messages, size, gateway, session, frames, octets, left_ms
    FROM remit_gateway.device WHERE id = ANY($1) OR key = ANY($2) ORDER BY key FOR NO KEY UPDATE
"""
_ADD = """
    INSERT INTO remit_gateway.device (id, seen_ms) SELECT unnest($1::text[]), $2
    ON CONFLICT (id) DO NOTHING RETURNING id
"""
_PAIRS = """
    SELECT p.receiver, p.sender, p.number, p.messages, p.size FROM remit_gateway.pair p
    JOIN unnest($1::bigint[], $2::bigint[]) AS u (receiver, sender) ON p.receiver = u.receiver AND p.sender = u.sender
"""
# One statement, because each is a way to the server and back, and receivers are locked meanwhile.
_WRITE = """
    WITH devices AS (
        UPDATE remit_gateway.device d
        SET seen_ms = u.seen_ms, place = u.place, messages = u.messages, size = u.size, gateway = u.gateway,
            session = u.session, frames = u.frames, octets = u.octets, left_ms = u.left_ms
        FROM unnest($2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[], $7::bigint[], $8::bigint[],
            $9::float8[], $10::float8[], $11::bigint[])
            AS u (key, seen_ms, place, messages, size, gateway, session, frames, octets, left_ms)
        WHERE d.key = u.key
    ), pairs AS (
        INSERT INTO remit_gateway.pair (receiver, sender, number, messages, size, used_ms)
        SELECT *, $1::bigint FROM unnest($12::bigint[], $13::bigint[], $14::bigint[], $15::bigint[], $16::bigint[])
        ON CONFLICT (receiver, sender) DO UPDATE SET number = excluded.number, messages = excluded.messages,
            size = excluded.size, used_ms = excluded.used_ms, expired = 0
    )
    INSERT INTO remit_gateway.message (receiver, place, sender, number, body, at_ms)
    SELECT *, $1::bigint FROM unnest($17::bigint[], $18::bigint[], $19::bigint[], $20::bigint[], $21::bytea[])
"""
_FREE_PAIRS = """
    UPDATE remit_gateway.pair p SET messages = p.messages - u.messages, size = p.size - u.size
    FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::bigint[]) AS u (receiver, sender, messages, size)
    WHERE p.receiver = u.receiver AND p.sender = u.sender
"""


class DeviceRow:
    """The row of a device, locked until the transaction ends."""

    __slots__ = (
        "changed",
        "frames",
        "gateway",
        "id",
        "is_open",
        "key",
        "left_ms",
        "messages",
        "octets",
        "place",
        "seen_ms",
        "session",
        "size",
    )

    def __init__(
        self,
        key: int,
        id: str,
        is_open: bool,
        seen_ms: int,
        place: int,
        messages: int,
        size: int,
        gateway: int | None,
        session: int,
        frames: float,
        octets: float,
        left_ms: int,
    ) -> None:
        self.key = key
        self.id = id
        self.is_open = is_open
        self.seen_ms = seen_ms
        self.place = place
        self.messages = messages
        self.size = size
        self.gateway = gateway
        self.session = session
        self.frames = frames
        self.octets = octets
        self.left_ms = left_ms
        self.changed = False

    def count(self, messages: int, size: int) -> None:
        """Add to what waits for the device."""
        self.messages += messages
        self.size += size
        self.changed = True


class PairRow:
    """The last number of a sender for a receiver, and how much of it waits; protected by the receiver's lock."""

    __slots__ = ("changed", "messages", "number", "size")

    def __init__(self, number: int = 0, messages: int = 0, size: int = 0) -> None:
        self.number = number
        self.messages = messages
        self.size = size
        self.changed = False


class NewMessage(NamedTuple):
    """A message to insert."""

    receiver: int
    place: int
    sender: int
    number: int
    body: bytes


class DeviceRows:
    """The locked rows of one transaction, by id and by key."""

    def __init__(self, connection: PgConnection) -> None:
        self._connection = connection
        self.by_id: dict[str, DeviceRow] = {}
        self.by_key: dict[int, DeviceRow] = {}
        self.pairs: dict[tuple[int, int], PairRow] = {}

    async def lock(self, ids: Collection[str], keys: Collection[int]) -> None:
        """Lock and read rows, in the order of their keys, so that two transactions cannot block each other."""
        for row in await self._connection.fetch(_LOCK, list(ids), list(keys)):
            device = DeviceRow(*row)
            self.by_id[device.id] = self.by_key[device.key] = device

    async def add(self, ids: Collection[str], now_ms: int) -> set[str]:
        """Add devices and lock them; return those that no other gateway has added meanwhile."""
        added = {row[0] for row in await self._connection.fetch(_ADD, list(ids), now_ms)}
        await self.lock(ids, ())
        return added

    async def read_pairs(self, wanted: Collection[tuple[int, int]]) -> None:
        """Read pairs of receiver and sender; the receivers must be locked."""
        receivers, senders = [pair[0] for pair in wanted], [pair[1] for pair in wanted]
        for receiver, sender, *values in await self._connection.fetch(_PAIRS, receivers, senders):
            self.pairs[receiver, sender] = PairRow(*values)

    async def free(self, gone: Iterable[tuple[int, int, int, int]]) -> tuple[int, int]:
        """Subtract deleted messages (receiver, sender, messages, size); return how many they were in all."""
        rows = list(gone)
        for receiver, _, messages, size in rows:
            if device := self.by_key.get(receiver):
                device.count(-messages, -size)
        if rows:
            await self._connection.execute(_FREE_PAIRS, *_columns(rows, 4))
        return sum(row[2] for row in rows), sum(row[3] for row in rows)

    async def write(self, now_ms: int, new: Sequence[NewMessage] = ()) -> None:
        """Write the changed rows, and new messages."""
        devices = [
            (d.key, d.seen_ms, d.place, d.messages, d.size, d.gateway, d.session, d.frames, d.octets, d.left_ms)
            for d in self.by_key.values()
            if d.changed
        ]
        pairs = [(*key, p.number, p.messages, p.size) for key, p in self.pairs.items() if p.changed]
        if devices or pairs:
            columns = (*_columns(devices, 10), *_columns(pairs, 5), *_columns(new, 5))
            await self._connection.execute(_WRITE, now_ms, *columns)


def _columns(rows: Sequence[tuple[Any, ...]], count: int) -> list[list[Any]]:
    """Return the columns of rows, all empty if there are none."""
    return [[row[column] for row in rows] for column in range(count)]
