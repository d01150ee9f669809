"""A store that is copied, within an engine or to another one, is the same store: rows, chain, signatures, open runs."""

import asyncio
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import pytest
from msgspec.structs import replace

from ages import DAY_MS, START_MS, days, upkeep
from commands import run_program
from postgres_server import PASSWORD, PostgresServer, shared_server
from remit.ports import AcceptedRequest, Decision, DuplicateRequest, NumberedRecord, SealedValue, Store, StoreError
from remit.ports.upkeep import Retention
from remit.protocol.envelope import ContextFilter, Note
from remit.protocol.records import ChainBreak, Kind
from remit.runtime.audit import AuditVerdict
from remit.stores.checkpoints import checkpoint_path, key_path
from remit.stores.connection import SqliteConnection
from remit.stores.opening import copying_path
from remit.stores.schema import MIGRATIONS
from remit.stores.sqlite import SqliteStore, verify_file
from remit_cli.store_backup import back_up, restore
from remit_cluster.copying.copy import Copied, CopyPlace, DatabaseToCopy, copy_between
from remit_cluster.copying.sqlite import SqliteWriter
from remit_cluster.copying.tables import CopyState
from remit_cluster.postgres.store import PostgresStore
from remit_testing.samples import LONG_MS, a_question, a_request, a_response, progress

COPIER = Path(__file__).with_name("copier.py")

# What each engine makes anew, and the marks of its own files.
NOT_COPIED = ("clock", "conversation", "message", "upkeep", "sqlite_stat1")


def now_ms() -> int:
    return time.time_ns() // 1_000_000


@pytest.fixture
def server() -> PostgresServer:
    return shared_server()


def at(place: str | Path, key: Path) -> CopyPlace:
    return place if isinstance(place, Path) else DatabaseToCopy(url=place, key_file=key)


async def copy(source: str | Path, target: str | Path, key: Path) -> Copied:
    copied = await copy_between(at(source, key), at(target, key))
    assert PASSWORD not in repr(copied)
    return copied


@asynccontextmanager
async def opened(place: str | Path, key: Path, *, encrypt: bool = False) -> AsyncGenerator[SqliteStore | PostgresStore]:
    store = (
        SqliteStore(place, durability="process", encrypt=encrypt)
        if isinstance(place, Path)
        else PostgresStore(place, key=key)
    )
    await store.open()
    try:
        yield store
    finally:
        await store.close()


async def fill(store: Store, runs: int = 30) -> None:
    """Write something of every kind that a store keeps."""
    for number in range(runs):
        request = replace(a_request(f"n{number}"), session=f"s{number % 3}", via="http", correlation=f"c{number}")
        assert isinstance(await store.submit(request, b"digest", worker="w", lease_ms=LONG_MS), AcceptedRequest)
        store.append(Kind.PROGRESS, now_ms(), request.run, f"s{number % 3}", progress(f"half of \N{SNOWMAN} {number}"))
        await store.finish(request.run, 1, replace(a_response(request), session=f"s{number % 3}"), now_ms())
    forgotten = a_request("forgotten")
    await store.submit(forgotten, b"digest", worker="w", lease_ms=LONG_MS)
    await store.finish("run-forgotten", 1, a_response(forgotten), now_ms(), keep=False)
    await store.submit(a_request("open"), b"digest", worker="w", lease_ms=LONG_MS)
    await store.begin("run-open", 1, replace(a_request("open"), objective="Sort it in another way"))
    await store.journal_durably("run-open", 1, "step", b"\x00value")
    await store.submit(a_request("waits"), b"digest", worker="w", lease_ms=LONG_MS, waiting=True)
    await store.put(a_question("asked", run="open"))
    await store.put(replace(a_question("answered", run="open"), editable=frozenset({"objective", "input"})))
    await store.decide("question-answered", Decision(agreed=True, by="ann", reason="fine"))
    await store.control("run-open", "cancel", "ann", "enough")
    store.seal("run-open", [SealedValue("<NAME_1>", b"\x00locked", True), SealedValue("<NAME_2>", b"locked", False)])
    store.remember("ann", "run-open", ("likes \x00 tea", "likes \N{SNOWMAN}"))
    store.note("s1", [Note(kind="decision", text="by train", by="prime")])
    await store.session("given", "ann", "prime")
    await store.incr("count", 5, 3_600_000 * 24 * 365)
    await store.cas("cell", 0, b"\x00one")
    await store.cas("cell", 1, b"two")
    await store.transfer("log", [NumberedRecord(7, Kind.PROGRESS, now_ms(), "other", "other", progress("elsewhere"))])
    await store.flush()


