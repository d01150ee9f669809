"""Runs a coroutine as `asyncio.run` does, without waiting for tasks that nothing stops."""

import asyncio
import os
import sys
from collections.abc import Coroutine
from typing import Any, NoReturn, TypeVar

T = TypeVar("T")

# What cleans up has had its grace from the hub; this is for what is cancelled only now.
LAST_S = 0.5


def run(work: Coroutine[Any, Any, T]) -> tuple[T, bool]:
    """Return what *work* returns, and whether a task of it goes on that ignores its cancellation: then `leave`."""
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
    """Cancel what is left, and say whether any of it did not end."""
    left = asyncio.all_tasks(runner.get_loop())
    for task in left:
        task.cancel()
    return bool(left) and runner.run(_outlasted(left))


async def _outlasted(left: set[asyncio.Task[Any]]) -> bool:
    _, pending = await asyncio.wait(left, timeout=LAST_S)
    return bool(pending)


def leave(code: int) -> NoReturn:
    """End this process, whatever still runs in it; nothing that was said is lost."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
