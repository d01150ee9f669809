"""Several processes share one file: one chain, one outcome for each request, one key."""

import asyncio
import subprocess
import sys
from pathlib import Path

from remit.protocol.records import Kind
from remit.stores.connection import connect_reader
from remit.stores.sqlite import SqliteStore, verify_file
from remit.testing.conformance import LONG_MS, PATIENCE, a_request, a_response, progress

_OPEN = """
import asyncio, sys
from remit.protocol.records import Kind
from remit.stores.sqlite import SqliteStore
from remit.testing.conformance import LONG_MS, a_request, a_response, progress

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


def start(script: str, path: Path, count: int) -> list[subprocess.Popen[str]]:
    """Start processes, and let them all go on once each has imported what it needs."""
    started = [
        subprocess.Popen(
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
    printed = [process.communicate(timeout=PATIENCE * 3)[0] for process in processes]
    assert [process.returncode for process in processes] == [0] * len(processes)
    return printed


def test_processes_that_open_a_new_file_at_once_all_get_it(tmp_path: Path) -> None:
    finish(start(_NOTHING, tmp_path / "hub.db", 6))
    connection = connect_reader(tmp_path / "hub.db", 1)
    assert connection.pragma("user_version") == 1
    connection.close()


async def test_processes_that_append_at_once_extend_one_chain(tmp_path: Path) -> None:
    """X13: the record has one order, whichever process writes it."""
    path = tmp_path / "hub.db"
    printed = await asyncio.to_thread(lambda: finish(start(_APPEND, path, 3)))
    answers = [line for each in printed for line in each.split()]
    assert (answers.count("Accepted"), answers.count("Known")) == (100, 200)
    verdict = verify_file(path)
    assert (verdict.ok, verdict.rows) == (True, 3 * 300 + 100)
    assert verdict.checkpoints > 3
    store = SqliteStore(path)
    await store.open()
    for number in range(3):
        found = await store.records(run=f"run-{number}", limit=2_000)
        own = [record.body for record in found if record.kind is Kind.PROGRESS]
        assert own == [progress(f"{turn}.{step}") for turn in range(100) for step in range(3)]
    await store.close()


async def test_a_wait_ends_with_an_outcome_that_another_process_wrote(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "hub.db")
    await store.open()
    await store.submit(a_request(), b"digest", worker="w", lease_ms=LONG_MS)
    async with asyncio.timeout(PATIENCE), asyncio.TaskGroup() as group:
        wait = group.create_task(store.wait("run-one"))
        await asyncio.to_thread(lambda: finish(start(_FINISH, store.path, 1)))
    assert wait.result() == a_response(a_request())
    await store.close()
