"""Gateways, devices and networks die at any moment, hundreds of times: no message is lost, repeated or reordered."""

import asyncio
import os
import random
import re
import signal
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

from gateways import NAME, QUICK, GatewayProcess, Proxy, id_of, pair_of
from relay_worlds import Device, World, assert_whole
from remit.protocol.errors import RemitError
from remit_relay.client.connection import GatewayConnection
from waiting import PATIENCE_S

NAMES = ("a", "b", "c")
# In `make test-kills` some three hundred deaths in all; in every run of the tests, an eighth of that.
GATEWAYS, DEVICES, NETWORKS, EVERYTHING = (60, 120, 120, 15) if "REMIT_KILLS" in os.environ else (10, 16, 16, 3)


class OneGateway(World):
    """A gateway, its devices, and a network for each of them."""

    def __init__(self, gateway: GatewayProcess, rng: random.Random) -> None:
        super().__init__(rng)
        self.gateway = gateway


@asynccontextmanager
async def world_in(folder: Path, seed: int) -> AsyncGenerator[OneGateway]:
    rng = random.Random(seed)
    async with GatewayProcess(folder) as gateway, AsyncExitStack() as stack:
        url = await gateway.start()
        world = OneGateway(gateway, rng)
        for name in NAMES:
            network = await stack.enter_async_context(Proxy(url))
            gateway.networks.append(network)
            # A device is known to a gateway once it has connected.
            async with GatewayConnection(network.url, gateway=NAME, key=pair_of(name), pauses=QUICK) as link:
                await link.publish()
            others = [id_of(other) for other in NAMES if other != name]
            world.devices.append(Device(name, network, rng, world.moved, others=others))
        for device in world.devices:
            device.start()
            stack.push_async_callback(device.kill)
        yield world


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
