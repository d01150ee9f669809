"""Removes rows from a SQLite store while hubs work, so that the chain still proves that nothing else was removed."""

import logging
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import apsw
import msgspec

from remit.protocol.errors import Code, fault
from remit.protocol.records import Kind, Notice, Removal
from remit.runtime.audit.removal import pairs, ranges
from remit.runtime.audit.verification import accepted_keys
from remit.runtime.keys import HubKeys
from remit.runtime.ports import StoreError
from remit.runtime.signing import CheckpointKey, read_key
from remit.stores import messages, user_data
from remit.stores.archive import write_segment
from remit.stores.audit import breaks, chain_rows, digest_of, removals
from remit.stores.checkpoints import EVERY, SECONDS, Checkpoints, key_path, read_checkpoints
from remit.stores.connection import Durability, SqliteConnection, connect_writer, write_lock
from remit.stores.encryption import key_id_of
from remit.stores.expired_rows import count_aged, delete_aged, expired_rows
from remit.stores.opening import STORE
from remit.stores.removal_plan import (
    ExpiredRows,
    OfUser,
    RemovedPart,
    SegmentChanges,
    Selection,
    VerifiedRow,
    plan,
    verified,
)
from remit.stores.retention import outline_of
from remit.stores.schema import check_version
from remit.stores.segments import SealedSegment, segments
from remit.stores.transaction import Transaction
from remit.stores.upkeep_port import Ageing, Belongings, Deleted, Kept, erasure_notice
from remit.stores.user_keys import UserKeys, is_encrypted

# Pages that are given back in one transaction: 2 MB.
VACUUM_PAGES = 500

_log = logging.getLogger("remit.store")


