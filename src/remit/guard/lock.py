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
            holder = file.read(20).decode() or "unknown"
            message = f"the guard already runs, as process {holder}"
            raise RemitError(
                fault(Code.STATE_CONFLICT, message, suggestion="See: remit guard status. To end it: remit guard stop")
            ) from error
        file.truncate(0)
        file.write(str(os.getpid()).encode())
        file.flush()
        yield


def is_guarded(folder: Path) -> bool:
    """Return whether a guard holds the lock of a folder."""
    try:
        with (folder / "lock").open("rb") as file:
            flock(file, LOCK_SH | LOCK_NB)
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    return False
