"""`remit run` in a pipe: the answer on stdout, what happens on stderr, how it went in the exit code."""

import asyncio
import json
import signal
import subprocess
from pathlib import Path
from subprocess import PIPE

import msgspec
import pytest

from commands import popen
from crew import REMIT, documents, make_crew, remit
from remit import Brief, Hub
from remit_cli.config.rules import Rule, guard_of
from remit_server import serve
from remit_server.documents.common import Failure
from remit_server.documents.runs import RecordLine, RunDetails
from remit_testing import MemoryStore
from waiting import PATIENCE_S


@pytest.fixture
def crew(tmp_path: Path) -> Path:
    return make_crew(tmp_path)


def run(crew: Path, agent: str, *arguments: str, input: str | None = None) -> subprocess.CompletedProcess[str]:
    return remit(crew, "run", agent, *arguments, input=input)


# ── what goes where ───────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_answer_alone_is_on_stdout_and_who_asked_whom_on_stderr(crew: Path) -> None:
    (crew / "go").touch()
    done = run(crew, "lead", "Sort", "--user", "ana")
    assert (done.returncode, done.stdout) == (0, '["first done","second done"]\n')
    stderr = [line[10:] for line in done.stderr.splitlines()]
    assert stderr[0] == "ana asks lead: Sort"
    assert "lead asks worker: first" in stderr
    assert "worker: half done red\ufffd" in stderr
    assert any(line.startswith("lead asks lead: again: refused, LOOP_DETECTED") for line in stderr)
    assert "warning: the third was refused" in done.stderr
    assert "→ remit runs show" in done.stderr


def test_what_agents_print_does_not_reach_stdout(crew: Path) -> None:
    done = run(crew, "noisy", "x")
    assert json.loads(done.stdout) == {"a": 1, "b": "\x1b[31m\x9b2J"}
    assert "said by the agent" in done.stderr
    assert "said by its child" in done.stderr


def test_one_document_holds_everything(crew: Path) -> None:
    (crew / "go").touch()
    done = run(crew, "lead", "Sort", "--user", "ana", "--budget", "9000", "--deadline", "20s", "--json")
    output = msgspec.json.decode(done.stdout, type=RunDetails)
    assert (output.status, output.exit_code, output.state) == ("success", 0, "finished")
    assert (output.user, output.agent, output.objective) == ("ana", "lead", "Sort")
    assert output.result == ["first done", "second done"]
    assert output.usage.total == 200
    assert [(each.agent, each.state) for each in output.delegations] == [
        ("lead", "success"),
        ("worker", "success"),
        ("worker", "success"),
        ("lead", "refused"),
    ]
    assert (output.delegations[0].tokens, output.delegations[0].time_ms) == (9_000, 20_000)
    assert output.delegations[1].tools == {"look": 1}


def test_records_come_one_per_line_and_the_last_is_the_result(crew: Path) -> None:
    done = run(crew, "hello", "you", "--jsonl")
    records = [msgspec.convert(each, RecordLine) for each in documents(done)]
    assert [each.kind for each in records] == ["started", "result"]
    assert records[-1].body["result"] == "hello you"


def test_what_an_agent_says_comes_between_the_records_and_in_the_answer_once(crew: Path) -> None:
    (crew / "go").touch()
    records = [msgspec.convert(each, RecordLine) for each in documents(run(crew, "speaker", "the end", "--jsonl"))]
    deltas = [each for each in records if each.kind == "delta"]
    assert {(each.seq, each.body["agent"]) for each in deltas} == {(0, "speaker")}
    assert "".join(each.body["text"] for each in deltas) == records[-1].body["result"]
    done = run(crew, "speaker", "the end")
    assert done.stdout.count("many more") == 10
    assert "many more" not in done.stderr