def rows(path: Path) -> dict[str, list[tuple[Any, ...]]]:
    """Return all rows of a file, the open runs as they were before they were fenced."""
    connection = sqlite3.connect(path)
    names = connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table' AND sql NOT LIKE '%VIRTUAL%'")
    tables: dict[str, list[tuple[Any, ...]]] = {}
    for (name,) in names.fetchall():
        if name not in NOT_COPIED and not name.startswith("word"):
            tables[name] = sorted(connection.execute(f"SELECT * FROM {name}").fetchall(), key=repr)
    tables["sqlite_sequence"] = [row for row in tables.get("sqlite_sequence", []) if row[0] == "control"]
    connection.close()
    return tables


def unfenced(tables: dict[str, list[tuple[Any, ...]]], copies: int) -> dict[str, list[tuple[Any, ...]]]:
    """Return the rows of a copy with the epochs of open runs as they were; nobody holds those."""
    requests = tables["request"]
    changed = [
        (*row[:7], row[7] - copies, "", 0, *row[10:13], row[13] - copies, *row[14:]) if row[6] == 0 else row
        for row in requests
    ]
    return tables | {"request": changed}


def unheld(tables: dict[str, list[tuple[Any, ...]]]) -> dict[str, list[tuple[Any, ...]]]:
    return tables | {"request": [(*row[:8], "", 0, *row[10:]) if row[6] == 0 else row for row in tables["request"]]}


def seen(verdict: AuditVerdict) -> tuple[Any, ...]:
    return verdict.rows, verdict.checkpoints, verdict.unprotected, verdict.findings, verdict.keys, verdict.removed


async def test_a_store_that_went_to_postgres_and_back_is_the_same_row_by_row(
    tmp_path: Path, server: PostgresServer
) -> None:
    path, back = await made(tmp_path / "hub.db"), tmp_path / "back" / "hub.db"
    url, key = await server.database(), tmp_path / "other" / "hub.db.key"
    there = await copy(path, url, key)
    assert key.read_bytes() == key_path(path).read_bytes()
    assert there.key == str(key)
    assert there.open_runs == 2
    async with opened(url, key) as store:
        assert seen(await store.verify()) == seen(verify_file(path))
    again = await copy(url, back, key)
    assert (again.head, again.digest) == (there.head, there.digest)
    assert unfenced(rows(back), 2) == unheld(rows(path))
    assert checkpoint_path(back).read_bytes() == checkpoint_path(path).read_bytes()
    assert key_path(back).read_bytes() == key_path(path).read_bytes()
    assert (back.stat().st_mode & 0o777, key_path(back).stat().st_mode & 0o777) == (0o600, 0o600)
    assert seen(verify_file(back)) == seen(verify_file(path))
    assert sorted(each.name for each in back.parent.iterdir()) == ["hub.db", "hub.db.checkpoints", "hub.db.key"]


async def made(path: Path, kind: str = "plain") -> Path:
    """Return a file whose texts are plain or encrypted, or of which a part was pruned."""
    if kind == "pruned":
        await days(path.parent)
        pruned(path)
    else:
        async with opened(path, path, encrypt=kind == "encrypted") as store:
            await fill(store)
    return path


def pruned(path: Path) -> None:
    with upkeep(path, START_MS + 10 * DAY_MS) as pruner:
        pruner.prune(Retention(messages=3 * DAY_MS))
        pruner.prune(Retention(records=6 * DAY_MS))


async def check_texts(store: Store) -> None:
    """Check that what was encrypted can be read."""
    assert await store.facts("ann") == ("likes \x00 tea", "likes \N{SNOWMAN}")
    assert [each.id for each in await store.pending()] == ["question-asked"]
    assert (await store.runs(run="run-n3"))[0].response is not None


@pytest.mark.parametrize("kind", ["plain", "pruned", "encrypted"])
async def test_a_file_is_copied_to_a_file(tmp_path: Path, kind: str) -> None:
    path, copied = await made(tmp_path / "hub.db", kind), tmp_path / "new" / "hub.db"
    before, verdict = rows(path), verify_file(path)
    done = await copy(path, copied, tmp_path)
    assert unfenced(rows(copied), 1) == unheld(before)
    assert rows(path) == before, "the source stays as it is"
    assert done.rows["record"] == len(before["record"])
    assert (bool(verdict.removed), seen(verify_file(copied))) == (kind == "pruned", seen(verdict))
    if kind == "encrypted":
        async with opened(copied, copied, encrypt=True) as store:
            await check_texts(store)


