"""`remit serve --workers N`: several processes behind one address, with one store."""

import json
import os
import re
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from programs import is_alive
from serve_command import ServedTeam, serving, started
from waiting import PATIENCE_S, wait_until

TEAM = """
name = "shop"

[store]
durability = "process"

[agents.echo]
run = "shop_code:echo"

[agents.slow]
run = "shop_code:slow"
"""
CODE = """
import asyncio
import os
from pathlib import Path

async def echo(brief):
    return os.getpid()

async def slow(brief):
    Path("begun").touch()
    while not Path("go").exists():
        await asyncio.sleep(0.02)
    return os.getpid()
"""


@pytest.fixture
def team(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "remit.toml").write_text(TEAM)
    (tmp_path / "shop_code.py").write_text(CODE)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def ask(up: ServedTeam, target: str, **options: str) -> dict[str, Any]:
    return up.get("/v1/delegations", {"target": target, "user": "ana", "objective": "x", **options})[1]


def workers_of(up: ServedTeam) -> set[int]:
    """Return the processes of the workers."""
    listed = subprocess.run(
        ["ps", "-o", "pid=", "--ppid", str(up.process.pid)], capture_output=True, text=True, check=False
    )
    return {int(each) for each in listed.stdout.split()}


@pytest.mark.usefixtures("team")
def test_workers_share_the_address_the_store_and_the_metrics() -> None:
    with serving("--workers", "2") as up:
        answered = {ask(up, "echo", id=f"request-{number}")["result"] for number in range(20)}
        assert answered <= workers_of(up)
        assert len(workers_of(up)) == 2
        again = ask(up, "echo", id="request-3")
        assert again["result"] in answered
        for _ in range(4):  # whichever worker is asked
            ended = re.findall(
                r'^remit_delegations_total\{agent="echo",.*\} (\d+)$', up.send("/metrics")[1], re.MULTILINE
            )
            assert ended == ["20"]
        assert len(up.get("/v1/runs?limit=50")[1]["runs"]) == 20
        up.process.send_signal(signal.SIGINT)
        _, stderr = up.process.communicate(timeout=PATIENCE_S)
    assert (up.process.returncode, "Stopped. All workers have ended." in stderr) == (0, True)


def test_a_worker_that_is_killed_is_started_again_and_the_others_go_on(team: Path) -> None:
    with serving("--workers", "2") as up:
        handle = json.loads(
            up.send("/v1/delegations", {"target": "slow", "user": "ana", "objective": "x"}, prefer="respond-async")[1]
        )
        wait_until((team / "begun").exists)
        before = workers_of(up)
        for killed in list(before):  # one after the other, so that the one with the run is among them
            os.kill(killed, signal.SIGKILL)
            wait_until(lambda gone=killed: gone not in workers_of(up) and len(workers_of(up)) == 2)
            wait_until(lambda: ask(up, "echo")["result"] in workers_of(up))
        assert not before & workers_of(up)
        wait_until(lambda: "OUTCOME_UNKNOWN" in up.send(handle["link"])[1])


@pytest.mark.usefixtures("team")
def test_workers_end_if_their_parent_is_killed() -> None:
    with serving("--workers", "2") as up:
        workers = workers_of(up)
        up.process.kill()
        up.process.wait()
        wait_until(lambda: not any(map(is_alive, workers)))


def test_what_keeps_the_first_worker_from_starting_is_said_once(team: Path) -> None:
    (team / ".remit").mkdir()
    token = team / ".remit" / "serve.token"
    token.write_text("short\n")
    token.chmod(0o600)
    process = started("--workers", "3")
    out, stderr = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, json.loads(out)["code"]) == (3, "TEAM_INVALID")
    assert stderr.count("serve.token holds no valid token") == 1
