"""What leaves a hub says nothing of what is inside: names of agents, and addresses."""

import asyncio
import logging
import re
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import faulty_code
from a2a_serving import Caller, Wrong, message, speaking
from a2a_serving import client_of as a2a_client
from command_line import document, remit
from devices import gateway
from hosts import host_at
from neighbours import Neighbour, all_at_work
from remit import Brief, Code, Hub, Step, Workflow
from remit.policy.reception import Sender
from remit_models.mcp import add_mcp
from remit_orchestrator import add_workflow
from remit_server import connect, connect_a2a
from remit_server.dialects.http_agent import dialect_agent
from remit_testing import MemoryStore
from serving import ANNA, OPERATOR, client_of, events, got, posted, serving
from waiting import PATIENCE_S

LEAKS = (faulty_code.SECRET, "LookupError", "faulty_code", "look_up(", "frames")
TOLD = "failed; the reason is on record at its hub"


def is_discreet(text: str, *, failed: bool = True) -> bool:
    assert [leak for leak in LEAKS if leak in text] == []
    return not failed or TOLD in text


@pytest.fixture
def hub(make_hub: Callable[..., Hub]) -> Hub:
    hub = make_hub()
    hub.tool("look_up")(faulty_code.look_up)
    hub.add("byte-doc", faulty_code.direct, capabilities=["TAG"])
    hub.add("direct", faulty_code.direct)
    hub.add("adapted", faulty_code.adapted)
    hub.add("careless", faulty_code.careless, tools=["look_up"])
    hub.add("boss", faulty_code.passing_on, may_call=["direct"])
    hub.add("apart", faulty_code.direct, isolation="process")
    return hub


SERVICE = Sender(name="service", is_hub=True, users=frozenset({"anna"}))
AGENTS = ("direct", "adapted", "careless", "boss", "apart")


async def test_over_http_in_the_answer_on_the_record_and_in_the_stream(hub: Hub) -> None:
    async with serving(hub) as server, client_of(server) as session, client_of(server, OPERATOR.name) as operator:
        for agent in AGENTS:
            body = {"target": agent, "user": "u-1", "id": f"r-{agent}", "objective": "go"}
            status, said = await posted(session, body)
            assert status == 502
            assert said["fault"]["code"] == "DELEGATION_FAILED"
            assert is_discreet(str(said))
            again = await posted(session, body)
            assert is_discreet(str(again))
            found = await got(session, f"/v1/delegations/r-{agent}")
            assert is_discreet(str(found))
            streamed = await events(session, f"/v1/delegations/r-{agent}/events")
            assert is_discreet(str(streamed))
            run = said["run"]
            assert is_discreet(str(await events(operator, f"/v1/delegations/{run}/events")))
        summaries = await hub.store.runs(limit=10)
    assert all(each.response is not None and each.response.fault is not None for each in summaries)
    assert all(each.response.fault.origin is not None for each in summaries if each.response and each.response.fault)


@pytest.mark.parametrize(
    ("path", "body"),
    [
        (
            "employee/.netlify/functions/chat-internal",
            {
                "request_id": "550e8400-e29b-41d4-a716-446655440000",
                "origin_employee": "prime-boss",
                "target_employee": "byte-doc",
                "user_id": "anna",
                "objective": "Extract receipt data",
                "input": "extract",
                "parent_session_id": "s-1",
                "constraints": {"max_tokens": 1200, "max_depth": 2, "deadline_ms": 15000},
                "context_hints": [],
                "handoff_data": {},
            },
        ),
        (
            "librarian/byte-doc",
            {
                "query": "Which?",
                "version": "1.0",
                "requestId": "r-1",
                "timestamp": 1,
                "context": {
                    "originalQuery": "Which?",
                    "delegationChain": [],
                    "delegationDepth": 0,
                    "remainingTimeout": 5_000,
                    "startTime": 1,
                    "parentSpanId": "",
                },
            },
        ),
        (
            "contract",
            {
                "source_agent": "A",
                "target_agent": "byte-doc",
                "capability_code": "TAG",
                "request_id": "r-1",
                "inputs_json": {},
                "context": {"user_id": "anna"},
            },
        ),
        ("subagent", {"agent_name": "byte-doc", "task": "x"}),
    ],
)
@pytest.mark.parametrize("accept", ["application/json", "text/event-stream"])
async def test_in_the_dialects_of_other_systems(hub: Hub, path: str, body: dict[str, Any], accept: str) -> None:
    async with (
        serving(hub, SERVICE) as server,
        client_of(server, SERVICE.name) as session,
        session.post(f"/dialects/{path}", json=body, headers={"accept": accept}) as reply,
    ):
        text = await reply.text()
    assert reply.content_type == accept
    assert "byte-doc" in text
    assert is_discreet(text), text


