"""Verifies the audit chain in a PostgreSQL database."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection, Iterator, Sequence
from typing import NamedTuple, Protocol, TypeVar

import msgspec

from remit.protocol.errors import Code, fault
from remit.runtime.audit import GENESIS, AuditFinding, AuditVerdict, ChainRow, RemovedRow, Tampering, Unsigned, verify
from remit.runtime.audit.chain import intact_rows
from remit.runtime.audit.stored_chain import ChainLink, Watch, watched
from remit.runtime.ports import StoreError
from remit.runtime.signing import Checkpoint, CheckpointKey
from remit.stores.audit import GRACE_ROWS, GRACE_SECONDS, SKEW_MS, Linked
from remit.stores.checkpoints import EVERY, SECONDS
from remit.stores.schema import KIND_OF
from remit_cluster.postgres.chain_rows import blocks_after, breaks, removals, rows_between, rows_in
from remit_cluster.postgres.checkpoints import digest_at, newest_checkpoint, read_checkpoints, read_mark
from remit_cluster.postgres.connection import PgConnection, Query
from remit_cluster.postgres.schema import SEQ

# How many blocks of the chain are read at once, each of up to 1,000 rows.
_BLOCKS = 8


class _Walk(NamedTuple):
    """Rows that were read, and where to go on."""

    rows: list[ChainRow | RemovedRow]
    after: int | None
    """The first number of the last block; None: that was all."""
    gaps: list[AuditFinding]


async def audit(
    connection: PgConnection,
    public_key: bytes | None,
    *,
    pinned: Collection[bytes] = (),
    anchors: Sequence[Checkpoint] = (),
    every: int = EVERY,
    seconds: float = SECONDS,
    start: Checkpoint | None = None,
    watch: Watch | None = None,
) -> AuditVerdict:
    """Verify the whole chain, or what comes after the checkpoint *start*; hubs may keep writing meanwhile."""
    async with connection.transaction(isolation="repeatable_read", readonly=True):
        checkpoints = await read_checkpoints(connection)
        mark = await read_mark(connection)
        since = await _reached(connection, start)
        seq = since.seq if since else 0
        announced, stated = await breaks(connection), await removals(connection, seq)
        referenced = await connection.fetchval(_REFERENCED)
        loop = asyncio.get_running_loop()
        ends: dict[int, int] = dict(await connection.fetch(_ENDS, seq)) if since else {}
        gaps: list[AuditFinding] = []

        def rows() -> Iterator[ChainRow | RemovedRow]:
            # In a thread: hashing takes long, and the loop goes on.
            after: int | None = seq
            while after is not None:
                page = asyncio.run_coroutine_threadsafe(_page(connection, after, ends), loop).result()
                gaps.extend(page.gaps)
                yield from page.rows
                after = page.after

        now_ms = time.time_ns() // 1_000_000
        due_ms = now_ms - int((seconds + GRACE_SECONDS) * 1_000)
        verdict = await asyncio.to_thread(
            verify,
            watched(rows(), watch),
            checkpoints,
            remembered=mark.number if mark else None,
            remembered_seq=mark.seq if mark else None,
            referenced=referenced,
            public_key=public_key,
            pinned=pinned,
            breaks=announced,
            anchors=anchors,
            unsigned=Unsigned(due_ms, every + GRACE_ROWS, mark.since_ms if mark else 0, now_ms + SKEW_MS),
            removals=stated,
            start=since,
        )
        unchained, missing = await _unchained(connection, ends)
    findings = (*verdict.findings, *gaps, *missing)
    return msgspec.structs.replace(verdict, unchained=unchained, findings=findings)


# The last record of each stream in the blocks up to a row.
_ENDS = "SELECT stream, max(number + last - first) FROM remit.chain WHERE first <= $1 GROUP BY stream"


async def _reached(connection: PgConnection, start: Checkpoint | None) -> Checkpoint | None:
    """Return the checkpoint from which to go on: the record must still lead to it, and a block must end there."""
    if start is None or await digest_at(connection, start.seq) != bytes.fromhex(start.digest):
        return None
    last = await connection.fetchval(
        "SELECT last FROM remit.chain WHERE first <= $1 ORDER BY first DESC LIMIT 1", start.seq
    )
    return start if last == start.seq else None


async def _page(connection: PgConnection, after: int, ends: dict[int, int]) -> _Walk:
    blocks = await blocks_after(connection, after, _BLOCKS)
    if not blocks:
        return _Walk([], None, [])
    gaps: list[AuditFinding] = []
    for first, last, stream, number, _ in blocks:
        expected = ends.get(stream, 0) + 1
        if number != expected:
            text = f"records {expected} to {number - 1} of stream {stream} never came into the chain"
            gaps.append(AuditFinding(tampering=Tampering.DELETED, first=first, last=first, message=text))
        ends[stream] = max(ends.get(stream, 0), number + last - first)
    # A row that is missing is reported by the walk.
    return _Walk(await rows_in(connection, blocks), blocks[-1].first, gaps)


async def _unchained(connection: PgConnection, ends: dict[int, int]) -> tuple[int, list[AuditFinding]]:
    """Return how many records are not in the chain yet, and what is wrong with them."""
    findings: list[AuditFinding] = []
    unchained = 0
    for stream, number, chained, count in await connection.fetch(_UNCHAINED):
        unchained += count
        behind = ends.get(stream, 0)
        if chained != behind:
            text = f"stream {stream} is marked as chained up to record {chained}, and the chain has {behind}"
            findings.append(AuditFinding(tampering=Tampering.TRUNCATED, first=0, last=0, message=text))
        elif count != number - chained:
            text = f"stream {stream} has {number} records, and {number - chained - count} of them are gone"
            findings.append(AuditFinding(tampering=Tampering.DELETED, first=0, last=0, message=text))
    known = set(await _known_streams(connection))
    for stream in ends.keys() - known:
        text = f"the row of stream {stream} is gone"
        findings.append(AuditFinding(tampering=Tampering.DELETED, first=0, last=0, message=text))
    return unchained, findings


async def _known_streams(connection: PgConnection) -> list[int]:
    return [id for (id,) in await connection.fetch("SELECT id FROM remit.stream")]


_UNCHAINED = """
    SELECT id, number, chained, (SELECT count(*) FROM remit.record WHERE stream = id AND number > chained)
    FROM remit.stream
