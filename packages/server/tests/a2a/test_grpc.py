"""A2A over gRPC: tenants, errors, credentials, deadlines, and the bounds of connections."""

import asyncio
import socket
import sys
from collections.abc import AsyncIterator, Generator
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from typing import Any, NamedTuple, cast

import grpc
import grpc.aio
import pytest
from a2a.types import a2a_pb2 as pb
from a2a.types import a2a_pb2_grpc
from google.protobuf.json_format import ParseDict
from google.protobuf.struct_pb2 import Struct, Value
from hypothesis import given
from hypothesis import strategies as st

from a2a_grpc import details_of, interface_of, message, metadata, stub_of
from a2a_serving import speaking
from certificates import certificate
from remit import Answer, Brief, Code, Hub, Kind, Limits, RemitError
from remit.installed import install_command
from remit.protocol.codec import MAX_BYTES, MAX_VALUES
from remit.protocol.records import Notice
from remit_server.a2a.grpc_messages import GrpcMethod, grpc_methods, text_field
from remit_server.a2a.grpc_server import DESCRIPTORS, GrpcListener
from remit_server.a2a.guests import PublicAccess
from remit_server.dialects.a2a.errors import EXTENSION
from remit_server.refusals import DOOR, FAILURES
from remit_server.transports.addresses import listening
from remit_server.transports.credentials.proof import content_digest
from remit_testing import MemoryStore
from serve_command import CLIENT_TOKEN, ServedTeam, serving
from waiting import PATIENCE_S, eventually, no_longer, wait_until

GRPC = GrpcListener()
Status = grpc.StatusCode


@pytest.fixture
def hub() -> Hub:
    return Hub(store=MemoryStore())


def echo(hub: Hub, name: str = "echo") -> list[Brief]:
    briefs: list[Brief] = []

    async def say(brief: Brief) -> str:
        briefs.append(brief)
        return f"{name} to {brief.user}: {brief.text}"

    hub.add(name, say)
    return briefs


class Sleeper:
    """An agent that works until it is told to go on, or is cancelled."""

    def __init__(self, hub: Hub) -> None:
        self.began, self.go_on, self.cancelled = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self.times = 0

        async def sleep(brief: Brief) -> str:
            self.times += 1
            self.began.set()
            try:
                await self.go_on.wait()
            except asyncio.CancelledError:
                self.cancelled.set()
                raise
            return "slept"

        hub.add("sleeper", sleep)


async def refused(call: Any) -> grpc.aio.AioRpcError:
    with pytest.raises(grpc.aio.AioRpcError) as error:
        await call
    return error.value


def text_of(task: pb.Task) -> str:
    return task.artifacts[0].parts[0].text


# ── cards, and which agent is meant ───────────────────────────────────────────────────────────────────────────────────


async def test_the_card_has_the_address_without_a_scheme_and_the_agent_as_the_tenant(hub: Hub) -> None:
    echo(hub)
    async with speaking(hub, grpc=GRPC) as server:
        found = await interface_of(server, "echo")
    assert found | {"url": ""} == {"url": "", "protocolBinding": "GRPC", "protocolVersion": "1.0", "tenant": "echo"}
    host, _, port = found["url"].partition(":")
    assert (host, port.isdecimal()) == ("127.0.0.1", True)


async def test_a_public_address_is_in_the_card_instead(hub: Hub) -> None:
    echo(hub)
    async with speaking(hub, grpc=GrpcListener(address="agents.example:443")) as server:
        assert (await interface_of(server, "echo"))["url"] == "agents.example:443"


async def test_the_tenant_names_the_agent(hub: Hub) -> None:
    echo(hub)
    echo(hub, "other")
    async with speaking(hub, grpc=GRPC, default="echo") as server, stub_of(server, "echo") as stub:
        one = await stub.SendMessage(message("hi", agent="other"), metadata=metadata())
        default = await stub.SendMessage(message("hi"), metadata=metadata())
        nobody = await refused(stub.SendMessage(message("hi", agent="nobody"), metadata=metadata()))
        elsewhere = await refused(stub.GetTask(pb.GetTaskRequest(id=one.task.id), metadata=metadata()))
        there = await stub.GetTask(pb.GetTaskRequest(id=one.task.id, tenant="other"), metadata=metadata())
    assert (text_of(one.task), text_of(default.task)) == ("other to anna: hi", "echo to anna: hi")
    assert (nobody.code(), details_of(nobody)[0]["reason"]) == (Status.NOT_FOUND, "AGENT_NOT_FOUND")
    assert details_of(elsewhere)[0]["reason"] == "TASK_NOT_FOUND"
    assert there.id == one.task.id


