"""A workflow waits for a person for days (K8, decision 4): its hub may die and come back, and no time passes for it.

Run as a program, this file is a hub in a process of its own, on the date that it is told.
"""

import asyncio
import os
import signal
import sys
from pathlib import Path

import pytest

from commands import popen
from programs import with_tests_on_path
from remit import Brief, Capability, Code, Hub, InboxApprover, Limits, Response, Status, Step, Workflow
from remit.ports import Decision, Question
from remit.runtime import root_runs
from remit.runtime.approvers import decide
from remit.runtime.clock import LoopClock
from remit.stores.sqlite import SqliteStore
from remit_cli import Rule, guard_of
from remit_orchestrator import add_workflow
from remit_testing import ManualClock
from waiting import eventually, wait_until

LEASE_MS = 200
DAY_MS = 24 * 3_600_000
DAY_S = 24 * 3_600.0
MONTH_MS = 30 * DAY_MS
MAIL = "ann@example.org"
ORDER = {"to": MAIL}


class Dated(LoopClock):
    """The loop's own clock, so many days from now."""

    def __init__(self, days: float) -> None:
        self._ahead_ms = round(days * DAY_MS)

    def wall_ms(self) -> int:
        return super().wall_ms() + self._ahead_ms


def opened(folder: Path, clock: Dated | ManualClock) -> SqliteStore:
    return SqliteStore(folder / "hub.db", durability="process", wall_ms=clock.wall_ms)


def team(folder: Path, clock: Dated | ManualClock, timeout_ms: int = MONTH_MS) -> Hub:
    """A workflow that looks something up, has it paid, which a person must agree to, and tells the user."""
    store = opened(folder, clock)
    rules = [Rule(then="ask", to="cashier", say="May it be paid?")]
    hub = Hub(
        store=store,
        guards=[guard_of(rules)],
        approver=InboxApprover(store, clock.wall_ms),
        limits=Limits(approval_timeout_ms=timeout_ms, root_time_ms=60_000),
        clock=clock,
    )

    @hub.agent("clerk", capabilities=[Capability(code="LOOK")])
    async def clerk(brief: Brief) -> str:
        with (folder / "done.txt").open("a", encoding="utf-8") as marks:
            marks.write(f"{brief.objective}\n")
        return f"{brief.objective} {brief.text}"

    @hub.agent("cashier")
    async def cashier(brief: Brief) -> str:
        with (folder / "done.txt").open("a", encoding="utf-8") as marks:
            marks.write("pay\n")
        return f"paid {brief.text}, {brief.time_left_ms() > 20_000}"

    steps = (
        Step(name="look", agent="clerk", capability="LOOK", objective="look", input="{input.to}"),
        Step(name="pay", agent="cashier", input="{look}"),
        Step(name="tell", agent="clerk", objective="tell", input="{pay}"),
    )
    add_workflow(hub, Workflow(name="purchase", steps=steps, result="tell"))
    return hub


DONE = f"tell paid look {MAIL}, True"


async def ask(hub: Hub) -> Response:
    return await hub.ask("purchase", "Buy it", user="u", input=ORDER, request_id="r")


async def question(store: SqliteStore) -> Question:
    pending = await eventually(store.pending)
    (only,) = pending
    return only


async def answer(folder: Path, days: float, *, agreed: bool = True) -> None:
    """Answer as `remit pending` does, from another process, so many days from now."""
    store = opened(folder, Dated(days))
    await store.open()
    try:
        await decide(store, (await question(store)).id, Decision(agreed=agreed, by="ann"))
    finally:
        await store.close()


def marks(folder: Path) -> list[str]:
    return (folder / "done.txt").read_text(encoding="utf-8").split()


