"""An agent for the chains of A2A's integration test kit, made of a hub.

It decodes the instruction in the file of a message, and calls the next agent of the chain through the hub.
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any

from itk_instructions import FILE, FINISHED, MEDIA_TYPE, Instruction, holds
from remit import Answer, Brief, File, Hub, Limits, Progress, Rate
from remit.ports import Store
from remit.runtime.clock import LoopClock
from remit_server import Exposure, PublicAccess, connect_a2a
from remit_server.a2a.grpc_server import GrpcListener
from remit_server.app import Api
from remit_server.bodies import Receive, Scope, Send
from remit_server.dialects.a2a.types import Binding
from remit_server.server import Server
from remit_server.transports.addresses import OutboundHosts, listening
from remit_server.transports.credentials.incoming import Authenticator

NAME = "itk"
# The kit sends its first message to this path of every agent, whatever the agent's card says.
KIT_PATH = b"/jsonrpc"
BINDINGS: dict[str, Binding] = {"jsonrpc": "JSONRPC", "http_json": "HTTP+JSON", "grpc": "GRPC"}
# The kit's own agents hold a task for ten seconds.
HOLD_S = 10
# A circuit of three agents has six calls, and each may hold its task.
CALL_MS = 100_000
LIMITS = Limits(max_depth=32, max_chain=64, root_time_ms=2 * CALL_MS)


class ChainAgent:
    """Carries out instructions; agents that it is to call are added to the hub as they come."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self._names: dict[tuple[object, ...], str] = {}

    async def act(self, brief: Brief) -> Answer:
        """Return the texts of all steps, as the message of the task's last status."""
        (file,) = brief.files
        instruction = Instruction.FromString(file.data or b"")
        text = "\n".join(await self._texts(brief, instruction))
        if holds(instruction):
            brief.progress(f"{text}\n{FINISHED}")
            await asyncio.sleep(HOLD_S)  # until it is cancelled
        return Answer(None, summary=text)

    async def _texts(self, brief: Brief, instruction: Any) -> list[str]:
        if instruction.HasField("return_response"):
            return [instruction.return_response.response]
        if instruction.HasField("steps"):
            return [text for step in instruction.steps.instructions for text in await self._texts(brief, step)]
        call = instruction.call_agent
        if call.HasField("resubscribe"):
            return [await self._until_finished(brief, call)]
        response = await brief.delegate(self._agent(call), files=_files(call), deadline_ms=CALL_MS)
        # An agent of another maker has its text in the message of the status; a hub says that it is no result.
        return [str(response.unwrap() or response.summary)]

    async def _until_finished(self, brief: Brief, call: Any) -> str:
        """Call an agent that holds its task, and cancel the task once it has said everything.

        The call is a run of its own: in this one, the agent's reports would reach our client as ours.
        """
        name, files = self._agent(call), _files(call)
        async with aclosing(self._hub.stream(name, user=brief.user, files=files, deadline_ms=CALL_MS)) as records:
            async for record in records:
                if isinstance(record.body, Progress) and FINISHED in record.body.text:
                    return record.body.text.replace(FINISHED, "").strip()
        raise AssertionError(f"{call.agent_card_uri} did not say that it finished")

    def _agent(self, call: Any) -> str:
        """Return the name of an agent in the hub, which gets to know it first if need be."""
        notify = call.push_notification.url
        key = (call.agent_card_uri, call.transport, call.streaming, notify)
        if key not in self._names:
            name = f"next-{len(self._names)}"
            connect_a2a(
                self._hub,
                name,
                call.agent_card_uri,
                binding=BINDINGS[call.transport],
                streaming=call.streaming,
                notify=f"{notify}/notifications" if notify else None,
                notify_token="itk-token",
                concurrency=100,
            )
            self._names[key] = name
        return self._names[key]


def _files(call: Any) -> list[File]:
    return [File(name=FILE, media_type=MEDIA_TYPE, data=call.instruction.SerializeToString())]


class KitApi(Api):
    """A hub's server that answers at the kit's path, too."""

    async def app(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["raw_path"].rstrip(b"/") == KIT_PATH:
            scope = {**scope, "raw_path": f"/a2a/{NAME}".encode()}
        await super().app(scope, receive, send)


@asynccontextmanager
async def itk_agent(
    store: Store | Path, *, name: str = "itk", port: int = 0, grpc_port: int = 0
) -> AsyncGenerator[str]:
    """Serve an agent to everybody, in all three bindings, and yield its address."""
    hub = Hub(name=name, store=store, limits=LIMITS)
    act = ChainAgent(hub).act
    hub.add(NAME, act, description="Carries out instructions.", may_call=["*"], concurrency=100, recursive=True)
    exposure = Exposure(
        agents=lambda: {NAME},
        default=NAME,
        public=PublicAccess(agents=(NAME,), rate=Rate(100_000, 60), open=100),
        grpc=GrpcListener(port=grpc_port),
        reach=OutboundHosts(hosts=frozenset({"127.0.0.1"})),  # the kit is notified on this machine
    )
    gate = Authenticator([], wall_ms=LoopClock().wall_ms)
    with listening("127.0.0.1", port) as bound:
        async with hub, Server(KitApi(hub, gate, a2a=exposure), bound=bound, drain_s=2) as server:
            yield server.address
