"""`remit serve` beside a flood of one user: whose turn it is, and who may be urgent."""

import asyncio
import os
import re
import threading
from collections.abc import Callable, Generator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

import nats_server
from commands import REMIT, popen
from remit import Brief, Hub
from remit.policy.shares import ShareOwner
from remit.runtime.aside import Aside, aside, current_share
from remit_testing.memory import MemoryStore
from serve_command import ServedTeam, serving
from waiting import PATIENCE_S, wait_until

QUEUE = 12
TEAM = f"""
version = 1

[agents.clerk]
run = "office:clerk"
concurrency = 1
queue = {QUEUE}

[clients.web]
token = "$WEB"
agents = ["*"]
users = ["*"]

[clients.app]
token = "$APP"
agents = ["*"]
users = ["*"]
permissions = ["metrics", "priority"]
"""

# The ledger is written by the agent itself, so that it does not depend on what the hub says of the order.
OFFICE = '''
import asyncio, os
from remit import Brief

def note(name: str) -> None:
    with open("ledger", "a") as ledger:
        ledger.write(name + "\\n")
        os.fsync(ledger.fileno())

def wait() -> None:
    open("gate").close()  # until somebody opens it for writing

async def clerk(brief: Brief) -> str:
    """Notes whom it served."""
    note(brief.objective)
    if brief.objective == "hold":
        await asyncio.to_thread(wait)
    return "done"
'''

WEB, APP = "web-token-that-is-long-enough", "app-token-that-is-long-enough"


class Office:
    """A served clerk who is busy until `open` is called, and all the requests sent to it."""

    def __init__(self, team: ServedTeam, *, elsewhere: bool) -> None:
        self.team = team
        self._elsewhere = elsewhere
        self._threads: list[threading.Thread] = []
        self.replies: dict[str, tuple[int, Any]] = {}

    def send(self, name: str, user: str, token: str = WEB, **more: str) -> None:
        def ask() -> None:
            body = {"target": "clerk", "user": user, "objective": name, **more}
            self.replies[name] = self.team.get("/v1/delegations", body, token=token)

        thread = threading.Thread(target=ask)
        thread.start()
        self._threads.append(thread)

    def queued(self) -> int:
        _, page = self.team.send("/metrics", token=APP)
        found = re.search(r'remit_queued\{agent="clerk"\} (\d+)', page)
        return 0 if found is None else int(found[1])

    def busy(self, queued: int) -> None:
        # The first one in the queue of another hub does not wait here any more.
        wait_until(lambda: self.queued() + self._elsewhere == queued, f"a queue of {queued}")

    def served(self) -> list[str]:
        """Let the clerk work, and return whom it served, in order."""
        descriptor = os.open("gate", os.O_WRONLY)
        os.close(descriptor)
        for thread in self._threads:
            thread.join(PATIENCE_S)
        return Path("ledger").read_text().splitlines()[1:]


