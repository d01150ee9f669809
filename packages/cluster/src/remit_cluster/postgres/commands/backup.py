"""Backs a PostgreSQL store up while hubs work, and restores it: the dump of pg_dump, and the key, in one file."""

import asyncio
import io
import os
import re
import secrets
import shutil
import tarfile
import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO, Literal, cast
from urllib.parse import unquote

import msgspec

from remit.ports import StoreError
from remit.protocol.errors import Code, fault
from remit.runtime.signing import CheckpointKey, read_key
from remit.stores.connection import sync, write_private
from remit.stores.database import NOW_MS
from remit_cli.store_backup import (
    GAP,
    BackupDone,
    Restored,
    SavedKeys,
    content_of,
    fence,
    in_use,
    lost_without_key,
    put_user_keys,
    read_saved_keys,
    refused_restore,
)
from remit_cluster.postgres.bulk import StreamPosition
from remit_cluster.postgres.chainer import bring_up_to_date, read_head, seal_all
from remit_cluster.postgres.checkpoints import digest_at, newest_checkpoint
from remit_cluster.postgres.connection import DatabaseAddress, PgConnection, close_quietly
from remit_cluster.postgres.schema import MIGRATING, check_version, migrate
from remit_cluster.postgres.transaction import PgTransaction
from remit_cluster.postgres.user_keys import PgUserKeys

Program = Literal["pg_dump", "pg_restore"]

# Where Debian keeps the programs of each version.
DEBIAN = Path("/usr/lib/postgresql")

_VERSION = re.compile(rb"\(PostgreSQL\) (\d+)")


def _candidates(name: Program) -> Iterator[str]:
    if (path := shutil.which(name)) is not None:
        yield path
    yield from map(str, sorted(DEBIAN.glob(f"*/bin/{name}"), reverse=True))


async def program(name: Program, server: int) -> str:
    """Return the path of a program that is not older than the server, or raise `StoreError`."""
    newest = 0
    for path in _candidates(name):
        process = await asyncio.create_subprocess_exec(path, "--version", stdout=asyncio.subprocess.PIPE)
        output, _ = await process.communicate()
        version = int(match[1]) if (match := _VERSION.search(output)) else 0
        if version >= server:
            return path
        newest = max(newest, version)
    why = f"{name} here has version {newest}" if newest else f"{name} is not installed here"
    advice = f"Install the client programs of PostgreSQL {server} or newer (Debian: postgresql-client-{server})."
    message = f"{why}, and the server has version {server}"
    raise StoreError(fault(Code.STORE_UNAVAILABLE, message, suggestion=advice))


def _without_password(address: DatabaseAddress) -> tuple[str, str | None]:
    """Return the address without a password, which others could see among the arguments, and the password."""
    scheme, _, rest = address.url.partition("://")
    place, slash, name = rest.partition("/")
    credentials, at, hosts = place.rpartition("@")
    user, colon, password = credentials.partition(":")
    return f"{scheme}://{user}{at}{hosts}{slash}{name}", unquote(password) if colon else address.password


