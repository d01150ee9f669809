"""The signed checkpoints in a file beside the database, one line each."""

import logging
import os
import time
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import apsw

from remit.protocol.records import ChainBreak
from remit.runtime.audit import Tampering
from remit.runtime.signing import Checkpoint, CheckpointKey, decode_checkpoints, encode_checkpoint, sign
from remit.stores.connection import SqliteConnection, write_lock

# A checkpoint costs a signature and a disk write: at most one a minute is negligible, and without the key only the
# records of the last minute can be changed unnoticed.
EVERY = 10_000
SECONDS = 60.0

_log = logging.getLogger("remit.store")

# The table as the migrations create it, for a file from which it was deleted.
_TABLE = """
    CREATE TABLE checkpoint (
        one INTEGER PRIMARY KEY CHECK (one = 1), number INTEGER NOT NULL, seq INTEGER NOT NULL,
        signer TEXT NOT NULL DEFAULT '', since_ms INTEGER NOT NULL DEFAULT 0
    )
"""


def checkpoint_path(path: Path) -> Path:
    """Return the path of the checkpoints of the database at *path*."""
    return path.with_name(path.name + ".checkpoints")


def key_path(path: Path) -> Path:
    """Return the path of the key of the database at *path*."""
    return path.with_name(path.name + ".key")


def key_used_ms(path: Path) -> int | None:
    """Return when the key of the database at *path* was there for its first row; None if there is no key."""
    try:
        return key_path(path).stat().st_mtime_ns // 1_000_000
    except OSError:
        return None


def read_checkpoints(path: Path) -> list[Checkpoint | None]:
    """Return the checkpoints of the database at *path*, None for each invalid line."""
    try:
        return decode_checkpoints(checkpoint_path(path).read_bytes())
    except FileNotFoundError:
        return []


def newest_checkpoint(path: Path) -> Checkpoint | None:
    """Return the last checkpoint in the file, None if there is none."""
    try:
        with checkpoint_path(path).open("rb") as file:
            return _end(file.fileno())[1]
    except (FileNotFoundError, IsADirectoryError):
        return None


class Mark(NamedTuple):
    """The database's row about its last checkpoint."""

    number: int
    seq: int
    signer: str
    since_ms: int


def read_mark(connection: SqliteConnection) -> Mark | None:
    """Return the database's row about its last checkpoint; None if the row or its table was deleted."""
    if not _has_table(connection):
        return None
    row = connection.execute("SELECT number, seq, signer, since_ms FROM checkpoint").fetchone()
    return None if row is None else Mark(*row)


def _has_table(connection: SqliteConnection) -> bool:
    sql = "SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = 'checkpoint'"
    return connection.execute(sql).fetchone() is not None


