"""The store on disk keeps the promises of every store, whichever durability it has."""

from pathlib import Path

import pytest

from remit.runtime.ports import Store
from remit.stores.sqlite import Durability, SqliteStore
from remit.testing.conformance import StoreConformance


@pytest.mark.parametrize("durability", ["power", "process"])
class TestSqliteStore(StoreConformance):
    @pytest.fixture(autouse=True)
    def _place(self, tmp_path: Path, durability: Durability) -> None:
        self.path = tmp_path / "hub.db"
        self.durability: Durability = durability

    async def make(self) -> Store:
        return SqliteStore(self.path, durability=self.durability)

    async def reopen(self, store: Store) -> Store:
        return SqliteStore(self.path, durability=self.durability)


async def test_a_counter_starts_anew_in_the_next_window(tmp_path: Path) -> None:
    now_ms = 1_000
    store = SqliteStore(tmp_path / "hub.db", wall_ms=lambda: now_ms)
    await store.open()
    assert [await store.incr("key", 1, 100), await store.incr("key", 1, 100)] == [1, 2]
    now_ms = 1_100
    assert await store.incr("key", 1, 100) == 1
    now_ms = 1_099
    assert await store.incr("key", 1, 100) == 2
    await store.close()
