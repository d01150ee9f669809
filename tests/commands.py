"""Runs `remit` to its end, as a process that is forked from one which has imported everything."""

import array
import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
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
    if _is_forkable(variables):
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


def _is_forkable(variables: Mapping[str, str]) -> bool:
    def at_start(environ: Mapping[str, str]) -> dict[str, str]:
        return {name: value for name, value in environ.items() if name.startswith(_AT_START)}

    return sys.platform == "linux" and at_start(variables) == {**at_start(os.environ), **_STRICT}


class _ForkServer:
    """The one that all processes of a test run share; started by the first that needs it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._connection: socket.socket | None = None

    def run(
        self, arguments: list[str], folder: Path, variables: dict[str, str], given: str | None
    ) -> CompletedProcess[str]:
        request = {"arguments": arguments, "folder": str(folder), "variables": variables}
        ours, theirs = socket.socketpair()
        out, out_end = os.pipe()
        err, err_end = os.pipe()
        with ExitStack() as kept:
            ends = [_input(given), out_end, err_end, theirs.detach()]
            try:
                with self._lock:
                    socket.send_fds(self._connected(), [json.dumps(request).encode()], ends)
            finally:
                for end in ends:
                    os.close(end)
            kept.enter_context(ours)
            ours.settimeout(PATIENCE_S)
            said = [_Reading(each) for each in (out, err)]
            pid = _number(ours)
            try:
                code = _number(ours)
            except TimeoutError:
                os.kill(pid, 9)
                raise
            finally:
                texts = [each.text() for each in said]
        return CompletedProcess([REMIT, *arguments], code, *texts)

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
    reading, writing = os.pipe()
    with open(writing, "wb") as written:
        assert len(given) < 16_000, "a pipe holds no more before it is read"
        written.write(given.encode())
    return reading


def _number(reply: socket.socket) -> int:
    content = reply.recv(8)
    assert content, "the fork server ended"
    return array.array("q", content)[0]


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
