"""Pairs this device with another one over a short code, for `remit pair`."""

import asyncio
import shlex
import sys
from collections.abc import Collection
from pathlib import Path

import click
import segno

from remit.protocol.errors import Code, RemitError, fault
from remit.protocol.problems import did_you_mean
from remit.words.terminal import one_line
from remit_cli.config.load import load_team
from remit_cli.config.team import Team
from remit_cli.config.team_search import find_team
from remit_cli.options import same_team
from remit_cli.places import team_path
from remit_cli.show.screen import print_json
from remit_relay.commands.manage_devices import known_device, own_name, say_own
from remit_relay.device.identity import Card, comparable_code
from remit_relay.device.peers import Grants, PeerDevice, Peers
from remit_relay.e2e.account import Device
from remit_relay.pairing.client import Paired, PairingGateway, PairingOwner, host_pairing, join_pairing
from remit_relay.pairing.code import PairingCode, PairingLink, read_code
from remit_relay.team.device import KeptGateway, create_device, device_path, keep_gateway, open_device, with_gateway
from remit_relay.team.device_service import authority_of
from remit_relay.team.section import PROFILES, SHARED, host_of, relay_of
from remit_relay.team.section import gateway_name as name_of
from remit_server.documents.shared import DevicePaired


def pair(
    code: str | None,
    name: str | None,
    gateway: str | None,
    gateway_name: str,
    agents: tuple[str, ...],
    let_ask_all: bool,
    profiles: tuple[str, ...],
    use_all: bool,
    own: bool,
    yes: bool,
    team_file: Path | None,
    overrides: tuple[str, ...],
    as_json: bool,
) -> None:
    """Do what `remit pair` says."""
    typed = None if code is None else read_code(code)
    team = _team(team_file, overrides)
    given = Grants(
        agents=_known(
            frozenset(SHARED.of(team)) if let_ask_all or yes else frozenset(agents), SHARED.of(team), "--let-ask"
        ),
        profiles=_known(
            frozenset(PROFILES.of(team)) if use_all or yes else frozenset(profiles), PROFILES.of(team), "--use"
        ),
        own=own,
    )
    device = _device(team, name)
    try:
        meeting = _meeting(team, device, typed, gateway, gateway_name)
        owner = _owner(device, given)
        done = asyncio.run(_pair(meeting, owner, typed, as_json=as_json))
        peer = done.peer
        if not as_json:
            _say_paired(done)
        if not (as_json or own) and sys.stdin.isatty() and sys.stderr.isatty():
            grants = _ask(team, peer.card, given)
            peer = Peers(device.state).grant(peer.device, grants)
        if as_json:
            shown = known_device(peer, device.state)
            print_json(DevicePaired(device=shown, code=comparable_code(device.card, peer.card), words=done.words))
            return
        if peer.own:
            say_own(peer.card.name, own_name=device.card.name, same="")
        else:
            _say_grants(team, peer, same_team(team_file))
    finally:
        device.state.close()


def _team(team_file: Path | None, overrides: tuple[str, ...]) -> Team:

    if find_team(team_file) is None:
        why = "no team file remit.toml here or in a parent folder"
        todo = "Create one with `remit init --template shared`, or give one with --team."
        raise RemitError(fault(Code.TEAM_INVALID, why, suggestion=todo))
    return load_team(team_path(team_file), overrides=overrides, secrets=False, code=False)


def _known(named: frozenset[str], there: Collection[str], option: str) -> frozenset[str]:

    for each in sorted(named.difference(there)):
        near = did_you_mean(each, there)
        raise click.BadParameter(f"the team file has no `{each}` for this{near}", param_hint=option)
    return named


def _device(team: Team, name: str | None) -> Device:
    """Return the team's device, created if there is none."""
    if device_path(team).exists():
        return open_device(team)
    device = create_device(team, name or own_name(team))
    click.echo(f"Created this device: {device.card.name}.", err=True)
    return device


def _meeting(
    team: Team, device: Device, typed: PairingLink | None, gateway: str | None, gateway_name: str
) -> PairingGateway:
    """Return the gateway where the devices meet; one that a flag or a link names is kept in the device's file."""
    if typed is not None and typed.gateway:
        keep_gateway(team, device, KeptGateway(url=typed.gateway, name=typed.name))
    if gateway is not None:
        keep_gateway(team, device, KeptGateway(url=gateway, name=gateway_name))
    team = with_gateway(team, device)
    relay = relay_of(team)
    if device.card.gateway != relay.gateway:
        device.rename(gateway=relay.gateway)
    return PairingGateway(url=relay.gateway, name=name_of(team), ssl=authority_of(team, relay))


def _owner(device: Device, grants: Grants) -> PairingOwner:

    peers = Peers(device.state)

    async def check(card: Card) -> None:
        peers.check(card)

    async def record(card: Card) -> PeerDevice:
        return peers.pair_verified(card, grants)

    return PairingOwner(card=device.card, check=check, record=record)


async def _pair(meeting: PairingGateway, owner: PairingOwner, typed: PairingLink | None, *, as_json: bool) -> Paired:

    if typed is not None:
        return await join_pairing(meeting, owner, typed.code)
    return await host_pairing(meeting, owner, shown=lambda code, _: _show(meeting, code, as_json=as_json))


def _show(meeting: PairingGateway, code: PairingCode, *, as_json: bool) -> None:
    """Show a code: it is data unless a document follows; the QR code only in a terminal."""
    name = "" if meeting.name == host_of(meeting.url) else meeting.name
    if sys.stderr.isatty():
        segno.make(str(PairingLink(code, meeting.url, name))).terminal(out=sys.stderr, compact=True)
    click.echo(str(code), err=as_json)
    click.echo(f"→ On the other device: remit pair {code}", err=True)
    click.echo("Waiting for ten minutes (Ctrl-C to stop) …", err=True)
    sys.stdout.flush()


def _say_paired(done: Paired) -> None:

    name = one_line(done.peer.card.name)
    click.echo(f"{name} is paired and verified. You may compare: both sides see these words.", err=True)
    click.echo(done.words)
    if not done.is_confirmed:
        click.echo(f"{name} has not confirmed. If it does not list this device, pair again.", err=True)


def _ask(team: Team, card: Card, given: Grants) -> Grants:
    """Ask what each may do with the other; what a flag said is not asked."""
    name = one_line(card.name)
    agents, profiles = set(given.agents), set(given.profiles)
    if not agents:
        agents = {each for each in SHARED.of(team) if click.confirm(f"Let {name} ask {each}?", default=False, err=True)}
    if not profiles:
        allowed = [each for each, profile in PROFILES.of(team).items() if profile.allow_shared_agent_calls is not False]
        profiles = {each for each in allowed if click.confirm(f"Let my {each} ask {name}?", default=False, err=True)}
    return Grants(agents=frozenset(agents), profiles=frozenset(profiles))


def _say_grants(team: Team, peer: PeerDevice, same: str) -> None:

    name = one_line(peer.card.name)
    if peer.agents:
        click.echo(f"{name} may ask: {', '.join(sorted(peer.agents))}.", err=True)
    if peer.profiles:
        click.echo(f"May ask {name}: {', '.join(sorted(peer.profiles))}.", err=True)
    allow = f"remit devices allow {shlex.quote(peer.card.name)}"
    if SHARED.of(team) and not peer.agents:
        click.echo(f"→ To let it ask an agent: {allow} --agent {next(iter(SHARED.of(team)))}{same}", err=True)
    if PROFILES.of(team) and not peer.profiles:
        click.echo(f"→ To ask it: {allow} --profile {next(iter(PROFILES.of(team)))}{same}", err=True)
