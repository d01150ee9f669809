"""Devices that send to each other as long as they live, for tests in which anything may die."""

import asyncio
import random
from collections.abc import Callable, Sequence
from contextlib import suppress

from gateways import NAME, QUICK, Proxy, id_of, pair_of
from remit_relay.client.connection import GatewayConnection
from remit_relay.wire import Delivery, Receipt
from waiting import PATIENCE_S


class Kept:
    """What a device has on its disk; each method is one transaction."""

    def __init__(self) -> None:
        self.outbox: dict[int, tuple[str, bytes]] = {}
        self.numbers = 0
        self.sent: dict[str, list[bytes]] = {}
        self.inbox: dict[str, list[bytes]] = {}
        self.kept: dict[str, int] = {}

    def write(self, to: str, body: bytes) -> int:
        self.numbers += 1
        self.outbox[self.numbers] = to, body
        self.sent.setdefault(to, []).append(body)
        return self.numbers

    def stored(self, number: int) -> None:
        del self.outbox[number]

    def take(self, delivery: Delivery) -> None:
        self.inbox.setdefault(delivery.sender, []).append(delivery.body)
        self.kept[delivery.sender] = delivery.number


class Device:
    """A device that sends to all others as long as it lives, and lives again with what it had kept."""

    def __init__(
        self,
        name: str,
        network: Proxy,
        rng: random.Random,
        moved: Callable[[], None],
        *,
        others: Sequence[str],
        largest: int = 100_000,
        silence_s: float = 0.3,
    ) -> None:
        self.id = id_of(name)
        self.kept = Kept()
        self.network = network
        self.writing = True
        self._name = name
        self._rng = rng
        self._moved = moved
        self._others = others
        self._silence_s = silence_s
        self._sizes = [size for size in (1, 100, 5_000, 100_000) if size <= largest]

    def start(self) -> None:
        self._life = asyncio.create_task(self._live())

    async def kill(self) -> None:
        # Nothing that it would still do reaches anyone.
        self.network.cut()
        self._life.cancel()
        with suppress(asyncio.CancelledError):
            await self._life
        self.network.cut()

    async def _live(self) -> None:
        link = GatewayConnection(
            self.network.url,
            gateway=NAME,
            key=pair_of(self._name),
            kept=self.kept.kept,
            pauses=QUICK,
            ping_s=0.05,
            silence_s=self._silence_s,
        )
        async with link, asyncio.TaskGroup() as group:
            group.create_task(self._receive(link))
            group.create_task(self._send(link))

    async def _receive(self, link: GatewayConnection) -> None:
        async for delivery in link:
            if self._rng.random() < 0.2:
                await asyncio.sleep(0)
            self.kept.take(delivery)
            self._moved()
            if self._rng.random() < 0.2:
                await asyncio.sleep(0)
            link.acknowledge(delivery)

    async def _send(self, link: GatewayConnection) -> None:
        async with asyncio.TaskGroup() as group:
            for number, (to, body) in list(self.kept.outbox.items()):
                group.create_task(self._put(link, number, to, body))
            while self.writing:
                if len(self.kept.outbox) < 30:
                    to = self._rng.choice(self._others)
                    size = self._rng.choice(self._sizes)
                    body = b"%d " % self.kept.numbers + self._rng.randbytes(size)
                    number = self.kept.write(to, body)
                    group.create_task(self._put(link, number, to, body))
                    await asyncio.sleep(0)
                else:
                    await asyncio.sleep(0.001)

    async def _put(self, link: GatewayConnection, number: int, to: str, body: bytes) -> None:
        receipt = await link.put(to, number, body)
        assert isinstance(receipt, Receipt), receipt
        self.kept.stored(number)
        self._moved()


class World:
    """Devices, and what they have sent and received."""

    def __init__(self, rng: random.Random) -> None:
        self.devices: list[Device] = []
        self.rng = rng
        self._moves = 0
        self._more = asyncio.Event()

    def moved(self) -> None:
        self._moves += 1
        self._more.set()

    async def moves(self, count: int) -> None:
        """Return once so much more has been sent or has arrived."""
        until = self._moves + count
        async with asyncio.timeout(PATIENCE_S):
            while self._moves < until:
                self._more.clear()
                await self._more.wait()

    async def settle(self) -> None:
        """Let everything arrive that was written."""
        for device in self.devices:
            device.writing = False
        async with asyncio.timeout(PATIENCE_S):
            while any(device.kept.outbox for device in self.devices) or self.sent() != self.arrived():
                # It is over too when something came that was never sent, or came twice.
                if sum(map(len, self.arrived().values())) > sum(map(len, self.sent().values())):
                    return
                self._more.clear()
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._more.wait(), 0.1)

    def sent(self) -> dict[tuple[str, str], list[bytes]]:
        return {(one.id, to): bodies for one in self.devices for to, bodies in one.kept.sent.items()}

    def arrived(self) -> dict[tuple[str, str], list[bytes]]:
        return {(sender, one.id): bodies for one in self.devices for sender, bodies in one.kept.inbox.items()}


def assert_whole(world: World) -> None:
    sent, arrived = world.sent(), world.arrived()
    assert {pair: len(bodies) for pair, bodies in arrived.items()} == {
        pair: len(bodies) for pair, bodies in sent.items()
    }
    assert arrived == sent
    assert sum(map(len, sent.values())) > 100
