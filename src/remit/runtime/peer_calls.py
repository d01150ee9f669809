"""The calls of peers' agents, counted over all processes that share a store."""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence

import msgspec

from remit.policy.peer_calls import (
    PeerCall,
    call_of,
    calls_after_end,
    cell_of,
    content_of,
    current,
    group_of,
    in_doubt,
    objection,
    with_call,
)
from remit.protocol.codec import encode
from remit.protocol.envelope import Request, Response
from remit.protocol.errors import Fault, RemitError
from remit.protocol.lifecycle import Status
from remit.runtime.context import RuntimeContext

log = logging.getLogger("remit")

_read = msgspec.json.Decoder(tuple[PeerCall, ...]).decode


class PeerCalls:
    """Fan-out and cycle limits for remote agents that use a dialect whose document has these limits."""

    def __init__(self, parts: RuntimeContext) -> None:
        self._parts = parts
        self._counted: set[str] = set()
        """The runs that this process has counted and not settled yet."""
        self._settling: dict[str, asyncio.Task[None]] = {}

    async def admit(self, request: Request) -> Fault | None:
        """Count a request among its agent's calls; return the fault if it is refused.

        A request that is sent again under its id is the same call: it is neither refused nor counted twice.
        """
        why, doubtful = await self._admit(request)
        # A killed process could not report how its calls ended: the store knows, once others have ended them.
        if why is not None and (ends := await self._ends_of(doubtful)):
            await self._end(request, ends)
            why, _ = await self._admit(request)
        return why

    async def _admit(self, request: Request) -> tuple[Fault | None, list[str]]:
        """Return why a request is not counted, and the runs that may have ended without being settled."""
        parts = self._parts
        key = parts.redactor.keys.digest(content_of(request)).hex()
        call = call_of(request, self._group(request), key, parts.clock.wall_ms(), parts.limits)
        why: Fault | None = None
        doubtful: list[str] = []
        counted = False

        def add(calls: Sequence[PeerCall]) -> tuple[PeerCall, ...] | None:
            nonlocal why, doubtful, counted
            why, counted = None, False
            if any((each.group, each.id) == (call.group, call.id) for each in calls):
                return None
            why = objection(calls, call, request, parts.limits)
            doubtful, counted = in_doubt(calls, call, self._counted), why is None
            return with_call(calls, call) if counted else None

        await self._change(request, add)
        if counted:
            self._counted.add(request.run)
        return why, doubtful

    async def _ends_of(self, runs: Sequence[str]) -> dict[str, bool]:
        """Return the runs that have ended, as far as the store knows, and whether they succeeded."""
        found = [each for run in runs for each in await self._parts.store.runs(run=run, limit=1) if each.run == run]
        return {each.run: each.response.status is Status.SUCCESS for each in found if each.response is not None}

    def follow(self, request: Request, task: asyncio.Task[Response]) -> None:
        """Settle an admitted call once it ends."""
        task.add_done_callback(lambda done: self._settle(request, None if _failed(done) else done.result()))

    def withdraw(self, request: Request, response: Response | None = None) -> None:
        """Settle an admitted call that ended without having begun."""
        self._settle(request, response)

    async def settled(self, request: Request) -> None:
        """Return once a call's end is recorded: whoever sees it may ask the same again at once."""
        if (task := self._settling.get(request.run)) is not None:
            await asyncio.shield(task)

    async def close(self) -> None:
        """Return once the end of every call is recorded."""
        if self._settling:
            await asyncio.wait(self._settling.values())

    def _settle(self, request: Request, response: Response | None) -> None:
        if request.run not in self._counted:
            return  # the same request was counted before, under another run
        task = asyncio.get_running_loop().create_task(self._ended(request, response))
        self._settling[request.run] = task
        task.add_done_callback(lambda _: self._settled(request.run))

    def _settled(self, run: str) -> None:
        self._settling.pop(run, None)
        self._counted.discard(run)

    async def _ended(self, request: Request, response: Response | None) -> None:
        succeeded = response is not None and response.status is Status.SUCCESS
        try:
            await self._end(request, {request.run: succeeded})
        except RemitError as error:  # it is dropped when its time is over
            log.warning("failed to settle %s for its caller's limits: %s", request.run, error.fault.code)

    async def _end(self, request: Request, ends: Mapping[str, bool]) -> None:
        # A finished call is not repeated in the same run; runs elsewhere are assumed to last as long as here.
        until_ms = self._parts.clock.wall_ms() + self._parts.limits.root_time_ms
        await self._change(request, lambda calls: calls_after_end(calls, ends, until_ms=until_ms))

    def _group(self, request: Request) -> str:
        return self._parts.redactor.keys.digest(group_of(request)).hex()

    async def _change(
        self, request: Request, change: Callable[[Sequence[PeerCall]], tuple[PeerCall, ...] | None]
    ) -> None:
        parts = self._parts
        name = cell_of(self._group(request))
        while True:
            revision, raw = await parts.store.get(name) or (0, b"[]")
            changed = change(current(_read(raw), parts.clock.wall_ms()))
            if changed is None or await parts.store.cas(name, revision, encode(changed)) is not None:
                return


def _failed(task: asyncio.Task[Response]) -> bool:
    return task.cancelled() or task.exception() is not None
