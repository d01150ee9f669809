"""One transaction of a gateway: it locks the devices it is about, decides in memory, and writes everything at once.

A receiver's row is locked until the commit. So the places of its messages are visible in their order, repeats are
recognised and limits hold, through whichever gateways they come.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any, NamedTuple

from msgspec import Struct

from remit.stores.database import NOW_MS
from remit_cluster.postgres.connection import PgConnection
from remit_relay.gateway.keys import allow_senders, fetch_keys, publish_keys
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
    Placed,
    QueueSize,
    RateAllowance,
    SentMessage,
    StoreSize,
    expired_notice,
    queue_objection,
)
from remit_relay.wire import AllowSenders, Denied, Expired, Fetch, Publish, Put, RefusalCode, Refused

# ── jobs ──────────────────────────────────────────────────────────────────────────────────────────────────────────────


class Entering(NamedTuple):
    """A device connects."""

    device: str
    may_be_new: bool


class Leaving(NamedTuple):
    """A connection has ended."""

    key: int
    session: int
    allowance: RateAllowance | None


class Acknowledging(NamedTuple):
    """A receiver has acknowledged everything up to a place."""

    receiver: int
    place: int


class Publishing(NamedTuple):
    """A device publishes keys."""

    device: int
    request: Publish


class Fetching(NamedTuple):
    """A device asks for the keys of another."""

    sender: str
    request: Fetch


class Allowing(NamedTuple):
    """A device says who may send to it."""

    device: int
    request: AllowSenders


Work = Entering | Leaving | SentMessage | Acknowledging | Publishing | Fetching | Allowing


class StoreJob(NamedTuple):
    """Some work, and a callback for its result once that is durable."""

    work: Work
    then: Callable[[Any], None]


class GatewayNotice(NamedTuple):
    """What another gateway should hear after the commit."""

    gateway: int
    text: str


# ── rows ──────────────────────────────────────────────────────────────────────────────────────────────────────────────

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


class DeviceRow(Struct, eq=False):
    """The row of a device, locked until the transaction ends."""

    key: int
    id: str
    is_open: bool
    seen_ms: int
    place: int
    messages: int
    size: int
    gateway: int | None
    session: int
    frames: float
    octets: float
    left_ms: int
    changed: bool = False

    def count(self, messages: int, size: int) -> None:
        """Add to what waits for the device."""
        self.messages += messages
        self.size += size
        self.changed = True


class PairRow(Struct, eq=False):
    """The last number of a sender for a receiver, and how much of it waits; protected by the receiver's lock."""

    number: int = 0
    messages: int = 0
    size: int = 0
    changed: bool = False


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

    async def read_pairs(self, keys: Collection[tuple[int, int]]) -> None:
        """Read pairs of receiver and sender; the receivers must be locked."""
        receivers, senders = [pair[0] for pair in keys], [pair[1] for pair in keys]
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


# ── batches ───────────────────────────────────────────────────────────────────────────────────────────────────────────


# The server ends a transaction whose gateway has stopped, so that nobody waits for its locks for longer.
BOUNDED = "SET LOCAL idle_in_transaction_session_timeout = '5s'"
TOTALS = f"""
    SELECT {NOW_MS}, sum(devices)::bigint, sum(messages)::bigint, sum(size)::bigint, sum(kept)::bigint
    FROM remit_gateway.gateway
"""
_ADD_TOTALS = """
    INSERT INTO remit_gateway.gateway AS g (id, devices, messages, size, kept) VALUES ($1, $2, $3, $4, $5)
    ON CONFLICT (id) DO UPDATE SET devices = g.devices + excluded.devices, messages = g.messages + excluded.messages,
        size = g.size + excluded.size, kept = g.kept + excluded.kept
"""
_DELETE = """
    WITH gone AS (
        DELETE FROM remit_gateway.message m USING unnest($1::bigint[], $2::bigint[]) AS u (receiver, place)
        WHERE m.receiver = u.receiver AND m.place <= u.place
        RETURNING m.receiver, m.sender, octet_length(m.body) AS size
    )
    SELECT receiver, sender, count(*), sum(size)::bigint FROM gone GROUP BY receiver, sender
"""
_ALLOWED = """
    SELECT a.receiver, a.sender FROM remit_gateway.allowed a
    JOIN unnest($1::bigint[], $2::text[]) AS u (receiver, sender) ON a.receiver = u.receiver AND a.sender = u.sender
"""
_EXPIRED = """
    SELECT p.sender, d.id, p.expired FROM remit_gateway.pair p JOIN remit_gateway.device d ON d.key = p.receiver
    WHERE p.sender = ANY($1) AND p.expired > 0
"""
_LEFT = """
    SELECT device, count(*) FROM remit_gateway.one_time WHERE device = ANY($1) AND body IS NOT NULL GROUP BY device
"""


