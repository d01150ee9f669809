"""`remit chat` in a pipe: answers on stdout, everything else on stderr, one session for all of it."""

import os
import re
import signal
import subprocess
from pathlib import Path
from typing import Any

import msgspec
import pytest

from commands import popen
from crew import REMIT, documents, make_crew, remit
from openai_server import Answer, OpenAIServer, Request, call, say
from remit_server.documents.common import Failure
from remit_server.documents.runs import ChatBegun, RecordLine, RunDetails
from waiting import PATIENCE_S


@pytest.fixture
def crew(tmp_path: Path) -> Path:
    return make_crew(tmp_path)


def chat(crew: Path, agent: str, *arguments: str, typed: str) -> subprocess.CompletedProcess[str]:
    return remit(crew, "chat", agent, *arguments, input=typed)


# ── requests ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_each_line_is_a_request_and_its_answer_alone_is_on_stdout(crew: Path) -> None:
    (crew / "go").touch()
    done = chat(crew, "planner", "--user", "ana", "--session", "s-1", typed="first\n\nsecond\n")
    assert (done.returncode, done.stdout) == (0, "It is done: first done\nIt is done: second done\n")
    stderr = done.stderr.splitlines()
    assert stderr[0] == "planner, session s-1; /help lists commands, Ctrl-D exits."
    assert "> first" in stderr
    assert "  planner → worker: first" in stderr
    (returned,) = [line for line in stderr if line.startswith("  worker returned: ")][:1]
    assert returned.startswith("  worker returned: SUCCESS (100 tokens, ")
    assert returned.endswith(" tools: look")
    assert stderr[-1] == "→ remit chat planner --session s-1 --user ana"
    last = msgspec.json.decode(remit(crew, "runs", "show", "last", "--json").stdout, type=RunDetails)
    assert (last.session, last.user, last.objective) == ("s-1", "ana", "second")


def test_the_last_line_needs_no_end_and_a_backslash_goes_on_in_the_next(crew: Path) -> None:
    done = chat(crew, "hello", typed="one\\\ntwo\nthree \\\n  four")
    assert done.stdout == "hello one\ntwo\nhello three \n  four\n"


def test_what_an_agent_says_meanwhile_is_in_the_answer_once(crew: Path) -> None:
    (crew / "go").touch()
    done = chat(crew, "speaker", typed="the end\n")
    assert done.stdout == "One \x1b[2Jword, two words,\n" + "and many more, " * 10 + "and the end.\n"
    assert "many more" not in done.stderr


def test_the_exit_code_is_that_of_the_last_request(crew: Path) -> None:
    done = chat(crew, "failing", typed="x\n")
    assert (done.returncode, done.stdout) == (1, "")
    assert "DELEGATION_FAILED: failing raised ValueError: no idea" in done.stderr
    assert chat(crew, "hello", typed="").returncode == 0
    assert chat(crew, "half", typed="x\n/nothing\n").returncode == 0
    assert chat(crew, "worker", "--deadline", "100ms", typed="x\n").returncode == 6


def test_an_answer_has_the_budget_that_was_given(crew: Path) -> None:
    done = chat(crew, "worker", "--budget", "50", typed="x\n/budget\n")
    assert done.returncode == 5
    assert "an answer may take 50 tokens, 5 min" in done.stderr


def test_records_come_one_per_line_with_what_is_said_between_them(crew: Path) -> None:
    (crew / "go").touch()
    first, *rest = documents(chat(crew, "speaker", "--jsonl", "--session", "s-1", "--user", "ana", typed="a\nb\n"))
    assert msgspec.convert(first, ChatBegun) == ChatBegun(
        session="s-1", agent="speaker", user="ana", messages=0, store=".remit/hub.db"
    )
    records = [msgspec.convert(each, RecordLine) for each in rest]
    assert {each.session for each in records} == {"s-1"}
    kinds = [each.kind for each in records]
    assert [kind for kind in kinds if kind != "delta"] == ["started", "result"] * 2
    deltas = [each for each in records if each.kind == "delta"]
    assert {each.seq for each in deltas} == {0}
    answers = [each.body["result"] for each in records if each.kind == "result"]
    assert "".join(each.body["text"] for each in deltas) == "".join(answers)


def test_a_request_that_cannot_be_one_is_explained_and_the_next_is_answered(crew: Path) -> None:
    done = chat(crew, "hello", "--jsonl", typed="x" * 100_001 + "\nyou\n")
    begun, failure, *_, result = documents(done)
    assert (begun["schema"], result["body"]["result"]) == ("remit.chat/1", "hello you")
    assert msgspec.convert(failure, Failure).code == "MALFORMED_ENVELOPE"
    assert done.returncode == 0


def test_what_is_no_text_is_said_to_be_none(crew: Path) -> None:
    strict = {**os.environ, "PYTHONIOENCODING": "utf-8"}
    done = subprocess.run(
        [REMIT, "chat", "hello"],
        cwd=crew,
        input=b"\xff\n",
        capture_output=True,
        check=False,
        timeout=PATIENCE_S,
        env=strict,
    )
    assert (done.returncode, done.stdout) == (2, b"")
    assert b"stdin is not text in utf-8" in done.stderr


