"""`remit share`: agents of the team, for devices that may ask them."""

from pathlib import Path

import click

from remit.cli.options import json_option, jsonl_option, team_options
from remit.cli.suggest import known_devices, shared_agents


@click.command()
@click.argument("agent", required=False, shell_complete=shared_agents)
@click.option(
    "--device",
    "devices",
    multiple=True,
    metavar="DEVICE",
    shell_complete=known_devices,
    help="Share AGENT with this device, by name or id, whatever the team file says. May be given several times.",
)
@click.option("--verbose", "-v", is_flag=True, help="Show everything that the hub logs.")
@team_options
@json_option
@jsonl_option
def share(
    agent: str | None,
    devices: tuple[str, ...],
    verbose: bool,
    team_file: Path | None,
    overrides: tuple[str, ...],
    as_json: bool,
    as_jsonl: bool,
) -> None:
    """Let other devices ask agents of the team, until Ctrl-C.

    Which agents, and who may ask them, the team file says in `[shared.NAME]`; AGENT is one of those, or with --device
    any agent of the team. What others ask runs under the guards, limits and records of any delegation. Shown is who
    asks whom and how that ended, never what was said; `remit runs list` has the rest.

    What comes while nobody shares waits at the gateway. `remit devices allow` says who gets through at all. One process
    at a time speaks for a device: while you `remit chat` with another one, that shares what the team file says, too.

    \b
    Example:
      remit share
      remit share helper --device anna-laptop
    """
    from remit.cli.drive import leaving
    from remit.cli.drive.data import data_only
    from remit.cli.drive.logs import logging_to
    from remit.cli.drive.sharing import Documents, attend, chosen
    from remit.cli.places import importing, team_path
    from remit.config.load import load_team

    if devices and agent is None:
        raise click.UsageError("say which agent: remit share AGENT --device DEVICE")
    with data_only() as data, logging_to(lambda line: click.echo(line, err=True), verbose=verbose):
        with importing():
            team = load_team(team_path(team_file), overrides=overrides)
        shared = chosen(team, agent, devices)
        to = Documents(data, everything=as_jsonl) if as_json or as_jsonl else None
        code, stuck = leaving.run(attend(team, shared, to))
        if stuck:
            leaving.leave(code)
        raise SystemExit(code)
