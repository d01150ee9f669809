"""Several processes share one file: one chain, one outcome for each request, one key."""

import asyncio
import subprocess
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from msgspec.structs import replace

from commands import popen
from remit.ports import Decision, OrphanedRun, SealedValue
from remit.protocol.records import Kind
from remit.stores.connection import connect_reader
from remit.stores.schema import MIGRATIONS
from remit.stores.sqlite import SqliteStore, verify_file
from remit_testing.samples import LONG_MS, OVER_MS, a_question, a_request, a_response, progress
from waiting import PATIENCE_S

pytestmark = pytest.mark.processes

_OPEN = """
import asyncio, sys
from remit.protocol.records import Kind
from remit.stores.sqlite import SqliteStore
from remit_testing.samples import LONG_MS, a_request, a_response, progress

async def main(path, name):
    store = SqliteStore(path, durability="process", checkpoint_every=20, busy_seconds=30)
    print("ready", flush=True)
    sys.stdin.readline()
    await store.open()
    await work(store, name)
    await store.close()
"""

_RUN = "\nasyncio.run(main(*sys.argv[1:]))\n"

_NOTHING = _OPEN + "async def work(store, name): pass" + _RUN

_APPEND = (
    _OPEN
    + """
async def work(store, name):
    for number in range(100):
        for step in range(3):
            store.append(Kind.PROGRESS, step, name, "session", progress(f"{number}.{step}"))
        await store.flush()
        won = await store.submit(a_request(str(number)), b"digest", worker=name, lease_ms=LONG_MS)
        print(type(won).__name__, flush=True)
"""
    + _RUN
)

_FINISH = (
    _OPEN
    + """
async def work(store, name):
    assert await store.finish("run-one", 1, a_response(a_request()), 1)
"""
    + _RUN
)

_DECIDE = (
    _OPEN
    + """
async def work(store, name):
    from remit.ports import Decision
    for question in await store.pending():
        if await store.decide(question.id, Decision(agreed=True, by=name)):
            print(question.id, name, flush=True)
"""
    + _RUN
)


@asynccontextmanager
async def two(path: Path) -> AsyncGenerator[tuple[SqliteStore, SqliteStore]]:
    """Open one file twice, as a hub and a command line in another process would."""
    stores = SqliteStore(path / "hub.db"), SqliteStore(path / "hub.db")
    for store in stores:
        await store.open()
    try:
        yield stores
    finally:
        for store in stores:
            await store.close()


