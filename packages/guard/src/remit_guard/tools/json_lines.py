"""The files of coding tools: lines of JSON that grow, and files of hooks that are changed whole."""

import errno
import json
import os
import shlex
from collections.abc import Iterator
from pathlib import Path
from stat import S_ISREG
from typing import Any, BinaryIO, Literal, cast

from msgspec import Struct

from remit.protocol.errors import Code, RemitError, fault
from remit_guard.places import script_of
from remit_guard.tool_use import UseVerdict


class GrowingFile:
    """A file to which a tool adds lines; each is read once."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._offset = 0
        self._identity: tuple[int, int] | None = None

    @property
    def is_there(self) -> bool:
        """Whether it could be read at least once."""
        return self._identity is not None

    def added(self) -> Iterator[dict[str, Any]]:
        """Return the objects that were added since the last time; half a line is left for the next time.

        A file that was replaced or cut off is read from its beginning: callers know by their ids what they have had.
        """
        try:
            with open_file(self.path) as file:
                about = os.fstat(file.fileno())
                identity = about.st_dev, about.st_ino
                if identity != self._identity or about.st_size < self._offset:
                    self._identity, self._offset = identity, 0
                file.seek(self._offset)
                for line in file:
                    if not line.endswith(b"\n"):
                        return
                    self._offset += len(line)
                    yield _object(line)
        except OSError:  # it is not there yet
            return


def open_file(path: Path) -> BinaryIO:
    """Open a file to read; raise an `OSError` if it is none: a pipe would hold up the hooks of all tools."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except ValueError as error:  # there is a null character in the path
        raise OSError(errno.EINVAL, str(error), str(path)) from error
    if not S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "not a regular file", str(path))
    return os.fdopen(descriptor, "rb")


def _object(line: bytes) -> dict[str, Any]:
    """Return the object of a line; empty if it has none. A crash of the system leaves zeros before the next line."""
    try:
        return table(json.loads(line.decode(errors="replace").lstrip("\ufeff\0")))
    except (ValueError, RecursionError):
        return {}


def table(value: object) -> dict[str, Any]:
    """Return a JSON object; anything else as an empty one."""
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def count(usage: dict[str, Any], name: str) -> int:
    """Return a number of tokens; zero if it is missing or no such number."""
    value = usage.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0


# A person may take an hour to answer. The tool goes on without an answer after that, so the script answers before.
HOOK_S = 3_600
_ANSWER_S = HOOK_S - 60


class ToolHook(Struct, frozen=True):
    """An event that the guard is told of."""

    event: str
    matcher: str = ""
    """The tools of the agent that it is for; empty: it is not about a tool."""
    kind: Literal["meter", "spawn", "tool"] = "meter"
    """What happens without an answer: with `meter` the tool goes on, with `spawn` nothing starts, and with `tool` the
    tool goes on unless the team has rules about tools. A person may be asked about the last two."""
    # An answer that is late changes nothing here.
    seconds: int = 10
    """How long the tool waits for a hook that only meters."""


def with_hooks(text: str | None, folder: Path, tool: str, hooks: tuple[ToolHook, ...], *, second: int = 1) -> str:
    """Return settings with hooks added to those that are there; *second* is one in the unit of the tool's limits."""
    settings = without_hooks(settings_of(text), folder)
    entries = cast("dict[str, Any]", settings.setdefault("hooks", {}))
    for event in {hook.event for hook in hooks} & entries.keys():
        if not isinstance(entries[event], list):
            raise RemitError(fault(Code.INPUT_VALIDATION_FAILED, f'"hooks.{event}" in the settings is not a list'))
    for hook in hooks:
        seconds, answer = (hook.seconds, hook.seconds - 2) if hook.kind == "meter" else (HOOK_S, _ANSWER_S)
        # Tools take 2 for a refusal, and go on after anything else: a shell says 127 if the script is gone.
        refusing = " || exit 2" if hook.kind == "spawn" else ""
        command = f"{_called(folder)} {tool} {hook.kind} {answer}{refusing}"
        entry: dict[str, Any] = {"hooks": [{"type": "command", "command": command, "timeout": seconds * second}]}
        entries.setdefault(hook.event, []).append({"matcher": hook.matcher, **entry} if hook.matcher else entry)
    return written(settings)


