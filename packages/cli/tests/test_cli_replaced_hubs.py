"""Hubs of one team that die or stand still: `remit worker` processes on PostgreSQL and NATS.

What was charged is read from a file that the callee appends to, and not from what the team says of itself.
"""

import json
import os
import signal
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import nats_server
import postgres_server
from command_line import environment, remit
from commands import REMIT, popen
from waiting import PATIENCE_S, wait_until

TEAM = """
name = "{name}"

[store]
url = "postgresql://{user}@127.0.0.1:{port}/{database}"
password = "$DATABASE_PASSWORD"

[bus]
url = "{bus}"
hosts = []
presence = "2s"

[agents.boss]
run = "{module}:boss"
may_call = ["till"]
resumable = true

[agents.till]
run = "{module}:till"
concurrency = 8
"""

CODE = """
import asyncio
import os
from pathlib import Path

from remit import Answer, Brief, Call, Usage
from remit.runtime import root_runs

root_runs.LEASE_MS = 3_000  # a hub that stands still is replaced sooner
HERE = Path(__file__).parent


async def boss(brief: Brief) -> dict:
    if brief.text == "later":
        with (HERE / "bosses").open("a") as bosses:
            bosses.write(f"{os.getpid()}\\n")
        while not (HERE / "start").exists():
            await asyncio.sleep(0.02)
    if brief.text == "once":
        answers = [await brief.delegate("till", objective="charge", max_tokens=200)]
    elif brief.text == "all":
        calls = [Call(target="till", objective=text, max_tokens=1_000) for text in ("at once", "refused")]
        answers = await brief.fan_out(calls)
        answers.append(await brief.delegate("till", objective="rest", max_tokens=brief.tokens_left()))
    else:
        calls = [Call(target="till", objective=f"charge {number}", max_tokens=100) for number in range(3)]
        answers = await brief.fan_out(calls)
    told = [f"{each.status} {each.fault.code if each.fault else ''}".strip() for each in answers]
    return {"parts": told, "left": brief.tokens_left(), "pid": os.getpid()}


async def till(brief: Brief) -> Answer:
    with (HERE / "charges").open("a") as charges:
        charges.write(f"{brief.text} {os.getpid()}\\n")
        charges.flush()
        os.fsync(charges.fileno())
    while brief.text != "at once" and not (HERE / "go").exists():
        await asyncio.sleep(0.02)
    return Answer("charged", usage=Usage(prompt=900 if brief.text == "rest" else 100))
"""