def start(script: str, path: Path, count: int) -> list[subprocess.Popen[str]]:
    """Start processes, and let them all go on once each has imported what it needs."""
    started = [
        popen(
            [sys.executable, "-c", script, str(path), f"run-{number}"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for number in range(count)
    ]
    for process in started:
        assert process.stdout
        assert process.stdout.readline() == "ready\n"
    for process in started:
        assert process.stdin
        process.stdin.write("go\n")
        process.stdin.flush()
    return started


def finish(processes: list[subprocess.Popen[str]]) -> list[str]:
    printed = [process.communicate(timeout=PATIENCE_S * 3)[0] for process in processes]
    assert [process.returncode for process in processes] == [0] * len(processes)
    return printed


def test_processes_that_open_a_new_file_at_once_all_get_it(tmp_path: Path) -> None:
    finish(start(_NOTHING, tmp_path / "hub.db", 6))
    connection = connect_reader(tmp_path / "hub.db", 1)
    assert connection.pragma("user_version") == len(MIGRATIONS)
    connection.close()


async def test_processes_that_append_at_once_extend_one_chain(tmp_path: Path) -> None:
    """X13: the record has one order, whichever process writes it."""
    path = tmp_path / "hub.db"
    printed = await asyncio.to_thread(lambda: finish(start(_APPEND, path, 3)))
    answers = [line for each in printed for line in each.split()]
    assert (answers.count("AcceptedRequest"), answers.count("DuplicateRequest")) == (100, 200)
    verdict = verify_file(path)
    assert (verdict.ok, verdict.rows) == (True, 3 * 300 + 100)
    assert verdict.checkpoints > 3
    store = SqliteStore(path)
    await store.open()
    for number in range(3):
        records = await store.records(run=f"run-{number}", limit=2_000)
        own = [record.body for record in records if record.kind is Kind.PROGRESS]
        assert own == [progress(f"{turn}.{step}") for turn in range(100) for step in range(3)]
    await store.close()


async def test_a_wait_ends_with_an_outcome_that_another_process_wrote(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "hub.db")
    await store.open()
    await store.submit(a_request(), b"digest", worker="w", lease_ms=LONG_MS)
    async with asyncio.timeout(PATIENCE_S), asyncio.TaskGroup() as group:
        wait = group.create_task(store.wait("run-one"))
        await asyncio.to_thread(lambda: finish(start(_FINISH, store.path, 1)))
    assert wait.result() == a_response(a_request())
    await store.close()


async def test_of_processes_that_answer_a_question_at_once_one_is_heard(tmp_path: Path) -> None:
    """A person's word is one word, at whichever terminal it was given."""
    store = SqliteStore(tmp_path / "hub.db")
    await store.open()
    names = [str(number) for number in range(50)]
    for name in names:
        await store.put(a_question(name))
    printed = await asyncio.to_thread(lambda: finish(start(_DECIDE, store.path, 3)))
    decisions = [line.split() for each in printed for line in each.splitlines()]
    assert sorted(question for question, _ in decisions) == sorted(f"question-{name}" for name in names)
    for question, by in decisions:
        assert await store.decision(question) == Decision(agreed=True, by=by)
    await store.close()


async def test_an_answer_given_at_one_store_is_seen_at_the_other(tmp_path: Path) -> None:
    async with two(tmp_path) as (hub, terminal):
        await hub.put(a_question())
        assert await terminal.put(a_question(text="Another?")) == a_question()
        assert await terminal.pending() == [a_question()]
        assert await terminal.decide("question-one", Decision(agreed=False, by="ann"))
        assert not await hub.decide("question-one", Decision(agreed=True, by="ben"))
        assert await hub.decision("question-one") == Decision(agreed=False, by="ann")


async def test_a_question_withdrawn_at_one_store_cannot_be_answered_at_the_other(tmp_path: Path) -> None:
    async with two(tmp_path) as (hub, terminal):
        await hub.put(a_question())
        await hub.withdraw("question-one")
        assert not await terminal.decide("question-one", Decision(agreed=True, by="ann"))


async def test_the_stores_on_one_file_share_their_secret_and_those_on_another_do_not(tmp_path: Path) -> None:
    async with two(tmp_path) as (first, second), two(tmp_path / "other") as (stranger, _):
        assert first.secret() == second.secret()
        assert first.secret() != stranger.secret()
        # What is derived from the key must not give it away.
        assert first.secret().hex() not in (tmp_path / "hub.db.key").read_text()


async def test_what_one_store_sealed_the_other_can_unseal(tmp_path: Path) -> None:
    async with two(tmp_path) as (first, second):
        first.seal("run-one", [SealedValue("<EMAIL_1>", b"value", False)])
        await first.flush()
        second.seal("run-one", [SealedValue("<EMAIL_1>", b"another", True)])
        await second.flush()
        assert await first.unseal("run-one") == [SealedValue("<EMAIL_1>", b"value", True)]


async def test_a_waiting_request_that_one_store_handed_back_begins_at_the_other(tmp_path: Path) -> None:
    changed = replace(a_request(), objective="Sort one receipt")
    async with two(tmp_path) as (first, second):
        await first.submit(a_request(), b"digest", worker="first", lease_ms=LONG_MS, waiting=True)
        assert await second.claim("run-one", "second", LONG_MS) is None
        assert await first.release("run-one", 1)
        expired = await second.sweep(max_attempts=1, keep_ms=LONG_MS)
        assert expired == [OrphanedRun("run-one", a_request(), waiting=True)]
        epoch = await second.claim("run-one", "second", LONG_MS)
        assert epoch is not None
        assert not await first.begin("run-one", 1, a_request())
        assert await second.begin("run-one", epoch, changed)
        assert [(run.state, run.objective) for run in await first.runs()] == [("running", "Sort one receipt")]
        assert not await first.finish("run-one", 1, a_response(a_request(), "stale"), 1)
        assert await second.finish("run-one", epoch, a_response(a_request()), 1)
        assert (await first.wait("run-one")).result == "sorted"
        assert (await first.verify()).ok


async def test_what_a_store_writes_of_a_run_that_another_has_claimed_is_refused_and_logged_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with two(tmp_path) as (one, other):
        await one.submit(a_request(), b"digest", worker="one", lease_ms=OVER_MS)
        one.append(Kind.PROGRESS, 1, "run-one", "session-one", progress("mine"), 1)
        await one.flush()
        assert await other.claim("run-one", "other", LONG_MS) == 2
        for text in ("stale", "stale again"):
            one.append(Kind.PROGRESS, 1, "run-one", "session-one", progress(text), 1)
            await one.flush()
        other.append(Kind.PROGRESS, 1, "run-one", "session-one", progress("theirs"), 2)
        await other.flush()
        bodies = [each.body for each in await one.records() if each.kind is Kind.PROGRESS]
        assert bodies == [progress("mine"), progress("theirs")]
    (logged,) = [each for each in caplog.messages if "taken over" in each]
    assert "run run-one was taken over by another hub" in logged


async def test_what_one_store_is_told_reaches_the_other(tmp_path: Path) -> None:
    async with two(tmp_path) as (hub, terminal):
        first = await terminal.control("run-one", "cancel", "ann", "too slow")
        second = await hub.control("", "reload", "ben", "")
        assert [(each.seq, each.action) for each in await hub.controls(0)] == [(first, "cancel"), (second, "reload")]
        assert [each.seq for each in await terminal.controls(first)] == [second]
