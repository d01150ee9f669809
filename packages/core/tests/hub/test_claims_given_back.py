"""A hub gives back what it has claimed and does not work on, so that the run goes on."""

import asyncio

import pytest

from remit import Brief, Hub
from remit.protocol.envelope import Request, Response
from remit.protocol.errors import Code, fault
from remit.runtime import root_runs
from remit.runtime.ports import StoreError
from remit_testing.conformance import OVER_MS, a_request
from remit_testing.memory import MemoryStore
from remit_testing.samples import a_response
from waiting import PATIENCE_S


class FailingStore(MemoryStore):
    """A store that claims, and then says that it cannot be reached: once in the claim, once right after it."""

    def __init__(self) -> None:
        super().__init__()
        self.failures = 0

    async def claim(self, run: str, worker: str, lease_ms: int) -> int | None:
        epoch = await super().claim(run, worker, lease_ms)
        if self.failures == 0:
            self._fail()
        return epoch

    async def load(self, run: str) -> dict[str, bytes]:
        if self.failures == 1:
            self._fail()
        return await super().load(run)

    def _fail(self) -> None:
        self.failures += 1
        raise StoreError(fault(Code.STORE_UNAVAILABLE, "the connection was lost"))


async def test_a_run_whose_claim_was_lost_with_the_store_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(root_runs, "LEASE_MS", 300)
    store = FailingStore()
    hub = Hub(store=store)
    request = a_request()

    @hub.agent(request.target, resumable=True)
    async def answer(_: Brief) -> str:
        return "done"

    assert answer
    await store.open()
    await store.submit(request, b"digest", worker="dead", lease_ms=OVER_MS)
    async with hub, asyncio.timeout(PATIENCE_S):
        assert (await store.wait(request.run)).result == "done"
    assert store.failures == 2


class SlowHeartStore(MemoryStore):
    """A store that no heartbeat reaches, as if the hub stood still; and it fails once while an outcome is awaited."""

    failed = False

    async def heartbeat(self, worker: str, lease_ms: int) -> None: ...

    async def wait(self, run: str) -> Response:
        if not self.failed:
            self.failed = True
            raise StoreError(fault(Code.STORE_UNAVAILABLE, "the connection was lost"))
        return await super().wait(run)


async def test_a_hub_stops_a_run_that_another_one_has_taken_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the other hub executes or was told to stop does not go on here; whoever waits gets the outcome there."""
    monkeypatch.setattr(root_runs, "LEASE_MS", 300)
    store, stopped = SlowHeartStore(), asyncio.Event()
    begun: asyncio.Future[Request] = asyncio.get_running_loop().create_future()
    hub = Hub(store=store)

    @hub.agent("wait", resumable=True)
    async def wait(brief: Brief) -> str:
        begun.set_result(brief.request)
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()
        return "never"

    assert wait
    async with hub, asyncio.timeout(PATIENCE_S):
        asking = asyncio.create_task(hub.ask("wait", "Wait.", user="u"))
        request = await begun
        while (epoch := await store.claim(request.run, "another", 60_000)) is None:
            await asyncio.sleep(0)
        await stopped.wait()
        assert await store.finish(request.run, epoch, a_response(request, "done there"), 0)
        assert (await asking).result == "done there"
    assert store.failed
