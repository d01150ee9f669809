"""Whatever is wrong with the disk or the file is named, and nothing that was queued is lost."""

import asyncio
import os
import stat
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import apsw
import pytest

from remit.ports import AcceptedRequest, StoreError
from remit.protocol.errors import Code
from remit.protocol.records import Kind
from remit.stores.connection import SqliteConnection, connect_writer
from remit.stores.sqlite import SqliteStore, verify_file
from remit_testing.samples import LONG_MS, a_request, a_response, code_of, progress, texts
from waiting import PATIENCE_S


@pytest.fixture
def connections() -> Generator[list[SqliteConnection]]:
    """The connections that are made during the test; a store's first one writes."""
    made: list[Any] = []
    apsw.connection_hooks.append(made.append)
    yield made
    apsw.connection_hooks.remove(made.append)


@contextmanager
def full_disk(writer: SqliteConnection) -> Generator[None]:
    pages = writer.pragma("page_count")
    writer.pragma("max_page_count", pages)
    yield
    writer.pragma("max_page_count", pages + 10_000)


async def use(store: SqliteStore) -> None:
    await store.open()
    try:
        await store.records()
    finally:
        await store.close()


async def opening(path: Path) -> StoreError:
    with pytest.raises(StoreError) as caught:
        await SqliteStore(path, busy_seconds=0.05).open()
    assert caught.value.fault.code is Code.STORE_UNAVAILABLE
    assert str(path) in caught.value.fault.message
    assert caught.value.fault.suggestion
    return caught.value


async def test_nothing_is_lost_while_the_disk_is_full(tmp_path: Path, connections: list[SqliteConnection]) -> None:
    store = SqliteStore(tmp_path / "hub.db")
    await store.open()
    with full_disk(connections[0]):
        for number in range(200):
            store.append(Kind.PROGRESS, number, "run", "session", progress(f"{number} " + "x" * 500))
        with pytest.raises(StoreError, match="full"):
            await store.flush()
        refused = store.submit(a_request(), b"digest", worker="w", lease_ms=LONG_MS)
        assert await code_of(refused) is Code.STORE_UNAVAILABLE
    await store.flush()
    assert [text.split()[0] for text in texts(await store.records())] == [str(number) for number in range(200)]
    assert await store.submit(a_request(), b"digest", worker="w", lease_ms=LONG_MS) == AcceptedRequest(1)
    assert (await store.verify()).ok
    await store.close()


async def test_what_waits_for_a_full_disk_is_written_by_itself_once_there_is_room(
    tmp_path: Path, connections: list[SqliteConnection]
) -> None:
    store, written = SqliteStore(tmp_path / "hub.db"), asyncio.Event()
    await store.open()
    store.listen(lambda _: written.set())
    with full_disk(connections[0]):
        store.append(Kind.PROGRESS, 1, "run", "session", progress("x" * 100_000))
        with pytest.raises(StoreError):
            await store.flush()
        assert not written.is_set()
    async with asyncio.timeout(PATIENCE_S):
        await written.wait()
    await store.close()


async def test_a_failed_close_says_so_and_keeps_the_queue_for_the_next_open(
    tmp_path: Path, connections: list[SqliteConnection]
) -> None:
    store = SqliteStore(tmp_path / "hub.db")
    await store.open()
    connections[0].pragma("max_page_count", connections[0].pragma("page_count"))
    store.append(Kind.PROGRESS, 1, "run", "session", progress("x" * 100_000))
    with pytest.raises(StoreError, match="full"):
        await store.close()
    await store.open()
    await store.flush()
    assert len(await store.records()) == 1
    await store.close()


async def test_a_failed_finish_can_be_repeated(tmp_path: Path, connections: list[SqliteConnection]) -> None:
    store = SqliteStore(tmp_path / "hub.db")
    await store.open()
    await store.submit(a_request(), b"digest", worker="w", lease_ms=LONG_MS)
    response = a_response(a_request(), "x" * 100_000)
    with full_disk(connections[0]):
        assert await code_of(store.finish("run-one", 1, response, 1)) is Code.STORE_UNAVAILABLE
    assert await store.finish("run-one", 1, response, 1)
    assert len(await store.records()) == 2
    await store.close()


