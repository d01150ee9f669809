"""A local agent as a process that speaks lines of JSON: what it says, and everything it can do wrong."""

import asyncio
import json
import logging
import os
import re
import signal
import subprocess
import sys
from collections.abc import AsyncGenerator, Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from checkout import ROOT
from local_agents import down, drafted, failed, gone, noted, request, rogue
from programs import is_alive
from remit.agents.program import Program
from remit_relay.bridge.ndjson import NdjsonAgent
from remit_relay.bridge.ports import ConversationTurn, Draft, PromptConstraints, shown, time_limit_s
from remit_relay.bridge.supervised_agent import MAX_WAITING, REAPER
from remit_testing import ManualClock
from waiting import PATIENCE_S

EXAMPLE = ROOT / "examples" / "relay" / "agent.py"

Make = Callable[[Program], NdjsonAgent]


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def make(clock: ManualClock) -> AsyncGenerator[Make, None]:
    """Return what makes agents that are closed in the end."""
    made: list[NdjsonAgent] = []

    def make(program: Program) -> NdjsonAgent:
        made.append(NdjsonAgent("p-1", program, clock=clock))
        return made[-1]

    yield make
    for agent in made:
        await agent.close()


# ── one that keeps to the rules ───────────────────────────────────────────────────────────────────────────────────────


async def test_the_example_works_on_an_objective_until_it_is_done(make: Make) -> None:
    agent = make(Program(command=sys.executable, args=(str(EXAMPLE),)))
    outcomes = [await agent.prompt(request(number, remote_message="All is well.")) for number in (1, 2, 3)]
    assert [drafted(each) for each in outcomes] == [
        "Review this API: Which of its endpoints need no login?",
        "Review this API: What happens to a token when its user is deleted?",
        "Two things were asked. The last answer: All is well.",
    ]
    assert [each.done for each in outcomes if isinstance(each, Draft)] == [False, False, True]
    assert outcomes[0] == Draft(text=drafted(outcomes[0]), confidence=0.9, tool_rounds=0)


def test_the_example_has_at_most_twenty_lines() -> None:
    assert len(EXAMPLE.read_text().splitlines()) <= 20


async def test_a_request_has_the_names_and_the_shape_of_the_document(make: Make) -> None:
    """S3: the frame of a request."""
    history = (
        ConversationTurn(role="local_agent", text="Hello"),
        ConversationTurn(role="remote_agent", text="Ja — 😀"),
    )
    prompt = request(4, remote_message="Ja — 😀", history=history, history_summary="They met.", mode="semi_auto")
    assert json.loads(drafted(await make(rogue("echo")).prompt(prompt))) == {
        "type": "desktop.local_prompt.request",
        "request_id": "r-4",
        "profile_id": "p-1",
        "session_id": "s-1",
        "turn_index": 4,
        "mode": "semi_auto",
        "objective": "Review this API",
        "remote_message": "Ja — 😀",
        "history": [{"role": "local_agent", "text": "Hello"}, {"role": "remote_agent", "text": "Ja — 😀"}],
        "history_summary": "They met.",
        "constraints": {
            "max_output_chars": 12_000,
            "allow_tool_use": True,
            "max_history_turns": 6,
            "max_history_chars": 24_000,
            "max_tool_rounds": 3,
            "local_turn_timeout_ms": 120_000,
        },
    }


async def test_a_request_is_written_as_in_the_document(make: Make) -> None:
    """S3: the same fields in the same order, also those that are empty; only the values differ."""
    document = """
    {
      "type": "desktop.local_prompt.request",
      "request_id": "req_01...",
      "profile_id": "profile_...",
      "session_id": "sess_...",
      "turn_index": 3,
      "mode": "manual",
      "objective": "review this API for security issues",
      "remote_message": "latest remote agent response",
      "history": [
        { "role": "local_agent", "text": "..." },
        { "role": "remote_agent", "text": "..." }
      ],
      "constraints": {
        "max_output_chars": 12000,
        "allow_tool_use": true,
        "max_history_turns": 6,
        "max_history_chars": 24000,
        "max_tool_rounds": 3,
        "local_turn_timeout_ms": 120000
      }
    }
    """
    frame = json.loads(document)
    ids = {name: frame[name] for name in ("request_id", "profile_id", "session_id", "objective", "remote_message")}
    history = tuple(ConversationTurn(**turn) for turn in frame["history"])
    assert drafted(await make(rogue("echo")).prompt(request(3, history=history, **ids))) == json.dumps(frame)
    first = json.dumps({**frame, "remote_message": "", "history": []})
    assert drafted(await make(rogue("echo")).prompt(request(3, **{**ids, "remote_message": ""}))) == first


