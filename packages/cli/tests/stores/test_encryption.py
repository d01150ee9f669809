"""With `encrypt`, texts are stored under a key of their user, and whoever destroys that key destroys them."""

import sqlite3
from pathlib import Path

import pytest

from remit.ports import StoreError
from remit.ports.keys import HubKeys
from remit.ports.upkeep import Retention
from remit.protocol.envelope import ContextFilter
from remit.stores.audit import chain_rows
from remit.stores.connection import connect_reader
from remit.stores.sqlite import SqliteStore, verify_file
from remit.stores.user_keys import connect_plain
from remit_cli.store_archive import archive_segment, verify_archive
from remit_cli.store_backup import back_up, restore
from remit_cli.upkeep.sqlite import SqliteUpkeep
from secret_texts import ask, now_ms, texts_of, write

KEYS = HubKeys(b"secret")


async def opened(path: Path, *, encrypt: bool = True) -> SqliteStore:
    store = SqliteStore(path, durability="process", encrypt=encrypt)
    await store.open()
    return store


async def written(folder: Path) -> Path:
    await write(SqliteStore(folder / "hub.db", durability="process", encrypt=True))
    return folder / "hub.db"


async def texts_in(path: Path) -> str:
    return await texts_of(SqliteStore(path, durability="process", encrypt=True))


async def test_no_text_is_readable_in_the_file_and_all_of_it_through_the_store(tmp_path: Path) -> None:
    """Y14: texts are encrypted at rest, and the digests are over what is stored."""
    path = await written(tmp_path)
    assert b"secret" not in path.read_bytes()
    text = await texts_in(path)
    assert all(f"secret {what} ann" in text for what in ("step of", "answer to", "fact of", "note of"))
    assert verify_file(path).ok
    path.with_name("hub.db.key").rename(tmp_path / "away")
    assert verify_file(path).ok  # no key is needed for that
    with pytest.raises(StoreError, match="with it the texts of 3 users"):
        await opened(path)


async def test_keywords_are_found_without_an_index_of_plain_words(tmp_path: Path) -> None:
    store = await opened(tmp_path / "hub.db")
    for number in range(60):
        await ask(store, f"n{number}", "ann")
    wanted = ContextFilter(keywords=("answer to",), last_messages=5)
    messages = await store.messages("s-ann", wanted, now_ms=now_ms(), tokens=100_000)
    assert [each.text for each in messages] == ["secret answer to ann"] * 5
    await store.close()
    connection = sqlite3.connect(store.path)
    assert connection.execute("SELECT sum(words) FROM conversation").fetchone() == (0,)
    connection.close()


async def test_an_erased_user_is_unreadable_in_archive_and_backup_too(tmp_path: Path) -> None:
    """Y15: destroying a user's key erases them wherever their texts are kept without it."""
    path = await written(tmp_path)
    archive, backup, keys = tmp_path / "archive", tmp_path / "out" / "backup", tmp_path / "out" / "keys"
    backup.parent.mkdir()
    back_up(path, backup, keys_to=keys)
    upkeep = SqliteUpkeep(path, durability="process")
    for segment in upkeep.segments():
        archive_segment(upkeep, segment, archive)
    done = upkeep.erase("ann", KEYS)
    upkeep.close()
    assert (done.rows, done.facts) == (9, 1)
    assert verify_file(path).ok
    text = await texts_in(path)
    assert "of ann" not in text
    assert "secret answer to bob" in text
    upkeep = SqliteUpkeep(path)
    assert list(upkeep.kept_about("ann", KEYS)) == []
    assert verify_archive(archive, stored=lambda after, last: chain_rows(upkeep.connection, after, last)).ok
    upkeep.close()
    assert all(b"secret" not in file.read_bytes() for file in archive.iterdir())
    assert b"secret" not in backup.read_bytes()
    # The keys that are saved now open the older backup for everyone but the erased user.
    back_up(path, tmp_path / "out" / "newer", keys_to=keys)
    target = tmp_path / "new" / "hub.db"
    restore(backup, target, keys=keys)
    connection = connect_plain(target, 1)
    with pytest.raises(StoreError, match="the key of these texts is gone"):
        connection.execute("SELECT body FROM record WHERE run = 'run-a0'").fetchall()
    ((body,),) = connection.execute("SELECT body FROM record WHERE run = 'run-b0' AND kind = 1").fetchall()
    assert b"secret of bob" in body
    connection.close()
    assert verify_file(target).ok


async def test_a_hub_at_work_notices_that_a_key_was_destroyed(tmp_path: Path) -> None:
    path = await written(tmp_path)
    store = await opened(path)
    await ask(store, "later", "ann")
    upkeep = SqliteUpkeep(path, durability="process")
    upkeep.erase("ann", KEYS)
    upkeep.close()
    await ask(store, "again", "ann")
    assert (await store.facts("ann")) == ("secret fact of ann",)
    assert [each.run for each in await store.runs(user="ann")] == ["run-again"]
    await store.close()
    assert "secret answer to ann" in await texts_in(path)
    assert verify_file(path).ok


async def test_texts_of_encrypted_records_are_pruned(tmp_path: Path) -> None:
    path = await written(tmp_path)
    upkeep = SqliteUpkeep(path, durability="process", wall_ms=lambda: now_ms() + 10_000)
    pruned = upkeep.prune(Retention(messages=5_000))
    upkeep.close()
    assert pruned.texts == 18
    assert verify_file(path).ok
    text = await texts_in(path)
    assert "secret answer" not in text
    store = await opened(path)
    assert len(await store.runs(user="ann")) == 3
    await store.close()


async def test_encryption_can_be_switched_on_and_off(tmp_path: Path) -> None:
    path = tmp_path / "hub.db"
    for name, encrypt in (("plain", False), ("locked", True), ("open", False)):
        store = await opened(path, encrypt=encrypt)
        await ask(store, name, name)
        await store.close()
    raw = path.read_bytes()
    assert (b"secret of plain" in raw, b"secret of locked" in raw, b"secret of open" in raw) == (True, False, True)
    text = await texts_in(path)
    assert all(f"secret answer to {name}" in text for name in ("plain", "locked", "open"))
    assert verify_file(path).ok


async def test_a_key_of_a_transaction_that_failed_is_not_used(tmp_path: Path) -> None:
    fails = False

    def hook() -> None:
        if fails:
            raise ValueError("no")

    store = SqliteStore(tmp_path / "hub.db", durability="process", encrypt=True, commit_hook=hook)
    await store.open()
    fails = True
    store.remember("ann", "run", ("a fact",))
    with pytest.raises(StoreError):
        await store.incr("key", 1, 1_000)
    fails = False
    store.remember("ann", "run", ("secret fact",))
    await store.flush()
    assert "secret fact" in await store.facts("ann")
    await store.close()
    connection = connect_reader(store.path, 1)
    ((count,),) = connection.execute("SELECT count(*) FROM user_key WHERE by_user = 'ann'").fetchall()
    connection.close()
    assert count == 1
