"""A store behind a real PgBouncer in transaction mode, which gives each transaction another connection."""

import asyncio
import os
from collections.abc import Generator
from contextlib import suppress
from pathlib import Path
from typing import ClassVar

import pytest

from pgbouncer import PgBouncer, Unavailable
from postgres_load import Load
from postgres_server import shared_server
from remit.ports import Store, StoreError
from remit_cluster.postgres.store import PostgresStore
from remit_testing.conformance import StoreConformance
from remit_testing.samples import LONG_MS, a_request, a_response
from waiting import eventually


@pytest.fixture(scope="module")
def pooler() -> Generator[PgBouncer]:
    try:
        pooler = PgBouncer(shared_server())
    except Unavailable as reason:
        if "REMIT_POOLER" in os.environ:
            raise
        pytest.skip(f"NOT TESTED: a store behind PgBouncer: {reason}")
    yield pooler
    pooler.remove()


@pytest.fixture
def key(tmp_path: Path) -> Path:
    return tmp_path / "hub.key"


async def test_two_hubs_behind_a_pooler_lose_nothing_and_hear_of_outcomes_by_asking(
    pooler: PgBouncer, key: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("remit_cluster.postgres.waiting.ECHO_SECONDS", 0.2)
    server = shared_server()
    url = pooler.url(await server.database())
    stores = [PostgresStore(url, key=key, pooler=True) for _ in range(2)]
    for store in stores:
        await store.open()
    first, second = stores
    async with Load(first, "a") as one, Load(second, "b") as two:
        await one.more()
        await two.more()
        # More clients than connections: the pooler gives each transaction another one.
        database = url.rpartition("/")[2]
        await server.sql(f"SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE datname = '{database}'")
        await one.more()
        await two.more()
    await first.flush()
    records = await second.records(limit=1_000_000)
    results = [record.run for record in records if record.kind == "result"]
    assert len(results) == len(set(results))
    assert {f"run-{name}" for name in one.answered | two.answered} <= set(results)
    verdict = await second.verify()
    assert (verdict.ok, verdict.rows, verdict.unchained) == (True, len(records), 0)
    # Session locks would be left behind in the connections of the pooler, for whoever comes next.
    assert await server.sql("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'", database) == 0
    await first.submit(a_request(), b"digest", worker="w", lease_ms=LONG_MS)
    async with asyncio.timeout(10), asyncio.TaskGroup() as group:
        waiting = group.create_task(second.wait("run-one"))
        await asyncio.sleep(0.05)
        await first.finish("run-one", 1, a_response(a_request()), 1)
    assert waiting.result() == a_response(a_request())
    for store in stores:
        await store.close()


async def test_a_pooler_that_the_settings_do_not_name_is_named(pooler: PgBouncer, key: Path) -> None:
    url = pooler.url(await shared_server().database())
    stores = [PostgresStore(url, key=key) for _ in range(4)]
    messages: list[str] = []

    async def use(store: PostgresStore) -> None:
        try:
            await store.open()
            await store.submit(a_request(), b"digest", worker="w", lease_ms=LONG_MS)
            await store.records()
        except StoreError as error:
            messages.append(f"{error.fault.message} {error.fault.suggestion}")

    async def is_said() -> bool:
        await asyncio.gather(*map(use, stores))
        return bool(messages)

    await eventually(is_said)
    assert "a pooler gave this session to others" in messages[0]
    assert "`pooler = true`" in messages[0]
    for store in stores:
        with suppress(StoreError):  # for the same reason
            await store.close()


class _BehindPgBouncer(StoreConformance):
    url: ClassVar[str] = ""
    key: ClassVar[Path]

    @pytest.fixture(autouse=True)
    def _set_path(self, pooler: PgBouncer, tmp_path_factory: pytest.TempPathFactory) -> None:
        self.pooler = pooler
        if not self.url:
            type(self).key = tmp_path_factory.mktemp("key") / "hub.key"

    async def make(self) -> Store:
        if self.url:
            await shared_server().emptied(self.url)
        else:
            type(self).url = await shared_server().database()
        return await self.reopen()

    async def reopen(self, store: Store | None = None) -> Store:
        return PostgresStore(self.pooler.url(self.url), key=self.key, pooler=True)


if "REMIT_POOLER" in os.environ:  # `make test-pooler`

    class TestBehindPgBouncer(_BehindPgBouncer):
        """The promises of every store, kept through a pooler."""
