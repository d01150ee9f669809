"""Nothing leaves the hub before it is recorded: a hub is killed with -9 again and again, and has lost nothing.

Run as a program, this file makes the hubs: it starts a process for each life and says when that has died.
"""

import asyncio
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, Literal, NamedTuple

import pytest

from remit import Brief, Hub, Response
from remit.runtime import root_runs
from remit.stores.audit import verify_file

pytestmark = pytest.mark.processes

# Of hubs with each durability; more of them in `make test-kills`.
KILLS = int(os.environ.get("REMIT_KILLS", "8"))
# After how many answers a process is killed; the last is more than are asked for again, so that some are new.
ANSWERS = (1, 5, 20, 60)
AT_ONCE = 16
LEASE_MS = 200


class Life(NamedTuple):
    """What a hub does while it lives: it asks again what was acknowledged before, then new questions without end."""

    number: int
    again: list[str]
    new: bool


class Nursery:
    """Starts one hub after another on one file, and hears what each acknowledges."""

    def __init__(self, folder: Path, durability: str, program: str = __file__) -> None:
        self._process = subprocess.Popen(
            [sys.executable, program, str(folder), durability],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])},  # another program imports this one
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._stdin, self._stdout = self._process.stdin, self._process.stdout

    def start(self, life: Life) -> int:
        """Start a life and return its process id."""
        self._stdin.write(json.dumps(life) + "\n")
        self._stdin.flush()
        return int(self.hear()["pid"])

    def hear(self) -> dict[str, Any]:
        """Return what is said next; the test's own time limit bounds the wait."""
        return json.loads(self._stdout.readline())

    def end(self) -> None:
        self._stdin.close()
        self._process.wait()
        self._stdout.close()


@pytest.fixture(params=["process", "power"])
def durability(request: pytest.FixtureRequest) -> str:
    return request.param


def test_a_hub_that_is_killed_has_lost_no_answer_and_repeats_no_work(tmp_path: Path, durability: str) -> None:
    """Decisions 5 and 6: every acknowledged answer is there, nothing was executed twice, and the chain verifies."""
    chance = random.Random(durability)
    nursery = Nursery(tmp_path, durability)
    acknowledged: dict[str, object] = {}
    kills = 0
    try:
        while kills < KILLS:
            again = chance.sample(sorted(acknowledged), min(len(acknowledged), 20))
            pid = nursery.start(Life(kills, again, True))
            listen_then_kill(nursery, pid, acknowledged, chance, ANSWERS[kills % len(ANSWERS)])
            kills += 1
            assert verify_file(tmp_path / "hub.db").findings == ()
        nursery.start(Life(kills, sorted(acknowledged), False))
        confirmed = listen(nursery, acknowledged)
    finally:
        nursery.end()
    assert confirmed == acknowledged.keys()
    assert [name for name, count in executed(tmp_path).items() if count > 1] == []
    assert acknowledged.keys() <= executed(tmp_path).keys()
    assert verify_file(tmp_path / "hub.db").ok
    assert len(acknowledged) > 5 * kills


def test_what_was_not_acknowledged_was_executed_once_or_not_at_all_and_its_outcome_is_known_or_said_to_be_unknown(
    tmp_path: Path,
) -> None:
    """Decisions 4 and 6: who never got an answer may ask again, and causes no second execution."""
    nursery = Nursery(tmp_path, "process")
    acknowledged: dict[str, object] = {}
    killed: list[int] = []
    try:
        for number in range(3):
            killed.append(nursery.start(Life(number, [], True)))
            listen_then_kill(nursery, killed[-1], acknowledged, random.Random(number))
        begun = executed(tmp_path)
        lost = sorted(name for name in begun if "/" not in name and name not in acknowledged)
        nursery.start(Life(3, lost, False))
        listen(nursery, acknowledged)
    finally:
        nursery.end()
    assert lost, "no run was under way when its hub was killed"
    # An outcome may have been recorded and not yet said; then it is that of the hub that was killed.
    known = [f"done by {pid}" for pid in killed]
    outcomes = [str(acknowledged[name]) for name in lost]
    assert [each for each in outcomes if each != "OUTCOME_UNKNOWN" and each.split("'")[1] not in known] == []
    assert "OUTCOME_UNKNOWN" in outcomes
    assert [name for name, count in executed(tmp_path).items() if count > 1] == []


