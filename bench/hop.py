"""One delegation in process, with every guard and record, against a bare task under a time-out.

The floor is `asyncio.create_task` with `wait_for` around the same coroutine. CPU time of all threads counts, the
store's writer among them; each run ends when its records are committed. `peers/run.py` measures other
frameworks.
"""

import asyncio
import gc
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path

from harness import Figure, at_most, cpu_seconds, main, rss_mb, sized
from remit import Hub
from team import flat_hub, tool_hub

COUNT, ROUNDS = sized((5_000, 5), (200, 1))
# Long enough for the store's writer to finish what it has begun, so that the floor is measured without it.
SETTLE_S = 0.1


async def constant() -> str:
    return "constant"


async def bare(count: int) -> None:
    for _ in range(count):
        await asyncio.wait_for(asyncio.create_task(constant()), 30)


async def bare_at_once(count: int, at_once: int) -> None:
    for _ in range(count // at_once):
        async with asyncio.TaskGroup() as group:
            for _ in range(at_once):
                group.create_task(bare(1))


async def best(runs: dict[str, Callable[[], Awaitable[object]]]) -> dict[str, float]:
    """The least CPU microseconds per delegation of each, taken in turns."""
    best_us = dict.fromkeys(runs, float("inf"))
    for _ in range(ROUNDS):
        for name, run in runs.items():
            gc.collect()
            await asyncio.sleep(SETTLE_S)
            start = cpu_seconds()
            await run()
            best_us[name] = min(best_us[name], (cpu_seconds() - start) / COUNT * 1e6)
    return best_us


async def delegate(hub: Hub, at_once: int) -> None:
    """Have an agent delegate so often; what did not happen was not fast."""
    (await hub.ask("a", str(at_once), user="u", input=COUNT)).unwrap()


async def compare(folder: Path) -> list[Figure]:
    async with flat_hub(folder) as hub, tool_hub(folder) as tools:
        measured = await best(
            {
                "bare": lambda: bare(COUNT),
                "bare at once": lambda: bare_at_once(COUNT, 100),
                "hop": lambda: delegate(hub, 1),
                "hop at once": lambda: delegate(hub, 100),
                "tool": lambda: delegate(tools, 1),
            }
        )
        memory = rss_mb()
    return [
        Figure(
            name="hop: one after another", value=measured["hop"], floor=measured["bare"], unit="µs", bound=at_most(2.8)
        ),
        Figure(
            name="hop: 100 at once",
            value=measured["hop at once"],
            floor=measured["bare at once"],
            unit="µs",
            bound=at_most(2.35),
        ),
        Figure(
            name="hop: a tool under a rule, to a hop",
            value=measured["tool"],
            floor=measured["hop"],
            unit="µs",
            bound=at_most(1),
        ),
        Figure(name="hop: resident memory", value=memory, unit="MB", bound=at_most(45)),
    ]


def measure() -> list[Figure]:
    with tempfile.TemporaryDirectory() as folder:
        return asyncio.run(compare(Path(folder)))


if __name__ == "__main__":
    main(measure)
