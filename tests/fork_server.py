"""A process that has imported everything, and forks for each command that a test runs, which starts at once so.

What is forked is a process of its own as any other: its folder, variables, streams, modules, signals and exit code.
`python fork_server.py NAME` serves at a socket of that name until nobody is connected to it any more.
"""

import array
import atexit
import fcntl
import gc
import importlib
import io
import json
import os
import pkgutil
import random
import selectors
import signal
import socket
import sys
import termios
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

REMIT = str(Path(sys.executable).with_name("remit"))
# What nobody imports before a command needs it, or only in a process of its own.
_LEFT_OUT = ("remit.agents.frameworks", "remit.detectors.presidio")
_LATER = ("__main__", "process_main", "keeper", "detached")
# A request is its arguments and variables, some 10 kB.
_MOST = 1_000_000


def address_of(name: str) -> str:
    """Return the socket of a server; it has no file, so that nothing is left behind."""
    return f"\0remit-tests-{name}"


# ── the server ────────────────────────────────────────────────────────────────────────────────────────────────────────


def _import_all() -> None:
    import remit

    for module in pkgutil.walk_packages(remit.__path__, "remit."):
        if not module.name.startswith(_LEFT_OUT) and not module.name.endswith(_LATER):
            importlib.import_module(module.name)
    # What is there now is there for good, and need not be looked at, or copied, in each fork.
    gc.collect()
    gc.freeze()


def _become(request: dict[str, Any], streams: list[int]) -> NoReturn:
    """Be the command that was asked for, from its start to its exit code."""
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for place, stream in enumerate(streams):
        os.dup2(stream, place)
    os.closerange(3, 1_024)
    if request["terminal"]:
        # Its own session, whose terminal this is: Ctrl-C then reaches it as from a keyboard.
        os.setsid()
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["variables"])
    time.tzset()
    random.seed()
    _open_streams()
    sys.argv[:] = [REMIT, *request["arguments"]]
    code: Any = 1
    try:
        from remit.faces.cli import main

        main()
    except SystemExit as stop:
        code = stop.code
    except BaseException:  # noqa: BLE001 - the task of this process ends here
        sys.excepthook(*sys.exc_info())  # pyright: ignore[reportArgumentType]
    # As an interpreter does that ends.
    threading._shutdown()  # pyright: ignore
    atexit._run_exitfuncs()  # pyright: ignore[reportPrivateUsage]
    gc.collect()
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            code = 120  # as Python itself says it
    os._exit(code if isinstance(code, int) else int(code is not None))


def _open_streams() -> None:
    """Have streams of its own, as Python has made those of this process."""
    sys.stdin = sys.__stdin__ = io.TextIOWrapper(
        io.BufferedReader(io.FileIO(0, closefd=False)), sys.stdin.encoding, sys.stdin.errors
    )
    sys.stdout = sys.__stdout__ = _like(sys.stdout, io.FileIO(1, "w", closefd=False))
    sys.stderr = sys.__stderr__ = _like(sys.stderr, io.FileIO(2, "w", closefd=False))


def _like(stream: Any, raw: io.FileIO) -> io.TextIOWrapper:
    unbuffered: bool = stream.write_through
    return io.TextIOWrapper(
        raw if unbuffered else io.BufferedWriter(raw),  # pyright: ignore[reportArgumentType]
        stream.encoding,
        stream.errors,
        line_buffering=stream.line_buffering or (raw.isatty() and not unbuffered),
        write_through=unbuffered,
    )


def _pass(*_: object) -> None:
    """Be interrupted, no more: what is to be done is done by the loop."""


class _Server:
    def __init__(self, listening: socket.socket) -> None:
        self._selector = selectors.DefaultSelector()
        self._running: dict[int, socket.socket] = {}
        """Whom to tell how a process ended."""
        self._woken, waker = os.pipe()
        os.set_blocking(waker, False)
        signal.set_wakeup_fd(waker, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, _pass)
        self._listening = listening
        self._connected = 0
        self._selector.register(listening, selectors.EVENT_READ)
        self._selector.register(self._woken, selectors.EVENT_READ)

    def serve(self) -> None:
        while True:
            for key, _ in self._selector.select():
                if key.fileobj is self._listening:
                    client, _ = self._listening.accept()
                    self._selector.register(client, selectors.EVENT_READ)
                    self._connected += 1
                elif key.fileobj == self._woken:
                    os.read(self._woken, 4_096)
                    self._reap()
                elif isinstance(key.fileobj, socket.socket) and not self._take(key.fileobj):
                    self._selector.unregister(key.fileobj)
                    key.fileobj.close()
                    self._connected -= 1
                    if self._connected == 0:
                        return

    def _take(self, client: socket.socket) -> bool:
        content, fds, _, _ = socket.recv_fds(client, _MOST, 4)
        if not content:
            return False
        reply = socket.socket(fileno=fds[3])
        pid = os.fork()
        if pid == 0:
            _become(json.loads(content), fds[:3])
        for each in fds[:3]:
            os.close(each)
        self._running[pid] = reply
        reply.send(array.array("q", [pid]).tobytes())
        return True

    def _reap(self) -> None:
        while self._running:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return
            with self._running.pop(pid) as reply, suppress(OSError):  # whoever asked may be gone
                reply.send(array.array("q", [os.waitstatus_to_exitcode(status)]).tobytes())


def main(name: str) -> None:
    # As the command is found: beside the interpreter, and not among the tests.
    sys.path[0] = str(Path(REMIT).parent)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listening:
        try:
            listening.bind(address_of(name))
        except OSError:
            return  # another one serves already
        listening.listen(64)
        _import_all()
        _Server(listening).serve()


if __name__ == "__main__":
    main(sys.argv[1])
