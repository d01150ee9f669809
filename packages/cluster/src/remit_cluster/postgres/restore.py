"""Restores a PostgreSQL store from a backup, and fences what was handed out since the backup was made."""

import asyncio
import secrets
import time
from pathlib import Path
from tempfile import TemporaryDirectory

from remit.protocol.envelope import Request
from remit.protocol.records import Kind, read_request
from remit.runtime.ports import StoreError
from remit.runtime.signing import CheckpointKey, read_key
from remit.stores.backup import SavedKeys, read_saved_keys, write_private
from remit.stores.database import NOW_MS
from remit.stores.opening import STORE
from remit.stores.restore import Restored
from remit.stores.restore_plan import GAP, in_use, lost_outcome, lost_things, refused_restore, restore_notice
from remit_cluster.postgres.backup import DUMP, BackupInfo, server_version, unpack
from remit_cluster.postgres.bulk import StreamPosition
from remit_cluster.postgres.chainer import bring_up_to_date, read_head, seal_all
from remit_cluster.postgres.checkpoints import digest_at, newest_checkpoint
from remit_cluster.postgres.connection import DatabaseAddress, PgConnection, close_quietly
from remit_cluster.postgres.dump import program, run
from remit_cluster.postgres.operations import Finish
from remit_cluster.postgres.schema import MIGRATING, migrate
from remit_cluster.postgres.transaction import PgTransaction
from remit_cluster.postgres.user_keys import PgUserKeys

# A table of a hundred gigabytes is rewritten within hours.
LONG_SECONDS = 4 * 3_600.0


async def restore(
    file: Path,
    address: DatabaseAddress,
    key_file: Path,
    *,
    force: bool = False,
    resume: bool = False,
    keys: Path | None = None,
) -> Restored:
    """Put the store of a backup in place of the one in the database; no hub may have that open.

    A store that is newer than the backup, or another one, is replaced only with *force*, and kept in another schema.
    With *resume* the runs that were open go on: only for a backup after which nothing was done.
    """
    saved = None if keys is None else read_saved_keys(keys)
    connection = await address.connect()
    try:
        # Hubs that start meanwhile wait until the store is there.
        await connection.execute("SELECT pg_advisory_lock($1)", MIGRATING)
        restorer = await program("pg_restore", await server_version(connection))
        with TemporaryDirectory(prefix="remit-restore-") as folder:
            info, key = await asyncio.to_thread(unpack, file, Path(folder))
            aside = await _set_aside(connection, address, info, force=force)
            try:
                await connection.execute("CREATE EXTENSION IF NOT EXISTS pg_trgm")
                await run(
                    *(restorer, address, "--single-transaction", "--exit-on-error", "--no-owner", "--no-privileges"),
                    str(Path(folder) / DUMP),
                )
            except BaseException:
                if aside is not None:
                    await connection.execute(f'ALTER SCHEMA "{aside}" RENAME TO remit')
                raise
        await connection.execute("SELECT pg_advisory_unlock($1)", MIGRATING)
        key = key or (None if saved is None else saved.key.encode())
        signer = await asyncio.to_thread(_put_key, key_file, key)
        await migrate(connection, address)
        ended = await _prepare(connection, key_file, info, signer, saved, resume=resume)
        lost = () if signer else await _lost(connection)
        return Restored(info.rows, info.made_ms, ended, aside, lost)
    finally:
        await close_quietly(connection)


async def _set_aside(
    connection: PgConnection, address: DatabaseAddress, info: BackupInfo, *, force: bool
) -> str | None:
    """Rename the schema of the store that is there, if there is one; raise `StoreError` if it must not be replaced."""
    others = await connection.fetchval(
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'remit'"
        " AND pid <> pg_backend_pid()"
    )
    if others:
        raise in_use(address.name)
    if not await connection.fetchval("SELECT to_regnamespace('remit') IS NOT NULL"):
        return None
    if await connection.fetchval("SELECT to_regclass('remit.chain') IS NOT NULL"):
        await _judge(connection, address, info, force=force)
    name = f"remit_replaced_{time.strftime('%Y%m%d%H%M%S', time.gmtime())}_{secrets.token_hex(2)}"
    await connection.execute(f'ALTER SCHEMA remit RENAME TO "{name}"')
    return name


async def _judge(connection: PgConnection, address: DatabaseAddress, info: BackupInfo, *, force: bool) -> None:
    present = await read_head(connection)
    if force or present.seq == 0:
        return
    follows = info.rows == 0 or await digest_at(connection, info.rows) == info.digest
    if not follows and present.seq < info.rows:
        newest = await newest_checkpoint(connection)
        if newest is not None and (newest.seq, newest.digest) in info.sealed and newest.seq == present.seq:
            return  # an older state of the same store
    raise refused_restore(address.name, present.seq - info.rows if follows else None)


