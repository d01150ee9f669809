"""Agents that try what they should not be able to do, and tell how it went; copied into a team's folder by tests."""

import asyncio
import ctypes
import json
import os
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any


def surroundings(brief: Any) -> dict[str, Any]:
    """Tell environment, working folder and open descriptors."""
    there: dict[str, str] = {}
    for name in os.listdir("/proc/self/fd"):
        with suppress(OSError):  # that of the listing itself is closed by now
            there[name] = os.readlink(f"/proc/self/fd/{name}")
    here = Path.cwd()
    (here / "own").write_text("mine", encoding="utf-8")
    return {
        "environ": dict(os.environ),
        "cwd": str(here),
        "mode": here.stat().st_mode & 0o777,
        "descriptors": there,
        "stdin": sys.stdin.read(),
    }


def attempts(brief: Any) -> list[str]:
    """Try each of what is asked for, `[what, argument]`, and tell what came of it."""
    return [_tried(*each) for each in brief.request.input]


async def attempts_from_threads(brief: Any) -> list[str]:
    """Try the same in another thread: the kernel keeps this from each thread by itself."""
    return [await asyncio.to_thread(_tried, *each) for each in brief.request.input]


def attempts_from_a_program(brief: Any) -> list[str]:
    """Try the same in another program."""
    command = [sys.executable, str(Path(__file__)), json.dumps(brief.request.input)]
    return json.loads(subprocess.run(command, capture_output=True, check=True).stdout)


def _tried(what: str, argument: Any) -> str:
    try:
        return str(_ATTEMPTS[what](argument))
    except urllib.error.HTTPError as error:
        return f"HTTP {error.code}"
    except (OSError, urllib.error.URLError) as error:
        return type(error).__name__


def _connect(address: list[Any]) -> str:
    with socket.create_connection((address[0], address[1]), timeout=20):
        return "connected"


def _send(address: list[Any]) -> str:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as end:
        end.sendto(b"leak", (address[0], address[1]))
        return "sent"


def _unix(path: str) -> str:
    with socket.socket(socket.AF_UNIX) as end:
        end.connect(path)
        return "connected"


def _fetch(url: str) -> str:
    with urllib.request.urlopen(url, timeout=20) as reply:
        return reply.read().decode()


def _syscall(numbers: dict[str, int]) -> str:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.syscall(ctypes.c_long(numbers[os.uname().machine]), *[ctypes.c_long(0)] * 6) < 0:
        raise OSError(ctypes.get_errno(), "refused")
    return "done"


def _write(path: str) -> str:
    Path(path).write_text("changed", encoding="utf-8")
    return "written"


def _run(command: list[str]) -> str:
    return subprocess.run(command, capture_output=True, check=True, text=True).stdout


def _signal(pid: int) -> None:
    os.kill(pid, 0)


def _read_file(path: str) -> str:
    return Path(path).read_bytes().decode("utf-8", "replace")


def _list(path: str) -> list[str]:
    return sorted(os.listdir(path))


_ATTEMPTS: dict[str, Callable[[Any], object]] = {
    "read": _read_file,
    "list": _list,
    "write": _write,
    "truncate": partial(os.truncate, length=0),
    "chmod": partial(os.chmod, mode=0o777),
    "unlink": os.unlink,
    "link": partial(os.link, dst="linked"),
    "kill": _signal,
    "connect": _connect,
    "send": _send,
    "unix": _unix,
    "fetch": _fetch,
    "run": _run,
    "syscall": _syscall,
    "mkdir": os.mkdir,
}

if __name__ == "__main__":
    print(json.dumps([_tried(*each) for each in json.loads(sys.argv[1])]))
