"""Finds out that another hub is dead long before its lease ends.

A hub that is killed stops its heartbeats in the store, and its connection to NATS ends. Both together, asked for twice,
mean that it is dead: a hub that only lost NATS still sends heartbeats, and one that stands still is still connected.
Should it be alive all the same, its epochs are stale, and it cannot write.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Protocol

import nats.errors
from nats.aio.msg import Msg

from remit.protocol.errors import RemitError
from remit.runtime.clock import end_tasks
from remit_cluster.nats.connection import LOST, Connection
from remit_cluster.nats.subjects import Subjects

log = logging.getLogger("remit")

# How often a hub looks for others that have missed their heartbeats: every second, with a lease of five.
LOOKS = 5
# A hub whose server was killed connects to another one, or again, within a second or so. One that is not there after
# half of that is asked for once more before it counts as gone.
AGAIN_S = 0.5
# After the own connection was made again, the others may need as long.
RECONNECTED_S = 5.0
# The server replies at once for a hub that is not connected.
REPLY_S = 0.5


class TeamWorkers(Protocol):
    """The workers of the hubs that share a store: see `runtime/shared_requests.py`."""

    @property
    def worker(self) -> str: ...

    @property
    def lease_ms(self) -> int: ...

    async def late_workers(self) -> list[str]: ...

    async def end_leases(self, worker: str) -> bool: ...

    def sweep_soon(self) -> None: ...


class HubWatch:
    """Watches the hubs that have missed a heartbeat, and answers for this one."""

    def __init__(
        self,
        connection: Connection,
        subjects: Subjects,
        workers: TeamWorkers,
        was_present: Callable[[str], Awaitable[bool]],
    ) -> None:
        """*was_present* says whether a hub is or was on the bus; others are not judged by their absence."""
        self._connection = connection
        self._subjects = subjects
        self._workers = workers
        self._was_present = was_present
        self._watching: asyncio.Task[None] | None = None
        self._judges_from = 0.0
        """Before, others may be about to connect as this hub was."""

    async def open(self) -> None:
        """Watch the others from now on; `connected` answers for this hub."""
        self._watching = asyncio.get_running_loop().create_task(self._watch())

    async def connected(self) -> None:
        """Answer for this hub as long as it is connected."""
        self._judges_from = asyncio.get_running_loop().time() + RECONNECTED_S
        await self._connection.subscribe(self._subjects.alive(self._workers.worker), self._answer)
        await self._connection.subscribe(self._subjects.gone, self._receive_end)

    async def close(self) -> None:
        """Watch nobody any more."""
        if self._watching is not None:
            await end_tasks([self._watching])

    async def _answer(self, message: Msg) -> None:
        await self._connection.publish(message.reply, b"+")

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(self._workers.lease_ms / 1_000 / LOOKS)
            try:
                late = await self._workers.late_workers() if self._may_judge else []
                gone = [each for each in late if await self._was_present(each) and await self._is_gone(each)]
                if gone:
                    await asyncio.sleep(AGAIN_S)
                for worker in gone:
                    if self._may_judge and await self._is_gone(worker):
                        await self._end_leases(worker)
            except RemitError as error:  # its lease ends by itself
                log.debug("the other hubs cannot be watched: %s", error.fault.message)

    @property
    def _may_judge(self) -> bool:
        return self._connection.connected and asyncio.get_running_loop().time() >= self._judges_from

    async def _end_leases(self, worker: str) -> None:
        """End the leases of a dead hub; the hub that hosts the same agents hears of it."""
        if await self._workers.end_leases(worker):
            self._workers.sweep_soon()
            await self._connection.publish(self._subjects.gone, b"")

    async def _receive_end(self, _: Msg) -> None:
        self._workers.sweep_soon()

    async def _is_gone(self, worker: str) -> bool:
        try:
            await self._connection.request(self._subjects.alive(worker), b"", REPLY_S)
        except nats.errors.NoRespondersError:
            return True
        except LOST:
            pass
        return False
