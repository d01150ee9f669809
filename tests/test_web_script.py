"""`make check` and `make test` run the scripts of the console's sources once for the same files."""

import sys
from pathlib import Path

import pytest

import web_script


def test_a_script_that_passed_runs_again_once_a_file_has_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[str] = []
    web, source = tmp_path / "web", tmp_path / "client" / "index.ts"
    (web / "node_modules").mkdir(parents=True)
    source.parent.mkdir()
    source.write_text("1")
    monkeypatch.setattr(web_script, "ROOT", tmp_path)
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