async def test_the_response_of_the_document_is_read(make: Make) -> None:
    """S3: the frame of a response, word for word."""
    response = {"status": "ok", "draft_message": "next outbound message to remote agent", "reason": ""}
    agent = make(rogue(json.dumps({**response, "metrics": {"latency_ms": 842}})))
    assert await agent.prompt(request()) == Draft(text="next outbound message to remote agent")


@pytest.mark.parametrize(
    ("response", "draft"),
    [
        ({"reason": None, "confidence": None, "done": None, "metrics": None}, Draft(text="Review this API!")),
        ({"metrics": {"latency_ms": 842.5, "tokens": None}}, Draft(text="Review this API!")),
        ({"metrics": {"tokens": 70.2, "tool_rounds": 1.0}}, Draft(text="Review this API!", tokens=71, tool_rounds=1)),
        ({"confidence": 1, "trace": {"own": "field"}}, Draft(text="Review this API!", confidence=1.0)),
        ({"draft_message": "", "done": True}, Draft(text="", done=True)),
        (
            {"confidence": 0.25, "done": True, "metrics": {"latency_ms": 842, "tokens": 70, "tool_rounds": 2}},
            Draft(text="Review this API!", confidence=0.25, done=True, tokens=70, tool_rounds=2),
        ),
    ],
    ids=["null", "fractions", "floats", "unknown", "done without words", "all"],
)
async def test_what_another_program_would_write_is_read(make: Make, response: dict[str, Any], draft: Draft) -> None:
    assert await make(rogue(json.dumps(response))).prompt(request()) == draft


async def test_one_process_serves_all_prompts(make: Make) -> None:
    agent = make(rogue("environment"))
    first, second = [json.loads(drafted(await agent.prompt(request(number)))) for number in (1, 2)]
    assert first == second


async def test_it_is_given_the_folder_and_the_variables_of_its_profile_and_no_other(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REMIT_VAULT_KEY", "s3cret")
    monkeypatch.setenv("HTTPS_PROXY", "http://user:s3cret@proxy")
    monkeypatch.setenv("LANG", "C.UTF-8")
    agent = make(rogue("environment", folder=str(tmp_path), env={"API_KEY": "for the agent", "TZ": "UTC"}))
    environment, folder, _ = json.loads(drafted(await agent.prompt(request())))
    assert folder == str(tmp_path.resolve())
    assert {"API_KEY": "for the agent", "TZ": "UTC", "LANG": "C.UTF-8"}.items() <= environment.items()
    assert "s3cret" not in str(environment)


SENSES = "$(grep -E 'Sig(Blk|Ign)' /proc/self/status; ls /proc/self/fd)"


def heed_all() -> None:
    # Whoever starts the tests may ignore some of them, as a shell does in the background, and pass that on.
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGCHLD):
        signal.signal(number, signal.SIG_DFL)


async def test_it_gets_signals_and_files_as_any_program_does(make: Make) -> None:
    """The reaper stands between: what that ignores, or has open, is not passed on."""
    direct = subprocess.run(
        ["sh", "-c", f'echo "{SENSES}"'],
        capture_output=True,
        text=True,
        check=True,
        stdin=subprocess.DEVNULL,
        preexec_fn=heed_all,
    )
    response = {"type": "desktop.local_prompt.response", "request_id": "r-1", "status": "ok", "draft_message": "%s"}
    script = f"""read line; said=$(echo "{SENSES}" | tr '\\t\\n' '  '); printf '{json.dumps(response)}\\n' "$said" """
    agent = make(Program(command="sh", args=("-c", script)))
    assert drafted(await agent.prompt(request())).split() == direct.stdout.split()


# ── one at a time ─────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_second_prompt_waits_until_the_first_is_answered(make: Make, tmp_path: Path) -> None:
    """S3: one request in flight for each profile."""
    file = tmp_path / "late"
    agent = make(rogue("late", file))
    async with asyncio.TaskGroup() as tasks:
        prompts = [tasks.create_task(agent.prompt(request(number, objective=f"{number}"))) for number in (1, 2, 3)]
        await noted(file)
        file.with_suffix(".go").touch()
    assert [drafted(await each) for each in prompts] == ["1!", "2!", "3!"]
    assert file.read_text() == "asked\n" * 3


