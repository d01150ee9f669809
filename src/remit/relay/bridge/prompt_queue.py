"""One prompt at a time for each profile (S3)."""

import asyncio
from collections.abc import Awaitable, Callable

from remit.relay.bridge.ports import Draft, DraftFailure

# A profile may have a few sessions at once, and each prompt may take two minutes: more waiting prompts are refused.
MAX_WAITING = 8


class OneAtATime:
    """Runs one prompt at a time; up to `MAX_WAITING` others wait, in order."""

    def __init__(self) -> None:
        self._slot = asyncio.Semaphore(1)
        self._here = 0

    async def run(self, ask: Callable[[], Awaitable[Draft | DraftFailure]]) -> Draft | DraftFailure:
        """Run *ask* in its turn; fail softly at once if too many prompts wait already."""
        if self._here > MAX_WAITING:
            reason = f"{MAX_WAITING} prompts are already waiting for this local agent; try again later"
            return DraftFailure(reason=reason, hard=False)
        self._here += 1
        try:
            async with self._slot:
                return await ask()
        finally:
            self._here -= 1