# ── one session ───────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_conversation_goes_on_with_what_was_said_before_as_its_user_wrote_it(crew: Path) -> None:
    first = chat(crew, "hello", "--session", "s-1", typed="I am ana@example.org\n")
    assert first.stdout == "hello I am ana@example.org\n"
    done = chat(crew, "hello", "--session", "s-1", typed="/history\nagain\n")
    stderr = done.stderr.splitlines()
    assert stderr[1:4] == [
        "Earlier in this conversation (/history shows more):",
        "  you: I am ana@example.org",
        "  hello: hello I am ana@example.org",
    ]
    assert "    hello I am ana@example.org" in stderr
    kept = remit(crew, "runs", "export", "--all").stdout
    assert "ana@example.org" not in kept


def test_a_model_is_told_what_was_said_and_its_calls_are_shown(tmp_path: Path) -> None:
    def plan(request: Request) -> Answer:
        arguments: dict[str, Any] = {"agent_name": "coder", "task": "Fix it", "context": {"last_messages": 4}}
        return say("It is fixed.") if request.results else call("sub_agent", **arguments)

    with OpenAIServer([plan]) as planner, OpenAIServer([say("One line changed.", usage=(400, 12))]) as coder:
        (tmp_path / "remit.toml").write_text(
            f"""
            name = "dev"
            [agents.planner]
            model = "openai:one"
            base_url = "{planner.base_url}"
            may_call = ["coder"]
            [agents.coder]
            model = "openai:two"
            base_url = "{coder.base_url}"
            """,
            encoding="utf-8",
        )
        done = chat(tmp_path, "planner", typed="The parser is broken\nIs it fixed?\n/calls\n")
    assert (done.returncode, done.stdout) == (0, "It is fixed.\nIt is fixed.\n")
    assert "  planner → coder: Fix it\n  coder returned: SUCCESS (412 tokens, " in done.stderr
    assert re.search(r"\[planner -> coder\] OK  .*  412 tokens  ctx \d+\n", done.stderr)
    last = planner.requests[-1].message_texts
    assert last.index("The parser is broken") < last.index("It is fixed.") < last.index("Is it fixed?")


def test_two_users_may_give_their_sessions_the_same_name(crew: Path) -> None:
    chat(crew, "hello", "--session", "support", "--user", "ana", typed="ana's secret\n")
    bos = [chat(crew, "hello", "--session", "support", "--user", "bo", typed=f"bo's {turn}\n") for turn in range(2)]
    assert [(each.returncode, "secret" in each.stdout + each.stderr) for each in bos] == [(0, False)] * 2
    assert "bo's 0" in bos[1].stderr, "the second time, the conversation goes on"
    again = chat(crew, "hello", "--session", "support", "--user", "ana", typed="x\n")
    assert "ana's secret" in again.stderr
    assert "bo's" not in again.stderr
    assert remit(crew, "users", "erase", "ana", "--yes").returncode == 0
    assert "bo's 1" in chat(crew, "hello", "--session", "support", "--user", "bo", typed="x\n").stderr


def test_a_session_that_nobody_named_or_with_another_agent_is_not_shown(crew: Path) -> None:
    run = remit(crew, "run", "hello", "a secret", "--user", "ana", "--json")
    session = msgspec.json.decode(run.stdout)["session"]
    other = chat(crew, "hello", "--session", session, "--user", "bo", typed="x\n")
    assert (other.returncode, other.stdout) == (4, "")
    assert other.stderr.startswith(f"USER_MISMATCH: session {session} belongs to a conversation of another user\n→ ")
    chat(crew, "hello", "--session", "s-1", "--user", "ana", typed="x\n")
    elsewhere = chat(crew, "half", "--session", "s-1", "--user", "ana", "--jsonl", typed="x\n")
    assert msgspec.json.decode(elsewhere.stdout, type=Failure).code == "PERMISSION_DENIED"
    assert "a conversation with hello, not with half" in elsewhere.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["hllo"], "did you mean `hello`?"),
        (["hello", "--session", "a\nb"], "control characters are not allowed"),
        (["hello", "--budget", "0"], "--budget"),
    ],
)
def test_a_conversation_that_cannot_begin_says_why(crew: Path, arguments: list[str], message: str) -> None:
    done = remit(crew, "chat", *arguments, input="x\n")
    assert (done.returncode, done.stdout) == (2, "")
    assert message in done.stderr


