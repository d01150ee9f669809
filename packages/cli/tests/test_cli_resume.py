"""`remit runs resume` and `remit runs print`: what a killed process left behind goes on, and nothing is done twice."""

import json
import os
import signal
import subprocess
import time
from pathlib import Path

import msgspec
import pytest

from commands import popen, run_program
from crew import REMIT, remit
from remit.stores.connection import connect_file
from remit_server.documents.runs import Resumed, RunAnswer, RunDetails, RunSteps
from waiting import PATIENCE_S, wait_until

TEAM = """
name = "crew"

[store]
durability = "process"

[agents.worker]
run = "flow_code:work"
capabilities = ["SAFE", "ONCE"]

[agents.plain]
run = "flow_code:work"

[capabilities.SAFE]
read_only = true
description = "Look something up"
examples = ["lookup", "do a lookup for me"]

[capabilities.ONCE]

[workflows.trip]
steps = [
    { name = "a", agent = "worker", capability = "ONCE", objective = "a", input = "{input}" },
    { name = "b", agent = "worker", capability = "SAFE", objective = "b", after = ["a"] },
    { name = "c", agent = "worker", capability = "ONCE", objective = "c", after = ["b"] },
]
result = "c"

[workflows.asking]
steps = [{ name = "d", agent = "plain", objective = "d" }]

[[rules]]
to = "plain"
from = "asking"
then = "ask"
say = "May the plain one do it?"
"""

CODE = """
import asyncio
from pathlib import Path

HERE = Path(__file__).parent


async def work(brief):
    with (HERE / "done.txt").open("a") as marks:
        marks.write(brief.objective + "\\n")
    while (HERE / "hang").exists() and (HERE / "hang").read_text() == brief.objective:
        await asyncio.sleep(0.005)
    return f"did {brief.objective} {brief.input}"
"""


@pytest.fixture
def crew(tmp_path: Path) -> Path:
    (tmp_path / "remit.toml").write_text(TEAM, encoding="utf-8")
    (tmp_path / "flow_code.py").write_text(CODE, encoding="utf-8")
    return tmp_path


def marks(crew: Path) -> list[str]:
    file = crew / "done.txt"
    return file.read_text(encoding="utf-8").split() if file.exists() else []


def start(crew: Path, step: str, *order: str) -> subprocess.Popen[bytes]:
    """Start a run in a process of its own that stays at a step."""
    (crew / "hang").write_text(step, encoding="utf-8")
    quiet = subprocess.DEVNULL
    process = popen([REMIT, "run", *order], cwd=crew, stdin=quiet, stdout=quiet, stderr=quiet)
    wait_until(lambda: step in marks(crew))
    return process


