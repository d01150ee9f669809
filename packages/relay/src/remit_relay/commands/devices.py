"""`remit devices`: this device and the paired ones."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from remit_cli.options import SubcommandGroup, json_option, same_team, team_options
from remit_relay.commands.completion_words import (
    device_groups,
    devices_and_groups,
    granted_agents,
    granted_profiles,
    known_devices,
)

if TYPE_CHECKING:  # encryption is not loaded to show help
    from remit_cli.config.team import Team
    from remit_relay.device.peers import PeerDevice
    from remit_relay.device.state import DeviceFile
    from remit_relay.e2e.account import Device
    from remit_server.documents.shared import DeviceShown, KnownDevice

if TYPE_CHECKING:  # encryption is not loaded to show help
    from collections.abc import Iterable

    from remit_cli.config.team import Team
    from remit_relay.device.identity import Card
    from remit_relay.device.peers import Grants, PeerDevice
    from remit_server.documents.shared import DeviceShown, KnownDevice

# ── documents ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def device_shown(team: Team, device: Device) -> DeviceShown:
    """Return the document about this device."""
    from remit_cli.places import relative_path
    from remit_relay.team.device import device_path
    from remit_server.documents.shared import DeviceShown
    from remit_server.transports.credentials.keys import fingerprint

    return DeviceShown(
        id=device.id,
        name=device.card.name,
        fingerprint=fingerprint(device.card.key),
        gateway=device.card.gateway,
        file=str(relative_path(device_path(team))),
        link=device.card.link(),
    )


def known_device(peer: PeerDevice, state: DeviceFile) -> KnownDevice:
    """Return the document about a known device."""
    from remit_relay.messages.types import latest_offers, shares
    from remit_server.documents.shared import KnownDevice, OfferedAgent
    from remit_server.transports.credentials.keys import fingerprint

    offer = latest_offers(state, peer.device)
    return KnownDevice(
        id=peer.device,
        name=peer.card.name,
        fingerprint=fingerprint(peer.card.key),
        verified=peer.verified,
        shared=shares(peer, offer),
        offers=None
        if offer is None
        else tuple(OfferedAgent(name=each.name, description=each.description) for each in offer),
        allowed=peer.allowed,
        revoked=peer.revoked,
        revoked_there=peer.revoked_there,
        agents=tuple(sorted(peer.agents)),
        profiles=tuple(sorted(peer.profiles)),
        groups=tuple(sorted(peer.groups)),
        own=peer.own,
    )


# ── own devices ───────────────────────────────────────────────────────────────────────────────────────────────────────


@click.command()
@click.argument("device", shell_complete=known_devices)
@click.option("--remove", is_flag=True, help="It is not yours: only what was granted to it by name still counts.")
@team_options
@json_option
def own(device: str, remove: bool, team_file: Path | None, overrides: tuple[str, ...], as_json: bool) -> None:
    """Mark DEVICE as another device of yours: it may ask all agents shared here, and all profiles here may ask it.

    That holds for agents and profiles that are added later, too. It says nothing about what this device may do there:
    run the command on both devices, or pair them with `remit pair --own`. A profile with
    `allow_shared_agent_calls = false` in the team file still asks nobody. DEVICE must be verified.

    \b
    Example:
      remit devices own my-laptop
      remit devices own my-laptop --remove
    """
    from remit_cli.config.load import load_team
    from remit_cli.places import team_path
    from remit_cli.show.screen import print_json
    from remit_relay.device.peers import Grants, Peers
    from remit_relay.team.device import find_device, using_device
    from remit_server.documents.shared import DeviceChanged

    team = load_team(team_path(team_file), overrides=overrides, secrets=False, code=False)
    with using_device(team) as here:
        peers = Peers(here.state)
        found, owned = find_device(peers.list(), device).device, Grants(own=True)
        peer = peers.withdraw(found, owned) if remove else peers.grant(found, owned)
        known, name = known_device(peer, here.state), here.card.name
    if as_json:
        print_json(DeviceChanged(device=known))
        return
    if remove:
        click.echo(f"{_name(known)} is no longer marked as yours. Grants by name and `devices` still count.", err=True)
        return
    say_own(known.name, own_name=name, same=same_team(team_file))


def say_own(name: str, *, own_name: str, same: str) -> None:
    """Say what marking a device as the owner's permits, and what is left to do on that device."""
    import shlex

    from remit.words.terminal import one_line

    click.echo(f"{one_line(name)} is yours: it may ask all agents shared here, all profiles may ask it.", err=True)
    todo = f"remit devices own {shlex.quote(own_name)}{same}"
    click.echo(f"→ For the same in the other direction, run on {one_line(name)}: {todo}", err=True)


