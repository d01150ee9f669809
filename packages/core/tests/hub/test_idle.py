"""A hub without runs does little, and still hears everything: commands, requests, and the end of a lease."""

import asyncio
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from remit import ALLOW, Ask, Brief, Code, Facts, Hub, Request, Response, Verdict
from remit.ports import ControlCommand, Decision
from remit.runtime import clock, leases, root_runs
from remit.stores.sqlite import SqliteStore
from remit.stores.transaction import Transaction
from waiting import eventually

MakeHub = Callable[..., Hub]


def ask_for_b(request: Request, facts: Facts) -> Verdict:
    return Ask("Pay?") if request.target == "b" else ALLOW


class Office:
    """A hub with `busy`, which works until it is cancelled, and `b`, which needs a yes; and what it does at its store.

    *steps* has a `look` for each time that the hub looked for commands, a `beat` for each heartbeat, and a `renewal`
    for each that was written.
    """

    def __init__(self, hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
        self.hub = hub
        self.steps: list[str] = []
        self.reloads: list[str] = []
        self.at_work = asyncio.Event()
        self._spy(monkeypatch, SqliteStore, "controls", "look")
        self._spy(monkeypatch, SqliteStore, "heartbeat", "beat")
        self._spy(monkeypatch, Transaction, "heartbeat", "renewal")
        hub.agent("busy")(self._busy)
        hub.agent("b")(self._b)
        hub.on_reload(self._reload)

    def _spy(self, monkeypatch: pytest.MonkeyPatch, owner: type, name: str, step: str) -> None:
        real = getattr(owner, name)

        def spied(*args: Any, **options: Any) -> Any:
            self.steps.append(step)
            return real(*args, **options)

        monkeypatch.setattr(owner, name, spied)

    async def _busy(self, brief: Brief) -> str:
        self.at_work.set()
        await asyncio.Event().wait()
        return "never"

    async def _b(self, brief: Brief) -> str:
        return "paid"

    async def _reload(self, control: ControlCommand) -> None:
        self.reloads.append(control.reason)

    async def ask(self, agent: str) -> Response:
        return await self.hub.ask(agent, "x", user="u")

    async def run(self) -> str:
        """Return the run in progress."""

        async def going() -> list[str]:
            return [each.run for each in await self.hub.store.runs() if each.state != "finished"]

        (run,) = await eventually(going)
        return run

    async def idle(self, step: str, times: int = 3) -> None:
        """Let the hub be idle until it has done a step so many times."""
        enough = self.steps.count(step) + times
        await eventually(lambda: self.steps.count(step) >= enough)


@pytest.fixture
def office(make_hub: MakeHub, monkeypatch: pytest.MonkeyPatch) -> Office:
    monkeypatch.setattr(root_runs, "LEASE_MS", 300)
    return Office(make_hub(guards=[ask_for_b], approver="inbox"), monkeypatch)


@pytest.fixture
async def other(tmp_path: Path) -> SqliteStore:
    """The store of another process."""
    return SqliteStore(tmp_path / "hub.db", durability="process")


async def test_commands_reach_an_idle_hub_and_the_run_that_it_just_began(office: Office, other: SqliteStore) -> None:
    async with office.hub as hub, asyncio.TaskGroup() as group:
        await other.open()
        for number in range(2):
            await office.idle("look")
            await other.control("", "reload", "ann", f"reload {number}")
            await eventually(lambda number=number: f"reload {number}" in office.reloads)
            # Cancelled while the hub still sleeps as if it were idle.
            office.at_work.clear()
            asking = group.create_task(office.ask("busy"))
            await office.at_work.wait()
            await other.control(await office.run(), "cancel", "ann", "a mistake")
            response = await asking
            assert response.fault is not None
            assert (response.fault.code, "a mistake" in response.fault.message) == (Code.CANCELLED, True)
            # And another is approved.
            asking = group.create_task(office.ask("b"))
            (question,) = await eventually(hub.pending)
            assert await other.decide(question.id, Decision(agreed=True, by="ann"))
            assert (await asking).result == "paid"
        await other.close()
    assert office.reloads == ["reload 0", "reload 1"]


async def test_a_hub_looks_more_often_for_commands_while_it_has_a_run(
    office: Office, monkeypatch: pytest.MonkeyPatch
) -> None:
    slept: list[float] = []
    sleep = clock.sleep_to_tick

    async def noted(seconds: float) -> None:
        if seconds in (leases.LISTEN_S, leases.IDLE_LISTEN_S):
            slept.append(seconds)
        await sleep(seconds)

    # No other wait of a hub is as long as these.
    monkeypatch.setattr(leases, "LISTEN_S", 0.0123)
    monkeypatch.setattr(leases, "IDLE_LISTEN_S", 0.0456)
    monkeypatch.setattr(leases, "sleep_to_tick", noted)
    async with office.hub as hub, asyncio.TaskGroup() as group:
        await office.idle("look")
        assert set(slept) == {leases.IDLE_LISTEN_S}
        asking = group.create_task(office.ask("busy"))
        await office.at_work.wait()
        await office.idle("look", 1)
        slept.clear()
        await office.idle("look")
        assert set(slept) == {leases.LISTEN_S}
        assert hub.cancel(await office.run(), "enough")
        await asking
        await office.idle("look", 1)
        slept.clear()
        await office.idle("look")
        assert set(slept) == {leases.IDLE_LISTEN_S}


async def test_a_hub_that_was_idle_renews_its_run_with_the_next_heartbeat(office: Office) -> None:
    async with office.hub as hub, asyncio.TaskGroup() as group:
        for _ in range(2):
            await office.idle("beat", 5)
            office.at_work.clear()
            asking = group.create_task(office.ask("busy"))
            await office.at_work.wait()
            begun = len(office.steps)
            await office.idle("beat", 4)
            steps = [step for step in office.steps[begun:] if step != "look"]
            # The last one may not be written yet.
            after = [then for step, then in pairwise(steps) if step == "beat"]
            assert set(after) == {"renewal"}
            assert hub.cancel(await office.run(), "enough")
            await asking