def end_lease(crew: Path) -> None:
    """End the lease of a process that was killed; by itself it ends within five seconds."""
    connection = connect_file(crew / ".remit" / "hub.db")
    connection.execute("UPDATE request SET lease_until_ms = ? WHERE state = 0", (time.time_ns() // 1_000_000,))
    connection.close()


def killed_at(crew: Path, step: str, *order: str, leased: bool = False) -> str:
    """Have a run killed with -9 at a step, and return its id; if it is *leased*, its lease ends by itself."""
    process = start(crew, step, *order)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    if not leased:
        end_lease(crew)
    (crew / "hang").unlink()
    return json.loads(remit(crew, "runs", "list", "--jsonl").stdout.splitlines()[0])["run"]


def shown(crew: Path, run: str) -> RunDetails:
    return msgspec.json.decode(remit(crew, "runs", "show", run, "--json").stdout, type=RunDetails)


TRIP = ("trip", "go", "--input", '{"to": "ann@example.org"}')


def test_a_killed_workflow_goes_on_and_no_finished_step_is_repeated(crew: Path) -> None:
    """K8: the step that was under way is safe to repeat."""
    run = killed_at(crew, "b", *TRIP, leased=True)
    done = remit(crew, "runs", "resume")
    assert (done.returncode, done.stdout) == (0, "did c c\n"), done.stderr
    assert marks(crew) == ["a", "b", "b", "c"]
    assert "resumed after a restart" in done.stderr
    assert "success" in done.stderr
    again = remit(crew, "runs", "resume", run[:16], "--json")
    assert "had already ended; this is its answer" in again.stderr
    assert msgspec.json.decode(again.stdout, type=RunAnswer).result == "did c c"
    nothing = remit(crew, "runs", "resume")
    assert (nothing.returncode, nothing.stdout) == (0, "")
    assert "Nothing to resume" in nothing.stderr
    assert marks(crew) == ["a", "b", "b", "c"]


def test_only_the_run_that_is_named_goes_on(crew: Path) -> None:
    """K8: what else was left behind is left alone."""
    first = killed_at(crew, "b", *TRIP, leased=True)
    (crew / "done.txt").unlink()
    second = killed_at(crew, "b", *TRIP, leased=True)
    third = killed_at(crew, "x", "plain", "x", leased=True)
    (crew / "done.txt").unlink()
    done = remit(crew, "runs", "resume", second)
    assert (done.returncode, done.stdout, marks(crew)) == (0, "did c c\n", ["b", "c"]), done.stderr
    assert {run: shown(crew, run).status for run in (first, third)} == {first: None, third: None}
    assert remit(crew, "runs", "resume").returncode == 1, "the one that cannot go on has no known end"
    assert marks(crew) == ["b", "c", "b", "c"]


def test_a_run_of_the_orchestrator_goes_on_as_any_other(crew: Path) -> None:
    """K8."""
    with (crew / "remit.toml").open("a", encoding="utf-8") as file:
        file.write("\n[orchestrator]\n")
    run = killed_at(crew, "lookup", "orchestrator", "lookup")
    done = remit(crew, "runs", "resume", run)
    assert done.returncode == 0, done.stderr
    assert "did lookup" in done.stdout
    assert marks(crew) == ["lookup", "lookup"]


def test_a_step_that_may_have_been_done_waits_for_a_person_and_goes_on_after_their_answer(crew: Path) -> None:
    """K8: nothing is held in memory meanwhile."""
    run = killed_at(crew, "c", *TRIP)
    done = remit(crew, "runs", "resume", "--json")
    assert done.returncode == 0, done.stderr
    assert msgspec.json.decode(done.stdout, type=Resumed) == Resumed(waiting=(run,))
    assert f"run {run[:16]} waits for approval: It is not known whether this was done" in done.stderr
    (question,) = [each.question for each in shown(crew, run).approvals if each.agreed is None]
    assert f"→ remit pending approve {question}" in done.stderr
    assert remit(crew, "pending", "approve", question).returncode == 0
    done = remit(crew, "runs", "resume", run)
    assert (done.returncode, done.stdout) == (0, "did c c\n"), done.stderr
    assert marks(crew) == ["a", "b", "c", "c"]


def test_what_another_process_is_at_work_on_is_left_to_it_or_waited_for(crew: Path) -> None:
    process = start(crew, "b", *TRIP)
    try:
        run = json.loads(remit(crew, "runs", "list", "--jsonl").stdout)["run"]
        left = remit(crew, "runs", "resume", "--json")
        assert msgspec.json.decode(left.stdout, type=Resumed) == Resumed(elsewhere=(run,))
        assert f"→ remit runs watch {run[:16]}" in left.stderr
        with popen(
            [REMIT, "runs", "resume", run], cwd=crew, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as waiting:
            assert waiting.stderr is not None
            assert waiting.stdout is not None
            for line in waiting.stderr:
                if "Another process is executing" in line:
                    break
            (crew / "hang").unlink()
            assert waiting.stdout.read() == "did c c\n"
        assert waiting.returncode == 0
    finally:
        (crew / "hang").unlink(missing_ok=True)
        process.wait()
    assert marks(crew) == ["a", "b", "c"]


def test_a_run_that_waits_for_a_person_says_which_question_and_goes_on_once_it_is_answered(crew: Path) -> None:
    process = popen([REMIT, "run", "asking", "go"], cwd=crew, stderr=subprocess.DEVNULL)
    wait_until(lambda: "May the plain one" in remit(crew, "pending", "list").stdout)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    end_lease(crew)
    with popen(
        [REMIT, "runs", "resume", "last"], cwd=crew, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as waiting:
        assert waiting.stderr is not None
        assert waiting.stdout is not None
        for line in waiting.stderr:
            if line.startswith("→ remit pending approve "):
                assert remit(crew, "pending", "approve", line.split()[-1]).returncode == 0
                break
        assert "did d" in waiting.stdout.read()
    assert waiting.returncode == 0
    assert marks(crew) == ["d"]


def test_control_c_leaves_a_run_that_can_go_on_later(crew: Path) -> None:
    run = killed_at(crew, "b", *TRIP)
    (crew / "hang").write_text("b", encoding="utf-8")
    process = popen(
        [REMIT, "runs", "resume", run], cwd=crew, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True
    )
    wait_until(lambda: marks(crew).count("b") == 2)
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 130
    assert f"→ Continue it: remit runs resume {run[:16]}" in stderr
    (crew / "hang").unlink()
    done = remit(crew, "runs", "resume", run)
    assert (done.returncode, done.stdout) == (0, "did c c\n"), done.stderr


def test_one_that_cannot_go_on_is_ended_and_one_of_another_team_is_named(crew: Path) -> None:
    run = killed_at(crew, "x", "plain", "x")
    (crew / "other.toml").write_text('[agents.plan]\nrun = "flow_code:work"\n', encoding="utf-8")
    other = remit(crew, "runs", "resume", run, "--team", "other.toml")
    assert other.returncode != 0
    assert "belongs to agent `plain`, which is not in other.toml; did you mean `plan`?" in other.stderr
    done = remit(crew, "runs", "resume", run)
    assert (done.returncode, done.stdout) == (1, "")
    assert "OUTCOME_UNKNOWN" in done.stderr
    assert marks(crew) == ["x"]


def test_a_run_that_is_not_there_is_not_resumed(crew: Path) -> None:
    assert "no record yet" in remit(crew, "runs", "resume").stderr
    assert remit(crew, "run", *TRIP).returncode == 0
    done = remit(crew, "runs", "resume", "nothing")
    assert done.returncode == 2
    assert "no run id starts with `nothing`" in done.stderr


# ── retry ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_run_that_timed_out_is_tried_again_with_more_time_and_no_finished_step_is_repeated(crew: Path) -> None:
    """K10: the caller retries with a longer time-out; K8: what was done is not done twice."""
    (crew / "hang").write_text("b", encoding="utf-8")
    first = remit(crew, "run", *TRIP, "--user", "ana", "--deadline", "3s")
    assert "not finished" in first.stderr, first.stderr
    run = json.loads(remit(crew, "runs", "list", "--jsonl").stdout.splitlines()[0])["run"]
    assert f"→ remit runs retry {run[:16]} --deadline TIME" in first.stderr
    (crew / "hang").unlink()
    again = remit(crew, "runs", "retry", "last", "--deadline", "1m", "--json")
    output = msgspec.json.decode(again.stdout, type=RunDetails)
    assert (again.returncode, output.status, output.result) == (0, "success", "did c c"), again.stderr
    assert (output.user, output.run != run) == ("ana", True)
    assert output.delegations[0].time_ms == 60_000
    assert marks(crew) == ["a", "b", "b", "c"]
    over = remit(crew, "runs", "retry", "last")
    assert over.returncode == 2
    assert "succeeded" in over.stderr


def test_what_is_tried_again_is_asked_as_it_was_asked(crew: Path) -> None:
    """X12: the agent gets what the user wrote, not what was recorded of it."""
    with (crew / "flow_code.py").open("a", encoding="utf-8") as code:
        code.write("""

async def echo(brief):
    if not (HERE / "open").exists():
        raise ValueError("closed")
    return [brief.objective, brief.input]
""")
    with (crew / "remit.toml").open("a", encoding="utf-8") as file:
        file.write('\n[agents.echo]\nrun = "flow_code:echo"\n')
    text, given = "Write to ann@example.org", {"iban": "DE89370400440532013000", "n": 5}
    first = remit(crew, "run", "echo", text, "--input", json.dumps(given), "--session", "s-1")
    assert first.returncode == 1
    (crew / "open").touch()
    again = remit(crew, "runs", "retry", "last")
    assert json.loads(again.stdout) == [text, given], again.stderr
    assert shown(crew, "last").session == "s-1"


def test_a_run_that_has_not_ended_is_resumed_and_not_retried(crew: Path) -> None:
    run = killed_at(crew, "b", *TRIP)
    done = remit(crew, "runs", "retry", run)
    assert done.returncode == 2
    assert f"→ Resume it: remit runs resume {run[:16]}" in done.stderr
    assert "no run id starts with" in remit(crew, "runs", "retry", "nothing").stderr


# ── replay ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_recorded_run_is_shown_step_by_step_and_nobody_is_called(crew: Path) -> None:
    assert remit(crew, "run", *TRIP, "--user", "ana").returncode == 0
    (crew / "flow_code.py").unlink()
    done = remit(crew, "runs", "print", "last")
    assert done.returncode == 0, done.stderr
    lines = [line.strip() for line in done.stdout.splitlines()]
    assert lines[0] == "0.00  ana asks trip: go"
    assert '{"to":"[EMAIL:' in lines[1]
    assert any(line.endswith("  trip asks worker: a") for line in lines)
    assert any("worker: success" in line for line in lines)
    assert "did b b" in lines
    output = msgspec.json.decode(remit(crew, "runs", "print", "last", "--json").stdout, type=RunSteps)
    assert output.state == "finished"
    assert [step.kind for step in output.steps][:2] == ["started", "progress"]
    assert [step.preview for step in output.steps][-1] == "did c c"
    assert [step.elapsed_ms for step in output.steps] == sorted(step.elapsed_ms for step in output.steps)
    assert marks(crew) == ["a", "b", "c"]


def test_a_run_that_has_not_ended_is_shown_as_far_as_it_came(crew: Path) -> None:
    run = killed_at(crew, "b", *TRIP)
    done = remit(crew, "runs", "print", run)
    assert "trip asks worker: b" in done.stdout
    assert f"→ remit runs resume {run[:16]}" in done.stderr
    words = {"_REMIT_COMPLETE": "bash_complete", "COMP_WORDS": "remit runs resume ", "COMP_CWORD": "3"}
    offered = run_program([REMIT], folder=crew, variables={**os.environ, **words})
    assert offered.stdout == f"plain,{run}\n"
