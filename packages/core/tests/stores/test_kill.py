"""A process may be killed at any moment: what it acknowledged is there, nothing is executed twice, the chain holds."""

import asyncio
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from remit.ports import DuplicateRequest
from remit.protocol.envelope import Request
from remit.stores.sqlite import Durability, SqliteStore, verify_file
from remit_testing.samples import LONG_MS, a_question, a_request, a_response
from stores.victim import decision, edited, secrets

pytestmark = pytest.mark.processes

VICTIM = Path(__file__).with_name("victim.py")

# A fresh file after so many kills, so that looking at all of it stays quick.
KILLS = 25
# `make test-kills` kills as often as people were promised; every run of the tests, a part of that.
FILES = 5 if "REMIT_KILLS" in os.environ else 1

# More than a victim can do before it is killed.
PLENTY = 100_000


class Victims:
    """Starts one process after another on the same file and kills each."""

    def __init__(self, path: Path, durability: Durability, chance: random.Random) -> None:
        self._path = path
        self._durability = durability
        self._chance = chance
        self._again: list[str] = []
        self._nursery = subprocess.Popen(
            [sys.executable, str(VICTIM)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.executions: Counter[str] = Counter()
        self.answers: dict[str, int] = {}
        self.asking: defaultdict[str, set[str]] = defaultdict(set)
        """Which steps of waiting for a person were acknowledged, by name."""

    def kill_one(self) -> None:
        """Let a process work, kill it, and note what it has told until then."""
        assert self._nursery.stdin
        seed = self._chance.randrange(10**9)
        task = {
            "path": str(self._path),
            "durability": self._durability,
            "seed": seed,
            "again": self._again,
            "new": PLENTY,
        }
        self._nursery.stdin.write(json.dumps(task) + "\n")
        self._nursery.stdin.flush()
        pid = int(self._listen_for("pid"))
        # Some die while they open the file, some in their first commit, some under full load.
        for _ in range(self._chance.choice([0, 0, 1, 20, 60])):
            self._listen()
        time.sleep(self._chance.random() * 0.02)
        os.kill(pid, signal.SIGKILL)
        self._listen_for("gone")
        # The next one asks again for all that this one can have begun, and for some that it answered.
        begun = [int(name.split("-")[1]) for name in self.executions if name.startswith(f"{seed}-")]
        self._again = [f"{seed}-{number}" for number in range(max(begun, default=0) + 40)]

    def _listen(self) -> list[str]:
        assert self._nursery.stdout
        words: list[str] = self._nursery.stdout.readline().split()
        match words:
            case ["executing", name]:
                self.executions[name] += 1
            case ["answered", name, times]:
                self.answers[name] = int(times)
            case [("waiting" | "decided" | "begun") as step, name]:
                self.asking[name].add(step)
            case []:
                raise AssertionError("the victims' parent died")
            case _:
                pass
        return words

    def _listen_for(self, event: str) -> str:
        while (words := self._listen())[0] != event:
            pass
        return words[-1]

    def close(self) -> None:
        assert self._nursery.stdin
        self._nursery.stdin.close()
        self._nursery.wait()
        if self._nursery.stdout:
            self._nursery.stdout.close()


@pytest.fixture
def chance() -> random.Random:
    seed = int(os.environ.get("REMIT_SEED") or random.randrange(10**9))
    print(f"REMIT_SEED={seed}")
    return random.Random(seed)


@pytest.fixture
def victims(tmp_path: Path, durability: Durability, chance: random.Random) -> Generator[Victims]:
    victims = Victims(tmp_path / "hub.db", durability, chance)
    yield victims
    victims.close()


@pytest.mark.parametrize("durability", ["power", "process"])
@pytest.mark.parametrize("file", range(FILES))
async def test_a_killed_process_takes_nothing_back(tmp_path: Path, victims: Victims, file: int) -> None:
    """K13, X13: every acknowledged answer and its record survive; no request is executed twice."""
    checked: set[str] = set()
    for _ in range(KILLS):
        victims.kill_one()
        assert [name for name, times in victims.executions.items() if times > 1] == []
        new = victims.answers.keys() - checked
        await check_answers(tmp_path / "hub.db", {name: victims.answers[name] for name in new})
        checked |= new
    await check_answers(tmp_path / "hub.db", victims.answers)
    assert victims.answers


@pytest.mark.parametrize("durability", ["power", "process"])
@pytest.mark.parametrize("file", range(FILES))
async def test_a_killed_process_forgets_no_question_no_answer_and_no_secret(
    tmp_path: Path, victims: Victims, file: int
) -> None:
    """K13: whoever takes up the run finds what it waited for, what was said, and what its tokens stand for."""
    for kills in range(1, KILLS + 1):
        if kills > KILLS // FILES and victims.asking:
            break  # some of those that are killed early have told nothing yet
        victims.kill_one()
        async with opened(tmp_path / "hub.db") as store:
            for name, steps in victims.asking.items():
                await check_asking(store, name, steps)
    assert victims.asking


async def check_asking(store: SqliteStore, name: str, steps: set[str]) -> None:
    request, question = a_request(name), a_question(name, run=name)
    (run,) = [run for run in await store.runs(run=request.run, limit=1_000) if run.run == request.run]
    assert sorted(await store.unseal(run.run)) == secrets(name)
    # It is there, for one that is not would be put there in this form.
    assert await store.put(a_question(name, run=name, text="Another?")) == question
    if "decided" in steps:
        assert await store.decision(question.id) == decision(name)
    else:
        assert await store.decision(question.id) in (None, decision(name))
    if "begun" in steps:
        assert (run.state in ("running", "finished"), run.objective) == (True, edited(request).objective)
    else:
        assert run.objective in (request.objective, edited(request).objective)


async def check_answer(store: SqliteStore, request: Request, result: str) -> None:
    known = await store.submit(request, b"digest", worker="w", lease_ms=LONG_MS)
    assert known == DuplicateRequest(request.run, True, a_response(request, result))


@asynccontextmanager
async def opened(path: Path) -> AsyncGenerator[SqliteStore]:
    store = SqliteStore(path)
    await store.open()
    try:
        yield store
    finally:
        await store.close()


async def check_answers(path: Path, answers: dict[str, int]) -> None:
    async with opened(path) as store, asyncio.TaskGroup() as group:
        for name, times in answers.items():
            group.create_task(check_answer(store, a_request(name), name * times))
    verdict = verify_file(path)
    assert verdict.ok, verdict
