"""MCP over stdin and stdout: one host, which started this process and ends it."""

import asyncio
import logging
import os
import threading
from collections.abc import Callable
from contextlib import suppress

import anyio
import mcp_types as types
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.shared.message import SessionMessage
from pydantic import ValidationError

from remit.agents.piped_process import LineSplitter, OverlongLine
from remit.agents.threads import Threads
from remit.hub.hub import Hub
from remit.policy.reception import Sender
from remit.ports import SingleUseProof
from remit.protocol.envelope import Request
from remit.protocol.remit import Grant
from remit.protocol.submission import Submission
from remit_server.bodies import Headers
from remit_server.delegations import Delegations
from remit_server.mcp.host_delegations import Caller, HostDelegations, McpOffer
from remit_server.mcp.server import McpToolServer

log = logging.getLogger("remit")

# A call is an envelope with a few fields around it, and envelopes are at most 1 MB.
MAX_LINE = 4_000_000
AHEAD = 64

Write = Callable[[str], None]


class _LocalUserGate:
    """Authentication for a hub whose only client started it: no proof is needed."""

    def __init__(self, sender: Sender) -> None:
        self._sender = sender

    async def sender(self, headers: Headers, method: str, path: str, *, submits: bool = False) -> Sender:  # noqa: ARG002
        return self._sender

    def once(self, headers: Headers) -> SingleUseProof | None:  # noqa: ARG002 - the shape of every gate
        return None

    def reply_pair(self, headers: Headers) -> None:
        """Return None: nobody else reads what is answered here."""

    async def grant(self, headers: Headers, sender: Sender, sent: Submission) -> Grant | None:  # noqa: ARG002
        return None

    async def received(self, request: Request) -> Request:
        return request

    async def ended(self, run: str, used: int, cost: int) -> None:
        """Count nothing: there is no credential."""


async def serve(
    hub: Hub,
    user: str,
    name: str,
    exposed: Callable[[], frozenset[str]],
    stdin: int,
    write: Write,
    offer: McpOffer | None = None,
) -> None:
    """Serve a hub's tools over stdin and stdout, for one user, until the host closes *stdin*."""
    sender = Sender(name="mcp", users=frozenset({user}), may_approve=True)
    caller = Caller(sender=sender, user=user)
    delegations = HostDelegations(Delegations(hub, _LocalUserGate(sender), exposed))
    tools = McpToolServer(name, delegations, lambda _: caller, offer)
    into, read = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    written, out = anyio.create_memory_object_stream[SessionMessage](0)
    async with asyncio.TaskGroup() as group:
        reading = group.create_task(_pass_on(stdin, into))
        group.create_task(_write(out, write, reading))
        try:
            await tools.server.run(read, written, tools.server.create_initialization_options())
        finally:
            await tools.close()
        reading.cancel()


async def _pass_on(stdin: int, into: MemoryObjectSendStream[SessionMessage | Exception]) -> None:
    """Pass on the host's messages, line by line."""
    queue: asyncio.Queue[bytes | None] = asyncio.Queue(AHEAD)
    loop = asyncio.get_running_loop()
    # A daemon thread: a read of stdin cannot be cancelled, and must not keep the process alive.
    threading.Thread(target=_listen, args=(stdin, queue, loop), name="remit-stdin", daemon=True).start()
    async with into:
        while (line := await queue.get()) is not None:
            try:
                message = types.jsonrpc_message_adapter.validate_json(line, by_name=False)
            except ValidationError:
                log.warning("ignored an invalid JSON-RPC message from the host")
                continue
            try:
                await into.send(SessionMessage(message))
            except anyio.BrokenResourceError:
                return


def _listen(stdin: int, queue: "asyncio.Queue[bytes | None]", loop: asyncio.AbstractEventLoop) -> None:
    def put(line: bytes | None) -> None:
        asyncio.run_coroutine_threadsafe(queue.put(line), loop).result()

    lines = LineSplitter(MAX_LINE)
    with suppress(OSError, RuntimeError):  # stdin or the loop is closed: nobody listens any more
        while chunk := os.read(stdin, 65_536):
            for line in lines.feed(chunk):
                if isinstance(line, OverlongLine):
                    log.warning("ignored a line of more than %d bytes from the host", MAX_LINE)
                else:
                    put(line)
    with suppress(RuntimeError):
        put(None)


async def _write(out: MemoryObjectReceiveStream[SessionMessage], write: Write, reading: "asyncio.Task[None]") -> None:
    """Write messages, one per line; in a thread, because a host may read slowly."""
    threads = Threads("stdout", 1)
    async with out:
        async for message in out:
            line = message.message.model_dump_json(by_alias=True, exclude_unset=True)
            try:
                await threads.run(write, f"{line}\n")
            except (BrokenPipeError, ValueError):  # the host is gone
                reading.cancel()
                return