async def test_a_record_of_several_hubs_is_copied_in_its_one_order(tmp_path: Path, server: PostgresServer) -> None:
    url, key, path = await server.database(), tmp_path / "hub.key", tmp_path / "hub.db"
    async with opened(url, key) as one, opened(url, key) as two:
        await fill(one)
        for number in range(20):
            one.append(Kind.PROGRESS, now_ms(), f"run-{number}", "s", progress("one"))
            two.append(Kind.PROGRESS, now_ms(), f"run-{number}", "s", progress("two"))
            await two.flush()
    done = await copy(url, path, key)
    other = await server.database()
    again = await copy(url, other, key)
    assert (done.head, done.digest) == (again.head, again.digest)
    async with opened(url, key) as a, opened(path, key) as b, opened(other, key) as c:
        wanted = await a.records(limit=1_000)
        assert await b.records(limit=1_000) == wanted
        assert await c.records(limit=1_000) == wanted
        assert (await b.verify()).ok
        assert (await c.verify()).ok


@pytest.mark.parametrize("engine", ["postgres", "sqlite"])
async def test_a_copy_knows_what_was_done_and_goes_on_with_what_was_not(
    tmp_path: Path, server: PostgresServer, engine: str
) -> None:
    path, key = await made(tmp_path / "hub.db"), tmp_path / "new" / "hub.db.key"
    async with opened(path, key) as store:
        wanted = ContextFilter(last_messages=5, keywords=("receipts",))
        before = await store.messages("s1", wanted, now_ms=now_ms(), tokens=10_000)
        runs = await store.runs(limit=100)
    target = tmp_path / "new" / "hub.db" if engine == "sqlite" else await server.database()
    await copy(path, target, key)
    async with opened(target, key) as store:
        done = a_request("n3")
        known = await store.submit(
            replace(done, session="s0", via="http", correlation="c3"), b"digest", worker="w", lease_ms=1
        )
        assert known == DuplicateRequest("run-n3", True, replace(a_response(done), session="s0"))
        assert await store.messages("s1", wanted, now_ms=now_ms(), tokens=10_000) == before
        copied_runs = await store.runs(limit=100)
        assert [(each.run, each.response, each.agent, each.session) for each in copied_runs] == [
            (each.run, each.response, each.agent, each.session) for each in runs
        ]
        assert {each.run: each.state for each in copied_runs if not each.response} == {
            "run-open": "silent",
            "run-waits": "waiting",
        }
        # Whoever worked on it before must not write here.
        assert not await store.finish("run-open", 1, a_response(a_request("open")), now_ms())
        assert not await store.journal_durably("run-open", 1, "step", b"late")
        orphans = await store.sweep(max_attempts=2, keep_ms=LONG_MS)
        assert {each.run for each in orphans} == {"run-open", "run-waits"}
        assert await store.claim("run-open", "new", LONG_MS) == 3
        assert await store.load("run-open") == {"step": b"\x00value"}
        assert await store.decision("question-answered") == Decision(agreed=True, by="ann", reason="fine")
        assert [each.id for each in await store.pending()] == ["question-asked"]
        assert [(each.action, each.reason) for each in await store.controls(0)] == [("cancel", "enough")]
        assert await store.unseal("run-open") == [
            SealedValue("<NAME_1>", b"\x00locked", True),
            SealedValue("<NAME_2>", b"locked", False),
        ]
        assert await store.facts("ann") == ("likes \x00 tea", "likes \N{SNOWMAN}")
        assert await store.get("cell") == (2, b"two")
        assert await store.incr("count", 1, 3_600_000 * 24 * 365) == 6
        assert await store.finish("run-open", 3, a_response(a_request("open")), now_ms())
        # What the server numbers goes on.
        await store.submit(a_request("new"), b"digest", worker="w", lease_ms=LONG_MS)
        await store.put(a_question("new", run="new"))
        assert await store.control("run-new", "cancel", "ann", "") > 1
        store.remember("ann", "run-new", ("likes more",))
        store.note("s1", [Note(kind="decision", text="by ship", by="prime")])
        await store.flush()
        assert [each.run for each in await store.runs(limit=1)] == ["run-new"]
        assert (await store.verify()).ok
    async with opened(target, key) as store:
        assert (await store.verify()).ok
        assert not [each for each in await store.records(limit=1_000) if isinstance(each.body, ChainBreak)]


