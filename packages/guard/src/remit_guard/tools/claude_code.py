"""Claude Code under the guard: its hooks, its kinds of sub-agents, and the tokens in its transcripts."""

import asyncio
import os
import time
from collections import Counter
from pathlib import Path
from typing import Any, cast
from uuid import uuid4

import msgspec
from msgspec import Struct

from remit.protocol.errors import Fault, RemitError
from remit_guard.service import GuardService
from remit_guard.session import GuardedAgent, GuardedSession
from remit_guard.tokens import TokenUse, day_of, model_name
from remit_guard.tool_use import GuardedUse
from remit_guard.tools.coding_tool import Answering, HookedTool
from remit_guard.tools.json_lines import (
    GrowingFile,
    ToolHook,
    count,
    denied,
    open_file,
    pre_tool_answer,
    settings_of,
    table,
)

# The tool writes a message 30 to 90 ms after its hooks run.
PATIENCE_S = 0.5
_POLL_S = 0.01


class ToolTranscript:
    """The transcript of one agent."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.uses: dict[str, TokenUse] = {}
        """The tokens of each message: the last figures count, since a message is written several times."""
        self.task = ""
        """What the agent was first told."""
        self.is_at_rest = False
        """Whether the last message is one in which the model ends its turn."""
        self.failed: set[str] = set()
        """The uses of tools that were refused, interrupted, or ended in an error."""
        self._tools: set[str] = set()
        self._file = GrowingFile(path)

    @property
    def is_there(self) -> bool:
        """Whether the tool writes it: one that is told not to keep sessions does not."""
        return self._file.is_there

    def read(self) -> None:
        """Read what was added."""
        for entry in self._file.added():
            self._take(entry)

    async def read_up_to(self, tool_call: str) -> None:
        """Read until the message is there that calls a tool, or for a moment."""
        self.read()
        waited = 0.0
        while tool_call and tool_call not in self._tools and waited < PATIENCE_S:
            await asyncio.sleep(_POLL_S)
            waited += _POLL_S
            self.read()

    def _take(self, entry: dict[str, Any]) -> None:
        kind, message = entry.get("type"), table(entry.get("message"))
        if kind in ("user", "assistant"):
            self.is_at_rest = kind == "assistant" and message.get("stop_reason") not in (None, "tool_use")
        if kind == "user" and not self.task:
            self.task = str(message.get("content"))
        content: Any = message.get("content")
        blocks = [table(block) for block in cast("list[Any]", content)] if isinstance(content, list) else []
        results = (block for block in blocks if kind == "user" and block.get("type") == "tool_result")
        self.failed.update(str(each.get("tool_use_id")) for each in results if each.get("is_error") is True)
        usage, name = table(message.get("usage")), message.get("id")
        if message.get("role") != "assistant" or not isinstance(name, str):
            return
        known = self.uses.get(name)
        self.uses[name] = TokenUse(
            day=day_of(entry.get("timestamp")) if known is None else known.day,
            input=count(usage, "input_tokens") + count(usage, "cache_creation_input_tokens"),
            written=count(usage, "cache_creation_input_tokens"),
            output=count(usage, "output_tokens"),
            cached=count(usage, "cache_read_input_tokens"),
            model=model_name("anthropic", message.get("model")),
        )
        self._tools.update(str(block.get("id")) for block in blocks if block.get("type") == "tool_use")


# The longest that a sub-agent waits: an hour for a person. One that wrote nothing for longer has died with its tool.
SILENT_S = 3_600


class AgentNote(Struct, frozen=True, kw_only=True, rename="camel"):
    """What the tool notes of one sub-agent; fields that do not matter here are left out."""

    agent_type: str = "general-purpose"
    description: str = "A sub-agent"
    tool_use_id: str = ""
    """The request that started it."""
    parent_agent_id: str = ""
    """The sub-agent that started it; empty: the session itself."""
    spawn_depth: int = 1
    finished: bool = False


def note_of(folder: Path, agent: str) -> AgentNote | None:
    """Return what is noted of a sub-agent; None: nothing, or nothing that can be read."""
    try:
        with open_file(folder / f"agent-{agent}.meta.json") as file:
            return msgspec.json.decode(file.read(), type=AgentNote)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def transcripts_in(folder: Path) -> list[tuple[str, ToolTranscript]]:
    """Return the transcripts of all sub-agents as far as they are written, by the sub-agents' ids."""
    written = [
        (path.stem.removeprefix("agent-"), ToolTranscript(path)) for path in sorted(folder.glob("agent-*.jsonl"))
    ]
    for _, transcript in written:
        transcript.read()
    return written


