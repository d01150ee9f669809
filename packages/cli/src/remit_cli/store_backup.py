"""Backs a SQLite store up while hubs work, and restores it, fenced against what was handed out since the backup."""

import os
import secrets
import shutil
import time
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

import apsw
import msgspec

from remit.ports import StoreError, unknown_outcome
from remit.protocol.envelope import Request, Response
from remit.protocol.errors import Code, fault
from remit.protocol.records import Kind, Notice, read_request
from remit.runtime.signing import CheckpointKey, encode_checkpoint, read_key
from remit.stores.audit import digest_of
from remit.stores.checkpoints import checkpoint_path, key_path, read_checkpoints, read_mark
from remit.stores.connection import (
    SqliteConnection,
    connect_file,
    connect_reader,
    connect_writer,
    copy_database,
    sync,
    write_lock,
    write_private,
)
from remit.stores.database import OPEN, SqlChange, SqlConnection, ask, at_once
from remit.stores.opening import STORE, restoring_path
from remit.stores.schema import APPLICATION_ID, check_version, migrate
from remit.stores.transaction import Transaction
from remit.stores.user_keys import UserKeys, is_encrypted, key_id_of

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
        key = content_of(key_path(path))
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


def content_of(path: Path) -> bytes | None:
    """Return the content of a file; None if there is no such file."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None


# ── what a restore decides and says, whichever engine the store is in ─────────────────────────────────────────────────


# More numbers, and more claims of one run, than are handed out between two backups.
GAP = 1_000_000


def _restore_notice(made_ms: int, head: int) -> Notice:
    """Return what the record says about a restore."""
    text = f"restored from a backup of {_utc(made_ms)}, which ends with row {head}; what was recorded after it is lost"
    return Notice(delegation=STORE, agent="remit", text=text)


def _lost_outcome(request: Request, made_ms: int) -> Response:
    """Return the outcome of a run that was open when the store was backed up."""
    message = f"{request.target} was at work when the store was backed up ({_utc(made_ms)}); what came of it is lost"
    return unknown_outcome(request, fault(Code.OUTCOME_UNKNOWN, message))


def _utc(at_ms: int) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(at_ms / 1_000))


def refused_restore(name: str, rows_since: int | None) -> StoreError:
    """Return the error for a store that a backup must not replace.

    *rows_since* says how many rows it has more than the backup; None: it is another one.
    """
    if rows_since is None:
        what = "is another one than that of the backup, or was continued after an earlier restore"
    else:
        what = f"is newer than the backup: it has {rows_since} more rows" if rows_since else "is as new as the backup"
    advice = (
        "Use --force to replace it all the same; it is kept beside. What was recorded since the backup is lost then."
    )
    return StoreError(fault(Code.STORE_UNAVAILABLE, f"the store at {name} {what}", suggestion=advice))


def in_use(name: str) -> StoreError:
    """Return the error for a store that others have open."""
    advice = "Stop the hubs that have it open, then try again."
    return StoreError(fault(Code.STORE_UNAVAILABLE, f"{name} is in use", suggestion=advice))


async def lost_without_key(database: SqlConnection, then: str) -> tuple[str, ...]:
    """Return what can no longer be read without the store's key, and what happens *then*."""
    counts = await database.fetchrow(
        "SELECT (SELECT count(*) FROM remit.sealed), (SELECT count(*) FROM remit.user_key WHERE by_user <> ''),"
        " (SELECT count(*) FROM remit.question WHERE decision IS NOT NULL)"
    )
    assert counts
    values, users, answers = counts
    return (
        f"{values} redacted values cannot be read, unless the team file names a key of its own for them",
        f"{answers} answers to questions, and the reasons of commands, cannot be read",
        *([f"the texts of {users} users cannot be read"] if users else []),
        then,
    )


async def put_user_keys(database: SqlConnection, saved: SavedKeys | None) -> None:
    """Store the keys of users that were left out of a backup."""
    sql = "INSERT INTO remit.user_key (id, by_user, wrapped) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING"
    await database.executemany(sql, saved.users if saved else ())


