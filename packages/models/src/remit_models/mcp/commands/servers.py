"""What a person does with the MCP servers of a team: list and accept tools, log in, check logins, log out."""

import asyncio
import shlex
import time
import webbrowser
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import click
from msgspec.structs import replace

from remit.installed import install_command
from remit.protocol.errors import Code, RemitError, fault
from remit.protocol.problems import did_you_mean
from remit.words.terminal import one_line
from remit_cli.config.team import Team
from remit_cli.doctor_checks import ok, warning
from remit_cli.drive import running
from remit_cli.show.screen import print_json, print_table, print_text
from remit_models.mcp.logins import LoginFile, StoredLogin, usable
from remit_models.mcp.oauth_settings import OauthLogin
from remit_models.mcp.pins import Pin, ToolPins, pin_of
from remit_models.mcp.section import MCP, logins_folder, oauth_keys, settings_of
from remit_models.mcp.settings import Address, Settings, Unset
from remit_server.documents.team import Check, McpTool, McpTools

if TYPE_CHECKING:  # an extra, which takes a second to import
    from mcp_types import Tool


def installed() -> None:
    """Raise a `RemitError` if the extra is missing."""
    if find_spec("mcp") is None:
        raise RemitError(
            fault(
                Code.TEAM_INVALID,
                "MCP needs the extra `mcp`, which is not installed",
                suggestion=f"Install it: {install_command('mcp')}",
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
    (listed, now), _ = running.run(_tools_of(settings))
    for tool in accept:
        if tool not in now:
            near = did_you_mean(tool, now) or f"; there are: {', '.join(now) or 'none'}"
            raise RemitError(fault(Code.NOT_FOUND, f"{server} has no tool `{tool}` that is in `allow`{near}"))
    if accept:
        ToolPins(settings.pins).accept(server, {tool: now[tool] for tool in accept})
        listed = replace(
            listed,
            tools=tuple(replace(each, accepted=None) if each.name in accept else each for each in listed.tools),
        )
    if as_json:
        print_json(listed)
        return
    rows = [(each.name, each.tool or "(not in allow)", each.description) for each in listed.tools]
    print_table(["tool", "name in the hub", "description"], rows)
    for tool in listed.missing:
        click.echo(f"`allow` names `{one_line(tool)}`, which the server does not have.", err=True)
    for each in listed.tools:
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


# Time to find a password and a second factor; whoever takes longer starts again.
LOGIN_S = 600.0


def log_in(team: Team, server: str, scopes: Sequence[str], *, opens: bool, then: str) -> None:
    """Let the person at this machine log in, and store the tokens; raise a `RemitError` if that fails."""
    address = _address(team, server)
    login, _ = running.run(_logged_in(server, address, scopes, opens=opens))
    print_text(f"Logged in to {server} ({one_line(login.issuer)}).")
    if login.scope:
        print_text(f"Scopes: {one_line(login.scope)}")
    click.echo(f"See what it offers: remit mcp --tools {server}{then}", err=True)


async def _logged_in(server: str, address: Address, scopes: Sequence[str], *, opens: bool) -> StoredLogin:
    from remit_models.mcp.oauth import OauthTokens

    tokens = OauthTokens(server, address)

    async def browse(url: str) -> None:
        host, before = urlsplit(url).hostname, tokens.stored()
        known = (before.metadata or {}) if before is not None else {}
        last = urlsplit(str(known.get("authorization_endpoint", ""))).hostname
        if last is not None and last != host:
            click.echo(f"Take care: the last login was at {last}, and this one is at another host.", err=True)
        click.echo(f"To log in to {server} at {host}, open:\n{one_line(url, 10_000)}", err=True)
        if opens:
            await asyncio.to_thread(webbrowser.open, url)

    try:
        async with asyncio.timeout(LOGIN_S):
            return await tokens.log_in(browse, *scopes)
    except TimeoutError as error:
        raise RemitError(fault(Code.TIMEOUT, f"nobody logged in within {LOGIN_S / 60:.0f} minutes")) from error


def log_out(team: Team, server: str) -> None:
    """Forget the login at a server."""
    login = LoginFile(logins_folder(team), known_server(team, server))

    async def forget() -> bool:
        async with login.locked():
            return login.forget()

    there, _ = running.run(forget())
    print_text(f"Logged out of {server}." if there else f"There was no login at {server}.")


def _address(team: Team, server: str) -> Address:
    """Return the address of a server with logins, or raise a `RemitError`."""
    settings = settings_of(team, known_server(team, server))
    match settings.reach:
        case Unset(why=why):
            raise RemitError(fault(Code.TEAM_INVALID, f"MCP server {server} cannot be used: {why}"))
        case Address(oauth=OauthLogin()) as address:
            return address
        case _:
            how = f'Set `auth = "oauth"` in [mcp.{server}].'
            raise RemitError(fault(Code.TEAM_INVALID, f"MCP server {server} has no logins", suggestion=how))


def check_clear(team: Team) -> Iterator[Check]:
    """Name the tools of MCP servers from which models get personal data in clear."""
    for name, section in MCP.of(team).items():
        for tool in sorted(section.clear):
            says = f"models get the results of {tool} unredacted"
            todo = "Leave it out of `clear` unless the model needs the values themselves."
            yield warning(f"mcp.{name}", says, todo)


def check_logins(team: Team) -> Iterator[Check]:
    """Check that somebody is logged in at each MCP server that wants it."""
    for name, section in MCP.of(team).items():
        oauth = oauth_keys(section).chosen()
        if not isinstance(oauth, OauthLogin) or section.url is None:
            continue
        todo = f"remit mcp login {shlex.quote(name)}"
        login = usable(LoginFile(logins_folder(team), name).read(), section.url, oauth)
        if login is None:
            yield warning(f"mcp.{name}", "nobody is logged in, so its tools cannot be used", todo)
        elif login.refresh_token is None and login.renew_at is not None and login.renew_at <= time.time():
            yield warning(f"mcp.{name}", "the login has expired, so its tools cannot be used", todo)
        else:
            yield ok(f"mcp.{name}", f"logged in at {login.issuer}")
