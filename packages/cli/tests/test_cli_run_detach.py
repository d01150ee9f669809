"""`remit run --detach`: a run that goes on by itself, and what others do to it."""

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from commands import popen
from crew import REMIT, make_crew, remit
from remit_server.documents.runs import Cancellation, Detached, RunDetails
from terminals import Terminal
from waiting import wait_until


@pytest.fixture
def crew(tmp_path: Path) -> Iterator[Path]:
    yield make_crew(tmp_path)
    for log in (tmp_path / ".remit" / "runs").glob("*.log"):
        remit(tmp_path, "runs", "cancel", log.stem)  # none outlives its test


def detach(crew: Path, agent: str, *arguments: str) -> Detached:
    done = remit(crew, "run", agent, "the secret task", "--detach", "--json", *arguments)
    assert done.returncode == 0, done.stderr
    return msgspec.json.decode(done.stdout, type=Detached)


def is_alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


def shown(crew: Path, run: str) -> RunDetails:
    return msgspec.json.decode(remit(crew, "runs", "show", run, "--json").stdout, type=RunDetails)


# ── starting ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_its_id_is_printed_while_it_goes_on_and_its_answer_is_recorded(crew: Path) -> None:
    done = remit(crew, "run", "worker", "x", "--detach")
    run = done.stdout.strip()
    assert done.returncode == 0
    assert f"→ remit runs watch {run[:16]}" in done.stderr
    assert "Warning" not in done.stderr
    assert shown(crew, run).state == "running"
    (crew / "go").touch()
    wait_until(lambda: shown(crew, run).status == "success")
    assert shown(crew, run).result == "x done"
    assert "worker: success" in (crew / ".remit" / "runs" / f"{run}.log").read_text(encoding="utf-8")


def test_neither_task_nor_input_stand_on_its_command_line(crew: Path) -> None:
    started = detach(crew, "worker", "--input", '{"password": "hunter2"}')
    line = Path(f"/proc/{started.pid}/cmdline").read_bytes()
    assert b"worker" in line
    assert b"secret" not in line
    assert b"hunter2" not in line


def test_it_has_a_session_of_its_own_and_ignores_what_ends_a_terminal(crew: Path) -> None:
    started = detach(crew, "worker")
    assert os.getsid(started.pid) == started.pid
    os.kill(started.pid, signal.SIGHUP)
    os.kill(started.pid, signal.SIGINT)
    assert shown(crew, started.run).state == "running"
    (crew / "go").touch()
    wait_until(lambda: shown(crew, started.run).status == "success")


def test_its_log_is_for_its_owner_alone(crew: Path) -> None:
    assert Path(detach(crew, "worker").log).stat().st_mode & 0o077 == 0


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["nobody", "x"], 2, "no such agent `nobody`"),
        (["payer", "x", "--set", "approvals.otherwise=deny"], 4, "APPROVAL_DECLINED"),
        (["worker", "x", "--session", "mine"], 4, "PERMISSION_DENIED"),
        (["worker", "x", "--set", "agents.worker.run=crew_code:nothing"], 3, "TEAM_INVALID"),
        (["worker", "x", "--set", "limits.max_dept=3"], 3, "did you mean"),
    ],
)
def test_what_is_wrong_before_it_is_recorded_is_said_here(
    crew: Path, arguments: list[str], code: int, message: str
) -> None:
    assert remit(crew, "run", "hello", "x", "--session", "mine", "--user", "bo").returncode == 0
    done = remit(crew, "run", *arguments, "--detach", "--user", "bo")
    assert (done.returncode, done.stdout) == (code, "")
    assert message in done.stderr
    assert "→" in done.stderr
    assert not list((crew / ".remit" / "runs").glob("*.log"))


def test_one_that_waits_for_a_person_returns_and_says_so(crew: Path) -> None:
    done = remit(crew, "run", "payer", "x", "--detach")
    run = done.stdout.strip()
    assert "remit pending list" in done.stderr
    assert shown(crew, run).state == "waiting"
    (approval,) = shown(crew, run).approvals
    assert remit(crew, "pending", "approve", approval.question).returncode == 0
    wait_until(lambda: shown(crew, run).status == "success")


def test_a_killed_parent_does_no_harm(crew: Path) -> None:
    """The parent is stopped as soon as the run's process has its order, and killed before it could hear of the run."""
    parent = popen([REMIT, "run", "worker", "x", "--detach"], cwd=crew, stdout=subprocess.PIPE)
    wait_until((crew / ".remit" / "hub.db").exists)
    parent.send_signal(signal.SIGSTOP)
    wait_until(lambda: remit(crew, "runs", "list", "--state", "running", "--jsonl").stdout != "")
    parent.kill()
    parent.communicate()
    run = json.loads(remit(crew, "runs", "list", "--jsonl").stdout)["run"]
    (crew / "go").touch()
    wait_until(lambda: shown(crew, run).status == "success")


