"""Starts `remit` and programs of Python as processes that are forked from one which has imported everything."""

import array
import asyncio
import json
import locale
import os
import select
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from subprocess import DEVNULL, PIPE, CompletedProcess
from typing import Any

import fork_server
from fork_server import REMIT
from waiting import PATIENCE_S, wait_until

# What changes how Python itself starts: whoever sets one of these gets a Python that starts.
_AT_START = ("PYTHON", "LANG", "LC_", "LD_")
# What is forked does as these say.
_OBEYED = ("PYTHONDONTWRITEBYTECODE", "PYTHONIOENCODING", "PYTHONPATH", "PYTHONUNBUFFERED", "PYTHONWARNINGS")
# The fork server was started with it.
_STRICT = {"PYTHONWARNINGS": "error"}


def run(
    arguments: Sequence[str], *, folder: Path, variables: Mapping[str, str], given: str | None = None
) -> CompletedProcess[str]:
    """Return what came of a command; *given* is what it reads, None: nothing."""
    return run_program([REMIT, *arguments], folder=folder, variables=variables, given=given)


def run_program(
    command: Sequence[str],
    *,
    folder: Path | None = None,
    variables: Mapping[str, str] | None = None,
    given: str | None = None,
    timeout: float = PATIENCE_S,
) -> CompletedProcess[str]:
    """Return what came of a program, as `subprocess.run` does."""
    streams: dict[str, Any] = {"stdin": DEVNULL if given is None else PIPE, "stdout": PIPE, "stderr": PIPE}
    with popen(command, cwd=folder, env=variables, text=True, encoding="utf-8", **streams) as process:
        try:
            out, err = process.communicate(given, timeout=timeout)
        except BaseException:
            process.kill()
            raise
    return CompletedProcess(process.args, process.returncode, out, err)


def popen(
    command: Sequence[str],
    *,
    cwd: Path | str | None = None,
    env: Mapping[str, str] | None = None,
    terminal: bool = False,
    **options: Any,
) -> "subprocess.Popen[Any]":
    """Start a program as `subprocess.Popen` does, by a fork where that is the same; its stdin may be its *terminal*."""
    variables = dict(os.environ if env is None else env)
    if is_forkable(command, variables):
        return Forked([*command], cwd=cwd, env=variables, terminal=terminal, **options)
    if terminal:
        options["preexec_fn"] = fork_server.take_terminal
    return subprocess.Popen([*command], cwd=cwd, env=variables, **options)


def is_forkable(command: Sequence[str], variables: Mapping[str, str]) -> bool:
    """Tell if the fork server can be what *command* starts: what it runs, and how Python is told to start."""

    def at_start(environ: Mapping[str, str]) -> dict[str, str]:
        kept = {name: value for name, value in environ.items() if name.startswith(_AT_START) and name not in _OBEYED}
        # UTF-8 whatever the language is, which is as here if it is used here.
        if is_utf8 and variables.get("PYTHONUTF8") == "1":
            kept = {name: value for name, value in kept.items() if not name.startswith(("PYTHONUTF8", "LANG", "LC_"))}
        return kept

    is_utf8 = locale.getpreferredencoding(do_setlocale=False).lower() == "utf-8"

    program, *arguments = command
    if program == sys.executable:
        is_known = bool(arguments) and (arguments[0] == "-c" or not arguments[0].startswith("-"))
    else:
        is_known = program == REMIT
    return (
        sys.platform == "linux"
        and is_known
        and variables.get("PYTHONWARNINGS", "error") == "error"
        and at_start(variables) == at_start(os.environ)
    )


def forked_command(program: Path) -> list[str]:
    """Return a command for another process to start, which forks a program of Python where that is the same."""
    plain = [sys.executable, str(program)]
    if not is_forkable(plain, os.environ):
        return plain
    return [sys.executable, "-S", str(_FORKED), _SERVER.address(), *plain]


