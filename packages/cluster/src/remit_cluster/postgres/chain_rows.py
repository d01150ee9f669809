"""Reads the rows of the chain in a PostgreSQL database as they are stored, and what is kept of removed ones."""

import sys
from collections.abc import Sequence
from contextlib import suppress

import msgspec

from remit.protocol.records import ChainBreak, Kind, Removal
from remit.runtime.audit import ChainRow, RemovedRow, leaf
from remit.stores.schema import KIND_OF, KINDS
from remit_cluster.postgres.chainer import ChainBlock
from remit_cluster.postgres.connection import PgConnection
from remit_cluster.postgres.schema import SEQ

_DIGEST = 32

_read_break = msgspec.json.Decoder(ChainBreak).decode
_read_removal = msgspec.json.Decoder(Removal).decode

_AFTER = "SELECT first, last, stream, number, digests FROM remit.chain WHERE first > $1 ORDER BY first LIMIT $2"
_BETWEEN = """
    SELECT first, last, stream, number, digests FROM remit.chain
    WHERE first >= (SELECT coalesce(max(first), 0) FROM remit.chain WHERE first <= $1) AND first <= $2 ORDER BY first
"""
# Each piece by the key: a plain join reads the whole table for each page, once one stream has most of the records.
_RECORDS = """
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
    found: dict[int, bytes] = {}
    for start, end, leaves in await connection.fetch(_REMOVED, first, last):
        for place in range(end - start + 1):
            found[start + place] = leaves[place * _DIGEST : (place + 1) * _DIGEST]
    return found


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
        for row in await connection.fetch(_RECORDS, *(list(column) for column in zip(*wanted, strict=True)))
    }
    leaves = await leaves_between(connection, blocks[0].first, blocks[-1].last)
    found: list[ChainRow | RemovedRow] = []
    for block in blocks:
        for place in range(block.last - block.first + 1):
            seq = block.first + place
            if not first <= seq <= last:
                continue
            content = records.get((block.stream, block.number + place))
            digest = block.digests[place * _DIGEST : (place + 1) * _DIGEST]
            row = None if content is None else _row(seq, digest, *content)
            if (known := leaves.get(seq)) is not None:
                found.append(RemovedRow(seq, known, digest, None if row is None else leaf(*row[1:6])))
            elif row is not None:
                found.append(row)
    return found


async def rows_between(connection: PgConnection, first: int, last: int) -> list[ChainRow | RemovedRow]:
    """Return the rows from *first* to *last* in order; rows that are missing are left out."""
    return await rows_in(connection, await blocks_between(connection, first, last), first, last)


def _row(seq: int, digest: bytes, kind: int, at_ms: int, run: str, session: str, body: bytes) -> ChainRow:
    return ChainRow(seq, KIND_OF.get(kind, f"kind {kind}"), at_ms, run, session, body, digest)


async def breaks(connection: PgConnection) -> list[tuple[int, ChainBreak]]:
    """Return the breaks that hubs announced, with their rows."""
    found: list[tuple[int, ChainBreak]] = []
    for seq, body in await connection.fetch(_OF_KIND, KINDS[Kind.BREAK], 0):
        with suppress(msgspec.DecodeError, UnicodeDecodeError):  # the row was edited, which its digest shows
            found.append((seq, _read_break(body)))
    return found


async def removals(connection: PgConnection, after: int = 0) -> list[tuple[int, Removal]]:
    """Return the statements after a row that rows were removed, with their own rows, oldest first."""
    found: list[tuple[int, Removal]] = []
    for seq, body in await connection.fetch(_OF_KIND, KINDS[Kind.REMOVED], after):
        with suppress(msgspec.DecodeError, UnicodeDecodeError):  # the row was edited, which its digest shows
            found.append((seq, _read_removal(body)))
    return found


_OF_KIND = f"SELECT seq, body FROM remit.record {SEQ} WHERE kind = $1 AND seq > $2 ORDER BY seq"
