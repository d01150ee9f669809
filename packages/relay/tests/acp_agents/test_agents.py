"""Agents as their makers ship them, each with a model that does as it is told: everything but the model is real."""

import asyncio
import os
import signal
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from acp_agents.conftest import HERE, Make
from acp_agents.models import ModelServer, Script
from acp_agents.processes import descendants
from local_agents import down, drafted, failed, gone, request
from remit_relay.bridge.acp import AcpAgent
from remit_relay.bridge.ports import Draft, PermissionRequest
from remit_testing import ManualClock

# What is installed first comes from a registry, and two of these at once are a lot for a small machine.
pytestmark = pytest.mark.timeout(300)

MODULES = HERE / "node_modules"
KEY = "sk-a-key-that-opens-nothing"


@dataclass(frozen=True)
class Kind:
    """How an agent is started, where it finds its model, and what it can do."""

    script: Path
    args: tuple[str, ...]
    env: Callable[[str], dict[str, str]]
    write: Callable[[Path, str], tuple[str, dict[str, Any]]]
    """The call of its tool that writes a file."""
    resumes: bool
    """Whether it offers `session/resume`."""


CLAUDE = Kind(
    script=MODULES / "@agentclientprotocol" / "claude-agent-acp" / "dist" / "index.js",
    args=(),
    env=lambda url: {
        "ANTHROPIC_BASE_URL": url,
        "ANTHROPIC_API_KEY": KEY,
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    },
    write=lambda path, text: ("Write", {"file_path": str(path), "content": text}),
    resumes=True,
)
GEMINI = Kind(
    script=MODULES / "@google" / "gemini-cli" / "bundle" / "gemini.js",
    args=("--acp",),
    env=lambda url: {"GOOGLE_GEMINI_BASE_URL": url, "GEMINI_API_KEY": KEY},
    write=lambda path, text: ("write_file", {"file_path": str(path), "content": text}),
    resumes=False,
)


@pytest.fixture(params=[CLAUDE, GEMINI], ids=["claude", "gemini"])
def kind(request: pytest.FixtureRequest) -> Kind:
    return request.param


def started(make: Make, kind: Kind, models: ModelServer, **options: Any) -> AcpAgent:
    return make(kind.script, *kind.args, env=kind.env(models.url), **options)


def choosing(kind: str, questions: list[PermissionRequest]) -> Callable[[PermissionRequest], Any]:
    """Return a user who always gives an answer of one kind."""

    async def ask_user(question: PermissionRequest) -> str | None:
        questions.append(question)
        return next(choice.id for choice in question.choices if choice.kind == kind)

    return ask_user


async def test_a_whole_turn_with_a_tool_that_the_user_allows(
    make: Make, kind: Kind, models: ModelServer, project: Path
) -> None:
    """S2, S3: the user sees where it would write, and what; the model sees what came of it; its last words are sent."""
    models.script = Script(
        calls=[kind.write(project / "made.txt", "by the model")], say="Which endpoints need no login?"
    )
    questions: list[PermissionRequest] = []
    agent = started(make, kind, models, ask_user=choosing("allow_once", questions))
    outcome = await agent.prompt(request())
    assert isinstance(outcome, Draft), outcome
    assert (outcome.text, outcome.tool_rounds) == ("Which endpoints need no login?", 1)
    assert outcome.tokens is not None
    assert outcome.tokens >= 60
    (question,) = questions
    assert question.kind == "edit"
    assert str(project / "made.txt") in question.details
    assert "by the model" in question.details
    assert (project / "made.txt").read_text() == "by the model"
    assert "Review this API" in models.seen()


async def test_what_the_user_does_not_allow_is_not_done(
    make: Make, kind: Kind, models: ModelServer, project: Path
) -> None:
    models.script = Script(calls=[kind.write(project / "made.txt", "by the model")], say="Then I do not know.")
    questions: list[PermissionRequest] = []
    agent = started(make, kind, models, ask_user=choosing("reject_once", questions))
    assert drafted(await agent.prompt(request())) == "Then I do not know."
    assert len(questions) == 1
    assert not (project / "made.txt").exists()


async def test_a_turn_that_is_given_up_is_cancelled_and_the_same_process_takes_the_next(
    make: Make, kind: Kind, models: ModelServer
) -> None:
    """S8."""
    agent = started(make, kind, models)
    models.script = Script(say="Hello.")
    assert drafted(await agent.prompt(request(1))) == "Hello."
    before = agent._link  # pyright: ignore[reportPrivateUsage]
    models.script = Script(hang=True)
    prompt = asyncio.ensure_future(agent.prompt(request(2)))
    await asyncio.to_thread(models.hung.wait, 60)
    prompt.cancel()
    with pytest.raises(asyncio.CancelledError):
        await prompt
    models.script = Script(say="Hello again.")
    assert drafted(await agent.prompt(request(3))) == "Hello again."
    assert agent._link is before  # pyright: ignore[reportPrivateUsage]


async def test_all_of_its_processes_end_with_it(make: Make, kind: Kind, models: ModelServer) -> None:
    """S3, S4."""
    others = descendants()
    agent = started(make, kind, models)
    assert drafted(await agent.prompt(request())) == "Hello."
    its = descendants() - others
    assert its
    await agent.close()
    await gone(*its)


async def test_after_its_process_was_killed_it_goes_on_and_repeats_nothing(
    make: Make, kind: Kind, models: ModelServer
) -> None:
    """S4: the user is told of it. One that can take its session up again still knows what it said then."""
    clock, others = ManualClock(), descendants()
    agent = started(make, kind, models, clock=clock)
    models.script = Script(say="I have looked at the first half.")
    assert drafted(await agent.prompt(request(1))) == "I have looked at the first half."
    its = descendants() - others
    for pid in its:
        os.kill(pid, signal.SIGKILL)
    await gone(*its)
    await down(agent)
    assert "the local agent's process ended after its last turn" in failed(await agent.prompt(request(2)), hard=True)
    clock.advance(2)
    models.script = Script(say="And at the second.")
    assert drafted(await agent.prompt(request(3))) == "And at the second."
    assert ("I have looked at the first half." in str(models.bodies[-1])) is kind.resumes


async def test_without_a_login_it_is_said_how_to_come_by_one(make: Make, kind: Kind) -> None:
    reason = failed(await make(kind.script, *kind.args).prompt(request()), hard=True)
    assert reason.startswith("the local agent is not logged in: log in with its own program")
    assert "`env` of its profile" in reason


async def test_what_goes_wrong_with_its_model_is_a_failure_and_no_draft(
    make: Make, kind: Kind, models: ModelServer
) -> None:
    agent = started(make, kind, models)
    models.script = Script(status=400)
    reason = failed(await agent.prompt(request(1)), hard=False)
    assert reason.startswith("the local agent says: ")
    assert "scripted" in reason
    assert KEY not in reason


async def test_gemini_reads_through_its_host_where_that_is_offered(
    make: Make, models: ModelServer, project: Path
) -> None:
    (project / "notes.txt").write_text("All endpoints but one need a login.")
    models.script = Script(calls=[("read_file", {"file_path": str(project / "notes.txt")})], say="Which one?")
    agent = started(make, GEMINI, models, reads_files=True)
    assert drafted(await agent.prompt(request())) == "Which one?"
    assert "All endpoints but one need a login." in str(models.bodies[-1])
