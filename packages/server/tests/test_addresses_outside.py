"""Other people's clients are not told where an agent's peers are, nor what the system said; the operator is."""

import logging
import re
import socket
from pathlib import Path
from typing import Any

import pytest

from a2a_serving import Caller, Wrong, message, speaking
from a2a_serving import client_of as a2a_client
from command_line import document, remit
from hosts import host_at
from remit import Brief, Code, Hub
from remit.policy.reception import Sender
from remit_models.mcp import add_mcp
from remit_server import connect, connect_a2a
from remit_server.dialects.http_agent import dialect_agent
from serving import ANNA, OPERATOR, client_of, events, posted, serving

SERVICE = Sender(name="service", is_hub=True, users=frozenset({"anna"}))
AGENTS = ("far", "stranger", "elsewhere", "tooled", "boss")
LEAKS = ("127.0.0.1", "localhost", "http://", "onnection refused", "Errno", "Error:", "ConnectorError", "ConnectError")


def closed_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


@pytest.fixture
def place() -> str:
    return f"http://127.0.0.1:{closed_port()}"


@pytest.fixture
def hub(tmp_path: Path, place: str) -> Hub:
    hub = Hub(store=tmp_path / "remit.db", durability="process")
    connect(hub, "far", place, remote="helper", token="t")
    connect_a2a(hub, "stranger", f"{place}/card.json", token="t")
    hub.add("elsewhere", dialect_agent("subagent", place, retries=0))
    hub.add("byte-doc", dialect_agent("subagent", place, retries=0), capabilities=["TAG"])
    add_mcp(hub, "shed", url=f"{place}/mcp", allow=["dig"])

    @hub.agent("tooled", tools=["shed.dig"])
    async def tooled(brief: Brief) -> Any:
        return await brief.use("shed.dig")

    @hub.agent("boss", may_call=["far"])
    async def boss(brief: Brief) -> Any:
        return (await brief.delegate("far", objective="go")).unwrap()

    assert tooled
    assert boss
    return hub


def leaks(text: object, place: str) -> list[str]:
    # An id has digits too, among them those of the port now and then.
    port = rf"(?<!\w){place.rpartition(':')[2]}(?!\w)"
    return [each for each in LEAKS if each in str(text)] + re.findall(port, str(text))


async def test_over_http_in_the_answer_and_in_the_stream(
    hub: Hub, place: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "remit"):
        async with serving(hub) as server, client_of(server) as session, client_of(server, OPERATOR.name) as operator:
            for agent in AGENTS:
                body = {"target": agent, "user": "u-1", "id": f"r-{agent}", "objective": "go"}
                _, said = await posted(session, body)
                assert said["fault"]["code"] == "DELEGATION_UNAVAILABLE"
                assert (
                    said["fault"]["message"].endswith("cannot be reached") or "cannot fetch" in said["fault"]["message"]
                )
                assert leaks(said, place) == []
                for reader in (session, operator):
                    assert leaks(await events(reader, f"/v1/delegations/{said['run']}/events"), place) == []
            kept = {each.agent: each.response for each in await hub.store.runs(limit=10)}
    for agent in AGENTS:
        ended = kept[agent]
        assert ended is not None
        assert ended.fault is not None
        assert place in ended.fault.detail
    for path in ("far", "stranger"):
        assert any(path in line and place in line for line in caplog.text.splitlines())


async def test_in_the_dialects_of_other_systems(hub: Hub, place: str) -> None:
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
    async with serving(hub, SERVICE) as server, client_of(server, SERVICE.name) as session:
        for name, body in asked.items():
            async with session.post(f"/dialects/{name}", json=body) as reply:
                text = await reply.text()
            assert "byte-doc cannot be reached" in text
            assert leaks(text, place) == []


@pytest.mark.parametrize("extended", [False, True])
async def test_over_a2a(hub: Hub, place: str, *, extended: bool) -> None:
    async with speaking(hub) as server, a2a_client(server, extended=extended) as session:
        for agent in AGENTS:
            caller = Caller(session, agent)
            for told in (caller.send("go"), caller.events("SendStreamingMessage", message=message("again"))):
                try:
                    said = str(await told)
                except Wrong as refused:
                    said = str(refused)
                assert "cannot be" in said or "cannot fetch" in said or "not called" in said
                assert leaks(said, place) == []


async def test_over_mcp(hub: Hub, place: str) -> None:
    async with serving(hub, ANNA) as server, host_at(server.address, ANNA.name) as host:
        for agent in AGENTS:
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
    hub = Hub(store=tmp_path / "remit.db", durability="process")
    connect(hub, "far", f"http://{host}:{port}", remote="helper", token="t")
    try:
        async with hub:
            response = await hub.ask("far", "go", user="u-1")
    finally:
        await runner.cleanup()
    assert response.fault is not None
    assert (response.fault.code, response.fault.detail) == (Code.DELEGATION_FAILED, "")
    assert (response.fault.origin, "lies" in str(response.fault)) == (None, False)


def test_the_operator_reads_it_in_the_terminal(tmp_path: Path, place: str) -> None:
    team = f'name = "shop"\n[agents.far]\npeer = "north"\n[peers.north]\nurl = "{place}"\ntoken = "$SHARED"\n'
    (tmp_path / "remit.toml").write_text(team)
    run = remit("run", "far", "go", folder=tmp_path, SHARED="a-token-that-is-long-enough-for-a-team-0123456789")
    assert "DELEGATION_UNAVAILABLE: far cannot be reached" in run.stderr
    assert f"far at {place}: Connection refused" in run.stderr
    (line,) = document("runs", "list", folder=tmp_path)["runs"]
    shown = remit("runs", "show", line["run"], folder=tmp_path)
    assert f"far at {place}: Connection refused" in shown.stdout, shown.stdout + shown.stderr
