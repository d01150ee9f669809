"""Slots for which requests wait in a bounded, fair queue."""

import asyncio
from collections import deque
from collections.abc import Callable

from remit.policy.shares import FairQueue, ShareOwner
from remit.protocol.errors import Code, RemitError, fault
from remit.protocol.remit import Priority

# The retry advice of a full queue; the duration of the work is unknown, so there is no better guess.
COME_BACK_MS = 1_000


class FairSlots:
    """A number of slots, and the queue for them: each client and each of its users in turn.

    A full queue refuses whoever has most in it, so that one user cannot keep the others out.
    """

    def __init__(self, what: str, slots: int, queue: int) -> None:
        self._what = what
        self._free = slots
        self._queue = queue
        self._freed: Callable[[str], None] | None = None
        self._returning: deque[asyncio.Future[None]] = deque()
        self._waiting: FairQueue[asyncio.Future[None]] = FairQueue()

    @property
    def queued(self) -> int:
        """How many requests wait for a slot."""
        return len(self._waiting) + sum(not future.done() for future in self._returning)

    @property
    def free(self) -> int:
        """How many slots are free."""
        return self._free

    def on_free(self, freed: Callable[[str], None] | None) -> None:
        """Call *freed* with the name of what is waited for when a slot is free and no request waits for it."""
        self._freed = freed

    def release(self) -> None:
        """Give a slot to the next request, or back."""
        while (future := self._returning.popleft() if self._returning else self._waiting.take()) is not None:
            if not future.done():
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
        if len(self._waiting) >= self._queue:
            last = self._waiting.make_room(share) if self._queue else None
            if last is None:
                raise self._full()
            if not last.done():
                last.set_exception(self._full())
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.put(share, future, priority)
        try:
            await self._given(future)
        finally:
            self._waiting.remove(share, future, priority)

    async def regain(self) -> None:
        """Wait for a slot before all others: the request has work in progress."""
        if not self.take_now():
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._returning.append(future)
            await self._given(future)

    async def _given(self, future: asyncio.Future[None]) -> None:
        try:
            await future
        except asyncio.CancelledError:
            if future.done() and not future.cancelled() and future.exception() is None:
                self.release()
            raise

    def _full(self) -> RemitError:
        message = f"the queue of {self._what} is full: {len(self._waiting)} requests are waiting"
        return RemitError(fault(Code.OVERLOADED, message, retry_after_ms=COME_BACK_MS))
