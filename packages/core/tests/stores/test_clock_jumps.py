"""A clock that jumps makes no id usable again before its time: the window goes by time that passed."""

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from remit.ports import AcceptedRequest, DuplicateRequest, Store
from remit.runtime.clock import LEAST_JUMP_MS, MOST_PAUSE_MS, Jumps
from remit.stores.sqlite import SqliteStore
from remit_testing import MemoryStore
from remit_testing.samples import a_request, a_response

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
NOW_MS = 1_000 * DAY_MS
LEASE_MS = 5_000


class Machine:
    """A machine with two clocks: one only passes, the other can be set."""

    def __init__(self) -> None:
        self.passed_ms = 0
        self.set_ms = NOW_MS

    def wall_ms(self) -> int:
        return self.set_ms + self.passed_ms

    def monotonic(self) -> float:
        return self.passed_ms / 1_000

    def sqlite(self, path: Path) -> SqliteStore:
        return SqliteStore(path, durability="process", wall_ms=self.wall_ms, monotonic=self.monotonic)


@pytest.fixture
def machine() -> Machine:
    return Machine()


@pytest.fixture(params=["sqlite", "memory"])
async def store(request: pytest.FixtureRequest, tmp_path: Path, machine: Machine) -> AsyncGenerator[Store]:
    memory = MemoryStore(wall_ms=machine.wall_ms, monotonic=machine.monotonic)
    made = machine.sqlite(tmp_path / "hub.db") if request.param == "sqlite" else memory
    await made.open()
    yield made
    await made.close()


async def sweep(store: Store) -> None:
    await store.sweep(max_attempts=3, keep_ms=DAY_MS)


async def finished(store: Store, machine: Machine) -> None:
    await store.submit(a_request(), b"digest", worker="w", lease_ms=LEASE_MS)
    await store.finish("run-one", 1, a_response(a_request()), machine.wall_ms())
    await sweep(store)


async def is_known(store: Store) -> bool:
    return isinstance(await store.find(a_request(), b"digest"), DuplicateRequest)


async def pass_time(store: Store, machine: Machine, ms: int) -> None:
    """Let time pass for a hub that sweeps every now and then."""
    while ms > 0:
        machine.passed_ms += min(ms, HOUR_MS)
        ms -= HOUR_MS
        await sweep(store)


@pytest.mark.parametrize("days", [2, 40, 4_000])
async def test_an_id_stays_used_though_the_clock_jumps(store: Store, machine: Machine, days: int) -> None:
    await finished(store, machine)
    machine.set_ms += days * DAY_MS
    for _ in range(2):
        machine.passed_ms += 1_700
        await sweep(store)
    assert await is_known(store)
    await pass_time(store, machine, 23 * HOUR_MS)
    assert await is_known(store)
    await pass_time(store, machine, HOUR_MS)
    assert not await is_known(store)
    assert await store.submit(a_request(), b"other", worker="w", lease_ms=LEASE_MS) == AcceptedRequest(1)


async def test_what_finished_after_the_jump_is_kept_no_longer_than_its_window(store: Store, machine: Machine) -> None:
    await sweep(store)
    machine.set_ms += 40 * DAY_MS
    await store.submit(a_request(), b"digest", worker="w", lease_ms=LEASE_MS)
    await store.finish("run-one", 1, a_response(a_request()), machine.wall_ms())
    await pass_time(store, machine, 23 * HOUR_MS)
    assert await is_known(store)
    await pass_time(store, machine, 2 * HOUR_MS)
    assert not await is_known(store)


async def test_an_id_stays_used_though_the_clock_is_set_back(store: Store, machine: Machine) -> None:
    await finished(store, machine)
    machine.set_ms += 40 * DAY_MS
    await pass_time(store, machine, HOUR_MS)
    machine.set_ms -= 40 * DAY_MS
    await pass_time(store, machine, 22 * HOUR_MS)
    assert await is_known(store)
    await pass_time(store, machine, 3 * HOUR_MS)
    assert not await is_known(store)


