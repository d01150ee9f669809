"""Two real servers, one of which follows the other and takes over: nothing acknowledged is lost, or the hub says so."""

import asyncio
import signal
import socket
from collections.abc import Generator
from pathlib import Path

import pytest

from postgres_load import Load
from postgres_server import PostgresServer, shared_server
from remit.ports import StoreError
from remit.protocol.errors import Code
from remit.protocol.records import ChainBreak, Kind
from remit_cluster.postgres.connection import DatabaseAddress
from remit_cluster.postgres.store import PostgresStore
from remit_testing.samples import progress
from waiting import eventually


class Pair:
    """A primary server and its standby."""

    def __init__(self) -> None:
        self.primary = PostgresServer("wal_sender_timeout=2s")
        self.standby = PostgresServer("wal_retrieve_retry_interval=100ms", primary=self.primary)

    def remove(self) -> None:
        self.standby.remove()
        self.primary.remove()

    def both(self, url: str, options: str = "") -> str:
        """The address of a database with both servers."""
        here, there = (f"127.0.0.1:{server.port}" for server in (self.primary, self.standby))
        return url.replace(here, f"{here},{there}") + options

    async def in_step(self) -> None:
        """Wait until the standby has everything."""
        at = await self.primary.sql("SELECT pg_current_wal_lsn()::text")
        await eventually(lambda: self.standby.sql(f"SELECT pg_last_wal_replay_lsn() >= '{at}'::pg_lsn"))


@pytest.fixture
def pair() -> Generator[Pair]:
    pair = Pair()
    yield pair
    pair.remove()


@pytest.fixture
def key(tmp_path: Path) -> Path:
    return tmp_path / "hub.key"


async def test_a_standby_is_refused_and_a_synchronous_one_takes_over_without_loss(pair: Pair, key: Path) -> None:
    url = await pair.primary.database()
    store = PostgresStore(pair.both(url), key=key)
    await store.open()
    await pair.primary.sql("ALTER SYSTEM SET synchronous_standby_names = '*'")
    await pair.primary.sql("SELECT pg_reload_conf()")
    await eventually(lambda: pair.primary.sql("SELECT bool_or(sync_state = 'sync') FROM pg_stat_replication"))
    with pytest.raises(StoreError) as caught:
        await PostgresStore(url.replace(str(pair.primary.port), str(pair.standby.port)), key=key).open()
    assert "the server accepts no writes: it is a standby server" in caught.value.fault.message
    async with Load(store) as load:
        await load.more()
        await asyncio.to_thread(pair.primary.stop, signal.SIGQUIT)
        with pytest.raises(StoreError) as caught:
            await PostgresStore(pair.both(url), key=key).open()
        assert "no server accepts writes: each is a standby" in caught.value.fault.message
        assert caught.value.fault.code is Code.STORE_UNAVAILABLE
        await pair.standby.promote()
        await load.more()
    await load.check()
    await store.close()


async def test_an_asynchronous_standby_that_lacks_the_last_records_is_found_out(
    pair: Pair, key: Path, caplog: pytest.LogCaptureFixture
) -> None:
    url = await pair.primary.database()
    store = PostgresStore(pair.both(url), key=key)
    await store.open()
    for number in range(6):
        if number == 4:
            await pair.in_step()
            await asyncio.to_thread(pair.standby.stop)
        store.append(Kind.PROGRESS, number, "run", "session", progress(str(number)))
        await store.flush()
    await asyncio.to_thread(pair.primary.stop, signal.SIGQUIT)
    await asyncio.to_thread(pair.standby.start)
    await pair.standby.promote()
    store.append(Kind.PROGRESS, 9, "run", "session", progress("after"))

    async def is_written() -> bool:
        try:
            await store.flush()
        except StoreError:
            return False
        return True

    await eventually(is_written)
    assert "ACKNOWLEDGED RECORDS ARE LOST" in caplog.text
    await store.flush()
    bodies = [record.body for record in await store.records()]
    (broken,) = [body for body in bodies if isinstance(body, ChainBreak)]
    assert "ended at record 4 in the database; records up to 6 had been acknowledged" in broken.text
    assert len(bodies) == 6
    await store.close()


async def test_a_primary_that_becomes_read_only_is_left_for_the_one_that_accepts_writes(
    pair: Pair, key: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A switch-over: the old server goes on, and refuses writes."""
    url = await pair.primary.database()
    store = PostgresStore(pair.both(url), key=key)
    await store.open()
    async with Load(store) as load:
        await load.more()
        await pair.in_step()
        await pair.primary.sql("ALTER SYSTEM SET default_transaction_read_only = on")
        await pair.primary.sql("SELECT pg_reload_conf()")
        await asyncio.sleep(0.3)
        await pair.in_step()
        await pair.standby.promote()
        await load.more()
    assert "ARE LOST" not in caplog.text
    await load.check()
    await store.close()


async def test_a_host_that_is_switched_off_does_not_hide_the_other() -> None:
    """Nothing answers at the first address, not even with a refusal."""
    silent = socket.socket()
    silent.bind(("127.0.0.1", 0))
    silent.listen(0)
    with silent:
        port = silent.getsockname()[1]
        url = shared_server().url("postgres").replace("@127.0.0.1", f"@127.0.0.1:{port},127.0.0.1")
        async with asyncio.timeout(5):
            await (await DatabaseAddress(url).connect()).close()


def test_the_name_of_a_store_on_several_hosts_has_no_password() -> None:
    address = DatabaseAddress("postgresql://ann:pass%2Fword@one:1,two/hub?target_session_attrs=read-write")
    assert address.name == "postgresql://one:1,two/hub"
    assert DatabaseAddress("postgresql://ann:pass/word@one:1,two/hub").name == "postgresql://…"
