"""Restores a SQLite store from a backup, and fences what was handed out since the backup was made."""

import os
import shutil
import time
from pathlib import Path
from typing import NamedTuple

import apsw

from remit.protocol.envelope import Request
from remit.protocol.records import Kind, read_request
from remit.runtime.signing import CheckpointKey, read_key
from remit.stores.audit import digest_of
from remit.stores.backup import CHECKPOINTS, KEY, MADE_MS, SavedKeys, parts_of, read_saved_keys, sync, write_private
from remit.stores.checkpoints import checkpoint_path, key_path
from remit.stores.connection import SqliteConnection, connect_file, connect_reader, connect_writer, write_lock
from remit.stores.opening import STORE, restoring_path
from remit.stores.restore_plan import GAP, in_use, lost_outcome, lost_things, refused_restore, restore_notice
from remit.stores.schema import APPLICATION_ID, migrate
from remit.stores.transaction import Transaction
from remit.stores.user_keys import UserKeys, is_encrypted, key_id_of


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
    lost = () if key or key_path(path).exists() else _lost(draft)
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
    found = connection.execute("SELECT seq, CAST(digest AS BLOB) FROM record ORDER BY seq DESC LIMIT 1").fetchone()
    return (found[0], found[1]) if found else (0, bytes(32))


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
            for user_key in saved.users if saved else ():
                connection.execute("INSERT OR IGNORE INTO user_key (id, by_user, wrapped) VALUES (?,?,?)", user_key)
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
    # A worker that claimed a run after the backup was made has a higher epoch than the backup, and must not write.
    connection.execute(
        "UPDATE request SET epoch = epoch + ?1, spared = spared + ?1, worker = '', lease_until_ms = 0 WHERE state = 0",
        (GAP,),
    )
    # Who has seen a higher number asks only for what came after it.
    connection.execute("UPDATE last_control SET seq = seq + ?", (GAP,))
    found = connection.execute("SELECT seq FROM sqlite_sequence WHERE name = 'message'").fetchone()
    connection.execute("DELETE FROM sqlite_sequence WHERE name = 'message'")
    sql = "INSERT INTO sqlite_sequence (name, seq) VALUES ('message', ?)"
    connection.execute(sql, (GAP + (found[0] if found else 0),))
    # A request from before the restore may have been accepted after the backup: it is not executed again.
    connection.execute("INSERT OR REPLACE INTO fence VALUES (1, ?, ?)", (made_ms, now_ms))
    transaction = Transaction(connection, now_ms, {}, keep_records=False)
    transaction.extend([(Kind.NOTICE, now_ms, STORE, STORE, restore_notice(made_ms, head), 0)])
    runs = [] if resume else _open_runs(connection)
    for epoch, request in runs:
        transaction.finish(request.run, epoch, lost_outcome(request, made_ms), now_ms)
    transaction.write()
    connection.execute("UPDATE checkpoint SET since_ms = ? WHERE since_ms = 0", (now_ms,))
    return len(runs)


def _open_runs(connection: SqliteConnection) -> list[tuple[int, Request]]:
    rows = connection.execute(
        "SELECT epoch, body FROM request JOIN record ON seq = coalesce(begun_seq, place)"
        " WHERE state = 0 ORDER BY +place"
    ).fetchall()
    # What cannot be read without the keys cannot be ended here.
    return [(epoch, read_request(body)) for epoch, body in rows if key_id_of(body) is None]


# ── keys ──────────────────────────────────────────────────────────────────────────────────────────────────────────────


def _lost(draft: Path) -> tuple[str, ...]:
    connection = connect_reader(draft, 1)
    try:
        return lost_without_key(connection)
    finally:
        connection.close()


def lost_without_key(connection: SqliteConnection) -> tuple[str, ...]:
    """Return what can no longer be read or done without the store's key."""
    ((values,),) = connection.execute("SELECT count(*) FROM sealed").fetchall()
    ((users,),) = connection.execute("SELECT count(*) FROM user_key WHERE by_user <> ''").fetchall()
    ((answers,),) = connection.execute("SELECT count(*) FROM question WHERE decision IS NOT NULL").fetchall()
    then = "new checkpoints are signed with a new key, and `remit audit verify` says so: pin both keys"
    return lost_things(values, users, answers, then)
