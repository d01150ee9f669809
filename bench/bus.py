"""Delegations to a hub in another process over NATS, with the store, against bare request and reply of the same client.

The floor is nats-py alone: a request of the size of a delegation to a subscription in another process. Both ends are
one process each, in both, with one NATS server between them. Each delegation commits three times on the way: submit,
claim and finish, in one PostgreSQL database.

Latencies are those of an agent with few slots, under requests that come at random times whether or not earlier ones
were answered, counted from when each was due. The floor is the median of requests that come one after another.
"""

import asyncio
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import nats
from nats.aio.msg import Msg

from harness import Figure, at_least, main, sized, start
from remit import Answer, Brief, Code, Hub, Limits
from remit.protocol.card import AgentCard
from remit_cluster.nats.bus import join_bus
from remit_cluster.nats.connection import BusSettings
from remit_cluster.postgres.store import PostgresStore

sys.path.append(str(Path(__file__).resolve().parent.parent / "tests"))

COUNT, ROUNDS = sized((2_560, 3), (64, 1))
AT_ONCE = 64
# Few and slow enough for the slots to be the limit, and not the cores of the machine.
SLOTS = 4
WORK_S = 0.1
SECONDS = sized(8.0, 0.2)
SERVER = Path(sys.executable).parent / "nats-server"
TEXT = "Coffee 4.20, train 59.00, paper 12.40"
BODY = b"x" * 700  # what a delegation sends over HTTP


def open_store(database: str, folder: Path) -> PostgresStore:
    return PostgresStore(database, key=folder / "hub.key")


async def serve(url: str, folder: Path, database: str) -> None:
    hub = Hub(name="bench", store=open_store(database, folder), shared=True)

    @hub.agent("echo")
    async def echo(brief: Brief) -> str:
        return brief.text

    @hub.agent("worker", concurrency=SLOTS, queue=4 * SLOTS)
    async def worker(brief: Brief) -> str:
        await asyncio.sleep(WORK_S)
        return brief.text

    assert echo
    assert worker
    join_bus(hub, BusSettings(url=url), name="bench")
    client = await nats.connect(url)  # pyright: ignore[reportUnknownMemberType]

    async def bare(message: Msg) -> None:
        await client.publish(message.reply, message.data)

    await client.subscribe("bare", cb=bare)  # pyright: ignore[reportUnknownMemberType]
    await client.flush()
    async with hub:
        print("ready", flush=True)
        await asyncio.Event().wait()


