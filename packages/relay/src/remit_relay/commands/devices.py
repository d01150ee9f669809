"""`remit devices`: this device and the paired ones."""

from typing import Any

import click

from remit_cli.options import SubcommandGroup, json_option, team_options
from remit_relay.commands.completion_words import (
    device_groups,
    devices_and_groups,
    granted_agents,
    granted_profiles,
    known_devices,
)


@click.command()
@click.argument("device", shell_complete=known_devices)
@click.option("--remove", is_flag=True, help="It is not yours: only what was granted to it by name still counts.")
@team_options
@json_option
def own(**options: Any) -> None:
    """Mark DEVICE as another device of yours: it may ask all agents shared here, and all profiles here may ask it.

    That holds for agents and profiles that are added later, too. It says nothing about what this device may do there:
    run the command on both devices, or pair them with `remit pair --own`. A profile with
    `allow_shared_agent_calls = false` in the team file still asks nobody. DEVICE must be verified.

    \b
    Example:
      remit devices own my-laptop
      remit devices own my-laptop --remove
    """
    from remit_relay.commands import manage_devices

    manage_devices.own(**options)


@click.command()
@click.argument("name", shell_complete=device_groups)
@click.argument("devices", nargs=-1, metavar="[DEVICE]...", shell_complete=known_devices)
@click.option("--remove", is_flag=True, help="Remove the devices from the group; without DEVICE, the whole group.")
@team_options
@json_option
def group(**options: Any) -> None:
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
    from remit_relay.commands import manage_devices

    manage_devices.group(**options)


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
def init(**options: Any) -> None:
    """Create the identity of this device, and show its link.

    The keys are stored next to the team's store, in device.db, encrypted with device.key. Both files stay on this
    machine. An existing identity is not changed.

    \b
    Example:
      remit devices init
      remit devices init --name anna-laptop
    """
    from remit_relay.commands import manage_devices

    manage_devices.init(**options)


@devices.command()
@click.option("--link", "link_only", is_flag=True, help="Print only the link.")
@team_options
@json_option
def show(**options: Any) -> None:
    """Show this device: its id, its fingerprint, and the link that others pair with.

    The link contains no secret. Someone could replace it on the way. That is why the two owners compare codes.

    \b
    Example:
      remit devices show
      remit devices show --link
    """
    from remit_relay.commands import manage_devices

    manage_devices.show(**options)


@devices.command()
@click.argument("link")
@click.option("--verified", is_flag=True, help="You already compared the code with the device's owner, and it matches.")
@click.option("--allow", "allows", is_flag=True, help="If it is verified, also allow it, like `devices allow`.")
@team_options
@json_option
def pair(**options: Any) -> None:
    """Pair with the device of LINK, and show the code that both owners compare.

    Compare the code over a channel that you trust: face to face, or by phone. Each owner sees it after pairing with the
    other's link. If the codes differ, do not continue: somebody is intercepting your messages. In a terminal you are
    asked for the result. `later` keeps the device unverified; pair again with --verified to verify it.

    \b
    Example:
      remit devices pair remit:pair#eyJraW5kIjoi…
      remit devices pair remit:pair#eyJraW5kIjoi… --verified --allow
    """
    from remit_relay.commands import manage_devices

    manage_devices.pair(**options)


@devices.command("list")
@team_options
@json_option
def list_devices(**options: Any) -> None:
    """List paired devices, their permissions, and the agents that they share with this one.

    A device tells the devices that may call it what it shares. This device receives that list while `remit chat` or
    `remit share` is running, and keeps it until the next one arrives.

    \b
    Example:
      remit devices list
      remit devices list --json
    """
    from remit_relay.commands import manage_devices

    manage_devices.list_all(**options)


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
def allow(**options: Any) -> None:
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
    from remit_relay.commands import manage_devices

    manage_devices.allow(**options)


@devices.command()
@click.argument("device", shell_complete=known_devices)
@team_options
@json_option
def revoke(**options: Any) -> None:
    """Block DEVICE permanently: delete messages to it, end runs with it, and never accept its key again.

    It is told so when this device is next connected, and its runs with this one end, too.

    \b
    Example:
      remit devices revoke bob-desktop
    """
    from remit_relay.commands import manage_devices

    manage_devices.revoke(**options)
