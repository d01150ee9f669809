"""Small values, an open store and a clock that a test turns, for tests of stores and agents."""

import heapq
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from itertools import count

from remit.ports import Decision, Question, Store, StoreError
from remit.protocol.envelope import VERSION, Json, Request, Response
from remit.protocol.errors import Code
from remit.protocol.lifecycle import Status
from remit.protocol.records import Progress, Record, SharedStep
from remit.protocol.remit import Remit

# Far longer than any test takes, and zero: a lease that has not expired, and one that has.
LONG_MS = 3_600_000
OVER_MS = 0

# A date so far ahead that no test reaches it.
NEVER_MS = 2**52

# Only a store that hangs takes this long.
PATIENCE = 10.0

YES = Decision(agreed=True, by="ann", reason="fine", edits={"objective": "Sort one receipt", "input": {"n": [1, None]}})


def a_request(name: str = "one", *, id: str | None = None, user: str = "u-1", origin: str = "user") -> Request:
    """Return a root request; its run, its session and, if none is given, its id are derived from *name*."""
    return Request(
        version=VERSION,
        id=id or f"id-{name}",
        origin=origin,
        target="prime",
        remit=Remit(user=user, depth=0, max_depth=5, time_ms=30_000, tokens=8_000),
        objective="Sort receipts",
        run=f"run-{name}",
        session=f"session-{name}",
        created_ms=1_000,
    )


def a_response(request: Request, result: Json = "sorted") -> Response:
    """Return a successful response to *request*."""
    return Response(
        version=VERSION,
        id=request.id,
        target=request.target,
        status=Status.SUCCESS,
        run=request.run,
        session=request.session,
        result=result,
    )


def a_question(
    name: str = "one", *, run: str = "one", text: str = "May it?", asked_ms: int = 1, expires_ms: int = NEVER_MS
) -> Question:
    """Return a question derived from *name*, about the request that `a_request` makes for *run*."""
    return Question(
        id=f"question-{name}",
        text=text,
        request=a_request(run),
        editable=frozenset({"input", "objective"}),
        form={"type": "object", "properties": {"seat": {"type": "string", "enum": ["aisle", "window"]}}},
        asked_ms=asked_ms,
        expires_ms=expires_ms,
    )


def progress(text: str) -> Progress:
    """Return the body of a progress record."""
    return Progress(delegation="id-one", agent="prime", text=text)


def a_step(*, profile: str = "reviewer", turn: int = 1) -> SharedStep:
    """Return the body of a record of a run with another device's agent."""
    return SharedStep(
        side="asks",
        profile=profile,
        device="device-two",
        requester="ann@example.org",
        event="Approve",
        turn=turn,
        mode="manual",
        state="ready_to_send",
        active_ms=5,
        label="edited",
        by="ann",
        via="pending",
    )


def texts(records: list[Record]) -> list[str]:
    """Return the texts of the progress records among *records*."""
    return [record.body.text for record in records if isinstance(record.body, Progress)]


async def code_of(attempt: Awaitable[object]) -> Code | None:
    """Return the code of the `StoreError` that an attempt raises, or None if it succeeds."""
    try:
        await attempt
    except StoreError as error:
        return error.fault.code
    return None


class StoreCase:
    """How a suite gets the store that it tests."""

    async def make(self) -> Store:
        """Return a new, empty store that is not open yet."""
        raise NotImplementedError

    async def reopen(self, store: Store) -> Store:
        """Return a store, not open yet, with the data of *store*, which is closed."""
        return store

    @asynccontextmanager
    async def opened(self, store: Store | None = None) -> AsyncGenerator[Store]:
        """Open a store, a new one if none is given, and close it at the end."""
        store = store or await self.make()
        await store.open()
        try:
            yield store
        finally:
            await store.close()


class ManualClock:
    """A clock that stands still until `advance` is called; implements `remit.ports.Clock`.

    Deadlines, rates and breakers of a hub made with `Hub(clock=ManualClock())` then wait for the test. The date starts
    at *wall_ms*, or today: a store has a clock of its own, and would forget outcomes that look old to it.
    """

    def __init__(self, *, now: float = 1_000.0, wall_ms: int | None = None) -> None:
        self._now = self._start = now
        self._wall_ms = time.time_ns() // 1_000_000 if wall_ms is None else wall_ms
        self._numbers = count()
        self._planned: list[tuple[float, int, Callable[[], None]]] = []
        self._taken_back: set[int] = set()

    def now(self) -> float:
        """Return the time in seconds, as the loop's clock counts it."""
        return self._now

    def wall_ms(self) -> int:
        """Return the time in milliseconds since 1970."""
        return self._wall_ms + round((self._now - self._start) * 1_000)

    def call_at(self, when: float, callback: Callable[[], None]) -> Callable[[], None]:
        """Call back when the time reaches *when*, or at the next `advance` if it has passed."""
        number = next(self._numbers)
        heapq.heappush(self._planned, (when, number, callback))
        return lambda: self._taken_back.add(number)

    def advance(self, seconds: float) -> None:
        """Let time pass; due callbacks run in order, each at its own time."""
        if seconds < 0:
            raise ValueError(f"time only moves forward, not by {seconds} s")
        end = self._now + seconds
        while self._planned and self._planned[0][0] <= end:
            when, number, callback = heapq.heappop(self._planned)
            if number not in self._taken_back:
                self._now = max(self._now, when)
                callback()
            self._taken_back.discard(number)
        self._now = end
