"""`remit pair`: connect this device with another one over a short code."""

from typing import Any

import click

from remit_cli.options import json_option, team_options
from remit_relay.commands.completion_words import granted_agents, granted_profiles


@click.command()
@click.argument("code", required=False)
@click.option("--name", metavar="NAME", help="Name of a new device.  [default: the team's name and the host name]")
@click.option("--gateway", metavar="URL", help="Gateway to use if the team file names none; the device keeps it.")
@click.option("--gateway-name", metavar="NAME", default="", help="Name of that gateway, if it is not its host.")
@click.option(
    "--let-ask",
    "agents",
    multiple=True,
    metavar="AGENT",
    shell_complete=granted_agents,
    help="Let the other device ask this shared agent.",
)
@click.option("--let-ask-all", is_flag=True, help="Let the other device ask all shared agents.")
@click.option(
    "--use",
    "profiles",
    multiple=True,
    metavar="PROFILE",
    shell_complete=granted_profiles,
    help="Let this profile ask the other device.",
)
@click.option("--use-all", is_flag=True, help="Let all profiles ask the other device.")
@click.option("--own", is_flag=True, help="The other device is yours, too: grant all agents and profiles, for good.")
@click.option("--yes", is_flag=True, help="The same as --let-ask-all --use-all.")
@team_options
@json_option
def pair(**options: Any) -> None:
    """Connect this device with another: show a code, or type the CODE that the other one shows.

    Both devices use the same gateway. A code works once and for ten minutes. A wrong one kills it, so nobody can try
    codes. CODE may also be the link of the QR code. A device is created if the team has none. In a terminal you are
    asked what each may do with the other; `remit devices allow` changes it later. See `remit docs relay-pairing`.

    \b
    Example:
      remit pair
      remit pair 4821-marble-tiger-lemon
      remit pair --gateway wss://relay.example.com --let-ask api-expert
      remit pair 4821-marble-tiger-lemon --use reviewer
      remit pair 4821-marble-tiger-lemon --own
    """
    from remit_relay.commands import short_code_pairing

    short_code_pairing.pair(**options)
