"""`/readyz` is about the store's writing, not about its reading.

Run as a program, this file is a server whose files cannot grow any more, as on a full disk.
"""

import asyncio
import json
import os
import re
import resource
import sys
from pathlib import Path

import pytest
from aiohttp import ClientSession

from checkout import TESTS
from commands import run_program
from remit import Hub
from remit.stores.sqlite import SqliteStore
from remit_server import server_endpoints
from remit_server.server_endpoints import Readiness
from remit_testing import MemoryStore
from serving import client_of, serving

BOUND_S = 60.0


async def ready(web: ClientSession) -> tuple[int, str]:
    async with web.get("/readyz") as reply:
        return reply.status, await reply.text()


async def fill_the_disk(folder: Path) -> None:
    """Print what `/readyz` says before the disk is full, while it is, and after."""
    server_endpoints.FRESH_S = 0.0
    said: list[tuple[int, str]] = []
    hub = Hub(store=SqliteStore(folder / "hub.db"))
    async with (
        serving(hub) as server,
        client_of(server) as web,
        client_of(server, "ops") as operator,
        asyncio.timeout(BOUND_S),
    ):
        said.append(await ready(web))
        before = resource.getrlimit(resource.RLIMIT_FSIZE)
        log = folder / "hub.db-wal"
        resource.setrlimit(resource.RLIMIT_FSIZE, (log.stat().st_size, before[1]))
        said.append(await ready(web))
        # Some pages are free, and too few for a request.
        resource.setrlimit(resource.RLIMIT_FSIZE, (log.stat().st_size + 20_000, before[1]))
        said.append(await ready(web))
        async with web.get("/healthz") as reply:
            said.append((reply.status, await reply.text()))
        async with operator.get("/metrics") as reply:
            said.append((reply.status, re.findall(r"^remit_ready .*", await reply.text(), re.MULTILINE)[0]))
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        while (await ready(web))[0] != 200:
            pass
        said.append(await ready(web))
    print(json.dumps(said))


def test_a_server_whose_disk_is_full_is_not_ready_until_there_is_room(tmp_path: Path) -> None:
    variables = {**os.environ, "PYTHONPATH": str(TESTS)}
    done = run_program([sys.executable, __file__, str(tmp_path)], variables=variables, timeout=4 * BOUND_S)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [
        [200, "ready\n"],
        [503, "the store cannot write\n"],
        [503, "the store cannot write\n"],
        [200, "alive\n"],
        [200, "remit_ready 0"],
        [200, "ready\n"],
    ]


class Counting(MemoryStore):
    """Counts how often it is written to, and may take its time."""

    def __init__(self) -> None:
        super().__init__()
        self.writes = 0
        self.may_write = asyncio.Event()

    async def cas(self, key: str, revision: int, value: bytes) -> int | None:
        self.writes += bool(value)
        await self.may_write.wait()
        return await super().cas(key, revision, value)


async def test_those_who_ask_at_once_share_one_write_and_so_do_those_who_ask_soon_after() -> None:
    store = Counting()
    await store.open()
    probe = Readiness(store)
    asking = [asyncio.create_task(probe.can_write(BOUND_S)) for _ in range(50)]
    await asyncio.sleep(0)
    asking[0].cancel()  # who hangs up takes nobody's answer away
    store.may_write.set()
    assert [await each for each in asking[1:]] == [True] * 49
    assert await probe.can_write(BOUND_S)
    assert store.writes == 1
    await store.close()


async def test_it_writes_again_once_what_it_knows_is_old(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_endpoints, "FRESH_S", 0.0)
    store = Counting()
    store.may_write.set()
    await store.open()
    probe = Readiness(store)
    assert [await probe.can_write(BOUND_S) for _ in range(3)] == [True] * 3
    assert store.writes == 3
    await store.close()
    assert not await probe.can_write(BOUND_S)


async def test_a_store_that_does_not_write_in_time_is_not_ready_and_nothing_is_left_behind() -> None:
    store = Counting()
    await store.open()
    probe = Readiness(store)
    assert not await probe.can_write(0.01)
    waiting = asyncio.create_task(probe.can_write(BOUND_S))
    await asyncio.sleep(0)
    await probe.close()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    await store.close()


if __name__ == "__main__":
    asyncio.run(fill_the_disk(Path(sys.argv[1])))