async def copier(source: str | Path, target: str | Path, key: Path, writes: int) -> subprocess.CompletedProcess[str]:
    """Copy in a process that is killed in the middle of a transaction, after so many writes."""
    command = [sys.executable, str(COPIER), str(source), str(target), str(key), str(writes)]
    return await asyncio.to_thread(run_program, command)


@pytest.mark.parametrize("way", ["sqlite to postgres", "postgres to sqlite"])
async def test_a_copy_that_is_killed_over_and_over_is_complete_in_the_end(
    tmp_path: Path, server: PostgresServer, way: str
) -> None:
    path, key = await made(tmp_path / "hub.db"), tmp_path / "hub.db.key"
    source: str | Path = path
    target: str | Path = await server.database()
    if way == "postgres to sqlite":
        await copy(path, target, key)
        source, target = target, tmp_path / "new" / "hub.db"
    kills, done = 0, await copier(source, target, key, 5)
    while done.returncode == -signal.SIGKILL and not (isinstance(target, Path) and target.exists()):
        kills += 1
        done = await copier(source, target, key, 5)
        if done.returncode and kills == 1:
            with pytest.raises(StoreError, match="is an unfinished copy of another store"):
                async with opened(target, key):
                    pass
    # A copy may be killed just after it is complete.
    assert done.returncode == 0 or target == tmp_path / "new" / "hub.db", done.stderr
    assert kills > 2
    back = target if isinstance(target, Path) else tmp_path / "back" / "hub.db"
    if not isinstance(target, Path):
        await copy(target, back, key)
    assert unfenced(rows(back), 2) == unheld(rows(path))
    assert seen(verify_file(back)) == seen(verify_file(path))


async def interrupted(source: Path, target: str | Path, key: Path, writes: int) -> None:
    """Copy until so many pages were written, and be killed then."""
    done = await copier(source, target, key, writes)
    assert done.returncode == -signal.SIGKILL, done.stderr


async def test_what_changed_while_a_copy_was_interrupted_is_noticed(tmp_path: Path, server: PostgresServer) -> None:
    path, key = await made(tmp_path / "hub.db"), tmp_path / "hub.db.key"
    url = await server.database()
    await interrupted(path, url, key, 12)
    async with opened(path, key) as store:
        await store.cas("cell", 2, b"three")
        await store.session("later", "ann", "prime")
        await store.finish("run-open", 1, a_response(a_request("open")), now_ms())
    done = await copy(path, url, key)
    assert done.resumed
    assert any("was changed since the copy began" in each for each in done.notices)
    assert done.open_runs == 1
    async with opened(url, key) as store:
        assert await store.get("cell") == (3, b"three")
        assert (await store.runs(run="run-open"))[0].state == "finished"
        assert seen(await store.verify()) == seen(verify_file(path))


async def test_an_unfinished_copy_of_another_store_is_left_alone(tmp_path: Path) -> None:
    path, other = await made(tmp_path / "hub.db"), await made(tmp_path / "other" / "hub.db")
    target = tmp_path / "new" / "hub.db"
    await interrupted(path, target, tmp_path, 3)
    with pytest.raises(StoreError, match=f"an unfinished copy of another store \\({path}\\)"):
        await copy(other, target, tmp_path)
    done = await copy(path, target, tmp_path)
    assert done.resumed
    assert done.written < done.rows["record"] + sum(done.rows.values())


async def test_a_copy_is_begun_anew_if_records_were_removed_from_the_source(tmp_path: Path) -> None:
    path = await days(tmp_path)
    target = tmp_path / "new" / "hub.db"
    await interrupted(path, target, tmp_path, 3)
    pruned(path)
    done = await copy(path, target, tmp_path)
    assert done.notices == ("records were removed from the source since the copy began: it was begun anew",)
    assert unfenced(rows(target), 1) == unheld(rows(path))


async def test_a_pruned_store_goes_to_postgres_and_back(tmp_path: Path, server: PostgresServer) -> None:
    path, back = await made(tmp_path / "hub.db", "pruned"), tmp_path / "back" / "hub.db"
    url, key = await server.database(), tmp_path / "hub.db.key"
    await copy(path, url, key)
    async with opened(url, key) as store:
        assert seen(await store.verify()) == seen(verify_file(path))
    await copy(url, back, key)
    assert seen(verify_file(back)) == seen(verify_file(path))
    copied, wanted = rows(back), rows(path)
    assert copied["record"] == wanted["record"]
    assert [row[:2] for row in copied["removed"]] == [row[:2] for row in wanted["removed"]]
    # It can be pruned further.
    pruned(back)
    assert verify_file(back).ok


