"""Workflows (K8, X15): steps in order and side by side, what fails and what is told of it, and what a restart keeps."""

import asyncio
import os
import shutil
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from commands import popen
from programs import with_tests_on_path
from remit import (
    Answer,
    Brief,
    Capability,
    Code,
    Handoff,
    Hub,
    Progress,
    RemitError,
    Request,
    Source,
    Status,
    fault,
)
from remit.protocol.orchestration import Step, Workflow
from remit.runtime import root_runs
from remit_orchestrator import add_workflow
from remit_testing import MemoryStore
from waiting import eventually, no_longer, wait_until

MakeHub = Callable[..., Hub]


def flow(*steps: Step, **fields: Any) -> Workflow:
    return Workflow(name="trip", steps=steps, **fields)


def worker(hub: Hub, name: str, *capabilities: str) -> list[Brief]:
    """An agent that answers with its name and its input, and what it was asked."""
    briefs: list[Brief] = []

    @hub.agent(name, capabilities=capabilities)
    async def work(brief: Brief) -> Answer:
        briefs.append(brief)
        return Answer({name: brief.input}, confidence=0.9)

    return briefs


async def test_each_step_gets_what_it_refers_to(hub: Hub) -> None:
    """K8, X8: a chain through results, the workflow's input and the user's words."""
    worker(hub, "a")
    briefs = worker(hub, "b", "B")
    first = Step(name="first", agent="a", input={"n": "{input.n}", "said": "{request}"})
    add_workflow(hub, flow(first, Step(name="second", capability="B", input="{first.a.n}"), result="second"))
    async with hub:
        response = await hub.ask("trip", "Plan it", user="u", input={"n": 7})
    assert (response.status, response.result) == (Status.SUCCESS, {"b": 7})
    assert briefs[0].capability == "B"


async def test_the_hand_off_says_what_came_before(hub: Hub) -> None:
    """K5."""
    worker(hub, "a")
    briefs = worker(hub, "b")
    add_workflow(
        hub,
        flow(
            Step(name="first", agent="a", title="Looking at flights…"),
            Step(name="second", agent="b", input="{first}", title="Choosing a hotel…"),
        ),
    )
    async with hub:
        await hub.ask("trip", "Plan my trip", user="u", session="s")
    handoff = briefs[0].handoff
    assert handoff.original_request == "Plan my trip"
    assert (handoff.history, handoff.position) == ("s", "Step 2 of 2 (Choosing a hotel)")
    assert (handoff.prior_agents, handoff.prior_outputs) == (("a",), {"first": {"a": "Looking at flights"}})


async def test_what_was_decided_assumed_and_bound_before_holds_for_every_step_and_is_on_record(hub: Hub) -> None:
    """K5: all that the document asks for; X12: recorded with tokens."""

    @hub.agent("a")
    async def a(brief: Brief) -> Answer:
        return Answer({"share": 5}, summary="The market grows.", warnings=("Figures are from 2023.",))

    briefs = worker(hub, "b")
    add_workflow(hub, Workflow(name="inner", steps=(Step(name="last", agent="b", input="{input}", title="Counting…"),)))
    add_workflow(hub, flow(Step(name="first", agent="a"), Step(name="second", agent="inner", input="{first.share}")))
    given = Handoff(
        original_request="Is it worth it, ann@example.org asks?",
        prior_agents=("ORC",),
        prior_outputs={"framework": "entry"},
        decisions=("in euros",),
        constraints={"budget": [1, 5]},
        findings=("Rivals are small.",),
        data={"country": "AT"},
        assumptions=("No war.",),
        facts=("likes tea",),
        references=(Source(owner_scope="u", source_id="doc-1"),),
    )
    async with hub:
        response = await hub.ask("trip", "Go", user="u", session="s", handoff=given)
        records = await hub.store.records(run=response.run)
    (brief,) = briefs
    assert (brief.user, brief.request.parent_session) == ("u", brief.handoff.history)
    expected = replace(
        given,
        history=brief.handoff.history,
        position="Step 1 of 1 (Counting), within Step 2 of 2 (Second)",
        prior_agents=("ORC", "a"),
        prior_outputs={"framework": "entry", "first": {"share": 5}},
        findings=("Rivals are small.", "The market grows."),
        assumptions=("No war.", "Figures are from 2023."),
    )
    assert replace(brief.handoff, original_request=given.original_request) == expected
    (recorded,) = [each.body for each in records if isinstance(each.body, Request) and each.body.target == "b"]
    assert recorded.handoff is not None
    assert recorded.handoff.original_request.startswith("Is it worth it, [EMAIL:")
    assert replace(recorded.handoff, original_request=given.original_request) == expected
    assert {(note.kind, note.text, note.by) for note in brief.known} >= {
        ("decision", "in euros", ""),
        ("constraint", "budget: [1,5]", ""),
    }


