"""The requests of a device to its gateway that are not answered yet."""

import asyncio
from collections import deque
from collections.abc import Callable
from itertools import count

from remit.relay.wire import Answered, Asked


class PendingCalls:
    """The open requests and their callers; *due* is called when there is one to send.

    Each may be sent again after a broken connection: requests are idempotent.
    """

    def __init__(self, due: Callable[[], None]) -> None:
        self._due = due
        self._numbers = count(1)
        self._open: dict[int, tuple[Asked, asyncio.Future[Answered]]] = {}
        self._unsent: deque[Asked] = deque()
        self._end: Exception | None = None

    async def ask(self, make: Callable[[int], Asked]) -> Answered:
        """Send the request that *make* builds for a number; return the answer, or raise the error of `end`."""
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
        """Return the next request to send, if any."""
        return self._unsent.popleft() if self._unsent else None

    def answered(self, answer: Answered) -> None:
        """Give an answer to its caller."""
        if (found := self._open.get(answer.request)) and not found[1].done():
            found[1].set_result(answer)

    def begin_again(self) -> None:
        """Reset for a new connection: all open requests are sent again."""
        self._unsent = deque(asked for asked, _ in self._open.values())

    def end(self, error: Exception) -> None:
        """Fail all open requests."""
        self._end = error
        for _, future in self._open.values():
            if not future.done():
                future.set_exception(error)