def print_own(known: Iterable[KnownDevice]) -> None:
    """Print which known devices are the owner's, if there are any."""
    names = [_name(each) for each in known if each.own]
    if names:
        click.echo(f"\nYour own devices: {', '.join(names)}")


def _name(known: KnownDevice) -> str:
    from remit.words.terminal import one_line

    return one_line(known.name)


# ── groups ────────────────────────────────────────────────────────────────────────────────────────────────────────────


@click.command()
@click.argument("name", shell_complete=device_groups)
@click.argument("devices", nargs=-1, metavar="[DEVICE]...", shell_complete=known_devices)
@click.option("--remove", is_flag=True, help="Remove the devices from the group; without DEVICE, the whole group.")
@team_options
@json_option
def group(
    name: str,
    devices: tuple[str, ...],
    remove: bool,
    team_file: Path | None,
    overrides: tuple[str, ...],
    as_json: bool,
) -> None:
    """Put devices into the group NAME, which can be named wherever a device can.

    Who asks a group gets one device of it that shares the agent: a connected one if there is one, else the one heard
    last. A run stays with its device. A permission for a group is one for each of its devices. Without DEVICE the group
    is shown.

    \b
    Example:
      remit devices group reviewers bob-desktop bob-laptop
      remit devices group reviewers
      remit devices group reviewers bob-laptop --remove
      remit devices group reviewers --remove
    """
    from remit_cli.config.load import load_team
    from remit_cli.places import team_path
    from remit_cli.show.screen import print_json
    from remit_relay.device.peers import Peers
    from remit_relay.team.device import find_device, using_device
    from remit_server.documents.shared import DeviceGroup

    team = load_team(team_path(team_file), overrides=overrides, secrets=False, code=False)
    with using_device(team) as own:
        peers = Peers(own.state)
        before = peers.members(name)
        if not before and (remove or not devices):
            raise _unknown(name, peers.groups())
        named = [find_device(peers.list(), each).device for each in devices]
        if remove:
            members = peers.ungroup(name, named or None)
        else:
            members = peers.group(name, named) if named else before
        found = tuple(known_device(each, own.state) for each in members)
    if as_json:
        print_json(DeviceGroup(group=name, devices=found))
        return
    click.echo(f"{name}: {_names(found)}" if found else f"The group {name} is removed.", err=bool(devices) or remove)
    if found and not remove and not any(each.shared or each.allowed for each in found):
        todo = f"remit devices allow {name}{same_team(team_file)}"
        click.echo(f"→ Its devices have no permissions yet. To work with them: {todo}", err=True)


def print_groups(known: Iterable[KnownDevice]) -> None:
    """Print the groups of the known devices, if there are any."""
    from remit_cli.show.screen import print_table

    known = list(known)
    names = sorted({name for each in known for name in each.groups})
    if names:
        click.echo()
        print_table(("group", "devices"), [(name, _names(e for e in known if name in e.groups)) for name in names])


def _names(known: Iterable[KnownDevice]) -> str:
    from remit.words.terminal import one_line

    return ", ".join(one_line(each.name) for each in known)


