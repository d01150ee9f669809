"""Where the guard of a user keeps its things."""

import os
from pathlib import Path


def guard_folder() -> Path:
    """Return the folder of the guard: its socket, its store and what it installed."""
    # Hooks run in other folders than this one.
    return Path(os.environ.get("REMIT_GUARD") or Path.home() / ".remit" / "guard").absolute()


def guard_store(folder: Path) -> Path:
    """Return the store with the runs of all sessions."""
    return folder / "hub.db"


def days_of(folder: Path) -> Path:
    """Return the folder with what was spent on each day."""
    return folder / "days"


def socket_of(folder: Path) -> Path:
    """Return the socket at which the guard answers."""
    return folder / "guard.sock"


def script_of(folder: Path) -> Path:
    """Return the script that hooks run."""
    return folder / "hook.sh"


def heard_of(folder: Path, tool: str) -> Path:
    """Return the file whose time is that of the last event of a tool."""
    return folder / "heard" / tool
