"""Many delegations in one process: whether memory stays flat, and whether a deep tree costs more than a flat run."""

import asyncio
import gc
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path

from harness import Figure, at_most, cpu_seconds, main, rss_mb, sized
from team import FAN_OUT, flat_hub, tree_hub

WARM, ALL, RUN = sized((10_000, 100_000, 1_000), (50, 100, 50))
DEPTH = sized(5, 2)
TREE = sum(FAN_OUT**level for level in range(1, DEPTH + 1))
TREES, ROUNDS = sized((8, 5), (1, 1))


async def memory(folder: Path) -> tuple[float, float]:
    """Resident memory after the first delegations and after all."""
    async with flat_hub(folder) as hub:
        sizes: list[float] = []
        for done in range(RUN, ALL + RUN, RUN):
            (await hub.ask("a", "1", user="u", input=RUN)).unwrap()
            if done in (WARM, ALL):
                gc.collect()
                sizes.append(rss_mb())
        return sizes[0], sizes[1]


async def tree_and_flat(folder: Path) -> tuple[float, float]:
    """CPU microseconds per delegation, in a deep tree and in a flat run."""

    async def timed(run: Callable[[], Awaitable[object]]) -> float:
        gc.collect()
        start = cpu_seconds()
        for _ in range(TREES):
            await run()
        return (cpu_seconds() - start) / TREES / TREE * 1e6

    tree, flat = float("inf"), float("inf")
    async with tree_hub(folder / "tree", DEPTH) as deep, flat_hub(folder / "flat") as wide:
        for _ in range(ROUNDS):
            tree = min(tree, await timed(lambda: deep.ask("level-0", user="u")))
            flat = min(flat, await timed(lambda: wide.ask("a", "1", user="u", input=TREE)))
    return tree, flat


def measure() -> list[Figure]:
    with tempfile.TemporaryDirectory() as folder:
        first, last = asyncio.run(memory(Path(folder)))
    with tempfile.TemporaryDirectory() as folder:
        tree, flat = asyncio.run(tree_and_flat(Path(folder)))
    return [
        Figure(name="scale: memory after 100,000", value=last, floor=first, unit="MB", bound=at_most(1.05)),
        Figure(name=f"scale: tree of {TREE}", value=tree, floor=flat, unit="µs", bound=at_most(1)),
    ]


if __name__ == "__main__":
    main(measure)
