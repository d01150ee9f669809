"""The hooks of Gemini CLI as it sends them, over the socket of a running guard."""

import asyncio
import json
import re
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientSession, UnixConnector

from remit import RemitError
from remit.runtime.agent_status import delegations_of
from remit.stores.sqlite import SqliteStore
from remit_guard.daemon import running_guard
from remit_guard.install import install, is_in, uninstall
from remit_guard.settings import GuardSettings
from remit_guard.tools.gemini_cli import HOOKS, GeminiCli
from waiting import eventually

SMALL = GuardSettings(tokens=1_000, reserve=100, at_once=2, at_limit="stop")
TOOL = GeminiCli()
OTHERS = (
    '{\n    "model": {"name": "pro"},\n\t"hooks": {"AfterAgent": [{"hooks": [{"type": "command", "command": "say"}]}]}}'
)


class GeminiSession:
    """Writes transcripts and sends hooks as the tool does."""

    def __init__(self, web: ClientSession, folder: Path, session: str = "s-1") -> None:
        self.web = web
        self.session = session
        self.transcript = folder / f"session-{session}.jsonl"
        self.agents = folder / session
        self.agents.mkdir(exist_ok=True)

    def write(self, record: dict[str, Any], agent: str = "") -> None:
        path = self.agents / f"{agent}.jsonl" if agent else self.transcript
        with path.open("a") as file:
            file.write(json.dumps(record) + "\n")

    def says(self, message: str, agent: str = "", *, cached: int = 0) -> None:
        """Write a message of the model with 30 tokens that count; with the results of tools it is written again."""
        tokens = {"input": 15 + cached, "output": 5, "cached": cached, "thoughts": 8, "tool": 2, "total": 30 + cached}
        record = {"id": message, "type": "gemini", "content": "", "tokens": tokens}
        self.write(record, agent)
        self.write({**record, "toolCalls": []}, agent)
        self.write({"$set": {"lastUpdated": "now"}}, agent)

    async def hook(self, event: str, **more: Any) -> dict[str, Any]:
        body = {"session_id": self.session, "transcript_path": str(self.transcript), "cwd": "/work"}
        async with self.web.post("/hooks/gemini-cli", json={**body, "hook_event_name": event, **more}) as reply:
            assert reply.status == 200, await reply.text()
            return await reply.json()

    async def spawn(self, agent: str, task: str = "", *, prompt: str = "") -> str | None:
        """Start a sub-agent; return why it may not start."""
        task = task or f"Do {agent}"
        answer = await self.hook("BeforeTool", tool_name="invoke_agent", tool_input=given(task))
        if answer:
            assert answer["decision"] == "deny"
            return answer["reason"]
        self.write({"sessionId": agent, "kind": "subagent"}, agent)
        self.write({"id": f"task-{agent}", "type": "user", "content": [{"text": prompt or task}]}, agent)
        return None

    async def asks(self, begins: str) -> dict[str, Any]:
        """Send a request to the model that begins with a text."""
        return await self.hook("BeforeModel", llm_request={"messages": [{"role": "user", "content": begins}]})

    async def returns(self, task: str) -> dict[str, Any]:
        return await self.hook("AfterTool", tool_name="invoke_agent", tool_input=given(task), tool_response={})


def given(task: str) -> dict[str, str]:
    return {"agent_name": "generalist", "prompt": task}


@asynccontextmanager
async def guarding(folder: Path, settings: GuardSettings = SMALL) -> AsyncGenerator[GeminiSession]:
    (folder / "guard").mkdir(exist_ok=True)
    async with (
        running_guard(folder / "guard", lambda _: settings, "ada") as path,
        ClientSession("http://guard", connector=UnixConnector(path=str(path))) as web,
    ):
        yield GeminiSession(web, folder)


async def outcome(folder: Path) -> tuple[int, dict[str, int]]:
    """Return the tokens of the newest run, and those of each task in it."""
    store = SqliteStore(folder / "guard" / "hub.db", durability="process")
    await store.open()
    try:
        (run, *_) = await store.runs(limit=1)
        delegations = await delegations_of(store, run.run)
    finally:
        await store.close()
    assert run.response is not None
    spent = {each.objective: each.usage.total for each in delegations if each.depth}
    return run.response.usage.total, spent


async def test_sub_agents_at_once_are_told_apart_and_counted_to_the_token(tmp_path: Path) -> None:
    async with guarding(tmp_path) as tool:
        await tool.hook("SessionStart", source="startup")
        await tool.hook("BeforeAgent", prompt="Fix the build")
        tool.says("start")
        assert await tool.spawn("a") is None
        assert await tool.spawn("b", prompt="Investigate this:\nDo b\nThen report.") is None
        tool.says("one", "b", cached=500)
        tool.says("two", "b")
        tool.says("three", "a")
        await tool.returns("Do b")
        await tool.returns("Do a")
        tool.says("end")
        await tool.hook("AfterAgent", prompt="Fix the build", prompt_response="Done.")
        await tool.hook("SessionEnd", reason="exit")
    assert await outcome(tmp_path) == (30 * 5, {"Do a": 30, "Do b": 60})


