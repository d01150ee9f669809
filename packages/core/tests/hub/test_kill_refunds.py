"""A refund that waits for a person happens once at most, and never without a yes, whenever its hub is killed with -9.

A ledger beside the hubs counts refunds; the person answers in this process, also while no hub lives. Run as a program,
this file makes the hubs.
"""

import asyncio
import os
import random
import signal
from collections import Counter
from pathlib import Path
from typing import Literal

import pytest

from hub.test_kill import AT_ONCE, KILLS, Life, Nursery, answer_of, main, say
from remit import Brief, Code, Decision, Hub, RemitError
from remit.policy.verdict import ALLOW, Ask, Verdict
from remit.protocol.envelope import Request
from remit.runtime.approvers import answer
from remit.stores.audit import verify_file
from remit.stores.sqlite import SqliteStore

pytestmark = pytest.mark.processes

# How long a hub lives, at most: long enough to take up what another one left, whose lease has to end first.
LIFE_S = 0.8
# Only ends what hangs.
BOUND_S = 120 + 10 * KILLS


class Person:
    """Answers questions at random moments, each with a yes or a no that is kept."""

    def __init__(self, store: SqliteStore, chance: random.Random) -> None:
        self._store = store
        self._chance = chance
        self.agreed: dict[str, bool] = {}
        self.is_there = asyncio.Event()

    async def at_work(self) -> None:
        """Answer without end."""
        await self.is_there.wait()
        while True:
            for question in await self._store.pending():
                if self._chance.random() < 0.3:
                    agreed = self._chance.random() < 0.7
                    if await answer(self._store, question, Decision(agreed=agreed, by="ann")):
                        self.agreed[question.request.input["order"]] = agreed
            await asyncio.sleep(self._chance.random() * 0.05)


@pytest.mark.timeout(BOUND_S)
async def test_a_refund_that_a_person_approved_happens_once_at_most_whenever_its_hub_is_killed(tmp_path: Path) -> None:
    chance, nursery = random.Random(KILLS), Nursery(tmp_path, "power", __file__)
    begun: set[str] = set()
    outcomes: dict[str, object] = {}
    held = 0
    await asyncio.to_thread(nursery.start, Life(0, [], False))  # makes the store
    await asyncio.to_thread(listen, nursery, begun, outcomes)
    store = SqliteStore(tmp_path / "hub.db")
    await store.open()
    person = Person(store, chance)
    answering = asyncio.create_task(person.at_work())
    try:
        for number in range(1, KILLS + 1):
            left = sorted(begun - outcomes.keys())
            pid = await asyncio.to_thread(nursery.start, Life(number, left, True))
            listening = asyncio.create_task(asyncio.to_thread(listen, nursery, begun, outcomes))
            if number == 1:  # while nobody answers yet, so that one question at least is held over a kill
                while not await store.pending():
                    await asyncio.sleep(0.01)
            else:
                await asyncio.sleep(chance.random() * LIFE_S)  # not to wait for anything, but to hit any moment
            held += len(await store.pending())
            os.kill(pid, signal.SIGKILL)
            await listening
            person.is_there.set()
        await asyncio.to_thread(nursery.start, Life(KILLS + 1, sorted(begun), False))
        await asyncio.to_thread(listen, nursery, begun, outcomes)
    finally:
        answering.cancel()
        await asyncio.wait([answering])
        await store.close()
        nursery.end()
    refunds = Counter((tmp_path / "ledger").read_text().split())
    said = Counter(str(each) for each in outcomes.values())
    print(f"{KILLS} kills, {held} questions held, {len(person.agreed)} answered, {refunds.total()} refunds, {said}")
    assert [order for order, count in refunds.items() if count > 1] == []
    assert [order for order in refunds if person.agreed.get(order) is not True] == []
    assert outcomes.keys() == begun
    assert {order for order, outcome in outcomes.items() if outcome == "refunded"} <= refunds.keys()
    # Whoever is told that nothing was done, and not that this is unknown, can rely on it.
    assert {order for order, outcome in outcomes.items() if outcome == Code.APPROVAL_DECLINED} & refunds.keys() == set()
    assert {*said} <= {"refunded", Code.APPROVAL_DECLINED, Code.OUTCOME_UNKNOWN}
    assert refunds
    assert held
    assert verify_file(tmp_path / "hub.db").ok


def listen(nursery: Nursery, begun: set[str], outcomes: dict[str, object]) -> None:
    """Hear everything until the process has ended."""
    while "dead" not in (message := nursery.hear()):
        begun.add(message["id"])
        if "answer" in message:
            assert outcomes.setdefault(message["id"], message["answer"]) == message["answer"]


# ── the program ───────────────────────────────────────────────────────────────────────────────────────────────────────


def ask_first(request: Request, _: object) -> Verdict:
    return Ask("Refund this?") if request.act == "tool" else ALLOW


async def live(folder: Path, durability: Literal["power", "process"], life: Life) -> None:
    hub = Hub(store=folder / "hub.db", durability=durability, approver="inbox", guards=[ask_first])
    ledger = os.open(folder / "ledger", os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    @hub.tool()
    async def refund(order: str) -> str:
        os.write(ledger, f"{order}\n".encode())
        return "refunded"

    @hub.agent("desk", resumable=True, tools=["refund"])
    async def desk(brief: Brief) -> object:
        try:
            return await brief.use("refund", order=brief.text)
        except RemitError as error:
            return error.fault.code

    async def ask(order: str) -> None:
        say(id=order)
        say(id=order, answer=answer_of(await hub.ask("desk", order, user="u", request_id=order)))

    async def ask_without_end(place: int) -> None:
        for number in range(10_000):
            await ask(f"{life.number}-{place}-{number}")

    assert all((refund, desk))
    async with hub, asyncio.TaskGroup() as group:
        for order in life.again:
            group.create_task(ask(order))
        for place in range(AT_ONCE if life.new else 0):
            group.create_task(ask_without_end(place))


if __name__ == "__main__":
    main(live)