async def test_an_encrypted_store_goes_to_postgres_and_back(tmp_path: Path, server: PostgresServer) -> None:
    path, back = await made(tmp_path / "hub.db", "encrypted"), tmp_path / "back" / "hub.db"
    url, key = await server.database(), tmp_path / "hub.db.key"
    await copy(path, url, key)
    key.rename(tmp_path / "away")
    with pytest.raises(StoreError, match="is gone, and with it the texts of its users"):
        await copy(url, back, key)
    (tmp_path / "away").rename(key)
    async with opened(url, key) as store:
        await check_texts(store)
        assert seen(await store.verify()) == seen(verify_file(path))
    await copy(url, back, key)
    assert unfenced(rows(back), 2) == unheld(rows(path))


async def test_an_encrypted_store_without_its_key_is_refused(tmp_path: Path) -> None:
    path, target = tmp_path / "hub.db", tmp_path / "new" / "hub.db"
    async with opened(path, path, encrypt=True) as store:
        await fill(store)
    key_path(path).unlink()
    with pytest.raises(StoreError, match="is gone, and with it the texts"):
        await copy(path, target, tmp_path)
    assert not target.parent.exists()


async def test_a_store_without_its_key_is_copied_and_that_is_said(tmp_path: Path) -> None:
    path, target = await made(tmp_path / "hub.db"), tmp_path / "new" / "hub.db"
    key_path(path).unlink()
    done = await copy(path, target, tmp_path)
    assert done.key == ""
    assert "the key of the source is missing" in done.notices[0]
    assert not key_path(target).exists()
    assert unfenced(rows(target), 1) == unheld(rows(path))


async def test_a_damaged_record_is_copied_as_it_is(tmp_path: Path, server: PostgresServer) -> None:
    path, key = await made(tmp_path / "hub.db"), tmp_path / "hub.db.key"
    connection = sqlite3.connect(path)
    connection.execute("UPDATE record SET body = replace(CAST(body AS TEXT), 'half', 'most') WHERE seq = 2")
    connection.execute("UPDATE record SET body = CAST(body AS BLOB)")
    connection.commit()
    connection.close()
    before = verify_file(path)
    assert not before.ok
    url = await server.database()
    done = await copy(path, url, key)
    assert [(each.tampering, each.first) for each in done.verdict.findings] == [
        (each.tampering, each.first) for each in before.findings
    ]
    assert done.notices == ("the record was damaged before it was copied",)


async def test_a_checkpoint_that_a_crash_left_ahead_is_no_break_in_the_copy(
    tmp_path: Path, server: PostgresServer
) -> None:
    path, key = await made(tmp_path / "hub.db"), tmp_path / "hub.db.key"
    async with opened(path, key) as store:
        store.append(Kind.PROGRESS, now_ms(), "run", "s", progress("later"))
    connection = sqlite3.connect(path)
    # As if the process had been killed after the line was written.
    connection.execute("UPDATE checkpoint SET number = number - 1, seq = seq - 1, since_ms = ?", (now_ms(),))
    connection.commit()
    connection.close()
    url = await server.database()
    await copy(path, url, key)
    async with opened(url, key) as store:
        await store.flush()
        assert (await store.verify()).ok
        assert not [each for each in await store.records(limit=1_000) if isinstance(each.body, ChainBreak)]


# ── refusals ──────────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_store_that_is_in_use_is_not_copied(tmp_path: Path, server: PostgresServer) -> None:
    path, key, url = await made(tmp_path / "hub.db"), tmp_path / "hub.db.key", await server.database()
    async with opened(path, key):
        with pytest.raises(StoreError, match="is in use"):
            await copy(path, url, key)
    await copy(path, url, key)
    async with opened(url, key):
        with pytest.raises(StoreError, match=r"is in use: hubs have \d connections"):
            await copy(url, tmp_path / "new.db", key)