@pytest.mark.parametrize(
    ("used", "arguments"), [("write_file", {"file_path": "shop.py"}), ("mcp_shop_sell", {"command": 7, "item": "tea"})]
)
async def test_the_same_task_may_be_given_again_after_a_tool_that_may_change_something(
    used: str, arguments: dict[str, Any], tmp_path: Path
) -> None:
    async with guarding(tmp_path) as tool:
        assert await tool.spawn("a", "Run the tests") is None
        await tool.returns("Run the tests")
        assert "CYCLE_DETECTED" in str(await tool.spawn("b", "Run the tests"))
        assert any(re.search(hook.matcher, used) for hook in HOOKS if hook.event == "BeforeTool")
        assert await tool.hook("BeforeTool", tool_name=used, tool_input=arguments) == {}
        assert await tool.spawn("c", "Run the tests") is None


async def test_who_spends_the_last_tokens_gets_no_more_from_the_model_and_nobody_else(tmp_path: Path) -> None:
    async with guarding(tmp_path) as tool:
        assert await tool.spawn("a") is None
        assert await tool.spawn("b") is None
        for number in range(40):
            tool.says(f"much-{number}", "a")
        stopped = await tool.asks("Do a")
        assert stopped["decision"] == "deny"
        assert "Remit: The tokens of this session are spent." in stopped["reason"]
        assert await tool.asks("Do b") == {}
        assert await tool.asks("<session_context>Fix the build") == {}, "the person goes on"
        answer = await tool.returns("Do a")
        assert answer["hookSpecificOutput"]["additionalContext"] == stopped["reason"]
        assert await tool.returns("Do b") == {}
        assert "Remit: TOKEN_BUDGET_EXCEEDED: no tokens are left" in str(await tool.spawn("c"))


async def test_a_sub_agent_that_the_person_declined_frees_its_place_at_the_end_of_the_turn(tmp_path: Path) -> None:
    async with guarding(tmp_path) as tool:
        assert await tool.spawn("a") is None
        assert await tool.spawn("b") is None
        assert "FAN_OUT_EXCEEDED" in str(await tool.spawn("c"))
        await tool.hook("AfterAgent")
        assert await tool.spawn("d") is None


async def test_a_guard_that_was_restarted_knows_what_was_spent_before(tmp_path: Path) -> None:
    async with guarding(tmp_path) as tool:
        assert await tool.spawn("a") is None
        tool.says("one", "a")
    tool.says("two", "a")  # while no guard runs
    async with guarding(tmp_path) as tool:
        tool.says("three", "a")
        assert await tool.asks("Do a") == {}
        assert await tool.returns("Do a") == {}
        tool.write({"$set": {"messages": [{"id": "old", "type": "gemini", "tokens": {"input": 7}}]}})
        assert await tool.spawn("b") is None
        await tool.hook("SessionEnd")
    assert await outcome(tmp_path) == (30 * 3 + 7, {"Do b": 0})


async def test_a_guard_that_is_stopped_while_a_person_is_asked_refuses_and_ends(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "guard" / "hub.db", durability="process")
    connector = UnixConnector(path=str(tmp_path / "guard" / "guard.sock"))
    async with ClientSession("http://guard", connector=connector) as web:
        async with guarding(tmp_path, GuardSettings(tokens=10, reserve=100)):
            await store.open()
            body = {
                "session_id": "s-1",
                "hook_event_name": "BeforeTool",
                "tool_name": "invoke_agent",
                "tool_input": given("Do a"),
            }
            asking = asyncio.create_task(web.post("/hooks/gemini-cli", json=body))
            await eventually(store.pending)
            await store.close()
        assert (await asking).status == 503


@pytest.mark.parametrize("before", [None, "", "{}", OTHERS])
def test_undo_leaves_the_settings_byte_for_byte_as_they_were(before: str | None, tmp_path: Path) -> None:
    path, folder = TOOL.path(tmp_path), tmp_path / "guard"
    if before is not None:
        path.parent.mkdir()
        path.write_bytes(before.encode())
    install(TOOL, path, folder)
    assert is_in(TOOL, path, folder)
    hooks = json.loads(path.read_text())["hooks"]
    assert hooks.keys() == {hook.event for hook in HOOKS}
    assert {each["hooks"][-1]["timeout"] for entries in hooks.values() for each in entries[-1:]} == {10_000, 3_600_000}
    assert uninstall(TOOL, path, folder)
    assert (path.read_bytes().decode() if path.exists() else None) == before


@pytest.mark.parametrize("off", [{"enabled": False}, {"disabled": ["@SCRIPT@ gemini-cli spawn 3540"]}])
def test_settings_that_switch_hooks_off_are_refused(off: dict[str, Any], tmp_path: Path) -> None:
    text = json.dumps({"hooksConfig": off}).replace("@SCRIPT@", f"{tmp_path}/hook.sh")
    with pytest.raises(RemitError, match="switch hooks off"):
        TOOL.put_in(text, tmp_path)
    whole = json.dumps(json.loads(TOOL.put_in(None, tmp_path)) | json.loads(text))
    assert not TOOL.is_in(whole, tmp_path)
    assert TOOL.is_in(TOOL.put_in('{"hooksConfig": {"enabled": true, "disabled": ["mine"]}}', tmp_path), tmp_path)