async def test_without_a_tenant_the_only_agent_is_meant_or_the_request_is_declined(hub: Hub) -> None:
    echo(hub)
    async with speaking(hub, grpc=GRPC) as server, stub_of(server, "echo") as stub:
        assert text_of((await stub.SendMessage(message("hi"), metadata=metadata())).task) == "echo to anna: hi"
        echo(hub, "other")
        error = await refused(stub.SendMessage(message("hi"), metadata=metadata()))
        stranger = await refused(stub.SendMessage(message("hi"), metadata=metadata(None)))
    assert error.code() is Status.INVALID_ARGUMENT
    assert [each.get("fieldViolations", [{}])[0].get("field") for each in details_of(error)] == [None, "tenant", None]
    assert stranger.code() is Status.UNAUTHENTICATED


@given(st.text(max_size=20), st.text(max_size=300), st.integers(0, 2**31 - 1), st.sampled_from(sorted(grpc_methods())))
def test_the_tenant_is_found_without_decoding_the_rest(tenant: str, text: str, number: int, name: str) -> None:
    method: GrpcMethod = grpc_methods()[name]
    request: Any = method.request(tenant=tenant)
    for field in request.DESCRIPTOR.fields:
        if field.name in ("id", "task_id", "context_id", "url"):
            setattr(request, field.name, text)
        elif field.name in ("history_length", "page_size"):
            setattr(request, field.name, number)
    assert text_field(request.SerializeToString(), method.tenant) == tenant


@given(st.binary(max_size=200), st.integers(1, 20))
def test_bytes_that_are_no_message_have_no_tenant(raw: bytes, number: int) -> None:
    assert isinstance(text_field(raw, number), str)


# ── errors ────────────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_errors_have_the_status_of_the_specification_and_details(hub: Hub) -> None:
    echo(hub)
    async with speaking(hub, grpc=GRPC, push=False) as server, stub_of(server, "echo") as stub:
        said = metadata()
        done = (await stub.SendMessage(message("hi"), metadata=said)).task.id
        push = pb.TaskPushNotificationConfig(task_id=done, url="https://example.com")
        calls = {
            "TASK_NOT_FOUND": stub.GetTask(pb.GetTaskRequest(id="never"), metadata=said),
            "TASK_NOT_CANCELABLE": stub.CancelTask(pb.CancelTaskRequest(id=done), metadata=said),
            "PUSH_NOTIFICATION_NOT_SUPPORTED": stub.CreateTaskPushNotificationConfig(push, metadata=said),
            "UNSUPPORTED_OPERATION": stub.GetExtendedAgentCard(pb.GetExtendedAgentCardRequest(), metadata=said),
            "VERSION_NOT_SUPPORTED": stub.SendMessage(message("hi"), metadata=metadata(a2a_version="0.3")),
            "INVALID_PARAMS": stub.GetTask(pb.GetTaskRequest(), metadata=said),
        }
        found = {reason: await refused(call) for reason, call in calls.items()}
    assert {reason: error.code().name for reason, error in found.items()} == {
        "TASK_NOT_FOUND": "NOT_FOUND",
        "TASK_NOT_CANCELABLE": "FAILED_PRECONDITION",
        "PUSH_NOTIFICATION_NOT_SUPPORTED": "UNIMPLEMENTED",
        "UNSUPPORTED_OPERATION": "UNIMPLEMENTED",
        "VERSION_NOT_SUPPORTED": "UNIMPLEMENTED",
        "INVALID_PARAMS": "INVALID_ARGUMENT",
    }
    for reason, error in found.items():
        first = details_of(error)[0]
        assert (first["@type"], first["reason"], first["domain"]) == (
            "type.googleapis.com/google.rpc.ErrorInfo",
            reason,
            "a2a-protocol.org",
        )
    assert details_of(found["TASK_NOT_FOUND"])[0]["metadata"] == {"taskId": "never"}
    fields = [each for each in details_of(found["INVALID_PARAMS"]) if "fieldViolations" in each]
    assert [each["field"] for each in fields[0]["fieldViolations"]] == ["id"]


