"""The signed checkpoints in a file beside the database, one line each."""

import os
import time
from pathlib import Path

from remit.runtime.signing import Checkpoint, Key, decode_checkpoints, encode_checkpoint, sign
from remit.stores.connection import Connection, write_lock

_HEAD = "SELECT record.seq, digest, number, checkpoint.seq FROM record, checkpoint ORDER BY record.seq DESC LIMIT 1"


def checkpoint_path(path: Path) -> Path:
    """Return where the checkpoints of the database at *path* are."""
    return path.with_name(path.name + ".checkpoints")


def key_path(path: Path) -> Path:
    """Return where the key for the database at *path* is."""
    return path.with_name(path.name + ".key")


def read_checkpoints(path: Path) -> list[Checkpoint | None]:
    """Return the checkpoints of the database at *path*, None for each line that is none."""
    try:
        return decode_checkpoints(checkpoint_path(path).read_bytes())
    except FileNotFoundError:
        return []


class Checkpoints:
    """Seals the chain every *every* records or *seconds* seconds, and when the store is closed."""

    def __init__(self, path: Path, key: Key, *, every: int, seconds: float, durable: bool) -> None:
        self._path = path
        self._key = key
        self._every = every
        self._seconds = seconds
        self._durable = durable
        self._sealed = 0
        self._unsealed_since: float | None = None
        self.head = 0
        """The last row known to be committed."""

    def seal_if_due(self, connection: Connection, at_ms: int) -> float | None:
        """Seal the chain if it is time; return in how many seconds it will be, or None if nothing is unsealed."""
        if self.head <= self._sealed:
            return None
        now = time.monotonic()
        if self._unsealed_since is None:
            self._unsealed_since = now
        left = self._unsealed_since + self._seconds - now
        if left > 0 and self.head - self._sealed < self._every:
            return left
        return self.seal(connection, at_ms)

    def seal(self, connection: Connection, at_ms: int) -> None:
        """Sign the chain's head, unless it is signed already or this process has written nothing."""
        if self.head <= self._sealed:
            return
        # The write lock keeps the numbers in order between processes. The line is written first and remembered after,
        # so that a crash in between leaves a line too many, which is harmless, and never one too few.
        with write_lock(connection):
            self._seal(connection, at_ms)
        self._sealed = self.head
        self._unsealed_since = None

    def _seal(self, connection: Connection, at_ms: int) -> None:
        head = connection.execute(_HEAD).fetchone()
        if head is None:
            return  # someone has emptied the table; verification will tell
        seq, digest, number, sealed = head
        self.head = seq
        if sealed < seq:
            number = self._append(number + 1, seq, digest, at_ms)
            connection.execute("UPDATE checkpoint SET number = ?, seq = ?", (number, seq))

    def _append(self, number: int, seq: int, digest: bytes, at_ms: int) -> int:
        """Write a checkpoint at the end of the file and return its number: a higher one if the file is ahead."""
        handle = os.open(checkpoint_path(self._path), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            end, last = _end(handle)
            number = max(number, last + 1)
            line = encode_checkpoint(sign(self._key, number=number, seq=seq, digest=digest, at_ms=at_ms))
            # A line that a crash tore off is no checkpoint; the next one must not be glued to it.
            os.ftruncate(handle, end)
            os.pwrite(handle, line, end)
            if self._durable:
                os.fsync(handle)
        finally:
            os.close(handle)
        return number


def _end(handle: int) -> tuple[int, int]:
    """Return where the last whole line ends, and its number; after a crash the file may be ahead of the database."""
    size = os.fstat(handle).st_size
    # A line has some 350 bytes, so the last one is among these.
    tail = os.pread(handle, 4096, max(0, size - 4096))
    whole = tail[: tail.rfind(b"\n") + 1]
    found = [each.number for each in decode_checkpoints(whole) if each]
    return size - len(tail) + len(whole), found[-1] if found else 0
