"""A store that counts how often its hub looked for what others left behind."""

from remit.ports import OrphanedRun
from remit.stores.sqlite import SqliteStore
from waiting import eventually


class SweptStore(SqliteStore):
    """A store in a file that knows how often it was swept."""

    sweeps = 0

    async def sweep(self, *, max_attempts: int, keep_ms: int) -> list[OrphanedRun]:
        """Count, and do as asked."""
        self.sweeps += 1
        return await super().sweep(max_attempts=max_attempts, keep_ms=keep_ms)

    async def looked_twice(self) -> None:
        """Return once its hub has looked twice, and has done what it does with what it found."""
        seen = self.sweeps
        await eventually(lambda: self.sweeps >= seen + 3)  # the third begins when the second has ended
