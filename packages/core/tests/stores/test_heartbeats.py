"""A hub renews the leases of its runs with few commits: without a run there is nothing to renew."""

import asyncio
import threading
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

from ages import Clock
from remit.stores.sqlite import SqliteStore
from remit_testing.samples import a_request, a_response
from waiting import PATIENCE_S, eventually

LEASE_MS = 5_000
BEAT_MS = LEASE_MS // 5


class Disk:
    """Counts commits, and holds them back while it is stuck."""

    def __init__(self) -> None:
        self.commits = 0
        self.reached, self.works = threading.Event(), threading.Event()
        self.works.set()

    def __call__(self) -> None:
        self.commits += 1
        self.reached.set()
        assert self.works.wait(PATIENCE_S)

    @property
    def stuck(self) -> bool:
        return not self.works.is_set()

    @stuck.setter
    def stuck(self, stuck: bool) -> None:
        self.reached.clear()
        (self.works.clear if stuck else self.works.set)()


class Workers:
    """A store, with a clock that stands still; the worker `here` is the one that is asked about."""

    def __init__(self, store: SqliteStore, clock: Clock, disk: Disk) -> None:
        self.store, self.clock, self.disk = store, clock, disk

    async def submit(self, name: str, worker: str = "here", *, waiting: bool = False) -> None:
        await self.store.submit(a_request(name), b"digest", worker=worker, lease_ms=LEASE_MS, waiting=waiting)

    async def finish(self, name: str, epoch: int = 1) -> None:
        assert await self.store.finish(f"run-{name}", epoch, a_response(a_request(name)), self.clock())

    async def beat(self, worker: str = "here") -> int:
        """Send a heartbeat once everything is written, and return how many commits it took."""
        writer = self.store._writer  # pyright: ignore[reportPrivateUsage]
        await eventually(lambda: writer.is_idle)
        before = self.disk.commits
        await self.store.heartbeat(worker, LEASE_MS)
        return self.disk.commits - before

    async def expired(self) -> list[str]:
        """Return the runs that any hub may take over."""
        return [each.run for each in await self.store.sweep(max_attempts=3, keep_ms=LEASE_MS)]


@asynccontextmanager
async def opened(path: Path) -> AsyncGenerator[Workers]:
    clock, disk = Clock(), Disk()
    store = SqliteStore(
        path / "hub.db", durability="process", wall_ms=clock, monotonic=lambda: clock() / 1_000, commit_hook=disk
    )
    await store.open()
    try:
        yield Workers(store, clock, disk)
    finally:
        disk.stuck = False
        await store.close()


async def test_a_worker_without_runs_commits_nothing(tmp_path: Path) -> None:
    async with opened(tmp_path) as workers:
        assert [await workers.beat() for _ in range(5)] == [0] * 5
        # Runs of others, runs that have ended and requests for any host are none of its own.
        await workers.submit("of another", "there")
        await workers.submit("for any host", "", waiting=True)
        await workers.submit("ended")
        await workers.finish("ended")
        assert [await workers.beat() for _ in range(5)] == [0] * 5
        assert await workers.beat("there") == 1


async def test_a_worker_that_claims_again_keeps_its_run_for_as_long_as_it_beats(tmp_path: Path) -> None:
    async with opened(tmp_path) as workers:
        for name in ("one", "two"):
            for _ in range(10):  # idle for two leases
                assert await workers.beat() == 0
                workers.clock.now_ms += BEAT_MS
            # The worst moment: right after a heartbeat.
            await workers.submit(name)
            for _ in range(10):
                workers.clock.now_ms += BEAT_MS
                assert await workers.expired() == []
                assert await workers.beat() == 1
            await workers.finish(name)


async def test_the_lease_of_a_taken_and_of_a_resumed_run_is_renewed(tmp_path: Path) -> None:
    async with opened(tmp_path) as workers:
        await workers.submit("for any host", "", waiting=True)
        workers.clock.now_ms += LEASE_MS + 1
        assert await workers.beat() == 0
        assert await workers.store.take("run-for any host", "here", LEASE_MS) is not None
        assert await workers.beat() == 1
        await workers.finish("for any host", 2)
        await workers.submit("orphan", "there")
        workers.clock.now_ms += LEASE_MS + 1
        assert await workers.expired() == ["run-orphan"]
        assert await workers.beat() == 0
        epoch = await workers.store.claim("run-orphan", "here", LEASE_MS)
        assert epoch is not None
        assert await workers.beat() == 1
        # The worker that lost it renews nothing.
        assert await workers.beat("there") == 0
        # Nor does one that has given it back.
        assert await workers.store.release("run-orphan", epoch)
        assert await workers.beat() == 0


async def test_a_claim_whose_commit_takes_long_is_renewed_right_after_it(tmp_path: Path) -> None:
    """A lease counts from the begin of its commit: with a slow disk, most of it has passed when the commit is done."""
    async with opened(tmp_path) as workers, asyncio.TaskGroup() as group:
        workers.disk.stuck = True
        claiming = group.create_task(workers.submit("one"))
        await asyncio.to_thread(workers.disk.reached.wait, PATIENCE_S)
        workers.clock.now_ms += LEASE_MS - 1
        beating = group.create_task(workers.store.heartbeat("here", LEASE_MS))
        await asyncio.sleep(0)
        workers.disk.stuck = False
        await asyncio.gather(claiming, beating)
        workers.clock.now_ms += BEAT_MS
        assert await workers.expired() == []


async def test_a_worker_that_cannot_look_for_its_runs_renews_their_leases(tmp_path: Path) -> None:
    async with opened(tmp_path) as workers:
        await workers.submit("one")
        glance = workers.store._glance  # pyright: ignore[reportPrivateUsage]
        assert glance is not None
        glance.close()
        assert await workers.beat() == 1
