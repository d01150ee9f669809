"""`remit worker`: a process that hosts agents for the other hubs of a team, and drains when it is told to stop."""

import os
import signal
import subprocess
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from command_line import document, environment, remit
from commands import REMIT, popen
from nats_server import shared_server, team_name

CODE = """
import os
from remit import Brief

async def boss(brief: Brief) -> str:
    return (await brief.delegate("helper", objective=brief.objective)).unwrap()
"""
HELPER = """
import os

async def helper(brief) -> str:
    return f"helped by {os.getpid()}"
"""


@pytest.fixture
def team(tmp_path: Path) -> Path:
    name = team_name()
    (tmp_path / "remit.toml").write_text(
        f"""
        name = "cli-{os.getpid()}-{name}"
        [store]
        durability = "process"
        [bus]
        url = "{shared_server().url}"
        hosts = ["boss"]
        [agents.boss]
        run = "boss_{name}:boss"
        may_call = ["helper"]
        [agents.helper]
        run = "helper_{name}:helper"
        concurrency = 3
        """
    )
    (tmp_path / f"boss_{name}.py").write_text(CODE)
    (tmp_path / f"helper_{name}.py").write_text(HELPER)
    return tmp_path


@contextmanager
def working(team: Path, *agents: str) -> Generator["subprocess.Popen[str]"]:
    process = popen([REMIT, "worker", *agents], cwd=team, stderr=subprocess.PIPE, text=True, env=environment())
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


def test_a_worker_is_listed_answers_other_hubs_and_stops_when_told(team: Path) -> None:
    with working(team, "helper") as worker:
        assert worker.stderr is not None
        stderr = worker.stderr.readline()
        assert stderr.startswith("Hosting helper for cli-")
        listed = document("agents", "list", folder=team)["agents"]
        assert [(each["name"], each["lives_at"]) for each in listed] == [
            ("boss", ""),
            ("helper", "bus: 1 hub, version 1.0, 3 free"),
        ]
        done = remit("run", "boss", "Go", folder=team)
        assert done.stdout == f"helped by {worker.pid}\n"
        tree = remit("runs", "tree", "last", folder=team).stdout.split()
        assert "boss" in tree
        assert "helper" in tree
        worker.send_signal(signal.SIGTERM)
        assert worker.wait() == 0
        assert worker.stderr.read() == "Stopped.\n"
    assert document("agents", "list", folder=team)["agents"][1]["lives_at"] == "bus: no hub"


def test_a_worker_without_a_bus_or_with_an_unknown_agent_says_what_is_missing(team: Path) -> None:
    unknown = remit("worker", "helpr", folder=team)
    assert (unknown.returncode, unknown.stderr.splitlines()[0]) == (
        2,
        "AGENT_NOT_FOUND: no such agent `helpr`; did you mean `helper`?",
    )
    file = team / "remit.toml"
    file.write_text('[agents.a]\nrun = "nothing:a"\n')
    (team / "nothing.py").write_text("async def a(brief): return 1\n")
    alone = remit("worker", folder=team)
    assert alone.returncode == 3
    assert "the team has no bus" in alone.stderr


def test_a_bus_that_cannot_be_reached_is_said_and_the_team_is_listed(team: Path) -> None:
    done = remit("agents", "list", "--set", "bus.url=nats://127.0.0.1:1", folder=team)
    assert done.returncode == 0
    assert "Agents on other hubs are not shown: the bus at nats://127.0.0.1:1 cannot be reached." in done.stderr
    assert "helper" in done.stdout
