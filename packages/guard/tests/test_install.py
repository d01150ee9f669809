"""The guard in the settings of Claude Code, and out of them again."""

import asyncio
import json
import os
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from claude_hooks import guarding
from command_line import environment, remit
from remit import RemitError
from remit_guard.install import install, is_in, uninstall
from remit_guard.tools.claude_code import HOOKS, ClaudeCode

TOOL = ClaudeCode()
OTHERS = '{\n    "model": "opus",\n\t"hooks": {"Stop": [{"hooks": [{"type": "command", "command": "say done"}]}]}}'


@pytest.mark.parametrize("before", [None, "", "{}", OTHERS, OTHERS + "\n\n"])
def test_undo_leaves_the_settings_byte_for_byte_as_they_were(before: str | None, tmp_path: Path) -> None:
    path, folder = tmp_path / "claude" / "settings.json", tmp_path / "guard"
    if before is not None:
        path.parent.mkdir()
        path.write_bytes(before.encode())
    install(TOOL, path, folder)
    install(TOOL, path, folder)  # again, after an update
    assert is_in(TOOL, path, folder)
    assert uninstall(TOOL, path, folder)
    assert (path.read_bytes().decode() if path.exists() else None) == before


def test_hooks_of_others_stay_and_come_first(tmp_path: Path) -> None:
    settings = json.loads(TOOL.put_in(OTHERS, tmp_path))
    assert settings["model"] == "opus"
    assert settings["hooks"]["Stop"][0]["hooks"][0]["command"] == "say done"
    assert len(settings["hooks"]["Stop"]) == 2
    assert {hook.event for hook in HOOKS} == settings["hooks"].keys()


def test_what_was_changed_since_stays_when_the_guard_goes(tmp_path: Path) -> None:
    path, folder = tmp_path / "settings.json", tmp_path / "guard"
    path.write_text(OTHERS)
    install(TOOL, path, folder)
    path.write_text(path.read_text().replace('"opus"', '"sonnet"'))
    assert not uninstall(TOOL, path, folder)
    settings = json.loads(path.read_text())
    assert settings == {**json.loads(OTHERS), "model": "sonnet"}


@pytest.mark.parametrize("name", ["jürgen", "it's", 'a "b"', "back\\slash", "two words", "$HOME;x"])
def test_the_guard_is_found_and_removed_wherever_the_home_is(name: str, tmp_path: Path) -> None:
    """Its path stands in the settings quoted for a shell, and escaped for JSON."""
    path, folder = tmp_path / "settings.json", tmp_path / name / "guard"
    install(TOOL, path, folder)
    assert is_in(TOOL, path, folder)
    path.write_text(json.dumps({**json.loads(path.read_text()), "model": "opus"}))  # a tool has added to it
    assert is_in(TOOL, path, folder)
    install(TOOL, path, folder)
    assert path.read_text().count("hook.sh") == len(HOOKS)
    assert TOOL.take_out(path.read_text(), folder) == '{\n  "model": "opus"\n}\n'


def test_a_hook_that_a_user_has_put_beside_ours_stays(tmp_path: Path) -> None:
    """Only the commands of the guard are removed, not the group that they are in."""
    settings = json.loads(TOOL.put_in(None, tmp_path))
    settings["hooks"]["Stop"][0]["hooks"].append({"type": "command", "command": "say done"})
    left = json.loads(TOOL.take_out(json.dumps(settings), tmp_path) or "")
    assert left == {"hooks": {"Stop": [{"hooks": [{"type": "command", "command": "say done"}]}]}}


@pytest.mark.parametrize("hooks", ["null", "[]", '{"Stop": null}', '{"SessionStart": true}'])
def test_hooks_of_another_shape_are_refused_with_a_sentence(hooks: str, tmp_path: Path) -> None:
    with pytest.raises(RemitError, match="in the settings is not a"):
        TOOL.put_in(f'{{"hooks": {hooks}}}', tmp_path)


def test_switches_beside_hooks_and_a_byte_order_mark_are_no_obstacle(tmp_path: Path) -> None:
    """Earlier versions of Gemini CLI have a switch beside the events."""
    put_in = json.loads(TOOL.put_in('\ufeff{"hooks": {"enabled": true}}', tmp_path))
    assert put_in["hooks"]["enabled"] is True
    assert TOOL.take_out(json.dumps(put_in), tmp_path) == '{\n  "hooks": {\n    "enabled": true\n  }\n}\n'


def test_settings_that_cannot_be_read_are_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "settings.json"
    path.write_text("{ not json")
    with pytest.raises(RemitError, match="not valid JSON"):
        install(TOOL, path, tmp_path / "guard")
    assert path.read_text() == "{ not json"


