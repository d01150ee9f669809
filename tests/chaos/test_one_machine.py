"""Chaos: clients ask a front hub for charges that a back hub makes, and both are killed with -9 again and again.

The small share of it runs with all tests; `make chaos` runs all of it. `REMIT_SEED` repeats the choices of a run.
"""

import asyncio
import json
import os
import random
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from aiohttp import ClientError, ClientSession

from charging import LONG_MS, Two, two
from remit.stores.audit import verify_file
from serving import got, parsed, posted

ACTIONS = int(os.environ.get("REMIT_CHAOS_ACTIONS", "40"))
KILLS = int(os.environ.get("REMIT_CHAOS_KILLS", "5"))
CLIENTS = 24
# Only ends what hangs: a kill with two restarts takes seconds on a busy machine.
BOUND_S = 300 + 30 * KILLS

TARGETS = ("till", "boss-till", "clerk-till", "careful", "boss-careful")
# What says that nothing was started: whoever hears it may ask anew under another id, and so does every client here.
NOT_STARTED = {"DELEGATION_UNAVAILABLE", "OVERLOADED", "STORE_UNAVAILABLE"}
STREAM = {"accept": "text/event-stream"}


class Ask(NamedTuple):
    """One request of one action: another one follows only where the one before says that nothing was started."""

    action: int
    attempt: int

    @property
    def id(self) -> str:
        return f"a{self.action}-{self.attempt}"

    @property
    def body(self) -> dict[str, Any]:
        target = TARGETS[self.action % len(TARGETS)]
        return {"target": target, "user": "anna", "objective": self.id, "id": self.id, "deadline_ms": LONG_MS}

    @property
    def is_read_along(self) -> bool:
        return self.action % 4 == 3


