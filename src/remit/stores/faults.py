"""Translates errors of SQLite and the file system into errors with the file, the reason and advice."""

from pathlib import Path

import apsw
import msgspec

from remit.protocol.errors import Code, fault
from remit.runtime.ports import StoreError

# Each is a problem of the store, not of the data: it passes, or someone repairs it.
_TROUBLES: dict[type[Exception], tuple[str, str]] = {
    apsw.FullError: (
        "the disk is full, or the file has reached its size limit",
        "Make room; what is waiting in memory is written as soon as there is some.",
    ),
    apsw.BusyError: (
        "another process keeps it locked",
        "Find the process that holds a transaction open on the file, and end it; then try again.",
    ),
    apsw.LockedError: ("another process keeps it locked", "Find the process that locked the file, and end it."),
    apsw.CorruptError: (
        "the file is damaged",
        "Stop every process that uses it, keep a copy, then restore a backup or try `sqlite3 FILE .recover`.",
    ),
    apsw.NotADBError: ("it is not a SQLite database", "Give the store a file of its own, or restore a backup."),
    apsw.ReadOnlyError: (
        "the file or its folder cannot be written to",
        "Give this user the right to write the file and its folder, or choose another path.",
    ),
    apsw.CantOpenError: (
        "the file cannot be opened",
        "Check that the folder exists, that the path is not a folder, and that this user may read and write there.",
    ),
    apsw.PermissionsError: ("access is denied", "Give this user the right to read and write the file and its folder."),
    apsw.IOError: (
        "reading or writing it failed",
        "Check the disk and its free space; what is waiting in memory is written as soon as writing works again.",
    ),
    apsw.NoMemError: ("there is no memory left", "Free some memory, then try again."),
    apsw.ProtocolError: ("its locks are in a bad state", "End the other processes that use the file, then try again."),
    apsw.InterruptError: ("the operation was interrupted", "Try again."),
    OSError: ("the file system refused", "Check the path, its folder's permissions, and the free space."),
}

TROUBLE = tuple(_TROUBLES)


def translate(error: Exception, path: Path) -> StoreError:
    """Return *error*, raised for the file at *path*, as a `StoreError`."""
    if isinstance(error, StoreError):
        return error
    for kind, (reason, advice) in _TROUBLES.items():
        if isinstance(error, kind):
            return StoreError(fault(Code.STORE_UNAVAILABLE, f"{path}: {reason} ({error})", suggestion=advice))
    if isinstance(error, apsw.Error | msgspec.DecodeError):
        return StoreError(fault(Code.STORE_UNAVAILABLE, f"{path}: {error}"))
    return StoreError(fault(Code.MALFORMED_ENVELOPE, f"this cannot be recorded: {error}"))
