"""Removes rows from a SQLite store while hubs work, so that the chain still proves that nothing else was removed."""

import logging
import time
from collections.abc import Callable, Collection, Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Literal, NamedTuple

import apsw
import msgspec

from remit.protocol.errors import Code, fault
from remit.protocol.records import Kind, Removal
from remit.runtime.audit import ChainRow, RemovedRow, follows, leaf, link
from remit.runtime.audit.removal import Outlines, pairs, ranges, sign_removal
from remit.runtime.audit.verification import accepted_keys
from remit.runtime.ports import StoreError
from remit.runtime.signing import CheckpointKey, read_key
from remit.stores import messages
from remit.stores.archive import write_segment
from remit.stores.audit import breaks, chain_rows, digest_of, removals
from remit.stores.checkpoints import EVERY, SECONDS, Checkpoints, key_path, read_checkpoints
from remit.stores.connection import Durability, SqliteConnection, connect_writer, write_lock
from remit.stores.encryption import key_id_of
from remit.stores.opening import STORE
from remit.stores.retention import outline_of
from remit.stores.schema import check_version
from remit.stores.segments import SealedSegment, segments
from remit.stores.transaction import Transaction
from remit.stores.user_keys import UserKeys, is_encrypted

# Pages that are given back in one transaction: 2 MB.
VACUUM_PAGES = 500
# A removed row leaves about this many bytes: its number and the digest of its content.
LEFT_BYTES = 40
# A row has about this many bytes besides its texts: number, kind, time, digest, and entries in two indexes.
ROW_BYTES = 75

_log = logging.getLogger("remit.store")


class Wanted(NamedTuple):
    """What to remove from a segment, and why."""

    why: Literal["pruned", "erased"]
    rule: str
    gone: Collection[int] = ()
    """Rows to remove."""
    outlined: Collection[int] = ()
    """Rows of which to remove the texts."""
    subject: str = ""


class RemovedPart(NamedTuple):
    """What was removed from a segment, or would be."""

    rows: int = 0
    texts: int = 0
    bytes: int = 0
    refused: str = ""
    """Why the segment was left as it is."""


class _Verified(NamedTuple):
    """A row that follows from the one before it."""

    row: ChainRow | RemovedRow
    digest: bytes
    leaf: bytes
    """The digest of its content; empty for a row of version 6."""