async def test_a_stream_that_cannot_begin_is_an_error(hub: Hub) -> None:
    echo(hub)
    async with speaking(hub, grpc=GRPC) as server, stub_of(server, "echo") as stub:
        done = (await stub.SendMessage(message("hi"), metadata=metadata())).task.id
        ended = stub.SubscribeToTask(pb.SubscribeToTaskRequest(id=done), metadata=metadata())
        error = await refused(ended.read())
        unknown = await refused(stub.SubscribeToTask(pb.SubscribeToTaskRequest(id="never"), metadata=metadata()).read())
    assert (error.code(), details_of(error)[0]["reason"]) == (Status.UNIMPLEMENTED, "UNSUPPORTED_OPERATION")
    assert unknown.code() is Status.NOT_FOUND


async def test_an_error_that_would_not_fit_into_metadata_is_cut(hub: Hub) -> None:
    echo(hub)
    async with speaking(hub, grpc=GRPC) as server, stub_of(server, "echo") as stub:
        request = message("hi")
        request.message.parts.extend(pb.Part(media_type="x" * 100) for _ in range(500))
        error = await refused(stub.SendMessage(request, metadata=metadata()))
    assert error.code() is Status.INVALID_ARGUMENT
    assert details_of(error)


@pytest.mark.parametrize("raw", [b"\xff\xff\xff", b"\x0a\x05ab"], ids=["no message", "cut off"])
async def test_bytes_that_are_not_the_message_are_declined(hub: Hub, raw: bytes) -> None:
    echo(hub)
    async with speaking(hub, grpc=GRPC) as server:
        target = (await interface_of(server, "echo"))["url"]
        async with grpc.aio.insecure_channel(target) as channel:
            calls: Any = channel
            get = calls.unary_unary("/lf.a2a.v1.A2AService/GetTask")
            error = await refused(get(raw, metadata=metadata()))
            stranger = await refused(get(raw, metadata=metadata(None)))
            many = b"".join(b"\x18" + bytes([number]) for number in range(20))
            moved = await refused(get(many + b"\x0a\x04echo", metadata=metadata()))
    assert (error.code(), details_of(error)[0]["reason"]) == (Status.INVALID_ARGUMENT, "INVALID_REQUEST")
    assert stranger.code() is Status.UNAUTHENTICATED, "nothing is decoded for strangers"
    assert moved.code() is Status.INVALID_ARGUMENT


async def test_what_json_cannot_say_is_declined(hub: Hub) -> None:
    asked = echo(hub)
    many = Value()
    many.list_value.extend([True] * (MAX_VALUES + 1))
    async with speaking(hub, grpc=GRPC) as server, stub_of(server, "echo") as stub:
        infinite = message("hi")
        infinite.message.parts.add(data=Value(number_value=float("inf")))
        endless = message("hi")
        endless.message.parts.add(data=many)
        codes = [(await refused(stub.SendMessage(each, metadata=metadata()))).code() for each in (infinite, endless)]
    assert codes == [Status.INVALID_ARGUMENT, Status.INVALID_ARGUMENT]
    assert not asked


async def test_messages_are_as_large_as_over_http_and_not_compressed(hub: Hub) -> None:
    echo(hub)
    async with speaking(hub, grpc=GRPC) as server, stub_of(server, "echo") as stub:
        long = message("hi")
        long.message.parts.add(text="x" * MAX_BYTES)
        large = await refused(stub.SendMessage(long, metadata=metadata()))
        packed = await refused(
            stub.SendMessage(message("x" * 5_000), metadata=metadata(), compression=grpc.Compression.Gzip)
        )
        fits = message("hi")
        fits.message.parts[0].text = "x" * 90_000
        answer = await stub.SendMessage(fits, metadata=metadata())
    assert (large.code(), packed.code()) == (Status.RESOURCE_EXHAUSTED, Status.UNIMPLEMENTED)
    assert text_of(answer.task).endswith("x" * 90_000)


