"""A hub gives back what it has claimed and does not work on, so that the run goes on."""

import asyncio

import pytest

from remit import Brief, Hub
from remit.protocol.errors import Code, fault
from remit.runtime import root_runs
from remit.runtime.ports import StoreError
from remit.testing.conformance import OVER_MS, a_request
from remit.testing.memory import MemoryStore
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