@pytest.fixture(autouse=True)
def short_leases(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(root_runs, "LEASE_MS", LEASE_MS)


async def test_no_time_passes_for_a_workflow_while_a_person_thinks(tmp_path: Path) -> None:
    """Decision 4: a run of a minute waits for nine days, and its later steps have their time."""
    clock = ManualClock()
    async with team(tmp_path, clock) as hub:
        asking = asyncio.create_task(ask(hub))
        open_question = await question(hub.store)  # pyright: ignore[reportArgumentType] - made above
        for _ in range(9):
            clock.advance(DAY_S)
            await asyncio.sleep(0)
        await hub.decide(open_question.id, agreed=True, by="ann")
        response = await asking
    assert (response.status, response.result) == (Status.SUCCESS, DONE)


# ── killed and started again ──────────────────────────────────────────────────────────────────────────────────────────


def killed_while_waiting(folder: Path, days: float) -> None:
    """Let a hub of that date take the run as far as it comes, and kill it with -9 there."""
    ready = folder / "waits"
    process = popen([sys.executable, __file__, str(folder), str(days)], env=with_tests_on_path())
    wait_until(ready.exists, alive=lambda: process.poll() is None)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    ready.unlink()


@pytest.mark.parametrize("agreed", [True, False])
async def test_an_answer_that_comes_days_after_the_hub_was_killed_is_found_by_the_next(
    tmp_path: Path, agreed: bool
) -> None:
    """K8: nothing was in memory meanwhile; what was redacted is whole again, and no finished step is repeated."""
    await asyncio.to_thread(killed_while_waiting, tmp_path, 0)
    await answer(tmp_path, 4, agreed=agreed)
    async with team(tmp_path, Dated(9)) as hub:
        response = await ask(hub)
    if agreed:
        assert (response.status, response.result) == (Status.SUCCESS, DONE)
        assert marks(tmp_path) == ["look", "pay", "tell"]
    else:
        assert response.status is Status.PARTIAL
        assert marks(tmp_path) == ["look"]


async def test_a_workflow_whose_hub_was_killed_on_each_of_five_days_still_waits(tmp_path: Path) -> None:
    """Decision 4: to die while a person is asked is no attempt."""
    for day in range(5):
        await asyncio.to_thread(killed_while_waiting, tmp_path, day)
    async with team(tmp_path, Dated(5)) as hub:
        asking = asyncio.create_task(ask(hub))
        open_question = await question(hub.store)  # pyright: ignore[reportArgumentType] - made above
        await hub.decide(open_question.id, agreed=True, by="ann")
        response = await asking
    assert (response.status, response.result) == (Status.SUCCESS, DONE)
    assert marks(tmp_path) == ["look", "pay", "tell"]


async def test_a_hub_without_the_workflow_that_sweeps_meanwhile_takes_nothing_away(tmp_path: Path) -> None:
    """K8: values, answers and journal are there as long as the run is."""
    await asyncio.to_thread(killed_while_waiting, tmp_path, 0)
    await answer(tmp_path, 2)
    other = opened(tmp_path, Dated(6))
    await other.open()
    await other.sweep(max_attempts=3, keep_ms=DAY_MS)
    await other.close()
    async with team(tmp_path, Dated(7)) as hub:
        assert (await ask(hub)).result == DONE


async def test_nobody_waits_longer_than_the_team_lets_them(tmp_path: Path) -> None:
    """`approvals.timeout` counts from the first time that it was asked, whatever became of the hub since."""
    await asyncio.to_thread(killed_while_waiting, tmp_path, 0)
    async with team(tmp_path, Dated(31)) as hub:
        response = await ask(hub)
    assert response.status is Status.PARTIAL
    assert "not approved" in str(response.result)
    assert marks(tmp_path) == ["look"]


async def test_a_run_that_was_cancelled_while_no_hub_was_there_does_not_go_on(tmp_path: Path) -> None:
    await asyncio.to_thread(killed_while_waiting, tmp_path, 0)
    store = opened(tmp_path, Dated(1))
    await store.open()
    (known,) = await store.runs()
    await store.control(known.run, "cancel", "ann", "")
    await store.close()
    async with team(tmp_path, Dated(4)) as hub:
        response = await ask(hub)
    assert response.fault is not None
    assert response.fault.code is Code.CANCELLED
    assert marks(tmp_path) == ["look"]


async def live(folder: Path, days: float) -> None:
    root_runs.LEASE_MS = LEASE_MS
    async with team(folder, Dated(days)) as hub, asyncio.TaskGroup() as group:
        group.create_task(ask(hub))
        await eventually(lambda: any(frame.pauses for frame in hub._engine.frames()))  # pyright: ignore[reportPrivateUsage]
        await question(hub.store)  # pyright: ignore[reportArgumentType]
        (folder / "waits").touch()


if __name__ == "__main__":
    asyncio.run(live(Path(sys.argv[1]), float(sys.argv[2])))