# ── who asks ──────────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_client_proves_who_it_is_as_over_http(hub: Hub) -> None:
    echo(hub)
    async with speaking(hub, grpc=GRPC) as server, stub_of(server, "echo") as stub:
        missing = await refused(stub.SendMessage(message("hi"), metadata=metadata(None)))
        wrong = await refused(stub.SendMessage(message("hi"), metadata=metadata("mallory")))
        streamed = await refused(stub.SendStreamingMessage(message("hi"), metadata=metadata("mallory")).read())
        twice = await refused(
            stub.SendMessage(message("hi"), metadata=(*metadata(), ("authorization", "Bearer bert-app")))
        )
        bob = message("hi")
        bob.message.metadata.CopyFrom(ParseDict({EXTENSION: {"user": "bob"}}, Struct()))
        forbidden = await refused(stub.SendMessage(bob, metadata=metadata(extended=True)))
        task = (await stub.SendMessage(message("hi"), metadata=metadata())).task.id
        unseen = await refused(stub.GetTask(pb.GetTaskRequest(id=task), metadata=metadata("bert-app")))
        await hub.store.flush()
        rows = [each for each in await hub.store.records(run=DOOR, limit=100) if each.kind is Kind.NOTICE]
    codes = [each.code() for each in (missing, wrong, streamed)]
    assert codes == [Status.UNAUTHENTICATED] * 3
    assert details_of(missing)[0]["reason"] == "UNAUTHENTICATED"
    assert twice.code() is Status.INVALID_ARGUMENT
    assert (forbidden.code(), details_of(forbidden)[0]["reason"]) == (Status.PERMISSION_DENIED, "USER_MISMATCH")
    assert unseen.code() is Status.NOT_FOUND
    assert len(rows) == 4
    assert all(isinstance(each.body, Notice) and "from 127.0.0.1" in each.body.text for each in rows)


async def test_an_agent_for_everybody_needs_no_token(hub: Hub) -> None:
    asked = echo(hub)
    echo(hub, "other")
    public = PublicAccess(agents=("echo",))
    async with speaking(hub, grpc=GRPC, public=public) as server, stub_of(server, "echo") as stub:
        await stub.SendMessage(message("hi", agent="echo"), metadata=metadata(None))
        error = await refused(stub.SendMessage(message("hi", agent="other"), metadata=metadata(None)))
    assert asked[0].user.startswith("guest-")
    assert error.code() is Status.UNAUTHENTICATED


async def test_a_message_that_was_changed_on_its_way_is_declined(hub: Hub) -> None:
    echo(hub)
    request = message("hi")
    async with speaking(hub, grpc=GRPC) as server, stub_of(server, "echo") as stub:
        right = metadata(content_digest=content_digest(request.SerializeToString()))
        await stub.SendMessage(request, metadata=right)
        request.message.parts[0].text = "ho"
        error = await refused(stub.SendMessage(request, metadata=right))
    assert (error.code(), "changed in transit" in (error.details() or "")) == (Status.INVALID_ARGUMENT, True)


async def test_who_keeps_guessing_has_to_wait(hub: Hub) -> None:
    echo(hub)
    async with speaking(hub, grpc=GRPC) as server, stub_of(server, "echo") as stub:
        for number in range(FAILURES):
            await refused(stub.SendMessage(message("hi"), metadata=metadata(f"guess-{number}")))
        error = await refused(stub.SendMessage(message("hi"), metadata=metadata("one-more")))
    assert error.code() is Status.RESOURCE_EXHAUSTED
    (delay,) = [each["retryDelay"] for each in details_of(error) if "retryDelay" in each]
    assert 0 < float(delay.removesuffix("s")) <= 60


async def test_the_extension_is_confirmed_and_can_be_required(hub: Hub) -> None:
    asked = echo(hub)
    words = {"tokens": "500", "timeMs": "4000"}
    async with speaking(hub, grpc=GRPC, required=True) as server, stub_of(server, "echo") as stub:
        request = message("hi")
        request.message.metadata.CopyFrom(ParseDict({EXTENSION: words}, Struct()))
        call = stub.SendMessage(request, metadata=metadata(extended=True), timeout=PATIENCE_S)
        await call
        confirmed = dict(await call.initial_metadata())
        error = await refused(stub.SendMessage(message("hi"), metadata=metadata()))
    assert confirmed["a2a-extensions"] == EXTENSION
    assert (asked[0].request.remit.tokens, asked[0].request.remit.time_ms) == (500, 4_000)
    assert (error.code(), details_of(error)[0]["reason"]) == (Status.FAILED_PRECONDITION, "EXTENSION_SUPPORT_REQUIRED")


