"""Durable answers on PostgreSQL at 64 concurrent callers, against the same port on SQLite in the same run.

An answer is a request, three records and an outcome, all durable. The server is a real one on this machine's disk, and
shares its cores. Hubs with a slow disk behind them show that one chain for all does not make them wait for each other.
"""

import asyncio
import sys
import tempfile
import time
from pathlib import Path

from harness import Figure, at_least, main, sized
from remit.ports import Store
from remit.protocol.records import Kind
from remit.stores.sqlite import SqliteStore
from remit_cluster.postgres.store import PostgresStore
from remit_testing.samples import LONG_MS, a_request, a_response, progress

sys.path.append(str(Path(__file__).resolve().parent.parent / "tests"))

CALLERS = 64
COUNT, ROUNDS, SLOW_SECONDS = sized((6_400, 3, 3.0), (64, 1, 0.1))


async def answers(store: Store, count: int, prefix: str) -> None:
    async def caller(place: int) -> None:
        for number in range(count // CALLERS):
            request = a_request(f"{prefix}-{place}-{number}")
            await store.submit(request, b"digest", worker="w", lease_ms=LONG_MS)
            for step in range(3):
                store.append(Kind.PROGRESS, step, request.run, request.session or "", progress("half"))
            assert await store.finish(request.run, 1, a_response(request), 7)

    async with asyncio.TaskGroup() as group:
        for place in range(CALLERS):
            group.create_task(caller(place))


async def rate(store: Store, prefix: str) -> float:
    await store.open()
    await answers(store, CALLERS * 5, f"warm-{prefix}")
    start = time.perf_counter()
    await answers(store, COUNT, prefix)
    took = time.perf_counter() - start
    await store.close()
    return COUNT / took


async def hubs_rate(url: str, key: Path, hubs: int) -> float:
    """Return how many answers several hubs give in a second, one caller each."""
    stores = [PostgresStore(url, key=key) for _ in range(hubs)]
    for store in stores:
        await store.open()
    answered = 0

    async def caller(place: int, store: Store, end: float) -> None:
        nonlocal answered
        while time.perf_counter() < end:
            request = a_request(f"{hubs}-{place}-{answered}-{time.perf_counter_ns()}")
            await store.submit(request, b"digest", worker="w", lease_ms=LONG_MS)
            assert await store.finish(request.run, 1, a_response(request), 7)
            answered += 1

    end = time.perf_counter() + SLOW_SECONDS
    async with asyncio.TaskGroup() as group:
        for place, store in enumerate(stores):
            group.create_task(caller(place, store, end))
    for store in stores:
        await store.close()
    return answered / SLOW_SECONDS


def measure_hubs() -> list[Figure]:
    """Measure several hubs on a server that takes 5 ms for each commit."""
    from postgres_server import PostgresServer

    server = PostgresServer("commit_delay=5000", "commit_siblings=0")
    try:
        with tempfile.TemporaryDirectory() as folder:
            url, key = asyncio.run(server.database()), Path(folder) / "hub.key"
            rates = {hubs: asyncio.run(hubs_rate(url, key, hubs)) for hubs in (1, 2, 4, 8)}
    finally:
        server.remove()
    goals = {2: None, 4: at_least(2), 8: at_least(3.5)}
    return [
        Figure(
            name=f"postgres: answers of {hubs} hubs at 5 ms per commit, against one",
            value=rates[hubs],
            floor=rates[1],
            unit="/s",
            bound=goal,
        )
        for hubs, goal in goals.items()
    ]


def measure() -> list[Figure]:
    from postgres_server import PostgresServer

    server = PostgresServer()
    try:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            url = asyncio.run(server.database())
            ours: list[float] = []
            floors: list[float] = []
            for turn in range(ROUNDS):
                floors.append(asyncio.run(rate(SqliteStore(folder / f"{turn}.db"), f"{turn}")))
                ours.append(asyncio.run(rate(PostgresStore(url, key=folder / "hub.key"), f"{turn}")))
    finally:
        server.remove()
    return [
        Figure(
            name="postgres: durable answers, 64 callers",
            value=max(ours),
            floor=max(floors),
            unit="/s",
            bound=at_least(0.6),
        ),
        *measure_hubs(),
    ]


if __name__ == "__main__":
    main(measure)
