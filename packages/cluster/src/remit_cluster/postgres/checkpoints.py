"""The signed checkpoints of the chain, in a table: any hub that has the key signs."""

from remit.ports import StoreError
from remit.protocol.errors import Code, fault
from remit.protocol.records import ChainBreak
from remit.runtime.signing import Checkpoint, CheckpointKey, sign
from remit.stores.checkpoints import Mark, head_break, mark_breaks
from remit_cluster.postgres.connection import PgConnection

_COLUMNS = "number, seq, digest, at_ms, key, signature"


async def read_mark(connection: PgConnection) -> Mark | None:
    """Return the database's row about its last checkpoint; None if it was deleted."""
    row = await connection.fetchrow("SELECT number, seq, signer, since_ms FROM remit.store")
    return Mark(*row) if row else None


async def read_checkpoints(connection: PgConnection) -> list[Checkpoint | None]:
    """Return all checkpoints in order."""
    rows = await connection.fetch(f"SELECT {_COLUMNS} FROM remit.checkpoint ORDER BY number")
    return [_checkpoint(*row) for row in rows]


async def newest_checkpoint(connection: PgConnection) -> Checkpoint | None:
    """Return the last checkpoint, None if there is none."""
    row = await connection.fetchrow(f"SELECT {_COLUMNS} FROM remit.checkpoint ORDER BY number DESC LIMIT 1")
    return _checkpoint(*row) if row else None


def _checkpoint(number: int, seq: int, digest: str, at_ms: int, key: str, signature: str) -> Checkpoint:
    return Checkpoint(number=number, seq=seq, digest=digest, at_ms=at_ms, key=key, signature=signature)


async def digest_at(connection: PgConnection, seq: int) -> bytes | None:
    """Return the digest of a row of the chain, None if there is no such row."""
    return await connection.fetchval(
        "SELECT substring(digests FROM (($1 - first) * 32 + 1)::int FOR 32) FROM remit.chain"
        " WHERE first <= $1 AND last >= $1 ORDER BY first DESC LIMIT 1",
        seq,
    )


async def seal_if_due(
    connection: PgConnection,
    key: CheckpointKey,
    seq: int,
    digest: bytes,
    *,
    every: int,
    seconds: float,
    now_ms: int,
) -> None:
    """Sign the end of the chain if that is due, in a transaction that holds the chainer's lock."""
    mark = await read_mark(connection)
    if mark is None or seq <= mark.seq:
        return
    late = mark.since_ms and now_ms - mark.since_ms >= seconds * 1_000
    if seq - mark.seq < max(every, 1) and not late:
        return
    new = sign(key, number=mark.number + 1, seq=seq, digest=digest, at_ms=now_ms)
    await connection.execute(
        f"INSERT INTO remit.checkpoint ({_COLUMNS}) VALUES ($1, $2, $3, $4, $5, $6)",
        *(new.number, new.seq, new.digest, new.at_ms, new.key, new.signature),
    )
    sql = "UPDATE remit.store SET number = $1, seq = $2, signer = $3, since_ms = 0"
    await connection.execute(sql, new.number, new.seq, key.fingerprint)


async def examine(connection: PgConnection, head: int) -> list[ChainBreak]:
    """Return contradictions between rows and checkpoints, in a transaction that holds the chainer's lock.

    The database's own mark is moved to where the next checkpoint can follow.
    """
    mark, last = await read_mark(connection), await newest_checkpoint(connection)
    if mark is None:
        return []  # the schema check reports it
    breaks = mark_breaks(mark, last, head, place="table", ahead=0)
    if not breaks and last is not None and (await digest_at(connection, last.seq) or b"").hex() != last.digest:
        breaks = [head_break(last, head)]
    if breaks:
        number, seq = max(mark.number, last.number if last else 0), min(head, max(mark.seq, last.seq if last else 0))
        await connection.execute("UPDATE remit.store SET number = $1, seq = $2", number, seq)
    return breaks


async def check_signer(connection: PgConnection, fingerprint: str, key_file: str) -> None:
    """Register the key that signs if none is registered; raise `StoreError` if another one is."""
    mark = await read_mark(connection)
    if mark is not None and not mark.signer:
        await connection.execute("UPDATE remit.store SET signer = $1", fingerprint)
    elif mark is not None and mark.signer != fingerprint:
        raise StoreError(
            fault(
                Code.STORE_UNAVAILABLE,
                f"{key_file} is not the key of this store: other hubs sign and encrypt with another one",
                suggestion="Copy the key file from a hub that uses this store: all hubs need the same one.",
            )
        )
