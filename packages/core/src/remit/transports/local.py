"""Requests that stay in the process: slots, for which they wait in a bounded, fair queue."""

import asyncio
from collections import deque
from collections.abc import Callable

from remit.policy.shares import FairQueue, ShareOwner
from remit.ports import Handler, NobodyServesError
from remit.protocol.envelope import Request, Response
from remit.protocol.errors import Code, RemitError, fault
from remit.protocol.remit import Priority
from remit.runtime.aside import current_share

# The retry advice of a full queue; the duration of the work is unknown, so there is no better guess.
COME_BACK_MS = 1_000


class FairSlots:
    """A number of slots, and the queue for them: each client and each of its users in turn.

    A full queue refuses whoever has most in it, so that one user cannot keep the others out.
    """

    def __init__(self, what: str, slots: int, queue: int) -> None:
        self._what = what
        self._free = slots
        self.queue = queue
        """How many may wait."""
        self._freed: Callable[[str], None] | None = None
        self._returning: deque[asyncio.Future[None]] = deque()
        self._waiting: FairQueue[asyncio.Future[None]] = FairQueue()

    @property
    def queued(self) -> int:
        """How many requests wait for a slot."""
        return self._waiting.size + sum(not future.done() for future in self._returning)

    @property
    def free(self) -> int:
        """How many slots are free."""
        return self._free

    def on_free(self, freed: Callable[[str], None] | None) -> None:
        """Call *freed* with the name of what is waited for when a slot is free and no request waits for it."""
        self._freed = freed

    def release(self) -> None:
        """Give a slot to the next request, or back."""
        while self._returning or self._waiting.size:
            future = self._returning.popleft() if self._returning else self._waiting.take()
            if future is not None and not future.done():
                future.set_result(None)
                return
        self._free += 1
        if self._freed is not None:
            self._freed(self._what)

    def take_now(self) -> bool:
        """Take a slot if one is free."""
        if self._free > 0:
            self._free -= 1
            return True
        return False

    async def enter(self, share: ShareOwner, priority: Priority = Priority.NORMAL) -> None:
        """Wait for a slot; raise a `RemitError` if the queue is full and others have less in it."""
        if self.take_now():
            return
        if self._waiting.size >= self.queue:
            last = self._waiting.make_room(share) if self.queue else None
            if last is None:
                raise self._full()
            if not last.done():
                last.set_exception(self._full())
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.put(share, future, priority)
        try:
            await self._wait_for_slot(future)
        finally:
            self._waiting.remove(share, future, priority)

    async def regain(self) -> None:
        """Wait for a slot before all others: the request has work in progress."""
        if not self.take_now():
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._returning.append(future)
            await self._wait_for_slot(future)

    async def _wait_for_slot(self, future: asyncio.Future[None]) -> None:
        try:
            await future
        except asyncio.CancelledError:
            if future.done() and not future.cancelled() and future.exception() is None:
                self.release()
            raise

    def _full(self) -> RemitError:
        message = f"the queue of {self._what} is full: {self._waiting.size} requests are waiting"
        return RemitError(fault(Code.OVERLOADED, message, retry_after_ms=COME_BACK_MS))


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
