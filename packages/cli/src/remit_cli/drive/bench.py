"""Measures Remit on this machine, each time beside a floor that is measured in the same run."""

import asyncio
import os
import sys
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from aiohttp import ClientSession

from remit.hub.hub import Hub
from remit.policy.limits import Limits
from remit.ports.brief import Brief
from remit.stores.connection import connect_writer
from remit_server import connect, serve
from remit_server.documents.common import BenchFigure, BenchReport

TOKEN = "only-within-this-process"
# No limit is what is measured; they only must not end a run of thousands.
PLENTY = 1_000_000_000
LIMITS = Limits(max_agent_delegations=PLENTY, max_delegations=PLENTY, max_record_bytes=PLENTY, root_tokens=PLENTY)
TEAM = '[agents.echo]\nrun = "echo:answer"\ndescription = "Repeats its task."\n'
CODE = "async def answer(brief):\n    return brief.objective\n"


class TimedBatch(NamedTuple):
    """An operation that is done so often in a row; the time of one is a part of the whole."""

    name: str
    times: int
    run: Callable[[int], Awaitable[object]]


class Comparison(NamedTuple):
    """An operation and its floor."""

    operation: TimedBatch
    floor: TimedBatch


def bench_report(seconds: float) -> BenchReport:
    """Measure for about so many seconds, in a folder that is deleted afterwards."""
    with TemporaryDirectory(prefix="remit-bench-") as made:
        return BenchReport(figures=tuple(asyncio.run(_measured(Path(made), seconds))))


async def _measured(folder: Path, seconds: float) -> list[BenchFigure]:
    async with _comparisons(folder) as comparisons:
        return [await _compared(each, seconds / len(comparisons)) for each in comparisons]


async def _compared(pair: Comparison, seconds: float) -> BenchFigure:
    """Return the least times of both, taken in turns, so that other work on the machine meets both alike."""
    best, end = dict.fromkeys(pair, float("inf")), time.perf_counter() + seconds
    for batch in pair:
        await batch.run(1)  # imports, connects and compiles
    while time.perf_counter() < end or float("inf") in best.values():
        for batch in pair:
            start = time.perf_counter()
            await batch.run(batch.times)
            best[batch] = min(best[batch], (time.perf_counter() - start) / batch.times * 1e6)
    took, floor = (best[batch] for batch in pair)
    return BenchFigure(
        operation=pair.operation.name,
        us=round(took, 1),
        floor=pair.floor.name,
        floor_us=round(floor, 1),
        ratio=round(took / floor, 2),
    )


@asynccontextmanager
async def _comparisons(folder: Path) -> AsyncGenerator[list[Comparison]]:
    async with AsyncExitStack() as stack:
        callee = Hub(name="callee", store=folder / "callee.db", limits=LIMITS)
        callee.add("echo", _echo)
        await stack.enter_async_context(callee)
        address = await stack.enter_async_context(serve(callee, hubs={"caller": TOKEN}))
        hub = Hub(name="caller", store=folder / "caller.db", limits=LIMITS)
        hub.add("echo", _echo)
        connect(hub, "far", address, remote="echo", token=TOKEN)
        hub.add("asker", _asker, may_call=["echo", "far"])
        await stack.enter_async_context(hub)
        session = await stack.enter_async_context(ClientSession())
        yield [
            Comparison(
                TimedBatch("delegation in one process", 200, partial(_delegations, hub, "echo")),
                TimedBatch("a bare task", 200, _tasks),
            ),
            Comparison(
                TimedBatch("request with a durable answer", 20, partial(_requests, hub)),
                TimedBatch("a SQLite commit", 20, _Commits(folder / "floor.db").run),
            ),
            Comparison(
                TimedBatch("delegation over HTTP", 20, partial(_delegations, hub, "far")),
                TimedBatch("an HTTP request", 20, partial(_fetches, session, f"{address}/healthz")),
            ),
            Comparison(
                TimedBatch("remit run", 1, _starting(folder, "-m", "remit_cli", "run", "echo", "Hello")),
                TimedBatch("importing asyncio", 1, _starting(folder, "-c", "import asyncio")),
            ),
        ]


# ── operations ────────────────────────────────────────────────────────────────────────────────────────────────────────


async def _echo(brief: Brief) -> str:
    return brief.objective


async def _asker(brief: Brief) -> str:
    target, count = brief.objective.split()
    for number in range(int(count)):
        (await brief.delegate(target, objective=f"Say {number}", max_tokens=400)).unwrap()
    return "done"


async def _delegations(hub: Hub, target: str, count: int) -> None:
    (await hub.ask("asker", f"{target} {count}", user="bench")).unwrap()


async def _requests(hub: Hub, count: int) -> None:
    for number in range(count):
        (await hub.ask("echo", f"Say {number}", user="bench")).unwrap()


def _starting(folder: Path, *arguments: str) -> Callable[[int], Awaitable[object]]:
    """Return what starts Python, in the folder of a team."""
    (folder / "remit.toml").write_text(TEAM, encoding="utf-8")
    (folder / "echo.py").write_text(CODE, encoding="utf-8")
    # A team of its own; and a user's second start finds compiled files.
    other = ("REMIT_", "PYTHONDONTWRITEBYTECODE")
    ours = {name: value for name, value in os.environ.items() if not name.startswith(other)}
    quiet = asyncio.subprocess.DEVNULL

    async def start(count: int) -> None:
        for _ in range(count):
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, *arguments), cwd=folder, env=ours, stdout=quiet, stderr=quiet
            )
            if code := await process.wait():
                raise RuntimeError(f"{' '.join(arguments)} ended with {code}")

    return start


# ── floors ────────────────────────────────────────────────────────────────────────────────────────────────────────────


async def _constant() -> str:
    return "constant"


async def _tasks(count: int) -> None:
    for _ in range(count):
        await asyncio.wait_for(asyncio.create_task(_constant()), 30)


class _Commits:
    """Commits of one row each, as durable as those of a store."""

    def __init__(self, path: Path) -> None:
        self._connection = connect_writer(path, "power", 5)
        self._connection.execute("PRAGMA journal_mode = WAL")
        self._connection.execute("CREATE TABLE IF NOT EXISTS row (text TEXT)")

    async def run(self, count: int) -> None:
        for number in range(count):
            self._connection.execute("INSERT INTO row VALUES (?)", (f"Say {number}",))


async def _fetches(session: ClientSession, url: str, count: int) -> None:
    for _ in range(count):
        async with session.get(url) as reply:
            await reply.read()
