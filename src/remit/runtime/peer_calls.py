"""The calls of peers' agents, counted over all processes on a store."""

import asyncio
import logging
from collections.abc import Callable, Sequence

import msgspec

from remit.policy.peer_calls import PeerCall, call_of, content_of, current, ended, group_of, objection, with_call
from remit.protocol.codec import encode
from remit.protocol.envelope import Request, Response
from remit.protocol.errors import Fault, RemitError
from remit.protocol.lifecycle import Status
from remit.runtime.parts import Parts

log = logging.getLogger("remit")

_read = msgspec.json.Decoder(tuple[PeerCall, ...]).decode


class PeerCalls:
    """Fan-out and cycle for agents that live elsewhere and ask in a dialect whose document has these limits."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._settling: dict[str, asyncio.Task[None]] = {}

    async def admit(self, request: Request) -> Fault | None:
        """Count a request among those of its agent; return why it is refused if it is not counted.

        One that is sent again under its id is the same call, and is neither refused nor counted twice.
        """
        parts = self._parts
        now_ms = parts.clock.wall_ms()
        key = parts.redactor.keys.digest(content_of(request)).hex()
        call = call_of(request, key, now_ms, parts.limits)
        why: Fault | None = None

        def add(calls: Sequence[PeerCall]) -> tuple[PeerCall, ...] | None:
            nonlocal why
            why = None
            if any(each.id == request.id for each in calls):
                return None
            why = objection(calls, call, request, parts.limits)
            return None if why is not None else with_call(calls, call)

        await self._change(request, add)
        return why

    def follow(self, request: Request, task: asyncio.Task[Response]) -> None:
        """Take note of how a call ends that was admitted, once it does."""
        task.add_done_callback(lambda done: self._settle(request, None if _failed(done) else done.result()))

    def withdraw(self, request: Request, response: Response | None = None) -> None:
        """Take note that a call that was admitted ended without having begun."""
        self._settle(request, response)

    async def settled(self, request: Request) -> None:
        """Return once it is on record how a call ended: whoever hears of its end may ask the same again at once."""
        if (task := self._settling.get(request.run)) is not None:
            await asyncio.shield(task)

    async def close(self) -> None:
        """Return once the end of every call is on record."""
        if self._settling:
            await asyncio.wait(self._settling.values())

    def _settle(self, request: Request, response: Response | None) -> None:
        task = asyncio.get_running_loop().create_task(self._ended(request, response))
        self._settling[request.run] = task
        task.add_done_callback(lambda _: self._settling.pop(request.run, None))

    async def _ended(self, request: Request, response: Response | None) -> None:
        succeeded = response is not None and response.status is Status.SUCCESS
        # Done once, it is not asked for again in the same run; runs elsewhere are taken to last as long as here.
        until_ms = self._parts.clock.wall_ms() + self._parts.limits.root_time_ms
        try:
            await self._change(request, lambda calls: ended(calls, request.id, succeeded=succeeded, until_ms=until_ms))
        except RemitError as error:  # it is forgotten when its time is over
            log.warning("the end of %s could not be noted for its caller's limits: %s", request.run, error.fault.code)

    async def _change(
        self, request: Request, change: Callable[[Sequence[PeerCall]], tuple[PeerCall, ...] | None]
    ) -> None:
        parts = self._parts
        name = f"calls {parts.redactor.keys.digest(group_of(request)).hex()}"
        while True:
            revision, raw = await parts.store.get(name) or (0, b"[]")
            changed = change(current(_read(raw), parts.clock.wall_ms()))
            if changed is None or await parts.store.cas(name, revision, encode(changed)) is not None:
                return


def _failed(task: asyncio.Task[Response]) -> bool:
    return task.cancelled() or task.exception() is not None