# ── commands ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_commands_tell_of_the_conversation_on_stderr(crew: Path) -> None:
    (crew / "go").touch()
    done = chat(
        crew, "planner", "--session", "s-1", typed="first\n/help\n/agents\n/calls\n/budget\n/cancel\n/quit\nnever\n"
    )
    assert done.stdout == "It is done: first done\n"
    stderr = done.stderr
    assert "/calls    show calls of sub-agents" in stderr
    assert "planner   you talk to it   Says a word, has a worker do it, and says the rest.\n" in stderr
    assert "worker    may be called    Does half at once, and the rest when the gate opens.\n" in stderr
    assert "\nhello" in stderr
    assert "[planner -> worker] OK  " in stderr
    assert "  100 tokens  tools: look\n    task first\n    gave first done\n" in stderr
    assert "the last answer    100 tokens, " in stderr
    assert ", 1 request\nan answer may take 1,000,000 tokens, 5 min\n" in stderr
    assert "Nothing to cancel." in stderr


@pytest.mark.parametrize(
    ("typed", "message"),
    [
        ("/histroy", "No such command /histroy; did you mean `/history`?"),
        ("/xyz", "No such command /xyz; see /help"),
        ("/history all", "/history takes a number: /history 20"),
        ("/history", "No messages yet."),
        ("/calls", "No calls yet."),
        ("/budget", "the last answer    no requests yet"),
    ],
)
def test_a_command_that_has_nothing_to_tell_says_so(crew: Path, typed: str, message: str) -> None:
    done = chat(crew, "hello", typed=f"{typed}\n")
    assert (done.returncode, done.stdout) == (0, "")
    assert message in done.stderr.splitlines()


def test_a_request_that_begins_with_a_slash_is_typed_with_two(crew: Path) -> None:
    assert chat(crew, "hello", typed="//help\n").stdout == "hello /help\n"


# ── interrupted ───────────────────────────────────────────────────────────────────────────────────────────────────────


def started(crew: Path, *arguments: str) -> subprocess.Popen[str]:
    return popen(
        [REMIT, "chat", *arguments],
        cwd=crew,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        bufsize=1,
    )


def read_until(process: subprocess.Popen[str], text: str) -> None:
    assert process.stderr is not None
    assert any(text in line for line in process.stderr), f"it ended without {text!r}"


def test_an_interrupt_cancels_the_request_and_the_next_is_answered(crew: Path) -> None:
    process = started(crew, "worker")
    assert process.stdin is not None
    process.stdin.write("one\n")
    read_until(process, "half done")
    process.send_signal(signal.SIGINT)
    read_until(process, "cancelled in")
    (crew / "go").touch()
    stdout, _ = process.communicate("two\n", timeout=PATIENCE_S)
    assert (process.returncode, stdout) == (0, "half\ntwo done\n")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_while_it_waits_for_a_request_a_signal_ends_it(crew: Path, number: int) -> None:
    process = started(crew, "hello")
    read_until(process, "session")
    process.send_signal(number)
    assert process.wait(PATIENCE_S) == 130
    process.communicate()


def test_a_signal_to_end_cancels_the_request_and_leaves(crew: Path) -> None:
    process = started(crew, "worker")
    assert process.stdin is not None
    process.stdin.write("one\ntwo\n")
    read_until(process, "half done")
    process.send_signal(signal.SIGTERM)
    stdout, _ = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, stdout) == (130, "half\n")


def test_a_second_interrupt_leaves_at_once(crew: Path) -> None:
    process = started(crew, "deaf", "--set", "limits.grace=60s")
    assert process.stdin is not None
    process.stdin.write("one\n")
    read_until(process, "hears nothing")
    process.send_signal(signal.SIGINT)
    read_until(process, "press Ctrl-C again to exit at once")
    process.send_signal(signal.SIGINT)
    assert process.wait(PATIENCE_S) == 130
    process.communicate()


def test_everything_that_was_answered_is_there_after_a_kill(crew: Path) -> None:
    (crew / "go").touch()
    process = started(crew, "worker", "--session", "s-1")
    assert process.stdin is not None
    assert process.stdout is not None
    for number in range(3):
        process.stdin.write(f"question {number}\n")
        assert process.stdout.readline() == f"question {number} done\n"
    (crew / "go").unlink()
    process.stdin.write("the last\n")
    read_until(process, "> the last")
    read_until(process, "half done")
    process.kill()
    process.communicate()
    (crew / "go").touch()
    done = chat(crew, "worker", "--session", "s-1", typed="/history\nmore\n")
    assert (done.returncode, done.stdout) == (0, "more done\n")
    stderr = [line.strip() for line in done.stderr.splitlines()]
    expected = [text for number in range(3) for text in (f"question {number}", f"question {number} done")]
    assert [line for line in stderr if line in (*expected, "the last", "(no answer)")][-8:] == [
        *expected,
        "the last",
        "(no answer)",
    ]


def test_a_reader_that_has_had_enough_ends_it(crew: Path) -> None:
    process = started(crew, "hello", "--jsonl")
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    assert "remit.chat/1" in process.stdout.readline()
    process.stdout.close()
    process.stdin.write("one\n")
    assert process.wait(PATIENCE_S) == 0
    assert "Traceback" not in process.stderr.read()
    process.stdin.close()
    process.stderr.close()
