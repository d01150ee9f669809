"""What `remit doctor` looks at of a store: the disk that it is on, its file, and what is in it."""

import os
import re
import shutil
import stat
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import apsw

from remit.cli.findings import ok, problem, warning
from remit.cli.places import reading
from remit.cli.show.screen import clock_time, many, spoken
from remit.documents.team import Check
from remit.protocol.errors import RemitError
from remit.runtime.audit import link
from remit.runtime.signing import read_key
from remit.stores import inbox
from remit.stores.audit import verify_file
from remit.stores.checkpoints import key_path
from remit.stores.connection import Durability, SqliteConnection, connect_reader, connect_writer, write_lock
from remit.stores.export import before_newest, linked_rows
from remit.stores.faults import translate
from remit.stores.reader import records, runs
from remit.stores.schema import APPLICATION_ID, MIGRATIONS

# Below this a store can stop any moment; below ten times as much one should know.
LEAST_FREE_BYTES = 100 * 1024 * 1024
# Verifying so many rows takes about a second; of a larger record the newest are looked at.
QUICK_ROWS = 100_000
# Clocks of machines that share a store differ by less.
CLOCK_MS = 60_000
# Nothing was recorded before this program was written (2025-01-01).
EPOCH_MS = 1_735_689_600_000
# A hub holds the lock for a few milliseconds at a time.
LOCK_SECONDS = 2
# How many of the newest runs are looked at for those whose hub went silent.
RUNS = 200

_LOCAL = "Keep the store on a disk of this machine: `path` in `[store]` of the team file."

# Over these, locks and shared memory do not work between machines as SQLite needs them (https://sqlite.org/wal.html).
NETWORK = re.compile(
    r"nfs\d?|cifs|smb\w*|afs|9p|ceph|glusterfs|lustre|gfs2|ocfs2|beegfs|vboxsf|drvfs|fuse\.(?!ext|ntfs).*"
)

# ── the disk ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def disk(path: Path) -> Iterator[Check]:
    """Return whether a store at *path* finds room, and a file system that can hold one."""
    folder = next(each for each in (path.absolute().parent, *path.absolute().parents) if each.exists())
    if not os.access(folder, os.W_OK | os.X_OK):
        yield problem("folder", f"{folder} cannot be written to", f"Give this user the right to: chmod u+wx {folder}")
    free = shutil.disk_usage(folder).free
    about, says = "disk", f"{_size(free)} are free in {folder}"
    if free < LEAST_FREE_BYTES:
        yield problem(about, says, "Make room: a store that cannot write lets nothing start.")
    elif free < 10 * LEAST_FREE_BYTES:
        yield warning(about, says, "Make room soon: a store that cannot write lets nothing start.")
    else:
        yield ok(about, says)
    kind = _filesystem(folder)
    if kind and NETWORK.fullmatch(kind):
        yield warning("filesystem", f"{kind} is a network's: locks may fail, and a store be damaged", _LOCAL)
    elif kind:
        yield ok("filesystem", f"{kind}, of this machine")


def _filesystem(folder: Path) -> str | None:
    """Return the kind of the file system that holds a folder, where the system tells (Linux)."""
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
    """Return what an answer survives."""
    survives = "a power cut" if mode == "power" else "a killed process, but not a power cut"
    return ok("durability", f"{mode}: an answer survives {survives}")


def store(path: Path) -> Iterator[Check]:
    """Return how a store stands, and what is in it; nothing is written to it."""
    if not path.exists():
        yield ok("store", f"{path} is not there yet: the first run makes it")
        yield _clock(None)
        return
    if (version := _older_version(path)) is not None:
        says = f"{path} has version {version}, which an older remit wrote; the current one is {len(MIGRATIONS)}"
        yield warning("store", says, "The next run brings it up to date. Until then nothing else here can read it.")
        return
    try:
        with reading(path) as connection:
            yield _opened(connection, path)
            yield _lock(path)
            yield from _keys(path)
            yield _clock(connection)
            yield _audit(connection, path)
            yield _questions(connection)
            yield _silent(connection)
    except RemitError as error:
        yield problem("store", error.fault.message, error.fault.suggestion)


def _older_version(path: Path) -> int | None:
    """Return the version of a store that was not brought up to date yet; None for any other file."""
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
    """Try to write, as far as that goes without writing."""
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
        return problem("locks", f"the file system cannot share a write-ahead log ({mode})", _LOCAL)
    return ok("locks", "several processes can share the store (WAL)")


