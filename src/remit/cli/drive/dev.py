"""Runs a team, the console, a gateway and two devices in one process, until it is stopped."""

import asyncio
import json
import os
import shutil
import sys
import webbrowser
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from importlib.resources import as_file, files
from pathlib import Path

import click
from msgspec import Struct

from remit.cli.drive.dev_activity import play
from remit.cli.drive.running import Data, interrupts
from remit.cli.places import relative_path
from remit.cli.teams import importing
from remit.config.composition import PresentTeam, hub_of
from remit.config.device import create_device, device_path, open_device
from remit.config.device_host import device_here
from remit.config.device_service import Relaying, relaying
from remit.config.file_trust import make_private
from remit.config.load import load_team
from remit.config.serving import pricing_of
from remit.config.team import Team
from remit.config.team_policy import FileTeamPolicy
from remit.documents.team import DevUp
from remit.hub.hub import Hub
from remit.protocol.errors import RemitError
from remit.relay.device.identity import Card
from remit.relay.device.peers import Peers
from remit.relay.e2e.account import Device
from remit.relay.e2e.olm import olm
from remit.relay.gateway.listener import serve_gateway
from remit.runtime.registry import team_invalid
from remit.server.access import token_in
from remit.server.app import Api
from remit.server.console.operator import operator_console
from remit.server.console.pages import is_built, not_built
from remit.server.server import Server, freeze_loaded
from remit.server.shared import DRAIN_S, MOST_CONNECTIONS
from remit.server.shared_access import HOST, OWNER, TOKEN_FILE, hosts_at, owner_alone
from remit.transports.listening import listening

OWN, PARTNER = "your-laptop", "bob-desktop"
PROFILE = "reviewer"
GATEWAY = "127.0.0.1"


class DevOrder(Struct, frozen=True, kw_only=True):
    """What is to be shown, and where."""

    folder: Path
    team_file: Path | None
    """The team of this folder; None: the example team."""
    overrides: tuple[str, ...]
    port: int
    fresh: bool
    opens: bool

    @property
    def root(self) -> Path:
        """The folder for the example team, or for that of this folder."""
        return self.folder / ("example" if self.team_file is None else "own")


async def run_dev(order: DevOrder, data: Data | None) -> int:
    """Run everything until it is stopped, and return the exit code."""
    if not is_built():
        raise not_built()
    told_to_end: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    def stop(signal: str) -> None:
        if not told_to_end.done():
            told_to_end.set_result(signal)

    with interrupts(stop, lambda: click.echo("Stopped at once.", err=True)):
        if order.fresh and order.root.exists():
            shutil.rmtree(order.root)
        make_private(order.root)
        async with AsyncExitStack() as stack:
            shown = await stack.enter_async_context(_with_chat(order) if _can_chat() else _without_chat(order))
            _announce(order, shown, data)
            freeze_loaded()
            chat = shown.relay and shown.relay.host
            if order.team_file is None:
                playing = asyncio.create_task(play(shown.hub, chat, PROFILE, PARTNER))
                stack.push_async_callback(_ended, playing)
            ends = {told_to_end} if shown.relay is None else {told_to_end, shown.relay.ended}
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            if shown.relay is not None and shown.relay.ended.done():
                raise shown.relay.ended.result()
            click.echo("Stopping.", err=True)
    click.echo(f"Stopped. Everything is kept in {relative_path(order.folder)}; --fresh begins anew.", err=True)
    return 0