async def fence(change: SqlChange, made_ms: int, head: int, *, resume: bool) -> int:
    """Have nothing count that was handed out after the backup was made; return how many open runs were ended.

    The backup ends with row *head*. With *resume*, no run is ended.
    """
    database, now_ms = change.database, change.now_ms
    # A worker that claimed a run after the backup was made has a higher epoch than the backup, and must not write.
    await database.execute(
        "UPDATE remit.request SET epoch = epoch + $1, spared = spared + $1, worker = '', lease_until_ms = 0"
        f" WHERE {OPEN}",
        GAP,
    )
    # Who has seen a higher number asks only for what came after it.
    await database.execute("UPDATE remit.last_control SET seq = seq + $1", GAP)
    # A request from before the restore may have been accepted after the backup: it is not executed again.
    await database.execute(
        "INSERT INTO remit.fence VALUES (1, $1, $2) ON CONFLICT (one) DO UPDATE"
        " SET backup_ms = excluded.backup_ms, restored_ms = excluded.restored_ms",
        *(made_ms, now_ms),
    )
    change.extend([(Kind.NOTICE, now_ms, STORE, STORE, _restore_notice(made_ms, head), 0)])
    runs = [] if resume else await _open_runs(database)
    for epoch, request in runs:
        await change.end(request.run, epoch, _lost_outcome(request, made_ms), now_ms)
    return len(runs)


async def _open_runs(database: SqlConnection) -> list[tuple[int, Request]]:
    """Return the open runs; what cannot be read without the keys cannot be ended here."""
    sql = f"SELECT request.epoch, begun_body FROM remit.request JOIN remit.runs USING (place) WHERE request.{OPEN}"
    try:
        rows = await database.fetch(f"{sql} ORDER BY place")
    except StoreError:
        return []
    return [(epoch, read_request(body)) for epoch, body in rows if key_id_of(body) is None]


_SIGNED_ANEW = "new checkpoints are signed with a new key, and `remit audit verify` says so: pin both keys"


class Restored(NamedTuple):
    """What was restored."""

    rows: int
    made_ms: int
    ended: int
    """Runs that were open, and whose outcome is not known now."""
    aside: Path | str | None
    """Where the store that was there before is kept: a file, or a schema of the database."""
    lost: tuple[str, ...]
    """What is lost because a key is missing."""


def restore(file: Path, path: Path, *, force: bool = False, resume: bool = False, keys: Path | None = None) -> Restored:
    """Put the store of a backup in place of the one at *path*; no hub may have that open.

    A store that is newer than the backup, or another one, is replaced only with *force*, and kept beside. With *resume*
    the runs that were open go on: only for a backup after which nothing was done.
    """
    backup = connect_reader(file, 1)
    try:
        parts = parts_of(backup, file)
        head = _head(backup)
        replaced = _judge(path, backup, head, force=force)
    finally:
        backup.close()
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    saved = None if keys is None else read_saved_keys(keys)
    key = parts.get(KEY) or (None if saved is None else saved.key.encode())
    draft = restoring_path(path).with_name(f"{restoring_path(path).name}.draft")
    shutil.copyfile(file, draft)
    draft.chmod(0o600)
    made_ms = int(parts[MADE_MS])
    if key is None and key_path(path).exists():
        signer = read_key(key_path(path))
    else:
        signer = None if key is None else CheckpointKey(bytes.fromhex(key.split()[1].decode()))
    ended = _prepare(draft, made_ms, head, signer, saved, resume=resume)
    lost: tuple[str, ...] = ()
    if not key and not key_path(path).exists():
        with closing(connect_reader(draft, 1)) as connection:
            lost = ask(connection, lambda database: lost_without_key(database, _SIGNED_ANEW))
    # From here on nobody opens the store until all of its files are in place.
    sync(draft)
    draft.replace(restoring_path(path))
    aside = _set_aside(path) if replaced else None
    write_private(checkpoint_path(path), parts[CHECKPOINTS])
    if key is not None:
        write_private(key_path(path), key)
    restoring_path(path).replace(path)
    sync(path.parent)
    return Restored(head[0], made_ms, ended, aside, lost)


