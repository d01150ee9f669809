"""What `remit guard status` tells of the guard and of each tool."""

import asyncio
import json
import os
from pathlib import Path

import pytest

from claude_hooks import ClaudeCodeHooking, guarding
from command_line import remit
from remit_guard.install import install, installed
from remit_guard.places import heard_of
from remit_guard.status import installed_version, report
from remit_guard.tools.claude_code import ClaudeCode
from remit_guard.tools.codex import Codex
from remit_guard.tools.gemini_cli import GeminiCli

TOOL = ClaudeCode()


def program(folder: Path, name: str, says: str) -> None:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(f"#!/bin/sh\n{says}\n")
    (folder / name).chmod(0o755)


async def test_a_tool_is_silent_until_its_first_session_after_the_guard_was_put_in(tmp_path: Path) -> None:
    folder, path = tmp_path / "guard", tmp_path / "settings.json"
    install(TOOL, path, folder)
    assert [each.state for each in report(folder).tools] == ["silent"]
    async with guarding(tmp_path) as web:
        await ClaudeCodeHooking(web, tmp_path).hook("SessionStart")
        status = await asyncio.to_thread(report, folder)
    (tool,) = status.tools
    assert (status.ok, status.sessions, tool.state, tool.events) == (True, 1, "heard", 1)
    (later,) = report(folder).tools
    assert (later.heard_ms, later.state) == (tool.heard_ms, "heard"), "it is known also while no guard runs"
    (put,) = installed(folder)
    before = (put.at_ms - 1_000) * 1_000_000
    os.utime(heard_of(folder, "claude-code"), ns=(before, before))
    assert [each.state for each in report(folder).tools] == ["silent"], "it was put in again since"
    path.write_text("{}")
    gone = report(folder)
    assert (gone.ok, [each.state for each in gone.tools]) == (False, ["gone"])


def test_a_version_is_read_from_what_a_program_says_and_missing_ones_are_fine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    program(tmp_path, "claude", "echo '2.1.326 (Claude Code)'")
    program(tmp_path, "codex", "echo 'codex-cli 0.139.0-beta.1'")
    program(tmp_path, "broken", "exit 1")
    versions = [installed_version(name) for name in ("claude", "codex", "broken", "not-there-at-all")]
    assert versions == ["2.1.326", "0.139.0-beta.1", None, None]


def obstacle(folder: Path) -> str:
    (tool,) = report(folder).tools
    return tool.obstacle


def test_what_keeps_the_hooks_from_asking_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hooks that stand in the settings and cannot run would count nothing, without a word."""
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(tmp_path))
    folder, path, script = tmp_path / "guard", tmp_path / "settings.json", tmp_path / "guard" / "hook.sh"
    install(TOOL, path, folder)
    assert obstacle(folder) == ""
    monkeypatch.setenv("PATH", str(tmp_path))
    assert obstacle(folder).startswith("curl was not found")
    monkeypatch.undo()
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(tmp_path))
    script.write_text("#!/bin/sh\n# of an earlier version\n")
    assert "not as this version of Remit writes it" in obstacle(folder)
    script.unlink()
    assert "is missing" in obstacle(folder)
    install(TOOL, path, folder)
    path.write_text(path.read_text().replace("{", '{"disableAllHooks": true,', 1))
    assert obstacle(folder) == f'{path} switches all hooks off\n→ remove "disableAllHooks" from it'


def test_codex_whose_user_has_switched_hooks_off_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CODEX_HOME", str(tmp_path))
    install(Codex(), tmp_path / "hooks.json", tmp_path / "guard")
    (tmp_path / "config.toml").write_text("[features]\nhooks = false\n")
    assert "switches all hooks off" in obstacle(tmp_path / "guard")


def test_a_file_that_cannot_be_read_hides_no_other(tmp_path: Path) -> None:
    """Comments are allowed in the settings of Gemini CLI; other things are not."""
    folder = tmp_path / "guard"
    for number in range(2):
        install(GeminiCli(), tmp_path / f"{number}.json", folder)
    text = (tmp_path / "0.json").read_text()
    (tmp_path / "0.json").write_text('// https://example.org "x"\n' + text.replace("{", "{ /* all */", 1))
    assert [each.state for each in report(folder).tools] == ["silent", "silent"]
    (tmp_path / "0.json").write_bytes(text.encode() + b"\xff")
    assert [each.state for each in report(folder).tools] == ["gone", "silent"]
    (tmp_path / "0.json").write_text(text + "}")
    assert [each.state for each in report(folder).tools] == ["gone", "silent"]


def test_the_command_names_versions_that_were_not_tried_and_tools_that_were_not_heard(tmp_path: Path) -> None:
    programs = tmp_path / "bin"
    program(programs, "claude", "echo '2.2.0 (Claude Code)'")
    variables = {
        "REMIT_GUARD": str(tmp_path / "guard"),
        "CLAUDE_CONFIG_DIR": str(tmp_path / "claude"),
        "PATH": f"{programs}:{os.environ['PATH']}",
    }
    remit("guard", "claude-code", "--yes", folder=tmp_path, **variables)
    done = remit("guard", "status", folder=tmp_path, **variables)
    assert "claude-code  2.2.0 was not tried; tried: 2.1.326\n" in done.stdout
    assert (
        "not heard since the guard was put in\n→ Start a session of the tool; it is heard at its start." in done.stdout
    )
    status = json.loads(remit("guard", "status", "--json", folder=tmp_path, **variables).stdout)
    assert (status["schema"], status["ok"], status["tools"][0]["version"]) == ("remit.guard-status/1", False, "2.2.0")