async def run(path: str, address: DatabaseAddress, *arguments: str) -> None:
    """Run a program for a database, or raise `StoreError` with what it said; the password is in its environment."""
    url, password = _without_password(address)
    environ = dict(os.environ) if password is None else {**os.environ, "PGPASSWORD": password}
    process = await asyncio.create_subprocess_exec(
        *(path, "--dbname", url, *arguments),
        env=environ,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        _, errors = await process.communicate()
    except BaseException:
        process.kill()
        await process.wait()
        raise
    if process.returncode:
        last = errors.decode(errors="replace").strip().splitlines()[-1:] or [f"exit code {process.returncode}"]
        message = f"{address.name}: {Path(path).name} failed: {last[0]}"
        raise StoreError(fault(Code.STORE_UNAVAILABLE, message, suggestion="Correct what it names; then try again."))


# The parts of a backup.
INFO, DUMP, KEY = "backup.json", "store.dump", "hub.db.key"


class BackupInfo(msgspec.Struct, frozen=True, kw_only=True, tag_field="schema", tag="remit.database-backup/1"):
    """What a backup holds."""

    made_ms: int
    rows: int
    """The last row of the chain."""
    digest: bytes
    """The digest of that row."""
    sealed: tuple[tuple[int, str], ...]
    """The rows that checkpoints signed, with their digests: an older state of the same store is recognised by them."""


async def server_version(connection: PgConnection) -> int:
    """Return the major version of the server."""
    return await connection.fetchval("SELECT current_setting('server_version_num')::int / 10000")


async def back_up(
    address: DatabaseAddress, key_file: Path, target: Path, *, with_keys: bool = True, keys_to: Path | None = None
) -> BackupDone:
    """Write a consistent copy of the store to *target*, which gets its name once it is complete and on the disk.

    Keys are part of it, unless *with_keys* is false or they are written to *keys_to* instead.
    """
    inside = with_keys and keys_to is None
    draft = target.with_name(f"{target.name}.{secrets.token_hex(4)}.draft")
    key = await asyncio.to_thread(content_of, key_file)
    connection = await address.connect()
    try:
        await check_version(connection, address)
        await bring_up_to_date(connection)
        dump = await program("pg_dump", await server_version(connection))
        with TemporaryDirectory(prefix=f".{target.name}-", dir=target.parent) as folder:
            # One snapshot for everything: it lasts as long as this transaction.
            async with connection.transaction(isolation="repeatable_read", readonly=True):
                await connection.execute("SET LOCAL idle_in_transaction_session_timeout = 0")
                snapshot: str = await connection.fetchval("SELECT pg_export_snapshot()")
                info = await _info(connection)
                users = await connection.fetch("SELECT id, by_user, wrapped FROM remit.user_key ORDER BY id")
                left_out = () if inside else ("--exclude-table-data=remit.user_key",)
                await run(
                    *(dump, address, "--format=custom", "--schema=remit", "--no-owner", "--no-privileges"),
                    *(f"--snapshot={snapshot}", f"--file={folder}/{DUMP}", *left_out),
                )
            await asyncio.to_thread(_pack, draft, info, Path(folder) / DUMP, key if inside else None)
        size = draft.stat().st_size
        if keys_to is not None and key is not None:
            write_private(keys_to, msgspec.json.encode(SavedKeys(key=key.decode(), users=tuple(map(tuple, users)))))
        draft.rename(target)
        sync(target.parent)
    finally:
        draft.unlink(missing_ok=True)
        await close_quietly(connection)
    names = (key_file.name, *([f"{len(users)} keys of users"] if users else [])) if inside and key else ()
    beside = {each.name for each in key_file.parent.iterdir() if each.is_file() and each not in (target, keys_to)}
    own = {".gitignore", key_file.with_suffix(".verified").name, *([key_file.name] if inside else [])}
    return BackupDone(info.rows, size, names, tuple(sorted(beside - own)))


async def _info(connection: PgConnection) -> BackupInfo:
    head = await read_head(connection)
    sealed = await connection.fetch("SELECT seq, digest FROM remit.checkpoint ORDER BY number")
    return BackupInfo(
        made_ms=time.time_ns() // 1_000_000,
        rows=head.seq,
        digest=head.digest,
        sealed=tuple((seq, digest) for seq, digest in sealed),
    )


def _pack(draft: Path, info: BackupInfo, dump: Path, key: bytes | None) -> None:
    handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(handle, "wb") as file:
        with tarfile.open(fileobj=file, mode="w") as archive:
            for name, content in ((INFO, msgspec.json.encode(info)), (KEY, key)):
                if content is not None:
                    part = tarfile.TarInfo(name)
                    part.size, part.mode = len(content), 0o600
                    archive.addfile(part, io.BytesIO(content))
            archive.add(dump, DUMP)
        file.flush()
        os.fsync(file.fileno())


def unpack(file: Path, folder: Path) -> tuple[BackupInfo, bytes | None]:
    """Return what a backup holds and the key in it; its dump is written into *folder*."""
    try:
        with tarfile.open(file) as archive:
            names = archive.getnames()
            info = msgspec.json.decode(_part(archive, INFO).read(), type=BackupInfo)
            key = _part(archive, KEY).read() if KEY in names else None
            handle = os.open(folder / DUMP, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            with os.fdopen(handle, "wb") as dump, _part(archive, DUMP) as source:
                while piece := source.read(2**20):
                    dump.write(piece)
    except (tarfile.TarError, KeyError, EOFError, msgspec.DecodeError) as error:
        advice = "Give a file that `remit store backup` has written with a store in PostgreSQL."
        message = f"{file} is not a backup of a store in PostgreSQL"
        raise StoreError(fault(Code.STORE_UNAVAILABLE, message, suggestion=advice)) from error
    return info, key


def _part(archive: tarfile.TarFile, name: str) -> IO[bytes]:
    return cast(IO[bytes], archive.extractfile(name))


# ── restoring ─────────────────────────────────────────────────────────────────────────────────────────────────────────


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
        lost = () if signer else await lost_without_key(connection, "no hub opens this store until its key is put back")
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
    await put_user_keys(connection, saved)
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
        await connection.execute("DELETE FROM remit.worker")
        await connection.execute(
            "SELECT setval('remit.message_id_seq', (SELECT coalesce(max(id), 0) FROM remit.message) + $1::bigint)", GAP
        )
        stream = StreamPosition(secrets.randbits(63))
        await connection.execute(
            f"INSERT INTO remit.stream (id, opened_ms, batch, number) VALUES ($1, {NOW_MS}, 0, 0)", stream.id
        )
        transaction = PgTransaction(connection, stream, now_ms, keep_records=False)
        ended = await fence(transaction, info.made_ms, info.rows, resume=resume)
        await transaction.write()
        return ended
