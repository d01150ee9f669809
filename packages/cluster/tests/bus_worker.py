"""A hub of a team in a process of its own: `bus_worker.py URL TEAM FOLDER [VERSION [AGENT...]]`; SIGTERM drains it."""

import asyncio
import os
import signal
import sys
from collections.abc import Collection
from pathlib import Path

from msgspec.structs import replace

from remit import Brief, Hub
from remit.protocol.card import AgentCard
from remit.runtime import root_runs
from remit_cluster.nats.bus import join_bus
from remit_cluster.nats.connection import BusSettings

# Tests do not wait five seconds for a lease to end. Those in which none should end have longer ones: on a busy machine
# a worker may come too late to renew it.
LEASE_MS = int(os.environ.get("BUS_LEASE_MS", "3000"))
LONG_LEASE_MS = 8_000
PRESENCE_S = 2.0
CARDS = [
    AgentCard(name="slow", concurrency=2),
    AgentCard(name="steady", concurrency=2, resumable=True),
    AgentCard(name="nested", resumable=True, may_call=frozenset({"slow"})),
]


async def until(file: Path) -> None:
    while not file.exists():
        await asyncio.sleep(0.02)


def hub_in(folder: Path, team: str, version: str, agents: Collection[str]) -> Hub:
    """The hub of a worker: each agent says that it began, and ends when it is told to go."""
    root_runs.LEASE_MS = LEASE_MS
    hub = Hub(name=team, store=folder / "hub.db", durability="process", approver="inbox")

    async def wait(brief: Brief) -> str:
        with (folder / "began").open("a", encoding="utf-8") as began:
            began.write(f"{brief.objective} {os.getpid()}\n")
        brief.progress("began")
        await until(folder / "go")
        return f"{version} {os.getpid()}"

    async def nested(brief: Brief) -> str:
        return (await brief.delegate("slow", objective=brief.objective)).unwrap()

    for card in (each for each in CARDS if each.name in agents):
        agent = nested if card.name == "nested" else wait
        hub.add(card.name, agent, concurrency=card.concurrency, resumable=card.resumable, may_call=card.may_call)
    return hub


async def main(url: str, team: str, folder: Path, version: str = "1.0", *agents: str) -> None:
    stopped = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopped.set)
    hosted = agents or [card.name for card in CARDS]
    hub = hub_in(folder, team, version, hosted)
    calls = [card for card in CARDS if card.name not in hosted]
    bus = join_bus(hub, BusSettings(url=url, presence_s=PRESENCE_S), name=team, calls=calls)
    hub.reconfigure(cards=[replace(card, version=version) for card in hub.cards.values()])
    async with hub:
        print("ready", flush=True)
        if agent := os.environ.get("ASK"):
            await hub.ask(agent, "a", user="anna", request_id="asked")
        await stopped.wait()
        print("draining", flush=True)
        await bus.drain(20)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], Path(sys.argv[3]), *sys.argv[4:]))
