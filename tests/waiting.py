"""How tests wait: for an event where there is one, else by looking again until something holds."""

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar, cast

T = TypeVar("T")

# Far more than anything takes on the slowest machine, so that it only ends what hangs; less than the time-out of a test
# (pyproject.toml), so that a failure says what did not come.
PATIENCE_S = 240.0

_BETWEEN_S = 0.01


async def eventually(
    look: Callable[[], T | Awaitable[T]],
    what: str = "what a test waits for",
    *,
    when: Callable[[T], object] = bool,
) -> T:
    """Return what *look* finds, once *when* agrees to it; for what announces itself by no event."""
    end = time.monotonic() + PATIENCE_S
    while not when(seen := await _looked(look)):
        assert time.monotonic() < end, f"{what} did not come"
        await asyncio.sleep(_BETWEEN_S)
    return seen


async def no_longer(look: Callable[[], object]) -> None:
    """Return once *look* finds nothing any more."""
    await eventually(look, "the end of what a test waits for", when=lambda seen: not seen)


def wait_until(
    look: Callable[[], T], what: str = "what a test waits for", *, alive: Callable[[], bool] = lambda: True
) -> T:
    """Do the same where there is no event loop, or none that others need; give up on what is no longer *alive*."""
    end = time.monotonic() + PATIENCE_S
    while not (seen := look()):
        assert alive(), f"{what} did not come before the end"
        assert time.monotonic() < end, f"{what} did not come"
        time.sleep(_BETWEEN_S)
    return seen


async def _looked(look: Callable[[], T | Awaitable[T]]) -> T:
    seen = look()
    return await cast("Awaitable[T]", seen) if inspect.isawaitable(seen) else cast("T", seen)
