"""`remit up`: one process runs the device, and every other command is a client of it."""

import json
import os
import signal
import subprocess
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from command_line import REMIT, document, environment, remit
from commands import popen
from shared_teams import Up, introduce, make_annas, make_bobs, relay, up
from terminals import Terminal
from waiting import PATIENCE_S


class World:
    """Anna's folder and Bob's, with a gateway between them."""

    def __init__(self, annas: Path, bobs: Path) -> None:
        self.annas = annas
        self.bobs = bobs


# Bob's agent answers a question about "slowly" once the file `go` is there.
SLOW = """
import asyncio, pathlib

async def helper(brief):
    while "slowly" in brief.text and not pathlib.Path("go").exists():
        await asyncio.sleep(0.02)
    return f"heard: {brief.text}"
"""


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Generator[World]:
    path = tmp_path_factory.mktemp("up")
    with relay(path) as gateway:
        address = gateway.said["address"]
        annas, bobs = make_annas(path / "annas", address), make_bobs(path / "bobs", address)
        introduce(annas, bobs)
        (bobs / "bobs_code.py").write_text(SLOW)
        with up("up", "--json", folder=bobs):
            yield World(annas, bobs)


@contextmanager
def device(folder: Path) -> Generator[Up]:
    with up("up", "--json", folder=folder) as running:
        yield running


@contextmanager
def chat(folder: Path, *arguments: str) -> Generator[Terminal]:
    with Terminal([REMIT, "chat", "mine", "bob", *arguments], folder=folder) as terminal:
        terminal.wait_for("mine works with bob")
        yield terminal


def status(folder: Path) -> dict[str, Any]:
    return document("up", "--status", folder=folder)


def test_it_says_that_it_runs_shows_its_state_and_is_stopped(world: World) -> None:
    down = remit("up", "--status", folder=world.annas)
    assert (down.returncode, down.stdout) == (1, "The device is not running.\n")
    assert down.stderr == "→ remit up --detach\n"
    with device(world.annas) as running:
        record = running.said
        assert (record["schema"], record["name"], record["command"]) == ("remit.device-up/1", "anna", "up")
        assert record["pid"] == running.process.pid == status(world.annas)["pid"]
        shown = remit("up", "--status", folder=world.annas)
        assert shown.returncode == 0
        assert shown.stdout.startswith(f"remit up (process {record['pid']}) runs the device anna since ")
        assert "\nRuns:      0 open runs, 0 waiting drafts\n" in shown.stdout
        second = remit("up", folder=world.annas)
        assert second.returncode == 1
        assert f"this device is already running, in process {record['pid']}" in second.stderr
        stopped = remit("up", "--stop", folder=world.annas)
        assert stopped.stdout == f"Stopped remit up (process {record['pid']}). Active runs come back paused.\n"
        assert running.process.wait(timeout=PATIENCE_S) == 0
    assert not (world.annas / ".remit" / "up.json").exists()
    assert remit("up", "--stop", folder=world.annas).stdout == "The device is not running.\n"


def test_a_conversation_goes_on_when_its_terminal_is_closed(world: World) -> None:
    """S8: a draft waits for review, and the same run is joined again."""
    with device(world.annas) as running:
        with chat(world.annas, "--objective", "it", "--mode", "manual") as first:
            first.wait_for("draft needs review")
            os.kill(first.process.pid, signal.SIGKILL)
        assert status(world.annas)["waiting_drafts"] == 1
        with chat(world.annas, "--continue") as again:
            again.wait_for("message 1 about it", "draft needs review")
            again.type("/mode full_auto\r")
            again.wait_for("Mode full_auto: ")
            again.type("a\r")
            again.wait_for("heard: message 2 about it")
            assert again.wait() == 0
        with chat(world.annas, "--objective", "it", "--mode", "manual") as left:
            left.wait_for("draft needs review")
            left.type("/quit\r")
            assert left.wait() == 0
            pid = running.process.pid
            left.wait_for(f"The run continues in remit up (process {pid}).\n→ remit chat mine bob --continue, or remit")
        with chat(world.annas, "--continue") as paused:
            paused.wait_for("draft needs review")
            paused.type("\x03")
            paused.wait_for("Paused. Nothing is sent.")
            paused.type("\x03")
            assert paused.wait() == 130
            paused.wait_for("The run stays paused.\n→ remit chat mine bob --continue")


def test_an_answer_from_another_terminal_counts_or_is_refused_at_once(world: World) -> None:
    with device(world.annas), chat(world.annas, "--objective", "ask", "--mode", "manual") as terminal:
        terminal.wait_for("draft needs review")
        draft = next(
            each["draft"]
            for each in document("pending", "list", folder=world.annas)["drafts"]
            if each["objective"] == "ask"
        )
        done = remit("pending", "approve", draft, folder=world.annas)
        assert done.stdout.endswith("\nIt is sent.\n"), done.stdout + done.stderr
        terminal.wait_for("(turn 1, approved)", "Draft for turn 2;")
        terminal.type("/stop\r")
        assert terminal.wait() == 0


def started(folder: Path, objective: str) -> "subprocess.Popen[str]":
    return popen(
        [REMIT, "chat", "mine", "bob", "--objective", objective, "--mode", "full_auto"],
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(),
    )


