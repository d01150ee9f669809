"""Serves a hub to an MCP host over stdin and stdout."""

import asyncio
import json
import os
import sys
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import click

from remit_cli.config.composition import hub_of
from remit_cli.config.peers import ANYONE
from remit_cli.config.team import Team
from remit_cli.drive.running import Data, interrupts
from remit_server.mcp.host_delegations import McpOffer


def introduce(team: Team, user: str | None, overrides: Sequence[str]) -> None:
    """Tell the person at a terminal what this command is, how a host starts it and how it ends."""
    # The path of this installation: hosts know neither the shell's PATH nor the working directory.
    program = Path(sys.executable).with_name("remit")
    command, *first = [str(program)] if program.exists() else [sys.executable, "-m", "remit_cli"]
    options = [each for override in overrides for each in ("--set", override)]
    options += [] if user is None else ["--user", user]
    entry = {"command": command, "args": [*first, "mcp", "--team", str(team.file.absolute()), *options]}
    click.echo("This is an MCP server. It waits on stdin for the messages of an MCP host, which starts it.", err=True)
    click.echo(f"In the host's settings: {json.dumps({'mcpServers': {team.name: entry}})}", err=True)
    click.echo("Ctrl-D or Ctrl-C ends it.", err=True)


async def serve_host(team: Team, user: str, stdin: int, data: Data) -> None:
    """Serve a team to the host at the other end of *stdin*, until the host closes it or this process is told to
    stop.
    """
    from remit_server.mcp.stdio import serve

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
                McpOffer(tools=team.serve.mcp_tools, sampling=team.serve.mcp_sampling),
            )
        )

        def stop(_: str) -> None:
            serving.cancel()

        with interrupts(stop, lambda: None), suppress(asyncio.CancelledError):
            await serving


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