async def _ended(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.wait([task])


# ── with and without a device ─────────────────────────────────────────────────────────────────────────────────────────


class _Shown(Struct, frozen=True, kw_only=True):
    """A team whose console can be opened."""

    team: Team
    hub: Hub
    address: str
    link: str
    relay: Relaying | None
    """The device of the chat demo; None if the extra `relay` is not installed."""


def _can_chat() -> bool:
    try:
        olm()
    except RemitError:
        return False
    return True


@asynccontextmanager
async def _with_chat(order: DevOrder) -> AsyncGenerator[_Shown]:
    """Serve the console of the team and of its device, with a gateway and a second device, while the block lasts."""
    async with AsyncExitStack() as stack:
        gateway = await stack.enter_async_context(_gateway(order.root / "gateway"))
        with importing():
            team, partner = _team(order, gateway), _partner(order.root, gateway)
        _pair(team, partner)
        await stack.enter_async_context(_sharing(partner))
        here = await stack.enter_async_context(
            device_here(team, command="dev", overrides=order.overrides, port=order.port, operator=True)
        )
        assert here.hub is not None, "it was asked for"
        yield _Shown(team=team, hub=here.hub, address=here.process.address, link=here.links.new(), relay=here.relay)


@asynccontextmanager
async def _without_chat(order: DevOrder) -> AsyncGenerator[_Shown]:
    """Serve the console of the team alone while the block lasts."""
    with importing():
        team = _team(order, None)
    present = PresentTeam(team)
    with listening(HOST, order.port) as bound:
        async with hub_of(team, reloaded=present.replace) as hub:
            clients, hosts = (
                owner_alone(token_in(team.store_path.parent / TOKEN_FILE)),
                hosts_at(bound.getsockname()[1]),
            )
            console = operator_console(hub, hosts, clients, team=team.name, currency=team.currency)
            policy, pricing = FileTeamPolicy(hub, present), pricing_of(team)
            api = Api(hub, clients, console=console, hosts=hosts, policy=policy, pricing=pricing)
            async with Server(api, bound=bound, drain_s=DRAIN_S, connections=MOST_CONNECTIONS) as server:
                yield _Shown(team=team, hub=hub, address=server.address, link=console.link(OWNER), relay=None)


# ── the parts ─────────────────────────────────────────────────────────────────────────────────────────────────────────


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


def _team(order: DevOrder, gateway: str | None) -> Team:
    """Return the team to show, with its own store and, with a *gateway*, a device that has a scripted agent."""
    root, file = order.root, order.team_file
    settings = {"store.path": str(root / "you" / "hub.db")}
    if file is None:
        file = _copied("household", root / "team") / "remit.toml"
        settings["approvals.allow"] = "[]"
    if gateway is not None:
        scripted = _copied("partner", root / "partner") / "reviewer.py"
        settings |= {
            "relay.gateway": gateway,
            "relay.name": GATEWAY,
            f"profiles.{PROFILE}.run": json.dumps([sys.executable, str(scripted)]),
            f"profiles.{PROFILE}.mode": "semi_auto",
            f"profiles.{PROFILE}.allow_shared_agent_calls": "true",
            f"profiles.{PROFILE}.devices": json.dumps([PARTNER]),
        }
        if order.team_file is None:
            settings["relay.user"] = "ada@example.org"
    if load_team(file, overrides=order.overrides, secrets=False, code=False).store.url is not None:
        why = "the team has a store in PostgreSQL, and this command keeps everything in a folder of its own"
        raise team_invalid(f"{why}; use: remit serve --console")
    return load_team(file, overrides=(*order.overrides, *(f"{key}={value}" for key, value in settings.items())))


def _partner(root: Path, gateway: str) -> Team:
    """Return the team of the other device, which shares an agent."""
    settings = {"relay.gateway": gateway, "relay.name": GATEWAY, "store.path": str(root / "bob" / "hub.db")}
    file = _copied("partner", root / "partner") / "remit.toml"
    return load_team(file, overrides=[f"{key}={value}" for key, value in settings.items()])


def _copied(template: str, folder: Path) -> Path:
    """Return a folder with the files of a template. What is there already is kept: somebody may have changed it."""
    folder.mkdir(parents=True, exist_ok=True)
    with as_file(files("remit.cli") / "templates" / template) as source:
        for file in source.iterdir():
            if file.is_file() and not (folder / file.name).exists():
                shutil.copyfile(file, folder / file.name)
    return folder


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


# ── what is said ──────────────────────────────────────────────────────────────────────────────────────────────────────


def _announce(order: DevOrder, shown: _Shown, data: Data | None) -> None:
    """Say where the console is, and open it."""
    address, link, chat = shown.address, shown.link, shown.relay is not None
    if data is not None:
        data.document(DevUp(team=shown.team.name, address=address, link=link, folder=str(order.folder), chat=chat))
    else:
        if chat:
            team = "an example team" if order.team_file is None else f"the team of {relative_path(order.team_file)}"
            where = f"The console of {team} is at"
        else:
            where = "The chat demo is off: it needs `pip install 'remit[relay]'`. Everything else is at"
        click.echo(f"{where} {address} (Ctrl-C to stop).", err=True)
        click.echo(f"Open it, once within 5 minutes: {link}", err=True)
        click.echo(f"Everything is kept in {relative_path(order.folder)}.", err=True)
    if order.opens and _has_desktop():
        webbrowser.open(link)


def _has_desktop() -> bool:
    """Return whether a browser has a window to open; in a terminal alone, one would take over the terminal."""
    return sys.platform in ("darwin", "win32") or bool({"DISPLAY", "WAYLAND_DISPLAY"} & os.environ.keys())
