"""A process that has imported everything, and forks for each program that a test runs, which starts at once so.

A program is a `remit` command, a file of Python, or a text as after `python -c`. What is forked is a process of its own
as any other: its folder, variables, streams, modules, signals and exit code. `python fork_server.py NAME` serves at a
socket of that name until nobody is connected to it any more.
"""

import array
import atexit
import builtins
import codecs
import ctypes
import fcntl
import gc
import importlib
import importlib.machinery
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
import warnings
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any, NoReturn

import msgspec

REMIT = str(Path(sys.executable).with_name("remit"))
# What nobody imports before a command needs it, or only in a process of its own.
_LEFT_OUT = ("remit_models.frameworks", "remit_redaction.presidio")
_LATER = ("__main__", "process_main", "process_reaper", "detached")
# What is imported besides when it is needed first, and what programs of tests import.
_BESIDES = (
    "anyio._backends._asyncio",
    "encodings.ascii",
    "encodings.utf_8_sig",
    "hypothesis",
    "jsonschema_rs",
    "openai.resources",
    "pwd",
    "pytest",
    "uvicorn.lifespan.on",
    "vodozemac",
)
# A fork copies a table of all pages; 512 that lie together can be one. The number is that of Linux.
_LARGE_PAGE, _MADV_COLLAPSE = 2 << 20, 25
# A request is its arguments and variables, some 10 kB.
_MOST = 1_000_000


def address_of(name: str) -> str:
    """Return the socket of a server; it has no file, so that nothing is left behind."""
    return f"\0remit-tests-{name}"


def take_terminal() -> None:
    """Have a session of its own, whose terminal stdin is: Ctrl-C then reaches this process as from a keyboard.

    A closed window ends it too, although whoever started the tests may ignore that, as `nohup` does.
    """
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    os.setsid()
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


# ── the server ────────────────────────────────────────────────────────────────────────────────────────────────────────


def _import_all() -> None:
    for package in pkgutil.iter_modules():
        if package.name != "remit" and not package.name.startswith("remit_"):
            continue
        for module in pkgutil.walk_packages(importlib.import_module(package.name).__path__, f"{package.name}."):
            if not module.name.startswith(_LEFT_OUT) and not module.name.endswith(_LATER):
                importlib.import_module(module.name)
    for name in _BESIDES:
        with suppress(ImportError):  # an environment for one framework need not have all of them
            importlib.import_module(name)
    from remit.agents.token_count import token_counter
    from remit.installed import brought
    from remit_redaction.pipeline import detector_pipeline

    # What these make is made of patterns and tables alone, a fifth of a second each, and is the same in every process.
    detect: Any = detector_pipeline()
    detect.warm()
    token_counter()("once")
    # A program may find plugins in folders that this process does not know.
    brought.cache_clear()
    for each in _structs(msgspec.Struct):
        with suppress(NameError, TypeError):  # some refer to what only their own module can resolve
            msgspec.json.Decoder(each)
    # A fork has one thread: whatever another one held or did would never be released or done there.
    assert len(os.listdir("/proc/self/task")) == 1
    # What is there now is there for good, and need not be looked at, or copied, in each fork.
    gc.collect()
    gc.freeze()
    _use_large_pages()


