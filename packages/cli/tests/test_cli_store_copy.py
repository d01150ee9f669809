"""`remit store copy`: a store goes from a file to a database and back."""

import json
import re
import shlex
from pathlib import Path
from subprocess import CompletedProcess
from textwrap import dedent

import pytest

from command_line import remit
from doc_pages import page_path
from postgres_server import PASSWORD, USER, PostgresServer, shared_server

PAGE = page_path("postgres")

AGENTS = '[agents.echo]\nrun = "office:echo"\n'


@pytest.fixture
def server() -> PostgresServer:
    return shared_server()


@pytest.fixture
def team(tmp_path: Path) -> Path:
    (tmp_path / "remit.toml").write_text(AGENTS)
    (tmp_path / "office.py").write_text("async def echo(brief):\n    return brief.text.upper()\n")
    assert call(tmp_path, "run", "echo", "hello").stdout == "HELLO\n"
    return tmp_path


def call(folder: Path, *words: str, password: str = PASSWORD) -> CompletedProcess[str]:
    done = remit(*words, folder=folder, REMIT_DATABASE_PASSWORD=password)
    assert PASSWORD not in done.stdout + done.stderr
    assert "pass%2F" not in done.stdout + done.stderr
    return done


async def address(server: PostgresServer) -> str:
    url = await server.database()
    return f"postgresql://{USER}@127.0.0.1:{server.port}/{url.rpartition('/')[2]}"


async def test_the_commands_on_the_page_move_a_store_to_a_database_and_back(team: Path, server: PostgresServer) -> None:
    section = PAGE.read_text(encoding="utf-8").partition("## Move a store")[2].partition("\n## ")[0]
    (there, back) = re.findall(r"```sh\n(.*?)```", section, re.DOTALL)
    url = await address(server)
    before = json.loads(call(team, "audit", "verify", "--json").stdout)
    runs = json.loads(call(team, "runs", "list", "--json").stdout)["runs"]
    (team / "remit.toml").write_text(
        f'[store]\nurl = "{url}"\npassword = "$REMIT_DATABASE_PASSWORD"\n\n{AGENTS}',
    )
    for line in there.splitlines():
        command = line.partition(" #")[0]
        if command.startswith("remit "):
            done = call(team, *shlex.split(command)[1:])
            assert done.returncode == 0, done.stderr
    assert json.loads(call(team, "audit", "verify", "--json").stdout) == {**before, "file": url.replace(f"{USER}@", "")}
    assert json.loads(call(team, "runs", "list", "--json").stdout)["runs"] == runs
    assert call(team, "run", "echo", "again").stdout == "AGAIN\n"
    moved = back.replace("/mnt/disk/hub.db", str(team / "disk" / "hub.db"))
    for line in moved.splitlines():
        done = call(team, *shlex.split(line.partition(" #")[0])[1:])
        assert done.returncode == 0, done.stderr
    assert len(json.loads(call(team, "runs", "list", "--json", "--store", "disk/hub.db").stdout)["runs"]) == 2


async def test_what_was_copied_is_printed_as_text_and_as_a_document(team: Path, server: PostgresServer) -> None:
    url = await address(server)
    to = ("--to-password", "REMIT_DATABASE_PASSWORD")
    done = call(team, "store", "copy", ".remit/hub.db", url, *to)
    assert done.returncode == 0, done.stderr
    shown = url.replace(f"{USER}@", "")
    first, rows, last, verdict, *_ = done.stdout.splitlines()
    assert re.fullmatch(rf"Copied \.remit/hub\.db to {re.escape(shown)}; \d+ rows in \d+\.\d s\.", first)
    assert rows.startswith("  rows, each of them compared: record 2, request 1")
    assert re.fullmatch(r"  last row of the record in both: 2, [0-9a-f]{64}", last)
    assert verdict.startswith("the record is whole: 2 rows, 1 checkpoint,")
    assert "The key of the copy is .remit/hub.db.key: all hubs need it." in done.stderr
    done = call(team, "store", "copy", url, "new.db", "--from-password", "REMIT_DATABASE_PASSWORD", "--json")
    copied = json.loads(done.stdout)
    assert (copied["schema"], copied["ok"], copied["source"], copied["target"]) == (
        "remit.store-copy/1",
        True,
        shown,
        "new.db",
    )
    assert (copied["rows"]["record"], copied["head"], copied["digest"]) == (2, 2, last.rpartition(" ")[2])
    assert (copied["key"], copied["open_runs"], copied["resumed"], copied["findings"]) == ("new.db.key", 0, False, [])


async def test_what_goes_wrong_is_said_without_the_password(team: Path, server: PostgresServer) -> None:
    url = await address(server)
    to = ("--to-password", "REMIT_DATABASE_PASSWORD")

    def complaint(*words: str, password: str = PASSWORD) -> str:
        done = call(team, "store", "copy", *words, password=password)
        assert done.returncode != 0
        assert done.stdout == ""
        return done.stderr

    assert "the server refused the password" in complaint(".remit/hub.db", url, *to, password="another one")
    assert "the environment variable NOWHERE is not set" in complaint(".remit/hub.db", url, "--to-password", "NOWHERE")
    assert "the server cannot be reached" in complaint(".remit/hub.db", "postgresql://127.0.0.1:1/hub")
    assert "nowhere.db: there is no such store" in complaint("nowhere.db", "new.db")
    assert "source and target are the same store" in complaint(".remit/hub.db", "team")
    (team / "there.db").write_text("a file")
    assert "there.db is not empty" in complaint(".remit/hub.db", "there.db")
    assert "Missing argument 'TO'" in complaint(".remit/hub.db")


def test_a_damaged_record_is_copied_with_another_exit_code(team: Path) -> None:
    import sqlite3

    connection = sqlite3.connect(team / ".remit" / "hub.db")
    connection.execute("UPDATE record SET at_ms = at_ms + 1 WHERE seq = 1")
    connection.commit()
    connection.close()
    done = call(team, "store", "copy", ".remit/hub.db", "new.db")
    assert done.returncode == 1
    assert "edited: row 1" in done.stdout
    assert "Note: the record was damaged before it was copied." in done.stderr
    assert call(team, "audit", "verify", "new.db").stdout == call(team, "audit", "verify", ".remit/hub.db").stdout


def test_an_unfinished_copy_is_not_opened(team: Path) -> None:
    (team / "new.db.copying").touch()
    (team / "remit.toml").write_text(dedent(f'[store]\npath = "new.db"\n\n{AGENTS}'))
    done = call(team, "run", "echo", "hello")
    assert done.returncode != 0
    assert "new.db is an unfinished copy of another store" in done.stderr
