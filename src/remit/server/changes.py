"""The changes of a host's runs, numbered, for readers that follow them or reconnect.

Only the newest state of each run is kept, and it is the whole state: a reader that was away or is slow gets the current
state of each run and needs none of the states between. So memory grows only with the number of runs, and no reader
needs a queue.
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
    """Receives each change (a `SessionService` calls `changed`) and notifies readers."""

    def __init__(self) -> None:
        # Numbers start anew in each process; the name says which process a number belongs to.
        self._name = secrets.token_hex(4)
        self._newest: dict[str, RunChange] = {}
        self._readers: set[asyncio.Event] = set()
        self.number = 0

    def changed(self, run: Overlay) -> None:
        """Note that a run changed."""
        self.number += 1
        self._newest.pop(run.id, None)  # keeps the runs in the order of their numbers
        self._newest[run.id] = RunChange(self.number, run)
        self.wake()

    def since(self, number: int) -> list[RunChange]:
        """Return the runs that changed after *number*, in order, each in its current state."""
        found: list[RunChange] = []
        for change in reversed(self._newest.values()):
            if change.number <= number:
                break
            found.append(change)
        return found[::-1]

    def mark(self, number: int) -> str:
        """Return the mark of a number, from which a reader can continue."""
        return f"{self._name}-{number}"

    def number_of(self, mark: str) -> int | None:
        """Return the number of a mark; None if it is invalid or of another process."""
        found = _MARK.fullmatch(mark)
        if found is None or found[1] != self._name or int(found[2]) > self.number:
            return None
        return int(found[2])

    @contextmanager
    def reading(self) -> Generator[asyncio.Event]:
        """Have an event that is set whenever there are changes; the reader clears it before it reads."""
        event = asyncio.Event()
        self._readers.add(event)
        try:
            yield event
        finally:
            self._readers.discard(event)

    @property
    def readers(self) -> int:
        """The number of readers."""
        return len(self._readers)

    def wake(self) -> None:
        """Wake all readers, even if nothing changed."""
        for event in self._readers:
            event.set()