# ── from another process ──────────────────────────────────────────────────────────────────────────────────────────────


def test_it_is_watched_and_cancelled_from_other_terminals(crew: Path) -> None:
    started = detach(crew, "lead")
    with Terminal([REMIT, "runs", "watch", started.run[:14]], folder=crew) as terminal:
        terminal.wait_for("waiting", "half done red")
        done = remit(crew, "runs", "cancel", started.run, "--reason", "wrong month", "--json")
        assert (done.returncode, msgspec.json.decode(done.stdout, type=Cancellation).outcome) == (0, "cancelled")
        assert terminal.wait() == 130
    assert "wrong month" in terminal.screen
    assert "worker  cancelled" in terminal.screen
    wait_until(lambda: not is_alive(started.pid))
    again = remit(crew, "runs", "cancel", started.run)
    assert again.returncode == 1
    assert "had already ended: cancelled" in again.stderr


def test_a_part_of_it_is_cancelled_from_another_terminal_and_the_rest_goes_on(crew: Path) -> None:
    started = detach(crew, "lead")
    wait_until(lambda: len(shown(crew, started.run).delegations) == 3)
    done = remit(crew, "runs", "cancel", started.run, "--delegation", "1", "--json")
    output = msgspec.json.decode(done.stdout, type=Cancellation)
    assert (done.returncode, output.delegation, output.outcome) == (0, f"{started.run}.1", "cancelled")
    (crew / "go").touch()
    wait_until(lambda: shown(crew, started.run).state == "finished")
    assert [each.state for each in shown(crew, started.run).delegations[1:3]] == ["cancelled", "success"]
    again = remit(crew, "runs", "cancel", started.run, "--delegation", f"{started.run}.1")
    assert (again.returncode, f"The delegation {started.run}.1 had already ended" in again.stderr) == (1, True)
    unknown = remit(crew, "runs", "cancel", started.run, "--delegation", "7")
    assert "no delegation `7`" in unknown.stderr


def test_watching_ends_with_the_run_as_the_run_did(crew: Path) -> None:
    started = detach(crew, "worker")
    with popen(
        [REMIT, "runs", "watch", started.run, "--jsonl"], cwd=crew, stdout=subprocess.PIPE, text=True
    ) as watching:
        assert watching.stdout is not None
        assert json.loads(watching.stdout.readline())["kind"] == "started"
        (crew / "go").touch()
        assert json.loads(watching.stdout.readlines()[-1])["body"]["result"] == "the secret task done"
    assert watching.returncode == 0


def test_control_c_ends_the_watching_and_not_the_run(crew: Path) -> None:
    started = detach(crew, "worker")
    with Terminal([REMIT, "runs", "watch", "last"], folder=crew) as terminal:
        terminal.wait_for("half done")
        terminal.type("\x03")
        assert terminal.wait() == 130
    assert "continues" in terminal.screen
    assert shown(crew, started.run).state == "running"


def test_one_that_waits_for_a_person_is_cancelled(crew: Path) -> None:
    started = detach(crew, "payer")
    done = remit(crew, "runs", "cancel", started.run)
    assert done.returncode == 0, done.stderr
    assert shown(crew, started.run).fault is not None
    assert "Nothing is pending" in remit(crew, "pending", "list").stderr


def test_one_whose_process_was_killed_is_ended_for_it(crew: Path) -> None:
    started, waiting = detach(crew, "worker"), detach(crew, "payer")
    for each in (started, waiting):
        os.kill(each.pid, signal.SIGKILL)
    for each in (started, waiting):
        reason = "ask ann@example.org"
        assert remit(crew, "runs", "cancel", each.run, "--reason", reason).returncode == 0
        assert shown(crew, each.run).status == "cancelled"
        fault = shown(crew, each.run).fault
        assert fault is not None
        assert "ask [EMAIL:" in fault.message
    assert "Nothing is pending" in remit(crew, "pending", "list").stderr


def test_watching_one_whose_process_was_killed_says_so(crew: Path) -> None:
    started = detach(crew, "worker")
    with Terminal([REMIT, "runs", "watch", started.run], folder=crew) as terminal:
        terminal.wait_for("half done")
        os.kill(started.pid, signal.SIGKILL)
        terminal.wait_for("shows no sign of life", f"remit runs cancel {started.run[:16]}")