async def test_steps_that_wait_for_nothing_run_side_by_side_within_the_limit(hub: Hub) -> None:
    """K8, C11: at once, and never more than an agent may have under way."""
    together: list[int] = []
    going = 0
    three = asyncio.Event()

    @hub.agent("a")
    async def a(brief: Brief) -> str:
        nonlocal going
        going += 1
        together.append(going)
        if going == 3:
            three.set()
        await three.wait()
        for _ in range(100):  # the time in which a fourth would begin
            await asyncio.sleep(0)
        going -= 1
        return brief.objective

    add_workflow(hub, flow(*(Step(name=f"s{n}", agent="a", objective=f"part {n}") for n in range(7))))
    async with hub:
        response = await hub.ask("trip", "all", user="u")
    assert response.ok
    assert max(together) == 3


async def test_a_condition_that_does_not_hold_skips_a_step_and_nothing_is_missing(hub: Hub) -> None:
    """X15: conditional delegation."""
    worker(hub, "a")
    briefs = worker(hub, "b")
    add_workflow(hub, flow(Step(name="one", agent="a", input=1), Step(name="two", agent="b", when="one.a > 1")))
    async with hub:
        response = await hub.ask("trip", "go", user="u")
    assert (response.status, briefs, response.unfinished) == (Status.SUCCESS, [], ())
    assert response.metadata["steps"]["two"]["state"] == "skipped"


async def test_a_fallback_is_asked_when_a_step_fails(hub: Hub) -> None:
    """K10, C12."""
    worker(hub, "b")

    @hub.agent("a")
    async def a(brief: Brief) -> str:
        raise ValueError("broken")

    add_workflow(hub, flow(Step(name="one", agent="a", fallback=("b",), input=1), result="one"))
    async with hub:
        assert (await hub.ask("trip", "go", user="u")).result == {"b": 1}


async def test_what_may_help_is_tried_again_and_nothing_else_is(hub: Hub) -> None:
    """K10: retry."""
    tried: list[str] = []

    @hub.agent("a")
    async def a(brief: Brief) -> str:
        tried.append(brief.objective)
        if brief.objective == "refused":
            raise RemitError(fault(Code.PERMISSION_DENIED, "no"))
        if tried.count("flaky") < 3:
            raise RemitError(fault(Code.DELEGATION_UNAVAILABLE, "later", retry_after_ms=1))
        return "done"

    add_workflow(
        hub,
        flow(
            Step(name="one", agent="a", objective="flaky", attempts=5),
            Step(name="two", agent="a", objective="refused", attempts=5),
        ),
    )
    async with hub:
        response = await hub.ask("trip", "go", user="u")
    assert (tried.count("flaky"), tried.count("refused")) == (3, 1)
    assert response.status is Status.PARTIAL


