"""Hubs of one team in several processes: workers that die, stand still and are replaced, and NATS that forgets."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

import bus_worker
from bus_worker import CARDS, LEASE_MS, LONG_LEASE_MS, PRESENCE_S
from commands import popen
from nats_server import NatsServer, shared_server, team_name
from programs import with_tests_on_path
from remit import Brief, Code, Hub, Response, Status
from remit.protocol.records import Kind, Notice, Record
from remit.runtime import root_runs
from remit.stores.sqlite import SqliteStore
from remit_cluster.nats import presence, takeover
from remit_cluster.nats.bus import join_bus
from remit_cluster.nats.connection import BusSettings
from waiting import PATIENCE_S, eventually


class Workers:
    """The worker processes of a test."""

    def __init__(self, url: str, team: str, folder: Path) -> None:
        self._arguments = [url, team, str(folder)]
        self._started: list[subprocess.Popen[bytes]] = []

    async def start(
        self, version: str = "1.0", *agents: str, ask: str = "", lease_ms: int = LEASE_MS
    ) -> subprocess.Popen[bytes]:
        command = [sys.executable, bus_worker.__file__, *self._arguments, version, *agents]
        options = {"ASK": ask, "BUS_LEASE_MS": str(lease_ms)}
        worker = popen(command, stdout=subprocess.PIPE, env={**with_tests_on_path(), **options})
        self._started.append(worker)
        assert worker.stdout is not None
        assert await asyncio.to_thread(worker.stdout.readline) == b"ready\n"
        return worker

    def close(self) -> None:
        for worker in self._started:
            worker.kill()
            worker.wait()
            assert worker.stdout is not None
            worker.stdout.close()


class Team:
    """A caller's hub in this process, with its workers, its folder and its server."""

    def __init__(self, folder: Path, server: NatsServer) -> None:
        self.folder = folder
        self.name = team_name()
        self.server = server
        self.workers = Workers(server.url, self.name, folder)
        self.hub = Hub(name=self.name, store=folder / "hub.db", durability="process", approver="inbox")
        self.bus = join_bus(
            self.hub,
            BusSettings(url=server.url, presence_s=PRESENCE_S, patience_s=PATIENCE_S),
            name=self.name,
            hosts=(),
            calls=CARDS,
        )

    def ask(self, agent: str, text: str, **options: Any) -> "asyncio.Task[Response]":
        return asyncio.create_task(self.hub.ask(agent, text, user="anna", **options))

    def began(self) -> list[str]:
        """The requests whose code was called, each with the process that did."""
        file = self.folder / "began"
        return file.read_text(encoding="utf-8").splitlines() if file.exists() else []

    async def wait_until_began(self, count: int) -> list[str]:
        return await eventually(self.began, when=lambda began: len(began) >= count)

    def go(self) -> None:
        (self.folder / "go").touch()

    async def results(self) -> list[Record]:
        records = await self.hub.store.records()
        return [record for record in records if record.kind is Kind.RESULT and isinstance(record.body, Response)]


@pytest.fixture
def own_server() -> Generator[NatsServer]:
    server = NatsServer().start()
    yield server
    server.close()


@asynccontextmanager
async def opened(folder: Path, server: NatsServer | None = None) -> AsyncGenerator[Team]:
    team = Team(folder, server or shared_server())
    try:
        async with team.hub, asyncio.timeout(PATIENCE_S):
            yield team
    finally:
        team.workers.close()


