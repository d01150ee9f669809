"""Several asked for one answer by a run that is killed and taken up again: the same answer, and nobody asked in vain.

Run as a program, this file is a hub in a process of its own, which the tests kill where they like.
"""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from commands import popen
from programs import with_tests_on_path
from remit import Answer, Brief, Call, Hub, Response, Usage
from remit.runtime import root_runs
from remit.runtime.delegation import combine as combining
from remit.stores.sqlite import SqliteStore
from waiting import PATIENCE_S

pytestmark = pytest.mark.processes

LEASE_MS = 300
UNKNOWN = "OUTCOME_UNKNOWN"


def shown(response: Response) -> str:
    return str(response.fault.code if response.fault else response.result)


class Race:
    """A hub whose agents write a line each time they are really executed, and stop where they are told to."""

    def __init__(self, folder: Path, stop_at: str, life: str) -> None:
        self.store = SqliteStore(folder / "hub.db", durability="process")
        self.hub = Hub(store=self.store)
        self._log = folder / "executed.log"
        self._stop_at = stop_at
        self._life = life
        self._started = asyncio.Semaphore(0)
        self._together = asyncio.Event()
        self._add_agents()

    async def reach(self, point: str) -> None:
        """Say that *point* is reached, if this is where it is to be killed, and wait for that."""
        if point == self._stop_at:
            await self.store.flush()
            print(point, flush=True)
            await asyncio.Event().wait()

    def do(self, name: str) -> None:
        handle = os.open(self._log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.write(handle, f"{name}\n".encode())
        os.close(handle)

    async def _combined(self, brief: Brief, *names: str, strategy: str = "first-success") -> list[object]:
        combined = await brief.combine([Call(target=name, objective="x") for name in names], strategy=strategy)
        answer = combined.answer
        return [
            None if answer is None else answer.result,
            [each.fault.code if each.fault else "ok" for each in combined.responses],
            [] if answer is None else list(answer.unfinished),
        ]

    def _add_agents(self) -> None:
        hub = self.hub

        @hub.agent("slow", resumable=True)
        async def slow(brief: Brief) -> Answer:
            self.do("slow")
            self._started.release()
            await self.reach("in slow")
            try:
                await asyncio.Event().wait()
            finally:
                await self.reach("slow cleans up")
            return Answer("never")

        @hub.agent("quick")
        async def quick(brief: Brief) -> Answer:
            self.do("quick")
            await self._started.acquire()
            return Answer("quick", usage=Usage(prompt=100))

        @hub.agent("dawdler", resumable=True)
        async def dawdler(brief: Brief) -> Answer:
            self.do("dawdler")
            if self._stop_at == "heard left":
                await asyncio.Event().wait()
            return Answer("dawdler")

        async def one_of_two(brief: Brief) -> str:
            name = brief.request.target
            self.do(name)
            if name == "right":
                await self._together.wait()
            else:
                self._together.set()
            return name

        for name in ("left", "right"):
            hub.agent(name)(one_of_two)

        @hub.agent("later")
        async def later(brief: Brief) -> str:
            self.do("later")
            return f"later, after {brief.input}"

        @hub.agent("racer", resumable=True, may_call=["*"])
        async def racer(brief: Brief) -> object:
            self.do("racer")
            answers = await self._combined(brief, "slow", "quick")
            after = await brief.delegate("later", objective="go on", input=answers[0])
            await self.reach("at the end")
            return [*answers, shown(after), brief.remit.tokens - brief.tokens_left()]

        @hub.agent("photo-finish", resumable=True, may_call=["*"])
        async def photo_finish(brief: Brief) -> object:
            self.do("photo-finish")
            answers = await self._combined(brief, "right", "left")
            after = await brief.delegate("later", objective="go on", input=answers[0])
            await self.reach("at the end")
            return [*answers, shown(after)]

        @hub.agent("collector", resumable=True, may_call=["*"])
        async def collector(brief: Brief) -> object:
            self.do("collector")
            answers = await self._combined(brief, "nobody", "left", "dawdler", strategy="merge-all")
            await self.reach("at the end")
            return answers

        if self._life == "second":
            hub.agent("nobody")(one_of_two)  # whom the first life did not have

        @hub.agent("turncoat", resumable=True, may_call=["*"])
        async def turncoat(brief: Brief) -> object:
            self.do("turncoat")
            if self._life == "first":
                answers = shown(await brief.delegate("left", objective="x"))
            else:
                answers = await self._combined(brief, "left", "dawdler")
            await self.reach("at the end")
            return [answers, shown(await brief.delegate("later", objective="go on"))]


# ── the tests ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def life(folder: Path, agent: str, point: str, number: str) -> subprocess.Popen[str]:
    return popen(
        [sys.executable, __file__, str(folder), agent, point, number],
        stdout=subprocess.PIPE,
        text=True,
        env=with_tests_on_path(),
    )


def killed_and_restarted(folder: Path, agent: str, point: str) -> tuple[Any, Counter[str]]:
    """Kill a hub with -9 where it reaches *point*, start another; return how that one ended the run, and who worked."""
    with life(folder, agent, point, "first") as first:
        assert first.stdout is not None
        assert first.stdout.readline().strip() == point
        first.send_signal(signal.SIGKILL)
        assert first.wait(PATIENCE_S) == -signal.SIGKILL
    with life(folder, agent, "", "second") as second:
        assert second.stdout is not None
        outcome = json.loads(second.stdout.readline())
        assert second.wait(PATIENCE_S) == 0
    return outcome, Counter((folder / "executed.log").read_text().split())


RACED = ["quick", ["CANCELLED", "ok"], [], "later, after quick", 100]


def test_an_answer_that_was_known_is_known_after_the_restart_and_nobody_is_asked_again(tmp_path: Path) -> None:
    """Decision 4, C5: winner and loser stand in the journal, and what was asked after them is known by its number."""
    assert killed_and_restarted(tmp_path, "racer", "at the end") == (
        RACED,
        {"racer": 2, "slow": 1, "quick": 1, "later": 1},
    )


@pytest.mark.parametrize("point", ["slow cleans up", "heard quick"])
def test_a_loser_is_not_asked_again_once_the_winner_is_in_the_journal(tmp_path: Path, point: str) -> None:
    """Decision 4, C5: killed before the loser was gone, or before it was even told to stop."""
    assert killed_and_restarted(tmp_path, "racer", point) == (RACED, {"racer": 2, "slow": 1, "quick": 1, "later": 1})


def test_without_a_winner_those_that_may_be_are_asked_again(tmp_path: Path) -> None:
    """Decision 4: what cannot be known is said so, and no answer."""
    outcome, executed = killed_and_restarted(tmp_path, "collector", "heard left")
    # Whom the first life did not have is asked in the second, for no answer had been made without it.
    assert outcome == ["nobody\n\nleft\n\ndawdler", ["ok", "ok", "ok"], []]
    assert executed == {"collector": 2, "nobody": 1, "left": 1, "dawdler": 2}


def test_the_first_in_time_stays_the_first_after_the_restart(tmp_path: Path) -> None:
    """C5: two answered at once; the one that came first is the answer, though the other was asked first."""
    outcome, executed = killed_and_restarted(tmp_path, "photo-finish", "at the end")
    assert outcome == ["left", ["ok", "ok"], [], "later, after left"]
    assert executed == {"photo-finish": 2, "left": 1, "right": 1, "later": 1}


def test_a_refusal_that_was_part_of_an_answer_stays_one(tmp_path: Path) -> None:
    """Decision 4: what the agent saw then it sees now, though the team has got another agent meanwhile."""
    outcome, executed = killed_and_restarted(tmp_path, "collector", "at the end")
    assert outcome == ["left\n\ndawdler", ["AGENT_NOT_FOUND", "ok", "ok"], ["nobody"]]
    assert executed == {"collector": 2, "left": 1, "dawdler": 1}


def test_an_agent_that_takes_another_way_is_not_given_what_it_asked_for_before(tmp_path: Path) -> None:
    """Decision 4: a step that is not the one recorded is unknown, and nobody is asked in its place."""
    outcome, executed = killed_and_restarted(tmp_path, "turncoat", "at the end")
    assert outcome[0] == [None, [UNKNOWN, UNKNOWN], []]
    assert executed == {"turncoat": 2, "left": 1, "later": 1}


# ── the program ───────────────────────────────────────────────────────────────────────────────────────────────────────


async def live(folder: Path, agent: str, stop_at: str, number: str) -> None:
    """Ask once and print how it ended; say when *stop_at* is reached, and wait there for ever."""
    race = Race(folder, stop_at, number)
    wait_for_next = combining.ParallelCalls.next

    async def heard_of(self: combining.ParallelCalls) -> int:
        place = await wait_for_next(self)
        await race.reach(f"heard {self.responses[place].result}")
        return place

    combining.ParallelCalls.next = heard_of
    async with race.hub:
        response = await race.hub.ask(agent, "go", user="u", request_id="1")
        print(json.dumps(shown(response) if response.fault else response.result), flush=True)


if __name__ == "__main__":
    root_runs.LEASE_MS = LEASE_MS
    asyncio.run(live(Path(sys.argv[1]), *sys.argv[2:]))
