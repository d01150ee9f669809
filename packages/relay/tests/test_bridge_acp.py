"""A local agent that speaks ACP: one with the SDK and one without, and those that do not keep to the protocol."""

import asyncio
import json
import logging
import sys
from collections.abc import AsyncGenerator, Callable
from pathlib import Path
from typing import Any

import pytest

from local_agents import TESTS, down, drafted, failed, gone, noted, request
from programs import is_alive
from remit.agents.program import Program
from remit.installed import install_command
from remit.protocol.errors import Code, RemitError
from remit_relay.bridge import acp as module
from remit_relay.bridge import acp_turn
from remit_relay.bridge.acp import AcpAgent
from remit_relay.bridge.ports import Choice, Draft, DraftFailure, PermissionRequest, PromptRequest, deny, in_words
from remit_testing import ManualClock
from waiting import PATIENCE_S

sdk = pytest.importorskip("acp", reason="the extra `acp` is not installed")
acp_link = pytest.importorskip("remit_relay.bridge.acp_link")
PATH = {"PYTHONPATH": str(Path(sdk.__file__).parents[1])}

Make = Callable[..., AcpAgent]


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give an agent that is told to stop as long as it takes: the machine may be busy."""
    monkeypatch.setattr(acp_link, "CANCEL_S", 30.0)


@pytest.fixture
async def make(tmp_path: Path) -> AsyncGenerator[Make, None]:
    """Return what makes agents that are closed in the end; they note things in `notes`."""
    made: list[AcpAgent] = []

    def make(how: str | None = None, *flags: str, sdk: bool = False, **options: Any) -> AcpAgent:
        notes = str(tmp_path / "notes")
        rogue = (str(TESTS / "acp_rogue.py"), how or "", notes)
        # The same agent twice: on the SDK, where each kind of message is met, and on nothing, which starts at once.
        agent = TESTS / ("acp_agent.py" if sdk else "acp_quick.py")
        args = (str(agent), notes, *flags) if how is None else rogue
        program = Program(command=sys.executable, args=args, env=PATH, folder=str(tmp_path))
        made.append(AcpAgent("p-1", program, **options))
        return made[-1]

    yield make
    for agent in made:
        await agent.close()


def steps(*done: tuple[str, Any], number: int = 1, **changed: Any) -> PromptRequest:
    return request(number, objective=json.dumps(done), **changed)


def as_draft(outcome: Draft | DraftFailure) -> Draft:
    assert isinstance(outcome, Draft), outcome
    return outcome


# ── one that keeps to the protocol ────────────────────────────────────────────────────────────────────────────────────


async def test_the_pieces_of_its_message_are_the_draft(make: Make) -> None:
    prompt = steps(("think", "hm"), ("say", "Which endpoints "), ("say", "need no login?"))
    outcome = as_draft(await make().prompt(prompt))
    assert outcome == Draft(text="Which endpoints need no login?", tool_rounds=0, duration_ms=outcome.duration_ms)


async def test_it_is_greeted_with_version_one_and_offered_neither_files_nor_terminals(
    make: Make, tmp_path: Path
) -> None:
    agent = make(sdk=True)
    assert drafted(await agent.prompt(steps(("read", "/etc/passwd")))) == "Method not found"
    assert (tmp_path / "notes").read_text().splitlines() == [
        "greeted 1 False False False",
        f"session 1 in {tmp_path}",
    ]


async def test_each_session_of_the_overlay_is_one_of_the_agents_and_every_prompt_says_everything(make: Make) -> None:
    agent = make()
    for number, (session, theirs) in enumerate([("s-1", 1), ("s-2", 2), ("s-1", 1)], 1):
        prompt = steps(("repeat", ""), number=number, session_id=session, remote_message="Hello\nagain")
        assert drafted(await agent.prompt(prompt)) == f"theirs-{theirs}: {in_words(prompt)}"


async def test_what_it_says_of_its_work_is_not_sent(make: Make) -> None:
    """Only what comes after the last tool call is the message: the rest may tell of the user's own files."""
    agent = make(sdk=True)
    prompt = steps(("say", "Let me look into /home/me."), ("tool", "a"), ("say", "And there."), ("tool", "b"))
    outcome = as_draft(await agent.prompt(steps(*json.loads(prompt.objective), ("say", "Is it safe?"))))
    assert (outcome.text, outcome.tool_rounds) == ("Is it safe?", 2)
    assert drafted(await agent.prompt(prompt)) == "And there."