async def ask_bare(url: str) -> float:
    client = await nats.connect(url)  # pyright: ignore[reportUnknownMemberType]

    async def some() -> None:
        for _ in range(COUNT // AT_ONCE):
            await client.request("bare", BODY, timeout=10)

    start = time.perf_counter()
    async with asyncio.TaskGroup() as group:
        for _ in range(AT_ONCE):
            group.create_task(some())
    took = time.perf_counter() - start
    await client.close()
    return COUNT / took


async def delegate(hub: Hub) -> float:
    start = time.perf_counter()
    done = (await hub.ask("a", "Go", user="u")).unwrap()
    assert done == COUNT, done
    return COUNT / (time.perf_counter() - start)


class Load:
    """What became of requests that came at a rate."""

    def __init__(self) -> None:
        self.served: list[float] = []
        self.refused = 0

    async def ask(self, hub: Hub, number: int, due: float) -> None:
        response = await hub.ask("worker", f"Work {number}", user="u", input=TEXT)
        if response.ok:
            self.served.append(time.perf_counter() - due)
            return
        assert response.fault is not None
        assert response.fault.code is Code.OVERLOADED, response.fault
        assert response.fault.retry_after_ms
        self.refused += 1


async def under_load(hub: Hub, times: float) -> Load:
    """Ask at so many *times* the rate that the slots of the agent can serve."""
    load, gaps = Load(), random.Random(7)
    rate = times * SLOTS / WORK_S
    due = time.perf_counter()
    async with asyncio.TaskGroup() as group:
        for number in range(round(rate * SECONDS)):
            due += gaps.expovariate(rate)
            await asyncio.sleep(max(0.0, due - time.perf_counter()))
            group.create_task(load.ask(hub, number, due))
    return load


async def latencies(hub: Hub) -> list[Figure]:
    alone = Load()
    for number in range(sized(20, 1)):
        await alone.ask(hub, number, time.perf_counter())
    floor = statistics.median(alone.served)
    figures: list[Figure] = []
    for name, times in (("65 % load", 0.65), ("3x overload", 3.0)):
        load = await under_load(hub, times)
        cuts = statistics.quantiles(load.served, n=100)
        for part, value in (("p50", cuts[49]), ("p99", cuts[98])):
            label = f"nats: {part} of what is served at {name}"
            figures.append(Figure(name=label, value=value * 1_000, unit="ms", floor=floor * 1_000))
        share = 100 * load.refused / (load.refused + len(load.served))
        figures.append(Figure(name=f"nats: refused at {name}", value=share, unit="%"))
    return figures


async def compare(url: str, folder: Path, database: str) -> list[Figure]:
    limits = Limits(max_fan_out=AT_ONCE, max_agent_delegations=10**9, max_delegations=10**9, root_tokens=10**9)
    hub = Hub(name="bench", store=open_store(database, folder), limits=limits, shared=True)

    @hub.agent("a", may_call=["echo"])
    async def a(brief: Brief) -> Answer:
        done = 0

        async def some(first: int) -> None:
            nonlocal done
            for number in range(first, COUNT, AT_ONCE):
                (await brief.delegate("echo", objective=f"Say it again {number}", input=TEXT)).unwrap()
                done += 1

        async with asyncio.TaskGroup() as group:
            for first in range(AT_ONCE):
                group.create_task(some(first))
        return Answer(done)

    assert a
    join_bus(
        hub, BusSettings(url=url), name="bench", hosts=(), calls=[AgentCard(name="echo"), AgentCard(name="worker")]
    )
    floor = rate = 0.0
    async with hub:
        for _ in range(ROUNDS):
            floor = max(floor, await ask_bare(url))
            rate = max(rate, await delegate(hub))
        figures = await latencies(hub)
    name = f"nats delegations, {AT_ONCE} at once"
    return [Figure(name=name, value=rate, unit="1/s", floor=floor, bound=at_least(0.3)), *figures]


@contextmanager
def nats_server(folder: Path) -> Generator[str]:
    """Run a server with its streams in *folder*, and return its address."""
    (folder / "ports").mkdir()
    command = [SERVER, "-a", "127.0.0.1", "-p", "-1", "-js", "-sd", folder, "--ports_file_dir", folder / "ports"]
    server = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    try:
        while not (files := list((folder / "ports").glob("*.ports"))) or not files[0].read_text():
            time.sleep(0.01)
        yield files[0].read_text().partition('"nats":["')[2].partition('"')[0]
    finally:
        server.kill()
        server.wait()


def measure() -> list[Figure]:
    from postgres_server import PostgresServer

    postgres, callee = PostgresServer(), None
    try:
        with tempfile.TemporaryDirectory() as made, nats_server(Path(made)) as url:
            database = asyncio.run(postgres.database())
            arguments = [sys.executable, __file__, "serve", url, made, database]
            callee = start(arguments, stdout=subprocess.PIPE)
            assert callee.stdout is not None
            assert callee.stdout.readline() == b"ready\n"
            return asyncio.run(compare(url, Path(made), database))
    finally:
        if callee is not None:
            callee.kill()
            callee.wait()
        postgres.remove()


if __name__ == "__main__":
    if sys.argv[1:2] == ["serve"]:
        asyncio.run(serve(sys.argv[2], Path(sys.argv[3]), sys.argv[4]))
    else:
        main(measure)