@pytest.fixture(autouse=True)
def _short_leases(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(root_runs, "LEASE_MS", LEASE_MS)
    # On a busy machine it may take longer than that to take up what a dead host left behind.
    monkeypatch.setattr(presence, "FORGET", 3_000)


@pytest.fixture
def long_leases(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leases that do not end while their worker lives, however busy the machine is."""
    monkeypatch.setattr(root_runs, "LEASE_MS", LONG_LEASE_MS)
    monkeypatch.setenv("BUS_LEASE_MS", str(LONG_LEASE_MS))


def code_of(response: Response) -> Code | None:
    return response.fault and response.fault.code


async def test_after_kill_9_a_resumable_agent_goes_on_elsewhere_and_any_other_ends_as_unknown(tmp_path: Path) -> None:
    async with opened(tmp_path) as team:
        first = await team.workers.start()
        steady, slow = team.ask("steady", "a"), team.ask("slow", "b")
        await team.wait_until_began(2)
        second = await team.workers.start()
        first.kill()
        began = await team.wait_until_began(3)
        assert began[2] == f"a {second.pid}"
        team.go()
        assert (await steady).unwrap() == f"1.0 {second.pid}"
        assert code_of(await slow) is Code.OUTCOME_UNKNOWN
        assert len(team.began()) == 3


async def test_a_hub_that_is_killed_is_found_dead_before_its_lease_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    # Long enough for a busy machine; the hub still looks every second.
    lease_ms = 30_000
    monkeypatch.setattr(root_runs, "LEASE_MS", lease_ms)
    monkeypatch.setattr(takeover, "LOOKS", 30)
    async with opened(tmp_path) as team:
        worker = await team.workers.start(lease_ms=lease_ms)
        request = team.ask("steady", "a")
        await team.wait_until_began(1)
        worker.kill()
        # It is logged only if the lease still held.
        await eventually(lambda: [each for each in caplog.messages if "is gone: its runs are resumed" in each])
        second = await team.workers.start(lease_ms=lease_ms)
        began = await team.wait_until_began(2)
        assert began[1] == f"a {second.pid}"
        team.go()
        assert (await request).unwrap() == f"1.0 {second.pid}"


async def test_a_caller_that_is_killed_goes_on_elsewhere_with_the_outcome_of_its_callee(tmp_path: Path) -> None:
    async with opened(tmp_path) as team:
        callee = await team.workers.start("1.0", "slow")
        caller = await team.workers.start("1.0", "nested")
        request = team.ask("nested", "a")
        await team.wait_until_began(1)
        caller.kill()
        await team.workers.start("1.0", "nested")
        (run,) = [each.run for each in await team.hub.store.runs() if each.agent == "nested" and each.via]
        await eventually(lambda: _is_resumed(team, run))
        team.go()
        assert (await request).unwrap() == f"1.0 {callee.pid}"
        assert team.began() == [f"a {callee.pid}"]


async def test_a_callee_that_began_in_the_process_of_its_caller_is_not_executed_again_elsewhere(tmp_path: Path) -> None:
    async with opened(tmp_path) as team:
        both = await team.workers.start("1.0", "nested", "slow")
        request = team.ask("nested", "a")
        await team.wait_until_began(1)
        await team.workers.start("1.0", "slow")
        await team.workers.start("1.0", "nested")
        both.kill()
        team.go()
        assert code_of(await request) is Code.OUTCOME_UNKNOWN
        assert team.began() == [f"a {both.pid}"]


async def test_what_a_killed_host_was_asked_directly_is_not_executed_again_over_the_bus(tmp_path: Path) -> None:
    async with opened(tmp_path) as team:
        host = await team.workers.start("1.0", "slow", ask="slow")
        await team.wait_until_began(1)
        host.kill()
        assert code_of(await team.ask("slow", "a", request_id="asked")) is Code.OUTCOME_UNKNOWN
        assert team.began() == [f"a {host.pid}"]


async def test_the_cards_of_a_killed_host_count_until_they_are_forgotten(tmp_path: Path) -> None:
    async with opened(tmp_path) as team:
        host = await team.workers.start("1.0", "slow")
        host.kill()
        await asyncio.sleep(PRESENCE_S * 1.5)  # its last heartbeat is gone, and its cards are not
        slow = team.bus.agent("slow")
        for _ in range(3):
            assert await slow.is_resumable(0) is False
            await asyncio.sleep(PRESENCE_S / presence.BEATS)


async def test_a_run_that_began_at_a_killed_host_is_resumed_by_a_host_with_its_journal(tmp_path: Path) -> None:
    async with opened(tmp_path) as team:
        callee = await team.workers.start("1.0", "slow")
        host = await team.workers.start("1.0", "nested", ask="nested")
        await team.wait_until_began(1)
        host.kill()
        request = team.ask("nested", "a", request_id="asked")
        await asyncio.sleep(LEASE_MS / 1_000)  # the hub of this test, which hosts nothing, may take it up now
        await team.workers.start("1.0", "nested")
        team.go()
        assert (await request).unwrap() == f"1.0 {callee.pid}"
        assert team.began() == [f"a {callee.pid}"]


async def test_what_a_killed_gateway_was_asked_is_answered_by_another(tmp_path: Path) -> None:
    async with opened(tmp_path) as team:
        host = await team.workers.start("1.0", "slow")
        gateway = await team.workers.start("1.0", "steady", ask="slow")
        await team.wait_until_began(1)
        gateway.kill()
        request = team.ask("slow", "a", request_id="asked")
        (run,) = [each.run for each in await team.hub.store.runs() if not each.via]
        await eventually(lambda: _is_resumed(team, run))
        team.go()
        assert (await request).unwrap() == f"1.0 {host.pid}"
        assert team.began() == [f"a {host.pid}"]


async def _is_resumed(team: Team, run: str) -> bool:
    bodies = [record.body for record in await team.hub.store.records(run=run)]
    return any(isinstance(body, Notice) and "resumed" in body.text for body in bodies)


async def test_a_worker_that_wakes_up_after_its_lease_cannot_write(tmp_path: Path) -> None:
    async with opened(tmp_path) as team:
        first = await team.workers.start()
        steady = team.ask("steady", "a")
        await team.wait_until_began(1)
        os.kill(first.pid, signal.SIGSTOP)
        second = await team.workers.start()
        await team.wait_until_began(2)
        team.go()
        assert (await steady).unwrap() == f"1.0 {second.pid}"
        before = await team.results()
        os.kill(first.pid, signal.SIGCONT)
        first.terminate()
        await asyncio.to_thread(first.wait)
        assert await team.results() == before
        assert isinstance(team.hub.store, SqliteStore)
        assert (await team.hub.store.verify()).ok


@pytest.mark.usefixtures("long_leases")
async def test_what_was_accepted_finishes_once_though_nats_dies_and_forgets(
    tmp_path: Path, own_server: NatsServer
) -> None:
    async with opened(tmp_path, own_server) as team:
        workers = [await team.workers.start() for _ in range(2)]
        requests = [team.ask("slow", str(number)) for number in range(12)]
        await team.wait_until_began(4)  # two slots each; the rest is queued
        own_server.kill()
        own_server.wipe()
        team.go()
        await asyncio.to_thread(own_server.start)
        answers = [(await each).unwrap() for each in requests]
        assert {each.partition(" ")[2] for each in answers} == {str(worker.pid) for worker in workers}
        assert sorted(int(each.partition(" ")[0]) for each in team.began()) == list(range(12))


@pytest.mark.usefixtures("long_leases")
async def test_a_worker_that_is_replaced_finishes_what_it_has_and_takes_nothing_new(tmp_path: Path) -> None:
    async with opened(tmp_path) as team:
        old = await team.workers.start("1.0")
        first = team.ask("slow", "a")
        await team.wait_until_began(1)
        new = await team.workers.start("2.0")
        old.terminate()
        assert old.stdout is not None
        assert await asyncio.to_thread(old.stdout.readline) == b"draining\n"
        later = [team.ask("slow", each) for each in "bc"]
        await team.wait_until_began(3)
        team.go()
        assert (await first).unwrap() == f"1.0 {old.pid}"
        assert [(await each).unwrap() for each in later] == [f"2.0 {new.pid}"] * 2
        assert await asyncio.to_thread(old.wait) == 0


async def test_without_nats_what_is_hosted_here_is_answered_and_the_store_brings_the_rest(
    tmp_path: Path, own_server: NatsServer, caplog: pytest.LogCaptureFixture
) -> None:
    async with opened(tmp_path, own_server) as team:
        team.hub.add("here", here)
        team.go()
        worker = await team.workers.start()
        own_server.kill()
        assert (await team.ask("here", "a")).unwrap() == "here"
        assert (await team.ask("slow", "b")).unwrap() == f"1.0 {worker.pid}"
    assert "cannot be reached" in caplog.text


async def test_a_call_to_an_agent_that_nobody_hosts_ends_soon(tmp_path: Path) -> None:
    hub = Hub(name=(name := team_name()), store=tmp_path / "hub.db", durability="process")
    join_bus(hub, BusSettings(url=shared_server().url, patience_s=0.2), name=name, hosts=(), calls=CARDS)
    async with hub, asyncio.timeout(PATIENCE_S):
        response = await hub.ask("slow", "a", user="anna")
    assert (response.status, code_of(response)) == (Status.REFUSED, Code.DELEGATION_UNAVAILABLE)


async def test_a_hub_proves_who_it_is_and_one_that_cannot_still_answers_what_it_hosts(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    server = NatsServer("--user", "hub", "--pass", "secret-word").start()
    try:
        for password, is_known in (("secret-word", True), ("wrong-word", False)):
            name = team_name()
            hub = Hub(name=name, store=tmp_path / f"{name}.db", durability="process")
            hub.add("here", here)
            bus = join_bus(hub, BusSettings(url=server.url, user="hub", password=password), name=name)
            async with hub, asyncio.timeout(PATIENCE_S):
                assert bus.connected is is_known
                assert (await hub.ask("here", "a", user="anna")).unwrap() == "here"
    finally:
        server.close()
    assert "Authorization Violation" in caplog.text
    assert "-word" not in caplog.text


async def here(_: Brief) -> str:
    return "here"
