"""Wait in tests for what has no event of its own, without depending on how fast the machine is."""

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar, cast

T = TypeVar("T")

# Ends what hangs, and nothing else: a busy machine may take a hundred times as long as a quiet one.
PATIENCE_S = 240.0

LOOK_AGAIN_S = 0.01


async def eventually(look: Callable[[], T | Awaitable[T]], when: Callable[[T], object] = bool) -> T:
    """Return what *look* finds, once it is something that *when* agrees to."""
    async with asyncio.timeout(PATIENCE_S):
        while not when(found := await _looked(look)):
            await asyncio.sleep(LOOK_AGAIN_S)
    return found


async def no_longer(look: Callable[[], object]) -> None:
    """Return once *look* finds nothing any more."""
    await eventually(look, when=lambda found: not found)


def eventually_beside(look: Callable[[], T], alive: Callable[[], bool]) -> T:
    """Return what *look* finds, once it finds something, while what it waits for is still *alive*."""
    until = time.monotonic() + PATIENCE_S
    while not (found := look()):
        assert alive(), "it ended before what the test waits for"
        assert time.monotonic() < until, "what the test waits for did not come"
        time.sleep(LOOK_AGAIN_S)
    return found


async def _looked(look: Callable[[], T | Awaitable[T]]) -> T:
    found = look()
    return await cast("Awaitable[T]", found) if inspect.isawaitable(found) else cast("T", found)