class Cluster:
    """The hubs of one team, each a process of its own, and the ledger of its charges."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._processes: list[subprocess.Popen[str]] = []

    def worker(self, *agents: str) -> "subprocess.Popen[str]":
        """Start a worker, and return once it hosts its agents."""
        process = self._start("worker", *agents)
        assert process.stderr is not None
        stderr = process.stderr.readline()
        assert stderr.startswith("Hosting "), stderr
        return process

    def run(self, text: str, *options: str) -> "subprocess.Popen[str]":
        """Ask boss in a process that hosts nothing."""
        return self._start("run", "boss", text, "--json", *options)

    def begin_later(self) -> "subprocess.Popen[str]":
        """Ask boss, and return once it has begun; on a busy machine its hub may say too late that it hosts it."""
        while True:
            process = self.run("later", "--budget", "1000")
            wait_until(lambda process=process: self.bosses() or process.poll() is not None, "the begin of boss")
            if self.bosses():
                return process

    def _start(self, *words: str) -> "subprocess.Popen[str]":
        process = popen(
            [REMIT, *words],
            cwd=self.folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment(DATABASE_PASSWORD=postgres_server.PASSWORD),
        )
        self._processes.append(process)
        return process

    def printed(self, *words: str) -> str:
        """What a command prints."""
        done = remit(*words, folder=self.folder, DATABASE_PASSWORD=postgres_server.PASSWORD)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def runs(self) -> list[dict[str, Any]]:
        """The runs of the team, newest first."""
        return json.loads(self.printed("runs", "list", "--json"))["runs"]

    def charges(self) -> list[str]:
        """The charges so far, each with the process that made it."""
        file = self.folder / "charges"
        return file.read_text().splitlines() if file.exists() else []

    def wait_for_charges(self, count: int) -> None:
        wait_until(lambda: len(self.charges()) >= count, f"charge {count}")

    def bosses(self) -> list[str]:
        """The processes in which boss began, if it was asked to begin later."""
        file = self.folder / "bosses"
        return file.read_text().split() if file.exists() else []

    def go(self) -> None:
        (self.folder / "go").touch()

    def close(self) -> None:
        for process in self._processes:
            with suppress(ProcessLookupError):
                process.kill()
            process.communicate()


@pytest.fixture
async def cluster(tmp_path: Path) -> Any:
    server, name = postgres_server.shared_server(), nats_server.team_name()
    database = (await server.database()).rpartition("/")[2]
    module = f"replaced_{os.getpid()}_{name}"
    team = TEAM.format(
        name=f"replaced-{os.getpid()}-{name}",
        user=postgres_server.USER,
        port=server.port,
        database=database,
        bus=nats_server.shared_server().url,
        module=module,
    )
    (tmp_path / "remit.toml").write_text(team)
    (tmp_path / f"{module}.py").write_text(CODE)
    cluster = Cluster(tmp_path)
    yield cluster
    cluster.close()


def answer_of(process: "subprocess.Popen[str]") -> dict[str, Any]:
    out, err = process.communicate(timeout=PATIENCE_S)
    assert out, err
    return json.loads(out)


def test_a_charge_that_a_killed_hub_was_making_for_its_own_boss_is_not_made_again(cluster: Cluster) -> None:
    both = cluster.worker("boss", "till")
    process = cluster.run("once", "--budget", "1000")
    cluster.wait_for_charges(1)
    cluster.worker("boss")
    cluster.worker("till")
    both.kill()
    cluster.go()
    answer = answer_of(process)
    assert cluster.charges() == [f"charge {both.pid}"]
    # Nobody knows what it spent, so that its whole grant is gone.
    assert (answer["result"]["parts"], answer["result"]["left"]) == (["failed OUTCOME_UNKNOWN"], 800)


def test_charges_of_a_killed_hub_have_failed_and_keep_their_whole_grants(cluster: Cluster) -> None:
    cluster.worker("boss")
    till = cluster.worker("till")
    process = cluster.run("three", "--budget", "1000")
    cluster.wait_for_charges(3)
    till.kill()
    cluster.worker("till")
    answer = answer_of(process)["result"]
    assert (answer["parts"], answer["left"]) == (["failed OUTCOME_UNKNOWN"] * 3, 700)
    assert len(cluster.charges()) == 3


def test_a_boss_that_goes_on_where_its_till_is_hosted_gets_what_came_of_the_charges_elsewhere(cluster: Cluster) -> None:
    boss = cluster.worker("boss")
    till = cluster.worker("till")
    process = cluster.run("three", "--budget", "1000")
    cluster.wait_for_charges(3)
    both = cluster.worker("boss", "till")
    boss.kill()
    cluster.go()
    answer = answer_of(process)["result"]
    assert answer == {"parts": ["success"] * 3, "left": 700, "pid": both.pid}
    assert {each.rpartition(" ")[2] for each in cluster.charges()} == {str(till.pid)}
    assert len(cluster.charges()) == 3


@pytest.mark.parametrize("apart", [True, False])
def test_a_resumed_boss_grants_nobody_else_what_its_charges_were_granted(cluster: Cluster, apart: bool) -> None:
    """A call that was refused before, because nothing was left, is made again before the one that got the rest."""
    boss = cluster.worker("boss", *(() if apart else ("till",)))
    till = cluster.worker("till") if apart else boss
    process = cluster.run("all", "--budget", "1000")
    cluster.wait_for_charges(2)
    both = cluster.worker("boss", "till")
    boss.kill()
    cluster.go()
    parts = ["success", "refused TOKEN_BUDGET_EXCEEDED", "success" if apart else "failed OUTCOME_UNKNOWN"]
    assert answer_of(process)["result"] == {"parts": parts, "left": 0, "pid": both.pid}
    assert cluster.charges() == [f"at once {till.pid}", f"rest {till.pid}"]


def test_a_run_whose_hub_was_killed_gets_its_answer_though_every_hub_left_hosts_its_agent(cluster: Cluster) -> None:
    cluster.worker("boss", "till")
    process = cluster.run("once")
    cluster.wait_for_charges(1)
    process.kill()
    cluster.go()
    listed = wait_until(lambda: [each for each in cluster.runs() if not each["via"] and each["state"] == "finished"])
    assert [each["status"] for each in listed] == ["success"]
    assert len(cluster.charges()) == 1


def test_a_hub_that_stood_still_and_was_replaced_writes_nothing_more_and_says_so_once(cluster: Cluster) -> None:
    cluster.worker("till")
    stopped = cluster.worker("boss")
    process = cluster.begin_later()
    stopped.send_signal(signal.SIGSTOP)
    second = cluster.worker("boss")
    wait_until(lambda: cluster.bosses()[-1] == str(second.pid), "the begin of the second boss")
    (cluster.folder / "start").touch()
    cluster.go()
    assert answer_of(process)["result"] == {"parts": ["success"] * 3, "left": 700, "pid": second.pid}
    (run,) = [each["run"] for each in cluster.runs() if each["agent"] == "boss" and each["via"]]
    shown, recorded = cluster.printed("runs", "show", run, "--json"), cluster.printed("audit", "export")
    stopped.send_signal(signal.SIGCONT)
    stopped.send_signal(signal.SIGTERM)
    _, log = stopped.communicate(timeout=PATIENCE_S)
    assert cluster.printed("runs", "show", run, "--json") == shown
    assert cluster.printed("audit", "export") == recorded
    assert len(cluster.charges()) == 3
    (warning,) = [line for line in log.splitlines() if "taken over by another hub" in line]
    assert run in warning
