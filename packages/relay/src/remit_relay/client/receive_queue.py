"""The received messages of a device: duplicates are dropped, stored ones acknowledged."""

import asyncio
from collections import deque
from collections.abc import Callable, Mapping

from remit_relay.wire import MAX_BODY, Ack, Delivery, Malformed

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
        self._place: int = 0
        """The place up to which everything was stored."""
        self._told: int = 0
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
        found: list[Delivery] = []
        while self._unread and len(found) < messages and size >= len(self._unread[0].body):
            delivery = self._unread.popleft()
            self._unread_bytes -= len(delivery.body)
            size -= len(delivery.body)
            found.append(delivery)
        return found

    def keep(self, delivery: Delivery) -> None:
        """Acknowledge a message whose effects are stored; the gateway is told soon."""
        self._kept[delivery.sender] = max(delivery.number, self._kept.get(delivery.sender, 0))
        self._free(len(delivery.body))

    def ack(self, *, at_once: bool = False) -> Ack | None:
        """Return the acknowledgement to send now, if any; *at_once* includes delayed ones."""
        if not (self._is_due or at_once) or self._place == self._told:
            return None
        self._is_due = False
        self._told = self._place
        return Ack(self._place)

    def begin_again(self) -> None:
        """Reset for a new connection, on which everything comes again that was not acknowledged."""
        self._sent.clear()
        self._is_due = False
        self._place = self._told = 0

    def _free(self, size: int) -> None:
        """Advance to the last place up to which everything was stored."""
        sent, moved = self._sent, False
        while sent and sent[0][2] <= self._kept.get(sent[0][1], 0):
            self._place = sent.popleft()[0]
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
