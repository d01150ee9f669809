"""How soon another host goes on with a run after its host was killed with SIGKILL, with PostgreSQL and NATS.

The floor is the lease: without further knowledge, a run is resumed once the lease of its host has ended. Measured from
the kill until the code of the agent began on the other host.
"""

import asyncio
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from bus import SERVER, nats_server, open_store
from harness import Figure, at_most, main, sized, start
from remit import Brief, Hub
from remit.protocol.card import AgentCard
from remit.runtime.leases import BEATS
from remit.runtime.root_runs import LEASE_MS
from remit_cluster.nats.bus import join_bus
from remit_cluster.nats.connection import BusSettings
from remit_cluster.nats.takeover import RECONNECTED_S

ROUNDS = sized(5, 1)


def wait_for(file: Path) -> None:
    while not file.exists():
        time.sleep(0.02)


async def serve(url: str, folder: Path, database: str) -> None:
    hub = Hub(name="bench", store=open_store(database, folder), shared=True)

    @hub.agent("steady", resumable=True)
    async def steady(brief: Brief) -> str:
        print(time.monotonic(), flush=True)
        await asyncio.to_thread(wait_for, folder / f"go {brief.objective}")
        return "done"

    assert steady
    join_bus(hub, BusSettings(url=url), name="bench")
    async with hub:
        print("ready", flush=True)
        await asyncio.Event().wait()


class Host:
    """A host of the agent, in a process of its own."""

    def __init__(self, *arguments: str) -> None:
        command = [sys.executable, __file__, "serve", *arguments]
        self.process = start(command, stdout=subprocess.PIPE, text=True)
        assert self.line() == "ready"

    def line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


async def take_over(hub: Hub, place: int, folder: Path, *arguments: str) -> float:
    """Return the seconds from the kill of a host until its run went on at the other one."""
    first = await asyncio.to_thread(Host, *arguments)
    answering = asyncio.create_task(hub.ask("steady", f"{place}", user="u"))
    await asyncio.to_thread(first.line)
    second = await asyncio.to_thread(Host, *arguments)
    try:
        # The kills are spread over the time between two heartbeats.
        await asyncio.sleep(LEASE_MS / 1_000 / BEATS * place / ROUNDS)
        killed = time.monotonic()
        first.kill()
        began = float(await asyncio.to_thread(second.line))
        (folder / f"go {place}").touch()
        assert (await answering).unwrap() == "done"
        return began - killed
    finally:
        first.kill()
        second.kill()


async def take_overs(folder: Path, *arguments: str) -> list[float]:
    url, _, database = arguments
    hub = Hub(name="bench", store=open_store(database, folder), shared=True)
    join_bus(hub, BusSettings(url=url), name="bench", hosts=(), calls=[AgentCard(name="steady", resumable=True)])
    async with hub:
        await asyncio.sleep(RECONNECTED_S)  # a hub that has just connected judges nobody
        return [await take_over(hub, place, folder, *arguments) for place in range(ROUNDS)]


def measure() -> list[Figure]:
    from postgres_server import PostgresServer

    assert SERVER.exists()
    postgres = PostgresServer()
    try:
        with tempfile.TemporaryDirectory() as made, nats_server(Path(made)) as url:
            database = asyncio.run(postgres.database())
            seconds = asyncio.run(take_overs(Path(made), url, made, database))
    finally:
        postgres.remove()
    name, lease_s = f"take-over after kill -9, {{}} of {ROUNDS}", LEASE_MS / 1_000
    return [
        Figure(name=name.format("median"), value=statistics.median(seconds), unit="s", floor=lease_s),
        # Below four seconds, with a lease of five.
        Figure(name=name.format("longest"), value=max(seconds), unit="s", floor=lease_s, bound=at_most(0.8)),
    ]


if __name__ == "__main__":
    if sys.argv[1:2] == ["serve"]:
        asyncio.run(serve(sys.argv[2], Path(sys.argv[3]), sys.argv[4]))
    else:
        main(measure)
