"""Shared answers: equal requests are executed once."""

import asyncio
import logging

from msgspec.structs import replace

from remit.protocol.envelope import Response
from remit.protocol.errors import Code
from remit.runtime.answer_cache import Flight, Landing, Lookup, answered_before, failed_beside, landing, moment
from remit.runtime.context import RuntimeContext
from remit.runtime.delegation.response import for_record
from remit.runtime.frames import Frame

log = logging.getLogger("remit")


class CachedAnswers:
    """Answers delegations from the cache, or from an equal delegation in flight."""

    def __init__(self, parts: RuntimeContext) -> None:
        self.parts = parts

    async def answer(self, frame: Frame, wanted: Lookup) -> Response:
        """Answer from the cache or from an equal request in flight; otherwise execute it for all who wait."""
        cache, clock, changed = self.parts.cache, self.parts.clock, frame.run.changed_at
        while True:
            if (known := cache.get(wanted.key, clock.now(), changed)) is not None:
                wanted.follows = True
                return for_record(answered_before(frame.request, known))
            if wanted.likeness is not None and (known := cache.get_alike(wanted.likeness, clock.now(), changed)):
                wanted.follows = True
                return for_record(answered_before(frame.request, known, "similar"))
            flight = cache.flights.get(wanted.key)
            # A delegation that works for others who wait never waits for one of them: that could deadlock.
            if any(above.lookup is not None and above.lookup.leads for above in frame.lineage()[1:]):
                break
            if flight is None:
                wanted.leads = True
                cache.flights[wanted.key] = Flight(asyncio.get_running_loop().create_future(), moment())
                break
            if flight.begun < changed:
                break  # it may not see what this run has changed
            wanted.follows = True
            await asyncio.wait({flight.landed})  # it continues, whichever of those that wait is cancelled
            match flight.landed.result():
                case Response() as response:
                    return for_record(answered_before(frame.request, response))
                case Code() as code:
                    return failed_beside(frame.request, code)
                case None:
                    wanted.follows = False
        wanted.begun = moment()
        response = await self.parts.transport.request(frame.request.target, frame.request, frame.deadline)
        return replace(response, cache="miss")

    def land(self, frame: Frame, wanted: Lookup, response: Response, now: float) -> None:
        """Give the answer to those who wait for an equal request, or let one of them execute it."""
        landed: Landing = None
        try:
            if not wanted.follows:
                landed = landing(wanted, response, frame.run.known, session_read=frame.session_read)
            if isinstance(landed, Response):
                landed = for_record(landed)  # a caller that modifies its copy changes nobody else's
                until = now + wanted.ttl_ms / 1_000
                self.parts.cache.put(wanted.key, landed, until, wanted.likeness, wanted.begun)
        finally:
            self.let_go(wanted, landed)

    def let_go(self, wanted: Lookup, landed: Landing) -> None:
        if wanted.leads:
            wanted.leads = False
            self.parts.cache.flights.pop(wanted.key).landed.set_result(landed)
