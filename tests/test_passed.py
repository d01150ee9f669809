"""`make check` and `make test` check the types, and the sources of the console, once for the same files."""

import sys
from pathlib import Path

import pytest

import check_types
import passed
import web_script


def test_a_script_that_passed_runs_again_once_a_file_has_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[str] = []
    web, source = tmp_path / "web", tmp_path / "client" / "index.ts"
    (web / "node_modules").mkdir(parents=True)
    source.parent.mkdir()
    source.write_text("1")
    monkeypatch.setattr(web_script, "WEB", web)
    monkeypatch.setattr(web_script, "READ", (web, source.parent))
    monkeypatch.setattr(web_script, "install", Path)

    def npm(node: Path, folder: Path, *arguments: str) -> None:
        ran.append(arguments[-1])
        if source.read_text() == "wrong":
            raise web_script.NotBuilt("wrong")

    monkeypatch.setattr(web_script, "npm", npm)
    for script in ("check", "check", "test"):
        monkeypatch.setattr(sys, "argv", ["web_script.py", script])
        web_script.main()
    source.write_text("wrong")
    for _ in range(2):
        with pytest.raises(SystemExit, match="wrong"):
            web_script.main()
    assert ran == ["check", "test", "test", "test"], "what failed is run again"


def test_types_are_checked_again_once_a_file_has_changed_that_pyright_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "code").mkdir()
    for name in ("code/used.py", "code/test_it.py", "code/test_typed.py", "code/note.txt", "pyproject.toml", "a.lock"):
        (tmp_path / name).write_text("")
    monkeypatch.setattr(check_types, "ROOT", tmp_path)
    monkeypatch.setattr(check_types, "FOLDERS", [tmp_path / "code"])

    def changes(checked: list[str], name: str) -> bool:
        before = passed.digest(check_types.read(checked))
        (tmp_path / name).write_text((tmp_path / name).read_text() + "#")
        return passed.digest(check_types.read(checked)) != before

    checked = ["code/used.py", "code/test_typed.py"]
    assert all(changes(checked, name) for name in (*checked, "pyproject.toml", "a.lock"))
    assert not changes(checked, "code/note.txt")
    assert not changes(checked, "code/test_it.py")
    assert changes([], "code/test_it.py")