def _head(connection: SqliteConnection) -> tuple[int, bytes]:
    row = connection.execute("SELECT seq, CAST(digest AS BLOB) FROM record ORDER BY seq DESC LIMIT 1").fetchone()
    return (row[0], row[1]) if row else (0, bytes(32))


def _judge(path: Path, backup: SqliteConnection, head: tuple[int, bytes], *, force: bool) -> bool:
    """Return whether there is a store to replace; raise `StoreError` if it must not be replaced."""
    if not path.exists() or path.stat().st_size == 0:
        return False
    try:
        present = connect_file(path)
        try:
            present.set_busy_timeout(1_000)
            _close_log(present, path)
            newest = _head(present)
            follows = digest_of(present, head[0]) == head[1]
        finally:
            present.close()
    except (apsw.CorruptError, apsw.NotADBError, apsw.SQLError):
        return True  # what is there cannot be read
    if force or newest[0] == 0:
        return True
    if not follows and newest[0] < head[0] and digest_of(backup, newest[0]) == newest[1]:
        return True
    raise refused_restore(str(path), newest[0] - head[0] if follows else None)


def _close_log(connection: SqliteConnection, path: Path) -> None:
    """Merge the log into the file and delete it, which works only if nobody else has the file open."""
    try:
        connection.execute("PRAGMA journal_mode = DELETE").fetchall()
    except apsw.BusyError as error:
        raise in_use(str(path)) from error


def _set_aside(path: Path) -> Path:
    """Keep the files of the store under another name, beside those that will replace them."""
    aside = _linked(path, f"{path.name}.replaced-{time.strftime('%Y%m%d%H%M%S', time.gmtime())}")
    for suffix in (".checkpoints", ".key", "-wal", "-shm"):
        if (old := Path(f"{path}{suffix}")).exists():
            os.link(old, f"{aside}{suffix}")
    # The log of a damaged file must not be taken for that of the new one.
    for suffix in ("-wal", "-shm"):
        Path(f"{path}{suffix}").unlink(missing_ok=True)
    sync(path.parent)
    return aside


def _linked(path: Path, name: str) -> Path:
    """Link the file to the name, or to the first numbered form of it that is free: two restores may share a second."""
    aside, number = path.with_name(name), 1
    while True:
        try:
            os.link(path, aside)
        except FileExistsError:
            number += 1
            aside = path.with_name(f"{name}-{number}")
        else:
            return aside


# ── fencing ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def _prepare(
    draft: Path,
    made_ms: int,
    head: tuple[int, bytes],
    key: CheckpointKey | None,
    saved: SavedKeys | None,
    *,
    resume: bool,
) -> int:
    """Make a store of a copy of the backup, fenced; return how many open runs were ended."""
    connection = connect_writer(draft, "power", 1)
    try:
        connection.pragma("secure_delete", 1)
        connection.execute("DROP TABLE backup")
        connection.pragma("application_id", APPLICATION_ID)
        migrate(connection, draft, 1)
        with write_lock(connection):
            ask(connection, lambda database: put_user_keys(database, saved))
            if is_encrypted(connection):
                if key is None:
                    resume = True  # what they were asked cannot be read, so they cannot be ended here
                else:
                    UserKeys(connection, draft, key).show_plain()
            ended = _fence(connection, made_ms, time.time_ns() // 1_000_000, head[0], resume=resume)
        # The copy is one file again, and holds nothing of the dropped table.
        connection.execute("PRAGMA journal_mode = DELETE").fetchall()
        return ended
    finally:
        connection.close()


def _fence(connection: SqliteConnection, made_ms: int, now_ms: int, head: int, *, resume: bool) -> int:
    row = connection.execute("SELECT seq FROM sqlite_sequence WHERE name = 'message'").fetchone()
    connection.execute("DELETE FROM sqlite_sequence WHERE name = 'message'")
    sql = "INSERT INTO sqlite_sequence (name, seq) VALUES ('message', ?)"
    connection.execute(sql, (GAP + (row[0] if row else 0),))
    transaction = Transaction(connection, now_ms, {}, keep_records=False)
    ended = at_once(fence(transaction, made_ms, head, resume=resume))
    transaction.write()
    connection.execute("UPDATE checkpoint SET since_ms = ? WHERE since_ms = 0", (now_ms,))
    return ended