@pytest.mark.parametrize("extended", [False, True])
async def test_over_a2a_in_the_task_and_in_the_stream(hub: Hub, *, extended: bool) -> None:
    async with speaking(hub) as server, a2a_client(server, extended=extended) as session:
        for agent in AGENTS:
            caller = Caller(session, agent)
            task = await caller.send("go")
            assert task["status"]["state"] == "TASK_STATE_FAILED"
            assert is_discreet(str(task))
            assert is_discreet(str(await caller("GetTask", id=task["id"])))
            assert is_discreet(str(await caller.events("SendStreamingMessage", message=message("again"))))


async def test_over_mcp(hub: Hub) -> None:
    async with serving(hub, ANNA) as server, host_at(server.address, ANNA.name) as host:
        result = await host.call_tool("delegate_task", {"agent": "direct", "task": "go"})
        assert is_discreet(str(result))


async def test_to_another_hub(hub: Hub, tmp_path: Path) -> None:
    near = Hub(name="north", store=tmp_path / "near.db", durability="process")
    async with serving(hub) as server:
        connect(near, "far", server.address, remote="direct", token="north")
        async with near:
            response = await near.ask("far", user="u-1")
    assert response.fault is not None
    assert response.fault.origin is None
    assert is_discreet(str(response.fault))


async def test_to_another_device(tmp_path: Path) -> None:
    anna, bob = Neighbour(tmp_path, "anna"), Neighbour(tmp_path, "bob")
    bob.hub.add("expert", faulty_code.direct)
    bob.shares("expert", anna)
    anna.knows("bobs-expert", bob)
    async with gateway(tmp_path) as relay, all_at_work(relay.url, [bob, anna]), asyncio.timeout(PATIENCE_S):
        response = await anna.hub.ask("bobs-expert", "which one?", user="anna@example.org")
    assert response.fault is not None
    assert is_discreet(str(response.fault))


async def test_in_what_a_workflow_tells_its_user() -> None:
    hub = Hub(store=MemoryStore())
    hub.add("direct", faulty_code.direct)
    add_workflow(hub, Workflow(name="trip", steps=(Step(name="one", agent="direct", objective="go", optional=True),)))
    async with hub:
        response = await hub.ask("trip", "go", user="u-1")
    assert is_discreet(str(response.outward()), failed=False)
    assert is_discreet(str(response.result), failed=False)


PARTS = ("far", "stranger", "elsewhere", "tooled", "boss")
ADDRESSES = (
    "127.0.0.1",
    "localhost",
    "http://",
    "onnection refused",
    "Errno",
    "Error:",
    "ConnectorError",
    "ConnectError",
)


def closed_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


@pytest.fixture(autouse=True)
def nobody_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("remit_server.transports.remote_calls.AWAY_MS", 0)


@pytest.fixture
def place() -> str:
    return f"http://127.0.0.1:{closed_port()}"


@pytest.fixture
def leaking_hub(tmp_path: Path, place: str) -> Hub:
    leaking_hub = Hub(store=tmp_path / "remit.db", durability="process")
    connect(leaking_hub, "far", place, remote="helper", token="t")
    connect_a2a(leaking_hub, "stranger", f"{place}/card.json", token="t")
    leaking_hub.add("elsewhere", dialect_agent("subagent", place, retries=0))
    leaking_hub.add("byte-doc", dialect_agent("subagent", place, retries=0), capabilities=["TAG"])
    add_mcp(leaking_hub, "shed", url=f"{place}/mcp", allow=["dig"])

    @leaking_hub.agent("tooled", tools=["shed.dig"])
    async def tooled(brief: Brief) -> Any:
        return await brief.use("shed.dig")

    @leaking_hub.agent("boss", may_call=["far"])
    async def boss(brief: Brief) -> Any:
        return (await brief.delegate("far", objective="go")).unwrap()

    assert tooled
    assert boss
    return leaking_hub


def leaks(text: object, place: str) -> list[str]:
    # An id has digits too, among them those of the port now and then.
    port = rf"(?<!\w){place.rpartition(':')[2]}(?!\w)"
    return [each for each in ADDRESSES if each in str(text)] + re.findall(port, str(text))


