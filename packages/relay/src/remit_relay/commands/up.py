"""`remit up`: run the device of the team until it is stopped."""

from pathlib import Path

import click

from remit_cli.options import json_option, team_options


@click.command()
@click.option("--detach", is_flag=True, help="Start it in the background, and return once it runs.")
@click.option("--status", "shows", is_flag=True, help="Show whether it runs, and what it does.")
@click.option("--link", "links", is_flag=True, help="Print a link that signs in a browser, once.")
@click.option("--stop", "stops", is_flag=True, help="Stop it, and wait until it has ended.")
@click.option("--install", "installs", is_flag=True, help="Let the system start it at login: systemd or launchd.")
@click.option("--print", "prints", is_flag=True, help="With --install: print the file, and change nothing.")
@click.option(
    "--port",
    type=click.IntRange(0, 65_535),
    default=0,
    metavar="PORT",
    help="Port of the local API on 127.0.0.1.  [default: any free port]",
)
@click.option("--verbose", "-v", is_flag=True, help="Show all log messages.")
@team_options
@json_option
def up(
    detach: bool,
    shows: bool,
    links: bool,
    stops: bool,
    installs: bool,
    prints: bool,
    port: int,
    verbose: bool,
    team_file: Path | None,
    overrides: tuple[str, ...],
    as_json: bool,
) -> None:
    """Run the device of the team until Ctrl-C: its runs, its shared agents, and the local API.

    One process runs a device. While it runs, `remit chat PROFILE DEVICE`, `remit share` and `remit pending` are clients
    of it. Any number of them can be open, and a run continues when its terminal is closed. Without it, they run the
    device themselves, and what they run ends with them.

    If the process is killed, the next one continues from the store. Runs that were active come back paused.

    \b
    Example:
      remit up
      remit up --detach && remit up --status
      remit up --link
      remit up --install
      remit up --stop
    """
    chosen = [
        name
        for name, is_set in (
            ("--detach", detach),
            ("--status", shows),
            ("--link", links),
            ("--stop", stops),
            ("--install", installs),
        )
        if is_set
    ]
    if len(chosen) > 1:
        raise click.UsageError(f"{chosen[0]} and {chosen[1]} cannot be combined")
    if prints and not installs:
        raise click.UsageError("--print needs --install")
    from remit_cli.config.load import load_team
    from remit_cli.places import team_path

    path = team_path(team_file)
    if chosen:
        from remit_relay.commands.shared import up_control

        team = load_team(path, overrides=overrides, secrets=False, code=False)
        order = up_control.UpOrder(team=team, overrides=overrides, port=port, verbose=verbose, named_team=team_file)
        if shows:
            raise SystemExit(up_control.show_status(order, as_json=as_json))
        if links:
            raise SystemExit(up_control.print_link(order))
        if stops:
            raise SystemExit(up_control.stop(order, as_json=as_json))
        if installs:
            from remit_cli.drive.login_service import install
            from remit_relay.team.device import using_device

            with using_device(team):  # report what is missing before the system tries
                pass
            raise SystemExit(install(order.service(), prints=prints))
        raise SystemExit(up_control.detach(order, as_json=as_json))
    from remit_cli.drive import running
    from remit_cli.drive.running import data_only, logging_to
    from remit_cli.places import importing
    from remit_relay.commands.shared.up_run import run_device

    with data_only() as data, logging_to(lambda line: click.echo(line, err=True), verbose=verbose):
        with importing():
            team = load_team(path, overrides=overrides)
        code, stuck = running.run(run_device(team, overrides, port, data if as_json else None))
        if stuck:
            running.leave(code)
        raise SystemExit(code)
