"""Who waits for the outcomes of runs, in the event loop of a store."""

import asyncio
from collections.abc import Awaitable, Callable

from remit.protocol.envelope import Response
from remit.protocol.errors import Code, fault
from remit.runtime.ports import StoreError

# How often a wait looks for an outcome that another process wrote.
POLL_SECONDS = 0.1

Look = Callable[[], Awaitable[tuple[Response | None] | None]]
"""Returns the outcome of a run, (None,) if it has not ended, and None if it was never submitted."""


class OutcomeWaits:
    """The waits for runs that this process or another finishes."""

    def __init__(self) -> None:
        self._awaited: dict[str, list[asyncio.Future[Response]]] = {}

    def __len__(self) -> int:
        return len(self._awaited)

    async def wait(self, run: str, look: Look) -> Response:
        """Return the outcome of a run once there is one."""
        outcome: asyncio.Future[Response] = asyncio.get_running_loop().create_future()
        self._awaited.setdefault(run, []).append(outcome)
        try:
            while not outcome.done():
                found = await look()
                if not found and not outcome.done():
                    raise StoreError(fault(Code.OUTCOME_UNKNOWN, f"no request was submitted here as run {run}"))
                if found and found[0]:
                    return found[0]
                await asyncio.wait([outcome], timeout=POLL_SECONDS)
            return outcome.result()
        finally:
            self._forget(run, outcome)

    def tell(self, ended: list[tuple[str, Response]]) -> None:
        """Give the outcomes of runs to those who wait for them."""
        for run, response in ended:
            for outcome in self._awaited.get(run, ()):
                if not outcome.done():
                    outcome.set_result(response)

    def _forget(self, run: str, outcome: asyncio.Future[Response]) -> None:
        self._awaited[run].remove(outcome)
        if not self._awaited[run]:
            del self._awaited[run]
