"""What models reply is recorded and replayed, whichever client asks them, and streams too."""

import asyncio
import json
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import httpx2
import pytest
from openai import AsyncOpenAI, OpenAI

from openai_server import OpenAIServer, Reply, Request, Scripted, Status, call, calls, say
from planted import planted
from remit import Brief, Hub
from remit.hub.recording.files import RecordedReply, read_recording
from remit.hub.recording.http import joined
from remit_models import ModelAgent
from remit_testing import MemoryStore

NOBODY = "http://127.0.0.1:9/v1"


def team(url: str, prompt: str = "Sort receipts.") -> Hub:
    hub = Hub(store=MemoryStore())
    hub.tool("look_up", safe_to_repeat=True)(look_up)
    hub.add("clerk", ModelAgent("m", base_url=url, api_key="sk-secret-of-clerk"), description="Files.")
    boss = ModelAgent("m", base_url=url, api_key="sk-secret-of-boss", prompt=prompt)
    hub.add("boss", boss, tools=["look_up"], may_call=["clerk"])
    return hub


def look_up(key: str) -> str:
    """Look something up."""
    return f"{key}: Anna, anna@example.org"


def report(request: Request) -> Reply:
    return say(f"Done: {json.loads(request.results[-1])['output']}")


SCRIPT: list[Scripted] = [
    calls(("look_up", {"key": "tea"}), ("look_up", {"key": "coffee"})),
    Status(503),
    call("sub_agent", agent_name="clerk", task="File the receipt of anna@example.org"),
    say("Filed.", pieces=("Fi", "led", ".")),
    report,
]


async def record(path: Path, text: str = "Sort for carla@example.org") -> str:
    with OpenAIServer(SCRIPT) as server:
        async with team(server.base_url) as hub, hub.record(path):
            return (await hub.ask("boss", text, user="u")).unwrap()


async def test_models_and_tools_give_the_recorded_replies_without_a_network(tmp_path: Path) -> None:
    answer = await record(tmp_path / "r.jsonl")
    async with team(NOBODY) as hub, hub.replay(tmp_path / "r.jsonl") as replay:
        again = (await hub.ask("boss", "Sort for dora@example.org", user="u")).unwrap()
    replay.check()
    assert answer == again == "Done: Filed."
    replies = read_recording(tmp_path / "r.jsonl").replies
    # The failed attempt is not kept: a replay does not wait for another one.
    assert [(each.agent, each.at, each.kind, each.call) for each in replies] == [
        ("boss", "", "model", 1),
        ("boss", "", "tool", 1),
        ("boss", "", "tool", 2),
        ("boss", "", "model", 2),
        ("clerk", "3", "model", 1),
        ("boss", "", "model", 3),
    ]


async def test_a_changed_prompt_is_pointed_at_by_the_name_of_its_agent(tmp_path: Path) -> None:
    await record(tmp_path / "r.jsonl")
    async with team(NOBODY, "Arrange receipts.") as hub, hub.replay(tmp_path / "r.jsonl") as replay:
        response = await hub.ask("boss", "Sort for carla@example.org", user="u")
    assert [str(each) for each in replay.differences] == [
        "boss's 1st call of its model: `messages[0].content`: 'Sort receipts.' became 'Arrange receipts.'"
    ]
    assert not response.ok


async def test_a_changed_prompt_can_be_tried_on_the_real_model(tmp_path: Path) -> None:
    await record(tmp_path / "r.jsonl")
    with OpenAIServer([say("Arranged.")]) as server:
        hub = team(server.base_url, "Arrange receipts.")
        async with hub, hub.replay(tmp_path / "r.jsonl", new="ask") as replay:
            response = await hub.ask("boss", "Sort for carla@example.org", user="u")
    assert (response.result, len(server.requests), replay.asked) == ("Arranged.", 1, 1)
    assert replay.differences[0].field == "body.messages[0].content"