def listen_then_kill(
    nursery: Nursery, pid: int, acknowledged: dict[str, object], chance: random.Random, answers: int = 0
) -> None:
    """Kill the process after some answers, a random number if none is given, and hear what it said until it died."""
    answers = answers or chance.choice(ANSWERS)
    while answers:
        answers -= take(nursery.hear(), acknowledged)
    time.sleep(chance.random() * 0.005)  # not to wait for anything, but to hit any point between two answers
    os.kill(pid, signal.SIGKILL)
    listen(nursery, acknowledged)


def listen(nursery: Nursery, acknowledged: dict[str, object]) -> set[str]:
    """Hear everything until the process has ended; return which requests were answered."""
    answered: set[str] = set()
    while "dead" not in (message := nursery.hear()):
        take(message, acknowledged)
        answered.add(message["id"])
    return answered


def take(message: dict[str, Any], acknowledged: dict[str, object]) -> Literal[1]:
    """Note an answer, and see that it is the one that was given before."""
    assert acknowledged.setdefault(message["id"], message["answer"]) == message["answer"]
    return 1


def executed(folder: Path) -> Counter[str]:
    return Counter((folder / "executed.log").read_text().split())


# ── the program ───────────────────────────────────────────────────────────────────────────────────────────────────────


def say(**words: object) -> None:
    # One write, so that a line is said whole or not at all.
    os.write(1, json.dumps(words).encode() + b"\n")


def a_hub(folder: Path, durability: Literal["power", "process"]) -> Hub:
    """A hub whose agents leave a line each time they are executed, and answer with who executed them."""
    hub = Hub(store=folder / "hub.db", durability=durability)
    log = os.open(folder / "executed.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    @hub.tool()
    async def pay(id: str) -> str:
        os.write(log, f"{id}/paid\n".encode())
        return f"paid by {os.getpid()}"

    @hub.agent("helper", tools=["pay"])
    async def helper(brief: Brief) -> str:
        os.write(log, f"{brief.text}/helped\n".encode())
        await (asyncio.Event().wait() if brief.text.endswith("without-end") else asyncio.sleep(0))
        return await brief.use("pay", id=brief.text) if brief.text.endswith("0") else f"helped by {os.getpid()}"

    @hub.agent("boss", may_call=["helper"])
    async def boss(brief: Brief) -> list[object]:
        os.write(log, f"{brief.text}\n".encode())
        helped = await brief.delegate("helper", objective=brief.text)
        return [f"done by {os.getpid()}", helped.result]

    return hub


def answer_of(response: Response) -> object:
    return response.fault.code if response.fault else response.result


async def live(hub: Hub, life: Life) -> None:
    async def ask(id: str) -> None:
        say(id=id, answer=answer_of(await hub.ask("boss", id, user="u", request_id=id)))

    async def ask_without_end(place: int) -> None:
        for number in range(10_000):
            await ask(f"{life.number}-{place}-{number}")

    async with hub:
        async with asyncio.TaskGroup() as group:
            for id in life.again:
                group.create_task(ask(id))
        if life.new:
            async with asyncio.TaskGroup() as group:
                group.create_task(ask(f"{life.number}-without-end"))  # so that one is under way, whenever the end comes
                for place in range(AT_ONCE):
                    group.create_task(ask_without_end(place))


def main(living: Callable[[Path, Literal["power", "process"], Life], Coroutine[Any, Any, None]]) -> None:
    """Live in a process of its own for each line, and say when that has died."""
    folder, durability = Path(sys.argv[1]), sys.argv[2]
    root_runs.LEASE_MS = LEASE_MS
    for line in sys.stdin:
        pid = os.fork()
        if pid == 0:
            say(pid=os.getpid())
            asyncio.run(living(folder, "power" if durability == "power" else "process", Life(*json.loads(line))))
            os._exit(0)
        os.waitpid(pid, 0)
        say(dead=pid)


if __name__ == "__main__":
    main(lambda folder, durability, life: live(a_hub(folder, durability), life))