async def test_its_last_line_says_that_all_is_done(make: Make) -> None:
    outcome = as_draft(await make().prompt(steps(("say", "Thank you.\n[DO"), ("say", "NE]"))))
    assert (outcome.text, outcome.done) == ("Thank you.", True)


async def test_what_it_spent_is_found_where_agents_put_it_or_not_known(make: Make) -> None:
    agent = make(sdk=True)
    for number, (step, tokens) in enumerate(
        [
            (("usage", {"total_tokens": 42, "input_tokens": 30, "output_tokens": 12}), 42),
            (("meta", {"quota": {"token_count": {"input_tokens": 5, "output_tokens": 6}}}), 11),
            (("meta", {"usage": {"total_tokens": 9}}), 9),
            (("meta", {"quota": {"token_count": {"totalTokens": 7, "inputTokens": 5}}}), 7),
            (("meta", {"usage": {"total_tokens": -9}}), None),
            (("meta", {"usage": "much", "quota": 3}), None),
            (("meta", {"other": 1}), None),
            (("say", "!"), None),
        ]
    ):
        assert as_draft(await agent.prompt(steps(("say", "Hello"), step, number=number))).tokens == tokens, step


async def test_a_turn_that_ends_otherwise_fails_and_the_next_may_succeed(make: Make) -> None:
    agent = make()
    for step, reason in (
        (("stop", "max_tokens"), "the local agent stopped at its own token limit"),
        (("stop", "max_turn_requests"), "the local agent stopped at its own step limit"),
        (("stop", "refusal"), "the local agent refused to continue"),
        (("stop", "cancelled"), "the local agent cancelled its turn"),
        (("fail", -32_603), "the local agent says: the model is not there"),
        (("think", "nothing to say"), "the local agent returned no message"),
    ):
        assert failed(await agent.prompt(steps(step)), hard=False) == reason
    assert drafted(await agent.prompt(steps(("say", "Hello"), number=2))) == "Hello"


# ── tools, permissions and limits ─────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("constraints", "reason"),
    [
        ({"max_tool_rounds": 2}, "the local agent used tools 3 times in one turn; the limit is 2"),
        ({"allow_tool_use": False}, "the local agent used tools once in one turn; tools are not allowed"),
    ],
)
async def test_one_tool_call_too_many_cancels_the_turn(
    make: Make, tmp_path: Path, constraints: dict[str, Any], reason: str
) -> None:
    """S3, S14 (verification 11): and since it stops when it is told to, it can be asked again."""
    agent = make()
    calls = [("tool", name) for name in "abc"[: 3 if constraints.get("max_tool_rounds") else 1]]
    assert failed(await agent.prompt(steps(*calls, ("wait", ""), **constraints)), hard=False) == reason
    assert "cancelled theirs-1" in (tmp_path / "notes").read_text()
    # What it said when it was cancelled is not taken for a part of the next turn.
    assert drafted(await agent.prompt(steps(("say", "Hello"), number=2))) == "Hello"
    assert (tmp_path / "notes").read_text().count("greeted") == 1


async def test_a_text_that_is_too_long_cancels_the_turn(make: Make, tmp_path: Path) -> None:
    agent = make()
    prompt = steps(*[("say", "x" * 60)] * 3, ("wait", ""), max_output_chars=50)
    assert failed(await agent.prompt(prompt), hard=False) == (
        "the local agent's message is longer than the limit of 50 characters"
    )
    assert "cancelled theirs-1" in (tmp_path / "notes").read_text()
    assert "longer than" in failed(await agent.prompt(steps(("say", "x" * 51), max_output_chars=50)), hard=False)
    assert drafted(await agent.prompt(steps(("say", "x" * 50 + "\n[DONE]"), max_output_chars=50))) == "x" * 50


