"""The command line, as a user meets it."""

import json
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from commands import run_program
from remit import Brief, Code, Hub, __version__

REMIT = str(Path(sys.executable).with_name("remit"))


def remit(*arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return run_program([REMIT, *arguments], folder=folder)


async def record_something(folder: Path) -> Path:
    hub = Hub(store=folder / ".remit" / "hub.db")

    @hub.agent("echo")
    async def echo(brief: Brief) -> str:  # pyright: ignore[reportUnusedFunction]
        return brief.text

    async with hub:
        (await hub.ask("echo", "hello", user="u-1")).unwrap()
    return folder / ".remit" / "hub.db"


def test_it_says_its_version(tmp_path: Path) -> None:
    assert remit("--version", folder=tmp_path).stdout.strip() == f"remit, version {__version__}"


@pytest.mark.parametrize(
    "command", [["--help"], ["audit", "--help"], ["audit", "verify", "--help"], ["errors", "--help"]]
)
def test_every_command_answers_help(tmp_path: Path, command: list[str]) -> None:
    done = remit(*command, folder=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert "Usage: remit" in done.stdout


async def test_a_whole_record_is_found_whole(tmp_path: Path) -> None:
    """X13: the record of who asked whom can be proven untouched; the file of the folder is the default."""
    await record_something(tmp_path)
    done = remit("audit", "verify", folder=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert "the record is whole" in done.stdout


async def test_a_record_that_was_tampered_with_is_named_and_gives_exit_code_one(tmp_path: Path) -> None:
    file = await record_something(tmp_path)
    with sqlite3.connect(file) as database:
        database.execute("UPDATE record SET at_ms = at_ms + 1 WHERE seq = 1")
    database.close()
    done = remit("audit", "verify", "--json", str(file), folder=tmp_path)
    assert done.returncode == 1
    assert [finding["first"] for finding in json.loads(done.stdout)["findings"]] == [1]


def test_a_file_that_is_not_there_is_an_error_with_advice_on_stderr(tmp_path: Path) -> None:
    done = remit("audit", "verify", "nowhere.db", folder=tmp_path)
    assert (done.returncode, done.stdout) == (7, "")
    assert "nowhere.db" in done.stderr
    assert "→" in done.stderr
    assert not (tmp_path / "nowhere.db").exists()


def test_an_error_code_is_explained_and_a_mistyped_one_is_guessed(tmp_path: Path) -> None:
    explained = remit("errors", "loop_detected", folder=tmp_path)
    assert (explained.returncode, explained.stdout.splitlines()[0]) == (0, "LOOP_DETECTED")
    mistyped = remit("errors", "LOOP_DETECTD", folder=tmp_path)
    assert mistyped.returncode == 2
    assert "did you mean LOOP_DETECTED?" in mistyped.stderr
    everything = json.loads(remit("errors", "--json", folder=tmp_path).stdout)
    assert everything["schema"] == "remit.errors/1"
    assert {each["code"] for each in everything["errors"]} == set(Code)


async def test_the_folder_of_the_record_keeps_itself_out_of_git(tmp_path: Path) -> None:
    file = await record_something(tmp_path)
    assert (file.parent / ".gitignore").read_text(encoding="ascii") == "*\n"
    assert file.stat().st_mode & 0o077 == 0, "only its owner may read it"
