"""One prompt at a time for each profile (S3)."""

import asyncio
from collections.abc import Awaitable, Callable

from remit.relay.bridge.ports import Draft, DraftFailure

# A profile may have a few sessions at once, and each prompt may take two minutes: who is further behind is told so.
MAX_WAITING = 8


class OneAtATime:
    """Lets one prompt through; others wait their turn, in order, up to `MAX_WAITING` of them."""

    def __init__(self) -> None:
        self._slot = asyncio.Semaphore(1)
        self._here = 0

    async def run(self, ask: Callable[[], Awaitable[Draft | DraftFailure]]) -> Draft | DraftFailure:
        """Ask when it is this one's turn; fail softly, at once, when too many wait already."""
        if self._here > MAX_WAITING:
            reason = f"{MAX_WAITING} prompts wait for this local agent already; try again later"
            return DraftFailure(reason=reason, hard=False)
        self._here += 1
        try:
            async with self._slot:
                return await ask()
        finally:
            self._here -= 1