async def test_no_key_header_or_planted_value_is_in_the_file(tmp_path: Path) -> None:
    values = planted()[:40]
    await record(tmp_path / "r.jsonl", "; ".join(values))
    text = (tmp_path / "r.jsonl").read_text()
    assert [value for value in values if value in text] == []
    for secret in ("sk-secret", "authorization", "Bearer", "anna@", "user-agent"):
        assert secret.lower() not in text.lower()


async def test_a_streamed_reply_is_kept_as_a_text_that_can_be_read(tmp_path: Path) -> None:
    await record(tmp_path / "r.jsonl")
    [clerk] = [each for each in read_recording(tmp_path / "r.jsonl").replies if each.agent == "clerk"]
    assert '"content":"Filed."' in json.dumps(clerk.reply, separators=(",", ":"))


def test_pieces_of_a_stream_are_joined_and_a_placeholder_is_not_cut_in_two() -> None:
    def chunk(**delta: Any) -> dict[str, Any]:
        return {"data": {"choices": [{"delta": delta, "index": 0}], "created": 1}}

    events = [
        chunk(role="assistant", content=""),
        chunk(content="to [EM"),
        chunk(content="AIL:bbbbbbbbbbbb]"),
        chunk(tool_calls=[{"index": 0, "id": "c", "function": {"name": "f", "arguments": "{"}}]),
        chunk(tool_calls=[{"index": 0, "function": {"arguments": "}"}}]),
        {"data": "[DONE]"},
    ]
    assert joined(list(events)) == [
        chunk(role="assistant", content="to [EMAIL:bbbbbbbbbbbb]"),
        chunk(tool_calls=[{"index": 0, "id": "c", "function": {"name": "f", "arguments": "{}"}}]),
        {"data": "[DONE]"},
    ]


def clients() -> list[tuple[str, Callable[[str], Any]]]:
    """The ways in which agents' code asks over HTTP: two libraries and a provider's client, in the loop or a thread."""
    body = {"model": "m", "messages": [{"role": "user", "content": "hello"}]}

    def by_httpx(url: str) -> Any:
        def agent(brief: Brief) -> str:
            reply = httpx.post(f"{url}/chat/completions?api_key=sk-x", json=body)
            return reply.json()["choices"][0]["message"]["content"]

        return agent

    def by_httpx2(url: str) -> Any:
        async def agent(brief: Brief) -> str:
            async with httpx2.AsyncClient() as client:
                reply = await client.post(f"{url}/chat/completions", json=body)
            return reply.json()["choices"][0]["message"]["content"]

        return agent

    def by_openai(url: str) -> Any:
        async def agent(brief: Brief) -> str:
            async with AsyncOpenAI(base_url=url, api_key="sk-x") as client:
                completions: Any = client.chat.completions
                chunks = await completions.create(**body, stream=True)
                return "".join([chunk.choices[0].delta.content or "" async for chunk in chunks if chunk.choices])

        return agent

    def by_openai_in_a_thread(url: str) -> Any:
        def ask() -> str:
            with OpenAI(base_url=url, api_key="sk-x") as client:
                completions: Any = client.chat.completions
                reply = completions.create(**body)
            return reply.choices[0].message.content or ""

        async def agent(brief: Brief) -> str:
            return await asyncio.to_thread(ask)

        return agent

    return [(each.__name__, each) for each in (by_httpx, by_httpx2, by_openai, by_openai_in_a_thread)]


@pytest.mark.parametrize(("name", "agent"), clients(), ids=[name for name, _ in clients()])
async def test_whatever_asks_over_http_is_recorded(tmp_path: Path, name: str, agent: Callable[[str], Any]) -> None:
    path = tmp_path / "r.jsonl"
    with OpenAIServer([say("Hello to you.")]) as server:
        hub = Hub(store=MemoryStore())
        hub.add(name, agent(server.base_url))
        async with hub, hub.record(path) as recorder:
            assert (await hub.ask(name, "go", user="u")).result == "Hello to you."
    assert recorder.unrecorded == []
    assert "sk-x" not in path.read_text()
    hub = Hub(store=MemoryStore())
    hub.add(name, agent(NOBODY))
    async with hub, hub.replay(path) as replay:
        assert (await hub.ask(name, "go", user="u")).result == "Hello to you."
    replay.check()


