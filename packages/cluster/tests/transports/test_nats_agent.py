"""An agent that another hub hosts, with a store and a bus that wait."""

import asyncio
from typing import Any, cast

import pytest

from remit.ports import StoreError
from remit.protocol.envelope import Request
from remit.protocol.errors import Code, fault
from remit.runtime.shared_requests import HandedOver
from remit_cluster.nats import agent
from remit_cluster.nats.agent import BusAgent
from remit_testing.samples import a_request
from waiting import PATIENCE_S


class SlowStore:
    """Takes a request, and says so later: by then nobody may wait for it."""

    connected = True
    patience_s = 1.0

    def __init__(self) -> None:
        self.submitting, self.committed = asyncio.Event(), asyncio.Event()
        self.withdrawn: list[str] = []
        self.failures: list[str] = []

    async def submit(self, request: Request, approved: tuple[str, ...]) -> HandedOver:
        self.submitting.set()
        await self.committed.wait()
        return HandedOver("run-of-callee", None)

    # ── the bus, and the handle of the call ───────────────────────────────────────────────────────────────────────────

    handed_back, traceparent = False, ""

    async def cancel_call(self, agent: str, run: str, user: str) -> bool:
        self.withdrawn.append(run)
        return True

    def is_full(self, agent: str) -> bool:
        return False

    async def wait_for_host(self, agent: str, within_s: float) -> bool:
        return True

    async def depart(self, to: str, *, in_store: bool) -> None:
        if self.failures:
            raise StoreError(fault(Code.STORE_UNAVAILABLE, self.failures.pop()))

    def time_left_ms(self) -> int:
        return 10_000

    def doubt(self, why: str) -> None: ...


async def test_a_call_that_is_cancelled_while_it_is_submitted_is_withdrawn_from_the_store() -> None:
    store = cast(Any, SlowStore())
    calling = asyncio.ensure_future(BusAgent("till", store, store).send(a_request(), store))
    async with asyncio.timeout(PATIENCE_S):
        await store.submitting.wait()
        calling.cancel()
        await asyncio.sleep(0)
        store.committed.set()
        await asyncio.wait({calling})
    assert calling.cancelled()
    assert store.withdrawn == ["run-of-callee"]


async def test_a_call_whose_departure_the_store_cannot_take_waits_until_it_can(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agent, "LOOK_S", 0)
    store = cast(Any, SlowStore())
    store.failures.append("the disk is full")
    calling = asyncio.ensure_future(BusAgent("till", store, store).send(a_request(), store))
    async with asyncio.timeout(PATIENCE_S):
        await asyncio.wait(
            {calling, submitting := asyncio.ensure_future(store.submitting.wait())}, return_when="FIRST_COMPLETED"
        )
        assert submitting.done()
        calling.cancel()
        store.committed.set()
        await asyncio.wait({calling})
    assert store.failures == []