ALL = ["allow_always", "allow_once", "reject_always", "reject_once"]


async def test_what_it_asks_leave_for_is_put_to_the_user_in_words_that_are_safe_to_show(make: Make) -> None:
    questions: list[PermissionRequest] = []

    async def ask_user(question: PermissionRequest) -> str | None:
        questions.append(question)
        return "id-allow_once"

    outcome = as_draft(await make(sdk=True, ask_user=ask_user).prompt(steps(("ask", ALL))))
    assert (outcome.text, outcome.tool_rounds) == ("id-allow_once", 1)
    assert questions == [
        PermissionRequest(
            session_id="s-1",
            title="rm -rf",
            kind="delete",
            details='{"path":"/\\n"}',
            choices=tuple(Choice(id=f"id-{kind}", name=kind, kind=kind) for kind in ALL),
        )
    ]


async def unsure(question: PermissionRequest) -> str | None:
    return "id-made-up"


async def absent(question: PermissionRequest) -> str | None:
    raise LookupError("something secret")


@pytest.mark.parametrize("ask_user", [deny, unsure, absent])
async def test_without_a_yes_the_answer_is_no(make: Make, ask_user: Any, caplog: pytest.LogCaptureFixture) -> None:
    agent = make(ask_user=ask_user)
    for kinds, answer in (
        (ALL, "id-reject_once"),
        (["allow_once", "reject_always"], "id-reject_always"),
        (["allow_once"], "cancelled"),
    ):
        assert drafted(await agent.prompt(steps(("ask", kinds)))) == answer
    assert "something secret" not in caplog.text


async def test_where_no_tools_may_be_used_the_user_is_not_even_asked(make: Make) -> None:
    questions: list[PermissionRequest] = []

    async def ask_user(question: PermissionRequest) -> str | None:
        questions.append(question)
        return "id-allow_once"

    outcome = await make(ask_user=ask_user).prompt(steps(("ask", ALL), allow_tool_use=False))
    assert failed(outcome, hard=False) == "the local agent used tools once in one turn; tools are not allowed"
    assert questions == []


async def test_while_the_user_thinks_no_time_passes(make: Make) -> None:
    seen: list[float | None] = []

    def when() -> float | None:
        link: Any = agent._link  # pyright: ignore[reportPrivateUsage]
        return link._turn._timer.when()

    async def ask_user(question: PermissionRequest) -> str | None:
        seen.append(when())
        await asyncio.sleep(0)
        return "id-allow_once"

    agent = make(ask_user=ask_user)
    assert drafted(await agent.prompt(steps(("ask", ALL)))) == "id-allow_once"
    assert seen == [None]


async def test_the_clock_of_a_turn_goes_on_where_it_stood_once_the_last_question_is_answered() -> None:
    question: asyncio.Future[str | None] = asyncio.get_running_loop().create_future()
    async with asyncio.timeout(1_000) as timer:
        turn = acp_turn.AcpTurn("s", request(), timer)
        turn.start_clock()
        await asyncio.sleep(0)
        before = timer.when()
        turn.questions.add(question)
        turn.stop_clock()
        turn.stop_clock()
        turn.start_clock()
        assert timer.when() is None
        turn.questions.discard(question)
        turn.start_clock()
        after = timer.when()
        assert before is not None
        assert after is not None
        assert after >= before
        turn.questions.add(question)
        turn.stop_clock()
    turn.questions.discard(question)
    turn.start_clock()


async def test_a_question_is_withdrawn_when_its_prompt_is_cancelled(make: Make, tmp_path: Path) -> None:
    begun, withdrawn = asyncio.Event(), asyncio.Event()

    async def ask_user(question: PermissionRequest) -> str | None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            withdrawn.set()
        return None

    agent = make(ask_user=ask_user)
    prompt = asyncio.ensure_future(agent.prompt(steps(("ask", ALL), ("wait", ""))))
    await begun.wait()
    prompt.cancel()
    with pytest.raises(asyncio.CancelledError):
        await prompt
    async with asyncio.timeout(PATIENCE_S):
        await withdrawn.wait()
    assert "answered cancelled" in await noted(tmp_path / "notes", 4)


