"""Commands that read and write the store of a team, which is in a PostgreSQL database."""

import json
from collections.abc import Iterator
from pathlib import Path
from subprocess import CompletedProcess
from textwrap import dedent
from typing import Any

import pytest

from command_line import remit
from postgres_server import PASSWORD, USER, PostgresServer, shared_server


@pytest.fixture
def server() -> PostgresServer:
    return shared_server()


@pytest.fixture
async def team(server: PostgresServer, tmp_path: Path) -> Path:
    url = await server.database()
    (tmp_path / "remit.toml").write_text(
        dedent(f"""\
            [store]
            url = "postgresql://{USER}@127.0.0.1:{server.port}/{url.rpartition("/")[2]}"
            password = "$DATABASE_PASSWORD"

            [agents.echo]
            run = "office:echo"
            """)
    )
    (tmp_path / "office.py").write_text("async def echo(brief):\n    return brief.text.upper()\n")
    return tmp_path


def call(team: Path, *words: str) -> CompletedProcess[str]:
    done = remit(*words, folder=team, DATABASE_PASSWORD=PASSWORD)
    assert PASSWORD not in done.stdout + done.stderr
    return done


def printed(team: Path, *words: str) -> dict[str, Any]:
    return json.loads(call(team, *words).stdout)


def output_lines(team: Path, *words: str) -> Iterator[str]:
    done = call(team, *words)
    assert done.returncode == 0, done.stderr
    yield from done.stdout.splitlines()


def test_the_commands_work_with_a_database(team: Path) -> None:
    assert list(output_lines(team, "run", "echo", "hello")) == ["HELLO"]
    (run,) = printed(team, "runs", "list", "--json")["runs"]
    assert (run["agent"], run["state"]) == ("echo", "finished")
    shown = printed(team, "runs", "show", "last", "--json")
    assert shown["store"].startswith("postgresql://127.0.0.1:")
    assert list(output_lines(team, "runs", "answer", "last")) == ["HELLO"]
    assert any("echo" in line for line in output_lines(team, "runs", "tree", "last"))
    assert [line.split()[2] for line in output_lines(team, "audit", "tail")] == ["started", "result"]
    verdict = printed(team, "audit", "verify", "--json")
    assert (verdict["ok"], verdict["rows"], verdict["unchained"]) == (True, 2, 0)
    assert len(list(output_lines(team, "audit", "export"))) == 3
    assert len(list(output_lines(team, "audit", "anchor"))) == 1
    assert call(team, "pending", "list").returncode == 0
    assert call(team, "runs", "cancel", run["run"]).returncode == 1
    assert call(team, "agents", "list").returncode == 0
    doctor = call(team, "doctor", "--all")
    assert "can be read; 2 rows" in doctor.stdout + doctor.stderr
    assert not (team / ".remit/hub.db").exists()


def test_a_wrong_password_is_said_without_the_right_one(team: Path) -> None:
    done = remit("runs", "list", folder=team, DATABASE_PASSWORD="another one")
    assert done.returncode != 0
    assert "the server refused the password" in done.stderr