# ── time, and clients that go away ────────────────────────────────────────────────────────────────────────────────────


async def test_the_deadline_of_a_call_bounds_the_time_of_the_run() -> None:
    hub = Hub(store=MemoryStore(), limits=Limits(root_time_ms=60_000))
    asked = echo(hub)
    async with speaking(hub, grpc=GRPC) as server, stub_of(server, "echo") as stub:
        await stub.SendMessage(message("hi"), metadata=metadata(), timeout=30)
        await stub.SendMessage(message("hi"), metadata=metadata(), timeout=PATIENCE_S)
        await stub.SendMessage(message("hi"), metadata=metadata())
        # Whoever takes the task at once does not wait for its end.
        await stub.SendMessage(message("hi", return_immediately=True), metadata=metadata(), timeout=30)
        await eventually(lambda: len(asked) == 4)
        events = [each async for each in stub.SendStreamingMessage(message("hi"), metadata=metadata(), timeout=30)]
    times = [each.request.remit.time_ms for each in asked]
    assert times[1:4] == [60_000] * 3
    assert all(0 < each < 30_000 for each in (times[0], times[4]))
    assert events[-1].status_update.status.state == pb.TASK_STATE_COMPLETED


async def test_a_run_does_not_outlive_the_deadline_of_its_call(hub: Hub) -> None:
    sleeper = Sleeper(hub)
    async with speaking(hub, grpc=GRPC) as server, stub_of(server, "sleeper") as stub:
        # Whether the outcome comes in time is left open here.
        with suppress(grpc.aio.AioRpcError):
            await stub.SendMessage(message("sleep", "m"), metadata=metadata(), timeout=0.5)
        await asyncio.wait_for(sleeper.cancelled.wait(), PATIENCE_S)
        (summary,) = await hub.store.runs(limit=1)
        outcome = await eventually(lambda: hub.outcome(summary.run))
    assert outcome is not None
    assert outcome.fault is not None
    assert outcome.fault.code is Code.TIMEOUT


async def test_a_client_that_goes_away_closes_its_stream_and_the_task_goes_on(
    hub: Hub, caplog: pytest.LogCaptureFixture
) -> None:
    sleeper = Sleeper(hub)
    async with speaking(hub, grpc=GRPC) as server, stub_of(server, "sleeper") as stub:
        streams = server.api.delegations.streams
        sent = stub.SendStreamingMessage(message("sleep"), metadata=metadata())
        task = (await sent.read()).task.id
        subscribed = stub.SubscribeToTask(pb.SubscribeToTaskRequest(id=task), metadata=metadata())
        await subscribed.read()
        assert len(streams) == 2
        sent.cancel()
        subscribed.cancel()
        await no_longer(lambda: streams)
        sleeper.go_on.set()
        found = await eventually(
            lambda: stub.GetTask(pb.GetTaskRequest(id=task), metadata=metadata()),
            when=lambda each: each.status.state == pb.TASK_STATE_COMPLETED,
        )
    assert text_of(found) == "slept"
    assert [each for each in caplog.records if each.levelname == "ERROR"] == []


async def test_a_message_whose_client_went_away_is_answered_when_it_is_sent_again(hub: Hub) -> None:
    sleeper = Sleeper(hub)
    async with speaking(hub, grpc=GRPC) as server, stub_of(server, "sleeper") as stub:
        call = stub.SendMessage(message("sleep", "m-again"), metadata=metadata())
        await asyncio.wait_for(asyncio.shield(sleeper.began.wait()), PATIENCE_S)
        call.cancel()
        again = stub.SendMessage(message("sleep", "m-again"), metadata=metadata())
        sleeper.go_on.set()
        assert text_of((await again).task) == "slept"
    assert (sleeper.times, sleeper.cancelled.is_set()) == (1, False)


