"""Shows and changes this device and the known ones, for `remit devices`."""

import shlex
import socket
import sys
from collections.abc import Iterable
from pathlib import Path

import click

from remit.protocol.errors import Code, RemitError, fault
from remit.protocol.problems import did_you_mean
from remit.words.terminal import one_line
from remit_cli.config.load import load_team
from remit_cli.config.team import Team
from remit_cli.options import same_team
from remit_cli.places import relative_path, team_path
from remit_cli.show.screen import print_fields, print_json, print_table
from remit_relay.device.identity import MAX_NAME, Card, comparable_code, read_link
from remit_relay.device.peers import Grants, PeerDevice, Peers
from remit_relay.device.state import DeviceFile
from remit_relay.e2e.account import Device
from remit_relay.e2e.channel import MessageCipher
from remit_relay.local_api.views import shown_as
from remit_relay.messages.types import RevocationMessage, latest_offers, shares, write
from remit_relay.team.device import create_device, device_path, find_device, find_devices, using_device
from remit_relay.team.section import PROFILES, RELAY, SHARED
from remit_server.documents.shared import (
    DeviceChanged,
    DeviceGroup,
    DevicePaired,
    Devices,
    DeviceShown,
    KnownDevice,
)
from remit_server.transports.credentials.keys import fingerprint

# ── documents ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def device_shown(team: Team, device: Device) -> DeviceShown:
    """Return the document about this device."""
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
    offer = latest_offers(state, peer.device)
    return shown_as(
        KnownDevice,
        peer,
        id=peer.device,
        name=peer.card.name,
        fingerprint=fingerprint(peer.card.key),
        shared=shares(peer, offer),
        offers=offer,
        agents=sorted(peer.agents),
        profiles=sorted(peer.profiles),
        groups=sorted(peer.groups),
    )


# ── own devices ───────────────────────────────────────────────────────────────────────────────────────────────────────


def own(device: str, remove: bool, team_file: Path | None, overrides: tuple[str, ...], as_json: bool) -> None:
    """Do what `remit devices own` says."""
    team = load_team(team_path(team_file), overrides=overrides, secrets=False, code=False)
    with using_device(team) as here:
        peers = Peers(here.state)
        device_id, owned = find_device(peers.list(), device).device, Grants(own=True)
        peer = peers.withdraw(device_id, owned) if remove else peers.grant(device_id, owned)
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
    click.echo(f"{one_line(name)} is yours: it may ask all agents shared here, all profiles may ask it.", err=True)
    todo = f"remit devices own {shlex.quote(own_name)}{same}"
    click.echo(f"→ For the same in the other direction, run on {one_line(name)}: {todo}", err=True)


def print_own(known: Iterable[KnownDevice]) -> None:
    """Print which known devices are the owner's, if there are any."""
    names = [_name(each) for each in known if each.own]
    if names:
        click.echo(f"\nYour own devices: {', '.join(names)}")


def _name(known: KnownDevice) -> str:
    return one_line(known.name)


# ── groups ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def group(
    name: str,
    devices: tuple[str, ...],
    remove: bool,
    team_file: Path | None,
    overrides: tuple[str, ...],
    as_json: bool,
) -> None:
    """Do what `remit devices group` says."""
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
        documents = tuple(known_device(each, own.state) for each in members)
    if as_json:
        print_json(DeviceGroup(group=name, devices=documents))
        return
    click.echo(
        f"{name}: {_names(documents)}" if documents else f"The group {name} is removed.", err=bool(devices) or remove
    )
    if documents and not remove and not any(each.shared or each.allowed for each in documents):
        todo = f"remit devices allow {name}{same_team(team_file)}"
        click.echo(f"→ Its devices have no permissions yet. To work with them: {todo}", err=True)


def print_groups(known: Iterable[KnownDevice]) -> None:
    """Print the groups of the known devices, if there are any."""
    known = list(known)
    names = sorted({name for each in known for name in each.groups})
    if names:
        click.echo()
        print_table(("group", "devices"), [(name, _names(e for e in known if name in e.groups)) for name in names])


def _names(known: Iterable[KnownDevice]) -> str:

    return ", ".join(one_line(each.name) for each in known)


def _unknown(name: str, known: list[str]) -> Exception:

    near = did_you_mean(name, known) or (f"; there are: {', '.join(known)}" if known else "")
    todo = "Create it with the devices that belong to it: remit devices group NAME DEVICE…"
    return RemitError(fault(Code.NOT_FOUND, f"there is no group `{name[:100]}`{near}", suggestion=todo))


