"""Connections are lost, servers restart and processes are killed: nothing acknowledged is lost or written twice."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncGenerator, Generator
from pathlib import Path
from subprocess import PIPE

import asyncpg  # pyright: ignore[reportMissingTypeStubs]
import pytest

from commands import popen
from postgres_load import Load
from postgres_server import PostgresServer, shared_server
from remit.ports import AcceptedRequest, DuplicateRequest, StoreError
from remit.protocol.errors import Code
from remit.protocol.records import ChainBreak, Kind
from remit_cluster.postgres.connection import READERS, DatabaseAddress, PgConnection
from remit_cluster.postgres.store import PostgresStore
from remit_testing.samples import LONG_MS, OVER_MS, a_request, a_response, code_of, progress
from waiting import PATIENCE_S, eventually


@pytest.fixture
def server() -> PostgresServer:
    return shared_server()


@pytest.fixture(scope="module")
def own_server() -> Generator[PostgresServer]:
    """A server that waits for its disk, and that tests stop and start."""
    server = PostgresServer()
    yield server
    server.remove()


@pytest.fixture
def key(tmp_path: Path) -> Path:
    return tmp_path / "hub.key"


@pytest.fixture
async def store(server: PostgresServer, key: Path) -> AsyncGenerator[PostgresStore]:
    store = PostgresStore(await server.database(), key=key)
    await store.open()
    yield store
    await store.close()


async def kill_backends(server: PostgresServer, url: str) -> None:
    connection = await server.connect("postgres")
    try:
        await connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = $1", url.rpartition("/")[2]
        )
    finally:
        await connection.close()


async def test_killed_backends_cost_nobody_an_answer(server: PostgresServer, store: PostgresStore) -> None:
    async with Load(store) as load:
        for _ in range(5):
            await load.more()
            await kill_backends(server, store.address.url)
        await load.more()
    assert not load.unsure
    await load.check()


async def test_a_server_that_crashes_in_mid_write_loses_nothing(own_server: PostgresServer, key: Path) -> None:
    store = PostgresStore(await own_server.database(), key=key)
    await store.open()
    async with Load(store) as load:
        for how in (signal.SIGQUIT, signal.SIGINT):
            await load.more()
            await asyncio.to_thread(own_server.stop, how)
            own_server.start()
        await load.more()
    await load.check()
    await store.close()


async def test_while_the_server_is_away_callers_are_told_and_records_are_kept(
    own_server: PostgresServer, key: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("remit_cluster.postgres.writer.PATIENCE_SECONDS", 0.2)
    store = PostgresStore(await own_server.database(), key=key)
    await store.open()
    await asyncio.to_thread(own_server.stop)
    try:
        store.append(Kind.PROGRESS, 1, "run", "session", progress("kept"))
        attempt = store.submit(a_request(), b"digest", worker="w", lease_ms=LONG_MS)
        assert await code_of(attempt) is Code.STORE_UNAVAILABLE
    finally:
        own_server.start()

    async def submitted() -> object:
        try:
            return await store.submit(a_request(), b"digest", worker="w", lease_ms=LONG_MS)
        except StoreError:
            return None

    assert await eventually(submitted, when=lambda outcome: outcome is not None) == AcceptedRequest(1)
    assert [record.kind for record in await store.records()] == [Kind.PROGRESS, Kind.STARTED]
    await store.close()


def test_a_connection_that_ends_within_a_transaction_is_no_fault_of_the_data() -> None:
    error = asyncpg.InterfaceError("cannot call Transaction.__aexit__(): the underlying connection is closed")
    assert DatabaseAddress("postgresql://db/remit").translate(error).fault.code is Code.STORE_UNAVAILABLE


async def test_a_read_waits_for_a_server_that_restarts(
    own_server: PostgresServer, key: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("remit_cluster.postgres.connection.READ_PATIENCE_SECONDS", PATIENCE_S)
    store = PostgresStore(await own_server.database(), key=key)
    await store.open()
    await store.submit(a_request(), b"digest", worker="w", lease_ms=LONG_MS)
    await asyncio.to_thread(own_server.stop, signal.SIGQUIT)
    reading = [asyncio.create_task(store.records()), asyncio.create_task(store.claimed("w"))]
    await asyncio.sleep(0.3)  # long enough to be refused
    own_server.start()
    records, claimed = [await each for each in reading]
    assert (len(records), claimed) == (1, [("run-one", 1)])
    await store.close()


async def test_a_lost_tail_after_a_failover_is_said_and_recorded(
    server: PostgresServer, store: PostgresStore, caplog: pytest.LogCaptureFixture
) -> None:
    """An asynchronous standby took over, and has not got the last acknowledged records."""
    for number in range(4):
        store.append(Kind.PROGRESS, number, "run", "session", progress(str(number)))
        await store.flush()
    connection = await server.connect(store.address.url)
    await connection.execute("DELETE FROM remit.record WHERE number > 2")
    await connection.execute("DELETE FROM remit.chain WHERE first > 2")
    await connection.execute("UPDATE remit.chain SET last = 2, digests = substring(digests for 64) WHERE last > 2")
    await connection.execute("UPDATE remit.stream SET number = 2, batch = 2, chained = least(chained, 2)")
    await connection.close()
    await kill_backends(server, store.address.url)
    store.append(Kind.PROGRESS, 9, "run", "session", progress("after"))
    await store.flush()
    assert "ACKNOWLEDGED RECORDS ARE LOST" in caplog.text
    await store.flush()
    records = await store.records()
    (broken,) = [record.body for record in records if isinstance(record.body, ChainBreak)]
    assert "ended at record 2 in the database; records up to 4 had been acknowledged" in broken.text
    assert len(records) == 4


async def test_a_worker_is_judged_by_the_clock_of_the_server(server: PostgresServer, key: Path) -> None:
    """The clocks of two hubs differ by an hour, and neither takes the other's work."""
    url = await server.database()
    fast = PostgresStore(url, key=key, wall_ms=lambda: 10**13)
    slow = PostgresStore(url, key=key, wall_ms=lambda: 10**12)
    await fast.open()
    await slow.open()
    await slow.submit(a_request("one"), b"digest", worker="slow", lease_ms=LONG_MS)
    await fast.submit(a_request("two"), b"digest", worker="fast", lease_ms=OVER_MS)
    assert await fast.claim("run-one", "fast", LONG_MS) is None
    assert await slow.claim("run-two", "slow", LONG_MS) == 2
    assert await fast.claim("run-two", "fast", LONG_MS) is None
    assert not await fast.finish("run-two", 1, a_response(a_request("two")), 1)
    await slow.close()
    await fast.close()