def _put_key(key_file: Path, key: bytes | None) -> CheckpointKey | None:
    """Write the key of the backup, if there is one, and return the key of the store; another one is kept beside."""
    if key is not None:
        if key_file.exists() and key_file.read_bytes() != key:
            key_file.rename(key_file.with_name(f"{key_file.name}.replaced-{time.time_ns()}"))
        key_file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_private(key_file, key)
    return read_key(key_file) if key_file.exists() else None


# ── fencing ───────────────────────────────────────────────────────────────────────────────────────────────────────────


async def _prepare(
    connection: PgConnection,
    key_file: Path,
    info: BackupInfo,
    key: CheckpointKey | None,
    saved: SavedKeys | None,
    *,
    resume: bool,
) -> int:
    """Fence a store that was restored; return how many open runs were ended."""
    for user_key in saved.users if saved else ():
        sql = "INSERT INTO remit.user_key (id, by_user, wrapped) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING"
        await connection.execute(sql, *user_key)
    await bring_up_to_date(connection)
    ended = await _fence(PgUserKeys(key_file).reading(connection), info, resume=resume)
    if key is not None:
        await seal_all(connection, key, time.time_ns() // 1_000_000)
    return ended


async def _fence(connection: PgConnection, info: BackupInfo, *, resume: bool) -> int:
    async with connection.transaction():
        now_ms: int = await connection.fetchval(f"SELECT {NOW_MS}")
        # Transactions are numbered anew in another cluster. The owners of sessions are found by that order, if they
        # were not assigned.
        await connection.execute(
            "INSERT INTO remit.session (id, by_user, agent) SELECT DISTINCT ON (session) session, by_user, target"
            " FROM remit.request ORDER BY session, place ON CONFLICT DO NOTHING"
        )
        sql = "UPDATE remit.record SET tx = '3'::xid8 WHERE tx >= pg_current_xact_id()"
        await connection.execute(sql, timeout=LONG_SECONDS)
        # A worker that claimed a run after the backup was made has a higher epoch than the backup, and must not write.
        await connection.execute(
            "UPDATE remit.request SET epoch = epoch + $1, spared = spared + $1, worker = '', lease_until_ms = 0"
            " WHERE state = 0",
            GAP,
        )
        await connection.execute("DELETE FROM remit.worker")
        # Who has seen a higher number asks only for what came after it.
        await connection.execute("UPDATE remit.last_control SET seq = seq + $1", GAP)
        await connection.execute(
            "SELECT setval('remit.message_id_seq', (SELECT coalesce(max(id), 0) FROM remit.message) + $1::bigint)", GAP
        )
        # A request from before the restore may have been accepted after the backup: it is not executed again.
        await connection.execute(
            "INSERT INTO remit.fence VALUES (1, $1, $2) ON CONFLICT (one) DO UPDATE"
            " SET backup_ms = excluded.backup_ms, restored_ms = excluded.restored_ms",
            info.made_ms,
            now_ms,
        )
        stream = StreamPosition(secrets.randbits(63))
        await connection.execute(
            f"INSERT INTO remit.stream (id, opened_ms, batch, number) VALUES ($1, {NOW_MS}, 0, 0)", stream.id
        )
        transaction = PgTransaction(connection, stream, now_ms, keep_records=False)
        transaction.extend([(Kind.NOTICE, now_ms, STORE, STORE, restore_notice(info.made_ms, info.rows), 0)])
        runs = [] if resume else await _open_runs(connection)
        for epoch, request in runs:
            await transaction.finish(Finish(request.run, epoch, lost_outcome(request, info.made_ms), now_ms))
        await transaction.write()
        return len(runs)


async def _open_runs(connection: PgConnection) -> list[tuple[int, Request]]:
    try:
        rows = await connection.fetch(
            "SELECT epoch, body FROM remit.request JOIN remit.record ON stream = begun_stream AND number = begun_number"
            " WHERE state = 0 ORDER BY place"
        )
    except StoreError:
        return []  # what they were asked cannot be read without the keys, so they cannot be ended here
    return [(epoch, read_request(body)) for epoch, body in rows]


async def _lost(connection: PgConnection) -> tuple[str, ...]:
    row = await connection.fetchrow(
        "SELECT (SELECT count(*) FROM remit.sealed), (SELECT count(*) FROM remit.user_key WHERE by_user <> ''),"
        " (SELECT count(*) FROM remit.question WHERE decision IS NOT NULL)"
    )
    assert row
    values, users, answers = row
    return lost_things(values, users, answers, "no hub opens this store until its key is put back")