def without_hooks(settings: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Return settings without the hooks of the guard; what else is under `hooks` stays as it is."""
    hooks = cast("dict[str, Any]", settings.get("hooks", {}))
    kept = {
        event: [rest for each in cast("list[Any]", entries) if (rest := _without_ours(each, folder)) is not None]
        if isinstance(entries, list)
        else entries
        for event, entries in hooks.items()
    }
    kept = {event: entries for event, entries in kept.items() if entries != []}
    others = {name: value for name, value in settings.items() if name != "hooks"}
    return others | ({"hooks": kept} if kept else {})


def _without_ours(entry: Any, folder: Path) -> Any:
    """Return one entry of an event without the hooks of the guard; None: it had no others."""
    hooks = table(entry).get("hooks")
    listed = cast("list[Any]", hooks) if isinstance(hooks, list) else []
    kept = [each for each in listed if _called(folder) not in str(table(each).get("command"))]
    if len(kept) == len(listed):
        return entry
    return {**entry, "hooks": kept} if kept else None


def _called(folder: Path) -> str:
    """Return the script as commands call it."""
    return shlex.quote(str(script_of(folder)))


def has_hooks(text: str, folder: Path, tool: str, hooks: tuple[ToolHook, ...], *, second: int = 1) -> bool:
    """Return whether settings have every hook as this version puts it in."""
    try:
        there = table(settings_of(text).get("hooks"))
    except RemitError:
        return False
    wanted = table(settings_of(with_hooks(None, folder, tool, hooks, second=second)).get("hooks"))
    return all(entry in (there.get(event) or ()) for event, entries in wanted.items() for entry in entries)


def forms(text: str) -> set[str]:
    """Return a text as it may stand in a string of JSON."""
    return {json.dumps(text, ensure_ascii=escapes)[1:-1] for escapes in (True, False)}


def settings_of(text: str | None) -> dict[str, Any]:
    """Read settings; an empty file has none."""
    try:
        given = (text or "").removeprefix("\ufeff")
        content: Any = json.loads(given) if given.strip() else {}
    except ValueError as error:
        raise RemitError(
            fault(
                Code.INPUT_VALIDATION_FAILED,
                f"the settings are not valid JSON: {error}",
                suggestion="Correct them. Comments are not JSON either.",
            )
        ) from error
    if not isinstance(content, dict):
        raise RemitError(fault(Code.INPUT_VALIDATION_FAILED, "the settings are not a JSON object"))
    settings = cast("dict[str, Any]", content)
    if not isinstance(settings.get("hooks", {}), dict):
        raise RemitError(fault(Code.INPUT_VALIDATION_FAILED, '"hooks" in the settings is not a JSON object'))
    return settings


def written(settings: dict[str, Any]) -> str:
    """Return settings as the text of their file."""
    return json.dumps(settings, indent=2, ensure_ascii=False) + "\n"


def pre_tool_answer(verdict: UseVerdict) -> dict[str, Any]:
    """Return the answer to a hook of Claude Code or Codex before a tool is used."""
    if verdict.refused:
        return denied(verdict.refused)
    if verdict.arguments is None:
        return {}
    # A person has seen these arguments, and approved them.
    return _before_tool(permissionDecision="allow", updatedInput=verdict.arguments)


def denied(sentence: str) -> dict[str, Any]:
    """Return the answer to such a hook that refuses the tool."""
    return _before_tool(permissionDecision="deny", permissionDecisionReason=f"Remit: {sentence}")


def _before_tool(**decision: Any) -> dict[str, Any]:
    return {"hookSpecificOutput": {"hookEventName": "PreToolUse", **decision}}
