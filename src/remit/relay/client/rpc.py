"""What a device has asked its gateway for and not heard of yet."""

import asyncio
from collections import deque
from collections.abc import Callable
from itertools import count

from remit.relay.wire import Answered, Asked


class PendingCalls:
    """The questions and who waits for their answers; *due* hears when there is one to send.

    Each may be asked again after a broken connection: it does no more than the first time.
    """

    def __init__(self, due: Callable[[], None]) -> None:
        self._due = due
        self._numbers = count(1)
        self._open: dict[int, tuple[Asked, asyncio.Future[Answered]]] = {}
        self._unsent: deque[Asked] = deque()
        self._end: Exception | None = None

    async def ask(self, make: Callable[[int], Asked]) -> Answered:
        """Ask what *make* makes of a number, and return the answer, or raise what `end` was given."""
        if self._end:
            raise self._end
        asked = make(next(self._numbers))
        future: asyncio.Future[Answered] = asyncio.get_running_loop().create_future()
        self._open[asked.request] = asked, future
        self._unsent.append(asked)
        self._due()
        try:
            return await future
        finally:
            del self._open[asked.request]

    def next(self) -> Asked | None:
        """Return what to send now, if anything."""
        return self._unsent.popleft() if self._unsent else None

    def answered(self, answer: Answered) -> None:
        """Tell who asked."""
        if (found := self._open.get(answer.request)) and not found[1].done():
            found[1].set_result(answer)

    def begin_again(self) -> None:
        """There is a new connection, on which nothing was asked yet."""
        self._unsent = deque(asked for asked, _ in self._open.values())

    def end(self, error: Exception) -> None:
        """There will be no answers."""
        self._end = error
        for _, future in self._open.values():
            if not future.done():
                future.set_exception(error)
