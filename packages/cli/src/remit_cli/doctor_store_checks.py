"""The checks of `remit doctor` for a store: its disk, its file or database, and its content."""

import os
import re
import shutil
import stat
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import apsw

from remit.protocol.errors import RemitError
from remit.runtime.audit import AuditVerdict, follows
from remit.runtime.signing import read_key
from remit.stores.audit import before_newest, linked_rows, verify_file
from remit.stores.checkpoints import key_path
from remit.stores.connection import Durability, SqliteConnection, connect_reader, connect_writer, translate, write_lock
from remit.stores.records import records
from remit.stores.schema import APPLICATION_ID, MIGRATIONS
from remit_cli.config.team import Team
from remit_cli.places import reading
from remit_cli.show.screen import clock_time, many, spoken
from remit_cli.store_view import DatabasePlace, SqliteView, StoreView
from remit_server.documents.team import Check


def ok(about: str, says: str, todo: str = "") -> Check:
    return Check(state="ok", about=about, says=says, todo=todo)


def warning(about: str, says: str, todo: str) -> Check:
    return Check(state="warning", about=about, says=says, todo=todo)


def problem(about: str, says: str, todo: str) -> Check:
    return Check(state="problem", about=about, says=says, todo=todo)


# A problem below this; a warning below ten times as much.
LEAST_FREE_BYTES = 100 * 1024 * 1024
# Verifying this many rows takes about a second; of a larger record only the newest are checked.
QUICK_ROWS = 100_000
# Synchronized clocks differ by less.
CLOCK_MS = 60_000
# Nothing was recorded before this program was written (2025-01-01).
EPOCH_MS = 1_735_689_600_000
# A hub holds the lock for a few milliseconds at a time.
LOCK_SECONDS = 2
# Of a record in a database that is longer, none is verified: each row is fetched over the network.
QUICK_FETCHED = 10_000
# How many of the newest runs are checked for a silent hub.
RUNS = 200

_LOCAL = "Move the store to a local disk: `path` in `[store]` of the team file."

# Over these, locks and shared memory do not work between machines as SQLite needs them (https://sqlite.org/wal.html).
NETWORK = re.compile(
    r"nfs\d?|cifs|smb\w*|afs|9p|ceph|glusterfs|lustre|gfs2|ocfs2|beegfs|vboxsf|drvfs|fuse\.(?!ext|ntfs).*"
)

# ── the disk ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def disk(path: Path) -> Iterator[Check]:
    """Check free space and file system for a store at *path*."""
    folder = next(each for each in (path.absolute().parent, *path.absolute().parents) if each.exists())
    if not os.access(folder, os.W_OK | os.X_OK):
        yield problem("folder", f"{folder} is not writable", f"Make it writable for this user: chmod u+wx {folder}")
    free = shutil.disk_usage(folder).free
    about, says = "disk", f"{_size(free)} free in {folder}"
    if free < LEAST_FREE_BYTES:
        yield problem(about, says, "Free disk space. Runs do not start if the store cannot be written.")
    elif free < 10 * LEAST_FREE_BYTES:
        yield warning(about, says, "Free disk space soon. Runs do not start if the store cannot be written.")
    else:
        yield ok(about, says)
    kind = _filesystem(folder)
    if kind and NETWORK.fullmatch(kind):
        yield warning("filesystem", f"{kind} is a network file system: locks may fail and damage the store", _LOCAL)
    elif kind:
        yield ok("filesystem", f"{kind}, local")


def _filesystem(folder: Path) -> str | None:
    """Return the file system type of a folder (Linux only)."""
    mounts: dict[str, str] = {}
    with suppress(OSError):
        for line in Path("/proc/self/mounts").read_text(encoding="utf-8", errors="replace").splitlines():
            _, place, kind, *_ = line.split(" ")
            mounts[place.replace("\\040", " ")] = kind
    return next((mounts[str(each)] for each in (folder, *folder.parents) if str(each) in mounts), None)


