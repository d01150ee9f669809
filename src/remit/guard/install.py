"""Puts the guard into the files of coding tools, and takes it out again."""

import json
import os
import shlex
from pathlib import Path
from typing import Any, cast

from msgspec import Struct
from msgspec.json import decode, encode

from remit.guard import claude_code, opencode
from remit.guard.daemon import socket_of
from remit.protocol.errors import Code, RemitError, fault

# A person may take an hour to answer. The tool goes on without an answer after that, so the script answers before.
HOOK_S = 3_600
_ANSWER_S = HOOK_S - 60
# Hooks that only meter: an answer that is late changes nothing.
_METER_S = 10

# Each hook with the tools that it is for, and whether nothing may start without its answer.
HOOKS: tuple[tuple[str, str, bool], ...] = (
    ("SessionStart", "", False),
    ("UserPromptSubmit", "", False),
    ("PreToolUse", "Agent|Task", True),
    ("PreToolUse", "^(?!(Agent|Task)$).*", False),
    ("PostToolUse", "Agent|Task", False),
    ("SubagentStart", "", False),
    ("SubagentStop", "", False),
    ("Stop", "", False),
    ("SessionEnd", "", False),
)

SCRIPT = """\
#!/bin/sh
# Asks the guard of Remit. With "spawn", nothing starts without its answer; with "meter", the tool goes on.
answer=$(curl --silent --fail --max-time "$3" --unix-socket {socket} --header 'Content-Type: application/json' \\
  --data-binary @- "http://guard/hooks/$1") && {{ printf '%s' "$answer"; exit 0; }}
[ "$2" = spawn ] || exit 0
echo "Remit: the guard does not answer, so no sub-agent may start. To start it: remit guard serve" >&2
exit 2
"""


class Installed(Struct, kw_only=True):
    """What was changed in a file, so that it can be undone byte for byte."""

    tool: str
    path: str
    before: str | None
    """The content before; None: there was no file."""
    after: str


def settings_path(*, project: Path | None) -> Path:
    """Return the settings of Claude Code: those of a project for one person, or those of the user."""
    if project is not None:
        return project / ".claude" / "settings.local.json"
    return Path(os.environ.get("CLAUDE_CONFIG_DIR") or Path.home() / ".claude") / "settings.json"


def with_guard(text: str | None, folder: Path) -> str:
    """Return settings with the hooks of the guard added to those that are there."""
    settings = _without(_settings(text), folder)
    hooks = cast("dict[str, list[Any]]", settings.setdefault("hooks", {}))
    for event, matcher, is_spawn in HOOKS:
        seconds = HOOK_S if is_spawn else _METER_S
        mode = f"spawn {_ANSWER_S}" if is_spawn else f"meter {_METER_S - 2}"
        command = f"{shlex.quote(str(_script(folder)))} claude-code {mode}"
        entry: dict[str, Any] = {"hooks": [{"type": "command", "command": command, "timeout": seconds}]}
        hooks.setdefault(event, []).append({"matcher": matcher, **entry} if matcher else entry)
    return json.dumps(settings, indent=2, ensure_ascii=False) + "\n"


def install(path: Path, folder: Path, tool: str = claude_code.TOOL) -> None:
    """Write the script, and the settings or the plugin; what was there before is kept in the guard's folder."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    script = _script(folder)
    script.write_text(SCRIPT.format(socket=shlex.quote(str(socket_of(folder)))), encoding="utf-8")
    script.chmod(0o700)
    before = path.read_bytes().decode() if path.exists() else None
    known = [each for each in installed(folder) if each.path == str(path)]
    if known and before == known[0].after:
        before = known[0].before
    after = with_guard(before, folder) if tool == claude_code.TOOL else opencode.plugin_text(socket_of(folder))
    others = [each for each in installed(folder) if each.path != str(path)]
    _write(_list(folder), encode([*others, Installed(tool=tool, path=str(path), before=before, after=after)]))
    path.parent.mkdir(parents=True, exist_ok=True)
    _write(path, after.encode())


def uninstall(path: Path, folder: Path) -> bool:
    """Undo it; return whether the file is as it was, byte for byte. One that was changed since loses our hooks only."""
    known = next((each for each in installed(folder) if each.path == str(path)), None)
    now = path.read_bytes().decode() if path.exists() else None
    is_ours = known is not None and now == known.after
    before = known.before if known is not None and is_ours else None
    if is_ours and before is None:
        path.unlink()
    elif is_ours and before is not None:
        _write(path, before.encode())
    elif now is not None and path.suffix == ".json":
        _write(path, (json.dumps(_without(_settings(now), folder), indent=2, ensure_ascii=False) + "\n").encode())
    _write(_list(folder), encode([each for each in installed(folder) if each.path != str(path)]))
    return is_ours


def installed(folder: Path) -> list[Installed]:
    """Return what the guard was put into."""
    try:
        return decode(_list(folder).read_bytes(), type=list[Installed])
    except FileNotFoundError:
        return []


def is_in(path: Path, folder: Path, tool: str = claude_code.TOOL) -> bool:
    """Return whether settings have every hook of the guard, or the plugin is the guard's."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return False
    if tool == opencode.TOOL:
        return text == opencode.plugin_text(socket_of(folder))
    return text.count(str(_script(folder))) >= len(HOOKS)


def _settings(text: str | None) -> dict[str, Any]:
    try:
        found: Any = json.loads(text) if text is not None and text.strip() else {}
    except ValueError as error:
        raise RemitError(
            fault(Code.INPUT_VALIDATION_FAILED, f"the settings are not valid JSON: {error}", suggestion="Correct them.")
        ) from error
    if not isinstance(found, dict):
        raise RemitError(fault(Code.INPUT_VALIDATION_FAILED, "the settings are not a JSON object"))
    return cast("dict[str, Any]", found)


def _without(settings: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Return settings without the hooks of the guard."""
    script = str(_script(folder))
    hooks = cast("dict[str, list[Any]]", settings.get("hooks", {}))
    kept = {event: [each for each in entries if script not in json.dumps(each)] for event, entries in hooks.items()}
    kept = {event: entries for event, entries in kept.items() if entries}
    others = {name: value for name, value in settings.items() if name != "hooks"}
    return others | ({"hooks": kept} if kept else {})


def _script(folder: Path) -> Path:
    return folder / "hook.sh"


def _list(folder: Path) -> Path:
    return folder / "installed.json"


def _write(path: Path, content: bytes) -> None:
    """Replace a file in one step, so that nobody ever reads half of it."""
    new = path.with_name(f".{path.name}.{os.getpid()}")
    new.write_bytes(content)
    if path.exists():
        new.chmod(path.stat().st_mode & 0o777)
    new.replace(path)
