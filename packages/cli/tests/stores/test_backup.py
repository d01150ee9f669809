"""A backup is made while hubs work, and a restore fences what was handed out since."""

import asyncio
import subprocess
import sys
import time
from pathlib import Path

import pytest
from msgspec.structs import replace

from commands import popen
from remit.ports import AcceptedRequest, DuplicateRequest, StoreError
from remit.protocol.errors import Code
from remit.protocol.lifecycle import Status
from remit.protocol.records import Kind
from remit.runtime.audit import Tampering
from remit.stores.opening import restoring_path
from remit.stores.sqlite import SqliteStore, verify_file
from remit_cli.store_backup import back_up, restore
from remit_testing.samples import LONG_MS, a_request, a_response, code_of, progress

RESTORER = Path(__file__).with_name("restorer.py")


def now_ms() -> int:
    return time.time_ns() // 1_000_000


async def opened(path: Path) -> SqliteStore:
    store = SqliteStore(path, durability="process")
    await store.open()
    return store


async def written(path: Path, runs: int = 3) -> Path:
    store = await opened(path)
    for number in range(runs):
        await submit(store, f"n{number}")
        await store.finish(f"run-n{number}", 1, a_response(a_request(f"n{number}")), now_ms())
    await submit(store, "open")
    await store.close()
    return path


async def submit(store: SqliteStore, name: str) -> None:
    request = replace(a_request(name), created_ms=now_ms())
    assert isinstance(await store.submit(request, b"digest", worker="w", lease_ms=LONG_MS), AcceptedRequest)


async def test_a_backup_under_load_is_whole(tmp_path: Path) -> None:
    """Y7: a backup that is made while a hub writes verifies, and holds everything that was acknowledged before it."""
    path, file = tmp_path / "hub.db", tmp_path / "out" / "hub.backup"
    file.parent.mkdir()
    store = await opened(path)
    acknowledged: list[str] = []
    stop = asyncio.Event()

    async def work() -> None:
        number = 0
        while not stop.is_set():
            number += 1
            await submit(store, f"w{number}")
            await store.finish(f"run-w{number}", 1, a_response(a_request(f"w{number}")), now_ms())
            acknowledged.append(f"run-w{number}")

    async with asyncio.TaskGroup() as group:
        group.create_task(work())
        while len(acknowledged) < 50:
            await asyncio.sleep(0)
        for copy in range(3):
            before = list(acknowledged)
            await asyncio.to_thread(back_up, path, file)
            target = tmp_path / f"copy-{copy}" / "hub.db"
            await asyncio.to_thread(restore, file, target, resume=True)
            assert verify_file(target).ok
            again = await opened(target)
            finished = {each.run for each in await again.runs(limit=100_000) if each.response}
            await again.close()
            assert set(before) <= finished
        stop.set()
    await store.close()


async def test_a_newer_store_is_not_overwritten(tmp_path: Path) -> None:
    path, file = await written(tmp_path / "hub.db"), tmp_path / "hub.backup"
    back_up(path, file)
    with pytest.raises(StoreError, match="as new as the backup"):
        restore(file, path)
    store = await opened(path)
    store.append(Kind.PROGRESS, now_ms(), "run", "session", progress("later"))
    with pytest.raises(StoreError, match="is in use"):
        restore(file, path, force=True)
    await store.close()
    with pytest.raises(StoreError, match="is newer than the backup: it has 1 more rows"):
        restore(file, path)
    done = restore(file, path, force=True)
    assert done.aside is not None
    assert verify_file(done.aside).rows == done.rows + 1
    assert verify_file(path).ok


async def test_another_store_is_not_overwritten_and_an_older_one_is(tmp_path: Path) -> None:
    path, file = await written(tmp_path / "hub.db"), tmp_path / "hub.backup"
    old = tmp_path / "older.backup"
    back_up(path, old)
    store = await opened(path)
    store.append(Kind.PROGRESS, now_ms(), "run", "session", progress("later"))
    await store.close()
    back_up(path, file)
    with pytest.raises(StoreError, match="is another one"):
        restore(file, await written(tmp_path / "other" / "hub.db"))
    # A store that the backup continues is older.
    behind = tmp_path / "behind" / "hub.db"
    restore(old, behind, resume=True)
    # The restore itself is on record, so it is another history now.
    with pytest.raises(StoreError, match="is another one"):
        restore(file, behind)


async def test_an_older_state_fences_what_was_handed_out_since(tmp_path: Path) -> None:
    """Y8: after a restore nothing is executed twice, and no worker of the lost time can write."""
    path, file = await written(tmp_path / "hub.db"), tmp_path / "hub.backup"
    back_up(path, file)
    store = await opened(path)
    await submit(store, "since")
    since = replace(a_request("since"), created_ms=now_ms() - 2)
    await store.finish("run-since", 1, a_response(since), now_ms())
    number = await store.control("run-open", "cancel", "ann", "enough")
    await store.close()

    done = restore(file, path, force=True)
    assert done.ended == 1
    verdict = verify_file(path)
    assert verdict.ok, verdict
    store = SqliteStore(path, durability="process", wall_ms=lambda: now_ms() + 5_000)
    await store.open()
    # The run that was open ended, and its worker writes no more.
    outcome = await store.wait("run-open")
    assert outcome.status is Status.FAILED
    assert outcome.fault is not None
    assert outcome.fault.code is Code.OUTCOME_UNKNOWN
    assert not await store.finish("run-open", 1, a_response(a_request("open")), now_ms())
    # A request of the lost time is not executed again; one that the backup knows is answered; a new one is accepted.
    assert await code_of(store.submit(since, b"digest", worker="w", lease_ms=LONG_MS)) is Code.OUTCOME_UNKNOWN
    known = replace(a_request("n0"), created_ms=since.created_ms)
    assert isinstance(await store.submit(known, b"digest", worker="w", lease_ms=LONG_MS), DuplicateRequest)
    new = replace(a_request("new"), created_ms=now_ms() + 5_000)
    assert isinstance(await store.submit(new, b"digest", worker="w", lease_ms=LONG_MS), AcceptedRequest)
    # Numbers of commands are not given again.
    assert await store.control("run-new", "cancel", "ann", "enough") > number
    notices = [each for each in await store.records() if each.kind is Kind.NOTICE]
    assert len(notices) == 1
    await store.close()


