"""A process for an agent: started, spoken with, killed."""

import asyncio
import logging
import os
import signal
import socket
import subprocess
import sys
import threading
from contextlib import suppress

import msgspec

from remit.agents.channel import LENGTH, MAX_FRAME_BYTES, Failed, Frame, Ready, Start, ToHub, pack, read_by_hub
from remit.protocol.errors import Code, RemitError, fault

log = logging.getLogger("remit")

# A killed process is gone within milliseconds, unless the kernel itself is stuck in it.
REAP_S = 1.0


class InProcessError(Exception):
    """What the code of an agent raised in its own process, as it was traced there."""


class Process:
    """One process and the channel to it; it leads a group of its own, so that what it starts ends with it."""

    _reader: asyncio.StreamReader
    _writer: asyncio.StreamWriter

    def __init__(self, entrance: str) -> None:
        self._entrance = entrance
        self._connected = False
        self._socket, theirs = socket.socketpair()
        # -P: what lies in the working directory shadows no module. -u: a kill flushes nothing that was printed.
        command = [sys.executable, "-P", "-u", "-m", "remit.agents.process_main", str(theirs.fileno()), entrance]
        try:
            with theirs:
                self._popen = subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,  # until it has joined it to its stderr
                    pass_fds=(theirs.fileno(),),
                    start_new_session=True,
                )
        except OSError:
            self._socket.close()
            raise
        self.killed = False
        self._reaped = False
        self._reaping = threading.Lock()
        loop = asyncio.get_running_loop()
        self.exited: asyncio.Future[int] = loop.create_future()
        # The end of the channel alone would not tell: what the process has started may hold it open.
        name = f"remit-process-{self._popen.pid}"
        threading.Thread(target=self._watch, args=(loop,), name=name, daemon=True).start()

    async def open(self) -> None:
        """Have the agent's code imported, unless it is; return once it is ready for a delegation."""
        if self._connected:
            return
        self._reader, self._writer = await asyncio.open_unix_connection(sock=self._socket)
        self._connected = True
        self.send(Start(path=tuple(sys.path)))
        match await self.receive():
            case Ready():
                pass
            case Failed(fault=why, trace=trace):
                raise RemitError(why) from InProcessError(trace)
            case frame:
                raise self.broken(f"it began with {type(frame).__name__}")

    def send(self, frame: Frame) -> None:
        """Say something to the process, or raise one of `NOT_SAYABLE`."""
        payload = pack(frame)
        if not self.killed:
            self._writer.write(payload)

    async def sent(self) -> None:
        """Return once there is room for more."""
        with suppress(ConnectionError):  # whoever reads will see that it is gone
            await self._writer.drain()

    async def receive(self) -> ToHub:
        """Return what the process says next, or raise a `RemitError` if it dies or talks nonsense."""
        try:
            (length,) = LENGTH.unpack(await self._reader.readexactly(LENGTH.size))
            if length > MAX_FRAME_BYTES:
                message = f"{self._entrance} gave {length} bytes at once; at most {MAX_FRAME_BYTES} are taken"
                raise RemitError(fault(Code.RESULT_VALIDATION_FAILED, message))
            return read_by_hub(await self._reader.readexactly(length))
        except (asyncio.IncompleteReadError, ConnectionError) as error:
            await self.end()
            message = f"{self._entrance}: its process died ({self._how()})"
            raise RemitError(fault(Code.DELEGATION_FAILED, message)) from error
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise self.broken(str(error)) from error

    def broken(self, message: str) -> RemitError:
        """Return the error for a process that does not keep to the protocol."""
        return RemitError(fault(Code.DELEGATION_FAILED, f"{self._entrance}: its process spoke out of turn: {message}"))

    def kill(self) -> None:
        """Kill the process and all that it started, at once."""
        self.killed = True
        with self._reaping:
            if not self._reaped:
                self._kill_group()
        if self._connected:
            self._writer.transport.abort()

    async def end(self) -> None:
        """Kill the process and return once it is gone."""
        self.kill()
        if not self._connected:
            self._socket.close()
        done, _ = await asyncio.wait({self.exited}, timeout=REAP_S)
        if not done:
            log.warning("process %s of %s was killed and is not gone yet", self._popen.pid, self._entrance)
        if self._connected:
            with suppress(ConnectionError):
                await self._writer.wait_closed()

    def is_gone(self) -> bool:
        """Say whether the process has ended by itself."""
        with self._reaping:
            return self._reaped

    def _watch(self, loop: asyncio.AbstractEventLoop) -> None:
        # Only once it is reaped can its number be given to another, so what is left of its group is killed before that.
        if sys.platform == "darwin":  # has no way to wait without reaping before Python 3.13
            self._popen.wait()
        else:
            with suppress(ChildProcessError):  # someone else reaped it
                os.waitid(os.P_PID, self._popen.pid, os.WEXITED | os.WNOWAIT)
        with self._reaping:
            self._kill_group()
            code = self._popen.wait()
            self._reaped = True
        with suppress(RuntimeError):  # the loop is closed: nobody waits any more
            loop.call_soon_threadsafe(self._note_exit, code)

    def _note_exit(self, code: int) -> None:
        self.kill()
        if not self.exited.done():
            self.exited.set_result(code)

    def _kill_group(self) -> None:
        with suppress(ProcessLookupError, PermissionError):  # macOS forbids it where only the dead are left
            os.killpg(self._popen.pid, signal.SIGKILL)

    def _how(self) -> str:
        if not self.exited.done():
            return "it cannot be reaped"
        code = self.exited.result()
        return f"signal {-code}" if code < 0 else f"exit code {code}"