class Chaos:
    """The clients, what they were told, and who kills the hubs meanwhile."""

    def __init__(self, hubs: Two, chance: random.Random) -> None:
        self._hubs = hubs
        self._chance = chance
        self.answers: dict[Ask, tuple[str, str]] = {}
        """What each request was answered: `ok` and the receipt, or `failed` and the code."""
        self.kills: Counter[str] = Counter()
        self._seen: Counter[str] = Counter()
        self._news = asyncio.Condition()
        self._done = False
        hubs.back.charged = lambda _: self._saw("charged")

    def _saw(self, what: str) -> None:
        self._seen[what] += 1
        asyncio.get_running_loop().create_task(self._tell())

    async def _tell(self) -> None:
        async with self._news:
            self._news.notify_all()

    # ── clients ───────────────────────────────────────────────────────────────────────────────────────────────────────

    async def ask_all(self, actions: list[int], attempt: int = 0) -> None:
        """Have every action asked for, by many clients at once, until each has an answer that ends it."""
        todo = list(reversed(actions))

        async def client() -> None:
            async with self._hubs.front.client() as session:
                while todo:
                    await self._see_through(session, Ask(todo.pop(), attempt))

        async with asyncio.TaskGroup() as group:
            for _ in range(CLIENTS):
                group.create_task(client())

    async def _see_through(self, session: ClientSession, ask: Ask) -> None:
        while True:
            self.answers[ask] = end = await self.answer(session, ask)
            self._saw("answered")
            if end[1] not in NOT_STARTED:
                return
            await asyncio.sleep(0.2)  # it may be there again soon, and need not be asked without end
            ask = ask._replace(attempt=ask.attempt + 1)

    async def answer(self, session: ClientSession, ask: Ask) -> tuple[str, str]:
        """Ask until there is an answer, always under the same id: the hub may be killed meanwhile."""
        while True:
            try:
                said = await (self._read_along(session, ask) if ask.is_read_along else posted(session, ask.body))
            except (ClientError, ConnectionError, json.JSONDecodeError):
                await asyncio.sleep(0.02)  # it is not there, and will be
                continue
            status, answer = said
            if "status" not in answer:
                assert status in (429, 502, 503), answer  # it goes down, or has just come up
                continue
            return ("ok", answer["result"]) if status == 200 and "fault" not in answer else self._failed(answer)

    def _failed(self, answer: Any) -> tuple[str, str]:
        return "failed", answer["fault"]["code"]

    async def _read_along(self, session: ClientSession, ask: Ask) -> tuple[int, Any]:
        async with session.post("/v1/delegations", json=ask.body, headers=STREAM) as reply:
            if reply.content_type != "text/event-stream":
                return reply.status, await reply.json()
            *_, last = parsed(await reply.text())
        if last.kind not in ("result", "refused"):
            raise ConnectionError("the stream broke off")
        return 200, last.record["body"] if last.kind == "result" else last.record["body"]["response"]

    # ── kills ─────────────────────────────────────────────────────────────────────────────────────────────────────────

    async def kill_again_and_again(self) -> None:
        """Kill one or both after some more charges or answers, and start them again, in either order."""
        # With all actions spread over all kills, about half of them are left when the last kill is over.
        most = max(1, ACTIONS // max(1, KILLS))
        for _ in range(KILLS):
            await self._some_more(self._chance.choice(["charged", "answered"]), self._chance.randint(1, most))
            sides = {"front": self._hubs.front, "back": self._hubs.back}
            victims = self._chance.choice([["front"], ["back"], ["front", "back"], ["back", "front"]])
            for name in victims:
                await sides[name].kill()
                self.kills[name] += 1
            self._chance.shuffle(victims)
            for name in victims:
                await sides[name].start()
                # Not to wait for anything, but so that the one that is up may try before the other one is.
                await asyncio.sleep(self._chance.random() * 3 * (len(victims) - 1))

    async def _some_more(self, what: str, count: int) -> None:
        wanted = self._seen[what] + count
        async with self._news:
            await self._news.wait_for(lambda: self._done or self._seen[what] >= wanted)

    async def storm(self) -> None:
        """Have all actions asked for while the hubs are killed."""
        killing = asyncio.create_task(self.kill_again_and_again())
        await self.ask_all(list(range(ACTIONS)))
        self._done = True
        await self._tell()
        await killing
        await self._quiet()

    async def _quiet(self) -> None:
        """Return once neither hub has anything under way."""
        for side in (self._hubs.front, self._hubs.back):
            async with side.client() as session:
                while any(
                    each["state"] != "finished" for each in (await got(session, "/v1/runs?limit=1000"))[1]["runs"]
                ):
                    await asyncio.sleep(0.05)


@pytest.mark.timeout(BOUND_S + 60)
async def test_every_action_is_applied_once_and_no_answer_says_less_than_what_happened(tmp_path: Path) -> None:
    """Decisions 4, 5, 6 and 15, with two hubs over a world in which everything counts that is done."""
    # The small share makes the same choices everywhere; when what is asked reaches whom, differs all the same.
    seed = int(os.environ.get("REMIT_SEED") or (1 if ACTIONS == 40 else random.randrange(10**9)))
    print(f"REMIT_SEED={seed}")
    async with asyncio.timeout(BOUND_S), two(tmp_path) as hubs:
        chaos = Chaos(hubs, random.Random(seed))
        await chaos.storm()
        charges = hubs.world.charges()
        told = dict(chaos.answers)
        wrong = [
            f"{ask.id}: {end} but {charges.get(ask.id)}" for ask, end in told.items() if not is_true(ask, end, charges)
        ]
        assert wrong == []
        # What is not known is looked up in the world, and asked for anew where it did not take effect.
        unknown = [ask for ask, end in told.items() if end[1] == "OUTCOME_UNKNOWN"]
        missing = [ask.action for ask in unknown if not charges.get(ask.id)]
        await chaos.ask_all(missing, attempt=1_000)
        applied = Counter(int(what[1:].split("-")[0]) for what, found in hubs.world.charges().items() for _ in found)
        assert applied == dict.fromkeys(range(ACTIONS), 1)
        async with hubs.front.client() as session:
            for ask, end in told.items():
                if end[1] not in NOT_STARTED:
                    assert await chaos.answer(session, ask) == end, "no answer is lost, or becomes another"
        figures = Counter(end[0] if end[0] == "ok" else end[1] for end in told.values())
        print(f"{ACTIONS} actions, kills {dict(chaos.kills)}, answers {dict(figures)}, not done {len(missing)}")
    for name in ("front", "back"):
        assert verify_file(tmp_path / f"{name}.db").findings == ()


def is_true(ask: Ask, end: tuple[str, str], charges: dict[str, list[str]]) -> bool:
    """Say whether an answer tells what happened in the world."""
    found = charges.get(ask.id, [])
    match end:
        case ("ok", receipt):
            return found == [receipt]
        case (_, "OUTCOME_UNKNOWN"):
            return len(found) <= 1
        case (_, code):
            return code in NOT_STARTED and found == []
