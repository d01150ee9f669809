"""`remit mcp`: the team's agents as tools of an MCP host."""

from pathlib import Path

import click

from remit.cli.options import json_option, team_options


@click.command()
@click.option("--user", metavar="NAME", help="User to run as.  [default: current user]")
@click.option("--tools", "server", metavar="SERVER", help="Serve nothing: list the tools of a server in [mcp.SERVER].")
@click.option("--verbose", "-v", is_flag=True, help="Show everything that the hub logs, on stderr.")
@team_options
@json_option
def mcp(
    user: str | None,
    server: str | None,
    verbose: bool,
    team_file: Path | None,
    overrides: tuple[str, ...],
    as_json: bool,
) -> None:
    """Serve the team's agents to an MCP host, over stdin and stdout.

    The host (Claude Desktop, Cursor, Goose …) starts this command and ends it. Its models get the tools delegate_task,
    list_agents, delegation_status and delegation_cancel. Only the protocol goes to stdout; what agents print goes to
    stderr. What a person must agree to is asked in the host, if it can ask; else in the inbox (remit pending).

    With --tools it is the other way round: it starts an MCP server that the team file names, and lists what could be
    put into its `allow`.

    \b
    Example:
      remit mcp --team ~/office/remit.toml
      remit mcp --user anna
      remit mcp --tools files
    """
    from remit.cli.drive import leaving
    from remit.cli.drive.data import data_only
    from remit.cli.drive.logs import logging_to
    from remit.cli.drive.mcp import attend, installed, list_tools, stdin_only
    from remit.cli.places import importing, team_path, whoever_types
    from remit.config.load import load_team

    if as_json and server is None:
        raise click.UsageError("--json is for --tools; what a host is told is JSON anyway")
    installed()
    if server is not None:
        list_tools(load_team(team_path(team_file), overrides=overrides, code=False), server, as_json=as_json)
        return
    with stdin_only() as stdin, data_only() as data, logging_to(_say, verbose=verbose):
        with importing():
            team = load_team(team_path(team_file), overrides=overrides)
        _, stuck = leaving.run(attend(team, user or whoever_types(), stdin, data))
        if stuck:
            leaving.leave(0)


def _say(line: str) -> None:
    click.echo(line, err=True)
