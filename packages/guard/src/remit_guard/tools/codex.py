"""Codex under the guard: its hooks, which it has to trust, and the tokens in its rollouts."""

import asyncio
import hashlib
import json
import os
import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast
from uuid import uuid4

import msgspec
from msgspec import Struct

from remit.protocol.errors import Fault
from remit_guard.places import script_of
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


def hook_hashes(settings: dict[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Return for each hook of a file its command, its place there, and the hash that Codex trusts.

    Codex hashes what it understood of a hook, as JSON without spaces and with sorted keys.
    """
    for event, groups in cast("dict[str, list[Any]]", settings.get("hooks", {})).items():
        label = re.sub(r"(?<!^)(?=[A-Z])", "_", event).lower()
        for number, group in enumerate(map(table, groups)):
            for place, hook in enumerate(map(table, group.get("hooks", []))):
                known = {"async": False, **hook}
                identity: dict[str, Any] = {"event_name": label, "hooks": [known]}
                if "matcher" in group:
                    identity["matcher"] = group["matcher"]
                text = json.dumps(identity, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
                digest = hashlib.sha256(text.encode()).hexdigest()
                yield str(hook.get("command", "")), f"{label}:{number}:{place}", f"sha256:{digest}"


def trusted_hashes(settings: Path) -> dict[str, str]:
    """Return the hashes that the user trusts, by file and place in it, without those of hooks that are turned off."""
    state = table(table(_read_settings(settings).get("hooks")).get("state"))
    return {
        key: str(table(about).get("trusted_hash"))
        for key, about in state.items()
        if table(about).get("enabled") is not False
    }


def are_off(settings: Path) -> bool:
    """Return whether the user has switched all hooks off."""
    return table(_read_settings(settings).get("features")).get("hooks") is False


def is_trusted(project: Path, settings: Path) -> bool:
    """Return whether the user trusts a project, or a folder above it: Codex reads no hooks of others."""
    projects = table(_read_settings(settings).get("projects"))
    folders = (str(each) for each in (project, *project.parents))
    return any(table(projects.get(each)).get("trust_level") == "trusted" for each in folders)


def _read_settings(settings: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(settings.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}


# Codex starts a tool while the model still answers, and writes the tokens when the answer has ended: 20 ms later with a
# short one. A long one is counted at the next event.
PATIENCE_S = 0.5
_POLL_S = 0.01
# The tools that start a sub-agent, and those that give one its next task, in the older and the newer form.
STARTING = ("spawn_agent", "send_input", "followup_task")


class Rollout:
    """The rollout file of one thread; a session is a thread, and so is each sub-agent."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.thread = ""
        """The id of the thread; empty until the first line is there."""
        self.session = ""
        """The id of the thread of the user that it belongs to."""
        self.parent = ""
        """The id of the thread that started it; empty: a user did."""
        self.agent_path = ""
        """The names of the tasks down to this one: `/root/build/tests`; empty in the older form of sub-agents."""
        self.uses: dict[str, TokenUse] = {}
        """The tokens of each answer of the model."""
        self.returned: dict[str, str] = {}
        """What the calls returned that start or wake a sub-agent, by call."""
        self.is_over = False
        """Whether its last turn has ended or was broken off."""
        self.last_message = ""
        """What it answered at the end of that turn."""
        self._file = GrowingFile(path)
        self._starts: set[str] = set()
        self._open: set[str] = set()
        """Calls of an answer whose tokens are not known yet."""
        self._known: set[str] = set()
        self._has_records = False
        self._model = ""

    def read(self) -> None:
        """Read what was added."""
        for entry in self._file.added():
            payload = table(entry.get("payload"))
            match entry.get("type"):
                case "session_meta" if not self.thread:  # a fork has those of its parents below its own
                    self._begin(payload)
                case "response_item":
                    self._take_item(payload)
                case "token_usage_record" if payload.get("thread_id") == self.thread:
                    self._has_records = True
                    use = _use(table(payload.get("usage")), self._model, entry.get("timestamp"))
                    self.uses[str(payload.get("response_id"))] = use
                    self._settle()
                case "turn_context":
                    self._model = model_name("openai", payload.get("model"))
                case "event_msg":
                    self._take_event(payload)
                case _:
                    pass

    async def read_up_to(self, call: str) -> None:
        """Read until the tokens of the answer are there that makes a call, or for a moment."""
        self.read()
        waited = 0.0
        while call and call not in self._known and waited < PATIENCE_S:
            await asyncio.sleep(_POLL_S)
            waited += _POLL_S
            self.read()

    def _begin(self, payload: dict[str, Any]) -> None:
        spawn = table(table(table(payload.get("source")).get("subagent")).get("thread_spawn"))
        self.thread = str(payload.get("id") or "")
        self.session = str(payload.get("session_id") or self.thread)
        self.parent = str(spawn.get("parent_thread_id") or "")
        self.agent_path = str(spawn.get("agent_path") or "")

    def _take_item(self, payload: dict[str, Any]) -> None:
        call = str(payload.get("call_id") or "")
        match payload.get("type"):
            case "function_call" | "custom_tool_call":
                self._open.add(call)
                if is_start(str(payload.get("name"))):
                    self._starts.add(call)
            case "function_call_output" if call in self._starts:
                self.returned[call] = str(payload.get("output") or "")
            case _:
                pass

    def _take_event(self, payload: dict[str, Any]) -> None:
        match payload.get("type"):
            case "task_started":
                self.is_over = False
            case "task_complete" | "turn_aborted":
                self.is_over = True
                self.last_message = str(payload.get("last_agent_message") or "")
            case "token_count" if not self._has_records and payload.get("info"):
                # Older versions tell the sum of the thread alone.
                self.uses[f"all of {self.thread}"] = _use(
                    table(table(payload["info"]).get("total_token_usage")), self._model
                )
                self._settle()
            case _:
                pass

    def _settle(self) -> None:
        self._known |= self._open
        self._open.clear()


def is_start(tool: str) -> bool:
    """Return whether a tool starts a sub-agent, or may wake one; its name has that of its group before it, or not."""
    return tool.endswith(STARTING) and not tool.startswith("mcp__")


def rollouts_of(session: str, one: Path) -> Iterator[Rollout]:
    """Return the rollouts of a session and all of its sub-agents, found beside one of them."""
    # Folders are years, months and days; a file's name ends with the id of its thread, and ids grow with time.
    folder = one.parents[3] if len(one.parents) > 3 else one.parent
    for path in sorted(folder.glob("*/*/*/rollout-*.jsonl")):
        if path.stem[-36:] >= session and _session_of(path) == session:
            rollout = Rollout(path)
            rollout.read()
            yield rollout


def _session_of(path: Path) -> str:
    try:
        with open_file(path) as file:
            about = table(table(json.loads(file.readline())).get("payload"))
    except (OSError, ValueError):
        return ""
    return str(about.get("session_id") or about.get("id") or "")


def _use(usage: dict[str, Any], model: str, at: object = None) -> TokenUse:
    cached = count(usage, "cached_input_tokens")
    return TokenUse(
        input=max(0, count(usage, "input_tokens") - cached),
        output=count(usage, "output_tokens"),
        cached=cached,
        day=day_of(at),
        model=model,
    )


TOOL = "codex"
# A sub-agent of no kind has this one.
DEFAULT_KIND = "default"
# How much of a task names it, where the tool has no name for it.
TITLE_CHARACTERS = 80

_NO_TRANSCRIPT = (
    "This session keeps no transcript, so that its tokens cannot be counted, and no sub-agent may start. "
    "Do the task without sub-agents."
)
_UNKNOWN = "The guard knows no sub-agent of this name."


# What Codex calls its tools that run a command, in hooks.
SHELL = "Bash"
# Its tool that changes files; those of MCP servers may change anything.
EDITING = "apply_patch"
OF_SERVERS = "mcp__"
_START = f"({'|'.join(STARTING)})$"

HOOKS = (
    ToolHook("SessionStart"),
    ToolHook("UserPromptSubmit"),
    ToolHook("PreToolUse", _START, kind="spawn"),
    # Patterns know no negation: a start is told twice, and answered once.
    ToolHook("PreToolUse", "*", kind="tool"),
    ToolHook("PostToolUse", _START),
    ToolHook("SubagentStart"),
    ToolHook("SubagentStop"),
    ToolHook("Stop"),
    # Codex gives this one three seconds at most.
    ToolHook("SessionEnd", seconds=3),
)


class Codex(HookedTool):
    """Codex: hooks in a file of its own, which its user has to trust."""

    name = TOOL
    hooks = HOOKS
    title = "Codex"
    tried = ("0.169.0",)

    def path(self, project: Path | None) -> Path:
        return (_home() if project is None else project / ".codex") / "hooks.json"

    def changes(self, path: Path) -> str:
        shared = "" if path.parent == _home() else "\nThe file belongs to the project: whoever has the project gets it."
        return (
            f"{super().changes(path)}{shared}\n"
            "Codex runs them only when you have trusted them: start `codex`, and choose "
            "“Trust all and continue”, or type /hooks. Until then it leaves them out without a word."
        )

    def obstacle(self, path: Path, folder: Path) -> str:
        settings, project = _home() / "config.toml", path.parent.parent
        if are_off(settings):
            return f'{settings} switches all hooks off\n→ remove "hooks" from its [features]'
        if path.parent != _home() and not is_trusted(project, settings):
            return f"Codex leaves out all hooks of {project}, since you have not trusted it\n→ start `codex` there"
        trusted, script = trusted_hashes(settings), str(script_of(folder))
        ours = [
            any(trusted.get(f"{each}:{place}") == digest for each in (path, path.resolve()))
            for command, place, digest in hook_hashes(settings_of(path.read_text(encoding="utf-8")))
            if script in command
        ]
        if all(ours):
            return ""
        return (
            f"Codex leaves out {ours.count(False)} of {len(ours)} hooks, since you have not trusted them as they are\n"
            "→ start `codex`, and choose “Trust all and continue”, or type /hooks"
        )

    def answering(self, service: GuardService, user: str) -> Answering:
        hooks = CodexHooks(service, user)
        return lambda body: hooks.answer(msgspec.json.decode(body, type=CodexEvent))


def _home() -> Path:
    return Path(os.environ.get("CODEX_HOME") or Path.home() / ".codex")


class CodexEvent(Struct, frozen=True, kw_only=True):
    """What a hook is told; fields that do not matter here are left out."""

    session_id: str
    """The thread of the user, in events of its sub-agents too."""
    hook_event_name: str
    transcript_path: str | None = None
    """The rollout of the agent; at its end, that of its parent."""
    cwd: str = ""
    prompt: str = ""
    agent_id: str = ""
    """The thread of the sub-agent that it is about; empty: the session itself."""
    agent_transcript_path: str | None = None
    last_assistant_message: str | None = None
    tool_name: str = ""
    tool_use_id: str = ""
    tool_input: Any = None
    tool_response: Any = None
    reason: str = ""

    @property
    def thread(self) -> str:
        """The thread that it is about."""
        return self.agent_id or self.session_id


class SpawnCall(Struct, frozen=True, kw_only=True):
    """A call that may start a sub-agent, by what its thread can be known again."""

    parent: str
    """The thread that made it."""
    name: str
    """The last part of the sub-agent's path; empty in the older form of sub-agents."""
    task: str


@dataclass(slots=True)
class ThreadTree:
    """What is known of the threads of one session."""

    rollouts: dict[str, Rollout] = field(default_factory=dict[str, Rollout])
    """By thread."""
    earlier: set[str] = field(default_factory=set[str])
    """The threads that began before the guard knew the session: what they spend is charged to it."""
    calls: dict[str, SpawnCall] = field(default_factory=dict[str, SpawnCall])
    """The calls that may start a sub-agent and have not done so, oldest first."""
    woken: dict[str, str] = field(default_factory=dict[str, str])
    """The threads that calls may wake, until it is known whether they did."""
    answers: dict[str, asyncio.Future[dict[str, Any]]] = field(
        default_factory=dict[str, asyncio.Future[dict[str, Any]]]
    )
    """What calls that start or wake a sub-agent were answered: several hooks may tell of one."""


class CodexHooks:
    """Answers the hooks of all sessions of Codex."""

    def __init__(self, service: GuardService, user: str) -> None:
        self._service = service
        self._user = user
        self._trees: dict[str, ThreadTree] = {}
        service.when_closed(TOOL, lambda session: self._trees.pop(session.name, None))

    async def answer(self, event: CodexEvent) -> dict[str, Any]:
        """Return the answer to one hook."""
        session = await self._service.session(
            TOOL,
            event.session_id,
            user=self._user,
            task=event.prompt or f"A session in {event.cwd}",
            folder=event.cwd,
        )
        if isinstance(session, Fault):
            return denied(session.message) if event.hook_event_name == "PreToolUse" else {}
        if event.session_id not in self._trees:
            self._trees[event.session_id] = ThreadTree()
            self._take_up(session, event)
        self._bind(session, event)
        match event.hook_event_name:
            case "PreToolUse" if is_start(event.tool_name):
                return await self._ask(session, event)
            case "PreToolUse":
                return await self._go_on(session, event)
            case "PostToolUse":
                self._started(session, event)
            case "SubagentStop":
                self._count(session, event)
                session.end(event.agent_id, event.last_assistant_message or "")
            case "SessionEnd":
                self._count_all(session)
                await self._service.close(TOOL, event.session_id, event.reason or "ended")
            case _:
                self._count(session, event)
        return {}

    # ── starting ──────────────────────────────────────────────────────────────────────────────────────────────────────

    async def _ask(self, session: GuardedSession, event: CodexEvent) -> dict[str, Any]:
        call, answers = event.tool_use_id or uuid4().hex, self._trees[session.name].answers
        if (earlier := answers.get(call)) is not None:
            return await asyncio.shield(earlier)
        mine = answers[call] = asyncio.get_running_loop().create_future()
        try:
            mine.set_result(await self._decide(session, event, call))
        finally:
            mine.cancel()  # if there was no answer
        return mine.result()

    async def _decide(self, session: GuardedSession, event: CodexEvent, call: str) -> dict[str, Any]:
        rollout = self._rollout(event)
        if rollout is None:
            return denied(_NO_TRANSCRIPT)
        await rollout.read_up_to(event.tool_use_id)
        self._count_all(session)
        given = table(event.tool_input)
        if "target" in given:
            refused = await self._wake(session, event, call, str(given["target"]), _task(given))
        else:
            refused = await self._spawn(session, event, call, given)
        return {} if refused is None else denied(refused)

    async def _spawn(self, session: GuardedSession, event: CodexEvent, call: str, given: dict[str, Any]) -> str | None:
        calls = self._trees[session.name].calls
        name, task = str(given.get("task_name") or ""), _task(given)
        kind = str(given.get("agent_type") or DEFAULT_KIND)
        calls[call] = SpawnCall(parent=event.thread, name=name, task=task)
        title = name or task[:TITLE_CHARACTERS] or "A sub-agent"
        refused = await self._service.spawn(session, self._agent(session, event), call, kind, title, task)
        if refused is not None:
            calls.pop(call, None)
        return refused

    async def _wake(self, session: GuardedSession, event: CodexEvent, call: str, target: str, task: str) -> str | None:
        """Ask for a sub-agent that has ended and gets another task as for a new one; one that runs may be told more."""
        tree, woken = self._trees[session.name], self._rollout_of(event, target)
        if woken is None:
            return _UNKNOWN
        agent = session.agents.get(woken.thread)
        if agent is None and woken.is_over:
            agent = self._settled(session, woken)
        if agent is None or not agent.ended.is_set():
            return None
        title = f"{task[:TITLE_CHARACTERS]} (message {len(tree.answers)})"  # the same words may come twice
        refused = await self._service.spawn(session, self._agent(session, event), call, agent.kind, title, task)
        if refused is None:
            woken.is_over = False
            tree.woken[call] = woken.thread
            session.bind(call, woken.thread)
        return refused

    def _settled(self, session: GuardedSession, rollout: Rollout) -> GuardedAgent:
        """Return a sub-agent that ended before the guard knew the session, with what was charged for it."""
        settled, charged = session.settle(rollout.thread, DEFAULT_KIND), session.root.counted
        settled.counted = {name: charged.pop(name) for name in rollout.uses if name in charged}
        return settled

    def _rollout_of(self, event: CodexEvent, target: str) -> Rollout | None:
        """Find the thread of a sub-agent by its id, by its path, or by its path below the one that names it."""
        known = self._trees[event.session_id].rollouts
        own = known[event.thread].agent_path if event.thread in known else ""
        paths = (target, f"{own or '/root'}/{target}")
        matching = (each for thread, each in known.items() if thread == target or each.agent_path in paths)
        return next((each for each in matching if each.thread and each.thread != event.session_id), None)

    async def _go_on(self, session: GuardedSession, event: CodexEvent) -> dict[str, Any]:
        """Let an agent use a tool, unless its tokens or its time are over. A hook cannot end it."""
        self._count(session, event)
        agent = self._agent(session, event)
        if agent is not session.root and agent.stopped:
            return denied(agent.stopped)
        name, given = event.tool_name, event.tool_input
        command = table(given).get("command") if name == SHELL else None
        use = GuardedUse(
            id=event.tool_use_id,
            tool=name,
            arguments=table(given),
            command=command if isinstance(command, str) else "",
            changes=name in (SHELL, EDITING) or name.startswith(OF_SERVERS),
        )
        return pre_tool_answer(await session.permit(agent, use))

    def _started(self, session: GuardedSession, event: CodexEvent) -> None:
        self._count(session, event)
        self._take_result(session, event.tool_use_id, event.tool_response)

    def _take_result(self, session: GuardedSession, call: str, returned: object) -> None:
        """Learn from what a call returned which thread it has started, or that it has not started one."""
        tree = self._trees[session.name]
        if (woken := tree.woken.pop(call, None)) is not None and returned and "submission_id" not in str(returned):
            session.end(woken, str(returned))  # Codex does not know it any more
        if call not in session.waiting:
            return
        try:
            result = table(json.loads(returned) if isinstance(returned, str) else returned)
        except ValueError:
            result = {}
        if thread := str(result.get("agent_id") or ""):
            tree.calls.pop(call, None)
            session.bind(call, thread)
        elif not result.get("task_name"):  # Codex has limits of its own
            tree.calls.pop(call, None)
            session.bind(call, call)
            session.end(call, str(returned))

    def _bind(self, session: GuardedSession, event: CodexEvent) -> None:
        """Find the call that started the thread of an event: by its path, by its task, or else the oldest one."""
        if not event.agent_id or event.agent_id in session.agents.keys() | self._trees[session.name].earlier:
            return
        waiting = self._waiting(session, self._parent(event))
        rollout = self._rollout(event)
        name = "" if rollout is None else rollout.agent_path.rpartition("/")[2]
        candidates = [call for call, about in waiting.items() if name and about.name == name]
        candidates += [call for call, about in waiting.items() if event.prompt and about.task == event.prompt]
        if event.hook_event_name != "SubagentStart":  # the next event has the task
            candidates += waiting
        if candidates:
            del self._trees[session.name].calls[candidates[0]]
            session.bind(candidates[0], event.agent_id)

    def _waiting(self, session: GuardedSession, parent: str) -> dict[str, SpawnCall]:
        calls = self._trees[session.name].calls
        return {call: about for call, about in calls.items() if call in session.waiting and about.parent == parent}

    def _parent(self, event: CodexEvent) -> str:
        rollout = self._rollout(event)
        if rollout is None:
            return ""
        rollout.read()
        return rollout.parent

    def _agent(self, session: GuardedSession, event: CodexEvent) -> GuardedAgent:
        return session.agents.get(event.agent_id, session.root)

    def _take_up(self, session: GuardedSession, event: CodexEvent) -> None:
        """Charge what a session spent before the guard knew it: it was begun without it, or the guard was restarted."""
        if event.transcript_path is not None:
            for rollout in rollouts_of(event.session_id, Path(event.transcript_path)):
                self._trees[session.name].rollouts[rollout.thread] = rollout
                self._trees[session.name].earlier.add(rollout.thread)
                session.count(session.root, rollout.uses)

    # ── tokens ────────────────────────────────────────────────────────────────────────────────────────────────────────

    def _count(self, session: GuardedSession, event: CodexEvent) -> None:
        if (rollout := self._rollout(event)) is not None:
            rollout.read()
            session.count(self._agent(session, event), rollout.uses)

    def _count_all(self, session: GuardedSession) -> None:
        """Charge what all threads spent, and end those that were broken off: Codex tells no hook of it."""
        for thread, rollout in self._trees[session.name].rollouts.items():
            rollout.read()
            session.count(session.agents.get(thread, session.root), rollout.uses)
            if rollout.is_over:
                session.end(thread, rollout.last_message)
            for call, returned in rollout.returned.items():
                self._take_result(session, call, returned)

    def _rollout(self, event: CodexEvent) -> Rollout | None:
        at_end = event.hook_event_name == "SubagentStop"
        path = event.agent_transcript_path if at_end else event.transcript_path
        if path is None:
            return None
        return self._trees[event.session_id].rollouts.setdefault(event.thread, Rollout(Path(path)))


def _task(given: dict[str, Any]) -> str:
    """Return the task of a sub-agent; the older form may have it in parts."""
    if message := str(given.get("message") or ""):
        return message
    items = given.get("items")
    return json.dumps(items, ensure_ascii=False) if items else ""
