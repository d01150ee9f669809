"""A team file that somebody else could have written runs no code, wherever it lies."""

import os
import shutil
import sys
from pathlib import Path

import pytest

from checkout import ROOT
from command_line import environment, make_team, remit
from remit import RemitError
from remit_cli.config.load import load_team
from remit_cli.config.team_search import find_team, is_trusted, trusted

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="no owners as Unix has them")
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")

STRANGER = 54_321


def planted(folder: Path) -> Path:
    """Make a team whose code leaves a trace when it is imported, and return the trace."""
    folder.mkdir(parents=True, exist_ok=True)
    make_team(folder)
    trace = folder / "was-run"
    with (folder / "agents.py").open("a", encoding="utf-8") as code:
        code.write(f"\nopen({str(trace)!r}, 'w').close()\n")
    return trace


# ── whom a file may belong to ─────────────────────────────────────────────────────────────────────────────────────────


@needs_root
@pytest.mark.parametrize("of", ["remit.toml", "."])
def test_a_file_or_folder_of_another_user_is_refused_with_the_way_out(tmp_path: Path, of: str) -> None:
    trace = planted(tmp_path / "team")
    os.chown(tmp_path / "team" / of, STRANGER, -1)
    for command in (["doctor"], ["validate", "--code"], ["agents", "list"], ["run", "reader", "x"]):
        done = remit(*command, folder=tmp_path / "team")
        stderr = done.stdout + done.stderr
        assert done.returncode == 3
        assert "belongs to user 54321" in stderr
        assert f"REMIT_TRUST_TEAM={tmp_path}/team/remit.toml" in stderr
    assert not trace.exists()


@needs_root
def test_a_file_that_is_trusted_by_name_is_used_whoever_owns_it(tmp_path: Path) -> None:
    trace = planted(tmp_path / "team")
    file = tmp_path / "team" / "remit.toml"
    os.chown(file, STRANGER, -1)
    for named in (file, file.parent):
        assert remit("validate", folder=file.parent, REMIT_TRUST_TEAM=f"/nowhere:{named}").returncode == 0
    for named in ("1", "remit.toml", ".", str(tmp_path)):
        assert remit("validate", folder=file.parent, REMIT_TRUST_TEAM=named).returncode == 3
    assert not trace.exists()
    assert remit("validate", "--code", folder=file.parent, REMIT_TRUST_TEAM=str(file)).returncode == 0
    assert trace.exists()


@needs_root
def test_roots_file_is_trusted_by_everyone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "remit.toml"
    file.touch()
    monkeypatch.setattr(os, "geteuid", lambda: STRANGER)
    assert trusted(file, {}) == file


@pytest.mark.parametrize("mode", [0o666, 0o662])
def test_a_file_that_others_can_write_is_refused(tmp_path: Path, mode: int) -> None:
    file = tmp_path / "remit.toml"
    file.touch()
    file.chmod(mode)
    for how in ({"named": file}, {"start": tmp_path}, {"environ": {"REMIT_TEAM": str(tmp_path)}}):
        with pytest.raises(RemitError, match="can be written by everyone"):
            find_team(**{"environ": {}, **how})  # pyright: ignore[reportArgumentType]


@needs_root
def test_a_group_counts_as_others_unless_it_is_the_owners_own(tmp_path: Path) -> None:
    file = tmp_path / "remit.toml"
    file.touch()
    file.chmod(0o664)
    assert is_trusted(file), "the group root of the user root"
    os.chown(file, -1, STRANGER)
    with pytest.raises(RemitError, match="can be written by the group 54321"):
        trusted(file, {})


@pytest.mark.parametrize("mode", [0o777, 0o1777])
def test_a_folder_that_others_can_write_to_is_refused_also_with_the_sticky_bit(tmp_path: Path, mode: int) -> None:
    trace = planted(tmp_path / "open")
    (tmp_path / "open").chmod(mode)
    for command in (["doctor"], ["validate"], ["validate", "--team", str(tmp_path / "open" / "remit.toml")]):
        done = remit(*command, folder=tmp_path / "open")
        assert (done.returncode, "can be written by everyone" in done.stdout + done.stderr) == (3, True)
    assert not trace.exists()


def test_a_link_leads_to_the_folder_that_counts(tmp_path: Path) -> None:
    theirs, mine = tmp_path / "theirs", tmp_path / "mine"
    theirs.mkdir()
    mine.mkdir()
    (theirs / "remit.toml").touch()
    theirs.chmod(0o777)
    (mine / "remit.toml").symlink_to(theirs / "remit.toml")
    with pytest.raises(RemitError, match=f"{theirs} can be written by everyone"):
        find_team(start=mine, environ={})