async def test_over_http_in_the_answer_and_in_the_stream(
    leaking_hub: Hub, place: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "remit"):
        async with (
            serving(leaking_hub) as server,
            client_of(server) as session,
            client_of(server, OPERATOR.name) as operator,
        ):
            for agent in PARTS:
                body = {"target": agent, "user": "u-1", "id": f"r-{agent}", "objective": "go"}
                _, said = await posted(session, body)
                assert said["fault"]["code"] == "DELEGATION_UNAVAILABLE"
                assert (
                    said["fault"]["message"].endswith("cannot be reached") or "cannot fetch" in said["fault"]["message"]
                )
                assert leaks(said, place) == []
                for reader in (session, operator):
                    assert leaks(await events(reader, f"/v1/delegations/{said['run']}/events"), place) == []
            kept = {each.agent: each.response for each in await leaking_hub.store.runs(limit=10)}
    for agent in PARTS:
        ended = kept[agent]
        assert ended is not None
        assert ended.fault is not None
        assert place in ended.fault.detail
    for path in ("far", "stranger"):
        assert any(path in line and place in line for line in caplog.text.splitlines())


async def test_no_address_is_said_in_the_dialects_of_other_systems(leaking_hub: Hub, place: str) -> None:
    asked: dict[str, dict[str, Any]] = {
        "subagent": {"agent_name": "byte-doc", "task": "x"},
        "contract": {
            "source_agent": "A",
            "target_agent": "byte-doc",
            "capability_code": "TAG",
            "request_id": "r-1",
            "inputs_json": {},
            "context": {"user_id": "anna"},
        },
    }
    async with serving(leaking_hub, SERVICE) as server, client_of(server, SERVICE.name) as session:
        for name, body in asked.items():
            async with session.post(f"/dialects/{name}", json=body) as reply:
                text = await reply.text()
            assert "byte-doc cannot be reached" in text
            assert leaks(text, place) == []


@pytest.mark.parametrize("extended", [False, True])
async def test_no_address_is_said_over_a2a(leaking_hub: Hub, place: str, *, extended: bool) -> None:
    async with speaking(leaking_hub) as server, a2a_client(server, extended=extended) as session:
        for agent in PARTS:
            caller = Caller(session, agent)
            for told in (caller.send("go"), caller.events("SendStreamingMessage", message=message("again"))):
                try:
                    said = str(await told)
                except Wrong as refused:
                    said = str(refused)
                assert "cannot be" in said or "cannot fetch" in said or "not called" in said
                assert leaks(said, place) == []


async def test_no_address_is_said_over_mcp(leaking_hub: Hub, place: str) -> None:
    async with serving(leaking_hub, ANNA) as server, host_at(server.address, ANNA.name) as host:
        for agent in PARTS:
            result = await host.call_tool("delegate_task", {"agent": agent, "task": "go"})
            assert leaks(result, place) == []


async def test_a_peer_cannot_say_what_the_operator_of_this_hub_is_told(tmp_path: Path) -> None:
    """Detail and origin are this hub's own words: what a peer sends under these names is dropped."""
    from aiohttp import web

    async def answer(request: web.Request) -> web.Response:
        sent = await request.json()
        lies = {"agent": "x", "error": "ValueError: lies"}
        why = {"code": "DELEGATION_FAILED", "message": "m", "detail": "lies", "origin": lies}
        said = {"version": "1.0", "id": sent["id"], "target": "helper", "status": "failed", "fault": why}
        return web.json_response(said)

    app = web.Application()
    app.router.add_post("/v1/delegations", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    host, port = runner.addresses[0][:2]
    leaking_hub = Hub(store=tmp_path / "remit.db", durability="process")
    connect(leaking_hub, "far", f"http://{host}:{port}", remote="helper", token="t")
    try:
        async with leaking_hub:
            response = await leaking_hub.ask("far", "go", user="u-1")
    finally:
        await runner.cleanup()
    assert response.fault is not None
    assert (response.fault.code, response.fault.detail) == (Code.DELEGATION_FAILED, "")
    assert (response.fault.origin, "lies" in str(response.fault)) == (None, False)


def test_the_operator_reads_it_in_the_terminal(tmp_path: Path, place: str) -> None:
    team = f'name = "shop"\n[agents.far]\npeer = "north"\n[peers.north]\nurl = "{place}"\ntoken = "$SHARED"\n'
    (tmp_path / "remit.toml").write_text(team)
    run = remit(
        "run",
        "far",
        "go",
        "--deadline",
        "1s",
        folder=tmp_path,
        SHARED="a-token-that-is-long-enough-for-a-team-0123456789",
    )
    assert "DELEGATION_UNAVAILABLE: far cannot be reached" in run.stderr
    assert f"far at {place}: Connection refused" in run.stderr
    (line,) = document("runs", "list", folder=tmp_path)["runs"]
    shown = remit("runs", "show", line["run"], folder=tmp_path)
    assert f"far at {place}: Connection refused" in shown.stdout, shown.stdout + shown.stderr