async def test_when_too_many_wait_a_prompt_is_turned_away(make: Make, tmp_path: Path) -> None:
    file = tmp_path / "late"
    agent = make(rogue("late", file))
    async with asyncio.TaskGroup() as tasks:
        prompts = [tasks.create_task(agent.prompt(request(number + 1))) for number in range(MAX_WAITING + 1)]
        await noted(file)
        assert "already waiting for this local agent" in failed(await agent.prompt(request(99)), hard=False)
        file.with_suffix(".go").touch()
    assert [drafted(await each) for each in prompts] == ["Review this API!"] * (MAX_WAITING + 1)


# ── answers that are none ─────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_response_to_something_else_is_ignored_and_logged_as_a_violation(
    make: Make, caplog: pytest.LogCaptureFixture
) -> None:
    """S3: unknown ids are ignored and logged as violations, without what they say."""
    assert drafted(await make(rogue("wrong id")).prompt(request())) == "Review this API!"
    logged = [record.getMessage() for record in caplog.records if record.name == "remit.relay"]
    assert logged == ["profile p-1: protocol violation: response to no open request"] * 3


async def test_many_violations_are_logged_a_few_times_and_told_in_the_end(
    make: Make, caplog: pytest.LogCaptureFixture
) -> None:
    agent = make(rogue("only wrong ids"))
    assert drafted(await agent.prompt(request(1))) == "Review this API!"
    outcome = await agent.prompt(request(2, local_turn_timeout_ms=2_000))
    assert failed(outcome, hard=True) == (
        "the local agent did not answer within 2 s; it wrote 50 responses to other requests"
    )
    assert [record.getMessage().partition("; ")[2] for record in caplog.records] == [""] * 4 + [
        "further ones are not logged"
    ]


async def test_of_two_responses_the_first_counts(make: Make, caplog: pytest.LogCaptureFixture) -> None:
    """S3: one terminal response for each request."""
    agent = make(rogue("twice"))
    assert drafted(await agent.prompt(request(1))) == "first 0"
    assert drafted(await agent.prompt(request(2))) == "first 1"
    assert "protocol violation" in caplog.text
    assert "second" not in caplog.text