@given(st.dictionaries(st.sampled_from(["a", "b", "permissions"]), st.integers() | st.text(max_size=5), max_size=3))
def test_settings_are_otherwise_the_same(others: dict[str, object]) -> None:
    settings = json.loads(TOOL.put_in(json.dumps(others), Path("/guard")))
    assert {name: value for name, value in settings.items() if name != "hooks"} == others


def test_without_the_guard_a_spawn_is_refused_and_the_rest_goes_on(tmp_path: Path) -> None:
    install(TOOL, tmp_path / "settings.json", tmp_path / "guard")
    script = str(tmp_path / "guard" / "hook.sh")
    spawn = subprocess.run([script, "claude-code", "spawn", "5"], input=b"{}", capture_output=True, check=False)
    assert spawn.returncode == 2
    assert b"To start it: remit guard serve" in spawn.stderr
    meter = subprocess.run([script, "claude-code", "meter", "5"], input=b"{}", capture_output=True, check=False)
    assert (meter.returncode, meter.stdout) == (0, b"")


@pytest.mark.parametrize("line", ["include", "output = /dev/null", 'write-out = "%{http_code}"'])
async def test_settings_of_curl_do_not_change_an_answer(line: str, tmp_path: Path) -> None:
    """A tool starts a sub-agent if it cannot read the answer, so nothing may be added to a refusal or taken from it."""
    install(TOOL, tmp_path / "settings.json", tmp_path / "guard")
    (tmp_path / ".curlrc").write_text(line + "\n")
    event = {"session_id": "s", "hook_event_name": "PreToolUse", "transcript_path": str(tmp_path / "s.jsonl")}
    spawn = {**event, "tool_name": "Agent", "tool_input": {"prompt": "no transcript, so it is refused"}}
    async with guarding(tmp_path):
        done = await asyncio.to_thread(run_hook, tmp_path, json.dumps(spawn))
    assert json.loads(done.stdout)["hookSpecificOutput"]["permissionDecision"] == "deny"


async def test_a_guard_that_cannot_judge_is_not_told_to_be_down(tmp_path: Path) -> None:
    """An event that the guard cannot read is no reason to start it, and starts nothing."""
    install(TOOL, tmp_path / "settings.json", tmp_path / "guard")
    async with guarding(tmp_path):
        done = await asyncio.to_thread(run_hook, tmp_path, "not json")
    assert (done.returncode, done.stdout) == (2, b"")
    assert b"could not judge this, so no sub-agent may start" in done.stderr


def test_hooks_of_another_version_are_not_taken_for_those_of_this_one(tmp_path: Path) -> None:
    """One that asks less than this version does would let through what this version judges."""
    path, folder = tmp_path / "settings.json", tmp_path / "guard"
    install(TOOL, path, folder)
    assert is_in(TOOL, path, folder)
    path.write_text(json.dumps(json.loads(path.read_text())))
    assert is_in(TOOL, path, folder), "however it is written"
    path.write_text(path.read_text().replace("tool 3540", "meter 8"))
    assert not is_in(TOOL, path, folder)


def run_hook(home: Path, event: str) -> subprocess.CompletedProcess[bytes]:
    """Run the script as a hook of a spawn."""
    command = [str(home / "guard" / "hook.sh"), "claude-code", "spawn", "30"]
    variables = {**os.environ, "HOME": str(home)}
    return subprocess.run(command, input=event.encode(), env=variables, capture_output=True, check=False)


def test_the_commands_say_what_they_change_and_what_is_missing(tmp_path: Path) -> None:
    variables = {"REMIT_GUARD": str(tmp_path / "guard"), "CLAUDE_CONFIG_DIR": str(tmp_path / "claude")}
    assert environment()

    none = remit("guard", "status", folder=tmp_path, **variables)
    assert none.returncode == 1
    assert "No tool has it.\n→ remit guard claude-code" in none.stdout
    done = remit("guard", "claude-code", "--yes", folder=tmp_path, **variables)
    assert f"This adds hooks to {tmp_path}/claude/settings.json: SessionStart" in done.stdout
    status = remit("guard", "status", folder=tmp_path, **variables)
    assert (status.returncode, "The guard does not run" in status.stdout) == (1, True)
    (tmp_path / "claude" / "settings.json").write_text("{}")
    gone = remit("guard", "status", folder=tmp_path, **variables)
    assert "the guard is gone from it, or of another version\n→ remit guard claude-code" in gone.stdout
    assert "is not in" in remit("guard", "claude-code", "--undo", folder=tmp_path, **variables).stderr
    both = remit("guard", "claude-code", "--user", "--project", folder=tmp_path, **variables)
    assert "exclude each other" in both.stderr
