"""Gemini CLI under the guard: its hooks, and the tokens in its transcripts."""

import os
import re
from pathlib import Path
from typing import Any, cast
from uuid import uuid4

import msgspec
from msgspec import Struct

from remit.protocol.errors import Code, Fault, RemitError, fault
from remit_guard.service import GuardService
from remit_guard.session import GuardedSession
from remit_guard.tokens import TokenUse, day_of, model_name
from remit_guard.tool_use import GuardedUse
from remit_guard.tools.coding_tool import Answering, HookedTool
from remit_guard.tools.json_lines import (
    GrowingFile,
    ToolHook,
    count,
    settings_of,
    table,
)


class GeminiTranscript:
    """The transcript of a session or of a sub-agent, which the tool writes before it runs its hooks."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.task_text = ""
        """The first text of the user: the task of a sub-agent."""
        self._file = GrowingFile(path)

    def read(self) -> dict[str, TokenUse]:
        """Read what was added; return the tokens of each message in it."""
        uses = dict[str, TokenUse]()
        for entry in self._file.added():
            self._take(entry, uses)
        return uses

    def _take(self, entry: dict[str, Any], uses: dict[str, TokenUse]) -> None:
        # A line can bring messages again, for instance after history was shortened.
        again: Any = table(entry.get("$set")).get("messages")
        for each in cast("list[object]", again) if isinstance(again, list) else ():
            self._take(table(each), uses)
        match entry.get("type"):
            case "user":
                self.task_text = self.task_text or text_of(entry.get("content"))
            case "gemini" if entry.get("tokens"):
                uses[str(entry.get("id"))] = _use(table(entry.get("tokens")), entry)
            case _:
                pass


def _use(tokens: dict[str, Any], entry: dict[str, Any]) -> TokenUse:
    cached = count(tokens, "cached")  # `input` has these too
    return TokenUse(
        input=max(0, count(tokens, "input") - cached) + count(tokens, "tool"),
        output=count(tokens, "output") + count(tokens, "thoughts"),
        cached=cached,
        day=day_of(entry.get("timestamp")),
        model=model_name("google", entry.get("model")),
    )


def text_of(content: object) -> str:
    """Return the text of a message, as the tool joins it for its hooks."""
    if isinstance(content, list):
        return "".join(text_of(part) for part in cast("list[object]", content))
    text = content if isinstance(content, str) else table(content).get("text")
    return text if isinstance(text, str) else ""


TOOL = "gemini-cli"
SPAWNING = "invoke_agent"
# The tool that runs a command.
SHELL = "run_shell_command"
# The tools that change files; those of MCP servers may change anything.
EDITING = ("write_file", "replace")
OF_SERVERS = "mcp_"
TITLE_CHARACTERS = 100
_COMMENT = re.compile(r'(?P<string>"(?:\\.|[^"\\])*")|//[^\n]*|/\*.*?\*/', re.DOTALL)

HOOKS = (
    ToolHook("SessionStart"),
    ToolHook("BeforeAgent"),
    ToolHook("BeforeModel"),
    ToolHook("BeforeTool", f"^{SPAWNING}$", kind="spawn"),
    ToolHook("BeforeTool", f"^(?!{SPAWNING}$)", kind="tool"),
    ToolHook("AfterTool", f"^{SPAWNING}$"),
    ToolHook("AfterAgent"),
    ToolHook("SessionEnd"),
)


class GeminiCli(HookedTool):
    """Gemini CLI: hooks in its settings."""

    name = TOOL
    hooks = HOOKS
    second = 1_000
    title = "Gemini CLI"
    command = "gemini"
    tried = ("0.61.0",)

    def path(self, project: Path | None) -> Path:
        above = project or Path(os.environ.get("GEMINI_CLI_HOME") or Path.home())
        return above / ".gemini" / "settings.json"

    def changes(self, path: Path) -> str:
        return f"{super().changes(path)} Gemini CLI runs hooks only in folders that you trust."

    def put_in(self, text: str | None, folder: Path) -> str:
        if not _runs_hooks(settings_of(text), folder):
            raise RemitError(
                fault(
                    Code.INPUT_VALIDATION_FAILED,
                    "the settings switch hooks off",
                    suggestion='Remove "enabled" and "disabled" from "hooksConfig".',
                )
            )
        return super().put_in(text, folder)

    def is_in(self, text: str, folder: Path) -> bool:
        plain = _without_comments(text)
        return super().is_in(plain, folder) and _runs_hooks(settings_of(plain), folder)

    def answering(self, service: GuardService, user: str) -> Answering:
        hooks = GeminiCliHooks(service, user)
        return lambda body: hooks.answer(msgspec.json.decode(body, type=GeminiEvent))


def _without_comments(text: str) -> str:
    """Return settings without the comments that the tool allows in them."""
    return _COMMENT.sub(lambda match: match["string"] or " ", text)


def _runs_hooks(settings: dict[str, Any], folder: Path) -> bool:
    match settings.get("hooksConfig"):
        case {"enabled": False}:
            return False
        case {"disabled": [*names]}:
            return not any(str(folder) in str(name) for name in names)
        case _:
            return True


class GeminiText(Struct, frozen=True):
    """A message to the model; its text alone."""

    content: str = ""


class GeminiRequest(Struct, frozen=True):
    """A request to the model."""

    messages: list[GeminiText] = []


class GeminiToolInput(Struct, frozen=True):
    """What the tool is given that starts a sub-agent."""

    agent_name: str = "agent"
    prompt: str = ""


class GeminiEvent(Struct, frozen=True, kw_only=True):
    """What a hook is told; fields that do not matter here are left out."""

    session_id: str
    hook_event_name: str
    transcript_path: str = ""
    cwd: str = ""
    prompt: str = ""
    tool_name: str = ""
    tool_input: dict[str, Any] = {}
    llm_request: GeminiRequest = GeminiRequest()
    reason: str = ""

    def given(self) -> GeminiToolInput:
        """Return what the tool is given that starts a sub-agent."""
        return msgspec.convert(self.tool_input, GeminiToolInput)


class GeminiSubagents:
    """The sub-agents of one session, told apart by their tasks; the guard names them itself."""

    def __init__(self) -> None:
        self._started: dict[str, GeminiToolInput] = {}
        self._transcripts: dict[Path, tuple[str, GeminiTranscript]] = {}
        """Transcripts with the sub-agents that write them; empty: the session, or one that the guard did not allow."""

    def add(self, name: str, given: GeminiToolInput) -> None:
        """Note that a sub-agent may start."""
        self._started[name] = given

    def named(self, given: GeminiToolInput) -> str:
        """Return the sub-agent that was started last with this task; empty: none."""
        return next((name for name, each in reversed(self._started.items()) if each == given), "")

    def asking(self, request: GeminiRequest) -> str:
        """Return the sub-agent that sends a request; empty: the session itself, or one that is not known."""
        begins = request.messages[0].content if request.messages else ""
        return next((name for name, each in self._transcripts.values() if name and each.task_text == begins), "")

    def count(self, session: GuardedSession, path: Path) -> None:
        """Charge what the transcripts of a session tell to those who spent it."""
        for each in (path, *sorted((path.parent / session.name).glob("*.jsonl"))):
            name, transcript = self._transcripts.get(each, ("", GeminiTranscript(each)))
            uses = transcript.read()
            if each not in self._transcripts and transcript.task_text:
                name = self._writer(transcript.task_text) if each != path else ""
                self._transcripts[each] = name, transcript
            session.count(session.agents.get(name, session.root), uses)

    def _writer(self, task_text: str) -> str:
        """Return the sub-agent whose task a text has, and that writes no transcript yet."""
        known = {name for name, _ in self._transcripts.values()}
        tasks = {name: given.prompt for name, given in self._started.items() if name not in known}
        same = (name for name, task in tasks.items() if task == task_text)
        # Some kinds of sub-agents put words of their own around the task.
        return next(same, "") or next((name for name, task in tasks.items() if task in task_text), "")


class GeminiCliHooks:
    """Answers the hooks of all sessions of Gemini CLI."""

    def __init__(self, service: GuardService, user: str) -> None:
        self._service = service
        self._user = user
        self._sessions: dict[str, GeminiSubagents] = {}
        service.when_closed(TOOL, lambda session: self._sessions.pop(session.name, None))

    async def answer(self, event: GeminiEvent) -> dict[str, Any]:
        """Return the answer to one hook."""
        name = event.session_id
        task = event.prompt or f"A session in {event.cwd}"
        session = await self._service.session(TOOL, name, user=self._user, task=task, folder=event.cwd)
        if isinstance(session, Fault):
            return _denied(session.message) if event.hook_event_name == "BeforeTool" else {}
        agents = self._sessions.setdefault(name, GeminiSubagents())
        agents.count(session, Path(event.transcript_path))
        match event.hook_event_name:
            case "BeforeTool" if event.tool_name == SPAWNING:
                return await self._spawn(session, agents, event.given())
            case "BeforeTool":
                return await self._use(session, event)
            case "BeforeModel":
                agent = session.agents.get(agents.asking(event.llm_request))
                return {} if agent is None or not agent.stopped else _denied(agent.stopped)
            case "AfterTool":
                return self._ended(session, agents.named(event.given()))
            case "BeforeAgent" | "AfterAgent":  # none outlives the turn in which it was started
                for each in session.agents:
                    session.end(each, "It did not start, or was cancelled.")
            case "SessionEnd":
                await self._service.close(TOOL, name, event.reason or "ended")
            case _:
                pass
        return {}

    async def _spawn(self, session: GuardedSession, agents: GeminiSubagents, given: GeminiToolInput) -> dict[str, Any]:
        name = uuid4().hex
        title = " ".join(given.prompt[:TITLE_CHARACTERS].split())
        refused = await self._service.spawn(session, session.root, name, given.agent_name, title, given.prompt)
        if refused is not None:
            return _denied(refused)
        session.bind(name, name)
        agents.add(name, given)
        return {}

    async def _use(self, session: GuardedSession, event: GeminiEvent) -> dict[str, Any]:
        """Judge the use of another tool; the tool does not tell whose it is, so it is the session's."""
        name, command = event.tool_name, event.tool_input.get("command")
        use = GuardedUse(
            tool=name,
            arguments=event.tool_input,
            command=command if name == SHELL and isinstance(command, str) else "",
            changes=name in (SHELL, *EDITING) or name.startswith(OF_SERVERS),
        )
        verdict = await session.permit(session.root, use)
        if verdict.refused:
            return _denied(verdict.refused)
        if verdict.arguments is None:
            return {}
        return {"hookSpecificOutput": {"hookEventName": "BeforeTool", "tool_input": verdict.arguments}}

    def _ended(self, session: GuardedSession, name: str) -> dict[str, Any]:
        session.end(name, "")
        agent = session.agents.get(name)
        if agent is None or not agent.stopped:
            return {}
        # The tool tells its model only that the sub-agent did not complete its task.
        return {"hookSpecificOutput": {"hookEventName": "AfterTool", "additionalContext": f"Remit: {agent.stopped}"}}


def _denied(sentence: str) -> dict[str, Any]:
    return {"decision": "deny", "reason": f"Remit: {sentence}"}