def _use_large_pages() -> None:
    """Put the memory of this process into large pages where the system can: a fork then takes 2 ms, not 8."""
    libc = ctypes.CDLL(None)
    for line in Path("/proc/self/maps").read_text(encoding="utf-8", errors="replace").splitlines():
        addresses, rights, _, _, _, *name = line.split(maxsplit=5)
        if rights != "rw-p" or name not in ([], ["[heap]"]):
            continue
        start, end = (int(each, 16) for each in addresses.split("-"))
        for place in range(-(-start // _LARGE_PAGE) * _LARGE_PAGE, end - _LARGE_PAGE + 1, _LARGE_PAGE):
            libc.madvise(ctypes.c_void_p(place), ctypes.c_size_t(_LARGE_PAGE), _MADV_COLLAPSE)


def _structs(root: type) -> Iterator[type]:
    for each in root.__subclasses__():
        yield each
        yield from _structs(each)


def _become(request: dict[str, Any], streams: list[int]) -> NoReturn:
    """Be the program that was asked for, from its start to its exit code."""
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for place, stream in enumerate(streams):
        os.dup2(stream, place)
    os.closerange(3, 1_024)
    if request["terminal"]:
        take_terminal()
    os.chdir(request["folder"])
    path = _own_path()
    os.environ.clear()
    os.environ.update(request["variables"])
    time.tzset()
    random.seed()
    _open_streams()
    _warn_as_told()
    sys.dont_write_bytecode = bool(os.environ.get("PYTHONDONTWRITEBYTECODE"))
    code: Any = 0
    interrupted = False
    try:
        program, first = _main(request["command"])
        sys.path[:] = [first, *os.environ.get("PYTHONPATH", "").split(os.pathsep), *path]
        if not os.environ.get("PYTHONPATH"):
            del sys.path[1]
        exec(program, sys.modules["__main__"].__dict__)
    except SystemExit as stop:
        code = stop.code
        if code is not None and not isinstance(code, int):
            print(code, file=sys.stderr)
            code = 1
    except BaseException as error:  # noqa: BLE001 - the task of this process ends here
        interrupted = isinstance(error, KeyboardInterrupt)
        code = 1
        trace = error.__traceback__
        while trace is not None and trace.tb_frame.f_code.co_filename == __file__:
            trace = trace.tb_next
        sys.excepthook(type(error), error.with_traceback(trace), trace)
    # As an interpreter does that ends.
    threading._shutdown()  # pyright: ignore
    atexit._run_exitfuncs()  # pyright: ignore[reportPrivateUsage]
    gc.collect()
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            code = 120  # as Python itself says it
    if interrupted:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    os._exit(code or 0)


def _own_path() -> list[str]:
    """Return where modules are found whatever the variables say: without the program's own folder and PYTHONPATH."""
    given = os.environ.get("PYTHONPATH")
    return sys.path[1 + (given.count(os.pathsep) + 1 if given else 0) :]


def _warn_as_told() -> None:
    """Treat every warning as an error, as this process does, only if the program's variables say so."""
    if os.environ.get("PYTHONWARNINGS") == "error":
        return
    sys.warnoptions.clear()
    kept = [each for each in warnings.filters if each != ("error", None, Warning, None, 0)]
    warnings.resetwarnings()
    warnings.filters[:] = kept  # pyright: ignore[reportIndexIssue]


def _main(command: list[str]) -> tuple[CodeType, str]:
    """Make the module that is run; return its code, and where it finds modules first."""
    name, *arguments = command
    module = ModuleType("__main__")
    module.__dict__["__builtins__"] = builtins
    if "__annotations__" in globals():  # until Python 3.13
        module.__annotations__ = {}
    sys.modules["__main__"] = module
    if name == REMIT:
        sys.argv[:] = command
        return compile("from remit_cli.main import main\nmain()\n", REMIT, "exec"), str(Path(REMIT).parent)
    if arguments[0] == "-c":
        _, text, *arguments = arguments
        sys.argv[:] = ["-c", *arguments]
        return compile(text, "<string>", "exec"), ""
    file = str(Path.cwd() / arguments[0])
    sys.argv[:] = arguments
    loader = importlib.machinery.SourceFileLoader("__main__", file)
    module.__dict__.update(__file__=file, __loader__=loader, __cached__=None)
    return compile(Path(file).read_bytes(), file, "exec", dont_inherit=True), str(Path(file).resolve().parent)


def _open_streams() -> None:
    """Have streams of its own, as Python makes them."""
    given = io.BufferedReader(io.FileIO(0, closefd=False))
    sys.stdin = sys.__stdin__ = io.TextIOWrapper(given, *_coding(sys.stdin, 0))
    sys.stdout = sys.__stdout__ = _like(sys.stdout, io.FileIO(1, "w", closefd=False))
    sys.stderr = sys.__stderr__ = _like(sys.stderr, io.FileIO(2, "w", closefd=False))


def _like(stream: Any, raw: io.FileIO) -> io.TextIOWrapper:
    unbuffered = bool(os.environ.get("PYTHONUNBUFFERED"))
    return io.TextIOWrapper(
        raw if unbuffered else io.BufferedWriter(raw),  # pyright: ignore[reportArgumentType]
        *_coding(stream, raw.fileno()),
        line_buffering=not unbuffered and (raw.isatty() or raw.fileno() == 2),
        write_through=unbuffered,
    )


def _coding(stream: Any, file: int) -> tuple[str, str]:
    """Return the encoding of a stream, and what is done with errors."""
    encoding, _, errors = os.environ.get("PYTHONIOENCODING", "").partition(":")
    if file == 2 or not (encoding or errors):
        errors = stream.errors
    return codecs.lookup(encoding).name if encoding else stream.encoding, errors or "strict"


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
    # Nothing is found among the tests before a program says so.
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
