"""Shares agents in the foreground, and shows calls and their outcomes."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import NamedTuple

import click
from msgspec.structs import replace

from remit import __version__
from remit.protocol.errors import Code, RemitError, fault
from remit.protocol.problems import did_you_mean
from remit.words.terminal import one_line
from remit_cli.config.team import Team
from remit_cli.drive.running import Data, until_stopped
from remit_cli.places import known_agent
from remit_cli.show.screen import clock_time, now_ms
from remit_relay.client import connection
from remit_relay.commands.shared.client import DeviceClient, DeviceGone
from remit_relay.device.peers import PeerDevice, Peers
from remit_relay.local_api.device_endpoints import CallNews, EndedNews, News, OwnDeviceStatus, RefusedNews, TroubleNews
from remit_relay.local_api.views import shown_as
from remit_relay.team.device import device_path, device_warnings, find_devices, using_device, with_gateway
from remit_relay.team.device_process import Command, DeviceProcess, file_digest, find_process
from remit_relay.team.section import SHARED, SharedSection
from remit_server.documents.shared import SharedQuestion, SharingUp

# ── reaching a device ─────────────────────────────────────────────────────────────────────────────────────────────────

# A process that has the device and serves no API yet does so within this time.
STARTING_S = 3.0
_LOOK_S = 0.05


class Reached(NamedTuple):
    """A client of the device, and whether the device runs in this process."""

    client: DeviceClient
    is_here: bool


@asynccontextmanager
async def reach_device(
    team: Team,
    *,
    command: Command,
    overrides: tuple[str, ...],
    shared: Mapping[str, SharedSection] | None = None,
    lost: Callable[[DeviceProcess | None], None] = lambda _: None,
) -> AsyncGenerator[Reached]:
    """Have a client of the team's device while the block lasts; see `DeviceClient` for *lost*.

    Raises a `RemitError` if the process that runs the device cannot be joined.
    """
    folder = device_path(team).parent
    async with AsyncExitStack() as stack:
        process, is_here = find_process(folder), False
        if process is None:
            from remit_relay.team.device_host import device_here  # takes long to import, and a client does not need it

            try:
                here = await stack.enter_async_context(
                    device_here(team, command=command, overrides=overrides, shared=shared)
                )
                process, is_here = here.process, True
            except RemitError as error:
                if error.fault.code is not Code.STATE_CONFLICT or (process := await _starting(folder)) is None:
                    raise
        if not is_here:
            check_settings(process, team, overrides)
        yield Reached(await stack.enter_async_context(DeviceClient(folder, process, lost=lost)), is_here)


async def _starting(folder: Path) -> DeviceProcess | None:
    """Return the process that runs the device, once its API is there."""
    loop = asyncio.get_running_loop()
    until = loop.time() + STARTING_S
    while True:
        process = find_process(folder)
        if process is not None or loop.time() > until:
            return process
        await asyncio.sleep(_LOOK_S)


def check_settings(process: DeviceProcess, team: Team, overrides: tuple[str, ...]) -> None:
    """Raise a `RemitError` if a process has another version, another team file, or not the settings of this command."""
    again = "restart it: remit up --stop, then remit up" if process.command == "up" else "end that process first"
    if process.version != __version__:
        why = f"{process.title} runs this device with version {process.version}; this command has {__version__}"
        raise RemitError(fault(Code.STATE_CONFLICT, why, suggestion=f"{again[0].upper()}{again[1:]}."))
    if process.team != str(team.file.absolute()):
        why = f"{process.title} runs this device with the team file {process.team}"
        raise RemitError(fault(Code.STATE_CONFLICT, why, suggestion=f"Use that file (--team), or {again}."))
    if set(overrides) - set(process.overrides):
        why = f"--set has no effect: {process.title} runs this device with its own settings"
        raise RemitError(fault(Code.STATE_CONFLICT, why, suggestion=f"Leave out --set, or {again}."))


def is_outdated(process: DeviceProcess, team: Team) -> bool:
    """Return whether the team file was changed after the process read it."""
    return process.digest != file_digest(team.file)


# ── sharing ───────────────────────────────────────────────────────────────────────────────────────────────────────────


class Documents(NamedTuple):
    """The output for documents, and whether there is one for every event."""

    data: Data
    everything: bool


def chosen(team: Team, agent: str | None, devices: tuple[str, ...]) -> Mapping[str, SharedSection]:
    """Return the agents to share; raise a `RemitError` if there are none, or a device is unknown."""
    if agent is None:
        if not SHARED.of(team):
            why = f"{team.file} shares no agent"
            todo = "Add [shared.NAME] with `devices`, or run: remit share AGENT --device DEVICE"
            raise RemitError(fault(Code.TEAM_INVALID, why, suggestion=todo))
        return SHARED.of(team)
    named = {name: each for name, each in SHARED.of(team).items() if agent == each.agent}
    if agent in SHARED.of(team):
        named = {agent: SHARED.of(team)[agent]}
    if not devices:
        if not named:
            known_agent(agent, dict.fromkeys((*SHARED.of(team), *team.everyone)))
            why = f"{team.file} does not share {agent}{did_you_mean(agent, SHARED.of(team))}"
            todo = f"Give a device: remit share {agent} --device DEVICE, or add [shared.{agent}]."
            raise RemitError(fault(Code.TEAM_INVALID, why, suggestion=todo))
        return named
    with using_device(team) as own:
        known = Peers(own.state).list()
        ids = frozenset(_able(peer).device for each in devices for peer in find_devices(known, each))
    if named:
        return {name: replace(each, devices=ids) for name, each in named.items()}
    return {agent: SharedSection(agent=known_agent(agent, team.everyone), devices=ids)}


def _able(peer: PeerDevice) -> PeerDevice:
    if peer.revoked:
        why = f"{peer.card.name} was revoked, so it cannot call agents"
        again = "Ask its owner to create a new device, and pair with its link: remit devices pair LINK"
        raise RemitError(fault(Code.PERMISSION_DENIED, why, suggestion=again))
    return peer


async def run_sharing(
    team: Team, shared: Mapping[str, SharedSection], to: Documents | None, *, overrides: tuple[str, ...], is_all: bool
) -> int:
    """Share agents of a team until stopped, and return the exit code; *is_all*: those of the team file.

    If another process runs the device, it shares them already: then show what it shares and who calls.
    """
    team = with_gateway(team)
    with using_device(team) as own:  # report what is missing before the hub is opened
        known = Peers(own.state).list()
    names = {each.device: each.card.name for each in known}
    for about, message, todo in device_warnings(team, known, shared):
        if about.startswith("shared."):
            click.echo(f"{one_line(message)} ({about}).\n→ {todo}", err=True)
    printer = EventPrinter(to)
    with until_stopped() as stop_signal:
        async with reach_device(team, command="share", overrides=overrides, shared=shared) as (client, is_here):
            if not is_here and not is_all:
                raise _refused(client.process)
            following = asyncio.create_task(_follow(client, printer, to, names, is_here=is_here))
            await asyncio.wait({following, stop_signal}, return_when=asyncio.FIRST_COMPLETED)
            if following.done():
                following.result()
            following.cancel()
            if is_here:
                click.echo("Stopping. Requests in progress are answered when you share again.", err=True)
            else:
                click.echo(f"{client.process.title} goes on sharing.", err=True)
    return 0


async def _follow(
    client: DeviceClient, printer: "EventPrinter", to: Documents | None, names: Mapping[str, str], *, is_here: bool
) -> None:
    """Print what is shared once others can reach it, then the calls and the state of the connection."""
    is_announced = False
    try:
        async for news in client.follow_device():
            printer.show(news)
            if isinstance(news, EndedNews):
                raise RemitError(news.fault)
            if isinstance(news, OwnDeviceStatus) and news.ready and not is_announced:
                is_announced = True
                _tell(news, to, names, client.process if not is_here else None)
    except DeviceGone:
        why = f"{client.process.title} has ended, and shares nothing any more"
        todo = "Share from here: remit share. Or run the device until you stop it: remit up"
        raise RemitError(fault(Code.DELEGATION_UNAVAILABLE, why, suggestion=todo)) from None


def _refused(process: DeviceProcess) -> RemitError:
    why = f"{process.title} runs this device, and shares what the team file lists"
    todo = "Add the agent to [shared] in the team file and restart that process, or end it first."
    return RemitError(fault(Code.STATE_CONFLICT, why, suggestion=todo))


def _tell(
    status: OwnDeviceStatus, to: Documents | None, names: Mapping[str, str], process: DeviceProcess | None
) -> None:
    """Print what is shared; *process* shares it, if that is another one."""
    if to is not None:
        to.data.document(shown_as(SharingUp, status, device=status.id))
        return
    ends = "Ctrl-C to stop" if process is None else f"by {process.title}; Ctrl-C leaves it running"
    for each in status.shared:
        called = each.agent if each.name == each.agent else f"{each.agent} as {each.name}"
        whom = ", ".join(one_line(names.get(device, device)) for device in each.devices) or "nobody"
        click.echo(f"Sharing {called} with {whom} ({ends}).", err=True)
    if not status.shared and process is not None:
        click.echo(f"{process.title} shares nothing.", err=True)


def call_sentence(what: CallNews, name: str) -> str:
    """Return a sentence about a call or its outcome; *name* is the local name of the device."""
    who = f"{name} ({what.requester})" if what.requester else name
    match what.event:
        case "asked":
            return f"{who} calls {what.shared}" if what.shared else f"{who} calls without naming an agent"
        case "answered":
            return f"{what.shared} answered {who}"
        case "declined":
            return f"{f'{what.shared} did not answer {who}' if what.shared else f'{who} got no answer'}: {what.code}"


class EventPrinter:
    """Prints one line for each event of a device."""

    def __init__(self, to: Documents | None) -> None:
        self._to = to
        self._is_linked = True
        self._why = ""
        self._troubles: dict[str, str] = {}

    def show(self, news: OwnDeviceStatus | News) -> None:
        """Print an event; nothing if it says the same as the one before."""
        match news:
            case OwnDeviceStatus(connection=connection, why=why):
                self._show_connection(connection, why)
            case CallNews():
                self._show_call(news)
            case TroubleNews(device=device, name=name, message=message):
                if self._troubles.get(device, "") != message:
                    self._say(f"{name}: {f'{message}; retrying' if message else 'recovered'}")
                self._troubles[device] = message
            case RefusedNews(by=by, why=why):
                self._say(f"a command of {by or 'somebody'} was refused: {why}")
            case EndedNews():
                pass  # the command fails with it

    def _show_call(self, news: CallNews) -> None:
        if self._to is None or not self._to.everything:
            self._say(call_sentence(news, news.name))
            return
        self._to.data.document(shown_as(SharedQuestion, news))

    def _show_connection(self, state: connection.State, why: str) -> None:
        if why == self._why:
            return
        self._why = why
        if state == "connected":
            self._is_linked = True
            self._say(why)
        elif state == "waiting" and self._is_linked:
            self._is_linked = False
            self._say(f"{why.rpartition('; ')[0]}; retrying until it is available")

    def _say(self, text: str) -> None:
        click.echo(f"{clock_time(now_ms())} {one_line(text)}", err=True)
