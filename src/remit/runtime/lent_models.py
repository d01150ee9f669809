"""Models that MCP hosts lend to the runs that they wait for."""

from collections.abc import Generator
from contextlib import contextmanager

from remit.runtime.tool_context import Sampler


class LentModels:
    """Which run may ask the model of which host; a host lends its model while it waits, and no longer."""

    def __init__(self) -> None:
        self._by_run: dict[str, list[Sampler]] = {}

    @contextmanager
    def lend(self, run: str, sampler: Sampler | None) -> Generator[None]:
        """Lend a model to a run in this block; None: there is nothing to lend."""
        if sampler is None:
            yield
            return
        self._by_run.setdefault(run, []).append(sampler)
        try:
            yield
        finally:
            self._by_run[run].remove(sampler)
            if not self._by_run[run]:
                del self._by_run[run]

    def of(self, run: str) -> Sampler | None:
        """Return the model that was lent to a run last."""
        found = self._by_run.get(run)
        return found[-1] if found else None
