"""Events of OpenCode: what its plugin tells of a session, and what it is answered."""

import json
import os
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from remit.protocol.errors import Fault
from remit_guard.places import judged_of, socket_of
from remit_guard.service import GuardService
from remit_guard.session import GuardedAgent, GuardedSession
from remit_guard.tokens import TokenUse, day_of
from remit_guard.tool_use import GuardedUse
from remit_guard.tools.coding_tool import Answering, CodingTool

TOOL = "opencode"
PLUGIN = "remit-guard.js"
SHELL = "bash"
# Its tools that change nothing; those of MCP servers may change anything, and have no mark in their names.
READING = frozenset(
    {"codesearch", "glob", "grep", "invalid", "list", "lsp", "question", "read", "skill", "todoread", "todowrite"}
    | {"webfetch", "websearch"}
)


class OpenCode(CodingTool):
    """OpenCode: a plugin of our own, in a file of its own."""

    name = TOOL
    title = "OpenCode"
    tried = ("1.18.18", "1.18.33")

    def path(self, project: Path | None) -> Path:
        if project is not None:
            return project / ".opencode" / "plugin" / PLUGIN
        return Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "opencode" / "plugin" / PLUGIN

    def changes(self, path: Path) -> str:
        return f"This writes a plugin to {path}."

    def put_in(self, text: str | None, folder: Path) -> str:  # noqa: ARG002 - the file is ours alone
        plugin = files("remit_guard.tools").joinpath("opencode_plugin.js").read_text(encoding="utf-8")
        plugin = plugin.replace('"@JUDGED@"', json.dumps(str(judged_of(folder))))
        return plugin.replace('"@SOCKET@"', json.dumps(str(socket_of(folder))))

    def take_out(self, text: str, folder: Path) -> str | None:  # noqa: ARG002 - whoever changed it may want it
        return None

    def is_in(self, text: str, folder: Path) -> bool:
        return text == self.put_in(None, folder)

    def answering(self, service: GuardService, user: str) -> Answering:
        events = OpenCodeEvents(service, user)
        return lambda body: events.answer(msgspec.json.decode(body, type=PluginEvent))


class PluginEvent(Struct, frozen=True, kw_only=True):
    """What the plugin tells; which fields are set depends on `event`."""

    event: Literal["call", "created", "deleted", "ended", "idle", "message", "spawn", "tool"]
    session: str
    """A session of OpenCode: each sub-agent has one of its own."""
    root: str = ""
    """The session of the user that it belongs to; empty: it is that one."""
    parent: str = ""
    directory: str = ""
    message: str = ""
    tokens: TokenUse = TokenUse()
    model: str = ""
    at_ms: float = 0
    """When the message was made."""
    call: str = ""
    kind: str = ""
    title: str = ""
    task: str = ""
    resumes: str = ""
    """The session of a sub-agent that is to go on, where no new one is wanted."""
    tool: str = ""
    arguments: dict[str, Any] = {}


class OpenCodeEvents:
    """Answers the plugin of all sessions of OpenCode."""

    def __init__(self, service: GuardService, user: str) -> None:
        self._service = service
        self._user = user
        self._calls: dict[str, list[str]] = {}
        """The calls of each session that may start a sub-agent and have not done so, oldest first."""
        self._untold: set[str] = set()
        """Sessions that are new here, and whose earlier spending was not asked for."""
        service.when_closed(TOOL, self._forget)

    def _forget(self, session: GuardedSession) -> None:
        self._untold.discard(session.name)
        for each in (session.name, *session.agents):
            self._calls.pop(each, None)

    async def answer(self, event: PluginEvent) -> dict[str, Any]:
        """Return the answer to one event; `is_new` asks for all that was spent in the session before."""
        root = event.root or event.session
        is_new = not self._service.is_open(TOOL, root)
        if event.event in ("ended", "deleted") and (is_new or event.session == root):
            await self._service.close(TOOL, root, event.event)
            return {}
        if is_new:
            self._untold.add(root)
        task = f"A session in {event.directory or 'OpenCode'}"
        session = await self._service.session(TOOL, root, user=self._user, task=task, folder=event.directory)
        if isinstance(session, Fault):
            return {"refused": session.message}
        answer = await self._answer(session, event)
        if root not in self._untold:
            return answer
        if event.event not in ("spawn", "tool"):  # the plugin tells what was spent after events that only meter
            self._untold.discard(root)
        return {**answer, "is_new": True}

    async def _answer(self, session: GuardedSession, event: PluginEvent) -> dict[str, Any]:
        agent = session.agents.get(event.session, session.root)
        match event.event:
            case "created":
                if event.session not in session.agents and (calls := self._calls.get(event.parent)):
                    session.bind(calls.pop(0), event.session)
            case "message":
                session.count(
                    agent, {event.message: replace(event.tokens, day=day_of(event.at_ms or None), model=event.model)}
                )
            case "call":
                return {"stopped": "" if agent is session.root else agent.stopped}
            case "tool":
                return await self._use(session, agent, event)
            case "spawn":
                return await self._spawn(session, agent, event)
            case "idle" | "deleted" | "ended":
                session.end(event.session, "")
                for call in self._calls.pop(event.session, ()):
                    session.bind(call, call)
                    session.end(call, "It did not start.")
        return {}

    async def _use(self, session: GuardedSession, agent: GuardedAgent, event: PluginEvent) -> dict[str, Any]:
        command = event.arguments.get("command")
        use = GuardedUse(
            id=event.call,
            tool=event.tool,
            arguments=event.arguments,
            command=command if event.tool == SHELL and isinstance(command, str) else "",
            changes=event.tool not in READING,
        )
        verdict = await session.permit(agent, use)
        changed = {} if verdict.arguments is None else {"arguments": verdict.arguments}
        return {"refused": verdict.refused, **changed}

    async def _spawn(self, session: GuardedSession, agent: GuardedAgent, event: PluginEvent) -> dict[str, Any]:
        if event.call in self._calls.get(event.session, ()):  # the plugin is there for the user and for the project
            return {}
        refused = await self._service.spawn(session, agent, event.call, event.kind, event.title, event.task)
        if refused is not None:
            return {"refused": refused}
        if event.resumes in session.agents:
            session.bind(event.call, event.resumes)
        else:
            self._calls.setdefault(event.session, []).append(event.call)
        return {}