class _Changes(NamedTuple):
    """The rows of a segment that a removal changes."""

    statement: Removal
    kept: Sequence[tuple[int, bytes, bytes | None]]
    """What the chain keeps: number, digest of the content, and the row's own digest where it is needed."""
    outlines: Sequence[tuple[bytes, int]]
    gone: Sequence[int]


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
        self.wall_ms = wall_ms
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
        checkpoints.seal(self.connection, self.wall_ms())

    # ── one segment ───────────────────────────────────────────────────────────────────────────────────────────────────

    def remove(
        self, segment: SealedSegment, choose: Callable[[SqliteConnection], Wanted], *, dry: bool = False
    ) -> RemovedPart:
        """Remove rows of a segment in one transaction, together with the signed statement that says so.

        Nothing is removed from a segment that does not verify: that would destroy what shows the tampering. With *dry*,
        nothing is removed, and the result says what would be.
        """
        with _snapshot(self.connection) if dry else write_lock(self.connection):
            wanted = choose(self.connection)
            if not wanted.gone and not wanted.outlined:
                return RemovedPart()
            try:
                rows = list(self.verified(segment))
            except ValueError as problem:
                return RemovedPart(refused=f"rows {segment.first} to {segment.last}: {problem}")
            part, changes = self._changes(segment, wanted, rows)
            if not dry and changes.kept:
                self._write(changes)
            return part

    def verified(self, segment: SealedSegment) -> Generator[_Verified]:
        """Yield the rows of a segment, or raise `ValueError` where they were tampered with."""
        seal = segment.seal
        if not seal.is_genuine() or seal.key not in self._accepted:
            raise ValueError(f"checkpoint {seal.number} was not signed by the key of this store")
        previous = digest_of(self.connection, segment.first - 1)
        if previous is None:
            raise ValueError("the row before them is missing")
        expected = segment.first
        for row in chain_rows(self.connection, segment.first - 1, segment.last):
            if row.seq != expected:
                raise ValueError(f"row {expected} is missing")
            verified = _followed(previous, row)
            yield verified
            previous, expected = verified.digest, expected + 1
        if expected != segment.last + 1 or previous.hex() != seal.digest:
            raise ValueError(f"they do not match what checkpoint {seal.number} signed")

    def _changes(
        self, segment: SealedSegment, wanted: Wanted, rows: Sequence[_Verified]
    ) -> tuple[RemovedPart, _Changes]:
        going, shortened = frozenset(wanted.gone), frozenset(wanted.outlined)
        gone: list[int] = []
        new: list[int] = []
        outlined: list[int] = []
        kept: list[tuple[int, bytes, bytes | None]] = []
        outlines: list[tuple[bytes, int]] = []
        seal = Outlines()
        freed = 0
        absent = {row.seq for row, _, _ in rows if isinstance(row, RemovedRow) and row.outline is None}
        leaving = absent | going
        for row, digest, content in rows:
            seq, outline = row.seq, row.outline if isinstance(row, RemovedRow) else None
            if seq in absent:
                gone.append(seq)
            elif seq in going:
                gone.append(seq)
                new.append(seq)
                # The row after it, and whoever compares a checkpoint, needs its own digest.
                needed = seq == segment.last or seq + 1 not in leaving or not content
                kept.append((seq, content, digest if needed else None))
                freed += ROW_BYTES - LEFT_BYTES + (_length(row) if isinstance(row, ChainRow) else LEFT_BYTES)
            elif outline is not None:
                outlined.append(seq)
                seal.add(seq, outline)
            elif seq in shortened and isinstance(row, ChainRow):
                body = self._outline(Kind(row.kind), row.body)
                outlined.append(seq)
                seal.add(seq, leaf(row.kind, row.at_ms, row.run, row.session, body))
                kept.append((seq, content, None if content else digest))
                outlines.append((body, seq))
                freed += len(row.body) - len(body) - LEFT_BYTES
        before = digest_of(self.connection, segment.first - 1) or b""
        statement = Removal(
            why=wanted.why,
            rule=wanted.rule,
            first=segment.first,
            last=segment.last,
            before=before.hex(),
            after=segment.seal.digest,
            gone=ranges(gone),
            outlined=ranges(outlined),
            outlines=seal.digest(),
            subject=wanted.subject,
            at_ms=self.wall_ms(),
            key="",
        )
        part = RemovedPart(rows=len(new), texts=len(outlines), bytes=max(0, freed))
        return part, _Changes(sign_removal(self.key, statement), kept, outlines, new)

    def _outline(self, kind: Kind, stored: bytes) -> bytes:
        """Return the outline of a body, encrypted like the body itself."""
        id = key_id_of(stored)
        if id is None:
            return outline_of(kind, stored)
        cipher = self._keys.cipher(id)
        return cipher.encrypt(outline_of(kind, cipher.decrypt(stored)))

    def _write(self, changes: _Changes) -> None:
        connection, statement = self.connection, changes.statement
        # Written first: the chain continues from the last row, so that one must not be removed.
        transaction = Transaction(connection, statement.at_ms, {}, keep_records=False)
        transaction.extend([(Kind.REMOVED, statement.at_ms, STORE, STORE, statement)])
        transaction.write()
        connection.execute("UPDATE checkpoint SET since_ms = ? WHERE since_ms = 0", (statement.at_ms,))
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


def _followed(previous: bytes, row: ChainRow | RemovedRow) -> _Verified:
    """Return the row with its digests, or raise `ValueError` if it does not follow from the row before it."""
    if isinstance(row, RemovedRow):
        digest = link(previous, row.seq, row.leaf) if row.leaf else row.digest or b""
        return _Verified(row, digest, row.leaf)
    if not follows(previous, row, row.seq):
        raise ValueError(f"row {row.seq} was changed")
    content = leaf(row.kind, row.at_ms, row.run, row.session, row.body)
    is_old = link(previous, row.seq, content) != row.digest
    return _Verified(row, row.digest, b"" if is_old else content)


def _length(row: ChainRow) -> int:
    return len(row.body) + 2 * len(row.run) + 2 * len(row.session)


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