async def test_a_partial_failure_says_what_was_done_what_was_not_and_why(hub: Hub) -> None:
    """K8, K9, K10, K6: in plain language, without a name or a code."""
    worker(hub, "ANL", "ANL_NPV")

    @hub.agent("MKT")
    async def mkt(brief: Brief) -> str:
        raise ValueError("ANL_NPV of MKT broke")

    add_workflow(
        hub,
        flow(
            Step(name="money", capability="ANL_NPV", input=5, title="Working out the financial side…"),
            Step(name="market", agent="MKT", title="Looking at the market…"),
            Step(name="report", agent="ANL", input="{market}", title="Writing it up…"),
        ),
    )
    async with hub:
        records = [record async for record in hub.stream("trip", "Make a case", user="u")]
    response: Any = records[-1].body
    assert response.status is Status.PARTIAL
    assert response.finished == ("Working out the financial side",)
    assert response.unfinished == ("Looking at the market", "Writing it up")
    assert "Looking at the market: not done; something went wrong on the way" in response.result
    assert "Writing it up: not begun, because what it builds on could not be done" in response.result
    progress = [record.body.text for record in records if isinstance(record.body, Progress)]
    assert progress == ["Working out the financial side…", "Looking at the market…"]
    assert not any(name in "\n".join([response.result, *progress]) for name in ("ANL", "MKT", "ANL_NPV"))


async def test_sources_that_contradict_each_other_are_named_and_the_surer_is_preferred(hub: Hub) -> None:
    """K9."""
    for name, hour, sure in (("a", "9:40", 0.9), ("b", "10:40", 0.6)):

        @hub.agent(name)
        async def answer(brief: Brief, hour: str = hour, sure: float = sure) -> Answer:
            return Answer({"departure": hour}, confidence=sure)

    steps = (Step(name="one", agent="a", title="Timetable"), Step(name="two", agent="b", title="Ticket"))
    add_workflow(hub, Workflow(name="trip", steps=steps, compare=("one", "two")))
    async with hub:
        response = await hub.ask("trip", "When?", user="u")
    assert "Where the results differ" in response.result
    assert "9:40 is preferred" in response.result
    assert response.metadata["conflicts"][0]["preferred"] == "9:40"


async def test_if_nothing_could_be_done_the_first_fault_is_the_workflows(hub: Hub) -> None:
    """C5."""

    @hub.agent("a")
    async def a(brief: Brief) -> str:
        raise RemitError(fault(Code.RATE_LIMITED, "too often"))

    add_workflow(hub, flow(Step(name="one", agent="a")))
    async with hub:
        response = await hub.ask("trip", "go", user="u")
    assert response.status is Status.FAILED
    assert response.fault is not None
    assert response.fault.code is Code.RATE_LIMITED


async def test_a_time_out_keeps_what_was_finished(hub: Hub) -> None:
    """K10."""
    worker(hub, "a")

    @hub.agent("b")
    async def b(brief: Brief) -> str:
        await asyncio.Event().wait()
        return "never"

    @hub.agent("c")
    async def c(brief: Brief) -> str:
        await asyncio.Event().wait()
        return "never"

    steps = (
        Step(name="one", agent="a", input=1, title="First"),
        Step(name="two", agent="b", after=("one",), time_ms=50, title="Second", optional=True),
        Step(name="three", agent="c", after=("two",), title="Third"),
    )
    add_workflow(hub, flow(*steps))
    async with hub:
        response = await hub.ask("trip", "go", user="u", deadline_ms=1_000)
    assert (response.status, response.finished) == (Status.PARTIAL, ("First",))
    assert response.unfinished == ("Third",)
    assert "Third: not done; it took too long" in response.result


async def test_a_workflow_that_is_cancelled_keeps_what_was_finished(hub: Hub) -> None:
    """K10."""
    worker(hub, "a")

    @hub.agent("b")
    async def b(brief: Brief) -> str:
        hub.cancel(brief.request.run, "the user changed their mind")
        await asyncio.Event().wait()
        return "never"

    steps = (
        Step(name="one", agent="a", input=1, title="First"),
        Step(name="two", agent="b", after=("one",), title="Second"),
    )
    add_workflow(hub, flow(*steps))
    async with hub:
        response = await hub.ask("trip", "go", user="u")
    assert (response.status, response.finished) == (Status.CANCELLED, ("First",))
    assert "A: 1" in response.result


