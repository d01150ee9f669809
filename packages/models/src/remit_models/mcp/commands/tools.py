"""Lists the tools of an MCP server of a team, for a person who agrees to them."""

import asyncio
import shlex
from collections.abc import Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING

import click
from msgspec.structs import replace

from remit.protocol.errors import Code, RemitError, fault
from remit.protocol.problems import did_you_mean
from remit.words.terminal import one_line
from remit_cli.config.team import Team
from remit_cli.drive import running
from remit_cli.show.screen import print_json, print_table
from remit_models.mcp.pins import Pin, ToolPins, pin_of
from remit_models.mcp.section import MCP, settings_of
from remit_models.mcp.settings import Settings, Unset
from remit_server.documents.team import McpTool, McpTools

if TYPE_CHECKING:  # an extra, which takes a second to import
    from mcp_types import Tool


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


def known_server(team: Team, server: str) -> str:
    """Return the name of a server if the team has it, or raise a `RemitError`."""
    if server not in MCP.of(team):
        near = did_you_mean(server, MCP.of(team)) or f"; known servers: {', '.join(MCP.of(team)) or 'none'}"
        raise RemitError(fault(Code.TEAM_INVALID, f"no such MCP server `{server}`{near}"))
    return server


def list_tools(team: Team, server: str, accept: Sequence[str], *, as_json: bool) -> None:
    """Print the tools of an MCP server, each with its name in the hub if the team allows it; agree to changed ones."""
    settings = settings_of(team, known_server(team, server))
    if isinstance(settings.reach, Unset):
        raise RemitError(fault(Code.TEAM_INVALID, f"MCP server {server} cannot be started: {settings.reach.why}"))
    (found, now), _ = running.run(_tools_of(settings))
    for tool in accept:
        if tool not in now:
            near = did_you_mean(tool, now) or f"; there are: {', '.join(now) or 'none'}"
            raise RemitError(fault(Code.NOT_FOUND, f"{server} has no tool `{tool}` that is in `allow`{near}"))
    if accept:
        ToolPins(settings.pins).accept(server, {tool: now[tool] for tool in accept})
        found = replace(
            found, tools=tuple(replace(each, accepted=None) if each.name in accept else each for each in found.tools)
        )
    if as_json:
        print_json(found)
        return
    rows = [(each.name, each.tool or "(not in allow)", each.description) for each in found.tools]
    print_table(["tool", "name in the hub", "description"], rows)
    for tool in found.missing:
        click.echo(f"`allow` names `{one_line(tool)}`, which the server does not have.", err=True)
    for each in found.tools:
        _say_doubts(server, each)


def _say_doubts(server: str, tool: McpTool) -> None:
    name = one_line(tool.name)
    for what in tool.suspicions if tool.tool is not None else ():
        click.echo(f"The description of `{name}` {what}.", err=True)
    if tool.accepted is not None:
        click.echo(f"`{name}` has changed, and is held until you agree.", err=True)
        click.echo(f"  It said: {one_line(tool.accepted, 1_000)}", err=True)
        click.echo(f"  It says: {one_line(tool.description, 1_000)}", err=True)
        click.echo(f"  To agree: remit mcp --tools {server} --accept {shlex.quote(tool.name)}", err=True)


async def _tools_of(settings: Settings) -> tuple[McpTools, dict[str, Pin]]:
    from remit_models.mcp.connection import McpConnection, McpConnectionLost, McpUnauthorized
    from remit_models.mcp.server import START_S

    link = McpConnection(settings, lambda: None)
    try:
        async with asyncio.timeout(START_S):
            await link.open()
    except McpUnauthorized as error:
        raise RemitError(error.fault) from error
    except (McpConnectionLost, TimeoutError) as error:
        for line in link.last_lines:
            click.echo(one_line(line), err=True)
        how = str(error) or f"no response after {START_S:.0f} s"
        why = f"cannot connect to MCP server {settings.name}: {how}"
        raise RemitError(fault(Code.DELEGATION_UNAVAILABLE, why)) from error
    finally:
        await link.close()
    return _described(settings, link.tools)


def _described(settings: Settings, listed: "dict[str, Tool]") -> tuple[McpTools, dict[str, Pin]]:
    """Return the tools of a server, and each allowed one as it could be accepted."""
    from remit_models.mcp.reading import card_of, suspicions

    names = {tool: name for name, tool in settings.names().items()}
    known = ToolPins(settings.pins).pins_of(settings.name)
    now: dict[str, Pin] = {}
    tools: list[McpTool] = []
    for tool in listed.values():
        name, before = names.get(tool.name), known.get(tool.name)
        if name is not None:
            now[tool.name] = pin_of(card_of(name, settings.name, tool, safe_to_repeat=False)[0])
        is_changed = name is not None and before is not None and before.digest != now[tool.name].digest
        tools.append(
            McpTool(
                name=tool.name,
                tool=name,
                description=tool.description or "",
                input_schema=tool.input_schema,
                accepted=before.description if is_changed and before is not None else None,
                suspicions=suspicions(tool),
            )
        )
    missing = tuple(tool for tool in names if tool not in listed)
    return McpTools(server=settings.name, tools=tuple(tools), missing=missing), now
