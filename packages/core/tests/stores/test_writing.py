"""One thread writes for everyone: what is queued shares a commit, and one bad item does not spoil it."""

import asyncio
import threading
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from msgspec.structs import replace

from remit.ports import AcceptedRequest, DuplicateRequest
from remit.protocol.envelope import Response
from remit.protocol.errors import Code
from remit.protocol.records import Kind, Notice, Progress, Record, ToolUse
from remit.stores.connection import connect_reader, connect_writer
from remit.stores.sqlite import SqliteStore
from remit_testing.samples import LONG_MS, a_request, a_response, code_of, progress, texts
from waiting import PATIENCE_S


@asynccontextmanager
async def opened(path: Path, commit_hook: Callable[[], None] | None = None) -> AsyncGenerator[SqliteStore]:
    store = SqliteStore(path / "hub.db", commit_hook=commit_hook)
    await store.open()
    try:
        yield store
    finally:
        await store.close()


class Gate:
    """Holds commits back until it is opened, and counts them."""

    def __init__(self) -> None:
        self.reached = threading.Event()
        self.open = threading.Event()
        self.commits = 0

    def __call__(self) -> None:
        self.commits += 1
        self.reached.set()
        assert self.open.wait(PATIENCE_S)


async def test_everything_that_is_queued_during_a_commit_shares_the_next(tmp_path: Path) -> None:
    gate = Gate()
    async with opened(tmp_path, gate) as store, asyncio.TaskGroup() as group:
        group.create_task(store.flush())
        await asyncio.to_thread(gate.reached.wait, PATIENCE_S)
        for number in range(64):
            store.append(Kind.PROGRESS, number, "run", "session", progress("x"))
            group.create_task(store.submit(a_request(str(number)), b"digest", worker="w", lease_ms=LONG_MS))
        last = group.create_task(store.flush())
        await asyncio.sleep(0)
        gate.open.set()
        await last
        assert gate.commits == 2


async def test_sixty_four_callers_get_at_least_twenty_answers_per_commit_of_five_ms(tmp_path: Path) -> None:
    commits = 0

    def slow_disk() -> None:
        nonlocal commits
        commits += 1
        time.sleep(0.005)

    async def call(store: SqliteStore, name: str) -> None:
        request = a_request(name)
        await store.submit(request, b"digest", worker="w", lease_ms=LONG_MS)
        store.append(Kind.PROGRESS, 1, request.run, "session", progress("half"))
        await store.finish(request.run, 1, a_response(request), 2)

    async def caller(store: SqliteStore, number: int) -> None:
        for turn in range(5):
            await call(store, f"{number}-{turn}")

    async with opened(tmp_path, slow_disk) as store, asyncio.TaskGroup() as group:
        for number in range(64):
            group.create_task(caller(store, number))
    assert 64 * 5 / commits >= 20