def test_a_task_and_an_input_can_come_from_stdin_or_a_file(crew: Path) -> None:
    (crew / "in.json").write_text("[1, 2]", encoding="utf-8")
    assert run(crew, "hello", "-", input="from stdin\n").stdout == "hello from stdin\n"
    assert run(crew, "hello", "--input", "-", input='"given"').stdout == "hello given\n"
    assert run(crew, "hello", "--input", "@in.json").stdout == "hello [1, 2]\n"


# ── how it went ───────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_partial_answer_is_an_answer_with_a_warning(crew: Path) -> None:
    done = run(crew, "half", "x")
    assert (done.returncode, done.stdout) == (0, "half\n")
    assert "partial in" in done.stderr
    assert "not finished: two" in done.stderr


def test_an_agent_that_raises_gives_exit_code_one_and_one_line_of_the_log(crew: Path) -> None:
    done = run(crew, "failing", "x")
    assert (done.returncode, done.stdout) == (1, "")
    assert "DELEGATION_FAILED: failing raised ValueError: no idea\n  at crew_code.py:" in done.stderr
    assert 'in failing: raise ValueError("no idea")\n→ ' in done.stderr
    assert "Traceback" not in done.stderr


def test_verbose_shows_the_whole_log(crew: Path) -> None:
    assert "Traceback" in run(crew, "failing", "x", "--verbose").stderr


def test_a_time_out_gives_exit_code_six_and_what_was_finished(crew: Path) -> None:
    # On a busy machine the agent may have finished nothing after the shorter times.
    for deadline in ("100ms", "3s", "60s"):
        done = run(crew, "worker", "x", "--deadline", deadline)
        assert done.returncode == 6
        if done.stdout:
            break
    assert done.stdout == "half\n"
    assert "finished: one" in done.stderr


def test_a_budget_that_is_too_small_gives_exit_code_five(crew: Path) -> None:
    assert run(crew, "worker", "x", "--budget", "50").returncode == 5


def test_a_team_that_asks_nobody_refuses_with_exit_code_four(crew: Path) -> None:
    done = run(crew, "payer", "x", "--set", "approvals.otherwise=deny")
    assert done.returncode == 4
    assert "APPROVAL_DECLINED" in done.stderr


def test_an_unknown_agent_is_guessed_and_all_are_listed(crew: Path) -> None:
    done = run(crew, "wrker", "x", "--json")
    assert done.returncode == 2
    assert "did you mean `worker`?" in done.stderr
    assert "→ This team has: lead, worker" in done.stderr
    assert msgspec.json.decode(done.stdout, type=Failure).code == "AGENT_NOT_FOUND"


