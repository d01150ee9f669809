"""Hooks of Claude Code: what it tells of a session, and what it is answered."""

import json
import os
from contextlib import suppress
from pathlib import Path
from typing import Any
from uuid import uuid4

import msgspec
from msgspec import Struct

from remit.guard.service import GuardService
from remit.guard.session import GuardedAgent, GuardedSession
from remit.guard.tools.claude_transcripts import ToolTranscript
from remit.guard.tools.coding_tool import Answering, CodingTool
from remit.guard.tools.hook_files import ToolHook, has_hooks, settings_of, with_hooks, without_hooks, written
from remit.protocol.errors import Fault

TOOL = "claude-code"
# The tool that starts a sub-agent, under its present and its former name.
SPAWNING = ("Agent", "Task")

HOOKS = (
    ToolHook("SessionStart"),
    ToolHook("UserPromptSubmit"),
    ToolHook("PreToolUse", "Agent|Task", is_spawn=True),
    ToolHook("PreToolUse", "^(?!(Agent|Task)$).*"),
    ToolHook("PostToolUse", "Agent|Task"),
    ToolHook("SubagentStart"),
    ToolHook("SubagentStop"),
    ToolHook("Stop"),
    ToolHook("SessionEnd"),
)


class ClaudeCode(CodingTool):
    """Claude Code: hooks in its settings."""

    name = TOOL
    title = "Claude Code"
    command = "claude"
    tried = ("2.1.326",)

    def path(self, project: Path | None) -> Path:
        if project is not None:
            return project / ".claude" / "settings.local.json"
        return Path(os.environ.get("CLAUDE_CONFIG_DIR") or Path.home() / ".claude") / "settings.json"

    def changes(self, path: Path) -> str:
        events = ", ".join(dict.fromkeys(hook.event for hook in HOOKS))
        return f"This adds hooks to {path}: {events}.\nThey ask the guard by curl."

    def put_in(self, text: str | None, folder: Path) -> str:
        return with_hooks(text, folder, TOOL, HOOKS)

    def take_out(self, text: str, folder: Path) -> str | None:
        return written(without_hooks(settings_of(text), folder))

    def is_in(self, text: str, folder: Path) -> bool:
        return has_hooks(text, folder, HOOKS)

    def answering(self, service: GuardService, user: str) -> Answering:
        hooks = ClaudeCodeHooks(service, user)
        return lambda body: hooks.answer(msgspec.json.decode(body, type=HookEvent))


class HookEvent(Struct, frozen=True, kw_only=True):
    """What a hook is told; fields that do not matter here are left out."""

    session_id: str
    hook_event_name: str
    transcript_path: str = ""
    cwd: str = ""
    prompt: str = ""
    agent_id: str = ""
    """The sub-agent that it is about; empty: the session itself."""
    agent_type: str = ""
    agent_transcript_path: str = ""
    last_assistant_message: str = ""
    tool_name: str = ""
    tool_use_id: str = ""
    tool_input: dict[str, Any] = {}
    tool_response: Any = None
    reason: str = ""


