"""Shares agents in the foreground, and shows calls and their outcomes."""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

import click
from msgspec.structs import replace

from remit.cli.drive.running import Data, interrupts
from remit.cli.places import known_agent
from remit.cli.show.screen import clock_time, now_ms
from remit.config.composition import hub_of
from remit.config.device import device_warnings, find_device, using_device
from remit.config.device_gateway import with_gateway
from remit.config.device_service import relaying
from remit.config.sections.relay import SharedSection
from remit.config.team import Team
from remit.documents.shared import SharedAgent, SharedQuestion, SharingUp
from remit.protocol.errors import Code, Fault, RemitError, fault
from remit.protocol.problems import did_you_mean
from remit.relay import serve_shared
from remit.relay.client import connection
from remit.relay.device.peers import PeerDevice, Peers
from remit.text.terminal import one_line


class Documents(NamedTuple):
    """The output for documents, and whether there is one for every event."""

    data: Data
    everything: bool


def chosen(team: Team, agent: str | None, devices: tuple[str, ...]) -> Mapping[str, SharedSection]:
    """Return the agents to share; raise a `RemitError` if there are none, or a device is unknown."""
    if agent is None:
        if not team.shared:
            raise RemitError(
                fault(
                    Code.TEAM_INVALID,
                    f"{team.file} shares no agent",
                    suggestion="Add [shared.NAME] with `devices`, or run: remit share AGENT --device DEVICE",
                )
            )
        return team.shared
    named = {name: each for name, each in team.shared.items() if agent == each.agent}
    if agent in team.shared:
        named = {agent: team.shared[agent]}
    if not devices:
        if not named:
            known_agent(agent, dict.fromkeys((*team.shared, *team.everyone)))
            raise RemitError(
                fault(
                    Code.TEAM_INVALID,
                    f"{team.file} does not share {agent}{did_you_mean(agent, team.shared)}",
                    suggestion=f"Give a device: remit share {agent} --device DEVICE, or add [shared.{agent}].",
                )
            )
        return named
    with using_device(team) as own:
        known = Peers(own.state).list()
        ids = frozenset(_able(find_device(known, each)).device for each in devices)
    if named:
        return {name: replace(each, devices=ids) for name, each in named.items()}
    return {agent: SharedSection(agent=known_agent(agent, team.everyone), devices=ids)}


def _able(peer: PeerDevice) -> PeerDevice:
    if peer.revoked:
        why = f"{peer.card.name} was revoked, so it cannot call agents"
        again = "Ask its owner to create a new device, and pair with its link: remit devices pair LINK"
        raise RemitError(fault(Code.PERMISSION_DENIED, why, suggestion=again))
    return peer


async def run_sharing(team: Team, shared: Mapping[str, SharedSection], to: Documents | None) -> int:
    """Share agents of a team until stopped, and return the exit code."""
    loop = asyncio.get_running_loop()
    told_to_end: asyncio.Future[str] = loop.create_future()

    def stop(signal: str) -> None:
        if not told_to_end.done():
            told_to_end.set_result(signal)

    team = with_gateway(team)
    with using_device(team) as own:  # report what is missing before the hub is opened
        known = Peers(own.state).list()
    watching = _SharingPrinter(known, to)
    for about, says, todo in device_warnings(team, known, shared):
        if about.startswith("shared."):
            click.echo(f"{one_line(says)} ({about}).\n→ {todo}", err=True)
    with interrupts(stop, lambda: click.echo("Stopped at once.", err=True)):
        async with (
            hub_of(team) as hub,
            relaying(
                team,
                hub=hub,
                host=False,
                share=True,
                shared=shared,
                told=watching.told,
                trouble=watching.trouble,
                linked=watching.linked,
            ) as up,
        ):
            watching.look_up = up.sealer.peers.get
            ready = asyncio.create_task(up.ready.wait())
            await asyncio.wait({ready, told_to_end, up.ended}, return_when=asyncio.FIRST_COMPLETED)
            if ready.done():
                _tell(team, shared, up.device.id, to, watching.name)
                await asyncio.wait({told_to_end, up.ended}, return_when=asyncio.FIRST_COMPLETED)
            ready.cancel()
            if up.ended.done():
                raise up.ended.result()
            click.echo("Stopping. Requests in progress are answered when you share again.", err=True)
    return 0


def _tell(
    team: Team, shared: Mapping[str, SharedSection], device: str, to: Documents | None, name_of: Callable[[str], str]
) -> None:
    assert team.relay is not None, "without a gateway nothing is shared"
    lines = tuple(
        SharedAgent(name=name, agent=each.agent or name, devices=tuple(sorted(each.devices)))
        for name, each in shared.items()
    )
    if to is not None:
        to.data.document(SharingUp(device=device, gateway=team.relay.gateway, shared=lines))
        return
    for each in lines:
        called = each.agent if each.name == each.agent else f"{each.agent} as {each.name}"
        whom = ", ".join(one_line(name_of(device)) for device in each.devices) or "nobody"
        click.echo(f"Sharing {called} with {whom} (Ctrl-C to stop).", err=True)


def said_of(what: serve_shared.SharingEvent, name: str) -> str:
    """Return a sentence about a call or its outcome; *name* is the local name of the device."""
    who = f"{name} ({what.requester})" if what.requester else name
    match what.event:
        case "asked":
            return f"{who} calls {what.shared}" if what.shared else f"{who} calls without naming an agent"
        case "answered":
            return f"{what.shared} answered {who}"
        case "declined":
            return f"{f'{what.shared} did not answer {who}' if what.shared else f'{who} got no answer'}: {what.code}"


class _SharingPrinter:
    """Prints one line for each event."""

    def __init__(self, known: Iterable[PeerDevice], to: Documents | None) -> None:
        self._names = {each.device: each.card.name for each in known}
        self._to = to
        self._is_linked = True
        self._troubles: dict[str, str] = {}
        self.look_up: Callable[[str], PeerDevice | None] = lambda _: None

    def told(self, what: serve_shared.SharingEvent) -> None:
        """Print a call or its outcome."""
        name = self.name(what.device)
        if self._to is not None and self._to.everything:
            self._to.data.document(
                SharedQuestion(
                    at_ms=now_ms(),
                    device=what.device,
                    name=name,
                    requester=what.requester,
                    shared=what.shared,
                    event=what.event,
                    code=what.code,
                )
            )
            return
        self._say(said_of(what, name))

    def trouble(self, device: str, why: Fault | None) -> None:
        """Report that a device is unreachable, or reachable again; nothing if it fails as before."""
        said = None if why is None else why.message
        if self._troubles.pop(device, None) != said:
            self._say(f"{self.name(device)}: {f'{said}; retrying' if said else 'recovered'}")
        if said is not None:
            self._troubles[device] = said

    def linked(self, state: connection.State, why: str) -> None:
        """Report that the gateway connection is lost or restored; nothing if an attempt fails like the one before."""
        if state == "connected":
            self._is_linked = True
            self._say(why)
        elif state == "waiting" and self._is_linked:
            self._is_linked = False
            self._say(f"{why.rpartition('; ')[0]}; retrying until it is available")

    def name(self, device: str) -> str:
        """Return the local name of a device."""
        if device not in self._names and (found := self.look_up(device)) is not None:
            self._names[device] = found.card.name
        return self._names.get(device, device)

    def _say(self, text: str) -> None:
        click.echo(f"{clock_time(now_ms())} {one_line(text)}", err=True)
