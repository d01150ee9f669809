"""Where the guard of a user keeps its things."""

import os
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from remit.protocol.errors import Code, RemitError, fault

# The bytes that the address of a Unix socket has room for, without the zero at its end.
LONGEST_SOCKET = 103 if sys.platform == "darwin" else 107


def guard_folder() -> Path:
    """Return the folder of the guard: its socket, its store and what it installed."""
    # Hooks run in other folders than this one.
    return Path(os.environ.get("REMIT_GUARD") or Path.home() / ".remit" / "guard").absolute()


@contextmanager
def usable(folder: Path) -> Generator[None]:
    """Make a folder of the guard, and do something in it; a `RemitError` says why that is not possible."""
    size = len(os.fsencode(socket_of(folder)))
    if size > LONGEST_SOCKET:
        why = f"{folder} is too long for a socket in it: {size} bytes of at most {LONGEST_SOCKET}"
        raise RemitError(fault(Code.TEAM_INVALID, why, suggestion="Set REMIT_GUARD to a folder with a shorter path."))
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        yield


@contextmanager
def writing(folder: Path) -> Generator[None]:
    """Do something that writes files; a `RemitError` says which of them cannot be written."""
    try:
        yield
    except OSError as error:
        why = f"{error.filename or folder} cannot be written: {error.strerror}"
        raise RemitError(fault(Code.TEAM_INVALID, why, suggestion="REMIT_GUARD can name another folder.")) from error


def guard_store(folder: Path) -> Path:
    """Return the store with the runs of all sessions."""
    return folder / "hub.db"


def users_store() -> Path:
    """Return the store of this user's guard."""
    return guard_store(guard_folder())


def days_of(folder: Path) -> Path:
    """Return the folder with what was spent on each day."""
    return folder / "days"


def socket_of(folder: Path) -> Path:
    """Return the socket at which the guard answers."""
    return folder / "guard.sock"


def judged_of(folder: Path) -> Path:
    """Return the file that is there while the team has rules about tools: none is used then without an answer."""
    return folder / "judged"


def stopped_without(folder: Path) -> str:
    """Say what does not happen in the tools that have the guard while it does not answer."""
    return "no tool is used and no sub-agent starts" if judged_of(folder).exists() else "no sub-agent starts"


def script_of(folder: Path) -> Path:
    """Return the script that hooks run."""
    return folder / "hook.sh"


def heard_of(folder: Path, tool: str) -> Path:
    """Return the file whose time is that of the last event of a tool."""
    return folder / "heard" / tool
