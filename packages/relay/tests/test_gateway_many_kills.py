"""Three gateways on one database behind one address die again and again: no message is lost, repeated or reordered."""

import asyncio
import os
import random
import signal
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager

import pytest

from gateway_stores import empty_database, rows
from gateways import NAME, QUICK, Balancer, GatewayProcess, Proxy, id_of, pair_of
from postgres_server import PostgresServer, shared_server
from relay_worlds import Device, World, assert_whole
from remit_relay.client.connection import GatewayConnection
from waiting import eventually

NAMES = ("a", "b", "c")
GATEWAYS = 3
# In `make test-kills` a hundred deaths; in every run of the tests eight.
KILLS, CUTS, STOPS = (100, 30, 5) if "REMIT_KILLS" in os.environ else (8, 3, 0)


class Cluster:
    """Gateways on one database, each with a connection to it that can be cut, and the balancer in front of them."""

    def __init__(self) -> None:
        self.gateways: list[GatewayProcess] = []
        self.databases: list[Proxy] = []
        self.balancer = Balancer()

    async def start(self, number: int) -> None:
        self.balancer.targets[number] = await self.gateways[number].start()

    async def kill(self, number: int, how: signal.Signals = signal.SIGKILL) -> None:
        await self.gateways[number].stop(how)
        del self.balancer.targets[number]


@asynccontextmanager
async def cluster_on(server: PostgresServer, url: str, rng: random.Random) -> AsyncGenerator[tuple[Cluster, World]]:
    cluster, world = Cluster(), World(rng)
    host = f"127.0.0.1:{server.port}"
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(cluster.balancer)
        for number in range(GATEWAYS):
            database = await stack.enter_async_context(Proxy(f"ws://{host}"))
            cluster.databases.append(database)
            near = url.replace(host, database.url.removeprefix("ws://"))
            cluster.gateways.append(await stack.enter_async_context(GatewayProcess(near)))
            await cluster.start(number)
        for name in NAMES:
            network = await stack.enter_async_context(Proxy(cluster.balancer.url))
            # A device is known to a gateway once it has connected.
            async with GatewayConnection(network.url, gateway=NAME, key=pair_of(name), pauses=QUICK) as link:
                await link.publish()
            others = [id_of(other) for other in NAMES if other != name]
            world.devices.append(Device(name, network, rng, world.moved, others=others, largest=5_000, silence_s=3))
        for device in world.devices:
            device.start()
            stack.push_async_callback(device.kill)
        yield cluster, world


async def test_gateways_behind_one_address_are_killed_again_and_again() -> None:
    url, rng = await empty_database(), random.Random(6)
    async with cluster_on(shared_server(), url, rng) as (cluster, world):
        for turn in range(KILLS):
            await world.moves(rng.randrange(1, 20))
            number = turn % GATEWAYS
            await cluster.kill(number, signal.SIGTERM if turn % 10 == 9 else signal.SIGKILL)
            if turn % 4 == 3:
                # Another dies before this one is back.
                other = (number + 1) % GATEWAYS
                await cluster.kill(other)
                await cluster.start(other)
            await cluster.start(number)
        for _ in range(CUTS):
            await world.moves(rng.randrange(1, 20))
            rng.choice(cluster.databases).cut()
        for _ in range(STOPS):
            await world.moves(rng.randrange(1, 20))
            stopped = rng.choice(cluster.gateways)
            await stopped.pause()
            await world.moves(50)
            await stopped.resume()
        await world.settle()
        assert_whole(world)
        await eventually(lambda: all_acknowledged(url))


async def all_acknowledged(url: str) -> bool:
    """Whether nothing is left, and every counter says so."""
    left = await rows(
        url,
        "SELECT (SELECT count(*) FROM remit_gateway.message), (SELECT sum(messages) FROM remit_gateway.device),"
        " (SELECT sum(size) FROM remit_gateway.pair), (SELECT sum(messages) FROM remit_gateway.gateway),"
        " (SELECT sum(size) FROM remit_gateway.gateway)",
    )
    return left == [(0, 0, 0, 0, 0)]


@pytest.mark.skipif("REMIT_KILLS" not in os.environ, reason="a server of its own takes long to start")
async def test_the_database_crashes_under_all_gateways() -> None:
    server, rng = await asyncio.to_thread(PostgresServer), random.Random(7)
    try:
        async with cluster_on(server, await server.database(), rng) as (_, world):
            for _ in range(5):
                await world.moves(rng.randrange(50))
                server.stop(signal.SIGQUIT)
                server.start()
            await world.settle()
            assert_whole(world)
    finally:
        server.remove()
