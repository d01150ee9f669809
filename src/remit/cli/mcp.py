"""`remit mcp`: the team's agents as tools of an MCP host."""

from pathlib import Path

import click

from remit.cli.options import json_option, team_options


@click.command()
@click.option("--user", metavar="NAME", help="User to run as.  [default: current user]")
@click.option(
    "--tools", "server", metavar="SERVER", help="Do not serve; list the tools of the MCP server in [mcp.SERVER]."
)
@click.option("--verbose", "-v", is_flag=True, help="Show all log messages of the hub on stderr.")
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

    The host (Claude Desktop, Cursor, Goose …) starts and ends this command. Its models get the tools delegate_task,
    list_agents, delegation_status and delegation_cancel. Stdout carries only the protocol; output of agents goes to
    stderr. Approvals are asked in the host, if it supports that, or in the inbox (remit pending).

    With --tools, the command is an MCP client instead: it starts an MCP server from the team file, and lists the tools
    that its `allow` can name.

    \b
    Example:
      remit mcp --team ~/office/remit.toml
      remit mcp --user anna
      remit mcp --tools files
    """
    from remit.cli.drive import running
    from remit.cli.drive.mcp import installed, list_tools, serve_host, stdin_only
    from remit.cli.drive.running import data_only, logging_to
    from remit.cli.places import current_user, importing, team_path
    from remit.config.load import load_team

    if as_json and server is None:
        raise click.UsageError("--json needs --tools; the output for an MCP host is always JSON")
    installed()
    if server is not None:
        list_tools(load_team(team_path(team_file), overrides=overrides, code=False), server, as_json=as_json)
        return
    with stdin_only() as stdin, data_only() as data, logging_to(_say, verbose=verbose):
        with importing():
            team = load_team(team_path(team_file), overrides=overrides)
        _, stuck = running.run(serve_host(team, user or current_user(), stdin, data))
        if stuck:
            running.leave(0)


def _say(line: str) -> None:
    click.echo(line, err=True)
