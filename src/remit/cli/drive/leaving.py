"""Like `asyncio.run`, but does not wait for tasks that ignore cancellation."""

import asyncio
import os
import sys
from collections.abc import Coroutine
from typing import Any, NoReturn, TypeVar

T = TypeVar("T")

# What cleans up has had its grace from the hub; this is for what is cancelled only now.
LAST_S = 0.5


def run(work: Coroutine[Any, Any, T]) -> tuple[T, bool]:
    """Return the result of *work*, and whether a task ignored its cancellation; then call `leave`."""
    runner = asyncio.Runner()
    stuck = True
    try:
        result = runner.run(work)
        stuck = _stop_all(runner)
        return result, stuck
    except BaseException:
        stuck = _stop_all(runner)
        raise
    finally:
        if not stuck:
            runner.close()


def _stop_all(runner: asyncio.Runner) -> bool:
    """Cancel the remaining tasks; return whether any did not end."""
    left = asyncio.all_tasks(runner.get_loop())
    for task in left:
        task.cancel()
    return bool(left) and runner.run(_outlasted(left))


async def _outlasted(left: set[asyncio.Task[Any]]) -> bool:
    _, pending = await asyncio.wait(left, timeout=LAST_S)
    return bool(pending)


def leave(code: int) -> NoReturn:
    """Flush the output and end this process, whatever still runs in it."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
