"""A2A between hubs and the SDK: its client asks our server, and ours its server."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import httpx
import pytest
from a2a.client import AuthInterceptor, Client, ClientConfig, ClientFactory, CredentialService
from a2a.client.client import ClientCallContext
from a2a.types import a2a_pb2 as pb
from a2a.utils.errors import (
    ContentTypeNotSupportedError,
    InvalidParamsError,
    TaskNotCancelableError,
    TaskNotFoundError,
    UnsupportedOperationError,
)
from google.protobuf.json_format import MessageToDict, ParseDict
from google.protobuf.struct_pb2 import Struct

from a2a_peers import delegated
from a2a_sdk_server import sdk_agent
from a2a_serving import speaking
from remit import Answer, Artifact, Brief, Code, Hub, Kind, Progress, Request, Status
from remit.protocol.envelope import Json
from remit.protocol.records import Delta
from remit_server import connect_a2a
from remit_server.a2a.grpc_server import GrpcListener
from remit_server.dialects.a2a.errors import EXTENSION
from remit_server.server import Server
from remit_testing import MemoryStore
from waiting import PATIENCE_S

every = pytest.mark.parametrize("binding", ["JSONRPC", "HTTP+JSON", "GRPC"])
ways = pytest.mark.parametrize("streaming", [False, True], ids=["at once", "streamed"])


def served(hub: Hub) -> AbstractAsyncContextManager[Server]:
    return speaking(hub, grpc=GrpcListener())


@asynccontextmanager
async def asking(server: Server, agent: str, binding: str, *, streaming: bool = False) -> AsyncGenerator[Client]:
    async with httpx.AsyncClient(timeout=PATIENCE_S) as http:
        config = ClientConfig(
            httpx_client=http,
            streaming=streaming,
            supported_protocol_bindings=[binding],
            grpc_channel_factory=grpc.aio.insecure_channel,
        )
        token = AuthInterceptor(Anna())
        url = f"{server.address}/a2a/{agent}"
        async with await ClientFactory(config).create_from_url(url, interceptors=[token]) as client:
            yield client


class Anna(CredentialService):
    """Knows the token of a client."""

    async def get_credentials(self, security_scheme_name: str, context: ClientCallContext | None) -> str:
        return "anna-app"


def said(*parts: pb.Part, id: str = "", task: str = "", metadata: Any = None) -> pb.SendMessageRequest:
    message = pb.Message(message_id=id or str(len(_said)), role=pb.ROLE_USER, parts=list(parts), task_id=task)
    if metadata is not None:
        message.metadata.CopyFrom(ParseDict(metadata, Struct()))
    _said.append(message)
    return pb.SendMessageRequest(message=message)


_said: list[pb.Message] = []


def text(value: str) -> pb.Part:
    return pb.Part(text=value)


def state(event: pb.StreamResponse) -> str:
    status = event.status_update.status if event.HasField("status_update") else event.task.status
    return pb.TaskState.Name(status.state).removeprefix("TASK_STATE_")


def results(events: list[pb.StreamResponse]) -> list[pb.Artifact]:
    """Return the artifacts of a task, however they came."""
    found: dict[str, pb.Artifact] = {}
    for event in events:
        for each in event.task.artifacts:
            found[each.artifact_id] = each
        if event.HasField("artifact_update"):
            update = event.artifact_update
            if update.append:
                found[update.artifact.artifact_id].parts.extend(update.artifact.parts)
            else:
                found[update.artifact.artifact_id] = update.artifact
    return list(found.values())


@pytest.fixture
def hub() -> Hub:
    return Hub(store=MemoryStore())


@every
@ways
async def test_an_agent_answers(hub: Hub, binding: str, streaming: bool) -> None:
    @hub.agent("echo")
    async def echo(brief: Brief) -> Answer:
        brief.progress("at it")
        return Answer(f"{brief.user}: {brief.text}", artifacts=(Artifact(type="json", value={"n": 1}, label="data"),))

    assert echo
    async with served(hub) as server, asking(server, "echo", binding, streaming=streaming) as client:
        events = [event async for event in client.send_message(said(text("hello")))]
        task = await client.get_task(pb.GetTaskRequest(id=events[0].task.id))
        listed = await client.list_tasks(pb.ListTasksRequest(page_size=5))
    assert (state(events[0]), state(events[-1])) == ("SUBMITTED" if streaming else "COMPLETED", "COMPLETED")
    assert [each.name for each in results(events)] == ["result", "data"]
    assert results(events)[0].parts[0].text == "anna: hello"
    assert task.artifacts[0].parts[0].text == "anna: hello"
    assert task.history[0].parts[0].text == "hello"
    assert ([each.id for each in listed.tasks], listed.total_size) == ([task.id], 1)


@every
@ways
async def test_a_question_is_answered_in_the_same_task(hub: Hub, binding: str, streaming: bool) -> None:
    @hub.agent("clerk")
    async def clerk(brief: Brief) -> Answer:
        heard = [each.text for each in await brief.history()]
        return Answer(f"{heard[0]} {brief.text}") if heard else Answer("Which month?", requires_followup=True)

    assert clerk
    async with served(hub) as server, asking(server, "clerk", binding, streaming=streaming) as client:
        first = [event async for event in client.send_message(said(text("Sort")))]
        task = first[0].task.id
        second = [event async for event in client.send_message(said(text("May"), task=task))]
    assert (state(first[-1]), state(second[-1])) == ("INPUT_REQUIRED", "COMPLETED")
    assert (second[0].task.id, second[0].task.context_id) == (task, first[0].task.context_id)
    assert results(second)[0].parts[0].text == "Sort May"


@every
async def test_numbers_and_the_remit_survive_protobuf(hub: Hub, binding: str) -> None:
    """Metadata is a protobuf Struct, in which every number is a fraction."""
    seen: list[Request] = []

    @hub.agent("adder")
    async def add(brief: Brief) -> dict[str, int]:
        seen.append(brief.request)
        brief.spend(prompt=70, completion=30)
        return {"sum": sum(brief.input["n"])}

    assert add
    words = {"tokens": 500, "timeMs": "4000", "depth": 1, "tools": ["calc"]}
    asked = said(pb.Part(data=ParseDict({"n": [1, 2]}, pb.Part().data.__class__())), metadata={EXTENSION: words})
    context = ClientCallContext(service_parameters={"A2A-Extensions": EXTENSION})
    async with served(hub) as server, asking(server, "adder", binding) as client:
        (event,) = [event async for event in client.send_message(asked, context=context)]
    request = seen[0]
    assert (request.input, type(request.input["n"][0])) == ({"n": [1, 2]}, int)
    assert (request.remit.tokens, request.remit.depth, request.remit.tools) == (500, 1, frozenset({"calc"}))
    (artifact,) = results([event])
    assert MessageToDict(artifact.parts[0].data) == {"sum": 3.0}
    usage = MessageToDict(artifact.metadata)[EXTENSION]["usage"]
    assert (usage["prompt"], usage["completion"]) == ("70", "30")


@every
async def test_a_task_is_subscribed_to_and_cancelled(hub: Hub, binding: str) -> None:
    began, cancelled = asyncio.Event(), asyncio.Event()

    @hub.agent("sleeper")
    async def sleep(_: Brief) -> str:
        began.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.set()
            raise
        return "never"

    assert sleep
    async with served(hub) as server, asking(server, "sleeper", binding, streaming=True) as client:
        sent = client.send_message(said(text("sleep")))
        task = (await anext(sent)).task.id
        await asyncio.wait_for(began.wait(), PATIENCE_S)
        heard: list[pb.StreamResponse] = []
        first = asyncio.Event()

        async def listen() -> None:
            async for event in client.subscribe(pb.SubscribeToTaskRequest(id=task)):
                heard.append(event)
                first.set()

        async with asyncio.TaskGroup() as group:
            group.create_task(listen())
            await asyncio.wait_for(first.wait(), PATIENCE_S)
            ended = await client.cancel_task(pb.CancelTaskRequest(id=task))
        with pytest.raises(TaskNotCancelableError):
            await client.cancel_task(pb.CancelTaskRequest(id=task))
        with pytest.raises(UnsupportedOperationError):
            _ = [event async for event in client.subscribe(pb.SubscribeToTaskRequest(id=task))]
    assert pb.TaskState.Name(ended.status.state) == "TASK_STATE_CANCELED"
    assert (state(heard[0]), state(heard[-1]), cancelled.is_set()) == ("WORKING", "CANCELED", True)


@every
async def test_errors_are_those_that_the_sdk_knows(hub: Hub, binding: str) -> None:
    @hub.agent("echo")
    async def echo(brief: Brief) -> str:
        return brief.text

    assert echo
    async with served(hub) as server, asking(server, "echo", binding) as client:
        with pytest.raises(TaskNotFoundError, match="the task `never` does not exist, or you may not see it"):
            await client.get_task(pb.GetTaskRequest(id="never"))
        asked = said(text("x"))
        asked.configuration.accepted_output_modes.append("image/png")
        with pytest.raises(ContentTypeNotSupportedError):
            _ = [event async for event in client.send_message(asked)]
        with pytest.raises(InvalidParamsError):
            _ = [event async for event in client.send_message(said())]


@every
async def test_notifications_are_configured(hub: Hub, binding: str) -> None:
    go_on = asyncio.Event()

    @hub.agent("worker")
    async def work(_: Brief) -> str:
        await go_on.wait()
        return "ok"

    assert work
    async with served(hub) as server, asking(server, "worker", binding) as client:
        request = said(text("go"))
        request.configuration.return_immediately = True
        (event,) = [event async for event in client.send_message(request)]
        config = pb.TaskPushNotificationConfig(task_id=event.task.id, url="http://127.0.0.1:1/", token="t")
        made = await client.create_task_push_notification_config(config)
        one = pb.GetTaskPushNotificationConfigRequest(task_id=event.task.id, id=made.id)
        assert (await client.get_task_push_notification_config(one)).url == config.url
        every = pb.ListTaskPushNotificationConfigsRequest(task_id=event.task.id)
        assert [each.id for each in (await client.list_task_push_notification_configs(every)).configs] == [made.id]
        gone = pb.DeleteTaskPushNotificationConfigRequest(task_id=event.task.id, id=made.id)
        await client.delete_task_push_notification_config(gone)
        assert not (await client.list_task_push_notification_configs(every)).configs
        go_on.set()


@every
@ways
async def test_files_reach_the_agent_and_come_back(hub: Hub, binding: str, streaming: bool) -> None:
    @hub.agent("keeper")
    async def keep(brief: Brief) -> Answer:
        return Answer("kept", files=brief.files)

    assert keep
    sent = pb.Part(raw=b"\x89PNG", media_type="image/png", filename="a.png")
    link = pb.Part(url="https://example.org/b.pdf", media_type="application/pdf", filename="b.pdf")
    async with served(hub) as server, asking(server, "keeper", binding, streaming=streaming) as client:
        events = [event async for event in client.send_message(said(text("Keep"), sent, link))]
    updates = [event.artifact_update.artifact for event in events if event.HasField("artifact_update")]
    artifacts = updates or list(events[-1].task.artifacts)
    assert [list(each.parts) for each in artifacts] == [
        [pb.Part(text="kept", media_type="text/plain")],
        [sent],
        [link],
    ]


ways_of_the_sdk = pytest.mark.parametrize("streaming", [True, False], ids=["streamed", "polled"])


@every
@ways_of_the_sdk
async def test_the_sdks_agent_answers(binding: str, streaming: bool) -> None:
    async with sdk_agent(binding, streaming=streaming) as (url, executor):
        (response,) = await delegated(url, "Sort them")
    assert (response.status, response.result) == (Status.SUCCESS, "Sort them and done")
    assert response.usage.estimated
    assert len(executor.messages) == 1
    assert "anna" not in str(executor.messages)


@every
@ways_of_the_sdk
async def test_a_question_of_the_sdk_is_answered_in_the_same_task(binding: str, streaming: bool) -> None:
    async with sdk_agent(binding, streaming=streaming) as (url, executor):
        question, answer = await delegated(url, "ask me", "May")
    assert (question.result, question.requires_followup) == ("Which month?", True)
    assert answer.result == "May and done"
    assert executor.messages[1].task_id == executor.messages[0].task_id
    assert executor.messages[1].context_id == executor.messages[0].context_id


async def test_a_conversation_goes_on_after_a_restart(tmp_path: Path) -> None:
    """What a user answers in another process reaches the task that asked, and what follows its context."""
    said: list[Json] = []
    async with sdk_agent("JSONRPC") as (url, executor):
        for text in ("ask me", "May", "And June"):
            hub = Hub(name="near", store=tmp_path / "hub.db", durability="process")
            connect_a2a(hub, "sdk", url)
            async with hub, asyncio.timeout(PATIENCE_S):
                response = await hub.ask("sdk", text, user="anna", session="months")
                said.append(response.unwrap())
    assert said[:2] == ["Which month?", "May and done"]
    assert str(said[2]).endswith("And June and done")
    first, answer, later = executor.messages
    assert (answer.task_id, answer.context_id) == (first.task_id, first.context_id)
    assert later.task_id != first.task_id
    assert later.context_id == first.context_id


@every
@ways_of_the_sdk
@pytest.mark.parametrize(("text", "result"), [("say hello", "hello"), ("tell 42 apples", "42 apples")])
async def test_a_message_instead_of_a_task_or_in_its_status_is_an_answer(
    binding: str, streaming: bool, text: str, result: str
) -> None:
    async with sdk_agent(binding, streaming=streaming) as (url, _):
        (response,) = await delegated(url, text)
    assert (response.status, response.result, response.summary) == (Status.SUCCESS, result, "")


@every
@ways_of_the_sdk
async def test_a_failure_there_is_a_failure_here(binding: str, streaming: bool) -> None:
    async with sdk_agent(binding, streaming=streaming) as (url, _):
        (response,) = await delegated(url, "fail now")
    assert not response.ok
    assert response.fault is not None


@every
@ways_of_the_sdk
async def test_the_deadline_is_kept_here_and_the_work_there_is_cancelled(binding: str, streaming: bool) -> None:
    """X6: the SDK knows no deadline; ours stops the work there all the same."""
    async with sdk_agent(binding, streaming=streaming) as (url, executor):
        (response,) = await delegated(url, "sleep well", deadline_ms=600)
        async with asyncio.timeout(PATIENCE_S):
            await executor.cancelled.wait()
    assert response.fault is not None
    assert (response.status, response.fault.code) == (Status.TIMEOUT, Code.TIMEOUT)


@every
async def test_whoever_watches_hears_how_far_it_is_and_what_is_said(binding: str) -> None:
    hub = Hub(name="near", store=MemoryStore())
    async with sdk_agent(binding) as (url, _):
        connect_a2a(hub, "sdk", url)

        async def boss(brief: Brief) -> str:
            return (await brief.delegate("sdk", objective="Sort them")).unwrap()

        hub.add("boss", boss, may_call=["sdk"])
        async with hub, asyncio.timeout(PATIENCE_S):
            records = [record async for record in hub.stream("boss", "Go", user="anna")]
    assert [each.body.text for each in records if isinstance(each.body, Progress)] == ["thinking"]
    said = "".join(each.body.text for each in records if isinstance(each.body, Delta))
    assert said == "Sort them and done"
    assert records[-1].kind is Kind.RESULT
