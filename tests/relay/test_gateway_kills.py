"""Gateways, devices and networks die at any moment, hundreds of times: no message is lost, repeated or reordered."""

import asyncio
import os
import random
import re
import signal
from collections.abc import AsyncGenerator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path

import pytest

from gateways import NAME, QUICK, GatewayProcess, Proxy, id_of, pair_of
from remit.protocol.errors import RemitError
from remit.relay.client.connection import GatewayConnection
from remit.relay.wire import Delivery, Receipt
from waiting import PATIENCE_S

NAMES = ("a", "b", "c")
# In `make test-kills` some three hundred deaths in all; in every run of the tests, a third of that.
GATEWAYS, DEVICES, NETWORKS, EVERYTHING = (60, 120, 120, 15) if "REMIT_KILLS" in os.environ else (20, 40, 40, 5)


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

    def __init__(self, name: str, network: Proxy, rng: random.Random, moved: Callable[[], None]) -> None:
        self.id = id_of(name)
        self.kept = Kept()
        self.network = network
        self.writing = True
        self._name = name
        self._rng = rng
        self._moved = moved
        self._others = [id_of(other) for other in NAMES if other != name]

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
            silence_s=0.3,
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
                    size = self._rng.choice((1, 100, 5_000, 100_000))
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
    """A gateway, its devices, and a network for each of them."""

    def __init__(self, gateway: GatewayProcess, rng: random.Random) -> None:
        self.gateway = gateway
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


@asynccontextmanager
async def world_in(folder: Path, seed: int) -> AsyncGenerator[World]:
    rng = random.Random(seed)
    async with GatewayProcess(folder) as gateway, AsyncExitStack() as stack:
        url = await gateway.start()
        world = World(gateway, rng)
        for name in NAMES:
            network = await stack.enter_async_context(Proxy(url))
            gateway.networks.append(network)
            # A device is known to a gateway once it has connected.
            async with GatewayConnection(network.url, gateway=NAME, key=pair_of(name), pauses=QUICK) as link:
                await link.publish()
            world.devices.append(Device(name, network, rng, world.moved))
        for device in world.devices:
            device.start()
            stack.push_async_callback(device.kill)
        yield world


def assert_whole(world: World) -> None:
    sent, arrived = world.sent(), world.arrived()
    assert {pair: len(bodies) for pair, bodies in arrived.items()} == {
        pair: len(bodies) for pair, bodies in sent.items()
    }
    assert arrived == sent
    assert sum(map(len, sent.values())) > 100


async def test_a_gateway_that_is_killed_again_and_again_loses_nothing(tmp_path: Path) -> None:
    async with world_in(tmp_path, seed=1) as world:
        for turn in range(GATEWAYS):
            await world.moves(world.rng.randrange(12))
            await world.gateway.stop(signal.SIGTERM if turn % 10 == 9 else signal.SIGKILL)
            await world.gateway.start()
        await world.settle()
        assert_whole(world)


async def test_devices_that_are_killed_again_and_again_lose_nothing(tmp_path: Path) -> None:
    async with world_in(tmp_path, seed=2) as world:
        for _ in range(DEVICES):
            await world.moves(world.rng.randrange(12))
            device = world.rng.choice(world.devices)
            await device.kill()
            device.start()
        await world.settle()
        assert_whole(world)


async def test_a_network_that_breaks_again_and_again_loses_nothing(tmp_path: Path) -> None:
    async with world_in(tmp_path, seed=3) as world:
        for turn in range(NETWORKS):
            await world.moves(world.rng.randrange(12))
            network = world.rng.choice(world.devices).network
            if turn % 20 == 19:
                network.stall()
                await world.moves(1)
                network.flow()
            elif turn % 2:
                network.truncate(world.rng.randrange(1, 60_000))
            else:
                network.cut()
        for device in world.devices:
            device.network.flow()
        await world.settle()
        assert_whole(world)


async def test_everything_dies_at_once(tmp_path: Path) -> None:
    async with world_in(tmp_path, seed=4) as world:
        for _ in range(EVERYTHING):
            await world.moves(world.rng.randrange(12))
            device, network = world.rng.choice(world.devices), world.rng.choice(world.devices).network
            network.truncate(world.rng.randrange(1, 30_000))
            async with asyncio.TaskGroup() as group:
                group.create_task(device.kill())
                group.create_task(world.gateway.stop(signal.SIGKILL))
            network.flow()
            device.start()
            await world.gateway.start()
        await world.settle()
        assert_whole(world)


async def test_the_check_itself_sees_a_message_that_comes_twice(tmp_path: Path) -> None:
    """A device that forgets what it had kept gets messages again: this is what the state is for."""
    async with world_in(tmp_path, seed=5) as world:
        for _ in range(6):
            device = world.rng.choice(world.devices)
            await device.kill()
            device.kept.kept.clear()
            device.start()
            await world.moves(20)
        await world.settle()
        with pytest.raises(AssertionError):
            assert_whole(world)


async def test_a_device_without_a_gateway_waits_and_says_so(tmp_path: Path) -> None:
    async with GatewayProcess(tmp_path) as gateway:
        url = await gateway.start()
        await gateway.stop(signal.SIGKILL)
    states: asyncio.Queue[tuple[str, str]] = asyncio.Queue()

    def tell(state: str, why: str) -> None:
        states.put_nowait((state, why))

    link = GatewayConnection(url, gateway=NAME, key=pair_of("a"), pauses=QUICK, changed=tell)
    async with link, asyncio.timeout(PATIENCE_S):
        while (news := await states.get())[0] != "waiting":
            pass
        assert news[1].startswith("cannot reach the gateway: ")
        assert re.search(r"; next attempt in \d\.\d s$", news[1])
    with pytest.raises(RemitError, match="the connection is closed"):
        await link.receive()
