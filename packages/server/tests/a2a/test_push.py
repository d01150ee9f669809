"""Notifications: kept until they are deleted, sent only to where they may be, and told by whoever is there."""

import asyncio
import contextlib
import re
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from a2a.types import a2a_pb2 as pb
from google.protobuf.json_format import Parse

from a2a_serving import BINDINGS, Caller, Wrong, client_of, message, speaking
from remit import Answer, Brief, Hub
from remit_server import connect_a2a
from remit_server.a2a import push as pushing
from remit_server.a2a.grpc_server import GrpcListener
from remit_server.a2a.push import Push
from remit_server.dialects.a2a.responses import TaskPresentation
from remit_server.dialects.a2a.types import Binding, PushConfig
from remit_server.transports.addresses import PUBLIC, OutboundHosts
from remit_testing import MemoryStore
from waiting import PATIENCE_S

both = pytest.mark.parametrize("binding", BINDINGS)


class Hook:
    """A receiver of notifications that answers as a test says."""

    def __init__(self, *statuses: int) -> None:
        self._statuses = list(statuses)
        self.heard: asyncio.Queue[tuple[dict[str, str], Any]] = asyncio.Queue()
        self.tried = 0

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                length = re.search(r"content-length: (\d+)", head, re.IGNORECASE)
                assert length is not None
                body = await reader.readexactly(int(length[1]))
                self.tried += 1
                status = self._statuses.pop(0) if self._statuses else 200
                writer.write(
                    f"HTTP/1.1 {status} X\r\nlocation: http://127.0.0.1:1/\r\ncontent-length: 0\r\n\r\n".encode()
                )
                await writer.drain()
                if status == 200:
                    headers = dict(line.lower().split(": ", 1) for line in head.splitlines()[1:] if line)
                    sent = Parse(body, pb.StreamResponse())
                    self.heard.put_nowait((headers, sent))
        writer.close()

    async def next(self) -> tuple[dict[str, str], Any]:
        async with asyncio.timeout(PATIENCE_S):
            return await self.heard.get()

    async def ended(self) -> list[Any]:
        """Return what was told, until the task has ended."""
        told: list[Any] = []
        while True:
            _, said = await self.next()
            told.append(said)
            status = said.status_update.status.state or said.task.status.state
            if status in (pb.TASK_STATE_COMPLETED, pb.TASK_STATE_CANCELED, pb.TASK_STATE_FAILED):
                return told

    @asynccontextmanager
    async def listening(self) -> AsyncGenerator[str]:
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        try:
            host, port = server.sockets[0].getsockname()
            yield f"http://{host}:{port}/told"
        finally:
            server.close()


@pytest.fixture(autouse=True)
def _in_no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pushing, "PAUSE_S", 0.001)


class Worker:
    def __init__(self, hub: Hub) -> None:
        self.began, self.go_on = asyncio.Event(), asyncio.Event()

        @hub.agent("worker")
        async def work(brief: Brief) -> Answer:
            if await brief.history():
                return Answer("done")
            self.began.set()
            await self.go_on.wait()
            brief.progress("half way")
            return Answer("Which?", requires_followup=True) if brief.text == "ask" else Answer("done")

        assert work


@pytest.fixture
def hub() -> Hub:
    return Hub(store=MemoryStore())


@both
async def test_a_client_is_told_of_its_task_with_what_it_is_known_by(hub: Hub, binding: str) -> None:
    """4.3.3: credentials in the headers, a StreamResponse in the body, at least once."""
    worker, hook = Worker(hub), Hook()
    worker.go_on.set()
    async with hook.listening() as url, speaking(hub) as server, client_of(server) as session:
        config = {
            "url": url,
            "token": "t-1",
            "authentication": {"scheme": "Bearer", "credentials": "secret"},
        }
        task = await Caller(session, "worker", binding).send("go", taskPushNotificationConfig=config)
        headers, _ = await hook.next()
        told = await hook.ended()
    assert headers["authorization"] == "bearer secret"
    assert headers["x-a2a-notification-token"] == "t-1"
    assert headers["content-type"] == "application/a2a+json"
    assert told[-1].status_update.task_id == task["id"]
    assert [each.artifact_update.artifact.parts[0].text for each in told if each.HasField("artifact_update")] == [
        "done"
    ]


