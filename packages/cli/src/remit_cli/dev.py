"""`remit dev`: look at a team in the browser, with everything on this machine."""

from pathlib import Path

import click

from remit_cli.options import json_option, team_options

FOLDER = Path(".remit", "dev")


@click.command()
@click.option(
    "--port",
    type=click.IntRange(0, 65_535),
    default=0,
    metavar="PORT",
    help="Port of the console on 127.0.0.1.  [default: any free port]",
)
@click.option(
    "--folder",
    type=click.Path(file_okay=False, path_type=Path),
    default=FOLDER,
    metavar="PATH",
    help=f"Folder for everything that is kept.  [default: {FOLDER}]",
)
@click.option("--fresh", is_flag=True, help="Delete what an earlier one has kept there.")
@click.option("--no-browser", is_flag=True, help="Print the link, and open no browser.")
@click.option("--verbose", "-v", is_flag=True, help="Show all log messages.")
@team_options
@json_option
def dev(
    port: int,
    folder: Path,
    fresh: bool,
    no_browser: bool,
    verbose: bool,
    team_file: Path | None,
    overrides: tuple[str, ...],
    as_json: bool,
) -> None:
    """Open the console in the browser, with a team, a gateway and two devices on this machine.

    If there is a team file here, its team is shown. Without one, an example team goes through a month of receipts, so
    that there is something to see: calls within calls, a refusal, a failure, and a question that waits for an answer.
    Two devices are paired over the gateway: yours, with a scripted agent, and one that shares an agent with you. This
    chat demo needs the extra relay; without it, everything else is shown.

    Nothing of it needs a model, an account or another machine. Everything is kept in .remit/dev: the store of your own
    team is not touched. Ctrl-C stops all of it.

    \b
    Example:
      remit dev
      remit dev --no-browser --port 8090
      remit dev --fresh
    """
    from remit_cli.config.team_search import find_team
    from remit_cli.drive import running
    from remit_cli.drive.dev import DevOrder, run_dev
    from remit_cli.drive.running import data_only, logging_to

    with data_only() as data, logging_to(lambda line: click.echo(line, err=True), verbose=verbose):
        order = DevOrder(
            folder=folder.absolute(),
            team_file=find_team(team_file),
            overrides=overrides,
            port=port,
            fresh=fresh,
            opens=not no_browser,
        )
        code, stuck = running.run(run_dev(order, data if as_json else None))
        if stuck:
            running.leave(code)
        raise SystemExit(code)