def _unknown(name: str, known: list[str]) -> Exception:
    from remit.protocol.errors import Code, RemitError, fault
    from remit.protocol.problems import did_you_mean

    near = did_you_mean(name, known) or (f"; there are: {', '.join(known)}" if known else "")
    todo = "Create it with the devices that belong to it: remit devices group NAME DEVICE…"
    return RemitError(fault(Code.NOT_FOUND, f"there is no group `{name[:100]}`{near}", suggestion=todo))


# ── devices ───────────────────────────────────────────────────────────────────────────────────────────────────────────


class UnmatchedError(click.ClickException):
    """The two owners saw different codes."""

    exit_code = 4


@click.group(cls=SubcommandGroup)
def devices() -> None:
    """Pair this device with others, and set what they may do.

    A device is a machine with its own identity. Its agents can work with agents that other devices share, and other
    devices can call the agents that it shares. Two devices are paired when each has the other's link. Pairing alone
    permits nothing; `allow` does. See `remit docs shared-agents` for the whole procedure.

    \b
    Example:
      remit devices init --name anna-laptop
      remit devices pair remit:pair#eyJraW5kIjoi…
      remit devices allow bob-desktop
    """


devices.add_command(group)
devices.add_command(own)


@devices.command()
@click.option("--name", metavar="NAME", help="Name that others see.  [default: the team's name and the host name]")
@team_options
@json_option
def init(name: str | None, team_file: Path | None, overrides: tuple[str, ...], as_json: bool) -> None:
    """Create the identity of this device, and show its link.

    The keys are stored next to the team's store, in device.db, encrypted with device.key. Both files stay on this
    machine. An existing identity is not changed.

    \b
    Example:
      remit devices init
      remit devices init --name anna-laptop
    """
    from remit_relay.team.device import create_device
    from remit_relay.team.section import RELAY

    if name is not None and not name.strip():
        raise click.BadParameter("must not be empty; leave it out to use the host name", param_hint="--name")
    team = _team(team_file, overrides)
    device = create_device(team, name or own_name(team))
    try:
        shown = device_shown(team, device)
    finally:
        device.state.close()
    _print_device(shown, as_json)
    if as_json:
        return
    if RELAY.of(team) is None:
        gateway = 'gateway = "wss://…"'
        click.echo(f"→ Set its gateway in {team.file.name}: [relay], {gateway}", err=True)
    pair = f"remit devices pair LINK{same_team(team_file)}"
    click.echo(f"→ Send the link to the people you work with, and pair with theirs: {pair}", err=True)


@devices.command()
@click.option("--link", "link_only", is_flag=True, help="Print only the link.")
@team_options
@json_option
def show(link_only: bool, team_file: Path | None, overrides: tuple[str, ...], as_json: bool) -> None:
    """Show this device: its id, its fingerprint, and the link that others pair with.

    The link contains no secret. Someone could replace it on the way. That is why the two owners compare codes.

    \b
    Example:
      remit devices show
      remit devices show --link
    """
    from remit_relay.team.device import using_device
    from remit_relay.team.section import RELAY

    team = _team(team_file, overrides)
    with using_device(team) as device:
        if (relay := RELAY.of(team)) is not None and relay.gateway != device.card.gateway:
            device.rename(gateway=relay.gateway)
        shown = device_shown(team, device)
    if link_only and not as_json:
        click.echo(shown.link)
    else:
        _print_device(shown, as_json)