class Checkpoints:
    """Seals the chain every *every* records or *seconds* seconds, and when the store is closed."""

    def __init__(self, path: Path, key: CheckpointKey, *, every: int, seconds: float, durable: bool) -> None:
        self._path = path
        self._key = key
        self._every = every
        self._seconds = seconds
        self._durable = durable
        self._sealed = 0
        self._unsealed_since: float | None = None
        self._noted = False
        """Whether the database has the time of the first unsigned row."""
        self._signed_nothing = False
        self.head = 0
        """The last row known to be committed."""

    # ── opening ───────────────────────────────────────────────────────────────────────────────────────────────────────

    def examine(self, connection: SqliteConnection, *, key_made: bool) -> list[ChainBreak]:
        """Return contradictions between rows, checkpoints and key, in an open write transaction.

        In each case the database's own mark is moved to where the next checkpoint can follow. Rows that a killed
        process left unsigned are not a break: they are signed next.
        """
        mark, last = read_mark(connection), newest_checkpoint(self._path)
        head: int = connection.execute("SELECT coalesce(max(seq), 0) FROM record").fetchall()[0][0]
        breaks = [
            *self._signer_breaks(mark, last, key_made=key_made),
            *mark_breaks(mark, last, head, place="file", ahead=1),
        ]
        if not breaks and last is not None and _digest(connection, last.seq) != last.digest:
            breaks.append(head_break(last, head))
        number = max(mark.number if mark else 0, last.number if last else 0)
        # After a truncation the last checkpoint may be about missing rows; the next must not wait for as many.
        seq = min(head, max(mark.seq if mark else 0, last.seq if last else 0))
        mark_now = Mark(number, seq, self._key.fingerprint, mark.since_ms if mark else 0)
        if mark_now != mark:
            if not _has_table(connection):
                connection.execute(_TABLE)
            connection.execute("INSERT OR REPLACE INTO checkpoint VALUES (1,?,?,?,?)", mark_now)
        self.head, self._sealed = head, seq
        self._signed_nothing = head == number == 0
        if head > seq:
            self._unsealed_since = float("-inf")
        return breaks

    def _signer_breaks(self, mark: Mark | None, last: Checkpoint | None, *, key_made: bool) -> list[ChainBreak]:
        if mark is not None and mark.signer:
            same = mark.signer == self._key.fingerprint
        else:  # an older program opened it last; where nothing was signed yet, no key can have changed
            same = last is None or last.key == self._key.public.hex()
        if same:
            return []
        old, new = last.key if last else "", self._key.public.hex()
        why = "the key file was missing and a new key was made" if key_made else "the key file holds another key"
        text = f"{why}: signed with {old or 'an unknown key'} before, with {new} from here on"
        return [ChainBreak(finding=Tampering.KEY_CHANGED, text=text, old_key=old, new_key=new)]

    # ── sealing ───────────────────────────────────────────────────────────────────────────────────────────────────────

    def begin(self, connection: SqliteConnection, seq: int, at_ms: int) -> None:
        """Store the time of the first unsigned row, in the transaction that writes rows up to *seq*."""
        if self._noted or seq <= self._sealed:
            return
        if self._signed_nothing:
            self._use_key(at_ms)
        with suppress(apsw.SQLError):  # the table was deleted: sealing and verification report it
            connection.execute("UPDATE checkpoint SET since_ms = ? WHERE since_ms = 0", (at_ms,))

    def _use_key(self, at_ms: int) -> None:
        """Note at the key file when the first row comes: without checkpoints, no honest row is much later than that."""
        self._signed_nothing = False
        try:
            os.utime(key_path(self._path), ns=(at_ms * 1_000_000, at_ms * 1_000_000))
        except OSError:  # the file is another user's
            self._unsealed_since = float("-inf")  # signed at once

    def committed(self, seq: int) -> None:
        """Record that the rows up to *seq* are committed."""
        self.head = seq
        self._noted = seq > self._sealed

    @property
    def needs_plan(self) -> bool:
        """Whether `seal_if_due` must be called now: the first rows are unsigned, or there are enough of them."""
        unsealed = self.head - self._sealed
        return unsealed > 0 and (self._unsealed_since is None or unsealed >= self._every)

    def seal_if_due(self, connection: SqliteConnection, at_ms: int) -> float | None:
        """Seal the chain if it is due; return the seconds until then, or None if nothing is unsealed."""
        if self.head <= self._sealed:
            return None
        now = time.monotonic()
        if self._unsealed_since is None:
            self._unsealed_since = now
        left = self._unsealed_since + self._seconds - now
        if left > 0 and self.head - self._sealed < self._every:
            return left
        return self.seal(connection, at_ms)

    def seal(self, connection: SqliteConnection, at_ms: int) -> None:
        """Sign the chain's head, unless it is signed already or this process has written nothing."""
        if self.head <= self._sealed:
            return
        # The write lock keeps the numbers in order between processes. The line is written first and remembered after,
        # so that a crash in between leaves a line too many, which is harmless, and never one too few. That line is
        # remembered, in a transaction of its own, before another is written: so the file is never ahead by two.
        with write_lock(connection):
            caught_up = self._catch_up(connection) or self._seal(connection, at_ms)
        if caught_up:
            with write_lock(connection):
                self._seal(connection, at_ms)
        self._sealed = self.head
        self._unsealed_since = None
        self._noted = False

    def _catch_up(self, connection: SqliteConnection) -> bool:
        """Store a line that a crash or a failed commit left out of the database; return whether there was one."""
        mark, last = read_mark(connection), newest_checkpoint(self._path)
        if mark is None or last is None or last.number <= mark.number:
            return False
        if _digest(connection, last.seq) != last.digest:
            return False
        connection.execute("UPDATE checkpoint SET number = ?, seq = ?", (last.number, last.seq))
        return True

    def _seal(self, connection: SqliteConnection, at_ms: int) -> bool:
        head = connection.execute("SELECT seq, digest FROM record ORDER BY seq DESC LIMIT 1").fetchone()
        mark = read_mark(connection)
        if head is None or mark is None:
            _log.error("%s: rows or the mark of the last checkpoint were deleted: nothing is signed", self._path)
            return False
        seq, digest = head
        self.head = seq
        if mark.seq < seq:
            number = self._append(mark.number + 1, seq, digest, at_ms)
            sql = "UPDATE checkpoint SET number = ?, seq = ?, signer = ?, since_ms = 0"
            connection.execute(sql, (number, seq, self._key.fingerprint))
        return False

    def _append(self, number: int, seq: int, digest: bytes, at_ms: int) -> int:
        """Write a checkpoint at the end of the file and return its number: a higher one if the file is ahead."""
        handle = os.open(checkpoint_path(self._path), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            end, last = _end(handle)
            number = max(number, last.number + 1 if last else 1)
            line = encode_checkpoint(sign(self._key, number=number, seq=seq, digest=digest, at_ms=at_ms))
            # A line that a crash truncated is not a checkpoint; the next one must start on a new line.
            os.ftruncate(handle, end)
            os.pwrite(handle, line, end)
            if self._durable:
                os.fsync(handle)
        finally:
            os.close(handle)
        return number


def mark_breaks(mark: Mark | None, last: Checkpoint | None, head: int, *, place: str, ahead: int) -> list[ChainBreak]:
    """Return contradictions between the database's mark and the last checkpoint at its *place*.

    A crash may leave that *ahead* of the mark by so many.
    """
    if mark is None:
        return [_break(Tampering.CHECKPOINT_ROW_MISSING, "the database's row about its last checkpoint was deleted")]
    known = last.number if last else 0
    if known < mark.number:
        text = f"the database knows of checkpoint {mark.number}, its {place} ends with checkpoint {known}"
        return [_break(Tampering.CHECKPOINT_MISSING, text)]
    if last is not None and (known > mark.number + ahead or (known == mark.number and last.seq != mark.seq)):
        text = (
            f"the database says that checkpoint {mark.number} signed row {mark.seq}, "
            f"the {place} ends with checkpoint {known} for row {last.seq}"
        )
        return [_break(Tampering.CHECKPOINTS_DISAGREE, text)]
    if last is None and head and not mark.since_ms:
        return [_break(Tampering.UNSIGNED, f"rows 1 to {head} were signed by no checkpoint when the store was opened")]
    return []


def head_break(last: Checkpoint, head: int) -> ChainBreak:
    """Return the contradiction that a row is not the one that the last checkpoint signed."""
    name = Tampering.TRUNCATED if last.seq > head else Tampering.REWRITTEN
    text = f"row {last.seq} is not the one that checkpoint {last.number} signed; the record ends at row {head}"
    return _break(name, text)


def _break(finding: Tampering, text: str) -> ChainBreak:
    return ChainBreak(finding=finding, text=text)


def _digest(connection: SqliteConnection, seq: int) -> str | None:
    row = connection.execute(
        "SELECT digest FROM record WHERE seq = ?1"
        " UNION ALL SELECT digest FROM removed WHERE seq = ?1 AND digest IS NOT NULL",
        (seq,),
    ).fetchone()
    return bytes(row[0]).hex() if row and isinstance(row[0], bytes) else None


def _end(handle: int) -> tuple[int, Checkpoint | None]:
    """Return the end of the last complete line, and its checkpoint; after a crash the file is ahead of the database."""
    size = os.fstat(handle).st_size
    # A line has some 350 bytes, so the last one is among these.
    tail = os.pread(handle, 4096, max(0, size - 4096))
    whole = tail[: tail.rfind(b"\n") + 1]
    checkpoints = [each for each in decode_checkpoints(whole) if each]
    return size - len(tail) + len(whole), checkpoints[-1] if checkpoints else None
