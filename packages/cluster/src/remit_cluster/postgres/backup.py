"""Backs a PostgreSQL store up while hubs work: the dump of pg_dump, and the store's key, in one file."""

import asyncio
import io
import os
import secrets
import tarfile
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO, cast

import msgspec

from remit.protocol.errors import Code, fault
from remit.runtime.ports import StoreError
from remit.stores.backup import BackupDone, SavedKeys, sync, write_private
from remit_cluster.postgres.chainer import bring_up_to_date, read_head
from remit_cluster.postgres.connection import DatabaseAddress, PgConnection, close_quietly
from remit_cluster.postgres.dump import program, run
from remit_cluster.postgres.schema import check_version

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
    key = await asyncio.to_thread(_content, key_file)
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


def _content(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None


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
