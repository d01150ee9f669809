"""What a device has to send: a queue for each receiver, in which nothing overtakes.

Pure: which message goes next, and what an answer means. Whoever sends owns the socket and the time.
"""

import asyncio
from collections import deque

from remit.relay.wire import Put, Receipt, Refused

Outcome = Receipt | Refused


class QueuedMessage:
    """One message that the gateway has not said it holds."""

    __slots__ = ("body", "future", "number", "tried")

    def __init__(self, number: int, body: bytes, future: "asyncio.Future[Outcome]") -> None:
        self.number = number
        self.body = body
        self.future = future
        self.tried = False


class SendQueue:
    """The messages to one device, oldest first."""

    __slots__ = ("anew", "highest", "pause", "sent", "to", "underway", "waiting")

    def __init__(self, to: str) -> None:
        self.to = to
        self.waiting: deque[QueuedMessage] = deque()
        self.sent = 0
        """How many of those were sent and not refused since."""
        self.underway: deque[int] = deque()
        """The sizes of those that were sent and not answered, refused ones included."""
        self.anew = False
        self.pause: Refused | None = None
        """Why nothing is sent for now."""
        self.highest = 0


class SendQueues:
    """All queues, and how much is under way in them."""

    def __init__(self, *, messages: int, size: int) -> None:
        self._queues: dict[str, SendQueue] = {}
        self._ready: dict[str, SendQueue] = {}
        """Those with something to send, in turns: the first is next, and then goes to the end."""
        self._messages_left = self._messages = messages
        self._size_left = self._size = size
        self.bytes_waiting = 0

    def add(self, to: str, number: int, body: bytes, future: "asyncio.Future[Outcome]") -> None:
        """Take a message; raises a `ValueError` if its number does not grow."""
        queue = self._queues.get(to)
        if queue is None:
            queue = self._queues[to] = SendQueue(to)
        if number <= queue.highest:
            raise ValueError(f"number {number} for {to} is not above {queue.highest}, which was put before")
        queue.highest = number
        queue.waiting.append(QueuedMessage(number, body, future))
        self.bytes_waiting += len(body)
        self._look(queue)

    def next(self) -> Put | None:
        """Return what to send now, if there is something and enough was answered."""
        if not self._ready or self._messages_left <= 0 or self._size_left <= 0:
            return None
        to, queue = next(iter(self._ready.items()))
        one = queue.waiting[queue.sent]
        put = Put(to, one.number, one.body, queue.anew)
        queue.anew = False
        queue.sent += 1
        queue.underway.append(len(one.body))
        self._messages_left -= 1
        self._size_left -= len(one.body)
        del self._ready[to]
        self._look(queue)
        return put

    def stored(self, receipt: Receipt) -> None:
        """The gateway holds a message."""
        queue = self._answered(receipt.to)
        if queue is None or not queue.waiting or queue.waiting[0].number != receipt.number:
            return
        one = queue.waiting.popleft()
        queue.sent = max(0, queue.sent - 1)
        self.bytes_waiting -= len(one.body)
        # Of what was sent before, on a connection that broke, a repeat says nothing.
        surprising = receipt.repeated and not one.tried
        _tell(one.future, Receipt(receipt.to, receipt.number, surprising))

    def refused(self, refused: Refused) -> SendQueue | None:
        """The gateway did not take a message; return its queue if it is to be sent again after a pause."""
        queue = self._answered(refused.to)
        if queue is None or refused.code == "behind":
            return None
        queue.sent = 0
        queue.anew = True
        self._ready.pop(queue.to, None)
        if refused.code == "full":
            queue.pause = refused
            return queue
        # None of those behind it may come before it either, so they are given back together.
        waiting, queue.waiting = queue.waiting, deque()
        queue.highest = 0
        for one in waiting:
            self.bytes_waiting -= len(one.body)
            _tell(one.future, Refused(to=refused.to, number=one.number, code=refused.code, reason=refused.reason))
        return None

    def go_on(self, queue: SendQueue) -> None:
        """The pause of a queue is over."""
        queue.pause = None
        self._look(queue)

    def begin_again(self) -> None:
        """There is a new connection: what was not answered is sent once more."""
        self._messages_left, self._size_left = self._messages, self._size
        self._ready.clear()
        for to, queue in list(self._queues.items()):
            for one in list(queue.waiting)[: queue.sent]:
                one.tried = True
            queue.sent = 0
            queue.underway.clear()
            queue.anew = False
            queue.pause = None
            if not queue.waiting:
                # Its numbers are known to whoever keeps them.
                del self._queues[to]
            self._look(queue)

    def pauses(self) -> dict[str, Refused]:
        """For each device to which nothing is sent for now: why."""
        return {to: queue.pause for to, queue in self._queues.items() if queue.pause is not None}

    def end(self, error: Exception) -> None:
        """Nothing more can be sent."""
        for queue in self._queues.values():
            for one in queue.waiting:
                if not one.future.done():
                    one.future.set_exception(error)
                    # Nobody need be there to hear it: what has no receipt is kept by the user anyway.
                    one.future.exception()

    def _answered(self, to: str) -> SendQueue | None:
        queue = self._queues.get(to)
        if queue is None or not queue.underway:
            return None
        self._messages_left += 1
        self._size_left += queue.underway.popleft()
        return queue

    def _look(self, queue: SendQueue) -> None:
        if queue.sent < len(queue.waiting) and queue.pause is None:
            self._ready[queue.to] = queue


def _tell(future: "asyncio.Future[Outcome]", outcome: Outcome) -> None:
    if not future.done():
        future.set_result(outcome)
