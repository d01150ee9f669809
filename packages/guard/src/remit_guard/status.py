"""The state of the guard: whether it runs, where it was put in, and which versions of the tools are installed."""

import re
import shutil
import socket
import subprocess
from pathlib import Path

from msgspec import Struct
from msgspec.json import decode

from remit.protocol.errors import RemitError
from remit_guard.install import Installed, installed, is_in, script_problem
from remit_guard.lock import holder
from remit_guard.places import heard_of, socket_of
from remit_guard.tools.known_tools import TOOLS
from remit_server.documents.common import GuardedSessionUse, GuardedTool, GuardReport

# A tool that runs on Node takes a second; one that asks its server for news must not hold up a command.
VERSION_S = 10
_VERSION = re.compile(r"\d+\.\d+[\w.+-]*")


def installed_version(command: str) -> str | None:
    """Ask a program for its version; None if it is not on the path, or tells none in time."""
    program = shutil.which(command)
    if program is None:
        return None
    try:
        done = subprocess.run(
            [program, "--version"], stdin=subprocess.DEVNULL, capture_output=True, timeout=VERSION_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    version = _VERSION.search(done.stdout.decode(errors="replace"))
    return None if version is None else version[0]


# A guard that has just started answers other hooks first.
PATIENCE_S = 30


class GuardStatus(Struct, frozen=True, kw_only=True):
    """The state of a running guard."""

    process: int
    part_of: str = ""
    """The command of which it is a part; empty: the process is a guard and nothing else."""
    hooks: dict[str, int] = {}
    """How many hooks it has heard, by tool."""
    sessions: tuple[GuardedSessionUse, ...] = ()
    currency: str = "USD"


class GuardConsoleLink(Struct, frozen=True, kw_only=True):
    """A link to the console of a guard, or why there is none."""

    link: str = ""
    error: str = ""
    suggestion: str = ""


def guard_status(folder: Path) -> GuardStatus | None:
    """Ask the guard for its state; None if none answers."""
    reply = _request(folder, b"GET /status")
    return None if reply is None else decode(reply, type=GuardStatus)


def console_link(folder: Path) -> GuardConsoleLink | None:
    """Ask the guard for a link to its console; None if none answers."""
    reply = _request(folder, b"POST /console")
    return None if reply is None else decode(reply, type=GuardConsoleLink)


def _request(folder: Path, request: bytes) -> bytes | None:
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(PATIENCE_S)
            connection.connect(str(socket_of(folder)))
            connection.sendall(request + b" HTTP/1.1\r\nHost: guard\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
            reply = b"".join(iter(lambda: connection.recv(65_536), b""))
    except OSError:
        return None
    return reply.partition(b"\r\n\r\n")[2]


def report(folder: Path) -> GuardReport:
    """Return whether the guard runs, is in all files that it was put into, and hears the tools."""
    status = guard_status(folder)
    tools = tuple(_tool(folder, each, status) for each in installed(folder))
    return GuardReport(
        ok=status is not None and all(each.state != "gone" and not each.obstacle for each in tools),
        process=None if status is None else status.process,
        unanswering=holder(folder) if status is None else None,
        sessions=0 if status is None else len(status.sessions),
        use=() if status is None else status.sessions,
        currency="USD" if status is None else status.currency,
        tools=tools,
    )


def _tool(folder: Path, put: Installed, status: GuardStatus | None) -> GuardedTool:
    tool = TOOLS[put.tool]
    try:
        heard_ms = heard_of(folder, put.tool).stat().st_mtime_ns // 1_000_000
    except OSError:
        heard_ms = None
    path = Path(put.path)
    try:
        is_gone = not is_in(tool, path, folder)
        obstacle = "" if is_gone else script_problem(path, folder) or tool.obstacle(path, folder)
    except (RemitError, OSError) as error:  # one file that cannot be read hides no other
        is_gone, obstacle = True, f"{path} cannot be read: {error}"
    if is_gone:
        state = "gone"
    else:
        state = "silent" if heard_ms is None or heard_ms < put.at_ms else "heard"
    return GuardedTool(
        tool=put.tool,
        path=put.path,
        state=state,
        heard_ms=heard_ms,
        events=0 if status is None else status.hooks.get(put.tool, 0),
        version=installed_version(tool.command or tool.name),
        tried=tool.tried,
        obstacle=obstacle,
    )
