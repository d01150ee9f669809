"""`remit users`: a user gets what is kept about them, and can be erased."""

import asyncio
import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from ages import days
from remit.stores.sqlite import verify_file
from remit_cli.store import users


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return asyncio.run(days(tmp_path, days=3))


def run(*arguments: str, typed: str = "") -> Result:
    return CliRunner().invoke(users, arguments, input=typed)


def test_an_export_has_one_line_for_each_thing(path: Path) -> None:
    done = run("export", "ann", "--store", str(path))
    assert done.exit_code == 0, done.output
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert {line["schema"] for line in lines} >= {"remit.user-record/1", "remit.user-fact/1", "remit.user-note/1"}
    assert done.stderr == f"Wrote {len(lines)} lines about ann.\n"
    assert "bob" not in done.stdout


def test_a_user_is_erased_after_a_yes(path: Path) -> None:
    assert run("erase", "ann", "--store", str(path), typed="n\n").exit_code == 1
    assert run("export", "ann", "--store", str(path)).stdout
    done = run("erase", "ann", "--vacuum", "--store", str(path), typed="y\n")
    assert done.exit_code == 0, done.output
    assert "Erased 18 records, 3 facts and 5 redacted values of ann, recorded as " in done.output
    assert run("export", "ann", "--store", str(path)).stdout == ""
    assert verify_file(path).ok


def test_a_user_with_an_open_run_is_refused(path: Path) -> None:
    done = run("erase", "eve", "--yes", "--store", str(path))
    assert done.exit_code == 1
    assert "is not over" in str(done.exception)