async def test_one_that_asks_its_user_for_ever_is_cancelled(make: Make) -> None:
    outcome = await make("asks for ever").prompt(request())
    assert failed(outcome, hard=False) == "the local agent asked its user more than 20 times"


async def test_the_user_sees_what_a_tool_is_used_with_wherever_the_agent_says_so(make: Make) -> None:
    questions: list[PermissionRequest] = []

    async def ask_user(question: PermissionRequest) -> str | None:
        questions.append(question)
        return "allow_once"

    tool_call = {"sessionUpdate": "tool_call", "toolCallId": "t", "title": "Write \x1b[1mit", "kind": "edit"}
    diff = {"type": "diff", "path": "/a.txt", "oldText": "x" * 3_000, "newText": "new"}
    words = {"type": "content", "content": {"type": "text", "text": "because"}}
    cases: list[tuple[dict[str, Any], dict[str, Any], Any]] = [
        ({"rawInput": {"a": 1}}, {}, {"a": 1}),
        ({"rawInput": {"a": 1}}, {"rawInput": {"b": None}}, {"b": None}),
        ({"rawInput": {}}, {"content": [diff]}, [{"path": "/a.txt", "text": "new"}]),
        ({}, {"content": [words, {"type": "terminal", "terminalId": "x"}]}, [{"type": "text", "text": "because"}]),
        ({}, {"locations": [{"path": "/a.txt"}]}, [{"path": "/a.txt"}]),
        ({"content": "?", "rawInput": None}, {}, None),
    ]
    agent = make("script", ask_user=ask_user)
    for known, call, shown in cases:
        update = {**tool_call, **known}
        ended = ("result", {"stopReason": "end_turn"})
        say = ("update", {"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": "Hello"}})
        assert drafted(await agent.prompt(steps(("update", update), ("ask", {"toolCallId": "t", **call}), say, ended)))
        question = questions.pop()
        assert (question.title, question.kind) == ("Write it", "edit")
        assert (json.loads(question.details) if question.details else None) == shown
    assert questions == []


@pytest.mark.parametrize("how", [("stop", "cancelled"), ("think", "hm")], ids=["cancelled", "silent"])
async def test_one_that_stops_after_a_no_is_said_to_have_been_stopped_by_it(make: Make, how: tuple[str, str]) -> None:
    agent = make("script")
    reason = how[1] if how[0] == "stop" else "end_turn"
    prompt = steps(("ask", {"toolCallId": "t", "title": "Write it"}), ("result", {"stopReason": reason}))
    assert failed(await agent.prompt(prompt), hard=False) == (
        "the local agent stopped because this was not allowed: Write it"
    )


# ── files ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_it_may_read_the_files_of_its_folder_where_the_profile_says_so(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.txt").write_text("All is well.")
    agent = make(sdk=True, reads_files=True)
    step = ("read", str(tmp_path / "a.txt"))
    assert drafted(await agent.prompt(steps(step))) == "All is well."
    assert (tmp_path / "notes").read_text().splitlines()[0] == "greeted 1 True False False"
    assert drafted(await agent.prompt(steps(("read", "/etc/passwd")))) == f"only files in {tmp_path} can be read"
    outcome = drafted(await agent.prompt(steps(step, allow_tool_use=False)))
    assert outcome == "tools are not allowed in this turn"
    monkeypatch.setattr(acp_link, "MAX_FILES", 1)
    outcome = drafted(await agent.prompt(steps(step, step)))
    assert outcome == "All is well.the limit of 1 files in one turn is reached"