async def test_a_file_that_another_process_keeps_locked_is_named_and_written_to_afterwards(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "hub.db", busy_seconds=0.05)
    await store.open()
    other = connect_writer(store.path, "process", 1)
    other.execute("BEGIN IMMEDIATE")
    store.append(Kind.PROGRESS, 1, "run", "session", progress("patient"))
    with pytest.raises(StoreError, match="locked"):
        await store.flush()
    await opening(store.path)
    other.execute("ROLLBACK")
    other.close()
    await store.flush()
    assert texts(await store.records()) == ["patient"]
    await store.close()


async def test_a_file_that_is_no_database_is_named_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("no database " * 1_000)
    assert "not a SQLite database" in (await opening(path)).fault.message
    assert path.read_text() == "no database " * 1_000


async def test_the_database_of_another_program_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "other.db"
    connection = connect_writer(path, "process", 1)
    connection.execute("CREATE TABLE theirs (x)")
    connection.close()
    assert "another program" in (await opening(path)).fault.message
    with pytest.raises(StoreError, match="another program"):
        verify_file(path)


async def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "hub.db")
    await store.open()
    for number in range(500):
        store.append(Kind.PROGRESS, number, "run", "session", progress("x" * 200))
    await store.close()
    raw = bytearray(store.path.read_bytes())
    raw[4096 : len(raw)] = os.urandom(len(raw) - 4096)
    store.path.write_bytes(raw)
    with pytest.raises(StoreError, match=r"damaged|malformed"):
        verify_file(store.path)
    with pytest.raises(StoreError, match=r"damaged|malformed"):
        await use(store)


async def test_a_file_that_a_newer_program_wrote_is_named_and_left_alone(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "hub.db")
    await store.open()
    await store.close()
    connection = connect_writer(store.path, "process", 1)
    connection.pragma("user_version", 99)
    connection.close()
    assert "has version 99" in (await opening(store.path)).fault.message
    with pytest.raises(StoreError, match="has version 99"):
        verify_file(store.path)


async def test_a_folder_in_place_of_the_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "hub.db"
    path.mkdir()
    await opening(path)


async def test_a_file_in_place_of_a_folder_is_named(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("")
    await opening(tmp_path / "taken" / "hub.db")


async def test_a_missing_folder_is_made(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "not" / "there" / "hub.db")
    await store.open()
    await store.close()
    assert store.path.exists()


async def test_a_damaged_key_is_named(tmp_path: Path) -> None:
    (tmp_path / "hub.db.key").write_text("no key")
    with pytest.raises(StoreError, match=r"hub\.db\.key is damaged"):
        await SqliteStore(tmp_path / "hub.db").open()


async def test_nobody_else_can_read_what_is_stored(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "hub.db")
    await store.open()
    store.append(Kind.PROGRESS, 1, "run", "session", progress("secret"))
    await store.flush()
    while_open = {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()}
    await store.close()
    afterwards = {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()}
    assert while_open == dict.fromkeys(["hub.db", "hub.db-wal", "hub.db-shm", "hub.db.key"], 0o600)
    assert afterwards == dict.fromkeys(["hub.db", "hub.db.key", "hub.db.checkpoints"], 0o600)


@pytest.fixture
def folder_of_nobody() -> Generator[Path]:
    """A folder in which whoever runs the test may be kept from writing: root first becomes nobody."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        is_root = os.geteuid() == 0
        if is_root:
            os.chown(folder, 65534, 65534)
            os.seteuid(65534)
        yield folder
        folder.chmod(0o700)
        if is_root:
            os.seteuid(0)


async def test_a_folder_that_may_not_be_written_to_is_named(folder_of_nobody: Path) -> None:
    folder_of_nobody.chmod(0o500)
    assert "Permission denied" in (await opening(folder_of_nobody / "hub.db")).fault.message


async def test_a_file_that_may_not_be_written_to_is_named_and_can_still_be_verified(folder_of_nobody: Path) -> None:
    store = SqliteStore(folder_of_nobody / "hub.db")
    await store.open()
    store.append(Kind.PROGRESS, 1, "run", "session", progress("kept"))
    await store.close()
    store.path.chmod(0o400)
    await opening(store.path)
    assert verify_file(store.path).ok
    folder_of_nobody.chmod(0o500)
    assert verify_file(store.path).ok