def is_running(note: AgentNote | None, transcript: ToolTranscript) -> bool:
    """Return whether a sub-agent is still at work.

    The tool notes the end of each. One that was broken off has no such note, and one that has said its last word may
    get it in a moment.
    """
    if note is None or note.finished or transcript.is_at_rest:
        return False
    try:
        return time.time() - transcript.path.stat().st_mtime < SILENT_S
    except OSError:
        return False


TOOL = "claude-code"
# The tool that starts a sub-agent, under its present and its former name.
SPAWNING = ("Agent", "Task")
# Tools that run a command.
SHELLS = ("Bash", "PowerShell", "Monitor")
# The tool that sends a message to another agent, and wakes one that has ended.
WAKING = "SendMessage"

_NO_TRANSCRIPT = (
    "This session keeps no transcript, so that its tokens cannot be counted, and no sub-agent may start. "
    "Do the task without sub-agents."
)

# Its tools that change files; those of MCP servers may change anything.
EDITING = frozenset({"Edit", "MultiEdit", "Write", "NotebookEdit"})
OF_SERVERS = "mcp__"

HOOKS = (
    ToolHook("SessionStart"),
    ToolHook("UserPromptSubmit"),
    ToolHook("PreToolUse", "Agent|Task|SendMessage", kind="spawn"),
    ToolHook("PreToolUse", "^(?!(Agent|Task|SendMessage)$).*", kind="tool"),
    ToolHook("PostToolUse", "Agent|Task|SendMessage"),
    ToolHook("SubagentStart"),
    ToolHook("SubagentStop"),
    ToolHook("Stop"),
    ToolHook("SessionEnd"),
)


class ClaudeCode(HookedTool):
    """Claude Code: hooks in its settings."""

    name = TOOL
    hooks = HOOKS
    title = "Claude Code"
    command = "claude"
    tried = ("2.1.326",)

    def path(self, project: Path | None) -> Path:
        if project is not None:
            return project / ".claude" / "settings.local.json"
        return Path(os.environ.get("CLAUDE_CONFIG_DIR") or Path.home() / ".claude") / "settings.json"

    def obstacle(self, path: Path, folder: Path) -> str:  # noqa: ARG002 - it holds for all hooks
        for each in (path, path.with_name("settings.json"), self.path(None)):
            if _switches_hooks_off(each):
                return f'{each} switches all hooks off\n→ remove "disableAllHooks" from it'
        return ""

    def answering(self, service: GuardService, user: str) -> Answering:
        hooks = ClaudeCodeHooks(service, user)
        return lambda body: hooks.answer(msgspec.json.decode(body, type=HookEvent))


def _switches_hooks_off(path: Path) -> bool:
    try:
        return settings_of(path.read_text(encoding="utf-8")).get("disableAllHooks") is True
    except (OSError, UnicodeDecodeError, RemitError):  # the tool does not read it either
        return False


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
    source: str = ""
    """Why a session starts: its context may have been compacted while it runs."""


