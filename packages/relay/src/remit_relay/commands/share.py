"""`remit share`: let other devices call agents of the team."""

from pathlib import Path

import click

from remit_cli.options import json_option, jsonl_option, team_options
from remit_relay.commands.completion_words import devices_and_groups, shared_agents


@click.command()
@click.argument("agent", required=False, shell_complete=shared_agents)
@click.option(
    "--device",
    "devices",
    multiple=True,
    metavar="DEVICE",
    shell_complete=devices_and_groups,
    help="Share AGENT with this device (name or id), regardless of the team file. Repeatable.",
)
@click.option("--verbose", "-v", is_flag=True, help="Show all log messages of the hub.")
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
    """Let other devices call agents of the team, until Ctrl-C.

    `[shared.NAME]` in the team file sets which agents are shared, and with which devices. AGENT is one of these, or
    with --device any agent of the team. Calls from other devices have the same guards, limits and records as any
    delegation. The output shows who calls which agent and the outcome, never the content. For more, see
    `remit runs list`.

    While no process shares, requests wait at the gateway. Only devices allowed by `remit devices allow` get through.
    One process runs a device. `remit up`, and `remit chat` with another device, also share what the team file lists.
    If one of them runs, this command shows what it shares and who calls, and leaves it running.

    \b
    Example:
      remit share
      remit share helper --device anna-laptop
    """
    from remit_cli.config.load import load_team
    from remit_cli.drive import running
    from remit_cli.drive.running import data_only, logging_to
    from remit_cli.places import importing, team_path
    from remit_relay.commands.shared.sharing import Documents, chosen, run_sharing

    if devices and agent is None:
        raise click.UsageError("--device needs an agent: remit share AGENT --device DEVICE")
    with data_only() as data, logging_to(lambda line: click.echo(line, err=True), verbose=verbose):
        with importing():
            team = load_team(team_path(team_file), overrides=overrides)
        shared = chosen(team, agent, devices)
        to = Documents(data, everything=as_jsonl) if as_json or as_jsonl else None
        code, stuck = running.run(run_sharing(team, shared, to, overrides=overrides, is_all=agent is None))
        if stuck:
            running.leave(code)
        raise SystemExit(code)