@devices.command()
@click.argument("link")
@click.option("--verified", is_flag=True, help="You already compared the code with the device's owner, and it matches.")
@click.option("--allow", "allows", is_flag=True, help="If it is verified, also allow it, like `devices allow`.")
@team_options
@json_option
def pair(
    link: str, verified: bool, allows: bool, team_file: Path | None, overrides: tuple[str, ...], as_json: bool
) -> None:
    """Pair with the device of LINK, and show the code that both owners compare.

    Compare the code over a channel that you trust: face to face, or by phone. Each owner sees it after pairing with the
    other's link. If the codes differ, do not continue: somebody is intercepting your messages. In a terminal you are
    asked for the result. `later` keeps the device unverified; pair again with --verified to verify it.

    \b
    Example:
      remit devices pair remit:pair#eyJraW5kIjoi…
      remit devices pair remit:pair#eyJraW5kIjoi… --verified --allow
    """
    from remit_cli.show.screen import print_json
    from remit_relay.device.identity import comparable_code, read_link
    from remit_relay.device.peers import Peers
    from remit_relay.team.device import using_device
    from remit_server.documents.shared import DevicePaired

    team = _team(team_file, overrides)
    card = read_link(link)
    with using_device(team) as device:
        if card.device == device.id:
            raise click.BadParameter(
                "this is the link of this device; give the link of the other one", param_hint="LINK"
            )
        code = comparable_code(device.card, card)
        peers = Peers(device.state)
        if any(each.revoked for each in peers.list() if each.device == card.device):
            peers.pair(card)  # raises the reason; there is no code to compare
        asks = not (verified or as_json) and sys.stdin.isatty() and sys.stderr.isatty()
        if not as_json:
            click.echo(f"Code with {_called(card)}:", err=True)
            click.echo(code)
        if asks:
            verified = _do_they_match(card)
        peer = peers.pair(card)
        if verified:
            peer = peers.verify(peer.device)
        if allows and peer.verified:
            peer = peers.allow(peer.device)
        known = known_device(peer, device.state)
    if as_json:
        print_json(DevicePaired(device=known, code=code))
        return
    state = "verified" if known.verified else "not verified: compare the code, then pair again with --verified"
    may = ", and may contact this device" if known.verified and known.allowed else ""
    click.echo(f"{_called(card)} is paired, {state}{may}.", err=True)
    if allows and not peer.allowed:
        click.echo("A device must be verified before it is allowed.", err=True)
    if peer.may_talk:
        _say_what_is_missing(team, peer, share=not peer.allowed)
    else:
        todo = f"remit devices allow {_typed(card)}{same_team(team_file)}"
        click.echo(f"→ It has no permissions yet. To work with it: {todo}", err=True)


@devices.command("list")
@team_options
@json_option
def list_devices(team_file: Path | None, overrides: tuple[str, ...], as_json: bool) -> None:
    """List paired devices, their permissions, and the agents that they share with this one.

    A device tells the devices that may call it what it shares. This device receives that list while `remit chat` or
    `remit share` is running, and keeps it until the next one arrives.

    \b
    Example:
      remit devices list
      remit devices list --json
    """
    from remit_cli.show.screen import print_json, print_table
    from remit_relay.device.peers import Peers
    from remit_relay.team.device import using_device
    from remit_server.documents.shared import Devices

    with using_device(_team(team_file, overrides)) as device:
        found, own = tuple(known_device(peer, device.state) for peer in Peers(device.state).list()), device.id
    if as_json:
        print_json(Devices(device=own, devices=found))
    elif not found:
        todo = f"remit devices pair LINK{same_team(team_file)}"
        click.echo(f"No devices are paired yet.\n→ Ask the other owner for a link, then: {todo}", err=True)
    else:
        heads = ("name", "id", "verified", "shared with me", "may contact me", "may ask", "asked by", "revoked")
        print_table(heads, [_row(each) for each in found], folds=("id", "revoked", "asked by", "may ask"))
        offers = [(offer.name, each.name, offer.description) for each in found for offer in each.offers or ()]
        if any(description for *_, description in offers):
            click.echo()
            print_table(("shared with me", "by", "description"), offers)
        print_groups(found)
        print_own(found)


