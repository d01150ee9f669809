"""The disk of a real server is full: nothing acknowledged is lost, callers are told, and room is used at once."""

import subprocess
from collections.abc import Generator
from contextlib import suppress
from pathlib import Path

import asyncpg  # pyright: ignore[reportMissingTypeStubs]
import pytest

from postgres_load import Load
from postgres_server import PostgresServer
from remit.ports import AcceptedRequest, StoreError
from remit.protocol.errors import Code
from remit.protocol.records import Kind
from remit_cluster.postgres.store import PostgresStore
from remit_testing.samples import LONG_MS, a_request, code_of, progress
from waiting import eventually


@pytest.fixture
def server() -> Generator[PostgresServer]:
    try:
        server = PostgresServer("fsync=off", "autovacuum=off", small_disk_mb=24)
    except subprocess.SubprocessError:
        pytest.skip("NOT TESTED: a full disk of PostgreSQL: no disk can be mounted here without more rights")
    yield server
    server.remove()


async def test_on_a_full_disk_callers_are_told_and_everything_is_kept(
    server: PostgresServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("remit_cluster.postgres.writer.PATIENCE_SECONDS", 0.2)
    await server.sql(f"CREATE TABLESPACE small LOCATION '{server.folder / 'small'}'")
    url = await server.database("TABLESPACE small")
    store = PostgresStore(url, key=tmp_path / "hub.key")
    await store.open()
    async with Load(store) as load:
        await load.more()
        connection = await server.connect(url)
        await connection.execute("CREATE TABLE ballast (content text STORAGE external)")
        for size in (1_000_000, 50_000, 2_000):  # until not even a page is left
            with suppress(asyncpg.DiskFullError):
                while True:
                    await connection.execute("INSERT INTO ballast VALUES (repeat('x', $1))", size)
        await eventually(lambda: load.unsure)
        store.append(Kind.PROGRESS, 1, "run-kept", "session", progress("kept"))
        attempt = store.submit(a_request("new"), b"digest", worker="w", lease_ms=LONG_MS)
        assert await code_of(attempt) is Code.STORE_UNAVAILABLE
        assert "the disk of the server is full" in caplog.text
        await connection.execute("DROP TABLE ballast")
        await connection.execute("CHECKPOINT")  # which gives the space back
        await connection.close()
        await load.more()

    async def submitted() -> object:
        try:
            return await store.submit(a_request("new"), b"digest", worker="w", lease_ms=LONG_MS)
        except StoreError:
            return None

    assert await eventually(submitted, when=lambda outcome: outcome is not None) == AcceptedRequest(1)
    records = await store.records(limit=1_000_000)
    assert [each.run for each in records if each.run == "run-kept"] == ["run-kept"]
    results = [each.run for each in records if each.kind is Kind.RESULT]
    assert len(results) == len(set(results))
    assert {f"run-{name}" for name in load.answered} <= set(results)
    verdict = await store.verify()
    assert (verdict.ok, verdict.rows, verdict.unchained) == (True, len(records), 0)
    await store.close()
