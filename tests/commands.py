"""Runs `remit` to its end, as a process that is forked from one which has imported everything."""

import array
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from subprocess import CompletedProcess

import fork_server
from fork_server import REMIT
from waiting import PATIENCE_S, wait_until

# What changes how Python itself starts: whoever sets one of these gets a Python that starts.
_AT_START = ("PYTHON", "LANG", "LC_", "LD_")
# The fork server was started with it.
_STRICT = {"PYTHONWARNINGS": "error"}


def run(
    arguments: Sequence[str], *, folder: Path, variables: Mapping[str, str], given: str | None = None
) -> CompletedProcess[str]:
    """Return what came of a command; *given* is what it reads, None: nothing."""
    if is_forkable(variables):
        return _SERVER.run([*arguments], folder, dict(variables), given)
    return subprocess.run(
        [REMIT, *arguments],
        cwd=folder,
        env=dict(variables),
        input="" if given is None else given,
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_S,
    )


def start(
    arguments: Sequence[str], *, folder: Path, variables: Mapping[str, str], streams: Sequence[int], terminal: bool
) -> "Forked | None":
    """Start a command with these files as its streams, the first of which may be its *terminal*; None: start Python."""
    if not is_forkable(variables):
        return None
    return _SERVER.start([*arguments], folder, dict(variables), streams, terminal=terminal)


def is_forkable(variables: Mapping[str, str]) -> bool:
    def at_start(environ: Mapping[str, str]) -> dict[str, str]:
        return {name: value for name, value in environ.items() if name.startswith(_AT_START)}

    return sys.platform == "linux" and at_start(variables) == {**at_start(os.environ), **_STRICT}


class Forked:
    """A command that was forked: as much of a `Popen` as tests need."""

    def __init__(self, command: list[str], reply: socket.socket) -> None:
        self.command = command
        self.returncode: int | None = None
        self._reply = reply
        self._reply.settimeout(PATIENCE_S)
        self.pid = self._number()

    def poll(self) -> int | None:
        """Return the exit code, or None if it has not ended."""
        if self.returncode is None and select.select([self._reply], [], [], 0)[0]:
            self._end()
        return self.returncode

    def wait(self, timeout: float = PATIENCE_S) -> int:
        """Return the exit code once it has ended."""
        if self.returncode is None:
            if not select.select([self._reply], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired(self.command, timeout)
            self._end()
        assert self.returncode is not None
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def _end(self) -> None:
        self.returncode = self._number()
        self._reply.close()

    def _number(self) -> int:
        content = self._reply.recv(8)
        assert content, "the fork server ended"
        return array.array("q", content)[0]


class _ForkServer:
    """The one that all processes of a test run share; started by the first that needs it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._connection: socket.socket | None = None

    def start(
        self, arguments: list[str], folder: Path, variables: dict[str, str], streams: Sequence[int], *, terminal: bool
    ) -> Forked:
        request = {"arguments": arguments, "folder": str(folder), "variables": variables, "terminal": terminal}
        ours, theirs = socket.socketpair()
        with theirs, self._lock:
            socket.send_fds(self._connected(), [json.dumps(request).encode()], [*streams, theirs.fileno()])
        return Forked([REMIT, *arguments], ours)

    def run(
        self, arguments: list[str], folder: Path, variables: dict[str, str], given: str | None
    ) -> CompletedProcess[str]:
        out, out_end = os.pipe()
        err, err_end = os.pipe()
        ends = [_input(given), out_end, err_end]
        said = [_Reading(each) for each in (out, err)]
        try:
            process = self.start(arguments, folder, variables, ends, terminal=False)
        finally:
            for end in ends:
                os.close(end)
        try:
            code = process.wait()
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise
        return CompletedProcess(process.command, code, *(each.text() for each in said))

    def _connected(self) -> socket.socket:
        if self._connection is None:
            name = os.environ.get("PYTEST_XDIST_TESTRUNUID") or f"{os.getpid()}"
            self._connection = _connection(name)
            if self._connection is None:
                _start(name)
                self._connection = wait_until(lambda: _connection(name), "the fork server")
                assert self._connection is not None
        return self._connection


_SERVER = _ForkServer()


def _connection(name: str) -> socket.socket | None:
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        connection.connect(fork_server.address_of(name))
    except OSError:
        connection.close()
        return None
    return connection


def _start(name: str) -> None:
    # Not a `Popen`, which would want to be waited for: it ends when the last process of the run does.
    quiet = [(os.POSIX_SPAWN_OPEN, stream, os.devnull, os.O_RDWR, 0) for stream in (0, 1, 2)]
    command = [sys.executable, str(Path(fork_server.__file__).resolve()), name]
    os.posix_spawn(sys.executable, command, {**os.environ, **_STRICT}, file_actions=quiet)


def _input(given: str | None) -> int:
    if given is None:
        return os.open(os.devnull, os.O_RDONLY)
    raw = given.encode()
    if len(raw) > 16_000:  # more than a pipe surely holds before it is read
        with tempfile.TemporaryFile() as file:
            file.write(raw)
            file.seek(0)
            return os.dup(file.fileno())
    reading, writing = os.pipe()
    with open(writing, "wb") as written:
        written.write(raw)
    return reading


class _Reading:
    """Reads a pipe to its end, beside whatever else is done."""

    def __init__(self, end: int) -> None:
        self._content = b""
        self._end = end
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        with open(self._end, "rb") as pipe:
            self._content = pipe.read()

    def text(self) -> str:
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive(), "a process that the command left behind holds its output"
        return self._content.decode().replace("\r\n", "\n").replace("\r", "\n")
