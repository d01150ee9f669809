"""What changed in the runs of a host, numbered, for whoever reads along or comes back.

Only the newest state of each run is kept, and that is the whole of it: a reader who was away, or is slow, is told where
each run is now and misses nothing by not having heard of the states between. So there is nothing to grow but the number
of runs, and no queue for anyone.
"""

import asyncio
import re
import secrets
from collections.abc import Generator
from contextlib import contextmanager
from typing import NamedTuple

from remit.relay.session.run import Overlay

_MARK = re.compile(r"([0-9a-f]{8})-([0-9]{1,15})", re.ASCII)


class RunChange(NamedTuple):
    """A run that changed, and the number of its last change."""

    number: int
    run: Overlay


class Changes:
    """Hears of each change (`changed` is what a `SessionService` calls), and tells readers."""

    def __init__(self) -> None:
        # Numbers begin anew with each process; the name says whether one is of this.
        self._name = secrets.token_hex(4)
        self._newest: dict[str, RunChange] = {}
        self._readers: set[asyncio.Event] = set()
        self.number = 0

    def changed(self, run: Overlay) -> None:
        """Note that a run has changed."""
        self.number += 1
        self._newest.pop(run.id, None)  # so that they stand in the order of their numbers
        self._newest[run.id] = RunChange(self.number, run)
        self.wake()

    def since(self, number: int) -> list[RunChange]:
        """Return the runs that changed after *number*, in order, each as it is now."""
        found: list[RunChange] = []
        for change in reversed(self._newest.values()):
            if change.number <= number:
                break
            found.append(change)
        return found[::-1]

    def mark(self, number: int) -> str:
        """Return the name of a number, by which a reader goes on after it."""
        return f"{self._name}-{number}"

    def number_of(self, mark: str) -> int | None:
        """Return the number of a mark; None if it is of another process, or none at all."""
        found = _MARK.fullmatch(mark)
        if found is None or found[1] != self._name or int(found[2]) > self.number:
            return None
        return int(found[2])

    @contextmanager
    def reading(self) -> Generator[asyncio.Event]:
        """Have an event that is set whenever there is something new; the reader clears it before it looks."""
        event = asyncio.Event()
        self._readers.add(event)
        try:
            yield event
        finally:
            self._readers.discard(event)

    @property
    def readers(self) -> int:
        """How many read along."""
        return len(self._readers)

    def wake(self) -> None:
        """Have all readers look, also where nothing has changed."""
        for event in self._readers:
            event.set()
