"""Puts the records of all hubs into one hash chain, behind their commits.

A hub commits its records under numbers of its own stream and waits for nobody. Whoever needs the one order, or has
committed something a moment ago, extends the chain by all records that are not in it yet: one hub at a time, by an
advisory lock. Only digests are read and written.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterable
from heapq import merge
from typing import NamedTuple

from remit.ports import StoreError
from remit.runtime.audit import GENESIS, link
from remit.runtime.clock import end_tasks
from remit.runtime.signing import CheckpointKey
from remit_cluster.postgres.checkpoints import seal_if_due
from remit_cluster.postgres.connection import TROUBLE, Connections, PgConnection
from remit_cluster.postgres.schema import CHAINING

# How many records of each stream are chained at once: this takes some 20 ms.
MOST = 1_000
# How long records may wait until the chain is extended: those of a listener, and others, which share a block then.
EAGER_SECONDS = 0.005
PATIENT_SECONDS = 0.1
# After an error, or while another hub extends the chain.
RETRY_SECONDS = 0.25

_log = logging.getLogger("remit.store")

_DIGEST = 32


class Unchained(NamedTuple):
    """A record that is not in the chain yet."""

    tx: int
    """The highest transaction id up to it in its stream, so that a stream keeps its own order."""
    stream: int
    number: int
    digest: bytes


class ChainBlock(NamedTuple):
    """A piece of the chain: consecutive records of one stream."""

    first: int
    last: int
    stream: int
    number: int
    digests: bytes


class Head(NamedTuple):
    """The end of the chain."""

    seq: int
    digest: bytes


# A hub that is stopped while it extends the chain is thrown out by the server, and the next one goes on.
_LIMITS = "SET LOCAL idle_in_transaction_session_timeout = '5s'; SET LOCAL lock_timeout = '30s'"

# In one statement, so that all streams are read in one snapshot.
_UNCHAINED = """
    SELECT stream.id, new.number, new.digest, new.tx::text::bigint
    FROM remit.stream CROSS JOIN LATERAL (
        SELECT record.number, record.digest, record.tx FROM remit.record
        WHERE record.stream = stream.id AND record.number > stream.chained ORDER BY record.number LIMIT $1
    ) AS new
    WHERE NOT stream.closed AND stream.number > stream.chained ORDER BY stream.id, new.number
"""

_HEAD = """
    SELECT last, substring(digests FROM octet_length(digests) - 31) FROM remit.chain ORDER BY first DESC LIMIT 1
"""

_EXTEND = """
    WITH added AS (
        INSERT INTO remit.chain SELECT * FROM
            unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bytea[])
    ), noted AS (
        UPDATE remit.store SET since_ms = $8 WHERE since_ms = 0
    )
    UPDATE remit.stream SET chained = new.number FROM unnest($6::bigint[], $7::bigint[]) AS new (id, number)
    WHERE stream.id = new.id