def _size(size: float) -> str:
    for unit in ("bytes", "KB", "MB", "GB"):
        if size < 1_024:
            return f"{size:.0f} {unit}"
        size /= 1_024
    return f"{size:.1f} TB"


# ── the store ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def durability(mode: Durability) -> Check:
    """Report which failures an answer survives."""
    survives = "a power cut" if mode == "power" else "a killed process, but not a power cut"
    return ok("durability", f"{mode}: an answer survives {survives}")


def store(path: Path) -> Iterator[Check]:
    """Check a store and its content without writing to it."""
    if not path.exists():
        yield ok("store", f"{path} does not exist yet; the first run creates it")
        yield _clock(None)
        return
    if (version := _older_version(path)) is not None:
        says = f"{path} has schema version {version} of an older remit; the current version is {len(MIGRATIONS)}"
        yield warning("store", says, "The next run upgrades it. Other commands cannot read it until then.")
        return
    try:
        with reading(path) as view:
            assert isinstance(view, SqliteView)
            connection = view.connection
            yield _opened(connection, path)
            yield _lock(path)
            yield from _keys(path)
            yield _clock(connection)
            yield _audit(connection, path)
            yield _questions(view)
            yield _silent(view)
    except RemitError as error:
        yield problem("store", error.fault.message, error.fault.suggestion)


def _older_version(path: Path) -> int | None:
    """Return the version of a store that needs an upgrade; None for any other file."""
    with suppress(apsw.Error):
        connection = connect_reader(path, LOCK_SECONDS)
        try:
            version: int = connection.pragma("user_version")
            is_ours = connection.pragma("application_id") == APPLICATION_ID
            return version if is_ours and version < len(MIGRATIONS) else None
        finally:
            connection.close()
    return None


def _opened(connection: SqliteConnection, path: Path) -> Check:
    rows, version = many(before_newest(connection, 0), "row"), connection.pragma("user_version")
    size = sum(each.stat().st_size for each in (path, path.with_name(f"{path.name}-wal")) if each.exists())
    return ok("store", f"{path}: {rows}, {_size(size)}, version {version}, SQLite {apsw.sqlite_lib_version()}")


def _lock(path: Path) -> Check:
    """Take the write lock without writing."""
    try:
        connection = connect_writer(path, "process", LOCK_SECONDS)
        try:
            with write_lock(connection):
                mode = connection.pragma("journal_mode")
        finally:
            connection.close()
    except apsw.BusyError:
        return warning("locks", f"another process has been writing to {path} for {LOCK_SECONDS} s", "Try again later.")
    except (apsw.Error, OSError) as error:
        why = translate(error, path).fault
        return problem("locks", why.message, why.suggestion)
    if mode != "wal":
        return problem("locks", f"the file system does not support a shared write-ahead log ({mode})", _LOCAL)
    return ok("locks", "several processes can share the store (WAL)")


def _keys(path: Path) -> Iterator[Check]:
    file = key_path(path)
    try:
        read_key(file, private=False)
        mode = stat.S_IMODE(file.stat().st_mode)
    except FileNotFoundError:
        todo = (
            "Restore it from a backup. Otherwise the next run creates a new key, and `remit audit verify` reports that."
        )
        yield problem("key", f"{file} is missing, but checkpoints were signed with it", todo)
        return
    except OSError as error:
        yield problem("key", f"cannot read {file}: {error.strerror}", f"chmod 600 {file}, as the user who runs hubs")
        return
    except RemitError as error:
        yield problem("key", error.fault.message, error.fault.suggestion)
        return
    if mode & 0o077:
        says = f"other users can read {file} ({mode:o}) and could sign a forged record"
        yield problem("key", says, f"chmod 600 {file}")
    else:
        yield ok("key", f"only the owner can read {file}")
    others = stat.S_IMODE(path.stat().st_mode) & 0o077
    if others:
        yield warning("record", f"other users can read or write {path}", f"chmod 600 {path}")