@both
async def test_configurations_are_made_read_listed_and_deleted(hub: Hub, binding: str) -> None:
    """3.1.7 to 3.1.10."""
    worker, hook = Worker(hub), Hook()
    async with hook.listening() as url, speaking(hub) as server, client_of(server) as session:
        ask = Caller(session, "worker", binding)
        task = (await ask.send("go", returnImmediately=True))["id"]
        auth = {"scheme": "Bearer", "credentials": "secret"}
        made = await ask("CreateTaskPushNotificationConfig", taskId=task, url=url, token="t", authentication=auth)
        assert made == {"id": made["id"], "taskId": task, "url": url, "token": "t", "authentication": auth}
        own = await ask("CreateTaskPushNotificationConfig", taskId=task, id="mine", url=url)
        assert await ask("GetTaskPushNotificationConfig", taskId=task, id="mine") == own
        found = await ask("GetTaskPushNotificationConfig", taskId=task, id=made["id"])
        assert found == made | {"authentication": {"scheme": "Bearer"}}, "a secret is not shown again"
        listed = await ask("ListTaskPushNotificationConfigs", taskId=task)
        assert [each["id"] for each in listed["configs"]] == [made["id"], "mine"]
        await ask("CreateTaskPushNotificationConfig", taskId=task, id="mine", url=f"{url}/2")
        assert (await ask("GetTaskPushNotificationConfig", taskId=task, id="mine"))["url"] == f"{url}/2"
        for _ in range(2):  # deleting is idempotent
            assert await ask("DeleteTaskPushNotificationConfig", taskId=task, id="mine") == {}
        with pytest.raises(Wrong) as gone:
            await ask("GetTaskPushNotificationConfig", taskId=task, id="mine")
        assert gone.value.reason == "TASK_NOT_FOUND"
        await ask("DeleteTaskPushNotificationConfig", taskId=task, id=made["id"])
        assert (await ask("ListTaskPushNotificationConfigs", taskId=task)).get("configs", []) == []
        worker.go_on.set()
        await ask.until(task, "COMPLETED")
        assert hook.tried == 0, "who took it back is not told"


@both
async def test_a_task_that_has_ended_is_told_of_once(hub: Hub, binding: str) -> None:
    worker, hook = Worker(hub), Hook()
    worker.go_on.set()
    async with hook.listening() as url, speaking(hub) as server, client_of(server) as session:
        ask = Caller(session, "worker", binding)
        task = (await ask.send("go"))["id"]
        await ask("CreateTaskPushNotificationConfig", taskId=task, url=url)
        _, said = await hook.next()
    assert (said.task.id, said.task.status.state) == (task, pb.TASK_STATE_COMPLETED)


@both
async def test_a_task_that_goes_on_after_a_question_is_told_of_again(hub: Hub, binding: str) -> None:
    worker, hook = Worker(hub), Hook()
    worker.go_on.set()
    async with hook.listening() as url, speaking(hub) as server, client_of(server) as session:
        ask = Caller(session, "worker", binding)
        task = await ask.send("ask", taskPushNotificationConfig={"url": url})
        states: list[int] = []
        while pb.TASK_STATE_INPUT_REQUIRED not in states:
            states.append((await hook.next())[1].status_update.status.state)
        await ask.send("this one", taskId=task["id"])
        told = await hook.ended()
    assert told[-1].status_update.task_id == task["id"]


async def test_what_does_not_arrive_is_sent_again_and_a_redirect_is_not_followed(hub: Hub) -> None:
    worker, hook = Worker(hub), Hook(500, 302, 404)
    worker.go_on.set()
    async with hook.listening() as url, speaking(hub) as server, client_of(server) as session:
        await Caller(session, "worker").send("go", taskPushNotificationConfig={"url": url})
        await hook.ended()
    assert hook.tried > 3


