"""Answers that survive a power cut, at 64 concurrent callers, against this disk's own fsync."""

import asyncio
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from harness import Figure, at_least, main, sized
from remit import Brief, Hub, SqliteStore

CALLERS = 64
COUNT, SLOW_COUNT = sized((3_200, 1_280), (128, 64))
SLOW_COMMIT_S = 0.005


def fsyncs_per_second(folder: Path, seconds: float = sized(1.0, 0.05)) -> float:
    """How often a page can be appended and brought to the disk in a second."""
    handle = os.open(folder / "floor", os.O_WRONLY | os.O_CREAT)
    try:
        count, end = 0, time.perf_counter() + seconds
        while time.perf_counter() < end:
            os.write(handle, bytes(4096))
            os.fdatasync(handle)
            count += 1
        return count / seconds
    finally:
        os.close(handle)


async def answers_per_second(store: SqliteStore, count: int, warm: Callable[[], None] = lambda: None) -> float:
    hub = Hub(store=store)

    @hub.agent("echo")
    async def echo(brief: Brief) -> str:  # pyright: ignore[reportUnusedFunction]
        return brief.text

    async def caller(turns: int) -> None:
        for turn in range(turns):
            (await hub.ask("echo", f"turn {turn}", user="u")).unwrap()

    async with hub:
        await caller(10)
        warm()
        start = time.perf_counter()
        async with asyncio.TaskGroup() as group:
            for _ in range(CALLERS):
                group.create_task(caller(count // CALLERS))
        return count / (time.perf_counter() - start)


class SlowCommit:
    """Counts commits and makes each as slow as a slow disk would."""

    commits = 0

    def reset(self) -> None:
        self.commits = 0

    def __call__(self) -> None:
        self.commits += 1
        time.sleep(SLOW_COMMIT_S)


def measure() -> list[Figure]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        floor = fsyncs_per_second(folder)
        rate = asyncio.run(answers_per_second(SqliteStore(folder / "hub.db", durability="power"), COUNT))
        slow = SlowCommit()
        store = SqliteStore(folder / "slow.db", durability="power", commit_hook=slow)
        asyncio.run(answers_per_second(store, SLOW_COUNT, slow.reset))
    return [
        Figure(name="durable answers: 64 callers", value=rate, floor=floor, unit="/s", bound=at_least(0.5)),
        Figure(
            name="durable answers: per slow commit",
            value=SLOW_COUNT / slow.commits,
            unit="answers/commit",
            bound=at_least(20),
        ),
    ]


if __name__ == "__main__":
    main(measure)
