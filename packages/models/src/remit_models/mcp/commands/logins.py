"""Logs a person in at an MCP server of a team, and out."""

import asyncio
import webbrowser
from collections.abc import Sequence
from urllib.parse import urlsplit

import click

from remit.protocol.errors import Code, RemitError, fault
from remit.words.terminal import one_line
from remit_cli.config.team import Team
from remit_cli.drive import running
from remit_cli.show.screen import print_text
from remit_models.mcp.commands.tools import known_server
from remit_models.mcp.logins import LoginFile, StoredLogin
from remit_models.mcp.oauth_settings import OauthLogin
from remit_models.mcp.section import logins_folder, settings_of
from remit_models.mcp.settings import Address, Unset

# Time to find a password and a second factor; whoever takes longer starts again.
LOGIN_S = 600.0


def log_in(team: Team, server: str, scopes: Sequence[str], *, opens: bool, then: str) -> None:
    """Let the person at this machine log in, and store the tokens; raise a `RemitError` if that fails."""
    address = _address(team, server)
    found, _ = running.run(_logged_in(server, address, scopes, opens=opens))
    print_text(f"Logged in to {server} ({one_line(found.issuer)}).")
    if found.scope:
        print_text(f"Scopes: {one_line(found.scope)}")
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