async def test_a_server_that_shuts_down_lets_calls_end(hub: Hub) -> None:
    sleeper = Sleeper(hub)
    async with speaking(hub, grpc=GRPC) as server, stub_of(server, "sleeper") as stub:
        call = stub.SendMessage(message("sleep"), metadata=metadata())
        stream = stub.SendStreamingMessage(message("sleep"), metadata=metadata())
        await stream.read()
        await eventually(lambda: sleeper.times == 2)
        stopping = asyncio.create_task(server.__aexit__())
        await eventually(lambda: server.api.delegations.draining)
        late = await refused(stub.SendMessage(message("more"), metadata=metadata()))
        sleeper.go_on.set()
        assert text_of((await call).task) == "slept"
        while await stream.read() is not grpc.aio.EOF:
            pass
        await stopping
    assert late.code() is Status.UNAVAILABLE
    assert {each["reason"] for each in details_of(late) if "reason" in each} == {"OVERLOADED"}


# ── sockets ───────────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_certificate_encrypts(hub: Hub, tmp_path: Path) -> None:
    echo(hub)
    made = certificate(tmp_path)
    listener = GrpcListener(certificate=str(made.file), key=str(made.key))
    async with speaking(hub, grpc=listener) as server:
        target = (await interface_of(server, "echo"))["url"]
        trusting = grpc.ssl_channel_credentials(made.file.read_bytes())
        async with grpc.aio.secure_channel(target, trusting) as channel:
            stub: Any = a2a_pb2_grpc.A2AServiceStub(channel)
            answer = await stub.SendMessage(message("hi"), metadata=metadata())
        async with grpc.aio.insecure_channel(target) as channel:
            stub = a2a_pb2_grpc.A2AServiceStub(channel)
            error = await refused(stub.SendMessage(message("hi"), metadata=metadata()))
    assert text_of(answer.task) == "echo to anna: hi"
    assert error.code() is Status.UNAVAILABLE


async def test_a_port_that_is_in_use_and_a_certificate_that_is_not_there_are_named(hub: Hub, tmp_path: Path) -> None:
    with listening("127.0.0.1", 0) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(RemitError, match=f"127.0.0.1 port {port} is in use\n.*`grpc_port`"):
            async with speaking(hub, grpc=GrpcListener(port=port)):
                pass
    missing = str(tmp_path / "missing.pem")
    with pytest.raises(RemitError, match=r"missing\.pem: No such file"):
        async with speaking(hub, grpc=GrpcListener(certificate=missing, key=missing)):
            pass


async def test_without_the_extra_it_is_said_what_to_install(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "grpc", None)
    with pytest.raises(RemitError) as error:
        async with speaking(hub, grpc=GRPC):
            pass
    assert install_command("a2a") in error.value.fault.suggestion


async def test_files_come_and_go_as_bytes(hub: Hub) -> None:
    briefs: list[Brief] = []

    async def keep(brief: Brief) -> Answer:
        briefs.append(brief)
        return Answer("kept", files=brief.files)

    hub.add("keeper", keep)
    picture = bytes(range(256)) * 200
    async with speaking(hub, grpc=GRPC) as server, stub_of(server, "keeper") as stub:
        request = message("Keep this")
        request.message.parts.add(raw=picture, filename="a.png", media_type="image/png")
        answer = await stub.SendMessage(request, metadata=metadata())
    assert [(each.name, each.data) for each in briefs[0].files] == [("a.png", picture)]
    parts = [part for artifact in answer.task.artifacts for part in artifact.parts]
    assert [(part.filename, part.raw) for part in parts if part.raw] == [("a.png", picture)]


async def test_a_question_is_answered_over_grpc(hub: Hub) -> None:
    @hub.agent("clerk")
    async def clerk(brief: Brief) -> Answer:
        heard = [each.text for each in await brief.history()]
        return Answer(f"{heard[0]} {brief.text}") if heard else Answer("Which month?", requires_followup=True)

    assert clerk
    async with speaking(hub, grpc=GRPC) as server, stub_of(server, "clerk") as stub:
        first = (await stub.SendMessage(message("Sort"), metadata=metadata())).task
        answer = message("May")
        answer.message.task_id = first.id
        second = (await stub.SendMessage(answer, metadata=metadata())).task
    assert (first.status.state, second.status.state) == (pb.TASK_STATE_INPUT_REQUIRED, pb.TASK_STATE_COMPLETED)
    assert (second.id, text_of(second)) == (first.id, "Sort May")


