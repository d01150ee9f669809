"""Gets a link that signs in a browser from a running server."""

import asyncio
import os
from pathlib import Path
from ssl import SSLContext, create_default_context

import msgspec

from remit.cli.show.screen import print_json, print_text
from remit.cli.teams import team_path
from remit.config.checks import secret_of
from remit.config.load import load_team
from remit.config.serving import TOKEN_FILE
from remit.config.team import Team
from remit.documents.api_delegations import FailureBody
from remit.documents.team import ConsoleLink
from remit.protocol.errors import Code, RemitError, fault
from remit.runtime.registry import team_invalid
from remit.server.access import token_in
from remit.server.public_console import LINKS, OneTimeLink

ANSWER_S = 30.0


def print_link(
    team_file: Path | None,
    overrides: tuple[str, ...],
    host: str | None,
    port: int | None,
    client: str | None,
    *,
    as_json: bool,
) -> int:
    """Print a new link of the server that serves a team on this machine; raise a `RemitError` if it does not answer."""
    team = load_team(team_path(team_file), overrides=overrides, secrets=False, code=False)
    link = asyncio.run(_ask(team, _address(team, host, port), _token(team, client)))
    if as_json:
        print_json(ConsoleLink(url=link.url, expires_in_ms=link.expires_in_ms))
    else:
        print_text(link.url)
    return 0


def _address(team: Team, host: str | None, port: int | None) -> str:
    host = host or team.serve.host
    host = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(host, f"[{host}]" if ":" in host else host)
    scheme = "http" if team.serve.certificate is None else "https"
    return f"{scheme}://{host}:{team.serve.port if port is None else port}"


def _token(team: Team, client: str | None) -> str:
    """Return the token to show: that of the client to sign in as, or the one in the token file."""
    if not (team.clients or team.peers):
        if client not in (None, "local"):
            raise team_invalid(f"the team names no client `{client}`")
        return token_in(team.store_path.parent / TOKEN_FILE)
    tokens = {name: each.token for name, each in team.clients.items() if each.token is not None}
    named = ", ".join(sorted(tokens)) or "none"
    if client is None and len(tokens) == 1:
        (client,) = tokens
    if client is None or client not in tokens:
        why = "name the client to sign in as" if client is None else f"no client `{client}` with a token"
        raise RemitError(
            fault(Code.TEAM_INVALID, f"{why}; there are: {named}", suggestion="Use: remit serve --link --client NAME")
        )
    try:
        return secret_of(tokens[client], os.environ)
    except ValueError as error:
        raise team_invalid(f"the token of `{client}` is not known here: {error}") from error


async def _ask(team: Team, address: str, token: str) -> OneTimeLink:
    from aiohttp import ClientError, ClientSession, ClientTimeout

    headers = {"Authorization": f"Bearer {token}"}
    try:
        async with (
            ClientSession(timeout=ClientTimeout(total=ANSWER_S)) as session,
            session.post(f"{address}{LINKS}", headers=headers, ssl=_trusting(team)) as reply,
        ):
            body = await reply.read()
    except (ClientError, TimeoutError, OSError) as error:
        why = f"no server answers at {address} ({type(error).__name__})"
        how = "Start it: remit serve --console; or say where it is: --host, --port"
        raise RemitError(fault(Code.DELEGATION_UNAVAILABLE, why, suggestion=how)) from error
    if reply.status == 404:
        why = f"the server at {address} serves no console"
        raise RemitError(fault(Code.NOT_FOUND, why, suggestion="Start it with: remit serve --console"))
    try:
        if reply.status >= 400:
            raise RemitError(msgspec.json.decode(body, type=FailureBody).fault)
        return msgspec.json.decode(body, type=OneTimeLink)
    except msgspec.DecodeError as error:
        why = f"what answers at {address} is not a server of Remit (status {reply.status})"
        raise RemitError(fault(Code.DELEGATION_UNAVAILABLE, why)) from error


def _trusting(team: Team) -> SSLContext | bool:
    """Return how to check the server's certificate: it must be the one in the team file."""
    if team.serve.certificate is None:
        return True
    context = create_default_context(cafile=str(team.folder / team.serve.certificate))
    context.check_hostname = False  # it is asked for by its address on this machine
    return context
