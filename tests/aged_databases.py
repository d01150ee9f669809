"""Databases whose records were written over many days, for tests of what happens to them over the years."""

import asyncio
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import mkdtemp
from typing import TypeVar

from ages import DAY_MS, Clock, fill
from postgres_server import shared_server
from remit.runtime.audit import AuditVerdict
from remit_cli.upkeep.store_upkeep import StoreUpkeep
from remit_cluster.postgres.commands.upkeep import PgUpkeep
from remit_cluster.postgres.connection import DatabaseAddress
from remit_cluster.postgres.store import PostgresStore

# Ages are also judged by the clock of the server, so these days are behind it: from noon on, because a day ends at
# midnight.
START_MS = (time.time_ns() // 1_000_000 // DAY_MS - 20) * DAY_MS + DAY_MS // 2
NOW_MS = START_MS + 10 * DAY_MS

T = TypeVar("T")


class AgedDatabase:
    """A database with the key of its store."""

    now_ms = NOW_MS

    def __init__(self, url: str, key: Path) -> None:
        self.url, self.key = url, key

    @asynccontextmanager
    async def opened(self, clock: Clock | None = None) -> AsyncGenerator[PostgresStore]:
        store = PostgresStore(self.url, key=self.key, wall_ms=clock or Clock(NOW_MS), checkpoint_every=50)
        await store.open()
        try:
            yield store
        finally:
            await store.close()

    async def with_upkeep(self, work: Callable[[StoreUpkeep], T], now_ms: int | None = None) -> T:
        """Do something with the upkeep of the store, in a thread as a hub does."""

        def working() -> T:
            upkeep = PgUpkeep(DatabaseAddress(self.url), self.key, wall_ms=lambda: now_ms or NOW_MS)
            try:
                return work(upkeep)
            finally:
                upkeep.close()

        return await asyncio.to_thread(working)

    async def verdict(self) -> AuditVerdict:
        async with self.opened() as store:
            return await store.verify()

    async def sql(self, statement: str, *values: object) -> list[tuple[object, ...]]:
        connection = await shared_server().connect(self.url)
        try:
            return await connection.fetch(statement, *values)
        finally:
            await connection.close()


_MADE: dict[tuple[object, ...], AgedDatabase] = {}
"""Databases that were written before: copying one is much faster than writing another."""


async def aged(folder: Path, *, days: int = 10, runs: int = 4, users: tuple[str, ...] = ("ann", "bob")) -> AgedDatabase:
    """Return a database with so many days of runs, as `ages.days` writes them."""
    server, what = shared_server(), (days, runs, users)
    if what not in _MADE:
        made = AgedDatabase(await server.database(), Path(mkdtemp(dir=server.folder)) / "hub.key")
        await fill(made.opened, START_MS, days=days, runs=runs, users=users)
        _MADE[what] = made
    made = _MADE[what]
    database = AgedDatabase(await server.database(f"TEMPLATE {made.url.rpartition('/')[2]}"), folder / "hub.key")
    database.key.touch(mode=0o600)
    database.key.write_bytes(made.key.read_bytes())
    return database
