"""The hooks of Claude Code as it sends them, over the socket of a running guard."""

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from aiohttp import ClientSession, UnixConnector

from remit.guard.daemon import running_guard
from remit.guard.settings import GuardSettings
from remit.guard.status import asked
from remit.stores.sqlite import SqliteStore

SMALL = GuardSettings(tokens=1_000, reserve=100, depth=2, at_once=2, at_limit="stop")


class ClaudeCode:
    """Writes transcripts and sends hooks as the tool does."""

    def __init__(self, web: ClientSession, folder: Path, session: str = "s-1") -> None:
        self.web = web
        self.session = session
        self.transcript = folder / f"{session}.jsonl"
        self.agents = folder / session / "subagents"
        self.agents.mkdir(parents=True, exist_ok=True)
        self.transcript.touch()

    def says(self, message: str, agent: str = "", *, tool: str = "", cached: int = 0) -> None:
        """Write a message of the model with 30 tokens, as often as it has blocks."""
        path = self.agents / f"agent-{agent}.jsonl" if agent else self.transcript
        usage = {"input_tokens": 15, "cache_creation_input_tokens": 5, "cache_read_input_tokens": cached}
        content = [{"type": "tool_use", "id": tool}] if tool else [{"type": "text", "text": "…"}]
        entry = {"role": "assistant", "id": message, "usage": {**usage, "output_tokens": 10}, "content": content}
        with path.open("a") as file:
            file.write(json.dumps({"type": "assistant", "message": entry}) + "\n")

    async def hook(self, event: str, agent: str = "", **more: Any) -> dict[str, Any]:
        body = {"session_id": self.session, "transcript_path": str(self.transcript), "cwd": "/work"}
        about = {"agent_id": agent, "agent_type": "general-purpose"} if agent else {}
        async with self.web.post(
            "/hooks/claude-code", json={**body, **about, "hook_event_name": event, **more}
        ) as reply:
            assert reply.status == 200, await reply.text()
            return await reply.json()

    async def spawn(self, number: int, agent: str = "") -> str | None:
        """Ask to start a sub-agent, and start it as `a<number>`; return why it may not start."""
        self.says(f"spawn-{number}", agent, tool=f"toolu-{number}")
        given = {"description": f"Task {number}", "prompt": "Do it", "subagent_type": "general-purpose"}
        answer = await self.hook(
            "PreToolUse", agent, tool_name="Agent", tool_use_id=f"toolu-{number}", tool_input=given
        )
        if answer:
            told = answer["hookSpecificOutput"]
            assert told["permissionDecision"] == "deny"
            return told["permissionDecisionReason"]
        (self.agents / f"agent-a{number}.meta.json").write_text(json.dumps({"toolUseId": f"toolu-{number}"}))
        await self.hook("SubagentStart", f"a{number}")
        return None


@asynccontextmanager
async def guarding(folder: Path, settings: GuardSettings = SMALL) -> AsyncGenerator[ClientSession]:
    (folder / "guard").mkdir(exist_ok=True)
    async with (
        running_guard(folder / "guard", lambda _: settings, "ada") as path,
        ClientSession("http://guard", connector=UnixConnector(path=str(path))) as web,
    ):
        yield web


async def outcome(folder: Path) -> Any:
    store = SqliteStore(folder / "guard" / "hub.db", durability="process")
    await store.open()
    try:
        (run, *_) = await store.runs(limit=1)
    finally:
        await store.close()
    assert run.response is not None
    return run.response


async def test_a_session_is_a_run_whose_total_is_that_of_all_transcripts(tmp_path: Path) -> None:
    async with guarding(tmp_path) as web:
        tool = ClaudeCode(web, tmp_path)
        await tool.hook("SessionStart")
        await tool.hook("UserPromptSubmit", prompt="Fix the build")
        assert await tool.spawn(1) is None
        tool.says("one", "a1", cached=500)
        tool.says("one", "a1", cached=500)  # written once for each block
        assert await tool.spawn(2, "a1") is None
        tool.says("two", "a2")
        await tool.hook("SubagentStop", "a2", last_assistant_message="deep")
        await tool.hook("SubagentStop", "a1", last_assistant_message="done")
        tool.says("late", "a1")  # the transcript comes after the hook
        tool.says("end")
        await tool.hook("Stop")
        await tool.hook("SessionEnd", reason="other")
    done = await outcome(tmp_path)
    assert (done.usage.total, done.usage.overrun) == (30 * 6, 0)


async def test_refusals_reach_the_model_and_who_is_out_of_tokens_is_ended(tmp_path: Path) -> None:
    async with guarding(tmp_path) as web:
        tool = ClaudeCode(web, tmp_path)
        assert await tool.spawn(1) is None
        assert await tool.spawn(2, "a1") is None
        refused = await tool.spawn(3, "a2")
        assert refused is not None
        assert refused.startswith("Remit: MAX_DEPTH_EXCEEDED: Delegation depth limit reached (2/2).")
        assert await tool.hook("PreToolUse", "a1", tool_name="Bash", tool_use_id="t", tool_input={}) == {}
        for number in range(40):
            tool.says(f"much-{number}", "a1")
        stop = await tool.hook("PreToolUse", "a1", tool_name="Bash", tool_use_id="u", tool_input={})
        assert stop["continue"] is False
        assert "tokens of this session are spent" in stop["stopReason"]
        assert await tool.hook("PreToolUse", tool_name="Bash", tool_use_id="v", tool_input={}) == {}, (
            "the person goes on"
        )
        assert "TOKEN_BUDGET_EXCEEDED: no tokens are left" in str(await tool.spawn(4))
        await tool.hook("SessionEnd")


async def test_a_guard_that_was_restarted_knows_what_was_spent_before(tmp_path: Path) -> None:
    async with guarding(tmp_path) as web:
        tool = ClaudeCode(web, tmp_path)
        assert await tool.spawn(1) is None
        for number in range(10):
            tool.says(f"much-{number}", "a1")
        await tool.hook("Stop")
    async with guarding(tmp_path) as web:
        tool = ClaudeCode(web, tmp_path)
        assert await tool.spawn(2) is None
        await tool.hook("SessionEnd")
    done = await outcome(tmp_path)
    assert done.usage.total == 30 * 12


async def test_what_is_no_event_is_refused_and_the_status_counts_the_others(tmp_path: Path) -> None:
    async with guarding(tmp_path) as web:
        for body, status in ((b"{}", 400), (b"not json", 400), (b'{"session_id": 1, "hook_event_name": "Stop"}', 400)):
            async with web.post("/hooks/claude-code", data=body) as reply:
                assert reply.status == status
        async with web.post("/hooks/emacs", data=b"{}") as reply:
            assert reply.status == 404
        await ClaudeCode(web, tmp_path).hook("SessionStart")
        told = await asyncio.to_thread(asked, tmp_path / "guard")
    assert told is not None
    assert (told.hooks, len(told.sessions)) == ({"claude-code": 1}, 1)
    assert await asyncio.to_thread(asked, tmp_path / "nowhere") is None
