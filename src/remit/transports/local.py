"""Requests that stay in the process: slots, priorities, bounded queues."""

import asyncio
import heapq
from collections.abc import Callable
from itertools import count

from remit.protocol.envelope import Request, Response
from remit.protocol.errors import Code, RemitError, fault
from remit.protocol.remit import Priority
from remit.runtime.ports import Handler, NobodyServesError

# How many later requests of a higher priority may overtake a request: it never starves.
HEAD_START: dict[Priority, int] = {Priority.HIGH: 0, Priority.NORMAL: 100, Priority.LOW: 400}
# Requests that regain a slot have work in progress: they come before all that have not started.
FIRST = -1
# The retry advice of a full queue; the duration of the work is unknown, so there is no better guess.
COME_BACK_MS = 1_000


class HeldSlot:
    """One slot as its holder sees it: released and regained as needed, and given up at the end."""

    __slots__ = ("_held", "_left", "_returning", "_stall")

    def __init__(self, stall: "SlotPool") -> None:
        self._stall = stall
        self._held = True
        self._left = False
        self._returning: asyncio.Event | None = None

    def release(self) -> None:
        if self._held:
            self._held = False
            self._stall.release()

    def leave(self) -> None:
        """Give the slot up: tasks that still wait to regain it get none."""
        self._left = True
        if self._held:
            self._held = False
            self._stall.release()

    def regain_now(self) -> bool:
        if self._held or self._left:
            return True
        if self._returning is None and self._stall.take_now():
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
                await self._stall.take(FIRST)
                if self._left:
                    self._stall.release()
                else:
                    self._held = True
            finally:
                self._returning.set()
                self._returning = None


class SlotPool:
    """The slots of one agent, and the queue for them."""

    def __init__(self, agent: str, slots: int, queue: int, handler: Handler, *, elsewhere: bool = False) -> None:
        self.handler = handler
        self._elsewhere = elsewhere
        self._agent = agent
        self._free = slots
        self._freed: Callable[[str], None] | None = None
        self._queue = queue
        self._arrivals = count()
        self._waiting: list[tuple[int, int, asyncio.Future[None]]] = []

    @property
    def queued(self) -> int:
        """How many requests wait for a slot."""
        return sum(not future.done() for _, _, future in self._waiting)

    def release(self) -> None:
        """Give a slot to the next request, or back."""
        while self._waiting:
            future = heapq.heappop(self._waiting)[2]
            if not future.done():
                future.set_result(None)
                return
        self._free += 1
        if self._freed is not None:
            self._freed(self._agent)

    @property
    def free(self) -> int:
        """How many slots are free."""
        return self._free

    def on_free(self, freed: Callable[[str], None] | None) -> None:
        """Call *freed* with the agent's name when a slot is free and no request waits for it."""
        self._freed = freed

    def take_now(self) -> bool:
        """Take a slot if one is free."""
        if self._free > 0:
            self._free -= 1
            return True
        return False

    async def enter(self, request: Request) -> HeldSlot:
        """Wait for a slot, in the order of priority and arrival; refuse if the queue is full."""
        if self._elsewhere and _is_relayed(request):
            return HeldSlot(SlotPool(self._agent, 0, 0, self.handler))  # a slot that belongs to no one else
        if len(self._waiting) >= self._queue:
            self._waiting = [entry for entry in self._waiting if not entry[2].done()]
            heapq.heapify(self._waiting)
            if len(self._waiting) >= self._queue:
                message = f"the queue of {self._agent} is full: {len(self._waiting)} requests are waiting"
                raise RemitError(fault(Code.OVERLOADED, message, retry_after_ms=COME_BACK_MS))
        await self.take(HEAD_START[request.remit.priority])
        return HeldSlot(self)

    async def take(self, head_start: int) -> None:
        """Wait for a slot; a head start of `FIRST` comes before all others."""
        if self.take_now():
            return
        arrival = next(self._arrivals)
        future = asyncio.get_running_loop().create_future()
        heapq.heappush(self._waiting, (FIRST if head_start == FIRST else arrival + head_start, arrival, future))
        try:
            await future
        except asyncio.CancelledError:
            if future.done() and not future.cancelled():
                self.release()
            raise


class LocalTransport:
    """Delivers requests to handlers in the same process."""

    def __init__(self) -> None:
        self._stalls: dict[str, SlotPool] = {}
        self._freed: Callable[[str], None] | None = None

    def queued(self) -> dict[str, int]:
        """Return how many requests wait for each agent."""
        return {agent: stall.queued for agent, stall in self._stalls.items()}

    def free(self, agent: str) -> int:
        """Return how many slots of an agent are free."""
        stall = self._stalls.get(agent)
        return 0 if stall is None else stall.free

    def on_free(self, freed: Callable[[str], None]) -> None:
        self._freed = freed
        for stall in self._stalls.values():
            stall.on_free(freed)

    async def request(self, agent: str, request: Request, deadline: float) -> Response:  # noqa: ARG002 - the caller keeps it
        stall = self._stalls.get(agent)
        if stall is None:
            raise NobodyServesError(agent)
        place = HeldSlot(stall) if stall.take_now() else await stall.enter(request)
        try:
            return await stall.handler(request, place)
        finally:
            place.leave()

    def serve(
        self, agent: str, slots: int, queue: int, handler: Handler, *, elsewhere: bool = False
    ) -> Callable[[], None]:
        stall = self._stalls[agent] = SlotPool(agent, slots, queue, handler, elsewhere=elsewhere)
        stall.on_free(self._freed)

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