# ── how far it is looked for ──────────────────────────────────────────────────────────────────────────────────────────


def test_the_search_ends_below_a_folder_that_others_can_write_to(tmp_path: Path) -> None:
    """What a stranger leaves in a shared folder is neither used nor able to stop anybody below it."""
    trace = planted(tmp_path / "shared")
    own = tmp_path / "shared" / "mine" / "deep"
    own.mkdir(parents=True)
    (tmp_path / "shared").chmod(0o1777)
    assert find_team(start=own, environ={}) is None
    done = remit("doctor", folder=own)
    assert (done.returncode, "not found here" in done.stdout) == (0, True)
    assert not trace.exists()


def test_the_search_ends_at_the_root_of_a_repository(tmp_path: Path) -> None:
    (tmp_path / "remit.toml").touch()
    for root, mark in (("clone", Path.mkdir), ("worktree", Path.touch)):
        deep = tmp_path / root / "a"
        deep.mkdir(parents=True)
        assert find_team(start=deep, environ={}) == tmp_path / "remit.toml"
        mark(tmp_path / root / ".git")
        assert find_team(start=deep, environ={}) is None
        (tmp_path / root / "remit.toml").touch()
        assert find_team(start=deep, environ={}) == tmp_path / root / "remit.toml"


def test_completion_reads_no_strangers_file(tmp_path: Path) -> None:
    make_team(tmp_path / "open")
    variables = {"_REMIT_COMPLETE": "bash_complete", "COMP_WORDS": "remit run ", "COMP_CWORD": "2"}
    assert "reader" in remit(folder=tmp_path / "open", **variables).stdout
    (tmp_path / "open").chmod(0o777)
    assert "reader" not in remit(folder=tmp_path / "open", **variables).stdout


# ── looking runs nothing ──────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("command", ["validate", "doctor"])
def test_looking_at_a_team_imports_none_of_its_code(tmp_path: Path, command: str) -> None:
    trace = planted(tmp_path)
    assert remit(command, folder=tmp_path).returncode == 0
    assert not trace.exists()
    assert remit("validate", "--code", folder=tmp_path).returncode == 0
    assert trace.exists()


@pytest.mark.parametrize(
    ("run", "code", "why"),
    [
        ("desk:frnt", "def front(b): ...", "`desk` has no `frnt`; did you mean `front`?"),
        ("desk:front", "def front(b: ...", "`desk` cannot be read: desk.py:1: SyntaxError: '(' was never closed"),
        ("dask:front", "def front(b): ...", "there is no module `dask` in "),
        ("desk.inner:front", "def front(b): ...", "there is no module `desk.inner` in "),
        ("desk:front", "from os.path import *", None),
        ("desk:front", "def __getattr__(name): ...", None),
        ("desk:front", "try:\n    from x import y as front\nexcept ImportError:\n    front = None", None),
        ("desk:Box.front", "class Box:\n    def front(self, b): ...", None),
        ("json:loads", "", None),
        ("json.decoder:anything", "", None),
        ("sys:exit", "", None),
    ],
)
def test_code_is_looked_for_without_running_it(tmp_path: Path, run: str, code: str, why: str | None) -> None:
    (tmp_path / "desk.py").write_text(code, encoding="utf-8")
    (tmp_path / "remit.toml").write_text(f'[agents.a]\nrun = "{run}"\n', encoding="utf-8")
    if why is None:
        assert load_team(tmp_path / "remit.toml", code=False, thorough=True, environ={}).agents
        return
    with pytest.raises(RemitError) as raised:
        load_team(tmp_path / "remit.toml", code=False, thorough=True, environ={})
    (problem,) = raised.value.fault.problems
    assert problem.path == "remit.toml:2 agents.a.run"
    assert problem.message.startswith(why)
    assert "desk" not in sys.modules


@needs_root
def test_the_demos_team_is_read_whoever_owns_the_clone(tmp_path: Path) -> None:
    """A clone may belong to somebody else than whoever runs it, as in many containers."""
    team = ROOT / "packages/cli/src/remit_cli/templates/household"
    shutil.copytree(team, tmp_path / "receipts", ignore=shutil.ignore_patterns(".*", "__pycache__"))
    for each in (tmp_path / "receipts", *(tmp_path / "receipts").iterdir()):
        os.chown(each, STRANGER, STRANGER)
    file = tmp_path / "receipts" / "remit.toml"
    assert remit("validate", "--team", str(file), folder=tmp_path).returncode == 3
    assert remit("validate", "--team", str(file), folder=tmp_path, REMIT_TRUST_TEAM=str(file)).returncode == 0
    assert "REMIT_TRUST_TEAM" not in environment()