async def test_a_response_that_came_before_its_request_does_not_count(
    make: Make, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    agent = make(rogue("early"))
    # The process is up, and has said what nobody asked for, before the same id is used.
    assert drafted(await agent.prompt(request(2))) == "Review this API!"
    assert "protocol violation" in caplog.text


async def test_what_it_prints_is_passed_over_and_logged_once_without_its_words(
    make: Make, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "remit.relay")
    agent = make(rogue("garbage"))
    assert drafted(await agent.prompt(request(1))) == "Review this API!"
    assert drafted(await agent.prompt(request(2))) == "Review this API!"
    logged = [record.getMessage() for record in caplog.records if record.name == "remit.relay"]
    assert logged == ["profile p-1: ignoring output of its agent that is not a response"]


@pytest.mark.parametrize(
    ("response", "reason"),
    [
        ({"status": "fine"}, "Invalid enum value 'fine' - at `$.status`"),
        ({"draft_message": ["x"]}, "Expected `str | null`, got `array` - at `$.draft_message`"),
        ({"confidence": 90}, "Expected `float` <= 1.0 - at `$.confidence`"),
        ({"metrics": {"tokens": -1}}, "Expected `float` >= 0.0 - at `$.metrics.tokens`"),
        ({"metrics": {"tool_rounds": "two"}}, "Expected `float | null`, got `str` - at `$.metrics.tool_rounds`"),
        ({"done": "yes"}, "Expected `bool | null`, got `str` - at `$.done`"),
    ],
)
async def test_a_response_with_wrong_types_fails_hard_and_names_the_field(
    make: Make, response: dict[str, Any], reason: str
) -> None:
    outcome = await make(rogue(json.dumps(response))).prompt(request())
    assert failed(outcome, hard=True) == f"invalid response from the local agent: {reason}"


async def test_an_error_is_told_in_the_agents_words_and_spoils_this_turn_alone(make: Make, clock: ManualClock) -> None:
    agent = make(rogue(json.dumps({"status": "error", "reason": "no \x1b[31mmodel\x1b[0m\nis configured" + "!" * 999})))
    reason = failed(await agent.prompt(request()), hard=False)
    assert reason.startswith("the local agent says: no model is configured!!!")
    assert reason.endswith("!…")
    assert failed(await agent.prompt(request(2)), hard=False) == reason


async def test_a_message_that_is_too_long_is_not_taken(make: Make) -> None:
    """S3: max_output_chars is enforced, in characters and not in bytes."""
    agent = make(rogue(json.dumps({"draft_message": "ä" * 20})))
    assert len(drafted(await agent.prompt(request(1, max_output_chars=20)))) == 20
    reason = failed(await agent.prompt(request(2, max_output_chars=19)), hard=False)
    assert reason == "the local agent's message is longer than the limit of 19 characters"


ENDED = "the local agent's process ended without an answer: "


@pytest.mark.parametrize(
    ("how", "hard", "reason"),
    [
        ('{"status": "error"}', False, "the local agent gave no reason"),
        ('{"status": "error", "draft_message": null, "reason": null}', False, "the local agent gave no reason"),
        ('{"draft_message": " "}', False, "the local agent returned no message"),
        ("long line", False, "the local agent's message is longer than the limit of 12000 characters"),
        ("exits", True, f"{ENDED}exit code 0"),
        ("stops talking", True, f"{ENDED}it closed its output"),
        ("a\0b", True, "cannot start the local agent's process: embedded null byte"),
    ],
    ids=["error", "nulls", "no message", "long line", "exits", "closes its output", "null byte"],
)
async def test_why_there_is_no_draft_is_told_in_a_sentence(make: Make, how: str, hard: bool, reason: str) -> None:
    assert failed(await make(rogue(how)).prompt(request()), hard=hard) == reason


@pytest.mark.parametrize(
    ("constraints", "reason"),
    [
        ({"max_tool_rounds": 3}, "the local agent used tools 4 times in one turn; the limit is 3"),
        ({"allow_tool_use": False}, "the local agent used tools 4 times in one turn; tools are not allowed"),
        ({"max_tool_rounds": -1}, "the local agent used tools 4 times in one turn; tools are not allowed"),
    ],
)
async def test_more_tool_rounds_than_allowed_fail_hard(make: Make, constraints: dict[str, Any], reason: str) -> None:
    """S3, S14 (verification 11): tool-enabled runs respect max_tool_rounds."""
    agent = make(rogue('{"metrics": {"tool_rounds": 4}}'))
    assert drafted(await agent.prompt(request(1, max_tool_rounds=4))) == "Review this API!"
    assert failed(await agent.prompt(request(2, **constraints)), hard=True) == reason


# ── one that does not answer ──────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("how", ["tires", "tires and stays"])
async def test_one_that_is_silent_runs_out_of_time_and_is_ended(make: Make, tmp_path: Path, how: str) -> None:
    """S4, S14 (verification 11): the time-out of the constraints ends the turn, and the process with it."""
    file = tmp_path / "pid"
    agent = make(rogue(how, file))
    assert drafted(await agent.prompt(request(1))) == "Review this API!"
    outcome = await agent.prompt(request(2, local_turn_timeout_ms=300))
    assert failed(outcome, hard=True) == "the local agent did not answer within 0.3 s"
    await gone(int(file.read_text()))
    assert "failed once" in failed(await agent.prompt(request(3)), hard=True)


async def test_one_that_never_reads_runs_out_of_time(make: Make) -> None:
    outcome = await make(rogue("deaf")).prompt(request(local_turn_timeout_ms=200, remote_message="x" * 1_000_000))
    assert failed(outcome, hard=True) == "the local agent did not answer within 0.2 s"


@pytest.mark.parametrize(
    ("constraints", "ceiling_ms", "limit_s"),
    [
        (PromptConstraints(), 120_000, 120),
        (PromptConstraints(allow_tool_use=False), 120_000, 60),
        (PromptConstraints(local_turn_timeout_ms=500_000), 500_000, 120),
        (PromptConstraints(local_turn_timeout_ms=30_000), 120_000, 30),
        (PromptConstraints(local_turn_timeout_ms=30_000, allow_tool_use=False), 120_000, 30),
        (PromptConstraints(), 5_000, 5),
        (PromptConstraints(local_turn_timeout_ms=-1), 5_000, 0),
    ],
)
def test_the_time_of_a_turn_is_the_least_of_all_limits(
    constraints: PromptConstraints, ceiling_ms: int, limit_s: float
) -> None:
    """S4: 60 s, or up to 120 s with tools."""
    assert time_limit_s(constraints, ceiling_ms) == limit_s


async def test_the_hosts_own_ceiling_holds_too(tmp_path: Path) -> None:
    agent = NdjsonAgent("p-1", rogue("silent", tmp_path / "pid"), ceiling_ms=100)
    assert failed(await agent.prompt(request()), hard=True) == "the local agent did not answer within 0.1 s"
    await agent.close()


@pytest.mark.parametrize(
    ("how", "much"), [("flood", r"64\d{6} bytes in 1 lines"), ("chatter", r"\d+ bytes in 1\d{5} lines")]
)
async def test_one_that_floods_its_output_is_ended(
    make: Make, how: str, much: str, caplog: pytest.LogCaptureFixture
) -> None:
    """However it does that, with lines or without, no more than a few megabytes of it are ever held."""
    reason = failed(await make(rogue(how)).prompt(request()), hard=True)
    assert re.fullmatch(f"the local agent wrote {much} without an answer", reason), reason
    assert "writes too much output" in caplog.text


async def test_one_that_complains_at_length_never_has_to_wait(make: Make) -> None:
    agent = make(rogue("complains"))
    assert drafted(await agent.prompt(request(1))) == "Review this API!"
    assert drafted(await agent.prompt(request(2))) == "Review this API!"


async def test_of_many_complaints_a_crash_shows_the_last_few(make: Make) -> None:
    reason = failed(await make(rogue("complains and dies")).prompt(request()), hard=True)
    assert reason.startswith("the local agent's process ended without an answer: exit code 3; last output: ")
    assert reason.endswith("yyy")
    assert len(reason) < 500


# ── one that dies ─────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_one_that_is_killed_in_the_middle_fails_hard_at_once(make: Make) -> None:
    """S4, S14 (verification 9): how it ended and its last words are told, without its secrets or terminal codes."""
    agent = make(rogue("killed", env={"API_KEY": "s3cret-key", "SHORT": "is"}))
    assert failed(await agent.prompt(request()), hard=True) == (
        "the local agent's process ended without an answer: signal 9; last output: "
        "Traceback MemoryError: all of it is gone, and the key is ***"
    )


@pytest.mark.parametrize(
    "secret", ["s3cret-key-of-24-characters", "BEGIN KEY\ns3cret\ns3cret-line\nEND KEY", "s3cret" * 200]
)
async def test_no_part_of_what_it_was_given_is_among_its_last_words(make: Make, secret: str) -> None:
    reason = failed(await make(rogue("tells", env={"API_KEY": secret})).prompt(request()), hard=True)
    assert "exit code 1" in reason
    assert "s3c" not in reason


async def test_after_a_crash_the_next_prompt_starts_it_anew_but_not_before_a_pause(
    make: Make, clock: ManualClock, tmp_path: Path
) -> None:
    """S4: a crashed agent needs the user to act; meanwhile it is not started over and over."""
    file = tmp_path / "late"
    agent = make(rogue("late", file))
    for crash, (pause_s, times) in enumerate([(1, "once"), (2, "2 times in a row"), (4, "3 times in a row")]):
        prompt = asyncio.ensure_future(agent.prompt(request()))
        await noted(file, crash + 1)
        os.killpg(group_of(agent), signal.SIGKILL)
        assert "signal 9" in failed(await prompt, hard=True)
        clock.advance(pause_s - 0.5)
        assert failed(await agent.prompt(request()), hard=True) == (
            f"the local agent failed {times}; it can be started again in 0.5 s"
        )
        clock.advance(0.5)
    file.with_suffix(".go").touch()
    assert drafted(await agent.prompt(request())) == "Review this API!"
    # It has answered, so that the next crash is the first again.
    file.with_suffix(".go").unlink()
    prompt = asyncio.ensure_future(agent.prompt(request()))
    await noted(file, 5)
    os.killpg(group_of(agent), signal.SIGKILL)
    assert "signal 9" in failed(await prompt, hard=True)
    assert "failed once" in failed(await agent.prompt(request()), hard=True)


def group_of(agent: NdjsonAgent) -> int:
    link: Any = agent._link  # pyright: ignore[reportPrivateUsage]
    return link._child.pid


async def test_one_that_closes_its_input_fails_hard_at_the_next_prompt(make: Make, tmp_path: Path) -> None:
    agent = make(rogue("stops reading", tmp_path / "file"))
    assert drafted(await agent.prompt(request(1))) == "Review this API!"
    reason = failed(await agent.prompt(request(2, remote_message="x" * 1_000_000)), hard=True)
    assert reason == "the local agent's process no longer accepts input"


async def test_one_that_died_between_turns_fails_the_next_prompt(make: Make, clock: ManualClock) -> None:
    """S4: a crashed agent is told of, not quietly replaced."""
    agent = make(rogue("answers and dies"))
    assert drafted(await agent.prompt(request(1))) == "Review this API!"
    await down(agent)
    assert failed(await agent.prompt(request(2)), hard=True) == (
        "the local agent's process ended after its last turn: exit code 7; last output: cannot go on"
    )
    assert "failed once" in failed(await agent.prompt(request(3)), hard=True)
    clock.advance(1)
    assert drafted(await agent.prompt(request(4))) == "Review this API!"


async def test_one_that_ended_well_between_turns_is_simply_started_again(make: Make) -> None:
    agent = make(rogue("one-off"))
    for number in (1, 2, 3):
        assert drafted(await agent.prompt(request(number))) == "Review this API!"
        await down(agent)


# ── one that cannot be started ────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("command", "content", "mode", "folder", "reason"),
    [
        ("no-such-agent", None, 0, ".", "the local agent's program no-such-agent was not found"),
        ("./agent", None, 0, ".", "the local agent's program HERE/agent was not found"),
        (
            "./agent",
            "#!/bin/sh\n",
            0o644,
            ".",
            "permission denied: the local agent's program HERE/agent is not executable",
        ),
        (
            "./agent",
            "#!/no/such/interpreter\n",
            0o755,
            ".",
            f"{ENDED}exit code 127; last output: cannot run HERE/agent: No such file or directory",
        ),
        ("./agent", None, 0, "away", "the local agent's folder HERE/away does not exist"),
    ],
)
async def test_what_cannot_be_started_is_named(
    make: Make, tmp_path: Path, command: str, content: str | None, mode: int, folder: str, reason: str
) -> None:
    if content is not None:
        (tmp_path / "agent").write_text(content)
        (tmp_path / "agent").chmod(mode)
    agent = make(Program(command=command, folder=str(tmp_path / folder)))
    expected = reason.replace("HERE", str(tmp_path))
    assert failed(await agent.prompt(request()), hard=True) == expected
    if "exit code" not in reason:  # nothing was started, so nothing has to be waited for
        assert failed(await agent.prompt(request()), hard=True) == expected


