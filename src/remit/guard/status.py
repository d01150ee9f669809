"""What a running guard tells of itself."""

import socket
from pathlib import Path

from msgspec import Struct
from msgspec.json import decode

from remit.guard.places import socket_of


class GuardStatus(Struct, frozen=True, kw_only=True):
    """The state of a running guard."""

    process: int
    hooks: dict[str, int] = {}
    """How many hooks it has heard, by tool."""
    sessions: tuple[dict[str, str], ...] = ()


def asked(folder: Path) -> GuardStatus | None:
    """Ask the guard; None if none answers."""
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(5)
            connection.connect(str(socket_of(folder)))
            connection.sendall(b"GET /status HTTP/1.1\r\nHost: guard\r\nConnection: close\r\n\r\n")
            told = b"".join(iter(lambda: connection.recv(65_536), b""))
    except OSError:
        return None
    return decode(told.partition(b"\r\n\r\n")[2], type=GuardStatus)