async def test_a_jump_takes_no_run_from_the_hub_that_works_on_it(store: Store, machine: Machine) -> None:
    """Another hub on the same store must not take up what is not left behind."""
    await store.submit(a_request(), b"digest", worker="w", lease_ms=LEASE_MS)
    assert await store.sweep(max_attempts=3, keep_ms=DAY_MS) == []
    machine.set_ms += 40 * DAY_MS
    assert await store.sweep(max_attempts=3, keep_ms=DAY_MS) == []
    machine.passed_ms += LEASE_MS + 1
    assert [each.run for each in await store.sweep(max_attempts=3, keep_ms=DAY_MS)] == ["run-one"]


async def test_a_clock_that_is_set_back_keeps_no_dead_hubs_run_claimed(store: Store, machine: Machine) -> None:
    machine.set_ms += 40 * DAY_MS
    await store.submit(a_request(), b"digest", worker="w", lease_ms=LEASE_MS)
    assert await store.sweep(max_attempts=3, keep_ms=DAY_MS) == []
    machine.set_ms -= 40 * DAY_MS
    await sweep(store)
    machine.passed_ms += LEASE_MS + 1
    assert [each.run for each in await store.sweep(max_attempts=3, keep_ms=DAY_MS)] == ["run-one"]


# ── restarts ──────────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_jump_between_two_starts_costs_an_id_no_more_than_an_hour(tmp_path: Path, machine: Machine) -> None:
    store = machine.sqlite(tmp_path / "hub.db")
    await store.open()
    await finished(store, machine)
    await store.close()
    machine.set_ms += 40 * DAY_MS
    store = machine.sqlite(tmp_path / "hub.db")
    await store.open()
    await pass_time(store, machine, 22 * HOUR_MS)
    assert await is_known(store)
    await pass_time(store, machine, 2 * HOUR_MS)
    assert not await is_known(store)
    await store.close()


async def test_short_pauses_count_in_full(tmp_path: Path, machine: Machine) -> None:
    """A store that is only ever open for a moment forgets as well."""
    store = machine.sqlite(tmp_path / "hub.db")
    await store.open()
    await finished(store, machine)
    for _ in range(23):
        await store.close()
        machine.passed_ms += HOUR_MS
        store = machine.sqlite(tmp_path / "hub.db")
        await store.open()
        await sweep(store)
    assert await is_known(store)
    await pass_time(store, machine, HOUR_MS)
    assert not await is_known(store)
    await store.close()


async def test_two_hubs_that_see_the_same_jump_move_the_window_once(tmp_path: Path, machine: Machine) -> None:
    one, two = machine.sqlite(tmp_path / "hub.db"), machine.sqlite(tmp_path / "hub.db")
    await one.open()
    await two.open()
    await finished(one, machine)
    await sweep(two)
    machine.set_ms += 40 * DAY_MS
    await sweep(one)
    await sweep(two)
    assert await is_known(one)
    for _ in range(24):
        machine.passed_ms += HOUR_MS
        await sweep(two)
        await sweep(one)
    assert not await is_known(one)
    await one.close()
    await two.close()


def test_a_clock_that_is_set_right_by_a_little_has_not_jumped() -> None:
    machine = Machine()
    jumps = Jumps(machine.monotonic)
    jumps.noted(machine.wall_ms())
    machine.set_ms += LEAST_JUMP_MS
    assert jumps.since(NOW_MS, machine.wall_ms()) == 0
    machine.set_ms += 1
    assert jumps.since(NOW_MS, machine.wall_ms()) == LEAST_JUMP_MS + 1
    assert Jumps(machine.monotonic).since(NOW_MS - MOST_PAUSE_MS, NOW_MS + LEAST_JUMP_MS) == 0
    assert Jumps(machine.monotonic).since(0, NOW_MS) == 0