async def test_runs_go_on_if_nothing_was_done_since(tmp_path: Path) -> None:
    path, file = await written(tmp_path / "hub.db"), tmp_path / "hub.backup"
    back_up(path, file)
    target = tmp_path / "new" / "hub.db"
    assert restore(file, target, resume=True).ended == 0
    store = await opened(target)
    assert not await store.finish("run-open", 1, a_response(a_request("open")), now_ms())
    epoch = await store.claim("run-open", "v", LONG_MS)
    assert epoch is not None
    assert await store.finish("run-open", epoch, a_response(a_request("open")), now_ms())
    await store.close()


async def test_keys_are_part_of_it_or_named_as_not(tmp_path: Path) -> None:
    path, file, keys = await written(tmp_path / "hub.db"), tmp_path / "out.backup", tmp_path / "out.keys"
    (tmp_path / "hub.key").write_text("of the hub")
    done = back_up(path, file)
    assert (done.keys, done.missing) == (("hub.db.key",), ("hub.key",))
    done = back_up(path, file, keys_to=keys)
    assert done.keys == ()
    assert "hub.db.key" in done.missing
    assert file.stat().st_mode & 0o077 == keys.stat().st_mode & 0o077 == 0
    assert path.with_name("hub.db.key").read_bytes().split()[1] not in file.read_bytes()
    target = tmp_path / "new" / "hub.db"
    assert restore(file, target, keys=keys).lost == ()
    assert verify_file(target).ok
    # Without them it says what is lost, and the record says that the key has changed.
    bare = tmp_path / "bare" / "hub.db"
    assert len(restore(file, bare).lost) == 3
    store = await opened(bare)
    await store.close()
    assert {each.tampering for each in verify_file(bare).findings} == {Tampering.KEY_CHANGED}


async def test_what_is_no_backup_is_refused_and_a_backup_is_no_store(tmp_path: Path) -> None:
    path, file = await written(tmp_path / "hub.db"), tmp_path / "hub.backup"
    back_up(path, file)
    with pytest.raises(StoreError, match="is not a backup"):
        restore(path, tmp_path / "new.db")
    with pytest.raises(StoreError, match="is the database of another program"):
        await opened(file)
    keys = tmp_path / "keys"
    keys.write_text("{}")
    back_up(path, file, with_keys=False)
    with pytest.raises(StoreError, match="does not hold the keys"):
        restore(file, tmp_path / "new.db", keys=keys)


async def test_an_interrupted_restore_is_not_worked_on(tmp_path: Path) -> None:
    path = await written(tmp_path / "hub.db")
    restoring_path(path).touch()
    with pytest.raises(StoreError, match="was interrupted"):
        await opened(path)


async def test_a_damaged_store_is_replaced(tmp_path: Path) -> None:
    path, file = await written(tmp_path / "hub.db"), tmp_path / "hub.backup"
    back_up(path, file)
    path.write_bytes(b"damaged" * 1_000)
    done = restore(file, path)
    assert done.aside is not None
    assert verify_file(path).ok


async def test_two_restores_in_one_second_keep_both_stores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, file = await written(tmp_path / "hub.db"), tmp_path / "hub.backup"
    back_up(path, file)

    def frozen(*_: object) -> str:
        return "20261117015402"

    monkeypatch.setattr("time.strftime", frozen)
    aside = [restore(file, path, force=True).aside for _ in range(3)]
    assert [Path(each).name.removeprefix("hub.db.replaced-20261117015402") for each in aside if each] == [
        "",
        "-2",
        "-3",
    ]
    assert all(verify_file(each).ok for each in aside if each)


async def test_being_killed_leaves_the_old_store_or_the_new_one_or_says_so(tmp_path: Path) -> None:
    """Y9: kill -9 in the middle of backup and restore leaves no half of anything in its place."""
    path, file = await written(tmp_path / "hub.db", runs=200), tmp_path / "hub.backup"
    back_up(path, file)
    for kill in range(10):
        process = popen([sys.executable, str(RESTORER), str(path), str(file)], stdout=subprocess.PIPE)
        assert process.stdout is not None
        assert process.stdout.readline()
        time.sleep(0.02 * kill)  # anywhere in its work
        process.kill()
        process.communicate()
        if restoring_path(path).exists():
            with pytest.raises(StoreError, match="was interrupted"):
                await opened(path)
            restore(file, path, force=True)
        store = await opened(path)
        assert len(await store.runs(limit=1_000)) == 201
        await store.close()
        assert verify_file(path).ok
    assert restore(file, tmp_path / "new" / "hub.db").rows