# ── ending ────────────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_closing_fails_what_is_in_flight_and_what_waits_and_what_comes_later(make: Make, tmp_path: Path) -> None:
    file = tmp_path / "pid"
    agent = make(rogue("silent", file))
    prompts = [asyncio.ensure_future(agent.prompt(request(number))) for number in (1, 2)]
    (pid,) = await noted(file)
    await agent.close()
    assert not is_alive(int(pid))
    assert [failed(await each, hard=True) for each in prompts] == ["the local agent was closed"] * 2
    assert failed(await agent.prompt(request(3)), hard=True) == "the local agent was closed"
    await agent.close()


async def test_closing_ends_everything_that_the_agent_started(make: Make, tmp_path: Path) -> None:
    """Also what ignores SIGTERM, has left the group, or whose parent is gone."""
    file = tmp_path / "pids"
    agent = make(rogue("family", file))
    assert drafted(await agent.prompt(request())) == "Review this API!"
    pids = [int(pid) for pid in file.read_text().split()[:-1]]
    assert [is_alive(pid) for pid in pids] == [True] * 4
    await agent.close()
    assert [is_alive(pid) for pid in pids] == [False] * 4


async def test_a_crash_leaves_nothing_behind_either(make: Make, tmp_path: Path) -> None:
    file = tmp_path / "pids"
    agent = make(rogue("family", file))
    await agent.prompt(request())
    pids = [int(pid) for pid in file.read_text().split()[:-1]]
    os.kill(pids[0], signal.SIGKILL)
    await gone(*pids)


