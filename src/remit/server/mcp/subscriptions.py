"""Tells MCP hosts that a run they subscribed to has changed: a person is asked or has answered, or it has ended."""

import asyncio
import logging
from collections.abc import Awaitable, Callable

from remit.protocol.errors import Code, RemitError, fault
from remit.protocol.records import Approval, Record
from remit.runtime.ports import RunSummary
from remit.server.mcp.host_delegations import TOGETHER, HostDelegations

log = logging.getLogger("remit")

# Each is a task or two that waits; a host follows what its user looks at.
MOST_SUBSCRIPTIONS = 1_000

Key = tuple[str, ...]
"""Whose subscription it is: sender, user, session and address of the resource."""


class RunSubscriptions:
    """The subscriptions of all hosts; each ends with its run."""

    def __init__(self, delegations: HostDelegations) -> None:
        self._delegations = delegations
        self._tasks: dict[Key, asyncio.Task[None]] = {}

    def add(self, key: Key, summary: RunSummary, notify: Callable[[], Awaitable[None]]) -> None:
        """Call *notify* when a run changes; raise a `RemitError` if there are too many subscriptions."""
        if key in self._tasks or summary.response is not None:
            return  # what has ended does not change
        if len(self._tasks) >= MOST_SUBSCRIPTIONS:
            raise RemitError(fault(Code.OVERLOADED, f"there are already {MOST_SUBSCRIPTIONS} subscriptions"))
        task = asyncio.get_running_loop().create_task(self._follow(summary, notify))
        self._tasks[key] = task
        task.add_done_callback(lambda _: self._tasks.pop(key, None))

    def remove(self, key: Key) -> None:
        """End a subscription, if there is one."""
        if (task := self._tasks.pop(key, None)) is not None:
            task.cancel()

    async def close(self) -> None:
        """End all subscriptions."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    async def _follow(self, summary: RunSummary, notify: Callable[[], Awaitable[None]]) -> None:
        started = self._delegations.follow(summary)
        heard: asyncio.Future[Record] | None = None
        is_over = False
        try:
            while not is_over:
                heard = heard or asyncio.ensure_future(anext(started.events))
                done, _ = await asyncio.wait({started.end, heard}, return_when=asyncio.FIRST_COMPLETED)
                is_over = started.end in done
                records: list[Record] = []
                if heard in done:
                    records, heard = [heard.result(), *started.events.ready(TOGETHER)], None
                if is_over or any(isinstance(each.body, Approval) for each in records):
                    await notify()
        except StopAsyncIteration:
            pass  # the hub is closing
        except Exception as error:  # noqa: BLE001 - whatever it is, the session is gone
            log.info("an MCP host could not be told of a run: %s", type(error).__name__)
        finally:
            if heard is not None:
                heard.cancel()
            started.end.cancel()
            started.events.close()
