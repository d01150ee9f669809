"""`remit store`: what is done to a store over the years."""

import asyncio
import json
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result

from ages import days
from remit.stores.sqlite import verify_file
from remit_cli.store import store, users


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return asyncio.run(days(tmp_path))


def run(*arguments: str) -> Result:
    return CliRunner().invoke(store, arguments)


def test_a_dry_run_says_what_would_go_and_removes_nothing(path: Path) -> None:
    done = run("prune", "--dry-run", "--keep", "1d", "--store", str(path))
    assert done.exit_code == 0, done.output
    assert done.output.startswith("Would remove 108 records,")
    assert "KiB of space." in done.output
    assert verify_file(path).removed == 0


def test_what_is_pruned_is_said_and_verifies(path: Path) -> None:
    done = run("prune", "--keep", "1d", "--store", str(path))
    assert done.exit_code == 0, done.output
    assert done.output.startswith("Removed 108 records,")
    assert "given back." in done.output
    assert verify_file(path).removed == 108


def test_the_rule_is_that_of_the_team_file(path: Path) -> None:
    team = path.parent / "remit.toml"
    team.write_text('[store]\npath = "hub.db"\nkeep = { messages = "1d", records = "2y" }\n')
    done = run("prune", "--dry-run", "--team", str(team))
    assert "Would remove 0 records, the texts of 108 records, 0 redacted values, 20 facts and notes" in done.output


def test_without_a_rule_nothing_is_pruned(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(path.parent)
    done = run("prune", "--store", str(path))
    assert done.exit_code == 2
    assert "kept for ever" in done.output


def test_a_wrong_time_is_refused(path: Path) -> None:
    assert run("prune", "--keep", "soon", "--store", str(path)).exit_code == 2


def test_an_archive_is_written_and_checked(path: Path) -> None:
    folder = path.parent / "archive"
    done = run("archive", str(folder), "--store", str(path))
    assert (done.exit_code, done.output) == (0, f"Wrote 10 segments to {folder}; 0 segments there already.\n")
    assert run("prune", "--keep", "1d", "--archive", str(folder), "--store", str(path)).exit_code == 0
    done = run("verify-archive", str(folder), "--store", str(path))
    assert done.exit_code == 0, done.output
    assert done.output.startswith("the archive is intact: 10 segments, rows 1 to 122, 0 of them removed before\n")
    assert f"matches {path}" in done.output
    min(folder.iterdir()).unlink()
    next(iter(sorted(folder.iterdir())[1:])).write_bytes(b"no archive")
    done = run("verify-archive", str(folder), "--alone")
    assert (done.exit_code, "the archive is damaged" in done.output) == (1, True)


def test_a_store_is_backed_up_and_restored(path: Path) -> None:
    file, target = path.parent / "hub.backup", path.parent / "new" / "hub.db"
    done = run("backup", str(file), "--store", str(path))
    assert done.exit_code == 0, done.output
    assert done.output.startswith(f"Wrote 122 rows to {file}, ")
    assert "Keys in it: hub.db.key." in done.output
    done = run("restore", str(file), "--store", str(target))
    assert done.exit_code == 0, done.output
    assert f"Restored {target} as it was at " in done.output
    assert "1 open run ended with OUTCOME_UNKNOWN" in done.output
    assert "the record is whole: 124 rows" in done.output
    assert run("restore", str(file), "--store", str(path)).exit_code == 1
    keys = path.parent / "keys"
    done = run("backup", str(file), "--keys", str(keys), "--store", str(path))
    assert f"No keys are in it. The store's key is in {keys}" in done.output
    done = run("restore", str(file), "--store", str(path.parent / "bare" / "hub.db"))
    assert "There is no key: " in done.output


def test_each_command_prints_one_document_on_request(path: Path, tmp_path: Path) -> None:
    def printed(group: click.Group, *arguments: str) -> dict[str, Any]:
        done = CliRunner().invoke(group, [*arguments, "--json", "--store", str(path)])
        assert done.exit_code == 0, done.output
        return json.loads(done.stdout)

    archive, backup = str(tmp_path / "archive"), str(tmp_path / "hub.backup")
    assert printed(store, "prune", "--keep", "1d", "--dry-run")["schema"] == "remit.prune/1"
    assert printed(store, "archive", archive)["known"] == 0
    assert printed(store, "verify-archive", archive)["compared"] is True
    assert printed(store, "backup", backup)["keys"] == ["hub.db.key"]
    assert printed(users, "erase", "ann", "--yes")["user"] == "ann"
    assert printed(store, "restore", backup, "--force")["ok"] is True
