"""Serves a hub to an MCP host over stdin and stdout."""

import asyncio
import os
from collections.abc import Generator
from contextlib import contextmanager, suppress
from importlib.util import find_spec

import click

from remit.agents.mcp.settings import Settings
from remit.cli.drive import running
from remit.cli.drive.running import Data, interrupts
from remit.cli.show.screen import print_json, print_table
from remit.config.composition import hub_of, settings_of
from remit.config.peers import ANYONE
from remit.config.team import Team
from remit.documents.team import McpTool, McpTools
from remit.protocol.errors import Code, RemitError, fault
from remit.protocol.problems import did_you_mean
from remit.text.terminal import one_line


def installed() -> None:
    """Raise a `RemitError` if the extra is missing."""
    if find_spec("mcp") is None:
        raise RemitError(
            fault(
                Code.TEAM_INVALID,
                "MCP needs the extra `mcp`, which is not installed",
                suggestion="Install it: pip install 'remit[mcp]'",
            )
        )


async def serve_host(team: Team, user: str, stdin: int, data: Data) -> None:
    """Serve a team to the host at the other end of *stdin*, until the host closes it or this process is told to
    stop.
    """
    from remit.server.mcp.stdio import serve

    async with hub_of(team) as hub:
        exposed = team.serve.agents
        serving = asyncio.get_running_loop().create_task(
            serve(
                hub,
                user,
                team.name,
                lambda: frozenset(hub.cards) if ANYONE in exposed else exposed,
                stdin,
                data.piece,
            )
        )

        def stop(_: str) -> None:
            serving.cancel()

        with interrupts(stop, lambda: None), suppress(asyncio.CancelledError):
            await serving


def list_tools(team: Team, server: str, *, as_json: bool) -> None:
    """Print the tools of an MCP server, each with its name in the hub if the team allows it."""
    if server not in team.mcp:
        near = did_you_mean(server, team.mcp) or f"; known servers: {', '.join(team.mcp) or 'none'}"
        raise RemitError(fault(Code.TEAM_INVALID, f"no such MCP server `{server}`{near}"))
    found, _ = running.run(_tools_of(settings_of(team, server)))
    if as_json:
        print_json(found)
        return
    rows = [(each.name, each.tool or "(not in allow)", each.description) for each in found.tools]
    print_table(["tool", "name in the hub", "description"], rows)
    for tool in found.missing:
        click.echo(f"`allow` names `{one_line(tool)}`, which the server does not have.", err=True)


async def _tools_of(settings: Settings) -> McpTools:
    from remit.agents.mcp.connection import McpConnection, McpConnectionLost
    from remit.agents.mcp.server import START_S

    link = McpConnection(settings, lambda: None)
    try:
        async with asyncio.timeout(START_S):
            await link.open()
    except (McpConnectionLost, TimeoutError) as error:
        for line in link.last_lines:
            click.echo(one_line(line), err=True)
        how = str(error) or f"no response after {START_S:.0f} s"
        why = f"cannot connect to MCP server {settings.name}: {how}"
        raise RemitError(fault(Code.DELEGATION_UNAVAILABLE, why)) from error
    finally:
        await link.close()
    names = {tool: name for name, tool in settings.names().items()}
    return McpTools(
        server=settings.name,
        tools=tuple(
            McpTool(
                name=tool.name,
                tool=names.get(tool.name),
                description=tool.description or "",
                input_schema=tool.input_schema,
            )
            for tool in link.tools.values()
        ),
        missing=tuple(tool for tool in names if tool not in link.tools),
    )


@contextmanager
def stdin_only() -> Generator[int]:
    """Reserve stdin for the protocol: yield it, while any other reader finds it empty.

    It is never closed: a thread may still read from its file descriptor, which must not be reused for another file.
    """
    kept = os.dup(0)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    try:
        yield kept
    finally:
        os.dup2(kept, 0)
