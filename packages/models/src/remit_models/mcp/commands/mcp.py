"""`remit mcp`: the team's agents as tools of an MCP host, and logins at the MCP servers of the team."""

import os
from pathlib import Path

import click

from remit_cli.options import SubcommandGroup, json_option, same_team, team_options


@click.group(cls=SubcommandGroup, invoke_without_command=True)
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
@click.pass_context
def mcp(
    context: click.Context,
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
      remit mcp login crm
    """
    if context.invoked_subcommand is not None:
        context.obj = (team_file, overrides)
        return
    from remit_cli.config.load import load_team
    from remit_cli.drive import running
    from remit_cli.drive.running import data_only, logging_to
    from remit_cli.places import current_user, importing, team_path
    from remit_models.mcp.commands.host import introduce, serve_host, stdin_only
    from remit_models.mcp.commands.servers import installed, list_tools

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


@mcp.command()
@click.argument("server")
@click.option("--scope", "scopes", metavar="SCOPES", multiple=True, help="Ask for further scopes. Repeatable.")
@click.option("--no-browser", is_flag=True, help="Print the address, and open no browser.")
@team_options
@click.pass_context
def login(
    context: click.Context,
    server: str,
    scopes: tuple[str, ...],
    no_browser: bool,
    team_file: Path | None,
    overrides: tuple[str, ...],
) -> None:
    """Log in at an MCP server of the team, in a browser.

    For servers with `auth = "oauth"` in [mcp.SERVER]. The tokens are stored in the folder `mcp-logins` beside the
    store, for all runs of the team, and are renewed there. The browser must run on this machine: it is sent back to a
    port of it.

    \b
    Example:
      remit mcp login crm
      remit mcp login crm --scope "files:read files:write"
    """
    from remit_cli.config.load import load_team
    from remit_cli.places import team_path
    from remit_models.mcp.commands.servers import installed, log_in

    installed()
    team_file, overrides = team_file or context.obj[0], (*context.obj[1], *overrides)
    team = load_team(team_path(team_file), overrides=overrides, serving=False, code=False)
    log_in(team, server, scopes, opens=not no_browser, then=same_team(team_file))


@mcp.command()
@click.argument("server")
@team_options
@click.pass_context
def logout(context: click.Context, server: str, team_file: Path | None, overrides: tuple[str, ...]) -> None:
    """Forget the login at an MCP server of the team.

    The tokens are deleted here. They stay valid until they expire, unless you withdraw them at the server.

    \b
    Example:
      remit mcp logout crm
    """
    from remit_cli.config.load import load_team
    from remit_cli.places import team_path
    from remit_models.mcp.commands.servers import log_out

    team_file, overrides = team_file or context.obj[0], (*context.obj[1], *overrides)
    log_out(load_team(team_path(team_file), overrides=overrides, serving=False, code=False), server)
