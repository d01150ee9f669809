"""The registry of a large team: 1,000 hubs that host 10,000 agents, on one NATS server.

Each hub is the connection and the presence of a real hub, without its store and its agents: so a few processes hold all
of them. Each hosts ten agents and calls five of others. Measured are the messages and the memory of the server, the
memory of a hub's presence, how soon the callers of an agent see a new host, and how long `remit agents list` reads.
If every hub heard every other one, as is the floor, each would get a message from each of them every 2 s.
"""

import asyncio
import json
import logging
import random
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

from harness import Figure, at_most, main, rss_mb, sized
from remit.protocol.card import AgentCard, Capability
from remit_cluster.nats.connection import BusSettings, Connection
from remit_cluster.nats.presence import BEATS, Presence, present_hubs
from remit_cluster.nats.proofs import BusProofs
from remit_cluster.nats.subjects import HostedAgent, PresentHub, Subjects

HUBS, PROCESSES, SAMPLE_S, NEWCOMERS = sized((1_000, 8, 10.0, 20), (4, 2, 0.1, 1))
AGENTS = 10
CALLS = 5
AT_ONCE = 10
TEAM = "bench"
SERVER = Path(sys.executable).parent / "nats-server"


def card(number: int) -> AgentCard:
    """A card of usual size: a description, and two capabilities with a schema."""
    schema = {"type": "object", "properties": {"text": {"type": "string"}, "limit": {"type": "integer"}}}
    capabilities = tuple(
        Capability(
            code=f"{verb}_{number}", description=f"It can {verb.lower()} texts of any kind.", input_schema=schema
        )
        for verb in ("SORT", "COUNT")
    )
    return AgentCard(name=f"agent-{number}", description="An agent that sorts receipts.", capabilities=capabilities)


class RegisteredHub:
    """What the bus knows of one hub, and what the hub knows of the bus."""

    def __init__(self, url: str, number: int, hosted: list[AgentCard], called: list[str]) -> None:
        self.connection = Connection(BusSettings(url=url), f"{TEAM} {number}")
        described = PresentHub(TEAM, tuple(HostedAgent(each, 4) for each in hosted))
        unsigned = BusProofs(None, lambda _what, _why: None)
        self.presence = Presence(
            self.connection, Subjects(TEAM), unsigned, f"hub-{number}", lambda: described, lambda _: None
        )
        self.presence.expect(called, everyone=False)
        self._joined = asyncio.Event()
        self.connection.on_connected += [self.presence.connected, self._note_joined]

    async def open(self) -> None:
        await self.connection.open()
        await self.presence.open()
        await self._joined.wait()

    async def _note_joined(self) -> None:
        self._joined.set()

    async def close(self) -> None:
        await self.presence.close()
        await self.connection.close()


