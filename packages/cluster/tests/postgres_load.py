"""Callers of a PostgreSQL store, and the check that nothing was lost of what they were told."""

import asyncio

from remit.ports import AcceptedRequest, DuplicateRequest, StoreError
from remit.protocol.records import Kind
from remit_cluster.postgres.store import PostgresStore
from remit_testing.samples import LONG_MS, a_request, a_response, progress
from waiting import eventually


class Load:
    """Callers that submit and finish requests, and what they were told."""

    def __init__(self, store: PostgresStore, prefix: str = "") -> None:
        self.store, self.prefix = store, prefix
        self.answered: set[str] = set()
        self.unsure: set[str] = set()
        self.enough = asyncio.Event()
        self._stopping = False

    async def caller(self, place: int) -> None:
        number = 0
        while not self._stopping:
            number += 1
            name = f"{self.prefix}{place}-{number}"
            request = a_request(name)
            try:
                submitted = await self.store.submit(request, b"digest", worker="w", lease_ms=LONG_MS)
                assert submitted in (AcceptedRequest(1), DuplicateRequest(request.run, True, None))
                self.store.append(Kind.PROGRESS, number, request.run, request.session or "", progress(name))
                assert await self.store.finish(request.run, 1, a_response(request, name), 7)
            except StoreError:
                self.unsure.add(name)
                continue
            self.answered.add(name)
            if len(self.answered) >= 50:
                self.enough.set()

    async def __aenter__(self) -> "Load":
        self._tasks = [asyncio.create_task(self.caller(place)) for place in range(8)]
        return self

    async def more(self) -> None:
        """Return once fifty more requests are answered."""
        done = len(self.answered)
        await eventually(lambda: len(self.answered), when=lambda count: count >= done + 50)

    async def __aexit__(self, *exc: object) -> None:
        self._stopping = True
        for task in self._tasks:
            await task

    async def check(self) -> None:
        """Every answer is there once; no request has two outcomes; the chain is whole."""
        records = await self.store.records(limit=1_000_000)
        results = [record.run for record in records if record.kind is Kind.RESULT]
        assert len(results) == len(set(results))
        assert {f"run-{name}" for name in self.answered} <= set(results)
        assert set(results) <= {f"run-{name}" for name in self.answered | self.unsure}
        steps = [record.run for record in records if record.kind is Kind.PROGRESS]
        assert len(steps) == len(set(steps))
        verdict = await self.store.verify()
        assert verdict.ok, verdict
        assert (verdict.rows, verdict.unchained) == (len(records), 0)
