"""The queues of a device's connection: received messages until they are stored, and messages until they are sent."""

import asyncio
from collections import deque
from collections.abc import Callable, Mapping

from remit_relay.wire import MAX_BODY, Ack, Delivery, Malformed, Put, Receipt, Refused

# ── received messages ─────────────────────────────────────────────────────────────────────────────────────────────────

# An acknowledgement only frees room at the gateway: it is delayed for others, unless much of the window is used.
ACK_AFTER_MESSAGES = 32
ACK_AFTER_BYTES = 4 * MAX_BODY
ACK_AFTER_S = 0.05
# A gateway that follows the protocol sends far less ahead.
MOST_UNREAD_BYTES = 64 * 1024 * 1024
MOST_SENT = 10_000


class ReceiveQueue:
    """The unread messages, and the last stored number of each sender; *due* is called when an `Ack` should be sent.

    A sender's numbers grow, so a repeated message is recognised by its number, wherever the gateway places it.
    """

    def __init__(self, kept: Mapping[str, int], due: Callable[[], None]) -> None:
        self._kept = dict(kept)
        self._taken = dict(kept)
        self._due = due
        self._unread: deque[Delivery] = deque()
        self._unread_bytes = 0
        self._news = asyncio.Event()
        self._sent: deque[tuple[int, str, int]] = deque()
        """What the gateway sent on this connection and is not acknowledged yet: place, sender, number."""
        self._stored_place: int = 0
        """The place up to which everything was stored."""
        self._acknowledged: int = 0
        self._freed_messages = self._freed_bytes = 0
        self._is_due = False
        self._timer: asyncio.TimerHandle | None = None
        self._end: Exception | None = None

    def take(self, delivery: Delivery) -> None:
        """Add a message, unless it is a repeat; raises `Malformed` if the gateway sends more ahead than it may."""
        sender, number = delivery.sender, delivery.number
        if self._unread_bytes + len(delivery.body) > MOST_UNREAD_BYTES or len(self._sent) >= MOST_SENT:
            raise Malformed("too many messages before an acknowledgement")
        self._sent.append((delivery.place, sender, number))
        if number <= self._taken.get(sender, 0):
            self._free(len(delivery.body))
            return
        self._taken[sender] = number
        self._unread.append(delivery)
        self._unread_bytes += len(delivery.body)
        self._news.set()

    async def next(self) -> Delivery:
        """Return the next message, or raise the error of `end`."""
        while not self._unread:
            if self._end:
                raise self._end
            self._news.clear()
            await self._news.wait()
        delivery = self._unread.popleft()
        self._unread_bytes -= len(delivery.body)
        return delivery

    def at_hand(self, messages: int, size: int) -> list[Delivery]:
        """Return messages that have arrived already, up to *messages* and *size* bytes; perhaps none."""
        deliveries: list[Delivery] = []
        while self._unread and len(deliveries) < messages and size >= len(self._unread[0].body):
            delivery = self._unread.popleft()
            self._unread_bytes -= len(delivery.body)
            size -= len(delivery.body)
            deliveries.append(delivery)
        return deliveries

    def keep(self, delivery: Delivery) -> None:
        """Acknowledge a message whose effects are stored; the gateway is told soon."""
        self._kept[delivery.sender] = max(delivery.number, self._kept.get(delivery.sender, 0))
        self._free(len(delivery.body))

    def ack(self, *, at_once: bool = False) -> Ack | None:
        """Return the acknowledgement to send now, if any; *at_once* includes delayed ones."""
        if not (self._is_due or at_once) or self._stored_place == self._acknowledged:
            return None
        self._is_due = False
        self._acknowledged = self._stored_place
        return Ack(self._stored_place)

    def begin_again(self) -> None:
        """Reset for a new connection, on which everything comes again that was not acknowledged."""
        self._sent.clear()
        self._is_due = False
        self._stored_place = self._acknowledged = 0

    def _free(self, size: int) -> None:
        """Advance to the last place up to which everything was stored."""
        sent, moved = self._sent, False
        while sent and sent[0][2] <= self._kept.get(sent[0][1], 0):
            self._stored_place = sent.popleft()[0]
            moved = True
        self._freed_messages += 1
        self._freed_bytes += size
        if not moved:
            return
        if self._freed_messages >= ACK_AFTER_MESSAGES or self._freed_bytes >= ACK_AFTER_BYTES:
            self._acknowledge()
        elif self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(ACK_AFTER_S, self._acknowledge)

    def end(self, error: Exception) -> None:
        """Fail all readers: no more messages will come."""
        self._end = error
        self._news.set()
        if self._timer:
            self._timer.cancel()

    def _acknowledge(self) -> None:
        if self._timer:
            self._timer.cancel()
            self._timer = None
        self._freed_messages = self._freed_bytes = 0
        self._is_due = True
        self._due()


# ── messages to send ──────────────────────────────────────────────────────────────────────────────────────────────────

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