def _clock(connection: SqliteConnection | None) -> Check:
    now_ms = time.time_ns() // 1_000_000
    if now_ms < EPOCH_MS:
        return problem("clock", f"the date is {time.strftime('%Y-%m-%d')}", "Set the clock of this machine.")
    if not time.get_clock_info("monotonic").monotonic:
        return problem("clock", "no monotonic clock on this machine", "Time limits do not work without one.")
    newest = records(None, None, before_newest(connection, 1), 1)(connection) if connection else []
    if newest and newest[0].at_ms > now_ms + CLOCK_MS:
        ahead = spoken(newest[0].at_ms - now_ms)
        todo = "Synchronize the clocks of all machines that use the store: leases and approvals depend on them."
        return warning("clock", f"the newest record is {ahead} ahead of the clock", todo)
    return ok("clock", clock_time(now_ms) + (f"; newest record {clock_time(newest[0].at_ms)}" if newest else ""))


def _audit(connection: SqliteConnection, path: Path) -> Check:
    count = before_newest(connection, 0)
    if count <= QUICK_ROWS:
        return _verified(verify_file(path), key_path(path))
    before = b""
    for previous, row in linked_rows(connection, after=before_newest(connection, QUICK_ROWS)):
        if not follows(previous, row, row.seq) or (before and before != previous):
            return problem("audit", f"row {row.seq} was changed", _EACH_PLACE)
        before = row.digest
    return ok("audit", f"the newest {QUICK_ROWS} of {count} rows are intact", "`remit audit verify` checks all rows.")


_EACH_PLACE = "`remit audit verify` lists each place."


def _verified(verdict: AuditVerdict, key: Path) -> Check:
    if verdict.announced:
        return warning("audit", f"a hub reported a break in the record: {verdict.findings[0]}", _EACH_PLACE)
    if verdict.other_key:
        back = "Restore the key from a backup; `remit audit verify` shows which key signed."
        return problem("audit", f"{key.name} is not the key that signed the record", back)
    if not verdict.ok:
        return problem("audit", f"the record was tampered with: {verdict.findings[0]}", _EACH_PLACE)
    return ok("audit", f"the record is intact; {many(verdict.unprotected, 'row')} after the last checkpoint")


def _questions(view: StoreView) -> Check:
    now_ms = time.time_ns() // 1_000_000
    found = view.pending()
    if not found:
        return ok("questions", "none pending")
    left = spoken(min(each.expires_ms for each in found) - now_ms)
    waits = f"{many(len(found), 'question')} pending"
    return warning("questions", f"{waits}; the first expires in {left}", "`remit pending list` shows them.")


def _silent(view: StoreView) -> Check:
    silent = [each for each in view.runs(limit=RUNS) if each.state == "silent"]
    if not silent:
        return ok("runs", "none is silent")
    says = f"{many(len(silent), 'run')} in state `silent`: the hub stopped during the run"
    return warning(
        "runs", says, "The next hub that starts on this store resumes them, or ends those that cannot be resumed."
    )


def database(team: Team) -> Iterator[Check]:
    """Check the database of a team and its content without writing to it."""
    place, key = DatabasePlace(team), key_path(team.store_path)
    try:
        with reading(place) as view:
            rows = view.before_newest(0)
            yield ok("store", f"{place} can be read; {many(rows, 'row')}")
            if key.exists():
                yield ok("store key", f"{key}; keep a copy elsewhere, because all hubs need it")
            else:
                back = "Copy it from a hub that uses this store, or from a backup."
                yield problem("store key", f"there is no {key}", back)
            if rows > QUICK_FETCHED:
                yield ok("audit", f"not verified: {many(rows, 'row')} take a while", "remit audit verify")
            else:
                yield _verified(view.verify((), ()), key)
            yield _questions(view)
            yield _silent(view)
    except RemitError as error:
        yield problem("store", error.fault.message, error.fault.suggestion)