class Totals:
    """How much all gateways store, and what this transaction adds to it."""

    def __init__(self, connection: PgConnection) -> None:
        self._connection = connection
        self.now_ms = 0
        """The time of the server: those of gateways may differ."""
        self.devices = self.messages = self.size = self.kept = 0

    async def read(self) -> None:
        row = await self._connection.fetchrow(TOTALS)
        assert row
        self.now_ms, *self._before = row
        self.devices, self.messages, self.size, self.kept = self._before

    async def write(self, gateway: int) -> None:
        after = (self.devices, self.messages, self.size, self.kept)
        added = [now - before for now, before in zip(after, self._before, strict=True)]
        if any(added):
            await self._connection.execute(_ADD_TOTALS, gateway, *added)

    @property
    def total(self) -> int:
        """The size of everything."""
        return self.size + ROW_BYTES * self.messages + self.kept

    def sized(self) -> StoreSize:
        return StoreSize(self.devices, self.messages, self.size, self.total)


class GatewayBatch:
    """The work of one transaction; everything in it is forgotten if the transaction fails."""

    def __init__(
        self,
        connection: PgConnection,
        *,
        gateway: int,
        limits: GatewayLimits,
        wall_ms: int,
        shut: dict[int, frozenset[str]],
    ) -> None:
        self._connection = connection
        self._gateway = gateway
        self._limits = limits
        self._wall_ms = wall_ms
        self.shut = dict(shut)
        """For each connection the receivers for which a message was refused, until one is put `anew`."""
        self.totals = Totals(connection)
        self.notices: list[GatewayNotice] = []
        self._rows = DeviceRows(connection)
        self._allowed: set[tuple[int, str]] = set()
        self._new: list[NewMessage] = []
        self._woken: dict[str, DeviceRow] = {}

    async def run(self, jobs: Sequence[StoreJob]) -> list[Any]:
        """Do the work of all jobs in one transaction, and return their results once they are durable."""
        async with self._connection.transaction():
            await self._connection.execute(BOUNDED)
            await self.totals.read()
            await self._lock(jobs)
            answers = await self._ask(jobs)
            await self._delete([job.work for job in jobs if isinstance(job.work, Acknowledging)])
            await self._read_pairs([job.work for job in jobs if isinstance(job.work, SentMessage)])
            results = [self._do(job, answers.get(place)) for place, job in enumerate(jobs)]
            await self._complete(results)
            await self._write()
        return results

    # ── reading ───────────────────────────────────────────────────────────────────────────────────────────────────────

    async def _lock(self, jobs: Sequence[StoreJob]) -> None:
        ids: set[str] = set()
        keys: set[int] = set()
        for job in jobs:
            match job.work:
                case Entering(device=device):
                    ids.add(device)
                case Fetching(request=request):
                    ids.add(request.device)
                case SentMessage(put=put):
                    ids.add(put.to)
                case Leaving(key=key) | Acknowledging(receiver=key) | Publishing(device=key) | Allowing(device=key):
                    keys.add(key)
        await self._rows.lock(ids, keys)
        limits, totals = self._limits, self.totals
        new = {
            work.device
            for work, _ in jobs
            if isinstance(work, Entering) and work.may_be_new and work.device not in self._rows.by_id
        }
        room = limits.max_devices - totals.devices if totals.total < limits.total_bytes else 0
        chosen = sorted(new)[: max(0, room)]
        self._added = await self._rows.add(chosen, self._wall_ms) if chosen else set[str]()
        totals.devices += len(self._added)
        totals.kept += ROW_BYTES * len(self._added)

    async def _ask(self, jobs: Sequence[StoreJob]) -> dict[int, Any]:
        """Do what is about keys and lists, before messages: it changes who may send."""
        answers: dict[int, Any] = {}
        for place, job in enumerate(jobs):
            match job.work:
                case Publishing(device=device, request=request):
                    room = self._limits.total_bytes - self.totals.total
                    answer, kept = await publish_keys(self._connection, device, request, self._limits, room)
                    self.totals.kept += kept
                    answers[place] = answer
                case Allowing(device=device, request=request):
                    answer, kept = await allow_senders(self._connection, device, request)
                    self.totals.kept += kept
                    if row := self._rows.by_key.get(device):
                        row.is_open = request.senders is None
                    answers[place] = answer
                case Fetching(sender=sender, request=request):
                    fetched, freed = await fetch_keys(self._connection, sender, request, self._wall_ms)
                    self.totals.kept -= freed
                    answers[place] = fetched
                    if not isinstance(fetched.answer, Denied) and fetched.answer.one_time is not None:
                        self._tell(
                            self._rows.by_id.get(request.device), f"keys {request.device} {fetched.one_time_left}"
                        )
                case _:
                    pass
        return answers

    async def _delete(self, acks: Sequence[Acknowledging]) -> None:
        if not acks:
            return
        last: dict[int, int] = {}
        for ack in acks:
            last[ack.receiver] = max(ack.place, last.get(ack.receiver, 0))
        rows = await self._connection.fetch(_DELETE, list(last), list(last.values()))
        messages, size = await self._rows.free((row[0], row[1], row[2], row[3]) for row in rows)
        self.totals.messages -= messages
        self.totals.size -= size

    async def _read_pairs(self, messages: Sequence[SentMessage]) -> None:
        rows = self._rows.by_id
        routes = {(row, each.sender_key, each.sender) for each in messages if (row := rows.get(each.put.to))}
        if not routes:
            return
        await self._rows.read_pairs([(row.key, key) for row, key, _ in routes])
        closed = [(row.key, sender) for row, _, sender in routes if not row.is_open]
        if closed:
            columns = [pair[0] for pair in closed], [pair[1] for pair in closed]
            self._allowed = {(row[0], row[1]) for row in await self._connection.fetch(_ALLOWED, *columns)}

    # ── deciding ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def _do(self, job: StoreJob, answer: Any) -> Any:
        match job.work:
            case SentMessage() as message:
                return self._put(message)
            case Entering() as entering:
                return self._enter(entering)
            case Leaving() as leaving:
                return self._leave(leaving)
            case Acknowledging():
                return None
            case Publishing() | Fetching() | Allowing():
                return answer

    def _enter(self, entering: Entering) -> AdmittedDevice | NoRoom:
        row = self._rows.by_id.get(entering.device)
        if row is None:
            if not entering.may_be_new:
                return NoRoom("address_devices", NO_NEW_DEVICES)
            return NoRoom("devices", NO_DEVICES)
        if row.gateway not in (None, self._gateway):
            self._tell(row, f"replaced {row.id} {row.session + 1}")
        is_new = row.id in self._added
        self._added.discard(row.id)
        allowance = self._allowance(row, is_new=is_new)
        row.session += 1
        row.gateway = self._gateway
        row.seen_ms = self._wall_ms
        row.changed = True
        return AdmittedDevice(row.key, 0, is_new, (), row.session, allowance)

    def _allowance(self, row: DeviceRow, *, is_new: bool) -> RateAllowance | None:
        """What is left of a device's rate limit: its last connection may have been at another gateway."""
        limits = self._limits
        if is_new:
            return RateAllowance(limits.frames_burst, limits.bytes_burst)
        if row.gateway == self._gateway:
            return None  # this gateway knows
        if row.gateway is not None:
            # Its gateway was killed, or does not know yet that the connection has ended: whatever it had may be spent.
            return RateAllowance(0.0, 0.0)
        passed_s = max(0, self.totals.now_ms - row.left_ms) / 1_000
        return RateAllowance(
            min(limits.frames_burst, row.frames + passed_s * limits.frames_per_s),
            min(limits.bytes_burst, row.octets + passed_s * limits.bytes_per_s),
        )

    def _leave(self, leaving: Leaving) -> None:
        row = self._rows.by_key.get(leaving.key)
        if row is None or row.session != leaving.session:
            return
        row.gateway = None
        row.frames, row.octets = leaving.allowance or RateAllowance(0.0, 0.0)
        row.left_ms = self.totals.now_ms
        row.seen_ms = max(row.seen_ms, self._wall_ms)
        row.changed = True

    def _put(self, message: SentMessage) -> Placed | Refused:
        connection, put = message.connection, message.put
        shut = self.shut.get(connection, frozenset())
        if put.to in shut and not put.anew:
            return Refused(to=put.to, number=put.number, code="behind", reason=EARLIER_REFUSED)
        row = self._rows.by_id.get(put.to)
        if row is None or not (row.is_open or (row.key, message.sender) in self._allowed):
            return self._refuse(connection, put, "unreachable", UNREACHABLE)
        key = row.key, message.sender_key
        pair = self._rows.pairs.get(key) or PairRow()
        if put.number > pair.number:
            waits, held = QueueSize(pair.messages, pair.size), QueueSize(row.messages, row.size)
            if objection := queue_objection(self._limits, waits, held, self.totals.total, len(put.body)):
                return self._refuse(connection, put, "full", objection, self._limits.full_retry_ms)
        if put.to in shut:
            self.shut[connection] = shut - {put.to}
        if put.number <= pair.number:
            return Placed(0, is_new=False)
        if not pair.number:
            self.totals.kept += ROW_BYTES
        self._rows.pairs[key] = pair
        size = len(put.body)
        pair.number = put.number
        pair.messages += 1
        pair.size += size
        pair.changed = True
        row.place += 1
        row.count(1, size)
        self.totals.messages += 1
        self.totals.size += size
        self._new.append(NewMessage(row.key, row.place, message.sender_key, put.number, put.body))
        self._woken[row.id] = row
        return Placed(row.place, is_new=True)

    def _refuse(self, connection: int, put: Put, code: RefusalCode, reason: str, retry_after_ms: int = 0) -> Refused:
        self.shut[connection] = self.shut.get(connection, frozenset()) | {put.to}
        return Refused(to=put.to, number=put.number, code=code, reason=reason, retry_after_ms=retry_after_ms)

    def _tell(self, row: DeviceRow | None, text: str) -> None:
        """Tell the gateway of a device something after the commit."""
        if row is not None and row.gateway not in (None, self._gateway):
            self.notices.append(GatewayNotice(row.gateway, text))

    # ── writing ───────────────────────────────────────────────────────────────────────────────────────────────────────

    async def _complete(self, results: list[Any]) -> None:
        """Add to each admitted device how many keys it has left, and which of its messages nobody fetched."""
        keys = [each.key for each in results if isinstance(each, AdmittedDevice)]
        if not keys:
            return
        left = {row[0]: row[1] for row in await self._connection.fetch(_LEFT, keys)}
        notices: dict[int, list[Expired]] = {}
        for sender, to, number in await self._connection.fetch(_EXPIRED, keys):
            notices.setdefault(sender, []).append(expired_notice(self._limits, to, number))
        for place, each in enumerate(results):
            if isinstance(each, AdmittedDevice):
                expired = tuple(notices.get(each.key, ())[:MOST_EXPIRED])
                results[place] = each._replace(one_time_left=left.get(each.key, 0), expired=expired)

    async def _write(self) -> None:
        await self._rows.write(self._wall_ms, self._new)
        await self.totals.write(self._gateway)
        for row in self._woken.values():
            self._tell(row, f"message {row.id} {row.place}")