"""


async def is_behind(connection: PgConnection) -> bool:
    """Return whether any record is not in the chain yet."""
    sql = "SELECT EXISTS (SELECT 1 FROM remit.stream WHERE NOT closed AND number > chained)"
    return await connection.fetchval(sql)


async def read_head(connection: PgConnection) -> Head:
    """Return the end of the chain."""
    row = await connection.fetchrow(_HEAD)
    return Head(*row) if row else Head(0, GENESIS)


def in_order(rows: Iterable[tuple[int, int, bytes, int]], most: int) -> list[Unchained]:
    """Return records of several streams in the order of their transactions.

    A stream of which there may be more than *most* is only chained up to where its order is known; the others wait.
    """
    streams: dict[int, list[Unchained]] = {}
    for stream, number, digest, tx in rows:
        known = streams.setdefault(stream, [])
        known.append(Unchained(max(tx, known[-1].tx) if known else tx, stream, number, digest))
    cut = min((each[-1].tx for each in streams.values() if len(each) >= most), default=None)
    merged = list(merge(*streams.values()))
    return merged if cut is None else [each for each in merged if each.tx <= cut]


def linked(head: Head, records: Iterable[Unchained]) -> list[ChainBlock]:
    """Return the blocks that extend the chain by these records."""
    blocks: list[ChainBlock] = []
    seq, digest = head
    begun: Unchained | None = None
    digests: list[bytes] = []
    first = seq + 1
    for each in records:
        follows = begun is not None and each.stream == begun.stream and each.number == begun.number + len(digests)
        if begun is None or not follows or len(digests) >= MOST:
            if begun is not None:
                blocks.append(ChainBlock(first, seq, begun.stream, begun.number, b"".join(digests)))
            begun, digests, first = each, [], seq + 1
        seq += 1
        digest = link(digest, seq, each.digest)
        digests.append(digest)
    if begun is not None:
        blocks.append(ChainBlock(first, seq, begun.stream, begun.number, b"".join(digests)))
    return blocks


async def extend(connection: PgConnection, now_ms: int) -> tuple[Head, bool]:
    """Extend the chain in a transaction that holds the lock; return its end, and whether there is more."""
    # A statement of its own: its snapshot is taken after the lock.
    records = in_order(await connection.fetch(_UNCHAINED, MOST), MOST)
    head = await read_head(connection)
    if records:
        blocks = linked(head, records)
        ends = {block.stream: block.number + block.last - block.first for block in blocks}
        columns = [list(column) for column in zip(*blocks, strict=True)]
        await connection.execute(_EXTEND, *columns, list(ends), list(ends.values()), now_ms)
        head = Head(blocks[-1].last, blocks[-1].digests[-_DIGEST:])
    return head, len(records) >= MOST


async def bring_up_to_date(connection: PgConnection) -> None:
    """Extend the chain by everything that was committed, without signing it."""
    more = await is_behind(connection)
    while more:
        async with connection.transaction():
            await connection.execute(_LIMITS)
            await connection.execute("SELECT pg_advisory_xact_lock($1)", CHAINING)
            _, more = await extend(connection, time.time_ns() // 1_000_000)


async def seal_all(connection: PgConnection, key: CheckpointKey, now_ms: int) -> None:
    """Extend the chain by everything that was committed, and sign its end."""
    more = True
    while more:
        async with connection.transaction():
            await connection.execute(_LIMITS)
            await connection.execute("SELECT pg_advisory_xact_lock($1)", CHAINING)
            (seq, digest), more = await extend(connection, now_ms)
            if not more:
                await seal_if_due(connection, key, seq, digest, every=0, seconds=0, now_ms=now_ms)


class Chainer:
    """Extends the chain for this hub: in the background, and for whoever needs it now."""

    def __init__(
        self,
        connections: Connections,
        key: CheckpointKey,
        *,
        every: int,
        seconds: float,
        wall_ms: Callable[[], int],
        chained: Callable[[PgConnection], Awaitable[None]],
    ) -> None:
        self._connections = connections
        self._key = key
        self._every = every
        self._seconds = seconds
        self._wall_ms = wall_ms
        self._tell = chained
        self._kicked = asyncio.Event()
        self._delay = PATIENT_SECONDS
        self._turn = asyncio.Lock()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run(), name="remit-postgres-chainer")

    async def stop(self) -> None:
        """Extend the chain a last time, sign it, and end."""
        await self.end()
        await self.catch_up(sign=True)

    async def end(self) -> None:
        """End the task, if it has not ended."""
        if self._task is not None:
            await end_tasks([self._task])
            self._task = None

    def kick(self, *, eager: bool) -> None:
        """Extend the chain soon."""
        self._delay = EAGER_SECONDS if eager else self._delay
        self._kicked.set()

    async def catch_up(self, *, sign: bool = False) -> None:
        """Return once everything that was committed before is in the chain."""
        async with self._turn, self._connections.lend() as connection:
            if sign or await is_behind(connection):
                while await self._extend(connection, wait=True, sign=sign):
                    pass

    async def _run(self) -> None:
        """Extend the chain whenever this hub has committed something, and sign it when that is due."""
        while True:
            try:
                async with asyncio.timeout(self._seconds):
                    await self._kicked.wait()
                    await asyncio.sleep(self._delay)
            except TimeoutError:
                pass
            self._kicked.clear()
            self._delay = PATIENT_SECONDS
            try:
                async with self._turn, self._connections.lend() as connection:
                    more = await self._extend(connection, wait=False, sign=False)
                if more:
                    self._kicked.set()
            except (*TROUBLE, StoreError) as error:
                # The writer reports it; whatever waits for the chain tries by itself.
                _log.debug("the chain was not extended: %s", type(error).__name__)
                await asyncio.sleep(RETRY_SECONDS)
                self._kicked.set()
            except Exception:  # noqa: BLE001 - the task must go on
                _log.exception("the chain was not extended")
                await asyncio.sleep(RETRY_SECONDS)

    async def _extend(self, connection: PgConnection, *, wait: bool, sign: bool) -> bool:
        """Extend the chain once, report it, and return whether there is more."""
        more = await self._extend_chain(connection, wait=wait, sign=sign)
        await self._tell(connection)
        return more

    async def _extend_chain(self, connection: PgConnection, *, wait: bool, sign: bool) -> bool:
        async with connection.transaction():
            await connection.execute(_LIMITS)
            if wait:
                await connection.execute("SELECT pg_advisory_xact_lock($1)", CHAINING)
            elif not await connection.fetchval("SELECT pg_try_advisory_xact_lock($1)", CHAINING):
                return True
            now_ms = self._wall_ms()
            head, more = await extend(connection, now_ms)
            await seal_if_due(
                connection,
                self._key,
                head.seq,
                head.digest,
                every=0 if sign and not more else self._every,
                seconds=self._seconds,
                now_ms=now_ms,
            )
        return more