CONNECTIONS = 32
TEAM = f"""
[agents.echo]
run = "echoes:echo"

[serve]
connections = {CONNECTIONS}

[a2a]
grpc_port = 0

[clients.web]
token = "$WEB"
agents = ["*"]
users = ["ada"]
"""
ECHOES = '''
from remit import Brief

async def echo(brief: Brief) -> str:
    """Says it again."""
    return brief.text
'''
SEND = "/lf.a2a.v1.A2AService/SendMessage"
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(3) + b"\x04" + bytes(5)


class Door(NamedTuple):
    """A served team, and where it listens for gRPC."""

    team: ServedTeam
    host: str
    port: int

    @property
    def target(self) -> str:
        return f"{self.host}:{self.port}"


@pytest.fixture(scope="module")
def door(tmp_path_factory: pytest.TempPathFactory) -> Generator[Door]:
    with pytest.MonkeyPatch.context() as patch, ExitStack() as stack:
        patch.chdir(tmp_path_factory.mktemp("team"))
        Path("remit.toml").write_text(TEAM)
        Path("echoes.py").write_text(ECHOES)
        team = stack.enter_context(serving(WEB=CLIENT_TOKEN))
        _, card = team.get("/a2a/echo/.well-known/agent-card.json")
        (url,) = [each["url"] for each in card["supportedInterfaces"] if each["protocolBinding"] == "GRPC"]
        host, _, port = url.rpartition(":")
        yield Door(team, host, int(port))


def bare_metadata(token: str = CLIENT_TOKEN) -> tuple[tuple[str, str], ...]:
    return (("authorization", f"Bearer {token}"), ("a2a-version", "1.0"))


def numbered_message(text: str, number: int) -> pb.SendMessageRequest:
    said = pb.Message(message_id=f"{text[:9]}-{number}", role=pb.ROLE_USER, parts=[pb.Part(text=text)])
    return pb.SendMessageRequest(tenant="echo", message=said)


async def answers(door: Door, *texts: str) -> list[str]:
    """Send messages at once over one channel, and return the answers."""
    async with grpc.aio.insecure_channel(door.target) as channel, asyncio.timeout(PATIENCE_S):
        stub: Any = a2a_pb2_grpc.A2AServiceStub(channel)
        calls = [stub.SendMessage(numbered_message(text, n), metadata=bare_metadata()) for n, text in enumerate(texts)]
        return [(await call).task.artifacts[0].parts[0].text for call in calls]


def open_files(door: Door) -> int:
    return len(list(Path(f"/proc/{door.team.process.pid}/fd").iterdir()))


@pytest.mark.parametrize("first", [b"", PREFACE], ids=["silent", "greeting"])
async def test_connections_that_prove_nothing_make_room_for_others(door: Door, first: bytes) -> None:
    most = (DESCRIPTORS if first else 1) * CONNECTIONS + 64  # what is being closed
    assert door.team.send("/healthz") == (200, "alive\n")
    before = open_files(door)
    with ExitStack() as stack:
        for _ in range(8 * CONNECTIONS):
            each = stack.enter_context(closing(socket.create_connection((door.host, door.port))))
            with suppress(ConnectionError):  # it had to make room already
                each.send(first)
        assert door.team.send("/healthz") == (200, "alive\n")
        if first:  # gRPC closes its end of each in its own time
            wait_until(lambda: open_files(door) - before <= most, "the end of the oldest connections")
        assert open_files(door) - before <= most
        assert await answers(door, "hello") == ["hello"]


async def test_a_message_is_not_waited_for_before_its_sender_is_known(door: Door) -> None:
    async def never() -> AsyncIterator[bytes]:
        await asyncio.Event().wait()
        yield b""

    async with grpc.aio.insecure_channel(door.target) as channel, asyncio.timeout(PATIENCE_S):
        send: Any = cast("Any", channel).stream_unary(SEND)
        call = send(never(), metadata=bare_metadata("a-token-that-nobody-knows"))
        assert await call.code() is grpc.StatusCode.UNAUTHENTICATED


async def test_many_calls_over_one_channel_are_all_served(door: Door) -> None:
    texts = [f"text {number}" for number in range(200)]
    assert await answers(door, *texts) == texts


async def test_a_large_message_of_a_known_client_is_served(door: Door) -> None:
    large = "word " * 20_000
    assert await answers(door, large) == [large]
