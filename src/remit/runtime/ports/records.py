"""The append-only record in a store."""

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from remit.protocol.records import Body, Kind, Record


class NumberedRecord(NamedTuple):
    """An entry of another log, to be recorded here, with its number in that log."""

    number: int
    kind: Kind
    at_ms: int
    run: str
    session: str
    body: Body


class Recorder(Protocol):
    """The record: append-only, hash-chained, in one order for all processes that share the store."""

    sizes: dict[str, int]
    """Recorded bytes by run. Only runs whose key was inserted are counted; whoever inserts a key removes it again."""

    def append(self, kind: Kind, at_ms: int, run: str, session: str, body: Body) -> None:
        """Append a record without waiting; it is durable once a later `flush`, `submit` or `finish` has returned."""
        ...

    @property
    def full(self) -> bool:
        """Whether the queue is full: cheap to check before each append, so that `room` is not awaited every time."""
        ...

    async def room(self) -> None:
        """Return once there is room for more records."""
        ...

    async def flush(self) -> None:
        """Return once everything appended so far is durable, or raise `StoreError`."""
        ...

    async def transfer(self, source: str, entries: Sequence[NumberedRecord]) -> int:
        """Record the entries of another log in one step, each number of a *source* once; durable on return.

        Numbers grow. Entries up to the highest number that was already recorded are skipped. Returns the highest number
        now recorded.
        """
        ...

    def listen(self, listener: Callable[[list[Record]], None], *, patient: bool = False) -> Callable[[], None]:
        """Call *listener* in the event loop with each group of records that this store committed, in order.

        A *patient* listener does not make the store commit any sooner.
        """
        ...
