"""Other people's clients are told that an agent failed, and neither where in its code nor with which words."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import faulty_code
from a2a_serving import Caller, message, speaking
from a2a_serving import client_of as a2a_client
from devices import gateway
from hosts import host_at
from neighbours import Neighbour, all_at_work
from remit import Hub, Step, Workflow
from remit.policy.reception import Sender
from remit_orchestrator import add_workflow
from remit_server import connect
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
