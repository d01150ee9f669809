"""An agent on a2a-sdk's own server, in the test's own event loop."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import grpc
import grpc.aio
import uvicorn
from a2a.server.agent_execution import AgentExecutor, RequestContext
from a2a.server.events import EventQueue
from a2a.server.request_handlers import DefaultRequestHandler
from a2a.server.request_handlers.grpc_handler import GrpcHandler
from a2a.server.routes import create_agent_card_routes, create_jsonrpc_routes, create_rest_routes
from a2a.server.tasks import InMemoryTaskStore, TaskUpdater
from a2a.types import a2a_pb2 as pb
from a2a.types import a2a_pb2_grpc
from starlette.applications import Starlette

from waiting import eventually


class Executor(AgentExecutor):
    """Does what the first word of the message says."""

    def __init__(self) -> None:
        self.messages: list[pb.Message] = []
        self.began, self.cancelled = asyncio.Event(), asyncio.Event()

    async def execute(self, context: RequestContext, event_queue: EventQueue) -> None:
        assert context.message is not None
        assert context.task_id is not None
        assert context.context_id is not None
        self.messages.append(context.message)
        text = context.get_user_input()
        word, _, rest = text.partition(" ")
        if word == "say":
            parts = [pb.Part(text=rest)]
            await event_queue.enqueue_event(pb.Message(message_id="m", role=pb.ROLE_AGENT, parts=parts))
            return
        updater = TaskUpdater(event_queue, context.task_id, context.context_id)
        if context.current_task is None:
            status = pb.TaskStatus(state=pb.TASK_STATE_SUBMITTED)
            await event_queue.enqueue_event(
                pb.Task(id=context.task_id, context_id=context.context_id, status=status, history=[context.message])
            )
        await updater.start_work(updater.new_agent_message([pb.Part(text="thinking")]))
        match word:
            case "ask":
                await updater.requires_input(updater.new_agent_message([pb.Part(text="Which month?")]))
            case "sleep":
                self.began.set()
                try:
                    await asyncio.Event().wait()
                except asyncio.CancelledError:
                    self.cancelled.set()
                    raise
            case "tell":
                await updater.complete(updater.new_agent_message([pb.Part(text=rest)]))
            case "fail":
                raise RuntimeError("it broke")
            case _:
                for number, piece in enumerate((f"{text}", " and", " done")):
                    await updater.add_artifact(
                        [pb.Part(text=piece)], artifact_id="a", append=number > 0, last_chunk=number == 2
                    )
                await updater.complete()

    async def cancel(self, context: RequestContext, event_queue: EventQueue) -> None:
        assert context.task_id is not None
        assert context.context_id is not None
        await TaskUpdater(event_queue, context.task_id, context.context_id).cancel()


@asynccontextmanager
async def sdk_agent(binding: str, *, streaming: bool = True) -> AsyncGenerator[tuple[str, Executor]]:
    """Serve an agent in one binding, and yield its address and what it was asked."""
    executor = Executor()
    async with sdk_served(executor, binding, streaming=streaming) as url:
        yield url, executor


@asynccontextmanager
async def sdk_served(executor: AgentExecutor, *bindings: str, streaming: bool = True) -> AsyncGenerator[str]:
    """Serve an agent in some bindings, and yield its address."""
    card = pb.AgentCard(
        name="sdk",
        description="An agent of the SDK.",
        version="1",
        capabilities=pb.AgentCapabilities(streaming=streaming),
        default_input_modes=["text/plain"],
        default_output_modes=["text/plain"],
        skills=[pb.AgentSkill(id="s", name="s", description="s", tags=["s"])],
    )
    handler = DefaultRequestHandler(executor, InMemoryTaskStore(), card)
    routes: list[Any] = [
        *create_agent_card_routes(card),
        *create_jsonrpc_routes(handler, "/rpc"),
        *create_rest_routes(handler, path_prefix="/rest"),
    ]
    config = uvicorn.Config(
        Starlette(routes=routes), port=0, log_config=None, lifespan="off", timeout_graceful_shutdown=1
    )
    server = uvicorn.Server(config)
    serving = asyncio.create_task(server._serve(None))  # pyright: ignore[reportPrivateUsage]
    await eventually(lambda: server.started)
    host, port = server.servers[0].sockets[0].getsockname()
    url = f"http://{host}:{port}"
    rpc = grpc.aio.server()
    a2a_pb2_grpc.add_A2AServiceServicer_to_server(GrpcHandler(handler), rpc)  # pyright: ignore[reportUnknownMemberType]
    target = f"127.0.0.1:{rpc.add_insecure_port('127.0.0.1:0')}"
    await rpc.start()
    at = {"JSONRPC": f"{url}/rpc", "HTTP+JSON": f"{url}/rest", "GRPC": target}
    for each in bindings:
        card.supported_interfaces.append(pb.AgentInterface(url=at[each], protocol_binding=each, protocol_version="1.0"))
    try:
        yield url
    finally:
        await rpc.stop(0)
        server.should_exit = True
        await serving
