"""Stores whose records were written over many days, for tests of what happens to them over the years."""

from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from pathlib import Path
from typing import TypeVar

from msgspec.structs import replace

from remit.ports import FACTS, AcceptedRequest, SealedValue, Store
from remit.protocol.envelope import Note, Request
from remit.protocol.records import Kind
from remit.runtime.audit import AuditVerdict
from remit.stores.sqlite import SqliteStore, verify_file
from remit_cli.upkeep.sqlite import SqliteUpkeep
from remit_cli.upkeep.store_upkeep import StoreUpkeep
from remit_testing.samples import LONG_MS, a_request, a_response, progress

T = TypeVar("T")

DAY_MS = 24 * 3_600_000
# Some day in 2026.
START_MS = 1_780_000_000_000


class Clock:
    """The wall clock of a store, in the hands of the test."""

    def __init__(self, now_ms: int = START_MS) -> None:
        self.now_ms = now_ms

    def __call__(self) -> int:
        return self.now_ms


async def ask(store: Store, clock: Clock, name: str, *, user: str = "ann", ends: bool = True) -> Request:
    """Have a run that says its own name, in a session of its user's; return its request."""
    request = a_request(name)
    request = replace(
        request,
        objective=f"Please sort {name}",
        session=f"session of {user}",
        remit=replace(request.remit, user=user),
        created_ms=clock(),
    )
    assert isinstance(await store.submit(request, b"digest", worker="w", lease_ms=LONG_MS), AcceptedRequest)
    store.append(Kind.PROGRESS, clock(), request.run, f"session of {user}", progress(f"half of {name}"))
    store.seal(request.run, [SealedValue("<NAME_1>", b"locked", True)])
    if ends:
        response = replace(a_response(request, f"sorted {name}"), session=f"session of {user}")
        await store.finish(request.run, 1, response, clock())
    return request


@asynccontextmanager
async def opened(path: Path, clock: Clock) -> AsyncGenerator[SqliteStore]:
    store = SqliteStore(
        path, durability="process", wall_ms=clock, monotonic=lambda: clock() / 1_000, checkpoint_every=50
    )
    await store.open()
    try:
        yield store
    finally:
        await store.close()


async def days(folder: Path, *, days: int = 10, runs: int = 4, users: tuple[str, ...] = ("ann", "bob")) -> Path:
    """Return the file of a store with so many days of runs, in the names of the users by turns.

    The runs of all but the last day are over, and forgotten as outcomes; `open-one`, of the second day, never ended.
    """
    path = folder / "hub.db"
    await fill(lambda clock: opened(path, clock), START_MS, days=days, runs=runs, users=users)
    return path


async def fill(
    opened: Callable[[Clock], AbstractAsyncContextManager[Store]],
    start_ms: int,
    *,
    days: int = 10,
    runs: int = 4,
    users: tuple[str, ...] = ("ann", "bob"),
) -> None:
    """Have so many days of runs in a store, from *start_ms* on."""
    clock = Clock()
    for day in range(days):
        clock.now_ms = start_ms + day * DAY_MS
        async with opened(clock) as store:
            for number in range(runs):
                await ask(store, clock, f"d{day}n{number}", user=users[number % len(users)])
            if day == 1:
                await ask(store, clock, "open-one", user="eve", ends=False)
            for user in users:
                store.remember(user, f"d{day}n0", (f"{user} likes day {day}",))
                store.note(f"session of {user}", [Note(kind="decision", text=f"day {day} of {user}", by="prime")])
                store.seal(FACTS + user, [SealedValue(f"<NAME_{day}>", b"locked", True)])
                await store.session(f"session of {user}", user, "prime")
                store.seal(f"session of {user}", [SealedValue(f"<NAME_{day}>", b"locked", True)])
            await store.sweep(max_attempts=3, keep_ms=DAY_MS if day == days - 1 else 0)


@contextmanager
def upkeep(path: Path, now_ms: int) -> Generator[SqliteUpkeep]:
    sqlite = SqliteUpkeep(path, durability="process", wall_ms=lambda: now_ms)
    try:
        yield sqlite
    finally:
        sqlite.close()


class AgedFile:
    """The file of a store with ten days of runs."""

    now_ms = START_MS + 10 * DAY_MS

    def __init__(self, path: Path) -> None:
        self.path = path

    def opened(self, clock: Clock | None = None) -> AbstractAsyncContextManager[SqliteStore]:
        return opened(self.path, clock or Clock(self.now_ms))

    async def with_upkeep(self, work: Callable[[StoreUpkeep], T], now_ms: int | None = None) -> T:
        with upkeep(self.path, now_ms or self.now_ms) as sqlite:
            return work(sqlite)

    async def verdict(self) -> AuditVerdict:
        return verify_file(self.path)