# ── giving up ─────────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_turn_that_runs_out_of_time_is_cancelled_and_the_agent_kept(make: Make, tmp_path: Path) -> None:
    """S4."""
    agent = make()
    assert drafted(await agent.prompt(steps(("say", "warm")))) == "warm"
    outcome = await agent.prompt(steps(("wait", ""), local_turn_timeout_ms=300))
    assert failed(outcome, hard=True) == "the local agent did not answer within 0.3 s"
    assert drafted(await agent.prompt(steps(("say", "Hello")))) == "Hello"
    notes = (tmp_path / "notes").read_text()
    assert (notes.count("greeted"), notes.count("cancelled theirs-1")) == (1, 1)


async def test_one_that_does_not_stop_when_it_is_told_to_is_ended(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(acp_link, "CANCEL_S", 0.2)
    clock = ManualClock()
    agent = make("deaf to cancel", clock=clock)
    outcome = await agent.prompt(request(local_turn_timeout_ms=1_000))
    assert failed(outcome, hard=True) == "the local agent did not answer within 1 s"
    (pid,) = await noted(tmp_path / "notes")
    await gone(int(pid))
    assert "failed once" in failed(await agent.prompt(request(2)), hard=True)


async def test_a_prompt_that_is_cancelled_cancels_the_turn_and_keeps_the_agent(make: Make, tmp_path: Path) -> None:
    agent = make(sdk=True)
    prompt = asyncio.ensure_future(agent.prompt(steps(("wait", ""))))
    await noted(tmp_path / "notes", 3)
    prompt.cancel()
    with pytest.raises(asyncio.CancelledError):
        await prompt
    assert drafted(await agent.prompt(steps(("say", "Hello"), number=2))) == "Hello"
    notes = (tmp_path / "notes").read_text()
    assert (notes.count("greeted"), notes.count("cancelled theirs-1")) == (1, 1)


async def test_the_next_process_takes_a_session_up_again_unless_the_last_was_lost_in_it(
    make: Make, tmp_path: Path
) -> None:
    """S4."""
    clock = ManualClock()
    agent = make(None, "--resumes", sdk=True, clock=clock)
    for name in ("s-1", "s-2"):
        assert drafted(await agent.prompt(steps(("say", "Hello"), session_id=name))) == "Hello"
    assert "exit code 3" in failed(await agent.prompt(steps(("die", ""), session_id="s-1")), hard=True)
    clock.advance(2)
    for name in ("s-1", "s-2"):
        assert drafted(await agent.prompt(steps(("say", "Hello"), session_id=name))) == "Hello"
    notes = [line for line in (tmp_path / "notes").read_text().splitlines() if not line.startswith("greeted")]
    begun = [f"session {number} in {tmp_path}" for number in (1, 2, 1)]
    assert notes == [*begun, f"resumes theirs-2 in {tmp_path}"]


@pytest.mark.parametrize("flags", [("--resumes", "--forgets"), ()], ids=["forgotten", "not offered"])
async def test_a_session_that_cannot_be_taken_up_again_is_begun_anew(
    make: Make, tmp_path: Path, flags: tuple[str, ...]
) -> None:
    agent = make(None, *flags)
    assert drafted(await agent.prompt(steps(("say", "Hello"), ("leave", "")))) == "Hello"
    await down(agent)
    assert drafted(await agent.prompt(steps(("say", "Hello"), number=2))) == "Hello"
    assert (tmp_path / "notes").read_text().count("session 1 in") == 2


async def test_closing_ends_the_process_and_fails_what_is_in_flight(make: Make, tmp_path: Path) -> None:
    """Also one that ignores SIGTERM, and whatever state it is in."""
    agent = make("deaf to cancel")
    prompt = asyncio.ensure_future(agent.prompt(request()))
    (pid,) = await noted(tmp_path / "notes")
    await agent.close()
    assert not is_alive(int(pid))
    assert failed(await prompt, hard=True) == "the local agent was closed"


async def test_closing_while_it_starts_leaves_nothing_behind(make: Make) -> None:
    agent = make("mute")
    prompt = asyncio.ensure_future(agent.prompt(request()))
    await asyncio.wait({prompt}, timeout=0.01)
    await agent.close()
    assert failed(await prompt, hard=True) == "the local agent was closed"


async def test_a_prompt_that_is_cancelled_while_it_starts_leaves_nothing_behind(make: Make, tmp_path: Path) -> None:
    agent = make("mute")
    prompt = asyncio.ensure_future(agent.prompt(request()))
    (pid,) = await noted(tmp_path / "notes")
    prompt.cancel()
    with pytest.raises(asyncio.CancelledError):
        await prompt
    await agent.close()
    assert not is_alive(int(pid))


# ── those that do not keep to the protocol ────────────────────────────────────────────────────────────────────────────


async def test_one_that_dies_in_its_turn_fails_hard(make: Make) -> None:
    """S4, S14 (verification 9)."""
    assert failed(await make("dies").prompt(request()), hard=True) == (
        "the local agent's process ended without an answer: exit code 5; last output: out of luck"
    )


async def test_one_that_died_between_turns_fails_the_next_prompt(make: Make) -> None:
    """S4."""
    agent = make("dies later")
    assert drafted(await agent.prompt(request(1))) == "Hello"
    await down(agent)
    assert failed(await agent.prompt(request(2)), hard=True) == (
        "the local agent's process ended after its last turn: exit code 6; last output: cannot go on"
    )


async def test_what_comes_after_the_end_of_a_turn_belongs_to_none(
    make: Make, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "remit.relay")
    agent = make("late")
    assert drafted(await agent.prompt(request(1))) == "first 1"
    await noted(tmp_path / "notes")
    assert drafted(await agent.prompt(request(2))) == "first 2"
    assert [record.getMessage() for record in caplog.records if record.name == "remit.relay"] == [
        "profile p-1: ignoring updates of turns that have ended"
    ]


async def test_what_is_said_in_another_session_is_not_taken(make: Make) -> None:
    assert drafted(await make("of another session").prompt(request())) == "right"


async def test_what_is_no_message_is_passed_over_and_logged_once_without_its_words(
    make: Make, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    agent = make("garbage")
    assert drafted(await agent.prompt(request(1))) == "Hello"
    assert drafted(await agent.prompt(request(2))) == "Hello"
    assert [record.getMessage() for record in caplog.records] == [
        "profile p-1: ignoring lines of its agent that are not messages"
    ]


async def test_whatever_else_it_asks_for_is_declined(make: Make, caplog: pytest.LogCaptureFixture) -> None:
    answers = json.loads(drafted(await make("asks for everything").prompt(request())))
    assert answers == [[f"q-{number}", -32_601] for number in range(5)]
    assert not caplog.records


def chunk(text: str, **more: Any) -> tuple[str, dict[str, Any]]:
    return "update", {"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": text}, **more}


async def test_remarks_of_its_program_are_not_its_message(make: Make) -> None:
    """Where messages have names, what has none is not said by the agent, and must not be sent in its name."""
    ended = ("result", {"stopReason": "end_turn"})
    words = (chunk("Hel", messageId="m-1"), chunk("lo.", messageId="m-1"), chunk("And you?", messageId="m-2"))
    agent = make("script")
    assert drafted(await agent.prompt(steps(chunk("Warning: old"), *words, ended))) == "Hello.\n\nAnd you?"
    assert drafted(await agent.prompt(steps(chunk("Hel"), chunk("lo."), ended))) == "Hello."


async def test_an_error_that_is_told_as_a_message_is_not_sent(make: Make) -> None:
    broken = {"sessionUpdate": "session_info_update", "_meta": {"codex": {"threadStatus": {"type": "systemError"}}}}
    turn = steps(("update", broken), chunk("quota exceeded"), ("result", {"stopReason": "end_turn"}))
    assert failed(await make("script").prompt(turn), hard=False) == "the local agent says: quota exceeded"


async def test_what_it_spent_may_be_told_along_the_way(make: Make) -> None:
    spent = {"usage": {"totalTokens": 30}}
    turn = steps(chunk("Hello", _meta=spent), chunk("", _meta=spent), ("result", {"stopReason": "end_turn"}))
    assert as_draft(await make("script").prompt(turn)).tokens == 60


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (
            {"code": -32_603, "message": "Internal error", "data": {"details": "401 no key"}},
            "Internal error: 401 no key",
        ),
        ({"code": -32_603, "message": "Internal error", "data": "401 no key"}, "Internal error: 401 no key"),
        ({"code": -32_603, "message": "It broke: why", "data": {"details": "why"}}, "It broke: why"),
        ({"code": -32_603, "message": "It broke", "data": {"details": 3}}, "It broke"),
    ],
)
async def test_the_cause_of_an_error_is_shown_wherever_it_stands(
    make: Make, error: dict[str, Any], reason: str
) -> None:
    assert failed(await make("script").prompt(steps(("error", error))), hard=False) == f"the local agent says: {reason}"