async def test_of_many_hubs_that_submit_or_claim_the_same_one_succeeds(server: PostgresServer, key: Path) -> None:
    url = await server.database()
    stores = [PostgresStore(url, key=key) for _ in range(4)]
    for store in stores:
        await store.open()
    for number in range(10):
        request = a_request(str(number))
        accepted = await asyncio.gather(
            *(store.submit(request, b"digest", worker="w", lease_ms=OVER_MS) for store in stores)
        )
        assert sorted(map(type, accepted), key=str) == [AcceptedRequest, *[DuplicateRequest] * 3]
        claims = await asyncio.gather(*(store.claim(request.run, "w", LONG_MS) for store in stores))
        assert sorted(claims, key=str) == [2, None, None, None]
    for store in stores:
        await store.close()


async def test_without_notifications_an_outcome_is_found_by_asking(
    server: PostgresServer, key: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """PgBouncer in transaction mode: LISTEN hears nothing, and no statement stays prepared."""
    monkeypatch.setattr("remit_cluster.postgres.waiting.ECHO_SECONDS", 0.05)

    def swallow(*args: object) -> None:
        pass

    monkeypatch.setattr("remit_cluster.postgres.waiting.Waiting._note_ended", swallow)
    url = await server.database()
    first, second = PostgresStore(url, key=key, pooler=True), PostgresStore(url, key=key, pooler=True)
    await first.open()
    await second.open()
    await eventually(lambda: caplog.text, when=lambda text: "notifications do not arrive" in text)
    await first.submit(a_request(), b"digest", worker="w", lease_ms=LONG_MS)
    async with asyncio.timeout(10), asyncio.TaskGroup() as group:
        waiting = group.create_task(second.wait("run-one"))
        await asyncio.sleep(0.05)
        await first.finish("run-one", 1, a_response(a_request()), 1)
    assert waiting.result() == a_response(a_request())
    await second.close()
    await first.close()


async def test_something_that_cannot_be_stored_harms_nothing_else(store: PostgresStore) -> None:
    store.append(Kind.PROGRESS, 1, "run", "session", progress("before"))
    store.append(Kind.PROGRESS, 2, "run\0", "session", progress("of a run with an impossible name"))
    store.append(Kind.PROGRESS, 3, "run", "session", progress("after"))
    assert await code_of(store.cas("key\0", 0, b"value")) is Code.MALFORMED_ENVELOPE
    await store.flush()
    records = await store.records()
    assert [record.kind for record in records] == [Kind.PROGRESS, Kind.NOTICE, Kind.PROGRESS]


VICTIM = """
import asyncio, os, sys
from remit_cluster.postgres.store import PostgresStore
from remit.protocol.records import Kind
from remit_testing.samples import LONG_MS, a_request, a_response, progress

async def caller(store, place):
    number = 0
    while True:
        number += 1
        name = f"{os.getpid()}-{place}-{number}"
        request = a_request(name)
        await store.submit(request, b"digest", worker="w", lease_ms=LONG_MS)
        store.append(Kind.PROGRESS, number, request.run, request.session, progress(name))
        await store.finish(request.run, 1, a_response(request, name), 7)
        os.write(1, f"{name}\\n".encode())

async def main():
    store = PostgresStore(sys.argv[1], key=sys.argv[2])
    await store.open()
    async with asyncio.TaskGroup() as group:
        for place in range(8):
            group.create_task(caller(store, place))

asyncio.run(main())
"""


async def test_what_a_killed_process_acknowledged_is_there(store: PostgresStore, key: Path) -> None:
    """kill -9 of a hub that writes, while another hub goes on."""
    answered: set[str] = set()
    for _ in range(2):
        victim = popen([sys.executable, "-c", VICTIM, store.address.url, str(key)], stdout=PIPE)
        assert victim.stdout
        lines = [await asyncio.to_thread(victim.stdout.readline) for _ in range(60)]
        os.kill(victim.pid, signal.SIGKILL)
        rest = await asyncio.to_thread(victim.stdout.read)
        victim.wait()
        victim.stdout.close()
        whole = (b"".join(lines) + rest).split(b"\n")[:-1]
        answered |= {line.decode() for line in whole}
    records = await store.records(limit=100_000)
    results = [record.run for record in records if record.kind is Kind.RESULT]
    assert len(results) == len(set(results))
    assert {f"run-{name}" for name in answered} <= set(results)
    verdict = await store.verify()
    assert (verdict.ok, verdict.rows, verdict.unchained) == (True, len(records), 0)


async def test_callers_that_stop_waiting_leave_the_connections_whole(
    store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    await store.submit(a_request(), b"digest", worker="w", lease_ms=LONG_MS)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(store.wait("run-one"), 0.1)
    made: list[None] = []
    connect = DatabaseAddress.connect

    async def counted(address: DatabaseAddress) -> PgConnection:
        made.append(None)
        return await connect(address)

    monkeypatch.setattr(DatabaseAddress, "connect", counted)
    for _ in range(20):
        waiting = asyncio.create_task(store.wait("run-one"))
        await asyncio.sleep(0)
        await asyncio.sleep(0)  # in the middle of its statement
        waiting.cancel()
    await store.finish("run-one", 1, a_response(a_request()), 1)
    assert await store.wait("run-one") == a_response(a_request())
    assert len(made) < READERS  # the others of the pool, opened as they are needed