class ClaudeCodeHooks:
    """Answers the hooks of all sessions of Claude Code."""

    def __init__(self, service: GuardService, user: str) -> None:
        self._service = service
        self._user = user
        self._transcripts: dict[Path, ToolTranscript] = {}

    async def answer(self, event: HookEvent) -> dict[str, Any]:
        """Return the answer to one hook."""
        is_new = not self._service.is_open(TOOL, event.session_id)
        session = await self._service.session(
            TOOL,
            event.session_id,
            user=self._user,
            task=event.prompt or f"A session in {event.cwd}",
            folder=event.cwd,
        )
        if isinstance(session, Fault):
            return _denied(session.message) if event.hook_event_name == "PreToolUse" else {}
        if is_new:
            self._take_up(session, event)
        match event.hook_event_name:
            case "PreToolUse" if event.tool_name in SPAWNING:
                return await self._spawn(session, event)
            case "PreToolUse":
                return self._go_on(session, event)
            case "SubagentStart":
                self._bind(session, event, self._request_of(event))
            case "PostToolUse":
                self._started(session, event)
            case "SubagentStop":
                self._count(session, event)
                session.end(event.agent_id, event.last_assistant_message)
            case "SessionEnd":
                self._count_all(session)
                await self._service.close(TOOL, event.session_id, event.reason or "ended")
            case _:
                self._count(session, event)
        return {}

    # ── starting ──────────────────────────────────────────────────────────────────────────────────────────────────────

    async def _spawn(self, session: GuardedSession, event: HookEvent) -> dict[str, Any]:
        parent = self._agent(session, event)
        await self._transcript(event).read_up_to(event.tool_use_id)
        self._count_all(session)
        given = event.tool_input
        refused = await self._service.spawn(
            session,
            parent,
            event.tool_use_id or uuid4().hex,
            str(given.get("subagent_type") or "general-purpose"),
            str(given.get("description") or "A sub-agent"),
            str(given.get("prompt") or ""),
        )
        return {} if refused is None else _denied(refused)

    def _go_on(self, session: GuardedSession, event: HookEvent) -> dict[str, Any]:
        """Let an agent use a tool, unless its tokens or its time are over."""
        self._count(session, event)
        agent = self._agent(session, event)
        if agent is session.root or not agent.stopped:
            return {}
        return _denied(agent.stopped) | {"continue": False, "stopReason": agent.stopped}

    def _started(self, session: GuardedSession, event: HookEvent) -> None:
        """Learn the id of a sub-agent from what its start returned, if its first hook did not tell."""
        self._count(session, event)
        returned: Any = event.tool_response
        if event.tool_name in SPAWNING and isinstance(returned, dict) and event.tool_use_id in session.waiting:
            agent = str(returned.get("agentId") or event.tool_use_id)  # pyright: ignore[reportUnknownMemberType, reportUnknownArgumentType]
            session.bind(event.tool_use_id, agent)

    def _bind(self, session: GuardedSession, event: HookEvent, request: str) -> None:
        if request not in session.waiting:
            kind = [name for name, agent in session.waiting.items() if agent.kind == event.agent_type]
            request = kind[0] if kind else next(iter(session.waiting), "")
        session.bind(request, event.agent_id)

    def _request_of(self, event: HookEvent) -> str:
        """Return the request that started a sub-agent, as the tool noted it beside the transcript."""
        with suppress(OSError, ValueError):
            about = self._folder(event) / f"agent-{event.agent_id}.meta.json"
            return str(json.loads(about.read_text(encoding="utf-8")).get("toolUseId", ""))
        return ""

    def _agent(self, session: GuardedSession, event: HookEvent) -> GuardedAgent:
        return session.agents.get(event.agent_id, session.root)

    def _take_up(self, session: GuardedSession, event: HookEvent) -> None:
        """Charge what a session spent before the guard knew it: it was begun without it, or the guard was restarted."""
        earlier = (
            ToolTranscript(path) for path in (Path(event.transcript_path), *sorted(self._folder(event).glob("*.jsonl")))
        )
        for transcript in earlier:
            transcript.read()
            self._transcripts[transcript.path] = transcript
            session.count(session.root, transcript.uses)

    # ── tokens ────────────────────────────────────────────────────────────────────────────────────────────────────────

    def _count(self, session: GuardedSession, event: HookEvent) -> None:
        transcript = self._transcript(event)
        transcript.read()
        session.count(self._agent(session, event), transcript.uses)

    def _count_all(self, session: GuardedSession) -> None:
        for path, transcript in self._transcripts.items():
            name = path.stem.removeprefix("agent-")
            if session.name == name or name in session.agents:
                transcript.read()
                session.count(session.agents.get(name, session.root), transcript.uses)

    def _transcript(self, event: HookEvent) -> ToolTranscript:
        if not event.agent_id:
            path = Path(event.transcript_path)
        elif event.agent_transcript_path:
            path = Path(event.agent_transcript_path)
        else:
            path = self._folder(event) / f"agent-{event.agent_id}.jsonl"
        return self._transcripts.setdefault(path, ToolTranscript(path))

    def _folder(self, event: HookEvent) -> Path:
        return Path(event.transcript_path).with_suffix("") / "subagents"


def _denied(sentence: str) -> dict[str, Any]:
    return {
        "hookSpecificOutput": {
            "hookEventName": "PreToolUse",
            "permissionDecision": "deny",
            "permissionDecisionReason": f"Remit: {sentence}",
        }
    }
