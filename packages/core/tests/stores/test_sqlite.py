"""The store on disk keeps the promises of every store, whichever durability it has, and encrypted."""

from pathlib import Path

import pytest

from remit.ports import OrphanedRun, Store
from remit.stores.sqlite import Durability, SqliteStore
from remit_testing.conformance import StoreConformance
from remit_testing.samples import LONG_MS, OVER_MS, a_request, a_response


@pytest.mark.parametrize("kept", ["power", "process", "encrypted"])
class TestSqliteStore(StoreConformance):
    @pytest.fixture(autouse=True)
    def _set_path(self, tmp_path: Path, kept: str) -> None:
        self.path, self.encrypt = tmp_path / "hub.db", kept == "encrypted"
        self.durability: Durability = "power" if kept == "power" else "process"

    async def make(self) -> Store:
        return SqliteStore(self.path, durability=self.durability, encrypt=self.encrypt)

    async def reopen(self, store: Store) -> Store:
        return await self.make()


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


async def test_what_is_said_is_stored_once(tmp_path: Path) -> None:
    """O8: the record is event, audit row, message and outcome at once."""
    store = SqliteStore(tmp_path / "hub.db")
    await store.open()
    request = a_request()
    await store.submit(request, b"digest", worker="w", lease_ms=LONG_MS)
    await store.finish("run-one", 1, a_response(request, "a result like no other"), 1)
    await store.close()
    raw = store.path.read_bytes()
    assert (raw.count(b"Sort receipts"), raw.count(b"a result like no other")) == (1, 1)


async def test_a_request_outlives_its_process_with_what_it_had_finished(tmp_path: Path) -> None:
    """K13: another process takes up the run at the step that the first had reached."""
    first = SqliteStore(tmp_path / "hub.db")
    await first.open()
    await first.submit(a_request(), b"digest", worker="first", lease_ms=OVER_MS)
    first.journal("run-one", 1, "step", b"done")
    await first.close()
    second = SqliteStore(tmp_path / "hub.db")
    await second.open()
    assert await second.sweep(max_attempts=3, keep_ms=LONG_MS) == [OrphanedRun("run-one", a_request())]
    assert await second.claim("run-one", "second", LONG_MS) == 2
    assert await second.load("run-one") == {"step": b"done"}
    await second.close()