class Upkeep:
    """A connection that removes rows, beside the hubs that write."""

    def __init__(
        self,
        path: Path,
        *,
        durability: Durability = "power",
        busy_seconds: float = 30,
        wall_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        self.path = path
        self.now_ms = wall_ms
        self._durability: Durability = durability
        self.key = _read_key(path)
        self.connection = connect_writer(path, durability, busy_seconds)
        try:
            check_version(self.connection, path)
            self._keys = UserKeys(self.connection, path, self.key)
            if is_encrypted(self.connection):
                self._keys.show_plain()
            self._accepted = accepted_keys(self.key.public, read_checkpoints(path), breaks(self.connection))
        except BaseException:
            self.connection.close()
            raise

    def close(self) -> None:
        self.connection.close()

    def segments(self) -> list[SealedSegment]:
        """Return the sealed segments, oldest first."""
        return segments(read_checkpoints(self.path), [each for _, each in removals(self.connection)])

    def seal(self) -> None:
        """Sign everything that is committed."""
        ((head,),) = self.connection.execute("SELECT coalesce(max(seq), 0) FROM record").fetchall()
        durable = self._durability == "power"
        checkpoints = Checkpoints(self.path, self.key, every=EVERY, seconds=SECONDS, durable=durable)
        checkpoints.committed(head)
        checkpoints.seal(self.connection, self.now_ms())

    # ── one segment ───────────────────────────────────────────────────────────────────────────────────────────────────

    def has(self, segment: SealedSegment, selection: Selection) -> bool:
        """Return whether a segment has rows of a selection."""
        return bool(self._chosen(segment, selection))

    def _chosen(self, segment: SealedSegment, selection: Selection) -> list[int]:
        match selection:
            case ExpiredRows():
                return expired_rows(self.connection, segment, selection)
            case OfUser(user, runs, _):
                return user_data.rows_of(self.connection, segment.first, segment.last, runs, user)

    def remove(self, segment: SealedSegment, selection: Selection, *, dry: bool = False) -> RemovedPart:
        """Remove rows of a segment in one transaction, together with the signed statement that says so.

        Nothing is removed from a segment that does not verify: that would destroy what shows the tampering. With *dry*,
        nothing is removed, and the result says what would be.
        """
        with _snapshot(self.connection) if dry else write_lock(self.connection):
            chosen = self._chosen(segment, selection)
            if not chosen:
                return RemovedPart()
            try:
                rows = list(self.verified(segment))
            except ValueError as problem:
                return RemovedPart(refused=f"rows {segment.first} to {segment.last}: {problem}")
            part, changes = plan(
                segment,
                selection,
                chosen,
                rows,
                before=digest_of(self.connection, segment.first - 1) or b"",
                outline=self._outline,
                key=self.key,
                at_ms=self.now_ms(),
            )
            if not dry and changes.kept:
                self._write(changes)
            return part

    def verified(self, segment: SealedSegment) -> Iterator[VerifiedRow]:
        """Yield the rows of a segment, or raise `ValueError` where they were tampered with."""
        previous = digest_of(self.connection, segment.first - 1)
        rows = chain_rows(self.connection, segment.first - 1, segment.last)
        return verified(segment, rows, previous, self._accepted)

    def _outline(self, kind: Kind, stored: bytes) -> bytes:
        """Return the outline of a body, encrypted like the body itself."""
        id = key_id_of(stored)
        if id is None:
            return outline_of(kind, stored)
        cipher = self._keys.cipher(id)
        return cipher.encrypt(outline_of(kind, cipher.decrypt(stored)))

    def _write(self, changes: SegmentChanges) -> None:
        connection, statement = self.connection, changes.statement
        # Written first: the chain continues from the last row, so that one must not be removed.
        self._record(Kind.REMOVED, statement)
        messages.forget(connection, [seq for seq, _, _ in changes.kept])
        numbers = _json(list(changes.gone))
        runs = _column(connection, "run", numbers)
        sessions = _column(connection, "session", numbers)
        for row in changes.kept:
            # A row of which the outline was kept has an entry already.
            connection.execute(
                "INSERT INTO removed (seq, leaf, digest) VALUES (?,?,?)"
                " ON CONFLICT DO UPDATE SET digest = coalesce(digest, excluded.digest)",
                row,
            )
        for row in changes.outlines:
            connection.execute("UPDATE main.record SET body = ? WHERE seq = ?", row)
        for first, last in pairs(ranges(changes.gone)):
            connection.execute("DELETE FROM main.record WHERE seq BETWEEN ? AND ?", (first, last))
        _forget_places(connection, runs, sessions)

    def _record(self, kind: Kind, body: Removal | Notice) -> None:
        """Append a record about the store itself, in an open write transaction."""
        now_ms = self.now_ms()
        transaction = Transaction(self.connection, now_ms, {}, keep_records=False)
        transaction.extend([(kind, now_ms, STORE, STORE, body, 0)])
        transaction.write()
        self.connection.execute("UPDATE checkpoint SET since_ms = ? WHERE since_ms = 0", (now_ms,))

    def archive(self, segment: SealedSegment, folder: Path) -> bool:
        """Write a segment into an archive; False: it is there already. A segment that does not verify is refused."""
        before = digest_of(self.connection, segment.first - 1) or b""
        with _snapshot(self.connection):
            try:
                rows = [(row, digest) for row, digest, _ in self.verified(segment)]
            except ValueError as problem:
                message = f"rows {segment.first} to {segment.last} were not archived: {problem}"
                advice = "Check the record with `remit audit verify`."
                raise StoreError(fault(Code.STORE_UNAVAILABLE, message, suggestion=advice)) from problem
        return write_segment(folder, segment, rows, before, read_checkpoints(self.path)) is not None

    # ── the rest ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def forget(self, what: Ageing, before_ms: int, *, dry: bool) -> int:
        """Delete what is older; return how many there are."""
        if dry:
            return count_aged(self.connection, what, before_ms)
        with write_lock(self.connection):
            return delete_aged(self.connection, what, before_ms)

    def check_no_open_run(self, user: str) -> None:
        """Raise `StoreError` while a run of a user is open."""
        user_data.check_no_open_run(self.connection, user)

    def belongings(self, user: str, keys: HubKeys) -> Belongings:
        """Return what belongs to a user; *keys* are those with which redacted values are encrypted."""
        return user_data.belongings(self.connection, user, keys)

    def delete(self, of: Belongings, rows: int, subject: str) -> Deleted:
        """Delete what is kept about a user besides records, and record the erasure of *rows* records."""
        with write_lock(self.connection):
            # What was submitted meanwhile would be lost with the rest.
            self.check_no_open_run(of.user)
            found = user_data.delete(self.connection, of)
            self._record(Kind.NOTICE, erasure_notice(found, rows, subject))
            return found

    def kept_about(self, user: str, keys: HubKeys) -> Iterator[Kept]:
        """Yield everything that is kept about a user; *keys* are those with which redacted values are encrypted."""
        return user_data.kept_about(self.connection, user, keys)

    # ── space ─────────────────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def gives_back(self) -> bool:
        """Whether the file can give free pages back; one that an earlier program made keeps them for new rows."""
        return self.connection.pragma("auto_vacuum") == 2

    def give_back(self) -> int:
        """Give free pages back to the file system, in small steps; return by how many bytes the file has shrunk."""
        before = self._size()
        while self.gives_back and (free := self.connection.pragma("freelist_count")) > 0:
            self.connection.execute(f"PRAGMA incremental_vacuum({VACUUM_PAGES})").fetchall()
            if self.connection.pragma("freelist_count") >= free:
                break
        self._merge_log()
        return max(0, before - self._size())

    def rebuild(self) -> int:
        """Write the file anew without free pages, and able to give them back later; hubs wait meanwhile."""
        before = self._size()
        self.connection.pragma("auto_vacuum", 2)
        self.connection.execute("VACUUM")
        self._merge_log()
        return max(0, before - self._size())

    def _merge_log(self) -> None:
        try:
            self.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        except apsw.Error as error:  # a reader is at work: the next writer merges the log
            _log.debug("%s: the log was not merged: %s", self.path, error)

    def _size(self) -> int:
        return sum(each.stat().st_size for each in (self.path, Path(f"{self.path}-wal")) if each.exists())


@contextmanager
def _snapshot(connection: SqliteConnection) -> Generator[None]:
    connection.execute("BEGIN")
    try:
        yield
    finally:
        connection.execute("ROLLBACK")


def _read_key(path: Path) -> CheckpointKey:
    try:
        return read_key(key_path(path))
    except FileNotFoundError as error:
        message = f"the key of {path} is gone: there is no {key_path(path)}"
        advice = "Put it back from a backup: without it, nothing can be removed so that the record still verifies."
        raise StoreError(fault(Code.STORE_UNAVAILABLE, message, suggestion=advice)) from error


def _forget_places(connection: SqliteConnection, runs: Sequence[str], sessions: Sequence[str]) -> None:
    """Delete what is known about runs and sessions of which no record is left."""
    connection.execute(
        "DELETE FROM request WHERE first_seq IN ("
        " SELECT first_seq FROM json_each(?) CROSS JOIN request ON run = value WHERE state = 2)"
        " AND NOT EXISTS (SELECT 1 FROM record WHERE record.run = request.run)",
        (_json(runs),),
    )
    for session in sessions:
        if connection.execute("SELECT 1 FROM record WHERE session = ? LIMIT 1", (session,)).fetchone() is None:
            connection.execute("DELETE FROM session WHERE id = ?", (session,))
            connection.execute("DELETE FROM conversation WHERE session = ?", (session,))


def _column(connection: SqliteConnection, name: str, numbers: str) -> list[str]:
    sql = f"SELECT DISTINCT {name} FROM record WHERE seq IN (SELECT value FROM json_each(?))"
    return [found for (found,) in connection.execute(sql, (numbers,))]


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()
