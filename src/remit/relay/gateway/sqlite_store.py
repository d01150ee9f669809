"""The store of one gateway: an SQLite file, with group commit."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from pathlib import Path

import apsw

from remit.protocol.errors import Code, fault
from remit.relay.gateway import keys
from remit.relay.gateway.cleanup import passing
from remit.relay.gateway.limits import GatewayLimits
from remit.relay.gateway.mailboxes import MemoryMailboxes
from remit.relay.gateway.ports import (
    AdmittedDevice,
    CleanupResult,
    Fetched,
    NoRoom,
    Page,
    Placed,
    PresencePair,
    RateAllowance,
    SentMessage,
    StoredDevice,
    StoreEvents,
    StoreSize,
)
from remit.relay.gateway.queue import Queue, open_queue
from remit.relay.gateway.writer import GatewayWriter
from remit.relay.wire import AllowSenders, Denied, Done, Fetch, Publish, Refused
from remit.runtime.ports import Clock, StoreError
from remit.stores.connection import TROUBLE, Durability, translate

# Pause between two steps of the cleanup, in which other writes get their turn.
BETWEEN_STEPS_S = 0.05


class SqliteGatewayStore:
    """A `GatewayStore` in a file, which is locked for other processes. *commit_hook* simulates bad disks in tests."""

    is_shared = False
    is_ready = True

    def __init__(
        self, path: Path, *, durability: Durability = "power", commit_hook: Callable[[], None] | None = None
    ) -> None:
        self.path = path
        self._durability: Durability = durability
        self._commit_hook = commit_hook
        self.mailboxes = MemoryMailboxes()

    async def open(self, limits: GatewayLimits, clock: Clock, events: StoreEvents) -> None:
        try:
            queue = await asyncio.to_thread(open_queue, self.path, self._durability, limits, clock.wall_ms)
        except apsw.BusyError as error:  # the file is opened exclusively, so that is another gateway
            why = f"{self.path} is in use by another gateway process"
            todo = (
                "Stop that process, or choose another folder (--folder), or a database that gateways share (--store)."
            )
            raise StoreError(fault(Code.STORE_UNAVAILABLE, why, suggestion=todo)) from error
        except TROUBLE as error:
            raise translate(error, self.path) from error
        self.mailboxes.start(clock)
        self._queue = queue
        self._place = queue.last_place()
        self._writer = GatewayWriter(
            self.path,
            queue,
            placed=events.placed,
            settled=events.settled,
            troubled=events.failed,
            commit_hook=self._commit_hook,
        )

    async def close(self) -> None:
        await self._writer.stop()

    async def enter(self, connection: int, device: str, *, may_be_new: bool) -> AdmittedDevice | NoRoom:
        return await self._writer.ask(lambda queue: queue.enter(connection, device, may_be_new=may_be_new))

    def leave(self, connection: int, allowance: RateAllowance | None) -> None:  # noqa: ARG002 - this gateway remembers it
        self._writer.do(lambda queue: queue.leave(connection), lambda _: None)

    async def look(self, device: str) -> StoredDevice | None:
        return await self._writer.ask(lambda queue: queue.look(device))

    def reserve_place(self) -> int | None:
        self._place += 1
        return self._place

    def put(self, message: SentMessage, then: Callable[[Placed | Refused], None]) -> None:
        self._writer.do(lambda queue: queue.put(message), then)

    def put_delivered(self, message: SentMessage) -> None:
        self._writer.put_delivered(message)

    def acknowledge(self, receiver: int, place: int, then: Callable[[None], None]) -> None:
        self._writer.do(lambda queue: queue.acknowledge(receiver, place), then, urgent=False)

    def page(self, receiver: int, after: int, messages: int, size: int, then: Callable[[Page], None]) -> None:
        self._writer.do(lambda queue: queue.page(receiver, after, messages, size), then)

    def publish(self, device: int, asked: Publish, then: Callable[[Done | Denied], None]) -> None:
        self._writer.do(lambda queue: keys.publish(queue, device, asked), then)

    def fetch(self, sender: str, asked: Fetch, then: Callable[[Fetched], None]) -> None:
        self._writer.do(lambda queue: keys.fetch(queue, sender, asked), then)

    def allow(self, device: int, asked: AllowSenders, then: Callable[[Done], None]) -> None:
        self._writer.do(lambda queue: keys.allow(queue, device, asked), then)

    def presence(self, pairs: Sequence[PresencePair], then: Callable[[dict[PresencePair, bool]], None]) -> None:
        self._writer.do(lambda queue: keys.presence(queue, pairs), then)

    async def cleanup(self) -> AsyncIterator[CleanupResult]:
        steps: Iterator[CleanupResult] | None = None

        def next_step(queue: Queue) -> CleanupResult | None:
            nonlocal steps
            steps = steps or passing(queue)
            return next(steps, None)

        while (step := await self._writer.ask(next_step)) is not None:
            yield step
            if step.full:
                await asyncio.sleep(BETWEEN_STEPS_S)

    def size(self) -> StoreSize:
        queue = self._queue
        return StoreSize(queue.devices, queue.all.messages, queue.all.size, queue.size())
