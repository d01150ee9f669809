"""The store for tests keeps the promises of the one on disk, commits at once and leaves nothing behind."""

import gc

from remit.ports import Store
from remit.protocol.records import Kind
from remit_testing.conformance import StoreConformance
from remit_testing.memory import MemoryStore
from remit_testing.samples import progress


class TestMemoryStore(StoreConformance):
    async def make(self) -> Store:
        return MemoryStore()


async def test_a_counter_starts_anew_in_the_next_window() -> None:
    now_ms = 1_000
    store = MemoryStore(wall_ms=lambda: now_ms)
    await store.open()
    assert [await store.incr("key", 1, 100), await store.incr("key", 1, 100)] == [1, 2]
    now_ms = 1_100
    assert await store.incr("key", 1, 100) == 1
    now_ms = 1_099
    assert await store.incr("key", 1, 100) == 2


async def test_what_is_appended_is_read_at_once_and_again_after_it_was_closed() -> None:
    store = MemoryStore()
    await store.open()
    store.append(Kind.PROGRESS, 1, "run-one", "s", progress("half"))
    assert [record.body for record in await store.records()] == [progress("half")]
    await store.close()
    await store.open()
    assert [record.body for record in await store.records()] == [progress("half")]
    await store.close()


async def test_its_folder_is_deleted_with_it() -> None:
    store = MemoryStore()
    await store.open()
    await store.close()
    folder = store.path.parent
    assert folder.exists()
    del store
    gc.collect()
    assert not folder.exists()