class CountingStore(MemoryStore):
    flushes = 0

    async def flush(self) -> None:
        self.flushes += 1
        await super().flush()

    async def journal_durably(self, run: str, epoch: int, step: str, value: bytes) -> bool:
        self.flushes += 1
        return await super().journal_durably(run, epoch, step, value)


async def test_of_steps_that_begin_together_only_those_that_may_not_be_done_twice_wait_for_the_store() -> None:
    async def flushes(*, read_only: bool) -> int:
        store = CountingStore()
        hub = Hub(store=store)
        together = asyncio.Barrier(3)

        @hub.agent("a", capabilities=[Capability(code="A", read_only=read_only)])
        async def a(brief: Brief) -> str:  # pyright: ignore[reportUnusedFunction]
            await together.wait()
            return "done"

        add_workflow(hub, flow(*(Step(name=name, agent="a", capability="A", input=name) for name in "xyz")))
        async with hub:
            (await hub.ask("trip", "go", user="u")).unwrap()
            return store.flushes

    assert await flushes(read_only=False) - await flushes(read_only=True) == 3


@pytest.mark.parametrize(
    ("step", "place"),
    [
        (Step(name="one", agent="nobody"), "workflows.trip.steps.one.agent"),
        (Step(name="one", capability="NOTHING"), "workflows.trip.steps.one.capability"),
        (Step(name="one", agent="b", capability="A"), "workflows.trip.steps.one.agent"),
        (Step(name="one", capability="A", fallback=("b",)), "workflows.trip.steps.one.fallback"),
    ],
)
async def test_a_workflow_that_names_what_is_not_there_is_refused_when_the_hub_opens(
    hub: Hub, step: Step, place: str
) -> None:
    worker(hub, "a", "A")
    worker(hub, "b")
    add_workflow(hub, flow(step))
    with pytest.raises(RemitError) as refused:
        async with hub:
            pass
    assert [problem.path for problem in refused.value.fault.problems] == [place]


def test_a_workflow_that_can_never_end_is_refused_at_once(hub: Hub) -> None:
    with pytest.raises(RemitError, match="cannot be carried out"):
        add_workflow(hub, flow(Step(name="a", agent="x", after=("b",)), Step(name="b", agent="x", after=("a",))))


async def test_a_share_is_a_part_of_the_workflows_tokens(hub: Hub) -> None:
    briefs = worker(hub, "a")
    add_workflow(hub, flow(Step(name="one", agent="a", share=0.25), Step(name="two", agent="a", tokens=300)))
    async with hub:
        await hub.ask("trip", "go", user="u", max_tokens=10_000)
    assert {brief.remit.tokens for brief in briefs} == {2_500, 300}


# ── restarts ──────────────────────────────────────────────────────────────────────────────────────────────────────────

LEASE_MS = 200


def make_life(folder: Path) -> Hub:
    """A workflow of five steps; each leaves a mark, and the one named in `hang` waits until that file is gone."""
    hub = Hub(store=folder / "hub.db", durability="process", approver="inbox")
    codes = [Capability(code="SAFE", read_only=True), Capability(code="ONCE")]

    @hub.agent("worker", capabilities=codes)
    async def work(brief: Brief) -> str:
        with (folder / "done.txt").open("a") as marks:
            marks.write(f"{brief.objective}\n")
        await no_longer(lambda: (folder / "hang").exists() and (folder / "hang").read_text() == brief.objective)
        return f"did {brief.objective}"

    steps = (
        Step(name="a", capability="ONCE", agent="worker", objective="a", title="a…", input="a"),
        Step(name="b", capability="ONCE", agent="worker", objective="b", title="b…", input="b"),
        Step(name="c", capability="SAFE", agent="worker", objective="c", title="c…", input="c", after=("a", "b")),
        Step(name="d", capability="ONCE", agent="worker", objective="d", title="d…", input="d", after=("c",)),
        Step(name="e", capability="ONCE", agent="worker", objective="e", title="e…", input="e", after=("d",)),
    )
    add_workflow(hub, Workflow(name="trip", steps=steps))
    return hub


