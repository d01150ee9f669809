"""`remit devices own`: two devices of one owner."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from remit.cli.completion_words import known_devices
from remit.cli.options import json_option, same_team, team_options

if TYPE_CHECKING:  # encryption is not loaded to show help
    from collections.abc import Iterable

    from remit.documents.shared import KnownDevice


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
    from remit.cli.device_documents import known_device
    from remit.cli.show.screen import print_json
    from remit.cli.teams import team_path
    from remit.config.device import find_device, using_device
    from remit.config.load import load_team
    from remit.documents.shared import DeviceChanged
    from remit.relay.device.peers import Grants, Peers

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
