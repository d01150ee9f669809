"""Devices and a gateway, for the tests of what goes between them."""

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from remit.ports.keys import HubKeys
from remit.protocol.errors import Fault
from remit_relay.client.connection import GatewayConnection, ReconnectDelays
from remit_relay.client.delivery import MessageDelivery
from remit_relay.device.state import DeviceFile
from remit_relay.e2e.account import Device
from remit_relay.e2e.channel import MessageCipher
from remit_relay.gateway.listener import GatewayListener
from remit_relay.gateway.server import Gateway


def sealer(path: Path, name: str) -> MessageCipher:
    state = DeviceFile.open(path / f"{name}.db", HubKeys(name.encode() * 8), "process")
    return MessageCipher(Device.load(state) or Device.create(state, name=name))


def introduce(one: MessageCipher, other: MessageCipher) -> None:
    for here, there in ((one, other), (other, one)):
        here.peers.pair(there.device.card)
        here.peers.allow(there.device.id)


def linked(
    sealer: MessageCipher, url: str, trouble: Callable[[str, Fault | None], None] | None = None
) -> MessageDelivery:
    link = GatewayConnection(url, gateway="g", key=sealer.device, pauses=ReconnectDelays(first_s=0.01, most_s=0.05))
    return MessageDelivery(sealer, link, trouble=trouble)


@asynccontextmanager
async def gateway(path: Path, port: int = 0) -> AsyncGenerator[GatewayListener]:
    async with GatewayListener(Gateway(path / "gateway", name="g", durability="process"), port=port) as serving:
        yield serving
