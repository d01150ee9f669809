"""A stand-in for Claude Code, which writes transcripts and sends hooks to a running guard."""

import asyncio
import json
from collections.abc import AsyncGenerator, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from aiohttp import ClientSession, UnixConnector

from remit.ports import Decision
from remit.runtime.approvers import decide
from remit.stores.sqlite import SqliteStore
from remit_guard.daemon import running_guard
from remit_guard.settings import NO_RULES, GuardRules, GuardSettings

SMALL = GuardSettings(tokens=1_000, reserve=100, depth=2, at_once=2, at_limit="stop")


class ClaudeCodeHooking:
    """Writes transcripts and sends hooks as the tool does."""

    def __init__(self, web: ClientSession, home: Path, session: str = "s-1", *, folder: str = "/work") -> None:
        self.web = web
        self.folder = folder
        self.session = session
        self.transcript = home / f"{session}.jsonl"
        self.agents = home / session / "subagents"
        self.agents.mkdir(parents=True, exist_ok=True)
        self.transcript.touch()

    def says(
        self,
        message: str,
        agent: str = "",
        *,
        tool: str = "",
        cached: int = 0,
        ends: bool = False,
        model: str = "claude-scripted",
        counts: tuple[int, int, int] = (15, 5, 10),
    ) -> None:
        """Write a message of the model with 30 tokens: read, written to the cache, and answered."""
        path = self.agents / f"agent-{agent}.jsonl" if agent else self.transcript
        read, written, answered = counts
        usage = {"input_tokens": read, "cache_creation_input_tokens": written, "cache_read_input_tokens": cached}
        content = [{"type": "tool_use", "id": tool}] if tool else [{"type": "text", "text": "…"}]
        entry = {
            "role": "assistant",
            "id": message,
            "model": model,
            "usage": {**usage, "output_tokens": answered},
            "content": content,
        }
        entry["stop_reason"] = "end_turn" if ends else "tool_use"
        with path.open("a") as file:
            file.write(json.dumps({"type": "assistant", "message": entry}) + "\n")

    def fails(self, tool: str) -> None:
        """Write that the use of a tool was refused, interrupted, or ended in an error."""
        result = {"type": "tool_result", "tool_use_id": tool, "is_error": True, "content": "no"}
        with self.transcript.open("a") as file:
            file.write(json.dumps({"type": "user", "message": {"role": "user", "content": [result]}}) + "\n")

    async def hook(self, event: str, agent: str = "", **more: Any) -> dict[str, Any]:
        body = {"session_id": self.session, "transcript_path": str(self.transcript), "cwd": self.folder}
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
            decision = answer["hookSpecificOutput"]
            assert decision["permissionDecision"] == "deny"
            return decision["permissionDecisionReason"]
        self.note(f"a{number}", toolUseId=f"toolu-{number}", description=f"Task {number}", parentAgentId=agent)
        await self.hook("SubagentStart", f"a{number}")
        return None

    async def stop(self, agent: str) -> None:
        """End a sub-agent."""
        await self.hook("SubagentStop", agent, last_assistant_message="done")
        self.note(agent, finished=True)

    async def wake(self, agent: str, request: str) -> str | None:
        """Send a message to a sub-agent, which starts again; return why it may not."""
        self.says(request, tool=request)
        about = {"tool_name": "SendMessage", "tool_use_id": request}
        given = {"to": "worker", "recipient": agent, "message": "Go on"}
        answer = await self.hook("PreToolUse", tool_input=given, **about)
        if answer:
            return answer["hookSpecificOutput"]["permissionDecisionReason"]
        await self.hook("PostToolUse", tool_input=given, tool_response={"resumedAgentId": agent}, **about)
        await self.hook("SubagentStart", agent)
        return None

    def note(self, agent: str, **more: object) -> None:
        """Add to what the tool notes of a sub-agent."""
        path = self.agents / f"agent-{agent}.meta.json"
        known = json.loads(path.read_text()) if path.exists() else {"agentType": "general-purpose"}
        parent = str(more.get("parentAgentId", ""))
        above = json.loads((self.agents / f"agent-{parent}.meta.json").read_text())["spawnDepth"] if parent else 0
        depth = {} if "spawnDepth" in known else {"spawnDepth": above + 1}
        path.write_text(json.dumps({**known, **depth, **{name: each for name, each in more.items() if each}}))


@asynccontextmanager
async def guarding(
    folder: Path, settings: GuardSettings = SMALL, rules: GuardRules = NO_RULES
) -> AsyncGenerator[ClientSession]:
    (folder / "guard").mkdir(exist_ok=True)
    async with (
        running_guard(folder / "guard", lambda _: settings, "ada", rules=rules) as path,
        ClientSession("http://guard", connector=UnixConnector(path=str(path))) as web,
    ):
        yield web


@asynccontextmanager
async def record(folder: Path) -> AsyncGenerator[SqliteStore]:
    """Open the store of the guard beside it, as another process would."""
    store = SqliteStore(folder / "guard" / "hub.db", durability="process")
    await store.open()
    try:
        yield store
    finally:
        await store.close()


async def outcome(folder: Path) -> Any:
    async with record(folder) as store:
        (run, *_) = await store.runs(limit=1)
    assert run.response is not None
    return run.response


async def answered(asking: Coroutine[Any, Any, str | None], folder: Path, text: str, *, agreed: bool) -> str | None:
    """Answer the question with a text that waits for a spawn; return the answer to the spawn."""
    async with record(folder) as store, asyncio.TaskGroup() as tasks:
        spawn = tasks.create_task(asking)
        while not (questions := await store.pending()):
            assert not spawn.done(), spawn.result()
            await asyncio.sleep(0.01)
        assert text in questions[0].text
        await decide(store, questions[0].id, Decision(agreed=agreed, by="ada"))
    return spawn.result()