@devices.command()
@click.argument("device", shell_complete=devices_and_groups)
@click.option("--one-way", is_flag=True, help="You may call its agents, and it may call none here.")
@click.option(
    "--agent", "agents", multiple=True, metavar="AGENT", shell_complete=granted_agents, help="Let it ask this agent."
)
@click.option(
    "--profile",
    "profiles",
    multiple=True,
    metavar="NAME",
    shell_complete=granted_profiles,
    help="Let this profile ask it.",
)
@click.option("--remove", is_flag=True, help="Remove the permission. Messages to it wait until it is allowed again.")
@team_options
@json_option
def allow(
    device: str,
    one_way: bool,
    agents: tuple[str, ...],
    profiles: tuple[str, ...],
    remove: bool,
    team_file: Path | None,
    overrides: tuple[str, ...],
    as_json: bool,
) -> None:
    """Let DEVICE contact this one: list what it shares, answer calls, and call the agents shared with it.

    DEVICE is a name, an id, the unique start of an id, or a group: then each of its devices is meant. --agent and
    --profile grant, or with --remove take back, one agent that it may ask and one profile that may ask it. The team
    file can do the same: `devices` in `[profiles.NAME]` and `[shared.NAME]`. Running processes apply the change within
    a second.

    \b
    Example:
      remit devices allow bob-desktop
      remit devices allow bob-desktop --agent api-expert --profile reviewer
      remit devices allow bob-desktop --remove
    """
    from remit_cli.show.screen import print_json
    from remit_relay.device.peers import Grants, PeerDevice, Peers
    from remit_relay.team.device import find_devices, using_device
    from remit_server.documents.shared import DeviceChanged, DeviceGroup

    team = _team(team_file, overrides)
    grants = Grants(agents=frozenset(agents), profiles=frozenset(profiles))
    if not remove:
        _check_names(team, grants)
    with using_device(team) as own, own.state.writing():
        peers, changed = Peers(own.state), list[PeerDevice]()
        for found in (each.device for each in find_devices(peers.list(), device)):
            if agents or profiles:
                peer = peers.withdraw(found, grants) if remove else peers.grant(found, grants)
            else:
                peer = peers.share(found, shared=not remove) if one_way else peers.allow(found, allowed=not remove)
            changed.append(peer)
        known = tuple(known_device(peer, own.state) for peer in changed)
    if as_json:
        is_group = device in changed[0].groups
        print_json(DeviceGroup(group=device, devices=known) if is_group else DeviceChanged(device=known[0]))
        return
    for peer in changed:
        if agents or profiles:
            _print_grants(peer)
            continue
        what = "be called from here" if one_way else "contact this device"
        click.echo(f"{_called(peer.card)} may {'no longer ' if remove else ''}{what}.", err=True)
        if not remove:
            if not peer.verified:
                todo = "Compare codes with its owner, then pair again with --verified."
                click.echo(f"→ It is not verified. {todo}", err=True)
            _say_what_is_missing(team, peer, share=one_way)


@devices.command()
@click.argument("device", shell_complete=known_devices)
@team_options
@json_option
def revoke(device: str, team_file: Path | None, overrides: tuple[str, ...], as_json: bool) -> None:
    """Block DEVICE permanently: delete messages to it, end runs with it, and never accept its key again.

    It is told so when this device is next connected, and its runs with this one end, too.

    \b
    Example:
      remit devices revoke bob-desktop
    """
    from remit_cli.show.screen import print_json
    from remit_relay.e2e.channel import MessageCipher
    from remit_relay.messages.types import RevocationMessage, write
    from remit_relay.team.device import find_device, using_device
    from remit_server.documents.shared import DeviceChanged

    with using_device(_team(team_file, overrides)) as own:
        cipher = MessageCipher(own)
        peer = find_device(cipher.peers.list(), device)
        if not peer.revoked:
            peer = cipher.revoke(peer.device, write(RevocationMessage()))
        known = known_device(peer, own.state)
    if as_json:
        print_json(DeviceChanged(device=known))
    else:
        click.echo(
            f"{_called(peer.card)} is revoked: no more messages are sent to it or accepted from it.\n"
            "It is told when this device is connected.",
            err=True,
        )


# ── parts ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def _team(team_file: Path | None, overrides: tuple[str, ...]) -> Team:
    from remit_cli.config.load import load_team
    from remit_cli.places import team_path

    return load_team(team_path(team_file), overrides=overrides, secrets=False, code=False)


