"""`remit worker`: host the team's agents for other hubs, without an HTTP server."""

from pathlib import Path

import click

from remit_cli.completion import agent_names
from remit_cli.options import team_options


@click.command()
@click.argument("agents", metavar="[AGENT]...", nargs=-1, shell_complete=agent_names)
@click.option("--verbose", "-v", is_flag=True, help="Show all log messages of the hub.")
@team_options
def worker(agents: tuple[str, ...], verbose: bool, team_file: Path | None, overrides: tuple[str, ...]) -> None:
    """Host AGENTs of the team for its other hubs, until Ctrl-C.

    The worker takes requests over the bus in `[bus]`, never more at once than `concurrency` of each agent, and needs
    the code and the secrets of these agents only. Without an AGENT it hosts those in `hosts` of `[bus]`.

    On Ctrl-C or SIGTERM, the worker takes nothing new and waits for requests in progress, for at most `drain` in
    `[serve]`. Other hosts resume the rest where possible. A second Ctrl-C stops the worker at once.

    \b
    Example:
      remit worker
      remit worker researcher writer
    """
    from remit.protocol.errors import Code, RemitError, fault
    from remit_cli.config.load import load_team
    from remit_cli.drive import running
    from remit_cli.drive.running import data_only, logging_to
    from remit_cli.places import importing, known_agent, team_path
    from remit_cluster.nats.commands.run_worker import run_worker
    from remit_cluster.nats.section import BUS

    with data_only(), logging_to(lambda line: click.echo(line, err=True), verbose=verbose):
        path = team_path(team_file)
        hosts = ",".join(f'"{name}"' for name in agents)
        chosen = (*overrides, f"bus.hosts=[{hosts}]") if agents else overrides
        with importing():
            if agents:
                known = load_team(path, overrides=overrides, secrets=False, code=False)
                for name in agents:
                    known_agent(name, known.everyone)
            team = load_team(path, overrides=chosen)
        if BUS.of(team) is None:
            raise RemitError(
                fault(
                    Code.TEAM_INVALID,
                    "the team has no bus: a worker would be reached by nobody",
                    suggestion='Add `[bus]` with `url = "nats://…"` to the team file: `remit docs many-machines`.',
                )
            )
        code, stuck = running.run(run_worker(team))
        if stuck:
            running.leave(code)
        raise SystemExit(code)
