"""The JavaScript SDK as an independent client and server, and hops through everything that speaks A2A here."""

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from a2a_install import HERE as JS
from a2a_install import UnreachableError, install
from a2a_peers import delegated
from a2a_sdk_server import sdk_agent
from a2a_serving import speaking
from remit import Answer, Brief, Code, Hub, Status
from remit_server import connect_a2a
from remit_server.transports.credentials.keys import HubKey
from remit_testing import MemoryStore
from waiting import PATIENCE_S

both = pytest.mark.parametrize("binding", ["JSONRPC", "HTTP+JSON"])
ways = pytest.mark.parametrize("streaming", [True, False], ids=["streamed", "polled"])


@pytest.fixture(scope="module")
def node() -> str:
    try:
        return str(install())
    except UnreachableError as error:
        pytest.skip(f"the JavaScript SDK cannot be installed, because npm reaches no registry: {error}")


async def ran(node: str, url: str, binding: str, *steps: tuple[str, str], **more: Any) -> list[dict[str, Any]]:
    """Have the SDK's client take steps, and return what it heard."""
    given = {"url": url, "binding": binding, "token": "anna-app", "steps": steps} | more
    process = await asyncio.create_subprocess_exec(
        node,
        JS / "client.mjs",
        json.dumps(given),
        cwd=JS,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(PATIENCE_S):
        out, err = await process.communicate()
    assert process.returncode == 0, err.decode()
    return [json.loads(line) for line in out.splitlines()]


@asynccontextmanager
async def js_agent(
    node: str, binding: str, *, streaming: bool = True, relay: dict[str, str] | None = None
) -> AsyncGenerator[tuple[str, asyncio.StreamReader]]:
    """Have the SDK's server serve an agent, and yield its address and what it prints."""
    given = json.dumps({"binding": binding, "streaming": streaming, "relay": relay})
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        node, JS / "server.mjs", given, cwd=JS, stdin=pipe, stdout=pipe, stderr=pipe
    )
    assert process.stdout is not None
    assert process.stdin is not None
    try:
        async with asyncio.timeout(PATIENCE_S):
            url = (await process.stdout.readline()).decode().strip()
        assert url, (await process.communicate())[1].decode()
        yield url, process.stdout
    finally:
        process.stdin.close()
        await process.wait()


def state(task: dict[str, Any]) -> str:
    return task["status"]["state"].removeprefix("TASK_STATE_")


# ── as a client ───────────────────────────────────────────────────────────────────────────────────────────────────────


def a_hub() -> Hub:
    hub = Hub(store=MemoryStore())

    @hub.agent("clerk", description="Sorts – alles.")
    async def clerk(brief: Brief) -> Answer:
        heard = [each.text for each in await brief.history()]
        brief.progress("at it")
        if brief.text == "ask":
            return Answer("Which month?", requires_followup=True)
        if brief.text == "sleep":
            await asyncio.Event().wait()
        return Answer(f"{brief.user}: {' '.join((*heard, brief.text))}")

    assert clerk
    return hub


@both
async def test_its_client_asks_an_agent_of_a_hub(node: str, binding: str) -> None:
    async with speaking(a_hub()) as server:
        sent, *events, found, listed = await ran(
            node, f"{server.address}/a2a/clerk", binding, ("send", "one"), ("stream", "two"), ("get", ""), ("list", "")
        )
    task = sent["task"]
    assert (state(task), task["artifacts"][0]["parts"][0]["text"]) == ("COMPLETED", "anna: one")
    kinds = [next(iter(each["event"])) for each in events]
    assert kinds == ["task", "statusUpdate", "artifactUpdate", "statusUpdate"]
    assert events[2]["event"]["artifactUpdate"]["artifact"]["parts"][0]["text"] == "anna: two"
    assert state(events[-1]["event"]["statusUpdate"]) == "COMPLETED"
    assert found["task"]["id"] == events[0]["event"]["task"]["id"]
    assert (len(listed["list"]["tasks"]), listed["list"]["totalSize"]) == (2, 2)