def own_name(team: Team) -> str:
    """Return a name that is probably unique, since equal names are easy to confuse."""
    import socket

    from remit_relay.device.identity import MAX_NAME

    host = "".join(char for char in socket.gethostname().partition(".")[0] if char.isprintable())
    return f"{team.name}@{host}"[:MAX_NAME].strip() if host else team.name[:MAX_NAME]


def _do_they_match(card: Card) -> bool:
    """Ask whether the other owner sees the same code; `no` ends the command."""
    click.echo(
        "Compare it with the device's owner, who sees it after pairing with your link: remit devices show --link",
        err=True,
    )
    question = "Do they see the same digits? (yes, no, later)"
    answer = click.prompt(question, value_proc=_yes_no_or_later, default="later", err=True)
    if answer == "no":
        raise UnmatchedError(
            f"The codes differ, so {_called(card)} was not added. Somebody may have replaced a link.\n"
            "→ Exchange the links again over another channel, and compare again."
        )
    return answer == "yes"


def _yes_no_or_later(typed: str) -> str:
    """Return the word that a typed answer begins."""
    word = typed.strip().lower()
    for answer in ("yes", "no", "later"):
        if word and answer.startswith(word):
            return answer
    raise click.BadParameter("type yes, no or later (y, n or l is enough)")


def _check_names(team: Team, grants: Grants) -> None:
    from remit.protocol.problems import did_you_mean
    from remit_relay.team.section import PROFILES, SHARED

    for option, named, there in (
        ("--agent", grants.agents, SHARED.of(team)),
        ("--profile", grants.profiles, PROFILES.of(team)),
    ):
        for each in sorted(named - there.keys()):
            what = "shares no agent" if option == "--agent" else "has no profile"
            raise click.BadParameter(f"the team {what} `{each}`{did_you_mean(each, there)}", param_hint=option)


def _print_grants(peer: PeerDevice) -> None:
    agents, profiles = ", ".join(sorted(peer.agents)), ", ".join(sorted(peer.profiles))
    click.echo(f"{_called(peer.card)} may ask: {agents or 'nothing by a grant'}.", err=True)
    click.echo(f"Profiles that may ask it: {profiles or 'none by a grant'}.", err=True)


def _say_what_is_missing(team: Team, peer: PeerDevice, share: bool) -> None:
    from remit_relay.team.section import PROFILES, SHARED

    named = [each.devices for each in PROFILES.of(team).values()]
    named.append(frozenset(each.device for each in team.agents.values() if each.device is not None))
    if not share:
        named += [each.devices for each in SHARED.of(team).values()]
    if any(peer.names & devices for devices in named) or peer.profiles or peer.agents or peer.own:
        return
    what, options = "no profile or agent calls it", "--profile NAME"
    if not share:
        what, options = f"{what}, and nothing is shared with it", f"{options}, or --agent NAME"
    click.echo(f"→ Currently {what}: remit devices allow {_typed(peer.card)} {options}", err=True)


def _print_device(shown: DeviceShown, as_json: bool) -> None:
    from remit_cli.show.screen import print_fields, print_json

    if as_json:
        print_json(shown)
        return
    fields = ("name", "id", "fingerprint", "gateway", "file", "link")
    print_fields((field, getattr(shown, field)) for field in fields)


def _called(card: Card) -> str:
    from remit.words.terminal import one_line

    return f"{one_line(card.name)} ({card.device[:8]}…)"


def _typed(card: Card) -> str:
    """Return a device's name as a command-line argument."""
    import shlex

    return shlex.quote(card.name)


def _row(known: KnownDevice) -> tuple[str, ...]:
    offered = _yes(known.shared) if known.offers is None else ", ".join(each.name for each in known.offers)
    grants = (", ".join(known.agents), ", ".join(known.profiles))
    revoked = "yes" if known.revoked else "by it" if known.revoked_there else ""
    return known.name, known.id, _yes(known.verified), offered, _yes(known.allowed), *grants, revoked


def _yes(is_so: bool) -> str:
    return "yes" if is_so else ""
