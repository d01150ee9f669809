"""Brings MCP to the `remit` command."""

from collections.abc import Mapping, Sequence

from remit.plugin import CommandSpec


def commands() -> Mapping[str, Mapping[str, CommandSpec]]:
    """Return the command for MCP hosts and MCP servers."""
    line = "Serve the team's agents to an MCP host, over stdin and stdout."
    return {"Connect": {"mcp": CommandSpec("remit_models.mcp.commands.mcp:mcp", line)}}


def checks() -> Sequence[str]:
    """Return the checks of MCP servers: who is logged in, and what models get in clear."""
    servers = "remit_models.mcp.commands.servers"
    return [f"{servers}:check_logins", f"{servers}:check_clear"]


def sections() -> tuple[str, ...]:
    """Return the addresses of the sections of the team file."""
    return ("remit_models.mcp.section:MCP",)
