"""A real cluster of three NATS nodes, of which any may be killed."""

import asyncio
from collections.abc import Generator
from pathlib import Path

import pytest
from nats.aio.client import Client
from nats.errors import Error

from nats_server import NatsServer, team_name
from postgres_server import free_port
from remit import Brief, Hub
from remit_cluster.nats.bus import Bus, join_bus
from remit_cluster.nats.connection import BusSettings
from waiting import PATIENCE_S, eventually


@pytest.fixture
def nodes() -> Generator[list[NatsServer]]:
    places = [f"nats://127.0.0.1:{free_port()}" for _ in range(3)]
    nodes = [
        NatsServer("-n", f"node{number}", "--cluster_name", "office", "--cluster", place, "--routes", ",".join(places))
        for number, place in enumerate(places)
    ]
    for node in nodes:
        node.start()
    yield nodes
    for node in nodes:
        node.close()


async def ready(node: NatsServer) -> bool:
    """Whether the nodes have agreed on a leader for streams."""
    client = Client()
    await client.connect(node.url)
    try:
        await client.jetstream(timeout=1).account_info()  # pyright: ignore[reportUnknownMemberType]
    except (Error, TimeoutError):
        return False
    finally:
        await client.close()
    return True


def used_by(bus: Bus, nodes: list[NatsServer]) -> NatsServer:
    """The node to which a hub is connected."""
    address = bus._connection.client.connected_url  # pyright: ignore[reportPrivateUsage]
    assert address is not None
    return next(node for node in nodes if node.url.endswith(f":{address.port}"))


async def test_a_team_goes_on_when_a_node_of_its_cluster_is_killed(tmp_path: Path, nodes: list[NatsServer]) -> None:
    await eventually(lambda: ready(nodes[0]))
    name, urls = team_name(), ", ".join(node.url for node in nodes)
    near, far = (Hub(name=name, store=tmp_path / "hub.db", durability="process") for _ in range(2))

    async def helper(brief: Brief) -> str:
        await asyncio.sleep(0.02)
        return brief.objective

    far.add("helper", helper, concurrency=1)
    buses = [join_bus(hub, BusSettings(url=urls), name=name) for hub in (far, near)]
    async with asyncio.timeout(PATIENCE_S), far, near:

        async def is_found() -> bool:
            await buses[1].find("helper")
            return "helper" in near.cards

        await eventually(is_found)

        async def ask_six() -> list[str]:
            # One slot: five of them are queued.
            requests = [near.ask("helper", str(each), user="anna") for each in range(6)]
            return [response.unwrap() for response in await asyncio.gather(*requests)]

        expected = [str(each) for each in range(6)]
        assert await ask_six() == expected
        streams = (f"KV_remit-{name}-agents", f"KV_remit-{name}-hosts", f"remit-{name}-queue")
        assert await streams_of(nodes[0]) == [(stream, 3) for stream in streams]
        victim = used_by(buses[1], nodes)
        victim.kill()
        assert await ask_six() == expected
        await eventually(lambda: all(bus.connected for bus in buses))
        assert all(used_by(bus, nodes) is not victim for bus in buses)
        await eventually(lambda: buses[1].hubs)
        assert await ask_six() == expected


async def streams_of(node: NatsServer) -> list[tuple[str | None, int | None]]:
    """The streams of the cluster, each with the number of nodes that keep it."""
    client = Client()
    await client.connect(node.url)
    try:
        infos = await client.jetstream().streams_info()  # pyright: ignore[reportUnknownMemberType]
        return sorted((info.config.name, info.config.num_replicas) for info in infos)
    finally:
        await client.close()
