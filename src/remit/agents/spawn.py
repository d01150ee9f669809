"""A process for an agent: started, spoken with, killed."""

import asyncio
import logging
import socket
import subprocess
import sys
from contextlib import suppress

import msgspec

from remit.agents.channel import LENGTH, MAX_FRAME_BYTES, Failed, Frame, Ready, Start, ToHub, pack, read_by_hub
from remit.agents.leader import Leader
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
                popen = subprocess.Popen(
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
        self._leader = Leader(popen, self.kill)

    @property
    def exited(self) -> asyncio.Future[int]:
        """Its exit code, once it has ended."""
        return self._leader.exited

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
            message = f"{self._entrance}: its process died ({self._leader.how()})"
            raise RemitError(fault(Code.DELEGATION_FAILED, message)) from error
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise self.broken(str(error)) from error

    def broken(self, message: str) -> RemitError:
        """Return the error for a process that does not keep to the protocol."""
        return RemitError(fault(Code.DELEGATION_FAILED, f"{self._entrance}: its process spoke out of turn: {message}"))

    def kill(self) -> None:
        """Kill the process and all that it started, at once."""
        self.killed = True
        self._leader.kill()
        if self._connected:
            self._writer.transport.abort()

    async def end(self) -> None:
        """Kill the process and return once it is gone."""
        self.kill()
        if not self._connected:
            self._socket.close()
        done, _ = await asyncio.wait({self.exited}, timeout=REAP_S)
        if not done:
            log.warning("process %s of %s was killed and is not gone yet", self._leader.pid, self._entrance)
        if self._connected:
            with suppress(ConnectionError):
                await self._writer.wait_closed()

    def is_gone(self) -> bool:
        """Say whether the process has ended by itself."""
        return self._leader.is_gone()
