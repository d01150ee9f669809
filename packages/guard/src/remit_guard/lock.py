"""The lock of a guard: one process answers the hooks of a user."""

import os
from collections.abc import Generator
from contextlib import contextmanager
from fcntl import LOCK_EX, LOCK_NB, LOCK_SH, flock
from pathlib import Path

from remit.protocol.errors import Code, RemitError, fault


@contextmanager
def only_guard(folder: Path) -> Generator[None]:
    """Hold the lock of a folder that exists; raise a `RemitError` if another guard holds it."""
    with (folder / "lock").open("a+b") as file:
        try:
            flock(file, LOCK_EX | LOCK_NB)
        except BlockingIOError as error:
            file.seek(0)
            message = f"the guard already runs, as process {file.read(20).decode() or 'unknown'}"
            raise RemitError(
                fault(Code.STATE_CONFLICT, message, suggestion="See: remit guard status. To end it: remit guard stop")
            ) from error
        file.truncate(0)
        file.write(str(os.getpid()).encode())
        file.flush()
        yield


def is_guarded(folder: Path) -> bool:
    """Return whether a guard holds the lock of a folder."""
    return holder(folder) is not None


def holder(folder: Path) -> str | None:
    """Return the process that holds the lock of a folder, empty if it has not said so yet; None: none does."""
    try:
        with (folder / "lock").open("rb") as file:
            try:
                flock(file, LOCK_SH | LOCK_NB)
            except BlockingIOError:
                return file.read(20).decode(errors="replace")
    except FileNotFoundError:
        pass
    return None