def test_without_a_team_file_it_says_how_to_make_one(tmp_path: Path) -> None:
    done = run(tmp_path, "hello", "x")
    assert (done.returncode, done.stdout) == (3, "")
    assert "`remit init`" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "give TASK, --input, or both"),
        (["-", "--input", "-"], "cannot both be read from stdin"),
        (["x", "--input", "{"], "invalid JSON"),
        (["x", "--input", "@nowhere"], "cannot read nowhere"),
        (["x", "--deadline", "30"], "a duration with a unit"),
        (["x", "--json", "--jsonl"], "cannot be combined"),
    ],
)
def test_a_command_that_cannot_be_meant_is_explained(crew: Path, arguments: list[str], message: str) -> None:
    done = run(crew, "hello", *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert message in done.stderr


# ── interrupted ───────────────────────────────────────────────────────────────────────────────────────────────────────


def started(crew: Path, *arguments: str) -> subprocess.Popen[str]:
    return popen([REMIT, "run", *arguments], cwd=crew, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def read_until(process: subprocess.Popen[str], text: str) -> None:
    assert process.stderr is not None
    assert any(text in line for line in process.stderr), f"it ended without {text!r}"


@pytest.mark.parametrize("signal_number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_run_is_cancelled_and_what_it_had_finished_is_kept(crew: Path, signal_number: int) -> None:
    process = started(crew, "worker", "x")
    read_until(process, "half done")
    process.send_signal(signal_number)
    stdout, stderr = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, stdout) == (130, "half\n")
    assert "finished: one\nnot finished: two\nThe answer so far is below; the record is in .remit/hub.db." in stderr
    shown = remit(crew, "runs", "show", "last", "--json")
    assert msgspec.json.decode(shown.stdout, type=RunDetails).status == "cancelled"


def test_a_second_interrupt_leaves_at_once(crew: Path) -> None:
    process = started(crew, "stubborn", "x", "--set", "limits.grace=60s")
    read_until(process, "asks stubborn")
    process.send_signal(signal.SIGINT)
    read_until(process, "press Ctrl-C again to exit at once")
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 130


def test_an_agent_that_nothing_stops_does_not_keep_the_command_from_ending(crew: Path) -> None:
    done = run(crew, "deaf", "x", "--deadline", "100ms", "--json")
    assert done.returncode == 6
    assert msgspec.json.decode(done.stdout, type=RunDetails).status == "timeout"


def test_output_that_fits_nowhere_is_said_in_a_sentence(crew: Path) -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [REMIT, "errors"], cwd=crew, stdout=full, stderr=subprocess.PIPE, text=True, check=False, timeout=PATIENCE_S
        )
    assert done.returncode == 1
    assert done.stderr == "Cannot write the output: No space left on device.\n→ Send it elsewhere.\n"


def test_a_reader_that_has_had_enough_ends_the_run(crew: Path) -> None:
    process = started(crew, "worker", "x", "--jsonl")
    assert process.stdout is not None
    assert process.stderr is not None
    assert "started" in process.stdout.readline()
    process.stdout.close()
    (crew / "go").touch()
    assert "Traceback" not in process.stderr.read()
    assert process.wait(PATIENCE_S) in (0, 130)
    process.stderr.close()


# ── questions ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_question_that_waits_is_announced_with_what_to_type(crew: Path) -> None:
    process = started(crew, "boss", "x", "--set", "approvals.otherwise=terminal")
    assert process.stderr is not None
    typed = next(line for line in process.stderr if line.startswith("→ remit pending approve "))
    assert remit(crew, *typed.split()[2:]).returncode == 0
    stdout, _ = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, stdout) == (0, "paid the invoice {'amount': 30}\n")


FAR = """
name = "office"
[peers.far]
url = "{}"
token = "$FAR_TOKEN"
[agents.payer]
peer = "far"
"""
TOKEN = "a-token-that-is-long-enough"


async def test_of_a_question_that_another_hub_puts_it_is_said_that_it_is_answered_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is typed here would find no such question."""
    monkeypatch.setenv("FAR_TOKEN", TOKEN)
    far = Hub(name="far", store=MemoryStore(), guards=[guard_of([Rule(then="ask", say="May it?")])], approver="inbox")

    @far.agent("payer")
    async def payer(_: Brief) -> str:
        return "paid"

    assert payer
    async with far, serve(far, hubs={"office": TOKEN}) as address, asyncio.timeout(PATIENCE_S):
        (tmp_path / "remit.toml").write_text(FAR.format(address), encoding="utf-8")
        process = popen([REMIT, "run", "payer", "x"], cwd=tmp_path, stdout=PIPE, stderr=PIPE, text=True)
        assert process.stderr is not None
        text = ""
        while not (line := await asyncio.to_thread(process.stderr.readline)).startswith("→"):
            assert line, text
            text = line
        (question,) = await far.pending()
        await far.decide(question.id, agreed=True, by="ana")
        stdout, _ = await asyncio.to_thread(process.communicate)
    assert (process.returncode, stdout) == (0, "paid\n")
    assert text == "payer waits for approval: May it?\n"
    assert line.startswith("→ Answer this question on the hub that runs this agent")


def test_a_question_that_the_team_answers_itself_is_not_announced(crew: Path) -> None:
    done = run(crew, "boss", "x", "--set", 'approvals.allow=["boss -> payer"]')
    assert done.returncode == 0
    assert "remit pending" not in done.stderr
