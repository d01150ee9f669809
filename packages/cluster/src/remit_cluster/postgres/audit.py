"""The audit chain in a PostgreSQL database: pieces of it as they are stored, and its verification."""

import asyncio
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import msgspec

from remit.protocol.records import Kind
from remit.runtime.audit import GENESIS, AuditFinding, AuditVerdict, ChainRow, RemovedRow, Tampering, leaf
from remit.runtime.signing import Checkpoint
from remit.stores.audit import Linked, Proof, StoredChain, kind_name
from remit.stores.checkpoints import Mark
from remit.stores.reader import Conditions
from remit.stores.schema import KINDS
from remit_cluster.postgres.chainer import ChainBlock, read_head
from remit_cluster.postgres.checkpoints import digest_at, newest_checkpoint, read_checkpoints, read_mark
from remit_cluster.postgres.connection import PgConnection
from remit_cluster.postgres.schema import SEQ

# How many blocks of the chain are read at once, each of up to 1,000 rows.
_BLOCKS = 8


class _Walk(NamedTuple):
    """Rows that were read, and where to go on."""

    rows: list[ChainRow | RemovedRow]
    after: int | None
    """The first number of the last block; None: that was all."""
    gaps: list[AuditFinding]


class DatabaseChain(StoredChain):
    """The chain in a database."""

    def __init__(self, connection: PgConnection, name: str) -> None:
        self._connection = connection
        self.name = name

    async def head(self) -> tuple[int, bytes]:
        return await read_head(self._connection)

    async def digest_at(self, seq: int) -> bytes | None:
        return await digest_at(self._connection, seq) if seq else GENESIS

    async def mark(self) -> Mark | None:
        return await read_mark(self._connection)

    async def checkpoints(self) -> list[Checkpoint | None]:
        return await read_checkpoints(self._connection)

    async def newest_checkpoint(self) -> Checkpoint | None:
        return await newest_checkpoint(self._connection)

    async def rows(self, first: int, last: int) -> Iterable[ChainRow | RemovedRow]:
        return await rows_in(self._connection, await blocks_between(self._connection, first, last), first, last)

    async def _of_kind(self, kind: Kind, after: int) -> Iterable[tuple[int, bytes]]:
        sql = f"SELECT seq, body FROM remit.record {SEQ} WHERE kind = {KINDS[kind]} AND seq > $1 ORDER BY seq"
        return [(seq, body) for seq, body in await self._connection.fetch(sql, after)]

    async def linked(self, after: int, limit: int, run: str | None = None, profile: str | None = None) -> list[Linked]:
        wanted = Conditions(after, limit).of(run, profile=profile)
        rows = await self._connection.fetch(_LINKED.format(where=wanted), *wanted.values)
        return [
            Linked(previous or GENESIS, ChainRow(seq, kind_name(kind), *rest)) for previous, seq, kind, *rest in rows
        ]

    async def verify(self, by: Proof) -> AuditVerdict:
        connection = self._connection
        async with connection.transaction(isolation="repeatable_read", readonly=True):
            checkpoints, mark = await self.checkpoints(), await self.mark()
            since = await _reached(connection, by.start)
            seq = since.seq if since else 0
            breaks, removals = await self.breaks(), await self.removals(seq)
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

            def judged() -> AuditVerdict:
                return by.judge(
                    *(rows(), checkpoints, mark), since=since, referenced=referenced, breaks=breaks, removals=removals
                )

            verdict = await asyncio.to_thread(judged)
            unchained, missing = await _unchained(connection, ends)
        findings = (*verdict.findings, *gaps, *missing)
        return msgspec.structs.replace(verdict, unchained=unchained, findings=findings)


_DIGEST_AT = (
    "(SELECT substring(digests FROM (({seq} - first) * 32 + 1)::int FOR 32) FROM remit.chain"
    " WHERE first <= {seq} ORDER BY first DESC LIMIT 1)"
)
_LINKED = f"""
    SELECT {_DIGEST_AT.format(seq="(found.seq - 1)")}, seq, kind, at_ms, run, session, body AS stored,
        {_DIGEST_AT.format(seq="found.seq")}
    FROM (
        SELECT placed.seq, kind, at_ms, run, session, body FROM remit.record {SEQ}
        WHERE placed.seq > $1 AND {{where}} ORDER BY placed.seq LIMIT $2
    ) AS found ORDER BY seq
"""

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


