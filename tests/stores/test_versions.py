"""A file that an older version wrote is brought up to date when it is opened, and goes on from where it was."""

import hashlib
from pathlib import Path

import pytest
from msgspec.structs import replace

from remit.protocol.envelope import ContextFilter
from remit.protocol.records import Kind
from remit.runtime.ports import (
    AcceptedRequest,
    Decision,
    DuplicateRequest,
    NumberedRecord,
    OrphanedRun,
    SealedValue,
    SessionOwner,
    StoreError,
)
from remit.stores.connection import connect_reader, connect_writer
from remit.stores.schema import KINDS, MIGRATIONS
from remit.stores.sqlite import SqliteStore, verify_file
from remit.testing.conformance import LONG_MS, NEVER_MS, a_question, a_request, a_response, a_step, texts


def a_file(path: Path, version: int) -> Path:
    """Return a file as that version left it when it was killed at 5,002 ms since 1970."""
    connection = connect_writer(path, "process", 1)
    connection.execute(Path(__file__).with_name(f"version-{version}.sql").read_text())
    connection.close()
    return path


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return a_file(tmp_path / "hub.db", 1)


@pytest.fixture
def path_2(tmp_path: Path) -> Path:
    return a_file(tmp_path / "hub.db", 2)


async def test_a_file_of_version_1_keeps_what_was_in_it(path: Path) -> None:
    store = SqliteStore(path, wall_ms=lambda: 6_000)
    await store.open()
    done = a_response(a_request("done"))
    assert await store.submit(a_request("done"), b"digest", worker="w", lease_ms=1) == DuplicateRequest(
        "run-done", True, done
    )
    assert [(run.run, run.state) for run in await store.runs()] == [("run-cut", "silent"), ("run-done", "finished")]
    assert [run.run for run in await store.runs(run="run-d")] == ["run-done"]
    assert texts(await store.records(run="run-cut")) == ["half"]
    assert await store.load("run-cut") == {"step": b"value"}
    assert await store.facts("u-1") == ("likes tea",)
    assert await store.session("given", "u-1", "prime") == SessionOwner("u-2", "tag")
    assert await store.get("key") == (1, b"value")
    assert await store.incr("count", 1, 60_000) == 3
    assert (await store.verify()).ok
    await store.close()


async def test_a_run_that_version_1_began_is_taken_up_and_ended(path: Path) -> None:
    store = SqliteStore(path, wall_ms=lambda: 6_000)
    await store.open()
    assert await store.sweep(max_attempts=2, keep_ms=LONG_MS) == [OrphanedRun("run-cut", a_request("cut"))]
    assert await store.claim("run-cut", "w", 0) == 2
    assert await store.sweep(max_attempts=2, keep_ms=LONG_MS) == []
    assert [run.state for run in await store.runs(run="run-cut")] == ["finished"]
    assert await store.load("run-cut") == {"step": b"value"}, "one that tries it again need not do it again"
    await store.close()
    assert verify_file(path).ok


async def test_a_file_of_version_1_learns_to_wait_for_people(path: Path) -> None:
    store = SqliteStore(path)
    await store.open()
    assert await store.submit(a_request(), b"digest", worker="w", lease_ms=0, waiting=True) == AcceptedRequest(1)
    store.seal("run-one", [SealedValue("<EMAIL_1>", b"value", True)])
    await store.put(a_question())
    assert await store.decide("question-one", Decision(agreed=True, by="ann"))
    assert await store.control("run-one", "cancel", "ann", "") > 0
    assert OrphanedRun("run-one", a_request(), waiting=True) in await store.sweep(max_attempts=1, keep_ms=NEVER_MS)
    await store.close()
    assert verify_file(path).ok