class ClaudeCodeHooks:
    """Answers the hooks of all sessions of Claude Code."""

    def __init__(self, service: GuardService, user: str) -> None:
        self._service = service
        self._user = user
        self._transcripts: dict[str, dict[Path, ToolTranscript]] = {}
        """The transcripts of each open session."""
        self._waking: dict[str, str] = {}
        """The requests that wake sub-agents, by the ids of these."""
        self._woken = Counter[str]()
        """How often each sub-agent was woken."""
        service.when_closed(TOOL, self._forget)

    async def answer(self, event: HookEvent) -> dict[str, Any]:
        """Return the answer to one hook."""
        session = await self._service.session(
            TOOL,
            event.session_id,
            user=self._user,
            task=event.prompt or f"A session in {event.cwd}",
            folder=event.cwd,
            take_up=lambda new: self._take_up(new, event),
        )
        if isinstance(session, Fault):
            return denied(session.message) if event.hook_event_name == "PreToolUse" else {}
        if event.agent_id and event.agent_id not in session.agents and event.hook_event_name != "SubagentStart":
            session.bind(self._noted_request(event), event.agent_id)  # the hook of its start was lost
        match event.hook_event_name:
            case "PreToolUse" if event.tool_name in SPAWNING:
                return await self._spawn(session, event)
            case "PreToolUse" if event.tool_name == WAKING and self._is_asleep(session, event):
                return await self._wake(session, event)
            case "PreToolUse":
                return await self._go_on(session, event)
            case "SubagentStart":
                self._bind(session, event)
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
        given = event.tool_input
        kind = str(given.get("subagent_type") or "general-purpose")
        title, task = str(given.get("description") or "A sub-agent"), str(given.get("prompt") or "")
        return await self._ask(session, event, kind, title, task)

    async def _wake(self, session: GuardedSession, event: HookEvent) -> dict[str, Any]:
        """Ask for a sub-agent that has ended and goes on with a message, as for a new one."""
        note = note_of(self._folder(event), _recipient(event)) or AgentNote()
        self._woken[_recipient(event)] += 1
        # The same message may be sent again: that is no cycle.
        title = f"{note.description} (woken, {self._woken[_recipient(event)]})"
        answer = await self._ask(session, event, note.agent_type, title, str(event.tool_input.get("message") or ""))
        if not answer:
            self._waking[_recipient(event)] = event.tool_use_id
        return answer

    async def _ask(self, session: GuardedSession, event: HookEvent, kind: str, title: str, task: str) -> dict[str, Any]:
        transcript = self._transcript(event)
        await transcript.read_up_to(event.tool_use_id)
        if not transcript.is_there:
            return denied(_NO_TRANSCRIPT)
        self._count_all(session)
        request = event.tool_use_id or uuid4().hex
        refused = await self._service.spawn(session, self._parent(session, event), request, kind, title, task)
        return {} if refused is None else denied(refused)

    async def _go_on(self, session: GuardedSession, event: HookEvent) -> dict[str, Any]:
        """Let an agent use a tool, unless its tokens or its time are over."""
        self._count(session, event)
        agent = self._agent(session, event)
        if agent is session.root or not agent.stopped:
            name, command = event.tool_name, event.tool_input.get("command")
            use = GuardedUse(
                id=event.tool_use_id,
                tool=name,
                arguments=event.tool_input,
                command=command if name in SHELLS and isinstance(command, str) else "",
                changes=name in (*SHELLS, *EDITING) or name.startswith(OF_SERVERS),
            )
            return pre_tool_answer(await session.permit(agent, use))
        return denied(agent.stopped) | {"continue": False, "stopReason": agent.stopped}

    def _started(self, session: GuardedSession, event: HookEvent) -> None:
        """Learn the id of a sub-agent from what its start returned, if its first hook did not tell."""
        self._count(session, event)
        response: object = event.tool_response
        returned = cast("dict[str, Any]", response) if isinstance(response, dict) else {}
        if event.tool_use_id not in session.waiting:
            return
        if event.tool_name in SPAWNING and returned:
            session.bind(event.tool_use_id, str(returned.get("agentId") or event.tool_use_id))
        elif event.tool_name == WAKING and not returned.get("resumedAgentId"):
            session.give_up(event.tool_use_id)

    def _bind(self, session: GuardedSession, event: HookEvent) -> None:
        request = self._waking.pop(event.agent_id, "") or self._noted_request(event)
        if not request:  # the tool has not noted yet which request it is
            kind = [name for name, agent in session.waiting.items() if agent.kind == event.agent_type]
            request = kind[0] if kind else next(iter(session.waiting), "")
        session.bind(request, event.agent_id)

    def _noted_request(self, event: HookEvent) -> str:
        """Return the request that started a sub-agent, as the tool has noted it; empty: it has not."""
        note = note_of(self._folder(event), event.agent_id)
        return "" if note is None else note.tool_use_id

    def _agent(self, session: GuardedSession, event: HookEvent) -> GuardedAgent:
        return session.agents.get(event.agent_id, session.root)

    def _parent(self, session: GuardedSession, event: HookEvent) -> GuardedAgent:
        """Return the agent that starts another; one without a delegation starts it in the name of the session."""
        agent = self._agent(session, event)
        return session.root if agent.ended.is_set() and not agent.stopped else agent

    def _is_asleep(self, session: GuardedSession, event: HookEvent) -> bool:
        """Return whether a message is for a sub-agent of this session that has ended."""
        known = session.agents.get(_recipient(event))
        return known is not None and known.ended.is_set()

    async def _take_up(self, session: GuardedSession, event: HookEvent) -> None:
        """Learn what happened before the guard knew a session: it was begun without it, or the guard was restarted.

        What was spent is charged, and sub-agents that run become delegations again, those above first.
        """
        whole = ToolTranscript(Path(event.transcript_path))
        known = self._transcripts[session.name] = {whole.path: whole}
        whole.read()
        session.count(session.root, whole.uses)
        folder = self._folder(event)
        is_process_new = event.hook_event_name == "SessionStart" and event.source != "compact"
        earlier = [(name, transcript, note_of(folder, name)) for name, transcript in transcripts_in(folder)]
        for name, transcript, note in sorted(earlier, key=lambda each: each[2].spawn_depth if each[2] else 0):
            known[transcript.path] = transcript
            agent = None
            if note is not None and not is_process_new and is_running(note, transcript):
                agent = await self._revive(session, name, note, transcript.task)
            kind = "agent" if note is None else note.agent_type
            session.count(agent or session.settle(name, kind), transcript.uses)

    async def _revive(self, session: GuardedSession, name: str, note: AgentNote, task: str) -> GuardedAgent | None:
        parent = session.agents.get(note.parent_agent_id, session.root)
        if parent.brief is None or parent.ended.is_set():  # it outlived the one that started it
            parent = session.root
        request = note.tool_use_id or name
        refused = await self._service.revive(session, parent, request, note.agent_type, note.description, task)
        return session.bind(request, name) if refused is None else session.settle(name, note.agent_type, refused)

    # ── tokens ────────────────────────────────────────────────────────────────────────────────────────────────────────

    def _count(self, session: GuardedSession, event: HookEvent) -> None:
        transcript = self._transcript(event)
        transcript.read()
        session.count(self._agent(session, event), transcript.uses)

    def _count_all(self, session: GuardedSession) -> None:
        for path, transcript in self._transcripts.get(session.name, {}).items():
            name = path.stem.removeprefix("agent-")
            if session.name == name or name in session.agents:
                transcript.read()
                session.count(session.agents.get(name, session.root), transcript.uses)
                self._end_failed(session, transcript.failed)

    def _end_failed(self, session: GuardedSession, failed: set[str]) -> None:
        """Give up sub-agents whose start was refused by others or interrupted: the tool sends no hook then."""
        for request in failed & session.waiting.keys():
            session.give_up(request)
        for name, agent in session.agents.items():
            if agent.brief is not None and agent.brief.request.correlation in failed:
                session.end(name, "It was broken off.")

    def _transcript(self, event: HookEvent) -> ToolTranscript:
        if not event.agent_id:
            path = Path(event.transcript_path)
        elif event.agent_transcript_path:
            path = Path(event.agent_transcript_path)
        else:
            path = self._folder(event) / f"agent-{event.agent_id}.jsonl"
        return self._transcripts.setdefault(event.session_id, {}).setdefault(path, ToolTranscript(path))

    def _forget(self, session: GuardedSession) -> None:
        """Keep nothing of a session that ends: a guard runs for months."""
        self._transcripts.pop(session.name, None)
        for agent in session.agents:
            self._woken.pop(agent, None)
            self._waking.pop(agent, None)

    def _folder(self, event: HookEvent) -> Path:
        path = Path(event.transcript_path)
        return path.parent / path.stem / "subagents"


def _recipient(event: HookEvent) -> str:
    """Return the agent that a message is for, as the tool has found it by its name."""
    return str(event.tool_input.get("recipient") or event.tool_input.get("to") or "")
