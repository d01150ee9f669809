"""The hash chain of a store that is open, for readers that verify it while hubs write."""

from collections.abc import Callable, Iterable
from typing import NamedTuple, Protocol, runtime_checkable

from remit.runtime.audit.chain import ChainRow
from remit.runtime.audit.findings import AuditVerdict
from remit.runtime.audit.removal import RemovedRow
from remit.runtime.signing import Checkpoint

Watch = Callable[[int], None]
"""Is told the number of a row that a verification has reached. An error that it raises ends the verification."""

# A row takes some 10 µs, so that whoever watches can let others work each millisecond.
WATCHED_ROWS = 100


def watched(rows: Iterable[ChainRow | RemovedRow], watch: Watch | None) -> Iterable[ChainRow | RemovedRow]:
    """Return the same rows; *watch* is told of each hundredth as it passes."""
    if watch is None:
        return rows

    def passing() -> Iterable[ChainRow | RemovedRow]:
        for place, row in enumerate(rows):
            if place % WATCHED_ROWS == 0:
                watch(row.seq)
            yield row

    return passing()


class ChainLink(NamedTuple):
    """A row's place in the chain."""

    previous: str
    """The digest of the row before it."""
    digest: str


class AuditedChain(Protocol):
    """The hash chain over the record of a store."""

    async def verify(self, *, start: Checkpoint | None = None, watch: Watch | None = None) -> AuditVerdict:
        """Verify the chain, or what comes after the checkpoint *start*, without keeping hubs from writing."""
        ...

    async def newest_checkpoint(self) -> Checkpoint | None: ...

    async def intact(self, first: int, last: int) -> dict[int, bool]:
        """Return for the rows of a part of the record whether each follows from the row before it.

        Rows that were removed on purpose, and rows that are not in the chain yet, are left out.
        """
        ...

    async def link(self, seq: int) -> ChainLink | None:
        """Return the place of a row in the chain; None if there is no such row."""
        ...


@runtime_checkable
class KeepsChain(Protocol):
    """A store whose record is hash-chained and signed."""

    @property
    def chain(self) -> AuditedChain: ...