def test_the_limit_of_a_profile_holds_over_all_clients(world: World) -> None:
    """S10: three calls at once, whichever process asks for them."""
    (world.bobs / "go").unlink(missing_ok=True)
    with device(world.annas):
        three = [started(world.annas, f"slowly {number}") for number in range(3)]
        until = time.monotonic() + PATIENCE_S
        while status(world.annas)["open_runs"] < 3 and time.monotonic() < until:
            time.sleep(0.1)
        for each in three:
            assert each.stdout is not None
            assert "Local agent (turn 1, auto-sent)" in each.stdout.readline(), "it was sent"
        refused = remit("chat", "mine", "bob", "--objective", "slowly 4", "--mode", "full_auto", folder=world.annas)
        assert refused.returncode != 0
        assert "3" in refused.stderr, refused.stderr
        (world.bobs / "go").touch()
        for each in three:
            out, err = each.communicate(timeout=PATIENCE_S)
            assert each.returncode == 0, out + err


def test_killed_and_started_again_it_has_its_runs(world: World) -> None:
    with device(world.annas) as running, chat(world.annas, "--objective", "twice", "--mode", "manual") as terminal:
        terminal.wait_for("draft needs review")
        running.process.kill()
        running.process.wait()
        terminal.wait_for(f"remit up (process {running.process.pid}) does not answer. Retrying.")
        with device(world.annas) as second:
            terminal.wait_for("The device is back.", "paused; a draft is pending")
            assert second.said["open_runs"] >= 1
            terminal.type("/resume\r")
            terminal.wait_for("draft needs review")
            terminal.type("/stop\r")
            assert terminal.wait() == 0


def test_in_the_background_it_is_started_and_stopped(world: World) -> None:
    done = remit("up", "--detach", folder=world.annas)
    assert done.returncode == 0, done.stderr
    try:
        assert done.stdout.startswith("The device is up: remit up (process ")
        assert "Its log is .remit/up.log\n→ remit up --status, or remit up --stop\n" in done.stderr
        again = remit("up", "--detach", folder=world.annas)
        assert "the device is already running, in remit up (process " in again.stderr
    finally:
        assert remit("up", "--stop", folder=world.annas).returncode == 0
    assert "The device anna is up" in (world.annas / ".remit" / "up.log").read_text()


def test_share_shows_what_a_running_device_shares(world: World) -> None:
    with up("share", "--json", folder=world.bobs) as shown:
        assert [each["name"] for each in shown.said["shared"]] == ["helper"]
        assert "goes on sharing." in shown.end(signal.SIGINT)
    other = remit("share", "helper", "--device", "anna", folder=world.bobs)
    assert other.returncode == 1
    assert "runs this device, and shares what the team file lists" in other.stderr


def test_the_system_can_start_it(world: World, tmp_path: Path) -> None:
    done = remit("up", "--install", "--print", folder=world.annas, XDG_CONFIG_HOME=str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert done.stderr.startswith(f"# {tmp_path}/systemd/user/remit-up-annas-")
    assert "\nRestart=on-failure\n" in done.stdout
    assert f'"--team" "{world.annas}/remit.toml"\n' in done.stdout
    assert list(tmp_path.iterdir()) == []
    written = remit("up", "--install", folder=world.annas, XDG_CONFIG_HOME=str(tmp_path), PATH="/nowhere")
    assert written.returncode == 0, written.stderr
    (unit,) = (tmp_path / "systemd" / "user").iterdir()
    assert f"Written: {unit}\n" in written.stdout
    assert f"→ Where it is, type: systemctl --user daemon-reload && systemctl --user enable --now {unit.name}\n" in (
        written.stderr
    )


def test_it_serves_the_guard_of_coding_tools_if_the_team_has_one(world: World, tmp_path: Path) -> None:
    where = {"REMIT_GUARD": str(tmp_path / "guard")}
    with up("up", "--json", "--set", "guard.tokens=50_000", folder=world.annas, **where) as running:
        shown = remit("guard", "status", folder=tmp_path, **where)
        assert f"The guard runs as process {running.process.pid};" in shown.stdout
        second = remit("guard", "serve", folder=tmp_path, **where)
        assert second.returncode == 1
        assert f"the guard already runs, as process {running.process.pid}" in second.stderr
        stopped = remit("guard", "stop", folder=tmp_path, **where)
        assert f"the guard is a part of `remit up`, process {running.process.pid}, which would end" in stopped.stderr
        assert "→ To end both: remit up --stop" in stopped.stderr
        assert running.process.poll() is None
    assert "The guard does not run" in remit("guard", "status", folder=tmp_path, **where).stdout


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--stop", "--status"], "--status and --stop cannot be combined"),
        (["--print"], "--print needs --install"),
    ],
)
def test_options_that_do_not_fit_are_refused(world: World, arguments: list[str], says: str) -> None:
    done = remit("up", *arguments, folder=world.annas)
    assert done.returncode == 2
    assert says in done.stderr


def test_the_file_of_a_running_device_is_for_its_owner_alone(world: World) -> None:
    file = world.bobs / ".remit" / "up.json"
    assert file.stat().st_mode & 0o777 == 0o600
    assert json.loads(file.read_text())["address"].startswith("http://127.0.0.1:")