async def test_a_target_that_is_not_empty_is_left_alone(tmp_path: Path, server: PostgresServer) -> None:
    path, other = await made(tmp_path / "hub.db"), await made(tmp_path / "other" / "hub.db")
    key, url = tmp_path / "hub.db.key", await server.database()
    before = rows(other)
    with pytest.raises(StoreError, match="is not empty"):
        await copy(path, other, key)
    assert rows(other) == before
    assert not copying_path(other).exists()
    await copy(path, url, key)
    with pytest.raises(StoreError, match="holds this record already: it ends with the same row"):
        await copy(path, url, key)
    with pytest.raises(StoreError, match=r"is not empty: a store cannot be copied into another one \(\d+ records\)"):
        await copy(other, url, tmp_path / "other" / "hub.db.key")
    with pytest.raises(StoreError, match="source and target are the same store"):
        await copy(path, path, key)
    with pytest.raises(StoreError, match="is the key of another store"):
        await copy(other, await server.database(), key)
    used = await server.database()
    async with opened(used, tmp_path / "another.key"):
        pass
    with pytest.raises(StoreError, match=r"has used .* with another key"):
        await copy(path, used, key)


async def test_a_source_that_cannot_be_copied_is_named(tmp_path: Path, server: PostgresServer) -> None:
    key, target = tmp_path / "hub.db.key", tmp_path / "new" / "hub.db"
    with pytest.raises(StoreError, match="there is no such store"):
        await copy(tmp_path / "nowhere.db", target, key)
    (tmp_path / "text.db").write_text("no database " * 100)
    with pytest.raises(StoreError, match="it is not a SQLite database"):
        await copy(tmp_path / "text.db", target, key)
    path = await made(tmp_path / "hub.db")
    back_up(path, tmp_path / "hub.backup")
    with pytest.raises(StoreError, match="is the database of another program"):
        await copy(tmp_path / "hub.backup", target, key)
    with pytest.raises(StoreError, match="no hub has used this database yet"):
        await copy(await server.database(), target, key)
    with pytest.raises(StoreError, match="the server cannot be reached"):
        await copy(path, "postgresql://ann@127.0.0.1:1/hub", key)
    wrong = server.url((await server.database()).rpartition("/")[2], password="pass/wrong")
    with pytest.raises(StoreError, match="the server refused the password"):
        await copy(path, wrong, key)
    connection = sqlite3.connect(path)
    connection.execute(f"PRAGMA user_version = {len(MIGRATIONS) + 1}")
    connection.close()
    with pytest.raises(StoreError, match="which a newer program wrote"):
        await copy(path, target, key)
    assert not copying_path(target).exists()


@pytest.mark.parametrize("engine", ["sqlite", "postgres"])
async def test_a_restored_store_keeps_its_fence(tmp_path: Path, server: PostgresServer, engine: str) -> None:
    path, again = await made(tmp_path / "hub.db"), tmp_path / "again.db"
    target = tmp_path / "new" / "hub.db" if engine == "sqlite" else await server.database()
    key = tmp_path / "new" / "hub.db.key"
    back_up(path, tmp_path / "hub.backup")
    created = now_ms()
    restore(tmp_path / "hub.backup", again)
    assert (await copy(again, target, key)).rows["fence"] == 1
    async with opened(target, key) as store:
        await asyncio.sleep(1.1)  # only an old request can have been accepted before
        with pytest.raises(StoreError, match="may have been executed"):
            await store.submit(replace(a_request("late"), created_ms=created), b"d", worker="w", lease_ms=LONG_MS)


async def test_a_full_disk_is_said_and_the_copy_goes_on_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, target = await made(tmp_path / "hub.db"), tmp_path / "new" / "hub.db"

    begin = SqliteWriter.begin

    async def small(writer: SqliteWriter, new: CopyState) -> CopyState:
        state = await begin(writer, new)
        connection = cast(SqliteConnection, vars(writer)["_connection"])
        connection.pragma("max_page_count", connection.pragma("page_count") + 3)
        return state

    monkeypatch.setattr(SqliteWriter, "begin", small)
    with pytest.raises(StoreError, match="the disk is full") as caught:
        await copy(path, target, tmp_path)
    assert "run the same command again: it goes on where it was" in (caught.value.fault.suggestion or "")
    monkeypatch.undo()
    await copy(path, target, tmp_path)
    assert unfenced(rows(target), 1) == unheld(rows(path))


async def test_a_value_that_postgres_cannot_hold_is_named(tmp_path: Path, server: PostgresServer) -> None:
    path = await made(tmp_path / "hub.db")
    async with opened(path, path) as store:
        await store.session("zero \x00 in it", "ann", "prime")
    with pytest.raises(StoreError, match="a row for the table session has a value that PostgreSQL cannot hold"):
        await copy(path, await server.database(), tmp_path / "hub.db.key")