HOST = """
import asyncio, sys
sys.path[:0] = {path!r}
from local_agents import request, rogue
from pathlib import Path
from remit_relay.bridge.ndjson import NdjsonAgent

async def main():
    agent = NdjsonAgent("p-1", rogue("family", Path({file!r})))
    await agent.prompt(request())
    await asyncio.Event().wait()

asyncio.run(main())
"""


async def test_a_host_that_is_killed_leaves_nothing_behind(tmp_path: Path) -> None:
    file = tmp_path / "pids"
    host = subprocess.Popen([sys.executable, "-c", HOST.format(path=sys.path, file=str(file))])
    try:
        pids = [int(pid) for pid in (await noted(file, 5))[:-1]]
        assert [is_alive(pid) for pid in pids] == [True] * 4
    finally:
        host.kill()
        host.wait()
    await gone(*pids)


async def test_a_prompt_that_is_cancelled_ends_the_process_and_the_next_starts_it_without_a_pause(
    make: Make, tmp_path: Path
) -> None:
    file = tmp_path / "late"
    agent = make(rogue("late", file))
    prompt = asyncio.ensure_future(agent.prompt(request(1)))
    await noted(file)
    group = group_of(agent)
    prompt.cancel()
    with pytest.raises(asyncio.CancelledError):
        await prompt
    file.with_suffix(".go").touch()
    assert drafted(await agent.prompt(request(2))) == "Review this API!"
    assert not is_alive(group)
    assert group_of(agent) != group


