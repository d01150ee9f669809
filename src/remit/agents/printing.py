"""What an agent prints in its process, line by line on the hub's stderr, as text that no terminal acts on."""

import asyncio
import os
import sys
from contextlib import suppress

from remit.text.plain import several_lines

# A line that is longer is shown in parts.
MAX_LINE = 64 * 1024
# What a killed process printed last is in the pipe already.
LAST_WORDS_S = 1.0


class Printing(asyncio.Protocol):
    """The hub's end of the pipe into which a process prints. It is nobody's terminal and no log file of the hub's."""

    def __init__(self, descriptor: int) -> None:
        self._pipe = os.fdopen(descriptor, "rb", buffering=0)
        self._transport: asyncio.BaseTransport | None = None
        self._ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._rest = b""

    async def open(self) -> None:
        """Begin to read."""
        await asyncio.get_running_loop().connect_read_pipe(lambda: self, self._pipe)

    async def close(self) -> None:
        """Return once all that was printed is shown, or it takes too long."""
        if self._transport is None:
            self._pipe.close()
            return
        await asyncio.wait({self._ended}, timeout=LAST_WORDS_S)
        self._transport.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        *lines, self._rest = (self._rest + data).split(b"\n")
        if len(self._rest) > MAX_LINE:
            lines, self._rest = [*lines, self._rest], b""
        self._show(lines)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio's
        if self._rest:
            self._show([self._rest])
        if not self._ended.done():
            self._ended.set_result(None)

    def _show(self, lines: list[bytes]) -> None:
        shown = "".join(several_lines(each.decode("utf-8", "replace")) + "\n" for each in lines)
        # No stderr, or one that is closed: what is printed goes nowhere.
        with suppress(OSError, ValueError, AttributeError):
            sys.stderr.write(shown)
            sys.stderr.flush()
