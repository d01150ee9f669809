"""Starts the process of an agent, exchanges frames with it, is its only way to the network, and kills it."""

import asyncio
import logging
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from tempfile import TemporaryFile, mkdtemp
from typing import IO, NamedTuple
from urllib.parse import urlsplit

import msgspec

from remit.agents.cards import Sandbox
from remit.agents.piped_process import ProcessGroup
from remit.agents.program import FOR_EVERY_PROCESS
from remit.protocol.errors import Code, RemitError, fault
from remit.words.terminal import several_lines
from remit_cli.processes.channel import (
    LENGTH,
    MAX_FRAME_BYTES,
    ChannelFrame,
    FailedFrame,
    ReadyFrame,
    StartFrame,
    ToHub,
    pack,
    read_by_hub,
)
from remit_cli.processes.sandbox import SandboxRights, destination, rules_of

MAX_HEAD = 32 * 1024
# Longer than any successful connection attempt takes.
CONNECT_S = 30.0
_CHUNK = 64 * 1024
# For the process of one agent; each costs two sockets and a task here.
MAX_CONNECTIONS = 64


class OutgoingProxy:
    """Serves one process: `CONNECT host:port`, and plain HTTP requests with a whole address."""

    def __init__(self, listener: socket.socket, network: Iterable[str], agent: str) -> None:
        self._listener = listener
        self._allowed = {place for each in network if (place := destination(each)) is not None}
        self._agent = agent
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None

    async def open(self) -> None:
        """Start listening."""
        self._server = await asyncio.start_server(self._serve, sock=self._listener, limit=MAX_HEAD)

    def close(self) -> None:
        """Stop listening and close all connections."""
        if self._server is None:
            self._listener.close()
        else:
            self._server.close()
        for task in tuple(self._tasks):
            task.cancel()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None, "a connection is served by a task"
        if len(self._tasks) >= MAX_CONNECTIONS:
            writer.transport.abort()
            return
        self._tasks.add(task)
        try:
            await self._answer(reader, writer)
        except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, asyncio.CancelledError):
            pass  # one end hung up or sent an invalid head, or the process is gone
        finally:
            self._tasks.discard(task)
            writer.transport.abort()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        method, address, first = _parse_request(head)
        wanted = destination(address)
        if wanted is None or wanted not in self._allowed:
            log.warning("%s wanted to reach %.200r, which its `network` does not name", self._agent, address)
            writer.write(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
            await writer.drain()
            return
        try:
            async with asyncio.timeout(CONNECT_S):
                far_reader, far_writer = await asyncio.open_connection(*wanted)
        except (OSError, TimeoutError):
            writer.write(b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
            await writer.drain()
            return
        try:
            if method == b"CONNECT":
                writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
            else:
                far_writer.write(first)
            async with asyncio.TaskGroup() as both:
                both.create_task(_pass_on(reader, far_writer))
                both.create_task(_pass_on(far_reader, writer))
        except ExceptionGroup:
            pass  # one side hung up, which closes the other
        finally:
            far_writer.transport.abort()


def _parse_request(head: bytes) -> tuple[bytes, str, bytes]:
    """Return method, host with port, and the request head to forward instead of *head*."""
    line, _, rest = head.partition(b"\r\n")
    method, target, version = (*line.split(b" "), b"", b"", b"")[:3]
    if method == b"CONNECT":
        return method, target.decode("latin-1"), b""
    with suppress(ValueError):
        url = urlsplit(target.decode("latin-1"))
        if url.scheme == "http" and url.hostname:
            host = f"[{url.hostname}]" if ":" in url.hostname else url.hostname
            path = url._replace(scheme="", netloc="", fragment="").geturl() or "/"
            # One request for each connection: the next one might be for another host.
            kept = [each for each in rest.split(b"\r\n") if each and not each.lower().startswith(_HOP)]
            lines = [b" ".join((method, path.encode("latin-1"), version)), *kept, b"Connection: close"]
            return method, f"{host}:{url.port or 80}", b"\r\n".join(lines) + b"\r\n\r\n"
    return method, "", b""


_HOP = (b"connection:", b"proxy-connection:", b"proxy-authorization:", b"keep-alive:")


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(_CHUNK):
        writer.write(data)
        await writer.drain()
    with suppress(OSError):
        writer.write_eof()


log = logging.getLogger("remit")

# A killed process exits within milliseconds, unless the kernel itself is stuck in it.
REAP_S = 1.0


def environment(environ: Mapping[str, str], named: Collection[str], own: Path) -> dict[str, str]:
    """Return the environment of an agent's process: what every process needs, Python's settings, the *named* ones.

    Its home and its place for temporary files are its *own* folder, unless they are given by name.
    """
    kept = {name: value for name, value in environ.items() if name in FOR_EVERY_PROCESS or name.startswith("PYTHON")}
    if "PYTHONPATH" in kept:  # the process works in another folder
        kept["PYTHONPATH"] = os.pathsep.join(map(os.path.abspath, kept["PYTHONPATH"].split(os.pathsep)))
    given = {name: environ[name] for name in named if name in environ}
    return {**kept, "HOME": str(own), "TMPDIR": str(own), **given}


class ProcessEnvironment(NamedTuple):
    """The surroundings of an agent's processes."""

    folder: Path | None = None
    """An extra folder with its code, besides the hub's import path."""
    environ: Mapping[str, str] = os.environ
    env: Collection[str] = ()
    """Environment variables that it gets besides those that every program needs."""
    sandbox: Sandbox | None = None
    hidden: Collection[Path] = ()
    """Paths that no sandbox may expose: the store and its keys."""

    def path(self) -> tuple[str, ...]:
        """Return its import path."""
        first = () if self.folder is None else (str(self.folder.resolve()),)
        return (*first, *(os.path.abspath(each) for each in sys.path if each not in first))


class InProcessError(Exception):
    """An exception in the code of an agent in a separate process, with its traceback."""


class Process:
    """One process and the channel to it; it leads its own process group, so that its descendants end with it."""

    _reader: asyncio.StreamReader
    _writer: asyncio.StreamWriter

    def __init__(self, entrance: str, around: ProcessEnvironment) -> None:
        self._entrance = entrance
        self._around = around
        self._connected = False
        self._proxy: OutgoingProxy | None = None
        self._path = around.path()
        own = Path(mkdtemp(prefix="remit-agent-")).resolve()
        clear = partial(shutil.rmtree, own, ignore_errors=True)
        try:
            popen = self._start(own)
        except BaseException:
            clear()
            raise
        self.killed = False
        self._leader = ProcessGroup(popen, self.kill, clear)

    def _start(self, own: Path) -> subprocess.Popen[bytes]:
        around, rules = self._around, None
        if around.sandbox is not None:
            folder = Path.cwd() if around.folder is None else around.folder
            rules = rules_of(around.sandbox, own=own, path=self._path, folder=folder, hidden=around.hidden)
        self._socket, theirs = socket.socketpair()
        answers, printed = os.pipe()
        # -P: files in the working directory shadow no module. -u: printed text is not lost when the process is killed.
        command = [
            sys.executable,
            "-P",
            "-u",
            "-m",
            "remit_cli.processes.process_main",
            str(theirs.fileno()),
            self._entrance,
        ]
        try:
            with theirs, _open_stdin(rules) as given:
                popen = subprocess.Popen(
                    command if rules is None else [*command, "sandbox"],
                    stdin=given,
                    stdout=printed,
                    stderr=printed,
                    env=environment(around.environ, around.env, own),
                    cwd=own,
                    pass_fds=(theirs.fileno(),),
                    start_new_session=True,
                )
        except BaseException:
            self._socket.close()
            os.close(answers)
            raise
        finally:
            os.close(printed)
        self._printing = PrintedOutput(answers)
        return popen

    @property
    def exited(self) -> asyncio.Future[int]:
        """Its exit code, once it has exited."""
        return self._leader.exited

    async def open(self) -> None:
        """Make the process import the agent's code, unless it has; return once it is ready."""
        if self._connected:
            return
        await self._printing.open()
        if self._around.sandbox is not None and self._around.sandbox.network:
            await self._open_proxy(self._around.sandbox)
        self._reader, self._writer = await asyncio.open_unix_connection(sock=self._socket)
        self._connected = True
        self.send(StartFrame(path=self._path))
        match await self.receive():
            case ReadyFrame():
                pass
            case FailedFrame(fault=why, trace=trace):
                raise RemitError(why) from InProcessError(trace)
            case frame:
                raise self.broken(f"it began with {frame.__struct_config__.tag}")

    async def _open_proxy(self, sandbox: Sandbox) -> None:
        """Receive the listening socket of the process's own network; if it has none, its next frame says so."""
        loop, readable = asyncio.get_running_loop(), asyncio.Event()
        loop.add_reader(self._socket, readable.set)
        try:
            await readable.wait()
        finally:
            loop.remove_reader(self._socket)
        _, doors, _, _ = socket.recv_fds(self._socket, 1, 1)
        if doors:
            self._proxy = OutgoingProxy(socket.socket(fileno=doors[0]), sandbox.network, self._entrance)
            await self._proxy.open()

    def send(self, frame: ChannelFrame) -> None:
        """Send a frame to the process, or raise one of `NOT_SAYABLE`."""
        payload = pack(frame)
        if not self.killed:
            self._writer.write(payload)

    async def sent(self) -> None:
        """Return once there is room for more."""
        with suppress(ConnectionError):  # the reader will notice that it is gone
            await self._writer.drain()

    async def receive(self) -> ToHub:
        """Return the next frame of the process, or raise a `RemitError` if it dies or breaks the protocol."""
        try:
            (length,) = LENGTH.unpack(await self._reader.readexactly(LENGTH.size))
            if length > MAX_FRAME_BYTES:
                message = f"{self._entrance} gave {length} bytes at once; at most {MAX_FRAME_BYTES} are taken"
                raise RemitError(fault(Code.RESULT_VALIDATION_FAILED, message))
            return read_by_hub(await self._reader.readexactly(length))
        except (asyncio.IncompleteReadError, ConnectionError) as error:
            await self.end()
            message = f"{self._entrance}: its process died ({self._leader.how()})"
            raise RemitError(fault(Code.DELEGATION_FAILED, message)) from error
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise self.broken(str(error)) from error

    def broken(self, message: str) -> RemitError:
        """Return the error for a process that breaks the protocol."""
        return RemitError(fault(Code.DELEGATION_FAILED, f"{self._entrance}: its process broke the protocol: {message}"))

    def kill(self) -> None:
        """Kill the process and its descendants at once."""
        self.killed = True
        self._leader.kill()
        if self._proxy is not None:
            self._proxy.close()
        if self._connected:
            self._writer.transport.abort()

    async def end(self) -> None:
        """Kill the process and return once it has exited."""
        self.kill()
        if not self._connected:
            self._socket.close()
        done, _ = await asyncio.wait({self.exited}, timeout=REAP_S)
        if not done:
            log.warning("process %s of %s was killed and is not gone yet", self._leader.pid, self._entrance)
        if self._connected:
            with suppress(ConnectionError):
                await self._writer.wait_closed()
        await self._printing.close()

    def is_gone(self) -> bool:
        """Return whether the process has exited."""
        return self._leader.is_gone()


def _open_stdin(rules: SandboxRights | None) -> IO[bytes]:
    """Return the process's standard input: the rules of its sandbox, or nothing."""
    if rules is None:
        return open(os.devnull, "rb")
    file = TemporaryFile()  # noqa: SIM115 - closed by whoever asked for it
    file.write(msgspec.json.encode(rules))
    file.seek(0)
    return file


# ── printed output ────────────────────────────────────────────────────────────────────────────────────────────────────

# A longer line is shown in parts.
MAX_PRINTED_LINE = 64 * 1024
# The last output of a killed process is already in the pipe.
LAST_WORDS_S = 1.0


class PrintedOutput(asyncio.Protocol):
    """The hub's end of the pipe that a process prints to: its lines go to the hub's stderr, without control characters.

    The process gets neither the user's terminal nor a log file of the hub.
    """

    def __init__(self, descriptor: int) -> None:
        self._pipe = os.fdopen(descriptor, "rb", buffering=0)
        self._transport: asyncio.BaseTransport | None = None
        self._ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._rest = b""

    async def open(self) -> None:
        """Start reading."""
        await asyncio.get_running_loop().connect_read_pipe(lambda: self, self._pipe)

    async def close(self) -> None:
        """Return once everything printed is shown, or after `LAST_WORDS_S`."""
        if self._transport is None:
            self._pipe.close()
            return
        await asyncio.wait({self._ended}, timeout=LAST_WORDS_S)
        self._transport.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        *lines, self._rest = (self._rest + data).split(b"\n")
        if len(self._rest) > MAX_PRINTED_LINE:
            lines, self._rest = [*lines, self._rest], b""
        self._show(lines)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio's
        if self._rest:
            self._show([self._rest])
        if not self._ended.done():
            self._ended.set_result(None)

    def _show(self, lines: list[bytes]) -> None:
        shown = "".join(several_lines(each.decode("utf-8", "replace")) + "\n" for each in lines)
        # No stderr, or a closed one: the output is discarded.
        with suppress(OSError, ValueError, AttributeError):
            sys.stderr.write(shown)
            sys.stderr.flush()