@both
async def test_its_client_answers_a_question(node: str, binding: str) -> None:
    async with speaking(a_hub()) as server:
        url = f"{server.address}/a2a/clerk"
        question, answer = await ran(node, url, binding, ("send", "ask"), ("send", "+May"))
    assert (state(question["task"]), state(answer["task"])) == ("INPUT_REQUIRED", "COMPLETED")
    assert question["task"]["status"]["message"]["parts"][0]["text"] == "Which month?"
    assert question["task"]["id"] == answer["task"]["id"]
    assert answer["task"]["artifacts"][0]["parts"][0]["text"] == "anna: ask Which month? May"


@both
async def test_its_client_subscribes_cancels_and_knows_our_errors(node: str, binding: str) -> None:
    async with speaking(a_hub()) as server:
        begun, read, ended, again, gone = await ran(
            node, f"{server.address}/a2a/clerk", binding,
            ("send", "sleep"), ("subscribe", ""), ("cancel", ""), ("cancel", ""), ("get", "never"),
        )  # fmt: skip
    assert state(begun["task"]) == "WORKING"
    assert state(read["event"]["task"]) == "WORKING"
    assert state(ended["task"]) == "CANCELED"
    assert again["error"]["name"] == "TaskNotCancelableError"
    assert gone["error"]["name"] == "TaskNotFoundError"


async def test_its_client_verifies_our_signature(node: str) -> None:
    key = HubKey.create(0)
    async with speaking(a_hub(), key=lambda: key) as server:
        from aiohttp import ClientSession

        async with ClientSession(server.address) as session, session.get("/.well-known/jwks.json") as reply:
            (public,) = (await reply.json())["keys"]
        (found,) = await ran(node, f"{server.address}/a2a/clerk", "JSONRPC", ("verify", ""), keys=public)
    assert found == {"verified": "clerk"}


# ── as a server ───────────────────────────────────────────────────────────────────────────────────────────────────────


@both
@ways
async def test_agents_of_a_hub_ask_its_server(node: str, binding: str, streaming: bool) -> None:
    async with js_agent(node, binding, streaming=streaming) as (url, _):
        answer, question, month = await delegated(url, "Sort them", "ask", "May")
    assert answer.result == "Sort them and done"
    assert (question.result, question.requires_followup) == ("Which month?", True)
    assert month.result == "May and done"


@both
@ways
async def test_a_deadline_stops_the_work_on_its_server(node: str, binding: str, streaming: bool) -> None:
    """X6: it knows no deadline; ours stops the work there all the same."""
    async with js_agent(node, binding, streaming=streaming) as (url, out):
        (response,) = await delegated(url, "sleep", deadline_ms=1_500)
        async with asyncio.timeout(PATIENCE_S):
            assert await out.readline() == b"stopped\n"
    assert response.fault is not None
    assert (response.status, response.fault.code) == (Status.TIMEOUT, Code.TIMEOUT)


# ── through both ──────────────────────────────────────────────────────────────────────────────────────────────────────


@both
@ways
async def test_three_hops_lead_through_both_sdks(node: str, binding: str, streaming: bool) -> None:
    """A hub asks the JavaScript SDK's server, whose client asks a hub, which asks a2a-sdk's server."""
    south = Hub(name="south", store=MemoryStore())

    async def clerk(brief: Brief) -> str:
        return f"south({(await brief.delegate('sdk', objective=brief.text)).unwrap()})"

    async with sdk_agent(binding, streaming=streaming) as (sdk_url, executor):
        connect_a2a(south, "sdk", sdk_url)
        south.add("clerk", clerk, may_call=["sdk"])
        async with speaking(south) as server:
            relay = {"url": f"{server.address}/a2a/clerk", "token": "anna-app", "binding": binding}
            async with js_agent(node, binding, streaming=streaming, relay=relay) as (js_url, _):
                (response,) = await delegated(js_url, "Sort them")
    assert response.result == "js(south(Sort them and done))"
    assert len(executor.messages) == 1
