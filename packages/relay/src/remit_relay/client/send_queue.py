"""The messages that a device has to send: one ordered queue for each receiver.

Pure: it decides which message is next and what an answer means. The caller owns the socket and the time.
"""

import asyncio
from collections import deque

from remit_relay.wire import Put, Receipt, Refused

Outcome = Receipt | Refused


class QueuedMessage:
    """One message without a receipt of the gateway."""

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
        """How many of those were sent and not refused."""
        self.underway: deque[int] = deque()
        """The sizes of those that were sent and not answered, refused ones included."""
        self.anew = False
        self.pause: Refused | None = None
        """Why sending is paused."""
        self.highest = 0


class SendQueues:
    """All queues, and how much of them is sent but not answered."""

    def __init__(self, *, messages: int, size: int) -> None:
        self._queues: dict[str, SendQueue] = {}
        self._ready: dict[str, SendQueue] = {}
        """The queues with something to send, in round-robin order: the first is next, then moves to the end."""
        self._messages_left = self._messages = messages
        self._size_left = self._size = size
        self.bytes_waiting = 0

    def add(self, to: str, number: int, body: bytes, future: "asyncio.Future[Outcome]") -> None:
        """Add a message; raises a `ValueError` if its number does not grow."""
        queue = self._queues.get(to)
        if queue is None:
            queue = self._queues[to] = SendQueue(to)
        if number <= queue.highest:
            raise ValueError(f"number {number} for {to} is not above the previous one, {queue.highest}")
        queue.highest = number
        queue.waiting.append(QueuedMessage(number, body, future))
        self.bytes_waiting += len(body)
        self._look(queue)

    def next(self) -> Put | None:
        """Return the next message to send, if there is one and enough of the earlier ones were answered."""
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
        """Handle the receipt of a message."""
        queue = self._answered(receipt.to)
        if queue is None or not queue.waiting or queue.waiting[0].number != receipt.number:
            return
        one = queue.waiting.popleft()
        queue.sent = max(0, queue.sent - 1)
        self.bytes_waiting -= len(one.body)
        # A repeat is expected if the message was sent before on a connection that broke.
        surprising = receipt.repeated and not one.tried
        _tell(one.future, Receipt(receipt.to, receipt.number, surprising))

    def refused(self, refused: Refused) -> SendQueue | None:
        """Handle a refusal; return the queue if the message should be sent again after a pause."""
        queue = self._answered(refused.to)
        if queue is None or refused.code == "behind":
            return None
        queue.sent = 0
        queue.anew = True
        self._ready.pop(queue.to, None)
        if refused.code == "full":
            queue.pause = refused
            return queue
        # No later message may overtake it, so they are all returned together.
        waiting, queue.waiting = queue.waiting, deque()
        queue.highest = 0
        for one in waiting:
            self.bytes_waiting -= len(one.body)
            _tell(one.future, Refused(to=refused.to, number=one.number, code=refused.code, reason=refused.reason))
        return None

    def resume(self, queue: SendQueue) -> None:
        """End the pause of a queue."""
        queue.pause = None
        self._look(queue)

    def begin_again(self) -> None:
        """Reset for a new connection: what was not answered is sent again."""
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
                # The caller stores its numbers.
                del self._queues[to]
            self._look(queue)

    def pauses(self) -> dict[str, Refused]:
        """The reason for each device to which sending is paused."""
        return {to: queue.pause for to, queue in self._queues.items() if queue.pause is not None}

    def end(self, error: Exception) -> None:
        """Fail all messages: nothing more can be sent."""
        for queue in self._queues.values():
            for one in queue.waiting:
                if not one.future.done():
                    one.future.set_exception(error)
                    # Mark it as retrieved: the caller stores messages without a receipt anyway.
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