@both
@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1:1/",
        "http://localhost/",
        "http://[::1]/",
        "http://[::ffff:10.0.0.1]/",
        "http://169.254.169.254/latest",
        "http://10.1.2.3/",
        "http://0x7f000001/",
        "file:///etc/passwd",
        "https://user:secret@example.com/",
        "nonsense",
    ],
)
async def test_nobody_is_told_at_an_address_within_our_network(hub: Hub, binding: str, url: str) -> None:
    """13.2: SSRF; the message says why, and shows no password."""
    worker = Worker(hub)
    async with speaking(hub, reach=PUBLIC) as server, client_of(server) as session:
        ask = Caller(session, "worker", binding)
        task = (await ask.send("go", returnImmediately=True))["id"]
        for call in (
            ask("CreateTaskPushNotificationConfig", taskId=task, url=url),
            ask.send("go", taskPushNotificationConfig={"url": url}, returnImmediately=True),
        ):
            with pytest.raises(Wrong) as wrong:
                await call
            assert (wrong.value.status, wrong.value.reasons) == (403, {"remit": "PERMISSION_DENIED"})
            assert "secret" not in str(wrong.value)
        assert (await ask("ListTasks"))["totalSize"] == 1, "nothing was begun of which nobody could be told"
        worker.go_on.set()


@both
async def test_where_nobody_is_notified_everything_about_it_is_declined(hub: Hub, binding: str) -> None:
    """3.3.4: PushNotificationNotSupportedError."""
    Worker(hub).go_on.set()
    async with speaking(hub, push=False) as server, client_of(server) as session:
        ask = Caller(session, "worker", binding)
        task = (await ask.send("go", returnImmediately=True))["id"]
        url = "https://example.com"
        for call in (
            ask("CreateTaskPushNotificationConfig", taskId=task, url=url),
            ask("GetTaskPushNotificationConfig", taskId=task, id="x"),
            ask("ListTaskPushNotificationConfigs", taskId=task),
            ask("DeleteTaskPushNotificationConfig", taskId=task, id="x"),
            ask.send("go", taskPushNotificationConfig={"url": url}),
            ask.events("SendStreamingMessage", message=message("x"),
                       configuration={"taskPushNotificationConfig": {"url": url}}),
        ):  # fmt: skip
            with pytest.raises(Wrong) as wrong:
                await call
            assert wrong.value.reason == "PUSH_NOTIFICATION_NOT_SUPPORTED"


async def test_a_task_has_so_many_configurations_and_no_more(hub: Hub) -> None:
    worker, hook = Worker(hub), Hook()
    async with hook.listening() as url, speaking(hub) as server, client_of(server) as session:
        ask = Caller(session, "worker")
        task = (await ask.send("go", returnImmediately=True))["id"]
        for _ in range(pushing.MOST):
            await ask("CreateTaskPushNotificationConfig", taskId=task, url=url)
        with pytest.raises(Wrong) as wrong:
            await ask("CreateTaskPushNotificationConfig", taskId=task, url=url)
        worker.go_on.set()
    assert wrong.value.reason == "INVALID_PARAMS"


@pytest.mark.parametrize(
    "config",
    [
        {"url": ""},
        {"url": "https://example.com", "token": "a\r\nx-evil: 1"},
        {"url": "https://example.com", "authentication": {"scheme": "Bearer x", "credentials": "y"}},
        {"url": "https://example.com", "authentication": {"scheme": "Bearer", "credentials": "a\nb"}},
        {"url": "https://example.com", "authentication": {}},
    ],
)
async def test_what_cannot_stand_in_a_header_is_declined(hub: Hub, config: dict[str, Any]) -> None:
    Worker(hub).go_on.set()
    async with speaking(hub) as server, client_of(server) as session:
        with pytest.raises(Wrong) as wrong:
            await Caller(session, "worker").send("go", taskPushNotificationConfig=config)
    assert wrong.value.reason == "INVALID_PARAMS"