@pytest.mark.parametrize("how", ["flood", "endless line"])
async def test_one_that_floods_its_output_is_ended(
    make: Make, how: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(acp_turn, "MAX_BYTES", 8_000_000)
    monkeypatch.setattr(acp_turn, "MAX_LINES", 3_000)
    reason = failed(await make(how).prompt(request()), hard=True)
    assert reason == "the local agent wrote more in one turn than 8000000 bytes or 3000 lines"
    assert "writes too much output" in caplog.text


@pytest.mark.parametrize(
    ("how", "hard", "reason"),
    [
        ("no reason", False, "the local agent says: unspecified error"),
        ("wrong result", True, "invalid ACP response from the local agent"),
        (
            "locked",
            True,
            "the local agent is not logged in: log in with its own program in a terminal, or set a key in `env` of "
            "its profile; it says: No key is set; it offers: Log in with Google (Run `x login`)",
        ),
        ("newer", True, "the local agent uses ACP version 2; version 1 is required"),
        ("misgreets", True, "invalid initialize response from the local agent"),
        ("declines", True, "the local agent refused initialization: not today"),
        ("exits", True, "the local agent's process ended before initialization: exit code 4"),
    ],
)
async def test_whatever_it_does_wrong_is_told_in_a_sentence(make: Make, how: str, hard: bool, reason: str) -> None:
    assert failed(await make(how).prompt(request()), hard=hard) == reason


async def test_one_that_does_not_greet_is_given_up() -> None:
    program = Program(command="/bin/sh", args=("-c", "echo fetching a lot >&2; exec sleep 300"))
    agent = AcpAgent("p-1", program, start_s=3)
    reason = failed(await agent.prompt(request()), hard=True)
    assert reason == "the local agent was not ready after 3 s; last output: fetching a lot"
    await agent.close()


async def test_one_that_is_fetched_first_is_better_installed(tmp_path: Path) -> None:
    (tmp_path / "npx").symlink_to(sys.executable)
    program = Program(command=str(tmp_path / "npx"), args=(str(TESTS / "acp_rogue.py"), "mute"))
    agent = AcpAgent("p-1", program, start_s=0.3)
    reason = failed(await agent.prompt(request()), hard=True)
    assert reason.endswith("; it may still be downloading: install it first, and configure its own program")
    await agent.close()


async def test_one_that_makes_no_session_runs_out_of_time(make: Make) -> None:
    reason = failed(await make("stuck").prompt(request(local_turn_timeout_ms=300)), hard=True)
    assert reason == "the local agent did not answer within 0.3 s"


async def test_a_second_answer_is_nobodys(make: Make) -> None:
    agent = make("two answers")
    assert [drafted(await agent.prompt(request(number))) for number in (1, 2)] == ["answer 1", "answer 2"]


def test_without_the_extra_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    def nothing(name: str) -> None:
        assert name == "acp"

    monkeypatch.setattr(module, "find_spec", nothing)
    with pytest.raises(RemitError) as caught:
        AcpAgent("p-1", Program(command="agent"))
    assert caught.value.fault.code is Code.TEAM_INVALID
    assert caught.value.fault.suggestion == f"Install it: {install_command('acp')}"