async def test_a_refusal_of_a_provider_is_replayed(tmp_path: Path) -> None:
    with OpenAIServer([Status(401, message="wrong key")]) as server:
        async with team(server.base_url) as hub, hub.record(tmp_path / "r.jsonl"):
            first = await hub.ask("boss", "go", user="u")
    async with team(NOBODY) as hub, hub.replay(tmp_path / "r.jsonl") as replay:
        second = await hub.ask("boss", "go", user="u")
    replay.check()
    assert first.fault is not None
    assert second.fault is not None
    assert first.fault.message == second.fault.message


async def test_calls_at_the_same_time_get_their_own_replies_whichever_comes_first(tmp_path: Path) -> None:
    """The model answers in the order of arrival; a replay has another order."""

    def crowd(url: str, order: list[int]) -> Hub:
        hub = Hub(store=MemoryStore())
        hub.add("clerk", ModelAgent("m", base_url=url, api_key="k"))

        @hub.agent("boss", may_call=["clerk"])
        async def boss(brief: Brief) -> object:
            async def later(number: int) -> object:
                return (await brief.delegate("clerk", objective=f"count to {number}")).result

            return dict(zip(map(str, order), await asyncio.gather(*map(later, order)), strict=True))

        @hub.agent("direct")
        async def direct(brief: Brief) -> object:
            async def ask(number: int) -> str:
                async with AsyncOpenAI(base_url=url, api_key="k") as client:
                    messages: Any = [{"role": "user", "content": f"count to {number}"}]
                    reply = await client.chat.completions.create(model="m", messages=messages)
                return reply.choices[0].message.content or ""

            return dict(zip(map(str, order), await asyncio.gather(*map(ask, order)), strict=True))

        return hub

    def echo(request: Any) -> Reply:
        return say(request.messages[-1]["content"].splitlines()[-1])

    path = tmp_path / "r.jsonl"
    with OpenAIServer(echo) as server:
        async with crowd(server.base_url, [1, 2, 3]) as hub, hub.record(path):
            first = [(await hub.ask(agent, "go", user="u")).result for agent in ("boss", "direct")]
    async with crowd(NOBODY, [1, 2, 3]) as hub, hub.replay(path) as replay:
        again = [(await hub.ask(agent, "go", user="u")).result for agent in ("boss", "direct")]
    replay.check()
    assert first == again
    async with crowd(NOBODY, [3, 1, 2]) as hub, hub.replay(path) as replay:
        other = await hub.ask("direct", "go", user="u")
    assert other.result == {number: f"count to {number}" for number in ("3", "1", "2")}


def test_the_last_line_of_the_file_is_the_answer(tmp_path: Path) -> None:
    asyncio.run(record(tmp_path / "r.jsonl"))
    recording = read_recording(tmp_path / "r.jsonl")
    assert recording.answers[1].result == "Done: Filed."
    assert all(isinstance(each, RecordedReply) for each in recording.replies)


async def test_an_agent_opens_no_connection_in_a_replay_and_one_that_is_not_recorded_is_named(tmp_path: Path) -> None:
    refusals: list[str] = []

    def team() -> Hub:
        hub = Hub(store=MemoryStore())

        @hub.agent("a")
        def a(brief: Brief) -> str:
            with socket.socket(socket.AF_UNIX) as sock:
                try:
                    sock.connect(str(tmp_path / "nobody"))
                except OSError as error:
                    refusals.append(str(error))
            return "done"

        return hub

    async with team() as hub, hub.record(tmp_path / "r.jsonl") as recorder:
        await hub.ask("a", "go", user="u")
    opened = f"a opens a connection to {tmp_path / 'nobody'}"
    expected = f"{opened}, which a recording does not hold: send with httpx, or let a tool do it"
    assert [str(each) for each in recorder.unrecorded] == [expected]
    async with team() as hub, hub.replay(tmp_path / "r.jsonl") as replay:
        await hub.ask("a", "go", user="u")
    assert [str(each) for each in replay.differences] == [expected]
    assert [text.startswith("no connection to ") for text in refusals] == [False, True]
