"""What a running guard is asked by the command line."""

import socket
from pathlib import Path

from msgspec import Struct
from msgspec.json import decode

from remit.guard.places import socket_of

# A guard that has just started answers other hooks first.
PATIENCE_S = 30


class GuardStatus(Struct, frozen=True, kw_only=True):
    """The state of a running guard."""

    process: int
    hooks: dict[str, int] = {}
    """How many hooks it has heard, by tool."""
    sessions: tuple[dict[str, str], ...] = ()


class GuardConsoleLink(Struct, frozen=True, kw_only=True):
    """A link to the console of a guard, or why there is none."""

    link: str = ""
    error: str = ""
    suggestion: str = ""


def asked(folder: Path) -> GuardStatus | None:
    """Ask the guard for its state; None if none answers."""
    told = _told(folder, b"GET /status")
    return None if told is None else decode(told, type=GuardStatus)


def console_link(folder: Path) -> GuardConsoleLink | None:
    """Ask the guard for a link to its console; None if none answers."""
    told = _told(folder, b"POST /console")
    return None if told is None else decode(told, type=GuardConsoleLink)


def _told(folder: Path, request: bytes) -> bytes | None:
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(PATIENCE_S)
            connection.connect(str(socket_of(folder)))
            connection.sendall(request + b" HTTP/1.1\r\nHost: guard\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
            told = b"".join(iter(lambda: connection.recv(65_536), b""))
    except OSError:
        return None
    return told.partition(b"\r\n\r\n")[2]
