"""Requests that stay in the process: slots, priorities, bounded queues."""

import asyncio
from collections.abc import Callable

from remit.policy.shares import ShareOwner
from remit.protocol.envelope import Request, Response
from remit.runtime.aside import current_share
from remit.runtime.fair_slots import FairSlots
from remit.runtime.ports import Handler, NobodyServesError


class HeldSlot:
    """One slot as its holder sees it: released and regained as needed, and given up at the end."""

    __slots__ = ("_held", "_left", "_returning", "_slots")

    def __init__(self, slots: FairSlots) -> None:
        self._slots = slots
        self._held = True
        self._left = False
        self._returning: asyncio.Event | None = None

    def release(self) -> None:
        if self._held:
            self._held = False
            self._slots.release()

    def leave(self) -> None:
        """Give the slot up: tasks that still wait to regain it get none."""
        self._left = True
        if self._held:
            self._held = False
            self._slots.release()

    def regain_now(self) -> bool:
        if self._held or self._left:
            return True
        if self._returning is None and self._slots.take_now():
            self._held = True
        return self._held

    async def regain(self) -> None:
        # Several tasks of one agent may return at once: one of them regains the slot for all.
        while not self._held and not self._left:
            if self._returning is not None:
                await self._returning.wait()
                continue
            self._returning = asyncio.Event()
            try:
                await self._slots.regain()
                if self._left:
                    self._slots.release()
                else:
                    self._held = True
            finally:
                self._returning.set()
                self._returning = None


class SlotPool:
    """The slots of one agent, and its handler."""

    def __init__(self, agent: str, slots: int, queue: int, handler: Handler, *, elsewhere: bool = False) -> None:
        self.handler = handler
        self.slots = FairSlots(agent, slots, queue)
        self._elsewhere = elsewhere

    async def enter(self, request: Request) -> HeldSlot:
        """Wait for a slot, in turn with other clients and users; refuse if the queue is full."""
        if self._elsewhere and _is_relayed(request):
            return HeldSlot(FairSlots("", 0, 0))  # a slot that belongs to no one else
        await self.slots.enter(ShareOwner(current_share.get().client, request.remit.user), request.remit.priority)
        return HeldSlot(self.slots)


class LocalTransport:
    """Delivers requests to handlers in the same process."""

    def __init__(self) -> None:
        self._stalls: dict[str, SlotPool] = {}
        self._freed: Callable[[str], None] | None = None

    def queued(self) -> dict[str, int]:
        """Return how many requests wait for each agent."""
        return {agent: stall.slots.queued for agent, stall in self._stalls.items()}

    def free(self, agent: str) -> int:
        """Return how many slots of an agent are free."""
        stall = self._stalls.get(agent)
        return 0 if stall is None else stall.slots.free

    def on_free(self, freed: Callable[[str], None]) -> None:
        self._freed = freed
        for stall in self._stalls.values():
            stall.slots.on_free(freed)

    async def request(self, agent: str, request: Request, deadline: float) -> Response:  # noqa: ARG002 - the caller keeps it
        stall = self._stalls.get(agent)
        if stall is None:
            raise NobodyServesError(agent)
        place = HeldSlot(stall.slots) if stall.slots.take_now() else await stall.enter(request)
        try:
            return await stall.handler(request, place)
        finally:
            place.leave()

    def serve(
        self, agent: str, slots: int, queue: int, handler: Handler, *, elsewhere: bool = False
    ) -> Callable[[], None]:
        stall = self._stalls[agent] = SlotPool(agent, slots, queue, handler, elsewhere=elsewhere)
        stall.slots.on_free(self._freed)

        def leave() -> None:
            if self._stalls.get(agent) is stall:
                del self._stalls[agent]

        return leave


def _is_relayed(request: Request) -> bool:
    """Return whether another hub takes part in a request, and so holds a slot until it is done.

    Such a request waits for no slot on its way to a further hub: the holders of the slots there may be waiting for it.
    """
    hubs = {address.rpartition("@")[2] for address in request.remit.chain}
    return len(hubs) > 1
