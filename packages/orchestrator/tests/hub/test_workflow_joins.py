"""Workflows that join after a condition (K8): what the joining step gets, what is told, and what a kill keeps."""

import asyncio
import os
import signal
import sys
from pathlib import Path

import pytest

from commands import popen
from programs import with_tests_on_path
from remit import Brief, Capability, Code, Hub, RemitError, Status, Step, Workflow, fault
from remit.protocol.envelope import Json
from remit.runtime import root_runs
from remit_orchestrator import add_workflow


def team(hub: Hub, *steps: Step, result: str | None = None) -> None:
    """A workflow whose steps are done by an agent that gives back its input, and by one that fails."""

    @hub.agent("echo")
    async def echo(brief: Brief) -> Json:
        return brief.input

    @hub.agent("broken")
    async def broken(brief: Brief) -> Json:
        raise RemitError(fault(Code.DELEGATION_FAILED, "no"))

    add_workflow(hub, Workflow(name="case", steps=steps, result=result))


async def test_branches_join_whichever_was_taken(hub: Hub) -> None:
    """K8: conditional execution."""
    team(
        hub,
        Step(name="cheap", agent="echo", input="small", when="input.sum < 100"),
        Step(name="dear", agent="echo", input="large", when="input.sum >= 100", default="no large offer"),
        Step(name="offer", agent="echo", input={"cheap": "{cheap}", "dear": "{dear}"}),
        result="offer",
    )
    async with hub:
        cheap = await hub.ask("case", "go", user="u", input={"sum": 7})
        dear = await hub.ask("case", "go", user="u", input={"sum": 700})
    assert (cheap.status, cheap.result) == (Status.SUCCESS, {"cheap": "small", "dear": "no large offer"})
    assert (dear.status, dear.result) == (Status.SUCCESS, {"cheap": None, "dear": "large"})


async def test_a_run_whose_result_step_never_ran_is_no_success(hub: Hub) -> None:
    team(
        hub,
        Step(name="check", agent="echo", input="bad"),
        Step(name="offer", agent="echo", input="offer", when='check == "good"', optional=True),
        result="offer",
    )
    async with hub:
        response = await hub.ask("case", "go", user="u")
    assert (response.status, response.finished, response.unfinished) == (Status.PARTIAL, ("Check",), ("Offer",))
    assert response.result == (
        "This could not be finished.\n\n## What is missing\n\n- Offer: not begun, because its condition does not hold."
    )


async def test_a_workflow_in_which_nothing_had_to_be_done_says_so(hub: Hub) -> None:
    team(hub, Step(name="offer", agent="echo", when="input.wanted"))
    async with hub:
        response = await hub.ask("case", "go", user="u", input={})
    assert (response.status, response.result) == (Status.SUCCESS, "Nothing had to be done.")


async def test_steps_that_were_done_without_a_text_are_not_told_as_undone(hub: Hub) -> None:
    @hub.agent("silent")
    async def silent(brief: Brief) -> None:
        return None

    team(hub, Step(name="send", agent="silent"), Step(name="pack", agent="silent"))
    async with hub:
        response = await hub.ask("case", "go", user="u")
    assert (response.status, response.result) == (Status.SUCCESS, "Done: Send, Pack.")
    assert response.finished == ("Send", "Pack")


# ── a kill ────────────────────────────────────────────────────────────────────────────────────────────────────────────

LEASE_MS = 1_500


def looking(folder: Path) -> Hub:
    """A hub whose workflow only looks things up; its process dies in the middle of the second step if told to."""
    hub = Hub(store=folder / "hub.db", durability="process")

    @hub.agent("library", capabilities=[Capability(code="LOOK", read_only=True)])
    async def look(brief: Brief) -> str:
        with (folder / "done.txt").open("a") as marks:
            marks.write(f"{brief.objective}\n")
        if brief.objective == "second" and (folder / "die").exists():
            os.kill(os.getpid(), signal.SIGKILL)
        return brief.objective

    first = Step(name="first", capability="LOOK", objective="first")
    second = Step(name="second", capability="LOOK", objective="second", input="{first}")
    add_workflow(hub, Workflow(name="case", steps=(first, second)))
    return hub


async def live(folder: Path) -> None:
    root_runs.LEASE_MS = LEASE_MS
    async with looking(folder) as hub:
        await hub.ask("case", "go", user="u", request_id="r")


async def test_what_a_read_only_step_found_is_kept_over_a_kill(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """K8: it may be done twice, but what a model found costs money to find again."""
    monkeypatch.setattr(root_runs, "LEASE_MS", LEASE_MS)
    (tmp_path / "die").touch()
    process = popen([sys.executable, __file__, str(tmp_path)], env=with_tests_on_path())
    assert await asyncio.to_thread(process.wait) == -signal.SIGKILL
    (tmp_path / "die").unlink()
    async with looking(tmp_path) as hub:
        response = await hub.ask("case", "go", user="u", request_id="r")
    assert response.status is Status.SUCCESS
    assert (tmp_path / "done.txt").read_text().split() == ["first", "second", "second"]


if __name__ == "__main__":
    asyncio.run(live(Path(sys.argv[1])))