async def test_an_answer_is_acknowledged_after_every_earlier_record_of_its_run_is_committed(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        await store.submit(a_request(), b"digest", worker="w", lease_ms=LONG_MS)
        for number in range(1_500):
            store.append(Kind.PROGRESS, number, "run-one", "session-one", progress(str(number)))
        await store.finish("run-one", 1, a_response(a_request()), 1)
        other = connect_reader(store.path, 1)
        assert other.execute("SELECT count(*) FROM record").fetchall() == [(1_502,)]
        other.close()


async def test_a_record_alone_waits_for_company_but_not_for_ever(tmp_path: Path) -> None:
    loop, written, commits = asyncio.get_running_loop(), asyncio.Event(), list[float]()

    def note() -> None:
        commits.append(time.monotonic())
        loop.call_soon_threadsafe(written.set)

    async with opened(tmp_path, note) as store:
        start = time.monotonic()
        for number in range(400):
            store.append(Kind.PROGRESS, number, "run", "session", progress("x"))
            await asyncio.sleep(0)
        async with asyncio.timeout(PATIENCE_S):
            await written.wait()
        assert len(commits) == 1
        assert commits[0] - start >= 0.1


async def test_five_hundred_records_are_written_at_once(tmp_path: Path) -> None:
    gate = Gate()
    async with opened(tmp_path, gate) as store:
        for number in range(500):
            store.append(Kind.PROGRESS, number, "run", "session", progress("x"))
        assert await asyncio.to_thread(gate.reached.wait, PATIENCE_S)
        gate.open.set()


async def test_the_queue_is_bounded_for_those_who_ask(tmp_path: Path) -> None:
    gate = Gate()
    async with opened(tmp_path, gate) as store:
        flush = asyncio.ensure_future(store.flush())
        await asyncio.to_thread(gate.reached.wait, PATIENCE_S)
        for number in range(3_999):
            store.append(Kind.PROGRESS, number, "run", "session", progress("x"))
        await store.room()
        store.append(Kind.PROGRESS, 0, "run", "session", progress("the last that has room"))
        assert store.full
        room = asyncio.ensure_future(store.room())
        await asyncio.sleep(0)
        assert not room.done()
        gate.open.set()
        async with asyncio.timeout(PATIENCE_S):
            await room
            await flush


async def test_closing_frees_those_who_wait_for_room(tmp_path: Path) -> None:
    gate = Gate()
    async with opened(tmp_path, gate) as store:
        for number in range(4_000):
            store.append(Kind.PROGRESS, number, "run", "session", progress("x"))
        room = asyncio.ensure_future(store.room())
        await asyncio.sleep(0)
        gate.open.set()
    async with asyncio.timeout(PATIENCE_S):
        await room


async def test_a_record_that_cannot_be_written_leaves_a_notice_and_spares_its_neighbours(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        store.append(Kind.PROGRESS, 1, "run-one", "session-one", progress("before"))
        store.append(
            Kind.TOOL, 2, "run-one", "session-one", ToolUse(delegation="d", agent="a", tool="t", input=object())
        )
        store.append(Kind.PROGRESS, 3, "run-\ud800", "session-one", progress("a name that is no text"))
        store.append(Kind.PROGRESS, 4, "run-one", "session-one", progress("after"))
        await store.flush()
        records = await store.records()
        verdict = await store.verify()
    lost = "a record of kind tool could not be written: TypeError"
    unnamed = "a record of kind progress could not be written: UnicodeEncodeError"
    assert [(record.seq, record.at_ms, record.run, record.body) for record in records] == [
        (1, 1, "run-one", progress("before")),
        (2, 2, "run-one", Notice(delegation="run-one", agent="remit", text=lost)),
        (3, 3, "run-?", Notice(delegation="run-?", agent="remit", text=unnamed)),
        (4, 4, "run-one", progress("after")),
    ]
    assert verdict.ok


async def test_a_request_that_cannot_be_written_fails_alone(tmp_path: Path) -> None:
    bad = a_request("bad")
    unwritable = Response(version="1.0", id="id-good", target="prime", status=a_response(bad).status, result=object())
    async with opened(tmp_path) as store, asyncio.TaskGroup() as group:
        good = group.create_task(store.submit(a_request("good"), b"digest", worker="w", lease_ms=LONG_MS))
        failed = group.create_task(code_of(store.finish("run-good", 1, unwritable, 1)))
        fine = group.create_task(store.finish("run-good", 1, a_response(a_request("good")), 2))
    assert good.result() == AcceptedRequest(1)
    assert failed.result() is Code.MALFORMED_ENVELOPE
    assert fine.result()


async def test_a_run_that_exists_cannot_be_submitted_under_another_id(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        await store.submit(a_request(), b"digest", worker="w", lease_ms=LONG_MS)
        other = store.submit(a_request(id="other"), b"digest", worker="w", lease_ms=LONG_MS)
        assert await code_of(other) is Code.DUPLICATE_REQUEST


async def test_a_submit_that_is_cancelled_before_its_turn_leaves_nothing_behind(tmp_path: Path) -> None:
    gate = Gate()
    async with opened(tmp_path, gate) as store:
        flush = asyncio.ensure_future(store.flush())
        await asyncio.to_thread(gate.reached.wait, PATIENCE_S)
        submit = asyncio.ensure_future(store.submit(a_request(), b"digest", worker="w", lease_ms=LONG_MS))
        await asyncio.sleep(0)
        submit.cancel()
        await asyncio.wait([submit])
        gate.open.set()
        await flush
        await store.flush()
        assert await store.records() == []


async def test_an_outcome_is_kept_though_whoever_reports_it_is_cancelled(tmp_path: Path) -> None:
    gate = Gate()
    gate.open.set()
    async with opened(tmp_path, gate) as store:
        await store.submit(a_request(), b"digest", worker="w", lease_ms=LONG_MS)
        gate.open.clear()
        gate.reached.clear()
        flush = asyncio.ensure_future(store.flush())
        await asyncio.to_thread(gate.reached.wait, PATIENCE_S)
        finish = asyncio.ensure_future(store.finish("run-one", 1, a_response(a_request()), 1))
        await asyncio.sleep(0)
        finish.cancel()
        await asyncio.wait([finish])
        gate.open.set()
        await flush
        known = await store.submit(a_request(), b"digest", worker="w", lease_ms=LONG_MS)
        assert known == DuplicateRequest("run-one", True, a_response(a_request()))


async def test_a_listener_that_fails_does_not_keep_records_from_the_others(tmp_path: Path) -> None:
    received: list[Record] = []

    def bad(records: list[Record]) -> None:
        raise RuntimeError("not my day")

    async with opened(tmp_path) as store:
        store.listen(bad)
        store.listen(received.extend)
        store.append(Kind.PROGRESS, 1, "run", "session", Progress(delegation="d", agent="a", text="heard"))
        await store.flush()
        assert texts(received) == ["heard"]


async def test_what_is_appended_before_opening_is_written_after_it(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "hub.db")
    store.append(Kind.PROGRESS, 1, "run", "session", progress("early"))
    await store.open()
    await store.flush()
    assert texts(await store.records()) == ["early"]
    await store.close()


async def test_readers_do_not_wait_for_a_commit(tmp_path: Path) -> None:
    gate = Gate()
    async with opened(tmp_path, gate) as store:
        flush = asyncio.ensure_future(store.submit(a_request(), b"digest", worker="w", lease_ms=LONG_MS))
        await asyncio.to_thread(gate.reached.wait, PATIENCE_S)
        async with asyncio.timeout(PATIENCE_S):
            assert await store.records() == []
            assert await store.facts("u-1") == ()
        gate.open.set()
        await flush


# ── in the loop ───────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def fast_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the loop write itself, however slow the disk of the test is."""
    monkeypatch.setattr("remit.stores.group_commit.QUICK_S", LONG_MS)
    monkeypatch.setattr("remit.stores.group_commit.STEADY", 0)


@pytest.mark.usefixtures("fast_disk")
async def test_a_file_that_another_process_has_locked_does_not_block_the_loop(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        await store.flush()
        other = connect_writer(store.path, "power", 0)
        other.execute("BEGIN IMMEDIATE")
        store.append(Kind.PROGRESS, 1, "run", "session", progress("x"))
        flushing = asyncio.ensure_future(store.flush())
        start = time.monotonic()
        done, _ = await asyncio.wait({flushing}, timeout=0.05)
        assert not done
        assert time.monotonic() - start < 2  # a blocked loop waits for the lock for 5 s
        other.execute("ROLLBACK")
        other.close()
        await flushing
        assert texts(await store.records(run="run")) == ["x"]


@pytest.mark.usefixtures("fast_disk")
async def test_what_cannot_be_written_is_told_to_its_caller_whoever_writes(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        await store.submit(a_request("1"), b"digest", worker="w", lease_ms=LONG_MS)
        again = replace(a_request("2"), run=a_request("1").run)
        assert await code_of(store.submit(again, b"digest", worker="w", lease_ms=LONG_MS)) is Code.DUPLICATE_REQUEST
        store.append(Kind.PROGRESS, 1, "run", "session", progress("x"))
        await store.flush()
        assert texts(await store.records(run="run")) == ["x"]


@pytest.mark.usefixtures("fast_disk")
async def test_the_log_is_merged_into_the_file_and_does_not_grow_without_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("remit.stores.writer.MERGE_PAGES", 20)
    log = tmp_path / "hub.db-wal"
    async with opened(tmp_path) as store:
        for number in range(200):
            store.append(Kind.PROGRESS, number, "run", "session", progress("x" * 4_000))
            await store.flush()
        assert log.stat().st_size < 200 * 4_096