"""

_REFERENCED = f"""
    SELECT coalesce(max(seq), 0) FROM (
        SELECT coalesce(last_stream, begun_stream) AS stream, coalesce(last_number, begun_number) AS number
        FROM remit.request ORDER BY place DESC LIMIT 1
    ) AS record {SEQ}
"""


async def newest_anchor(connection: PgConnection, name: str) -> tuple[Checkpoint, int]:
    """Return the newest checkpoint and the number of rows after it, or raise `StoreError` if none is valid."""
    newest = await newest_checkpoint(connection)
    if newest is None:
        message = f"{name}: no checkpoint was written yet"
        advice = f"A hub writes one every {SECONDS:.0f} s while records come, and when it closes."
        raise StoreError(fault(Code.STORE_UNAVAILABLE, message, suggestion=advice))
    digest = await digest_at(connection, newest.seq)
    if not newest.is_genuine() or digest is None or digest.hex() != newest.digest:
        message = f"{name}: checkpoint {newest.number} does not match the record"
        raise StoreError(fault(Code.STORE_UNAVAILABLE, message, suggestion="Check it with `remit audit verify`."))
    head: int = await connection.fetchval("SELECT max(last) FROM remit.chain")
    return newest, head - newest.seq


async def linked_rows(
    connection: PgConnection, *, run: str | None = None, after: int = 0, limit: int = 1_000
) -> list[Linked]:
    """Return rows in order as they are stored, tampered ones included; optionally of one run."""
    rows = await connection.fetch(_LINKED, after, run, limit)
    return [
        Linked(
            previous or GENESIS, ChainRow(seq, KIND_OF.get(kind, f"kind {kind}"), at_ms, of_run, session, body, digest)
        )
        for previous, seq, kind, at_ms, of_run, session, body, digest in rows
    ]


_DIGEST_AT = (
    "(SELECT substring(digests FROM (({seq} - first) * 32 + 1)::int FOR 32) FROM remit.chain"
    " WHERE first <= {seq} ORDER BY first DESC LIMIT 1)"
)
_LINKED = f"""
    SELECT {_DIGEST_AT.format(seq="(found.seq - 1)")}, seq, kind, at_ms, run, session, body AS stored,
        {_DIGEST_AT.format(seq="found.seq")}
    FROM (
        SELECT placed.seq, kind, at_ms, run, session, body FROM remit.record {SEQ}
        WHERE placed.seq > $1 AND ($2::text IS NULL OR run = $2) ORDER BY placed.seq LIMIT $3
    ) AS found ORDER BY seq
"""


T = TypeVar("T")


class ReadsDatabase(Protocol):
    """Runs a query on a connection that reads."""

    def __call__(self, query: Query[T], /) -> Awaitable[T]: ...


class PostgresChain:
    """The chain in a database."""

    def __init__(self, read: ReadsDatabase, key: Callable[[], CheckpointKey], *, every: int, seconds: float) -> None:
        """*key* returns the key that signs; the store must be open."""
        self._read, self._key = read, key
        self._every, self._seconds = every, seconds

    async def verify(self, *, start: Checkpoint | None = None, watch: Watch | None = None) -> AuditVerdict:
        public, every, seconds = self._key().public, self._every, self._seconds
        return await self._read(
            lambda connection: audit(connection, public, every=every, seconds=seconds, start=start, watch=watch)
        )

    async def newest_checkpoint(self) -> Checkpoint | None:
        return await self._read(newest_checkpoint)

    async def intact(self, first: int, last: int) -> dict[int, bool]:
        async def walked(connection: PgConnection) -> dict[int, bool]:
            before = await digest_at(connection, first - 1) or GENESIS
            return intact_rows(await rows_between(connection, first, last), before)

        return await self._read(walked)

    async def link(self, seq: int) -> ChainLink | None:
        async def digests(connection: PgConnection) -> tuple[bytes | None, bytes | None]:
            return await digest_at(connection, seq - 1), await digest_at(connection, seq)

        previous, digest = await self._read(digests)
        return None if digest is None else ChainLink((previous or GENESIS).hex(), digest.hex())