async def live(folder: Path) -> None:
    root_runs.LEASE_MS = LEASE_MS
    async with make_life(folder) as hub:
        await hub.ask("trip", "go", user="u", request_id="r")


def kill_at(folder: Path, step: str) -> None:
    """Start a life in a process of its own, and kill it with -9 while a step is under way."""
    (folder / "hang").write_text(step)
    process = popen([sys.executable, __file__, str(folder)], env=with_tests_on_path())
    marks = folder / "done.txt"
    wait_until(lambda: marks.exists() and step in marks.read_text().split(), alive=lambda: process.poll() is None)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    (folder / "hang").unlink()


async def test_after_a_kill_no_finished_step_is_done_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """K8: a step that was under way is done again, because its capability is declared safe to repeat."""
    monkeypatch.setattr(root_runs, "LEASE_MS", LEASE_MS)
    await asyncio.to_thread(kill_at, tmp_path, "c")
    async with make_life(tmp_path) as hub:
        response = await hub.ask("trip", "go", user="u", request_id="r")
        progress = [each.body.text for each in await hub.store.records() if isinstance(each.body, Progress)]
    assert response.status is Status.SUCCESS
    assert progress == ["a…", "b…", "c…", "d…", "e…"], "what the user has read before the restart is not told again"
    assert (tmp_path / "done.txt").read_text().split().count("c") == 2
    assert sorted((tmp_path / "done.txt").read_text().split()) == ["a", "b", "c", "c", "d", "e"]


@pytest.mark.parametrize("again", [True, False])
async def test_a_step_that_may_have_been_done_is_done_again_only_if_a_person_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, again: bool
) -> None:
    """K8: else it counts as not done, and what builds on it is not begun."""
    monkeypatch.setattr(root_runs, "LEASE_MS", LEASE_MS)
    await asyncio.to_thread(kill_at, tmp_path, "d")
    async with make_life(tmp_path) as hub:
        asking = asyncio.create_task(hub.ask("trip", "go", user="u", request_id="r"))
        pending = await eventually(hub.pending)
        assert "not known whether this was done before the restart" in pending[0].text
        await hub.decide(pending[0].id, agreed=again, by="eve")
        response = await asking
    done = sorted((tmp_path / "done.txt").read_text().split())
    assert done == (["a", "b", "c", "d", "d", "e"] if again else ["a", "b", "c", "d"])
    assert response.status is (Status.SUCCESS if again else Status.PARTIAL)


async def test_a_yes_is_to_one_restart_and_not_to_the_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """K8: done a third time only if a person says so again."""
    monkeypatch.setattr(root_runs, "LEASE_MS", LEASE_MS)
    await asyncio.to_thread(kill_at, tmp_path, "d")
    (tmp_path / "hang").write_text("d")
    async with make_life(tmp_path) as hub:
        asking = asyncio.create_task(hub.ask("trip", "go", user="u", request_id="r"))
        await agree(hub, "d (step 4 of 5). Shall it be done again?")
        await eventually(lambda: (tmp_path / "done.txt").read_text().split().count("d") >= 2)
        # As if it had been killed: what it was at is not known to have ended.
        await hub.store.flush()
        shutil.copytree(tmp_path, tmp_path / "next", ignore=shutil.ignore_patterns("hang"))
        (tmp_path / "hang").unlink()
        await asking
    async with make_life(tmp_path / "next") as hub:
        asking = asyncio.create_task(hub.ask("trip", "go", user="u", request_id="r"))
        await agree(hub, "d (step 4 of 5). It was begun 2 times so far. Shall it be done again?")
        assert (await asking).status is Status.SUCCESS
    assert (tmp_path / "next" / "done.txt").read_text().split().count("d") == 3


async def agree(hub: Hub, end: str) -> None:
    pending = await eventually(hub.pending)
    assert pending[0].text.endswith(end)
    await hub.decide(pending[0].id, agreed=True, by="eve")


if __name__ == "__main__":
    asyncio.run(live(Path(sys.argv[1])))