def _keys(path: Path) -> Iterator[Check]:
    file = key_path(path)
    try:
        read_key(file, private=False)
        mode = stat.S_IMODE(file.stat().st_mode)
    except FileNotFoundError:
        todo = (
            "Put it back from a backup; else the next run makes a new one, and `remit audit verify` names the change."
        )
        yield problem("key", f"{file} is not there, and checkpoints were signed with it", todo)
        return
    except OSError as error:
        yield problem("key", f"{file} cannot be read: {error.strerror}", f"chmod 600 {file}, as the user who runs hubs")
        return
    except RemitError as error:
        yield problem("key", error.fault.message, error.fault.suggestion)
        return
    if mode & 0o077:
        says = f"{file} can be read by others ({mode:o}): they could sign a record of their own"
        yield problem("key", says, f"chmod 600 {file}")
    else:
        yield ok("key", f"{file} can be read by its owner only")
    others = stat.S_IMODE(path.stat().st_mode) & 0o077
    if others:
        yield warning("record", f"{path} can be read or written by others", f"chmod 600 {path}")


def _clock(connection: SqliteConnection | None) -> Check:
    now_ms = time.time_ns() // 1_000_000
    if now_ms < EPOCH_MS:
        return problem("clock", f"it says {time.strftime('%Y-%m-%d')}", "Set the clock of this machine.")
    if not time.get_clock_info("monotonic").monotonic:
        return problem("clock", "this machine has none that only moves forward", "Time limits would not hold here.")
    newest = records(None, None, before_newest(connection, 1), 1)(connection) if connection else []
    if newest and newest[0].at_ms > now_ms + CLOCK_MS:
        ahead = spoken(newest[0].at_ms - now_ms)
        todo = "Set the clocks of all machines that use the store: leases and approvals depend on them."
        return warning("clock", f"the newest record is {ahead} ahead of it", todo)
    return ok("clock", clock_time(now_ms) + (f"; newest record {clock_time(newest[0].at_ms)}" if newest else ""))


def _audit(connection: SqliteConnection, path: Path) -> Check:
    todo = "`remit audit verify` names each place."
    count = before_newest(connection, 0)
    if count <= QUICK_ROWS:
        verdict = verify_file(path)
        if verdict.announced:
            return warning("audit", f"a hub announced a break in the record: {verdict.findings[0]}", todo)
        if verdict.other_key:
            back = "Put the key back from a backup; `remit audit verify` names the one that signed."
            return problem("audit", f"{key_path(path).name} is not the key that signed the record", back)
        if not verdict.ok:
            return problem("audit", f"the record was tampered with: {verdict.findings[0]}", todo)
        return ok("audit", f"the record is whole; {many(verdict.unprotected, 'row')} after the last checkpoint")
    before = b""
    for previous, row in linked_rows(connection, after=before_newest(connection, QUICK_ROWS)):
        fits = row.digest == link(previous, row.seq, row.kind, row.at_ms, row.run, row.session, row.body)
        if not fits or (before and before != previous):
            return problem("audit", f"row {row.seq} is not what was written", todo)
        before = row.digest
    return ok("audit", f"the newest {QUICK_ROWS} of {count} rows are whole", "`remit audit verify` checks them all.")


def _questions(connection: SqliteConnection) -> Check:
    now_ms = time.time_ns() // 1_000_000
    found = inbox.pending(connection, now_ms)
    if not found:
        return ok("questions", "nothing waits for a person")
    left = spoken(min(each.expires_ms for each in found) - now_ms)
    waits = f"{many(len(found), 'question')} {'waits' if len(found) == 1 else 'wait'} for a person"
    return warning("questions", f"{waits}, the first for {left} more", "`remit pending list` shows them.")


def _silent(connection: SqliteConnection) -> Check:
    now_ms = time.time_ns() // 1_000_000
    silent = [each for each in runs(None, None, RUNS, now_ms)(connection) if each.state == "silent"]
    if not silent:
        return ok("runs", "none has gone silent")
    says = f"{many(len(silent), 'run')} went silent: the hub stopped while at it"
    return warning("runs", says, "The next hub that starts on this store ends them, or takes them up if they can be.")
