"""The process of an MCP server and its pipes: bounded lines in and out, killed with its descendants."""

import asyncio
import logging
import re
import shutil
import signal
import subprocess
from collections import deque
from functools import partial

import anyio
import mcp_types as types
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.client.stdio import get_default_environment
from mcp.shared.message import SessionMessage
from pydantic import ValidationError

from remit.agents.lines import LineSplitter, OverlongLine
from remit.agents.mcp.settings import Program
from remit.agents.process_group import ProcessGroup

log = logging.getLogger("remit")

# More than any answer should have: what agents are given of it is bounded once more.
MAX_LINE = 4_000_000
# Who writes so much without ever ending a line, or so many lines that mean nothing, is not going to say anything.
MAX_SKIPPED = 64 * MAX_LINE
MAX_GARBAGE = 1_000
# A server that does not read for this long has stopped working.
WRITE_S = 10.0
# How long one has to end by itself after its stdin was closed, and then after being told to.
LEAVE_S = 1.0
TERMINATE_S = 1.0
REAP_S = 1.0
LAST_WORDS_S = 0.5
LAST_LINES = 20

UNREADABLE = -32_099
"""The error code that replaces an answer that is too long or invalid."""

_ID = re.compile(rb'\A\s*\{[^{}\[\]]*?"id"\s*:\s*(\d{1,15})\b')
# Of what a server says without being asked, this is all that matters here.
_HEARD = frozenset({"notifications/tools/list_changed", "notifications/subscriptions/acknowledged"})

Incoming = SessionMessage | Exception


