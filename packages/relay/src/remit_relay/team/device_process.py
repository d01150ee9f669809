"""The file that tells which process runs a device, and where its local API is.

The lock of the device is the truth: it is free once its process is gone, however that ended. The file names the address
of the API. It is valid only while the lock is held by the process that the file names.
"""

import hashlib
import os
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Literal

import msgspec
from msgspec import Struct

from remit import __version__
from remit.protocol.codec import encode
from remit.protocol.errors import Code, RemitError, fault
from remit_relay.device.state import LOCK_FILE
from remit_server.transports.credentials.keys import write_private

PROCESS_FILE = "up.json"

# Who asks for the holder of a lock takes the lock for an instant. A process that starts then tries again.
_ATTEMPTS, _AGAIN_S = 10, 0.02

Command = Literal["up", "chat", "share", "dev"]


class DeviceProcess(Struct, frozen=True, kw_only=True):
    """A process that runs a device and serves its local API."""

    pid: int
    address: str
    version: str
    command: Command
    since_ms: int
    team: str
    """The team file, as an absolute path."""
    digest: str
    """The digest of the team file at the start; see `file_digest`."""
    overrides: tuple[str, ...]
    """The settings of the command line that replace those of the file."""

    @property
    def title(self) -> str:
        """The process in a sentence."""
        return f"remit {self.command} (process {self.pid})"


def find_process(folder: Path) -> DeviceProcess | None:
    """Return the process that runs the device in *folder* and has a local API; None if there is none."""
    holder = holder_of(folder)
    if holder is None:
        return None
    try:
        process = msgspec.json.decode((folder / PROCESS_FILE).read_bytes(), type=DeviceProcess)
    except (OSError, msgspec.DecodeError):  # it has no API, is just starting, or has another version of the file
        return None
    return process if process.pid == holder else None


def holder_of(folder: Path) -> int | None:
    """Return the id of the process that runs the device in *folder*; 0 if it is unknown, None if there is none."""
    try:
        from fcntl import LOCK_NB, LOCK_SH, flock

        with (folder / LOCK_FILE).open("rb") as file:
            try:
                flock(file, LOCK_SH | LOCK_NB)
            except BlockingIOError:
                return _number(file.read(20))
    except (ImportError, OSError):  # no process ever ran it, or this system has no such locks
        return None
    return None


@contextmanager
def announced(folder: Path, process: DeviceProcess) -> Generator[None]:
    """Name this process in the file within the block; replace the file of a process that was killed."""
    path = folder / PROCESS_FILE
    write_private(path, encode(process), replace=True)
    try:
        yield
    finally:
        with suppress(OSError):
            path.unlink()


def this_process(command: Command, address: str, team: Path, overrides: tuple[str, ...]) -> DeviceProcess:
    """Return the description of the current process."""
    return DeviceProcess(
        pid=os.getpid(),
        address=address,
        version=__version__,
        command=command,
        since_ms=time.time_ns() // 1_000_000,
        team=str(team.absolute()),
        digest=file_digest(team),
        overrides=overrides,
    )


def file_digest(path: Path) -> str:
    """Return a digest of a file, to notice that it was changed; empty if it cannot be read."""
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError:
        return ""


@contextmanager
def device_lock(path: Path) -> Generator[None]:
    """Make sure that no other process runs the device: a gateway accepts one connection for each device."""
    try:
        from fcntl import LOCK_EX, LOCK_NB, flock
    except ImportError:  # without file locks only the gateway prevents it, with a less helpful error
        yield
        return
    with path.open("a+", encoding="ascii") as file:
        for attempt in range(_ATTEMPTS):
            try:
                flock(file, LOCK_EX | LOCK_NB)
                break
            except OSError as error:
                if attempt == _ATTEMPTS - 1:
                    raise _already_running(_number(path.read_bytes()[:20])) from error
            time.sleep(_AGAIN_S)
        file.truncate(0)
        file.write(f"{os.getpid()}\n")
        file.flush()
        yield


def _already_running(pid: int) -> RemitError:
    why = f"this device is already running, in process {pid or 'unknown'}"
    todo = (
        "Only one process at a time can run a device: stop that one first. "
        "You can review its drafts from here: remit pending list"
    )
    return RemitError(fault(Code.STATE_CONFLICT, why, suggestion=todo))


def _number(text: bytes) -> int:
    digits = text.strip()
    return int(digits) if digits.isdigit() else 0