@pytest.fixture
def office(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Generator[Office]:
    """The clerk works at the hub that is asked, or at one that the bus reaches."""
    elsewhere = getattr(request, "param", "here") == "elsewhere"
    monkeypatch.chdir(tmp_path)
    bus = f'[bus]\nurl = "{nats_server.shared_server().url}"\nhosts = []\n' if elsewhere else ""
    Path("remit.toml").write_text(f'name = "{nats_server.team_name()}"\n{TEAM}{bus}')
    Path("office.py").write_text(OFFICE)
    os.mkfifo("gate")
    tokens = {"WEB": WEB, "APP": APP}
    with ExitStack() as stack:
        if elsewhere:
            log = stack.enter_context(Path("worker.log").open("w"))
            worker = stack.enter_context(popen([REMIT, "worker", "clerk"], stderr=log, env=os.environ | tokens))
            stack.callback(worker.kill)
            wait_until(lambda: "Hosting" in Path("worker.log").read_text(), "the worker")
        office = Office(stack.enter_context(serving(**tokens)), elsewhere=elsewhere)
        office.send("hold", "flood")
        wait_until(lambda: Path("ledger").exists(), "the first request")
        yield office


@pytest.mark.parametrize("office", ["here", "elsewhere"], indirect=True)
def test_beside_a_flood_of_one_user_the_others_wait_at_most_three_turns(office: Office) -> None:
    for number in range(QUEUE):
        office.send(f"flood {number}", "flood")
    office.busy(QUEUE)
    # The queue is full of one user's requests: those who have less there still find a place.
    office.send("anna", "anna")
    wait_until(lambda: len(office.replies) == 1, "the refusal of one of the flood")
    office.send("ben", "ben", APP)
    wait_until(lambda: len(office.replies) == 2, "the refusal of another of the flood")
    refused = dict(office.replies)
    order = office.served()
    assert [(status, reply["fault"]["code"]) for status, reply in refused.values()] == [(503, "OVERLOADED")] * 2
    assert {name: reply for name, (status, reply) in office.replies.items() if status != 200}.keys() == refused.keys()
    assert (order.index("anna") <= 3, order.index("ben") <= 3, len(order)) == (True, True, QUEUE), order


def test_only_a_client_with_the_permission_is_urgent(office: Office) -> None:
    office.send("first", "anna")
    office.busy(1)
    office.send("pushes in", "anna", WEB, priority="HIGH")
    office.busy(2)
    office.send("urgent", "ben", APP, priority="HIGH")
    office.busy(3)
    assert office.served() == ["urgent", "first", "pushes in"]
    assert [warning for _, reply in office.replies.values() for warning in reply.get("warnings", ())] == [
        "The priority HIGH was lowered to NORMAL: web lacks the permission `priority` in the team file."
    ]


async def test_a_body_of_an_unknown_user_waits_for_one_examination_and_not_for_one_per_body_before_it() -> None:
    """Until a body is decoded, its user is not known: those of one client wait in one line."""
    time_ms, order, gate = [0.0], list[str](), threading.Event()
    thread = Aside(lambda: time_ms[0])

    def work(name: str, takes_ms: float) -> None:
        order.append(name)
        time_ms[0] += takes_ms

    async def step(share: ShareOwner, name: str, takes_ms: float) -> None:
        current_share.set(share)
        await thread.run(work, name, takes_ms)

    async with asyncio.timeout(PATIENCE_S), asyncio.TaskGroup() as group:
        group.create_task(thread.run(gate.wait, PATIENCE_S))
        for _ in range(9):
            group.create_task(step(ShareOwner("web", "flood"), "examine flood", 300.0))
            group.create_task(step(ShareOwner("web"), "decode flood", 1.0))
        group.create_task(step(ShareOwner("web"), "decode anna", 1.0))
        while thread.waiting < 20:
            await asyncio.sleep(0)
        gate.set()
    assert order[: order.index("decode anna")].count("examine flood") == 1


@pytest.mark.parametrize("given", ["long " * 4_000, ["long " * 1_000] * 4])
async def test_a_large_request_waits_for_the_thread_only_to_be_examined(
    monkeypatch: pytest.MonkeyPatch, given: str | list[str]
) -> None:
    """Each further wait would last as long as the examination of another user's request."""
    steps: list[str] = []

    async def run(work: Callable[..., Any], *args: Any) -> Any:
        steps.append(work.__name__)
        return await asyncio.to_thread(work, *args)

    async def clerk(_: Brief) -> str:
        """Reads."""
        return "done"

    monkeypatch.setattr(aside, "run", run)
    async with Hub(store=MemoryStore()) as hub:
        hub.agent("clerk")(clerk)
        response = await hub.ask("clerk", "Read.", user="anna", input=given)
    assert (response.result, steps) == ("done", ["look"])


async def test_the_thread_for_long_work_serves_each_client_and_user_in_turn() -> None:
    gate, order = threading.Event(), list[str]()

    async def long_work(share: ShareOwner, name: str) -> None:
        current_share.set(share)
        await aside.run(order.append, name)

    async with asyncio.timeout(PATIENCE_S), asyncio.TaskGroup() as group:
        held = group.create_task(aside.run(gate.wait, PATIENCE_S))
        for number in range(10):
            group.create_task(long_work(ShareOwner("web", "flood"), f"flood {number}"))
        group.create_task(long_work(ShareOwner("web", "anna"), "anna"))
        group.create_task(long_work(ShareOwner("app", "ben"), "ben"))
        while aside.load.held < 13:
            await asyncio.sleep(0)
        gate.set()
        assert await held
    assert (order.index("anna") < 3, order.index("ben") < 3, len(order)) == (True, True, 12)