async def test_a_prompt_that_is_cancelled_while_it_waits_takes_nothing_with_it(make: Make, tmp_path: Path) -> None:
    file = tmp_path / "late"
    agent = make(rogue("late", file))
    first = asyncio.ensure_future(agent.prompt(request(1)))
    await noted(file)
    second = asyncio.ensure_future(agent.prompt(request(2)))
    await asyncio.wait({second}, timeout=0.01)
    second.cancel()
    with pytest.raises(asyncio.CancelledError):
        await second
    file.with_suffix(".go").touch()
    assert drafted(await first) == "Review this API!"


async def test_closing_may_be_cancelled_and_still_ends_the_process(make: Make, tmp_path: Path) -> None:
    file = tmp_path / "pid"
    agent = make(rogue("sleepless", file))
    prompt = asyncio.ensure_future(agent.prompt(request()))
    (pid,) = await noted(file)
    closing = asyncio.ensure_future(agent.close())
    await asyncio.wait({closing}, timeout=0.01)
    closing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await closing
    assert not is_alive(int(pid))
    assert failed(await prompt, hard=True) == "the local agent was closed"


async def test_one_that_was_never_asked_can_be_closed(make: Make) -> None:
    await make(rogue("echo")).close()


# ── laws ──────────────────────────────────────────────────────────────────────────────────────────────────────────────


@given(st.text(st.characters() | st.sampled_from("\x1b[]m;\a\x9b\u202e\u2028\n"), max_size=200), st.integers(1, 50))
def test_what_is_shown_of_an_agents_words_is_one_printable_line_within_bounds(text: str, most: int) -> None:
    line = shown(text, most)
    assert line.isprintable()
    assert len(line) <= most


@given(st.binary(max_size=300))
def test_no_line_that_an_agent_may_print_is_taken_for_an_answer(line: bytes) -> None:
    from remit_relay.bridge.ndjson import NdjsonLink

    link: Any = NdjsonLink("p-1", rogue("echo"), ManualClock())
    link._take(line)
    assert link._garbage + link._violations == 1


# ── the process while it is started ───────────────────────────────────────────────────────────────────────────────────


# What is pending stays so over an exec: this is the moment in which the host's Ctrl-C reaches the child too.
STARTED = """
import os, signal, sys
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
os.kill(os.getpid(), signal.SIGINT)
os.execv(sys.executable, [sys.executable, "-I", "-S", *sys.argv[1:]])
"""
SAYS = "import signal; print(sorted(signal.pthread_sigmask(signal.SIG_BLOCK, [])))"


def test_an_agent_outlives_a_ctrl_c_while_it_is_started_and_hears_later_ones() -> None:
    lifeline, held = os.pipe()
    try:
        done = subprocess.run(
            [sys.executable, "-c", STARTED, REAPER, str(lifeline), sys.executable, "-c", SAYS],
            pass_fds=(lifeline,),
            capture_output=True,
            text=True,
            check=False,
            start_new_session=True,
            timeout=PATIENCE_S,
        )
    finally:
        os.close(lifeline)
        os.close(held)
    assert (done.returncode, done.stdout) == (0, "[]\n"), done.stderr