async def hold(url: str, first: int, last: int) -> None:
    """Hold the hubs of one process until the parent is done."""
    logging.disable()  # so many that begin at once wait longer than a hub does before it says so
    chance, before = random.Random(first), rss_mb()
    turns = asyncio.Semaphore(AT_ONCE)
    hubs: list[RegisteredHub] = []

    async def one(number: int) -> None:
        hosted = [card(number * AGENTS + place) for place in range(AGENTS)]
        called = [f"agent-{chance.randrange(HUBS * AGENTS)}" for _ in range(CALLS)]
        hub = RegisteredHub(url, number, hosted, called)
        async with turns:
            await hub.open()
        hubs.append(hub)

    async with asyncio.TaskGroup() as group:
        for number in range(first, last):
            group.create_task(one(number))
    print("ready", flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    print((rss_mb() - before) / len(hubs), flush=True)
    await asyncio.to_thread(sys.stdin.readline)


def server_state(monitor: str) -> tuple[int, int, float]:
    """Return how many messages the server got and sent so far, and its memory in MB."""
    with urllib.request.urlopen(f"{monitor}/varz", timeout=10) as reply:
        state = json.load(reply)
    return state["in_msgs"], state["out_msgs"], state["mem"] / 2**20


async def newcomers(url: str) -> float:
    """Return the seconds until a caller of an agent sees a new host of it, at the median."""
    caller = RegisteredHub(url, HUBS, [], [f"new-{number}" for number in range(NEWCOMERS)])
    await caller.open()
    took: list[float] = []
    for number in range(NEWCOMERS):
        name = f"new-{number}"
        host = RegisteredHub(url, HUBS + 1 + number, [AgentCard(name=name)], [])
        waiting = asyncio.create_task(caller.presence.wait_for_host(name, 30))
        await asyncio.sleep(0)
        began = time.perf_counter()
        await host.open()
        assert await waiting
        took.append(time.perf_counter() - began)
        await host.close()
    await caller.close()
    return sorted(took)[NEWCOMERS // 2]


async def listed(url: str) -> float:
    began = time.perf_counter()
    hubs = await present_hubs(BusSettings(url=url), TEAM)
    took = time.perf_counter() - began
    assert hubs is not None
    listed_agents = sum(len(hub.agents) for hub in hubs)
    assert listed_agents >= HUBS * AGENTS * 0.9, f"only {listed_agents} agents were found"
    return took


def measure_with(url: str, monitor: str) -> list[Figure]:
    share = HUBS // PROCESSES
    began = time.perf_counter()
    children = [
        subprocess.Popen(
            [sys.executable, __file__, "hold", url, str(place * share), str((place + 1) * share)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for place in range(PROCESSES)
    ]
    try:
        pipes = [(child.stdin, child.stdout) for child in children]
        for _, output in pipes:
            assert output is not None
            assert output.readline() == "ready\n"
        joined = time.perf_counter() - began
        got, sent, _ = server_state(monitor)
        time.sleep(SAMPLE_S)
        got_later, sent_later, server_mb = server_state(monitor)
        seen = asyncio.run(newcomers(url))
        read = asyncio.run(listed(url))
        memory: list[float] = []
        for given, output in pipes:
            assert given is not None
            assert output is not None
            given.write("\n")
            given.flush()
            memory.append(float(output.readline()))
    finally:
        for child in children:
            child.kill()
            child.wait()
    every_s = BusSettings(url=url).presence_s / BEATS
    team = f"registry of {HUBS:,} hubs and {HUBS * AGENTS:,} agents"
    return [
        Figure(name=f"{team}: all have joined", value=joined, unit="s"),
        Figure(name=f"{team}: messages to the server", value=(got_later - got) / SAMPLE_S, unit="/s"),
        Figure(
            name=f"{team}: messages from the server, against everyone hearing everyone",
            value=(sent_later - sent) / SAMPLE_S,
            floor=HUBS * HUBS / every_s,
            unit="/s",
            bound=at_most(0.05),
        ),
        Figure(name=f"{team}: memory of the server", value=server_mb, unit="MB", bound=at_most(500)),
        Figure(name=f"{team}: memory of a hub's presence", value=max(memory) * 1_000, unit="kB", bound=at_most(2_000)),
        Figure(name=f"{team}: a new host is seen", value=seen * 1_000, unit="ms"),
        Figure(name=f"{team}: all of it is read", value=read, unit="s"),
    ]


def measure() -> list[Figure]:
    with tempfile.TemporaryDirectory() as made:
        ports = Path(made) / "ports"
        ports.mkdir()
        command = [SERVER, "-a", "127.0.0.1", "-p", "-1", "-m", "-1", "-js", "-sd", made, "--ports_file_dir", ports]
        server = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        try:
            while not (files := list(ports.glob("*.ports"))) or not files[0].read_text():
                time.sleep(0.01)
            announced_ports = json.loads(files[0].read_text())
            return measure_with(announced_ports["nats"][0], announced_ports["monitoring"][0])
        finally:
            server.kill()
            server.wait()


if __name__ == "__main__":
    if sys.argv[1:2] == ["hold"]:
        asyncio.run(hold(sys.argv[2], int(sys.argv[3]), int(sys.argv[4])))
    else:
        main(measure)