async def test_a_file_of_version_2_keeps_what_was_in_it(path_2: Path) -> None:
    store = SqliteStore(path_2, wall_ms=lambda: 6_000)
    await store.open()
    begun = replace(a_request("asks"), objective="Sort one receipt")
    assert await store.sweep(max_attempts=2, keep_ms=LONG_MS) == [OrphanedRun("run-asks", begun)]
    assert await store.load("run-asks") == {"step": b"value"}
    assert await store.pending() == [replace(a_question("two", run="asks", text="And now?"), form=None)]
    assert await store.unseal("run-done") == [SealedValue("<EMAIL_1>", b"value", True)]
    await store.close()
    assert verify_file(path_2).ok


async def test_what_a_run_of_version_2_had_sealed_goes_with_its_outcome(path_2: Path) -> None:
    store = SqliteStore(path_2, wall_ms=lambda: 5_000 + 2 * LONG_MS)
    await store.open()
    await store.sweep(max_attempts=2, keep_ms=LONG_MS)
    assert await store.unseal("run-done") == []
    await store.close()


@pytest.mark.parametrize(
    ("version", "session", "said"),
    [(1, "session-done", ["Sort receipts", "sorted"]), (2, "session-asks", ["Sort one receipt"])],
)
async def test_the_conversations_of_an_older_file_are_found(
    tmp_path: Path, version: int, session: str, said: list[str]
) -> None:
    store = SqliteStore(a_file(tmp_path / "hub.db", version))
    await store.open()
    for wanted in (ContextFilter(), ContextFilter(keywords=("sort",))):
        found = await store.messages(session, wanted, now_ms=6_000, tokens=1_000)
        assert [message.text for message in found] == said
    await store.close()


async def test_a_file_of_version_1_is_verified_once_it_is_up_to_date(path: Path) -> None:
    with pytest.raises(StoreError, match="has version 1"):
        verify_file(path)
    store = SqliteStore(path)
    await store.open()
    await store.close()
    assert verify_file(path).ok


@pytest.mark.parametrize("version", [1, 2])
async def test_an_upgraded_file_has_the_same_tables_as_a_new_one(tmp_path: Path, version: int) -> None:
    def tables(path: Path) -> set[tuple[str, str]]:
        connection = connect_reader(path, 1)
        found = connection.execute("SELECT name, sql FROM sqlite_schema WHERE sql IS NOT NULL").fetchall()
        connection.close()
        return {(name, " ".join(sql.split())) for name, sql in found}

    path, new = a_file(tmp_path / "hub.db", version), tmp_path / "new.db"
    for each in (path, new):
        store = SqliteStore(each)
        await store.open()
        await store.close()
    assert tables(path) == tables(new)


async def test_what_was_done_with_other_devices_goes_on_the_chain_of_a_file_that_knew_no_such_record(
    path_2: Path,
) -> None:
    connection = connect_writer(path_2, "process", 1)
    for number, step in enumerate(MIGRATIONS[2:4], start=3):
        connection.execute(step)
        connection.pragma("user_version", number)
    connection.close()
    with pytest.raises(StoreError, match="has version 4"):
        verify_file(path_2)
    store = SqliteStore(path_2, wall_ms=lambda: 6_000)
    await store.open()
    before = await store.records()
    assert await store.transfer("device/here", [NumberedRecord(1, Kind.SHARED, 6_000, "run", "session", a_step())]) == 1
    *same, last = await store.records()
    assert (same, last.seq, last.body) == (before, len(before) + 1, a_step())
    await store.close()
    assert verify_file(path_2).ok


def test_a_step_that_was_released_is_never_changed() -> None:
    digests = [hashlib.sha256(step.encode()).hexdigest()[:16] for step in MIGRATIONS]
    assert digests[:2] == ["8ee14827d5ced59f", "f87471ac42a78835"]


def test_the_number_of_a_kind_is_never_changed() -> None:
    assert KINDS == {
        Kind.STARTED: 1,
        Kind.DELEGATION: 2,
        Kind.PROGRESS: 3,
        Kind.TOOL: 4,
        Kind.NOTICE: 5,
        Kind.RESULT: 6,
        Kind.REFUSED: 7,
        Kind.APPROVAL: 8,
        Kind.SHARED: 9,
        Kind.BREAK: 10,
        Kind.REMOVED: 11,
    }
