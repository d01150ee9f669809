"""Durable steps of 64 runs at once, on SQLite and on PostgreSQL, against bare commits of the same store.

A step is on record before it begins, and its result before the run answers, so that after `kill -9` no finished step is
done again. Three kinds are measured: a tool that may not be used twice, which waits for its commit; `brief.once`,
which shares the next one; and a step of a workflow, which is a whole delegation with guards, budget and records.
The floor is the store alone: 64 callers that wait for one journal entry after another.
"""

import asyncio
import sys
import tempfile
import time
from collections.abc import Callable, Coroutine
from pathlib import Path

from harness import Figure, at_least, cpu_seconds, main, sized
from remit import Brief, Capability, Hub, Step, Workflow
from remit.ports import Store
from remit.stores.sqlite import SqliteStore
from remit_cluster.postgres.store import PostgresStore
from remit_orchestrator import add_workflow
from remit_testing.samples import LONG_MS, a_request
from team import LIMITS

sys.path.append(str(Path(__file__).resolve().parent.parent / "tests"))

RUNS, STEPS, ROUNDS = sized((64, 20, 3), (2, 2, 1))
BOOK, USE, ONCE = "workflow", "tool", "once"
NAMES = {
    USE: "a tool that may not be used twice",
    ONCE: "brief.once",
    BOOK: "a step of a workflow that may not be done twice",
}
# DBOS did 215 a second, Temporal's development server 69 and Restate 950, on a machine like the one of results.json.
GOAL = at_least(5_000)


def hub_on(store: Store) -> Hub:
    hub = Hub(store=store, limits=LIMITS)

    @hub.tool("charge")
    async def charge(number: int) -> int:  # pyright: ignore[reportUnusedFunction]
        return number

    @hub.agent("desk", concurrency=RUNS, capabilities=[Capability(code="BOOK")])
    async def desk(_: Brief) -> str:  # pyright: ignore[reportUnusedFunction]
        return "booked"

    @hub.agent(USE, resumable=True, concurrency=RUNS, tools=["charge"])
    async def use(brief: Brief) -> str:  # pyright: ignore[reportUnusedFunction]
        for number in range(STEPS):
            await brief.use("charge", number=number)
        return "done"

    @hub.agent(ONCE, resumable=True, concurrency=RUNS)
    async def once(brief: Brief) -> str:  # pyright: ignore[reportUnusedFunction]
        async def work() -> int:
            return 7

        for number in range(STEPS):
            await brief.once(f"step {number}", work)
        return "done"

    steps = tuple(
        Step(
            name=f"part_{number}",
            agent="desk",
            capability="BOOK",
            objective=f"Do part {number}",
            input={"number": number},
            tokens=400,
            after=(f"part_{number - 1}",) if number else (),
        )
        for number in range(STEPS)
    )
    add_workflow(hub, Workflow(name=BOOK, steps=steps))
    return hub


async def at_once(one: Callable[[int], Coroutine[None, None, None]]) -> tuple[float, float]:
    """Return the steps per second of all runs at once, and the CPU time of one step in µs."""
    started, cpu = time.perf_counter(), cpu_seconds()
    async with asyncio.TaskGroup() as group:
        for place in range(RUNS):
            group.create_task(one(place))
    count = RUNS * STEPS
    return count / (time.perf_counter() - started), (cpu_seconds() - cpu) / count * 1e6


async def bare(store: Store, turn: int) -> float:
    """Return the journal entries per second of the store alone, each awaited until it is durable."""
    runs = [a_request(f"bare-{turn}-{place}") for place in range(RUNS)]
    for request in runs:
        await store.submit(request, b"digest", worker="bench", lease_ms=LONG_MS)

    async def one(place: int) -> None:
        for number in range(STEPS):
            assert await store.journal_durably(runs[place].run, 1, f"{number}", b"x" * 100)

    return (await at_once(one))[0]


async def compare(store: Store, name: str) -> list[Figure]:
    rates, cpu, floor = dict.fromkeys(NAMES, 0.0), dict.fromkeys(NAMES, float("inf")), 0.0
    async with hub_on(store) as hub:
        for turn in range(ROUNDS):
            floor = max(floor, await bare(store, turn))
            for kind in NAMES:

                async def one(place: int, kind: str = kind) -> None:
                    (await hub.ask(kind, "do it", user=f"user-{place}")).unwrap()

                rate, spent = await at_once(one)
                rates[kind], cpu[kind] = max(rates[kind], rate), min(cpu[kind], spent)
    figures: list[Figure] = []
    for kind, label in NAMES.items():
        goal = GOAL if kind != BOOK else None
        figures += [
            Figure(name=f"steps on {name}: {label}", value=rates[kind], unit="/s", bound=goal),
            Figure(name=f"steps on {name}: {label}, against bare commits", value=rates[kind], floor=floor, unit="/s"),
            Figure(name=f"steps on {name}: {label}, CPU of the hub", value=cpu[kind], unit="µs"),
        ]
    return figures


def measure() -> list[Figure]:
    from postgres_server import PostgresServer

    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        figures = asyncio.run(compare(SqliteStore(folder / "hub.db", durability="power"), "SQLite"))
        server = PostgresServer()
        try:
            url = asyncio.run(server.database())
            figures += asyncio.run(compare(PostgresStore(url, key=folder / "hub.key"), "PostgreSQL"))
        finally:
            server.remove()
    return figures


if __name__ == "__main__":
    main(measure)
