"""`remit mcp`: the team's agents as tools of an MCP host."""

import os
from pathlib import Path

import click

from remit.cli.options import json_option, team_options


@click.command()
@click.option("--user", metavar="NAME", help="User to run as.  [default: current user]")
@click.option(
    "--tools", "server", metavar="SERVER", help="Do not serve; list the tools of the MCP server in [mcp.SERVER]."
)
@click.option(
    "--accept",
    metavar="TOOL",
    multiple=True,
    help="With --tools: agree to a tool that its server changed.",
)
@click.option("--verbose", "-v", is_flag=True, help="Show all log messages of the hub on stderr.")
@team_options
@json_option
def mcp(
    user: str | None,
    server: str | None,
    accept: tuple[str, ...],
    verbose: bool,
    team_file: Path | None,
    overrides: tuple[str, ...],
    as_json: bool,
) -> None:
    """Serve the team's agents to an MCP host, over stdin and stdout.

    The host (Claude Desktop, Cursor, Goose …) starts and ends this command. Its models get the tools delegate_task,
    list_agents, delegation_status and delegation_cancel. Stdout carries only the protocol; output of agents goes to
    stderr. Approvals are asked in the host, if it supports that, or in the inbox (remit pending). On a terminal, it
    prints the entry for the settings of a host.

    With --tools, the command is an MCP client instead: it starts an MCP server from the team file, and lists the tools
    that its `allow` can name. A tool whose description or schema the server changed since it was first used is held:
    what it said and says is printed, and --accept agrees to it.

    \b
    Example:
      remit mcp --team ~/office/remit.toml
      remit mcp --user anna
      remit mcp --tools files
      remit mcp --tools files --accept read_text_file
    """
    from remit.cli.drive import running
    from remit.cli.drive.mcp import installed, introduce, list_tools, serve_host, stdin_only
    from remit.cli.drive.running import data_only, logging_to
    from remit.cli.teams import current_user, importing, team_path
    from remit.config.load import load_team

    if as_json and server is None:
        raise click.UsageError("--json needs --tools; the output for an MCP host is always JSON")
    if accept and server is None:
        raise click.UsageError("--accept needs --tools, which names the server")
    installed()
    if server is not None:
        team = load_team(team_path(team_file), overrides=overrides, serving=False, code=False)
        list_tools(team, server, accept, as_json=as_json)
        return
    with stdin_only() as stdin, data_only() as data, logging_to(_say, verbose=verbose):
        with importing():
            team = load_team(team_path(team_file), overrides=overrides, serving=False)
        if os.isatty(stdin):
            introduce(team, user, overrides)
        _, stuck = running.run(serve_host(team, user or current_user(), stdin, data))
        if stuck:
            running.leave(0)


def _say(line: str) -> None:
    click.echo(line, err=True)
