"""The chat that `remit dev` shows: a gateway and two paired devices, one of which shares an agent."""

import asyncio
import json
import sys
from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from functools import partial
from importlib.resources import files
from pathlib import Path

from remit.protocol.errors import RemitError
from remit_cli.config.composition import hub_of
from remit_cli.config.load import load_team
from remit_cli.config.team import Team
from remit_cli.config.team_search import make_private
from remit_cli.drive.dev import ChatDemo, DevOrder, Shown, copied, team_shown
from remit_cli.places import importing
from remit_relay.device.identity import Card
from remit_relay.device.peers import Peers
from remit_relay.e2e.account import Device, olm
from remit_relay.gateway.listener import serve_gateway
from remit_relay.team.device import create_device, device_path, open_device
from remit_relay.team.device_host import device_here
from remit_relay.team.device_service import Relaying, relaying

OBJECTIVE = "Review Bob's API for security issues"
OWN, PARTNER = "your-laptop", "bob-desktop"
PROFILE = "reviewer"
GATEWAY = "127.0.0.1"
_PARTNER_TEAM = files("remit_relay.commands") / "templates" / "partner"


def chat_shown(order: DevOrder) -> AbstractAsyncContextManager[Shown] | None:
    """Return what shows a chat of two devices; None if the extra for devices is not installed."""
    try:
        olm()
    except RemitError:
        return None
    return _showing_chat(order)


@asynccontextmanager
async def _showing_chat(order: DevOrder) -> AsyncGenerator[Shown]:
    """Serve the console of the team and of its device, with a gateway and a second device, while the block lasts."""
    async with AsyncExitStack() as stack:
        gateway = await stack.enter_async_context(_gateway(order.root / "gateway"))
        with importing():
            team, partner = team_shown(order, _settings(order, gateway)), _partner(order.root, gateway)
        _pair(team, partner)
        await stack.enter_async_context(_sharing(partner))
        here = await stack.enter_async_context(
            device_here(team, command="dev", overrides=order.overrides, port=order.port, operator=True)
        )
        assert here.hub is not None, "it was asked for"
        chat = ChatDemo(start=partial(_start, here.relay), ended=here.relay.ended)
        yield Shown(team=team, hub=here.hub, address=here.process.address, link=here.links.new(), chat=chat)


async def _start(relay: Relaying) -> None:
    """Start the chat; it is recorded, so that this is done once."""
    if relay.host is not None and not relay.host.runs:
        await relay.host.start(PROFILE, PARTNER, OBJECTIVE)


@asynccontextmanager
async def _gateway(folder: Path) -> AsyncGenerator[str]:
    """Run a gateway while the block lasts; yield its address."""
    make_private(folder)
    started: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    stop = asyncio.Event()
    serving = asyncio.create_task(
        serve_gateway(folder, name=GATEWAY, host=GATEWAY, durability="process", started=started.set_result, stop=stop)
    )
    await asyncio.wait({started, serving}, return_when=asyncio.FIRST_COMPLETED)
    if serving.done():
        await serving
    try:
        yield started.result()
    finally:
        stop.set()
        await serving


def _settings(order: DevOrder, gateway: str) -> dict[str, str]:
    """Return the settings of a device that has a scripted agent."""
    scripted = copied(_PARTNER_TEAM, order.root / "partner") / "reviewer.py"
    settings = {
        "relay.gateway": gateway,
        "relay.name": GATEWAY,
        f"profiles.{PROFILE}.run": json.dumps([sys.executable, str(scripted)]),
        f"profiles.{PROFILE}.mode": "semi_auto",
        f"profiles.{PROFILE}.allow_shared_agent_calls": "true",
        f"profiles.{PROFILE}.devices": json.dumps([PARTNER]),
    }
    return settings | ({"relay.user": "ada@example.org"} if order.team_file is None else {})


def _partner(root: Path, gateway: str) -> Team:
    """Return the team of the other device, which shares an agent."""
    settings = {"relay.gateway": gateway, "relay.name": GATEWAY, "store.path": str(root / "bob" / "hub.db")}
    file = copied(_PARTNER_TEAM, root / "partner") / "remit.toml"
    return load_team(file, overrides=[f"{key}={value}" for key, value in settings.items()])


def _pair(team: Team, partner: Team) -> None:
    """Make the two devices known to each other, unless they are."""
    own, other = _device(team, OWN), _device(partner, PARTNER)
    try:
        _know(own, other.card)
        _know(other, own.card)
        Peers(own.state).share(other.id)
        Peers(other.state).allow(own.id)
    finally:
        own.state.close()
        other.state.close()


def _device(team: Team, name: str) -> Device:
    return open_device(team) if device_path(team).exists() else create_device(team, name)


def _know(device: Device, card: Card) -> None:
    peers = Peers(device.state)
    if peers.get(card.device) is None:
        peers.pair(card)
        peers.verify(card.device)


@asynccontextmanager
async def _sharing(partner: Team) -> AsyncGenerator[None]:
    """Run the other device while the block lasts."""
    async with hub_of(partner) as hub, relaying(partner, hub=hub, host=False, share=True):
        yield
