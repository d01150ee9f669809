"""An agent for the chains of A2A's integration test kit, made with a2a-sdk: its server, and its client."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager
from typing import Any
from uuid import uuid4

import grpc.aio
import httpx
from a2a.client import Client, ClientConfig, ClientFactory
from a2a.server.agent_execution import AgentExecutor, RequestContext
from a2a.server.events import EventQueue
from a2a.server.tasks import TaskUpdater
from a2a.types import a2a_pb2 as pb

from a2a_sdk_server import sdk_served
from itk_agent import BINDINGS
from itk_instructions import FILE, FINISHED, MEDIA_TYPE, Instruction, holds
from waiting import PATIENCE_S


class SdkChainAgent(AgentExecutor):
    """Carries out instructions."""

    async def execute(self, context: RequestContext, event_queue: EventQueue) -> None:
        assert context.message is not None
        assert context.task_id is not None
        assert context.context_id is not None
        updater = TaskUpdater(event_queue, context.task_id, context.context_id)
        status = pb.TaskStatus(state=pb.TASK_STATE_SUBMITTED)
        await event_queue.enqueue_event(
            pb.Task(id=context.task_id, context_id=context.context_id, status=status, history=[context.message])
        )
        instruction = Instruction.FromString(context.message.parts[0].raw)
        text = "\n".join(await _texts(instruction))
        if holds(instruction):
            await updater.start_work(updater.new_agent_message([pb.Part(text=f"{text}\n{FINISHED}")]))
            await asyncio.Event().wait()  # until it is cancelled
        await updater.complete(updater.new_agent_message([pb.Part(text=text)]))

    async def cancel(self, context: RequestContext, event_queue: EventQueue) -> None:
        assert context.task_id is not None
        assert context.context_id is not None
        await TaskUpdater(event_queue, context.task_id, context.context_id).cancel()


def itk_sdk_agent() -> AbstractAsyncContextManager[str]:
    """Serve an agent in all three bindings; the block is given its address."""
    return sdk_served(SdkChainAgent(), *BINDINGS.values())


async def _texts(instruction: Any) -> list[str]:
    if instruction.HasField("return_response"):
        return [instruction.return_response.response]
    if instruction.HasField("steps"):
        return [text for step in instruction.steps.instructions for text in await _texts(step)]
    call = instruction.call_agent
    part = pb.Part(raw=call.instruction.SerializeToString(), media_type=MEDIA_TYPE, filename=FILE)
    message = pb.Message(message_id=str(uuid4()), role=pb.ROLE_USER, parts=[part])
    async with _client(call) as client:
        events = client.send_message(pb.SendMessageRequest(message=message))
        if call.HasField("resubscribe"):
            return [await _resubscribed(client, events)]
        return [text for text in [_spoken(event) async for event in events] if text]


@asynccontextmanager
async def _client(call: Any) -> AsyncGenerator[Client]:
    async with httpx.AsyncClient(timeout=PATIENCE_S) as http:
        config = ClientConfig(
            httpx_client=http,
            streaming=call.streaming,
            supported_protocol_bindings=[BINDINGS[call.transport]],
            grpc_channel_factory=grpc.aio.insecure_channel,
        )
        async with await ClientFactory(config).create_from_url(call.agent_card_uri) as client:
            yield client


async def _resubscribed(client: Client, events: Any) -> str:
    """Leave a stream after its first event, subscribe to the task, and cancel it once it has said everything."""
    async with aclosing(events):
        id = (await anext(events)).task.id
    again: Any = client.subscribe(pb.SubscribeToTaskRequest(id=id))
    async with aclosing(again):
        last_text = await anext(text async for text in _texts_in(again) if FINISHED in text)
    await client.cancel_task(pb.CancelTaskRequest(id=id))
    return last_text.replace(FINISHED, "").strip()


async def _texts_in(events: Any) -> AsyncGenerator[str]:
    async for event in events:
        yield _spoken(event)


def _spoken(event: Any) -> str:
    """Return the text of the status in an event."""
    status = event.status_update.status if event.HasField("status_update") else event.task.status
    return "".join(part.text for part in status.message.parts)