class Forked(subprocess.Popen[Any]):
    """A program that was forked: it is the child of the fork server, which tells how it ended."""

    def __init__(self, command: list[str], *, terminal: bool, **options: Any) -> None:
        assert options.keys() <= {"cwd", "env", "stdin", "stdout", "stderr", "text", "encoding", "bufsize"}
        self._terminal = terminal
        super().__init__(command, **options)

    def _execute_child(  # as `Popen` calls it, once it has made the streams
        self,
        args: list[str],
        executable: None,
        preexec_fn: None,
        close_fds: bool,
        pass_fds: tuple[int, ...],
        cwd: Path | str | None,
        env: dict[str, str],
        startupinfo: None,
        creationflags: int,
        shell: bool,
        *streams: Any,
    ) -> None:
        given, _, _, out, _, err, *_ = streams
        files = [place if stream == -1 else stream for place, stream in enumerate((given, out, err))]
        # What it does not name it would do in the folder in which this process is now.
        request = {"command": args, "folder": str(cwd or Path.cwd()), "variables": env, "terminal": self._terminal}
        try:
            self._reply = _SERVER.send(request, files)
            self.pid = self._number()
        finally:
            self._close_pipe_fds(*streams[:6])  # pyright: ignore
        self._child_created = True

    def _internal_poll(self, *_: object, **__: object) -> int | None:
        return self._end(0)

    def _wait(self, timeout: float | None) -> int:
        if (code := self._end(timeout)) is None:
            assert timeout is not None
            raise subprocess.TimeoutExpired(self.args, timeout)
        return code

    def _end(self, timeout: float | None) -> int | None:
        if self.returncode is None and select.select([self._reply], [], [], timeout)[0]:
            self.returncode = self._number()
            self._reply.close()
        return self.returncode

    def _number(self) -> int:
        content = self._reply.recv(8)
        assert content, "the fork server ended"
        return array.array("q", content)[0]


class _ForkServer:
    """The one that all processes of a test run share; started by the first that needs it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._connection: socket.socket | None = None

    def send(self, request: dict[str, Any], streams: Sequence[int]) -> socket.socket:
        """Ask for a program, and return where its number and its end are told."""
        ours, theirs = socket.socketpair()
        with theirs, self._lock:
            socket.send_fds(self._connected(), [json.dumps(request).encode()], [*streams, theirs.fileno()])
        return ours

    def address(self) -> str:
        """Return where it can be reached as long as this process runs, without the null byte that it begins with."""
        with self._lock:
            self._connected()
        return fork_server.address_of(_RUN)[1:]

    def _connected(self) -> socket.socket:
        if self._connection is None:
            self._connection = _connection(_RUN)
            if self._connection is None:
                _start(_RUN)
                self._connection = wait_until(lambda: _connection(_RUN), "the fork server")
                assert self._connection is not None
        return self._connection


_SERVER = _ForkServer()
_FORKED = Path(__file__).resolve().with_name("forked.py")
# The same in all processes of a run: they are forked from the one that has imported this, or are told it.
_NAMED = "TEST_RUN_OF_REMIT"
_RUN = os.environ.get(_NAMED) or f"{os.getpid()}"


def run_variables() -> dict[str, str]:
    """Return what a program of a test needs to have its own programs forked by the same server."""
    return {_NAMED: _RUN}


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
    variables = {**os.environ, **_STRICT}
    variables.pop("PYTHONIOENCODING", None)  # each program has its own, or the default
    os.posix_spawn(sys.executable, command, variables, file_actions=quiet)


# ── in an event loop ──────────────────────────────────────────────────────────────────────────────────────────────────


class Program:
    """A program whose lines are written and read in an event loop, as those of `asyncio.create_subprocess_exec`."""

    def __init__(self, process: "subprocess.Popen[bytes]", stdin: asyncio.StreamWriter, stdout: asyncio.StreamReader):
        self._process = process
        self.pid = process.pid
        self.stdin = stdin
        self.stdout = stdout

    def kill(self) -> None:
        self._process.kill()

    async def wait(self) -> int:
        """Return how it ended, once it has; nothing more can be written to it then."""
        code = await asyncio.to_thread(self._process.wait, PATIENCE_S)
        self.stdin.close()
        return code


async def start_program(
    command: Sequence[str], *, cwd: Path | None = None, env: Mapping[str, str] | None = None
) -> Program:
    """Start a program with pipes for its stdin and stdout."""
    process = await asyncio.to_thread(popen, command, cwd=cwd, env=env, stdin=PIPE, stdout=PIPE, bufsize=0)
    loop = asyncio.get_running_loop()
    stdout = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(stdout), process.stdout)
    protocol = asyncio.StreamReaderProtocol(asyncio.StreamReader())
    transport, _ = await loop.connect_write_pipe(lambda: protocol, process.stdin)
    return Program(process, asyncio.StreamWriter(transport, protocol, None, loop), stdout)
