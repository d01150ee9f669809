"""`remit devices group`: devices under one name."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from remit.cli.completion_words import device_groups, known_devices
from remit.cli.options import json_option, same_team, team_options

if TYPE_CHECKING:  # encryption is not loaded to show help
    from collections.abc import Iterable

    from remit.documents.shared import KnownDevice


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
    from remit.cli.device_documents import known_device
    from remit.cli.show.screen import print_json
    from remit.cli.teams import team_path
    from remit.config.device import find_device, using_device
    from remit.config.load import load_team
    from remit.documents.shared import DeviceGroup
    from remit.relay.device.peers import Peers

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
    from remit.cli.show.screen import print_table

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
