"""What the rollout files of Codex tell of a thread: its parent, its tokens, and how its calls went."""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from remit_guard.tokens import TokenUse, day_of, model_name
from remit_guard.tools.json_lines import GrowingFile, count, open_file, table

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