async def test_a_host_that_leads_elsewhere_when_it_is_used_is_not_told(hub: Hub) -> None:
    """SSRF by rebinding: the address is judged when something is sent, and used as it was judged."""
    hook = Hook()
    async with hook.listening() as url, hub:
        push = Push(hub, lambda: 0, PUBLIC)
        leads_to = ["93.184.215.14"]

        async def lookup(host: str, port: int) -> list[str]:
            return leads_to

        push._outbound._lookup = lookup  # pyright: ignore[reportPrivateUsage]
        leads_to[:] = ["127.0.0.1"]
        config = PushConfig(url=url.replace("127.0.0.1", "hook.example.com"), task_id="t")
        why = await push._sent(config.url, {}, b"{}")  # pyright: ignore[reportPrivateUsage]
        await push.close()
    assert "cannot be reached" in why
    assert hook.tried == 0


async def test_another_server_tells_what_one_that_died_has_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A configuration survives the server: whoever is there after it tells how the task ended."""
    hook, now_ms = Hook(), 1_000_000
    here = OutboundHosts(hosts=frozenset({"127.0.0.1"}))
    hub = Hub(store=tmp_path / "hub.db", durability="process")

    @hub.agent("worker")
    async def work(_: Brief) -> str:
        return "done"

    assert work
    async with hook.listening() as url, hub:
        response = await hub.ask("worker", "go", user="anna")
        dead = Push(hub, lambda: now_ms, here)
        # It had claimed the task, and then went silent before it could tell.
        monkeypatch.setattr(dead, "_follow", _silently)
        await dead.add(TaskPresentation(task=response.run, context=response.run), response.run, PushConfig(url=url))
        await dead.close()
        looked, take_up = asyncio.Event(), Push._take_up  # pyright: ignore[reportPrivateUsage]

        async def taking_up(self: Push) -> None:
            await take_up(self)
            looked.set()

        monkeypatch.setattr(Push, "_take_up", taking_up)
        soon = Push(hub, lambda: now_ms + pushing.LEASE_MS - 1, here)
        await asyncio.wait_for(looked.wait(), PATIENCE_S)
        assert not soon._telling, "another may still be at it"  # pyright: ignore[reportPrivateUsage]
        await soon.close()
        late = Push(hub, lambda: now_ms + pushing.LEASE_MS, here)
        told = await hook.ended()
        await late.close()
    assert told[-1].status_update.task_id == response.run


def _silently(*_: object) -> None: ...


@pytest.mark.parametrize("binding", ["JSONRPC", "HTTP+JSON", "GRPC"])
@pytest.mark.parametrize("streaming", [False, True], ids=["polled", "streamed"])
async def test_an_agent_elsewhere_notifies_where_the_hub_that_asks_it_says(binding: Binding, streaming: bool) -> None:
    far, near = Hub(name="far", store=MemoryStore()), Hub(name="near", store=MemoryStore())
    hook = Hook()

    @far.agent("worker")
    async def work(brief: Brief) -> Answer:
        return Answer(None, summary=f"done: {brief.text}")

    assert work
    async with hook.listening() as url, speaking(far, grpc=GrpcListener()) as server:
        connect_a2a(
            near,
            "far",
            f"{server.address}/a2a/worker",
            token="anna-app",
            binding=binding,
            streaming=streaming,
            notify=url,
            notify_token="s3cret",
        )
        async with near, asyncio.timeout(PATIENCE_S):
            assert (await near.ask("far", "it", user="anna")).ok
        headers, said = await hook.next()
    assert headers["x-a2a-notification-token"] == "s3cret"
    assert said.status_update.status.message.parts[0].text == "done: it"


async def test_a_long_dialogue_with_an_agent_elsewhere_has_one_receiver_of_notifications() -> None:
    far, near = Hub(name="far", store=MemoryStore()), Hub(name="near", store=MemoryStore())
    hook, turns = Hook(), pushing.MOST + 2

    @far.agent("worker")
    async def work(brief: Brief) -> Answer:
        return Answer(brief.text, requires_followup=brief.text != "done")

    assert work
    async with hook.listening() as url, speaking(far) as server:
        connect_a2a(near, "far", f"{server.address}/a2a/worker", token="anna-app", notify=url)
        async with near, asyncio.timeout(PATIENCE_S):
            for turn in range(turns):
                said = "done" if turn == turns - 1 else f"turn {turn}"
                assert (await near.ask("far", said, user="anna", session="s")).result == said
        assert await hook.ended()
