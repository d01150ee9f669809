"""The append-only record in a store."""

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from remit.protocol.records import Body, Kind, Record


class NumberedRecord(NamedTuple):
    """A record-to-be of a log that is kept elsewhere, with its number there."""

    number: int
    kind: Kind
    at_ms: int
    run: str
    session: str
    body: Body


class Recorder(Protocol):
    """The record: append-only, hash-chained, one order for all processes that share the store."""

    sizes: dict[str, int]
    """The bytes that were recorded of each run that somebody put here, and who puts it here takes it out again."""

    def append(self, kind: Kind, at_ms: int, run: str, session: str, body: Body) -> None:
        """Take a record without waiting; it is durable once a later `flush`, `submit` or `finish` has returned."""
        ...

    @property
    def full(self) -> bool:
        """Whether there is no room: cheap to ask before each append, so that `room` need not be awaited every time."""
        ...

    async def room(self) -> None:
        """Return while there is room for more records; wait while there is not."""
        ...

    async def flush(self) -> None:
        """Return once everything appended so far is durable, or raise `StoreError`."""
        ...

    async def transfer(self, source: str, entries: Sequence[NumberedRecord]) -> int:
        """Record what stands in another log, in one step, each number of a *source* once; durable on return.

        Numbers grow. Those up to the highest that was recorded before are passed over; the highest by now is returned.
        """
        ...

    def listen(self, listener: Callable[[list[Record]], None], *, patient: bool = False) -> Callable[[], None]:
        """Call *listener* in the event loop with each group of records that this store committed, in order.

        For one that is *patient* nothing is committed sooner than it would be without it.
        """
        ...