class Pipes:
    """The stdio transport to a server process, for the SDK's client."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self._leader: ProcessGroup | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._transports: list[asyncio.BaseTransport] = []
        """From its stdout and its stderr."""
        self._said: asyncio.StreamReader | None = None
        """Its stdout. Held until the end: once a reader is gone, asyncio reads on as fast as it can, for nobody."""
        self._writer: asyncio.StreamWriter | None = None
        self._closing = False
        self.how_it_ended: str | None = None
        """How the process exited, if it was not killed."""
        self.last_lines: deque[str] = deque(maxlen=LAST_LINES)
        """The last lines of its stderr."""

    async def __aenter__(self) -> tuple[MemoryObjectReceiveStream[Incoming], MemoryObjectSendStream[SessionMessage]]:
        popen = _started(self._program)
        self._leader = ProcessGroup(popen)
        self._leader.exited.add_done_callback(self._note_exit)
        try:
            return await self._connected(popen)
        except BaseException:
            await self.__aexit__()
            raise

    async def _connected(
        self, popen: "subprocess.Popen[bytes]"
    ) -> tuple[MemoryObjectReceiveStream[Incoming], MemoryObjectSendStream[SessionMessage]]:
        loop = asyncio.get_running_loop()
        self._said = said = asyncio.StreamReader()
        complained = asyncio.StreamReader()
        for reader, pipe in ((said, popen.stdout), (complained, popen.stderr)):
            transport, _ = await loop.connect_read_pipe(partial(asyncio.StreamReaderProtocol, reader), pipe)
            self._transports.append(transport)
        transport, protocol = await loop.connect_write_pipe(asyncio.streams.FlowControlMixin, popen.stdin)
        self._writer = asyncio.StreamWriter(transport, protocol, None, loop)
        into, read = anyio.create_memory_object_stream[Incoming](0)
        write, out = anyio.create_memory_object_stream[SessionMessage](0)
        self._tasks = [
            loop.create_task(self._read(said, into)),
            loop.create_task(self._write(out, self._writer, into)),
            loop.create_task(self._drain(complained)),
        ]
        return read, write

    async def __aexit__(self, *_: object) -> None:
        """Stop the server and everything that it started; every wait is bounded."""
        leader = self._leader
        if leader is None:
            return
        ending = asyncio.ensure_future(self._end(leader))
        try:
            await asyncio.shield(ending)
        except asyncio.CancelledError:
            leader.kill()
            await asyncio.wait({ending})
            raise

    async def _end(self, leader: ProcessGroup) -> None:
        if self._tasks and self._tasks[0].done():
            # It said that it will say no more: most likely it is on its way out, and how it went is worth knowing.
            await asyncio.wait({leader.exited}, timeout=LAST_WORDS_S)
        self._closing = True
        if self._writer is not None:
            self._writer.close()
        for wait_s, number in ((LEAVE_S, signal.SIGTERM), (TERMINATE_S, signal.SIGKILL), (REAP_S, None)):
            done, _ = await asyncio.wait({leader.exited}, timeout=wait_s)
            if done:
                break
            if number is not None:
                leader.kill(number)
        else:
            log.warning("process %s of an MCP server was killed and is not gone yet", leader.pid)
        if self._tasks:
            # What it said last may still be in the pipe; who else holds the other end is not waited for.
            await asyncio.wait({self._tasks[-1]}, timeout=LAST_WORDS_S)
            for task in self._tasks:
                task.cancel()
            await asyncio.wait(self._tasks)
        for transport in self._transports:
            transport.close()

    @property
    def exited(self) -> asyncio.Future[int] | None:
        """Its exit code, once it has exited; None if it was never started."""
        return None if self._leader is None else self._leader.exited

    def _note_exit(self, _: "asyncio.Future[int]") -> None:
        if self._leader is not None and not self._closing:
            self.how_it_ended = self._leader.how()

    # ── what it says ──────────────────────────────────────────────────────────────────────────────────────────────────

    async def _read(self, said: asyncio.StreamReader, into: MemoryObjectSendStream[Incoming]) -> None:
        lines, skipped, garbage = LineSplitter(MAX_LINE), 0, 0
        async with into:
            while chunk := await said.read(65_536):
                skipped += len(chunk)
                for line in lines.feed(chunk):
                    skipped = 0
                    message = _message(line)
                    if message is None:
                        garbage += 1
                        if garbage > MAX_GARBAGE:
                            return
                        continue
                    garbage = 0
                    if isinstance(message, types.JSONRPCNotification) and message.method not in _HEARD:
                        continue
                    try:
                        await into.send(SessionMessage(message))
                    except (anyio.BrokenResourceError, anyio.ClosedResourceError):
                        return
                if skipped > MAX_SKIPPED:
                    return

    async def _write(
        self,
        out: MemoryObjectReceiveStream[SessionMessage],
        writer: asyncio.StreamWriter,
        into: MemoryObjectSendStream[Incoming],
    ) -> None:
        try:
            async with out:
                async for message in out:
                    line = message.message.model_dump_json(by_alias=True, exclude_unset=True)
                    writer.write(f"{line}\n".encode())
                    async with asyncio.timeout(WRITE_S):
                        await writer.drain()
        except (OSError, TimeoutError):
            # Whoever waits for an answer hears that the connection is gone.
            await into.aclose()

    async def _drain(self, complained: asyncio.StreamReader) -> None:
        """Drain its stderr, so that it never blocks on a full pipe."""
        lines = LineSplitter(10_000)
        while chunk := await complained.read(65_536):
            for line in lines.feed(chunk):
                text = line.head if isinstance(line, OverlongLine) else line
                self.last_lines.append(text.decode(errors="replace"))


def _started(program: Program) -> "subprocess.Popen[bytes]":
    # Of this process's own environment only what every program needs: its secrets are for nobody else.
    environ = {**get_default_environment(), **program.env}
    return subprocess.Popen(
        [shutil.which(program.command, path=environ.get("PATH")) or program.command, *program.args],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environ,
        cwd=program.folder,
        start_new_session=True,
        bufsize=0,
    )


def _message(line: bytes | OverlongLine) -> types.JSONRPCMessage | None:
    """Parse a line; an unreadable one becomes an error for the request id in it, if there is one."""
    if isinstance(line, OverlongLine):
        return _unreadable(line.head, f"it has more than {MAX_LINE} bytes")
    try:
        return types.jsonrpc_message_adapter.validate_json(line, by_name=False)
    except ValidationError:
        return _unreadable(line, "it is not of the form that the protocol asks for")


def _unreadable(line: bytes, why: str) -> types.JSONRPCError | None:
    found = _ID.match(line[: LineSplitter.HEAD])
    if found is None:
        return None
    error = types.ErrorData(code=UNREADABLE, message=why)
    return types.JSONRPCError(jsonrpc="2.0", id=int(found[1]), error=error)
