"""A call of an MCP server's tool that is under way: whose it is, and how long it has been at work."""

import asyncio
from collections.abc import Generator
from contextlib import contextmanager

from remit.runtime.lent_models import SAMPLER, TOOL_CALLER


class RunningCall:
    """A call under way, and whose it is."""

    def __init__(self) -> None:
        self.caller, self.sampler = TOOL_CALLER.get(), SAMPLER.get()
        self._loop = asyncio.get_running_loop()
        self._asked_at = 0.0
        self._asking = 0
        self._asked_s = 0.0
        self.unasked = asyncio.Event()
        """Set while no person is asked: the time of a call does not run meanwhile."""
        self.unasked.set()

    @property
    def asked_s(self) -> float:
        """How long persons were asked so far."""
        return self._asked_s + (self._loop.time() - self._asked_at if self._asking else 0.0)

    @contextmanager
    def asking(self) -> Generator[None]:
        """Stop the clock of the call."""
        self._asked_at = self._asked_at if self._asking else self._loop.time()
        self._asking += 1
        self.unasked.clear()
        try:
            yield
        finally:
            self._asking -= 1
            if not self._asking:
                self._asked_s += self._loop.time() - self._asked_at
                self.unasked.set()
