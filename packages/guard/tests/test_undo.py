"""The guard out of files that were changed since, are links, or are changed by several at once."""

import json
import shutil
from pathlib import Path
from subprocess import DEVNULL

import pytest

from command_line import environment, remit
from commands import REMIT, popen
from remit import RemitError
from remit_guard.install import install, installed, is_in, uninstall
from remit_guard.tools.claude_code import ClaudeCode
from remit_guard.tools.opencode import OpenCode

TOOL = ClaudeCode()


@pytest.mark.parametrize("before", ['{"model": "opus"}', None])
def test_settings_that_are_a_link_stay_one(before: str | None, tmp_path: Path) -> None:
    """Those who keep their settings in a repository link them from there; the link may point to nothing yet."""
    path, target = tmp_path / "settings.json", tmp_path / "dotfiles" / "claude.json"
    if before is not None:
        target.parent.mkdir()
        target.write_text(before)
    path.symlink_to("dotfiles/claude.json")
    install(TOOL, path, tmp_path / "guard")
    assert is_in(TOOL, target, tmp_path / "guard")
    assert uninstall(TOOL, path, tmp_path / "guard")
    assert path.is_symlink()
    assert (target.read_text() if target.exists() else None) == before


def test_undo_takes_the_guard_out_also_if_it_was_put_in_again_after_a_change(tmp_path: Path) -> None:
    """What was there before is what the user has, without the hooks of the first time."""
    path, folder = tmp_path / "settings.json", tmp_path / "guard"
    path.write_text('{"model": "opus"}')
    install(TOOL, path, folder)
    path.write_text(path.read_text().replace("opus", "sonnet"))
    install(TOOL, path, folder)
    uninstall(TOOL, path, folder)
    assert json.loads(path.read_text()) == {"model": "sonnet"}


def test_undo_takes_out_what_is_left_and_forgets_files_that_are_gone(tmp_path: Path) -> None:
    """Also hooks of another version, or those that remain after the user has removed some."""
    path = tmp_path / "claude" / "settings.json"
    variables = {"REMIT_GUARD": str(tmp_path / "guard"), "CLAUDE_CONFIG_DIR": str(path.parent)}
    remit("guard", "claude-code", "--yes", folder=tmp_path, **variables)
    settings = json.loads(path.read_text())
    del settings["hooks"]["SessionStart"]
    path.write_text(json.dumps(settings))
    done = remit("guard", "claude-code", "--undo", folder=tmp_path, **variables)
    assert done.stdout.startswith(f"Took the guard out of {path}."), done.stderr
    assert path.read_text() == "{}\n"
    remit("guard", "claude-code", "--yes", folder=tmp_path, **variables)
    shutil.rmtree(tmp_path / "guard")
    assert "Took the guard out" in remit("guard", "claude-code", "--undo", folder=tmp_path, **variables).stdout
    assert path.read_text() == "{}\n"
    remit("guard", "claude-code", "--yes", folder=tmp_path, **variables)
    path.unlink()
    assert "the guard is gone from it" in remit("guard", "status", folder=tmp_path, **variables).stdout
    assert "is not in" in remit("guard", "claude-code", "--undo", folder=tmp_path, **variables).stderr
    assert "No tool has it." in remit("guard", "status", folder=tmp_path, **variables).stdout


def test_a_plugin_of_an_earlier_version_is_removed_and_a_changed_one_is_not_said_to_be(tmp_path: Path) -> None:
    path, folder, tool = tmp_path / "remit-guard.js", tmp_path / "guard", OpenCode()
    install(tool, path, folder)
    changed = path.read_text() + "// mine\n"
    path.write_text(changed)
    with pytest.raises(RemitError, match="was changed since"):
        uninstall(tool, path, folder)
    assert (path.read_text(), len(installed(folder))) == (changed, 1)
    install(tool, path, folder)
    assert uninstall(tool, path, folder)
    assert not path.exists()


def test_an_interrupted_installation_is_finished_or_undone(tmp_path: Path) -> None:
    """The list is written before the file, so that a process that dies in between loses nothing."""
    path, folder = tmp_path / "settings.json", tmp_path / "guard"
    install(TOOL, path, folder)
    path.write_text('{ "model":  "opus" }')  # as it was before the file was written
    assert not uninstall(TOOL, path, folder)
    assert (path.read_text(), installed(folder)) == ('{ "model":  "opus" }', [])


def test_all_that_are_put_in_at_once_are_known(tmp_path: Path) -> None:
    """Each process adds to the list of the others."""
    variables = environment(
        REMIT_GUARD=str(tmp_path / "guard"),
        HOME=str(tmp_path),
        CODEX_HOME=str(tmp_path / "codex"),
        XDG_CONFIG_HOME=str(tmp_path / "config"),
        CLAUDE_CONFIG_DIR=str(tmp_path / "claude"),
    )
    tools = ["claude-code", "codex", "gemini-cli", "opencode"]
    commands = [[REMIT, "guard", tool, "--yes", *at] for tool in tools for at in ([], ["--project"])]
    running = [popen(each, cwd=tmp_path, env=variables, stdout=DEVNULL) for each in commands]
    assert [each.wait(timeout=120) for each in running] == [0] * len(running)
    paths = {each.path for each in installed(tmp_path / "guard")}
    # Gemini CLI has the same file for the user and for a project in the home.
    assert len(paths) == 7
    assert all(Path(path).exists() for path in paths)


def test_settings_that_are_not_utf_8_and_relative_folders_are_understood(tmp_path: Path) -> None:
    path = tmp_path / "settings.json"
    path.write_bytes(b'{"model": "\xff"}')
    with pytest.raises(RemitError, match="is not UTF-8"):
        install(TOOL, path, tmp_path / "guard")
    remit("guard", "claude-code", "--yes", folder=tmp_path, REMIT_GUARD="guard", CLAUDE_CONFIG_DIR="claude")
    assert str(tmp_path / "guard" / "hook.sh") in (tmp_path / "claude" / "settings.json").read_text()


def test_copies_of_settings_are_for_their_owner_alone(tmp_path: Path) -> None:
    """Settings may have keys in them."""
    path, folder = tmp_path / "settings.json", tmp_path / "guard"
    folder.mkdir(mode=0o755)
    path.write_text('{"env": {"KEY": "secret"}}')
    path.chmod(0o600)
    install(TOOL, path, folder)
    assert [each.stat().st_mode & 0o777 for each in (path, folder / "installed.json")] == [0o600, 0o600]
