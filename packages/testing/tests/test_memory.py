"""The in-memory store keeps the same promises as the one on disk."""

from remit.runtime.ports import Store
from remit_testing.conformance import StoreConformance
from remit_testing.memory import MemoryStore


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