# ── devices ───────────────────────────────────────────────────────────────────────────────────────────────────────────


class UnmatchedError(click.ClickException):
    """The two owners saw different codes."""

    exit_code = 4


def init(name: str | None, team_file: Path | None, overrides: tuple[str, ...], as_json: bool) -> None:
    """Do what `remit devices init` says."""
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


def show(link_only: bool, team_file: Path | None, overrides: tuple[str, ...], as_json: bool) -> None:
    """Do what `remit devices show` says."""
    team = _team(team_file, overrides)
    with using_device(team) as device:
        if (relay := RELAY.of(team)) is not None and relay.gateway != device.card.gateway:
            device.rename(gateway=relay.gateway)
        shown = device_shown(team, device)
    if link_only and not as_json:
        click.echo(shown.link)
    else:
        _print_device(shown, as_json)


def pair(
    link: str, verified: bool, allows: bool, team_file: Path | None, overrides: tuple[str, ...], as_json: bool
) -> None:
    """Do what `remit devices pair` says."""
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
        is_asked = not (verified or as_json) and sys.stdin.isatty() and sys.stderr.isatty()
        if not as_json:
            click.echo(f"Code with {_called(card)}:", err=True)
            click.echo(code)
        if is_asked:
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


def list_all(team_file: Path | None, overrides: tuple[str, ...], as_json: bool) -> None:
    """Do what `remit devices list` says."""
    with using_device(_team(team_file, overrides)) as device:
        known, own = tuple(known_device(peer, device.state) for peer in Peers(device.state).list()), device.id
    if as_json:
        print_json(Devices(device=own, devices=known))
    elif not known:
        todo = f"remit devices pair LINK{same_team(team_file)}"
        click.echo(f"No devices are paired yet.\n→ Ask the other owner for a link, then: {todo}", err=True)
    else:
        heads = ("name", "id", "verified", "shared with me", "may contact me", "may ask", "asked by", "revoked")
        print_table(heads, [_row(each) for each in known], folds=("id", "revoked", "asked by", "may ask"))
        offers = [(offer.name, each.name, offer.description) for each in known for offer in each.offers or ()]
        if any(description for *_, description in offers):
            click.echo()
            print_table(("shared with me", "by", "description"), offers)
        print_groups(known)
        print_own(known)


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
    """Do what `remit devices allow` says."""
    team = _team(team_file, overrides)
    grants = Grants(agents=frozenset(agents), profiles=frozenset(profiles))
    if not remove:
        _check_names(team, grants)
    with using_device(team) as own, own.state.writing():
        peers, changed = Peers(own.state), list[PeerDevice]()
        for device_id in (each.device for each in find_devices(peers.list(), device)):
            if agents or profiles:
                peer = peers.withdraw(device_id, grants) if remove else peers.grant(device_id, grants)
            else:
                peer = (
                    peers.share(device_id, shared=not remove) if one_way else peers.allow(device_id, allowed=not remove)
                )
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


def revoke(device: str, team_file: Path | None, overrides: tuple[str, ...], as_json: bool) -> None:
    """Do what `remit devices revoke` says."""
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

    return load_team(team_path(team_file), overrides=overrides, secrets=False, code=False)


def own_name(team: Team) -> str:
    """Return a name that is probably unique, since equal names are easy to confuse."""
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

    if as_json:
        print_json(shown)
        return
    fields = ("name", "id", "fingerprint", "gateway", "file", "link")
    print_fields((field, getattr(shown, field)) for field in fields)


def _called(card: Card) -> str:
    return f"{one_line(card.name)} ({card.device[:8]}…)"


def _typed(card: Card) -> str:
    """Return a device's name as a command-line argument."""
    return shlex.quote(card.name)


def _row(known: KnownDevice) -> tuple[str, ...]:
    offered = _yes(known.shared) if known.offers is None else ", ".join(each.name for each in known.offers)
    grants = (", ".join(known.agents), ", ".join(known.profiles))
    revoked = "yes" if known.revoked else "by it" if known.revoked_there else ""
    return known.name, known.id, _yes(known.verified), offered, _yes(known.allowed), *grants, revoked


def _yes(is_so: bool) -> str:
    return "yes" if is_so else ""
