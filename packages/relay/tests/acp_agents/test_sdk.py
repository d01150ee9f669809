"""An agent made with the JavaScript SDK, which knows nothing of the Python one: it answers without a model."""

import json
from pathlib import Path
from typing import Any

import pytest

from acp_agents.conftest import HERE, Make
from local_agents import down, drafted, failed, gone, request
from programs import is_alive
from remit_relay.bridge.acp import AcpAgent
from remit_relay.bridge.ports import Draft, PermissionRequest, PromptRequest

# What is installed first comes from a registry.
pytestmark = pytest.mark.timeout(300)


def steps(*done: tuple[str, Any], number: int = 1, **changed: Any) -> PromptRequest:
    return request(number, objective=json.dumps(done), **changed)


@pytest.fixture
def agent(make: Make, tmp_path: Path) -> AcpAgent:
    return make(HERE / "sdk_agent.mjs", str(tmp_path / "sessions"))


async def test_a_whole_turn_with_a_question_to_the_user(make: Make, tmp_path: Path) -> None:
    """S3: what the tool is used with was said before leave is asked for, and is shown all the same."""
    questions: list[PermissionRequest] = []

    async def ask_user(question: PermissionRequest) -> str | None:
        questions.append(question)
        return "yes"

    agent = make(HERE / "sdk_agent.mjs", str(tmp_path / "sessions"), ask_user=ask_user)
    work = [("plan", "Look first"), ("think", "hm"), ("say", "Let me see."), ("ask", {"path": "a.txt"})]
    outcome = await agent.prompt(steps(*work, ("say", "Is it safe?")))
    assert isinstance(outcome, Draft), outcome
    assert (outcome.text, outcome.tool_rounds) == ("answered yes. Is it safe?", 1)
    (question,) = questions
    assert (question.title, question.kind, question.details) == ("Write a file", "edit", '{"path":"a.txt"}')
    assert [choice.kind for choice in question.choices] == ["allow_once", "reject_once"]


async def test_where_nobody_is_asked_the_answer_is_no(agent: AcpAgent) -> None:
    assert drafted(await agent.prompt(steps(("ask", {})))) == "answered no."


async def test_a_turn_that_is_cancelled_leaves_the_agent_as_it_was(agent: AcpAgent) -> None:
    first = drafted(await agent.prompt(steps(("session", ""))))
    outcome = await agent.prompt(steps(("wait", ""), local_turn_timeout_ms=300))
    assert failed(outcome, hard=True) == "the local agent did not answer within 0.3 s"
    assert drafted(await agent.prompt(steps(("session", ""), number=2))) == first


async def test_files_are_read_where_that_is_offered(agent: AcpAgent, make: Make, tmp_path: Path, project: Path) -> None:
    (project / "notes.txt").write_text("All is well.")
    (tmp_path / "outside.txt").write_text("Not for you.")
    (project / "link.txt").symlink_to(tmp_path / "outside.txt")
    inside, link = str(project / "notes.txt"), str(project / "link.txt")
    assert drafted(await agent.prompt(steps(("read", inside)))) == "not offered"
    reader = make(HERE / "sdk_agent.mjs", str(tmp_path / "sessions"), reads_files=True)
    assert drafted(await reader.prompt(steps(("read", inside)))) == "All is well."
    assert drafted(await reader.prompt(steps(("read", link)))) == (
        "cannot read link.txt: symbolic links are not followed"
    )
    assert "only files in" in drafted(await reader.prompt(steps(("read", str(tmp_path / "outside.txt")))))


async def test_what_it_started_ends_with_it(agent: AcpAgent) -> None:
    """S3, S4."""
    pid = int(drafted(await agent.prompt(steps(("spawn", "")))))
    assert is_alive(pid)
    await agent.close()
    await gone(pid)


async def test_a_session_is_taken_up_again_by_the_next_process(agent: AcpAgent) -> None:
    first = drafted(await agent.prompt(steps(("session", ""), ("leave", ""))))
    await down(agent)
    assert drafted(await agent.prompt(steps(("session", ""), number=2))) == first


async def test_a_session_that_is_not_known_any_more_is_begun_anew(agent: AcpAgent, tmp_path: Path) -> None:
    first = drafted(await agent.prompt(steps(("session", ""), ("leave", ""))))
    await down(agent)
    (tmp_path / "sessions").unlink()
    second = drafted(await agent.prompt(steps(("session", ""), number=2)))
    assert second.startswith("session-")
    assert second != first


async def test_two_sessions_of_one_agent_are_told_apart(agent: AcpAgent) -> None:
    names = ("s-1", "s-2", "s-1")
    answers = [drafted(await agent.prompt(steps(("session", ""), session_id=name))) for name in names]
    assert answers[0] == answers[2] != answers[1]