# ── pieces of the chain ───────────────────────────────────────────────────────────────────────────────────────────────

_DIGEST = 32

_AFTER = "SELECT first, last, stream, number, digests FROM remit.chain WHERE first > $1 ORDER BY first LIMIT $2"
_BETWEEN = """
    SELECT first, last, stream, number, digests FROM remit.chain
    WHERE first >= (SELECT coalesce(max(first), 0) FROM remit.chain WHERE first <= $1) AND first <= $2 ORDER BY first
"""
# Each piece by the key: a plain join reads the whole table for each page, once one stream has most of the records.
RECORDS = """
    SELECT found.* FROM unnest($1::bigint[], $2::bigint[], $3::bigint[]) AS wanted (stream, first, last)
    CROSS JOIN LATERAL (
        SELECT stream, number, kind, at_ms, run, session, body AS stored FROM remit.record
        WHERE record.stream = wanted.stream AND record.number BETWEEN wanted.first AND wanted.last ORDER BY number
    ) AS found
"""
# Ranges do not overlap, so only one that begins before can reach into these rows.
_REMOVED = """
    SELECT first, last, leaves FROM remit.removed
    WHERE first >= (SELECT coalesce(max(first), 0) FROM remit.removed WHERE first <= $1) AND first <= $2 AND last >= $1
"""


async def blocks_after(connection: PgConnection, first: int, limit: int) -> list[ChainBlock]:
    """Return the next blocks of the chain after the one that begins with *first*."""
    return [ChainBlock(*row) for row in await connection.fetch(_AFTER, first, limit)]


async def blocks_between(connection: PgConnection, first: int, last: int) -> list[ChainBlock]:
    """Return the blocks of the chain that hold some of these rows."""
    return [ChainBlock(*row) for row in await connection.fetch(_BETWEEN, first, last)]


async def leaves_between(connection: PgConnection, first: int, last: int) -> dict[int, bytes]:
    """Return the digests of the contents of rows that were removed, or of which only an outline is kept."""
    leaves_by_row: dict[int, bytes] = {}
    for start, end, leaves in await connection.fetch(_REMOVED, first, last):
        for place in range(end - start + 1):
            leaves_by_row[start + place] = leaves[place * _DIGEST : (place + 1) * _DIGEST]
    return leaves_by_row


def places(blocks: Sequence[ChainBlock]) -> dict[int, tuple[int, int]]:
    """Return the stream and the number in it of each row."""
    return {
        block.first + place: (block.stream, block.number + place)
        for block in blocks
        for place in range(block.last - block.first + 1)
    }


async def rows_in(
    connection: PgConnection, blocks: Sequence[ChainBlock], first: int = 1, last: int = sys.maxsize
) -> list[ChainRow | RemovedRow]:
    """Return the rows of some blocks from *first* to *last* in order; rows that are missing are left out."""
    if not blocks:
        return []
    wanted = [(block.stream, block.number, block.number + block.last - block.first) for block in blocks]
    records = {
        (row[0], row[1]): row[2:]
        for row in await connection.fetch(RECORDS, *(list(column) for column in zip(*wanted, strict=True)))
    }
    leaves = await leaves_between(connection, blocks[0].first, blocks[-1].last)
    rows: list[ChainRow | RemovedRow] = []
    for block in blocks:
        for place in range(block.last - block.first + 1):
            seq = block.first + place
            if not first <= seq <= last:
                continue
            content = records.get((block.stream, block.number + place))
            digest = block.digests[place * _DIGEST : (place + 1) * _DIGEST]
            row = None if content is None else _row(seq, digest, *content)
            if (known := leaves.get(seq)) is not None:
                rows.append(RemovedRow(seq, known, digest, None if row is None else leaf(*row[1:6])))
            elif row is not None:
                rows.append(row)
    return rows


def _row(seq: int, digest: bytes, kind: int, at_ms: int, run: str, session: str, body: bytes) -> ChainRow:
    return ChainRow(seq, kind_name(kind), at_ms, run, session, body, digest)
