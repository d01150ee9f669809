"""Backs a SQLite store up while hubs work: database, checkpoints and keys in one file."""

import os
import secrets
import time
from pathlib import Path
from typing import NamedTuple

import apsw
import msgspec

from remit.protocol.errors import Code, fault
from remit.runtime.ports import StoreError
from remit.runtime.signing import encode_checkpoint
from remit.stores.checkpoints import key_path, read_checkpoints, read_mark
from remit.stores.connection import SqliteConnection, connect_file, connect_reader, copy_database
from remit.stores.schema import check_version

# In the header of a backup, so that nobody takes it for a store and works in it ("Rmbk").
BACKUP_ID = 0x526D626B

_PARTS = "CREATE TABLE backup (name TEXT PRIMARY KEY, content BLOB NOT NULL) WITHOUT ROWID"

# The parts of a backup besides the database.
CHECKPOINTS, KEY, MADE_MS = "checkpoints", "key", "made_ms"


class BackupDone(NamedTuple):
    """What a backup holds."""

    rows: int
    bytes: int
    keys: tuple[str, ...]
    """The keys in it."""
    missing: tuple[str, ...]
    """The files beside the store that are not in it."""


class SavedKeys(msgspec.Struct, frozen=True, kw_only=True, tag_field="schema", tag="remit.keys/1"):
    """The keys of a store, in a file of their own."""

    key: str
    """The store's key, as in its file."""
    users: tuple[tuple[int, str, bytes], ...] = ()
    """The keys of users, as they are stored: id, user, and the key encrypted under the store's key."""


def back_up(path: Path, target: Path, *, with_keys: bool = True, keys_to: Path | None = None) -> BackupDone:
    """Write a consistent copy of the store to *target*, which gets its name once it is complete and on the disk.

    Keys are part of it, unless *with_keys* is false or they are written to *keys_to* instead.
    """
    draft = target.with_name(f"{target.name}.{secrets.token_hex(4)}.draft")
    os.close(os.open(draft, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    inside = with_keys and keys_to is None
    try:
        made_ms = time.time_ns() // 1_000_000
        rows = _copy(path, draft)
        key = _content(key_path(path))
        users, names = _add_parts(path, draft, made_ms, key if inside else None)
        size = draft.stat().st_size
        if keys_to is not None and key is not None:
            write_private(keys_to, msgspec.json.encode(SavedKeys(key=key.decode(), users=users)))
        sync(draft)
        draft.rename(target)
        sync(target.parent)
    finally:
        draft.unlink(missing_ok=True)
    own = (path.name, f"{path.name}-wal", f"{path.name}-shm", f"{path.name}.checkpoints", f"{path.name}.verified")
    left = {each.name for each in path.parent.iterdir() if each.is_file() and each not in (target, keys_to)}
    missing = sorted(left - set(own) - ({key_path(path).name} if inside else set()) - {".gitignore"})
    return BackupDone(rows, size, names, tuple(missing))


def _copy(path: Path, draft: Path) -> int:
    source = connect_reader(path, 5)
    try:
        check_version(source, path)
        copy = connect_file(draft)
        try:
            copy_database(source, copy)
            copy.execute("PRAGMA journal_mode = DELETE").fetchall()
            return copy.execute("SELECT count(*) FROM record").fetchall()[0][0]
        finally:
            copy.close()
    finally:
        source.close()


_Users = tuple[tuple[int, str, bytes], ...]


def _add_parts(path: Path, draft: Path, made_ms: int, key: bytes | None) -> tuple[_Users, tuple[str, ...]]:
    """Add checkpoints, key and time to the copy; return the keys of users, and the names of the keys in it.

    Without a key, the keys of users are taken out.
    """
    copy = connect_file(draft)
    try:
        mark = read_mark(copy)
        # Others may have written checkpoints since the copy was made.
        known = [each for each in read_checkpoints(path) if each and mark and each.number <= mark.number]
        copy.execute(_PARTS)
        parts: dict[str, bytes] = {
            CHECKPOINTS: b"".join(map(encode_checkpoint, known)),
            MADE_MS: str(made_ms).encode(),
        }
        if key is not None:
            parts[KEY] = key
        for part in parts.items():
            copy.execute("INSERT INTO backup VALUES (?,?)", part)
        copy.pragma("application_id", BACKUP_ID)
        users = tuple(copy.execute("SELECT id, by_user, wrapped FROM user_key").fetchall())
        if key is None:
            copy.pragma("secure_delete", 1)
            copy.execute("DELETE FROM user_key")
            return users, ()
        return users, (key_path(path).name, *([f"{len(users)} keys of users"] if users else []))
    finally:
        copy.close()


def parts_of(connection: SqliteConnection, file: Path) -> dict[str, bytes]:
    """Return the parts of a backup besides the database, or raise `StoreError` if the file is no backup."""
    try:
        if connection.pragma("application_id") == BACKUP_ID:
            return dict(connection.execute("SELECT name, CAST(content AS BLOB) FROM backup").fetchall())
    except apsw.Error as error:
        raise _no_backup(file) from error
    raise _no_backup(file)


def _no_backup(file: Path) -> StoreError:
    advice = "Give a file that `remit store backup` has written."
    return StoreError(fault(Code.STORE_UNAVAILABLE, f"{file} is not a backup of a store", suggestion=advice))


def read_saved_keys(file: Path) -> SavedKeys:
    """Return the keys in a file that `back_up` has written."""
    try:
        return msgspec.json.decode(file.read_bytes(), type=SavedKeys)
    except msgspec.DecodeError as error:
        advice = "Give the file that `remit store backup --keys` has written."
        message = f"{file} does not hold the keys of a store"
        raise StoreError(fault(Code.STORE_UNAVAILABLE, message, suggestion=advice)) from error


def _content(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None


def write_private(path: Path, content: bytes) -> None:
    """Write a file that only its owner can read; it gets its name once it is complete and on the disk."""
    draft = path.with_name(f"{path.name}.{secrets.token_hex(4)}.draft")
    handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)


def sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
