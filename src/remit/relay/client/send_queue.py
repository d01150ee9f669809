"""What a device has to send: a lane for each receiver, in which nothing overtakes.

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
    """All lanes, and how much is under way in them."""

    def __init__(self, *, messages: int, size: int) -> None:
        self._lanes: dict[str, SendQueue] = {}
        self._ready: dict[str, SendQueue] = {}
        """Those with something to send, in turns: the first is next, and then goes to the end."""
        self._messages_left = self._messages = messages
        self._size_left = self._size = size
        self.bytes_waiting = 0

    def add(self, to: str, number: int, body: bytes, future: "asyncio.Future[Outcome]") -> None:
        """Take a message; raises a `ValueError` if its number does not grow."""
        lane = self._lanes.get(to)
        if lane is None:
            lane = self._lanes[to] = SendQueue(to)
        if number <= lane.highest:
            raise ValueError(f"number {number} for {to} is not above {lane.highest}, which was put before")
        lane.highest = number
        lane.waiting.append(QueuedMessage(number, body, future))
        self.bytes_waiting += len(body)
        self._look(lane)

    def next(self) -> Put | None:
        """Return what to send now, if there is something and enough was answered."""
        if not self._ready or self._messages_left <= 0 or self._size_left <= 0:
            return None
        to, lane = next(iter(self._ready.items()))
        one = lane.waiting[lane.sent]
        put = Put(to, one.number, one.body, lane.anew)
        lane.anew = False
        lane.sent += 1
        lane.underway.append(len(one.body))
        self._messages_left -= 1
        self._size_left -= len(one.body)
        del self._ready[to]
        self._look(lane)
        return put

    def stored(self, receipt: Receipt) -> None:
        """The gateway holds a message."""
        lane = self._answered(receipt.to)
        if lane is None or not lane.waiting or lane.waiting[0].number != receipt.number:
            return
        one = lane.waiting.popleft()
        lane.sent = max(0, lane.sent - 1)
        self.bytes_waiting -= len(one.body)
        # Of what was sent before, on a connection that broke, a repeat says nothing.
        surprising = receipt.repeated and not one.tried
        _tell(one.future, Receipt(receipt.to, receipt.number, surprising))

    def refused(self, refused: Refused) -> SendQueue | None:
        """The gateway did not take a message; return its lane if it is to be sent again after a pause."""
        lane = self._answered(refused.to)
        if lane is None or refused.code == "behind":
            return None
        lane.sent = 0
        lane.anew = True
        self._ready.pop(lane.to, None)
        if refused.code == "full":
            lane.pause = refused
            return lane
        # None of those behind it may come before it either, so they are given back together.
        waiting, lane.waiting = lane.waiting, deque()
        lane.highest = 0
        for one in waiting:
            self.bytes_waiting -= len(one.body)
            _tell(one.future, Refused(to=refused.to, number=one.number, code=refused.code, reason=refused.reason))
        return None

    def go_on(self, lane: SendQueue) -> None:
        """The pause of a lane is over."""
        lane.pause = None
        self._look(lane)

    def begin_again(self) -> None:
        """There is a new connection: what was not answered is sent once more."""
        self._messages_left, self._size_left = self._messages, self._size
        self._ready.clear()
        for to, lane in list(self._lanes.items()):
            for one in list(lane.waiting)[: lane.sent]:
                one.tried = True
            lane.sent = 0
            lane.underway.clear()
            lane.anew = False
            lane.pause = None
            if not lane.waiting:
                # Its numbers are known to whoever keeps them.
                del self._lanes[to]
            self._look(lane)

    def pauses(self) -> dict[str, Refused]:
        """For each device to which nothing is sent for now: why."""
        return {to: lane.pause for to, lane in self._lanes.items() if lane.pause is not None}

    def end(self, error: Exception) -> None:
        """Nothing more can be sent."""
        for lane in self._lanes.values():
            for one in lane.waiting:
                if not one.future.done():
                    one.future.set_exception(error)
                    # Nobody need be there to hear it: what has no receipt is kept by the user anyway.
                    one.future.exception()

    def _answered(self, to: str) -> SendQueue | None:
        lane = self._lanes.get(to)
        if lane is None or not lane.underway:
            return None
        self._messages_left += 1
        self._size_left += lane.underway.popleft()
        return lane

    def _look(self, lane: SendQueue) -> None:
        if lane.sent < len(lane.waiting) and lane.pause is None:
            self._ready[lane.to] = lane


def _tell(future: "asyncio.Future[Outcome]", outcome: Outcome) -> None:
    if not future.done():
        future.set_result(outcome)
